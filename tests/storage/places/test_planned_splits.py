"""Pieces that find their own cuts: together they are each batch once, and meet, or are known not to."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery.summaries.codec import pack_split, unpack_split
from recovery.summaries.partition import ReadPiece, join_partition
from recovery.summaries.segment import read_split
from storage.places import splits as splits_module
from storage.places.list_places import list_places
from storage.places.splits import MAX_PARTS_COUNT, plan_places, proven
from tests.drawn import examples
from tests.made_logs import damaged_logs, logs
from tests.storage.places.test_splits import (
    SIZE,
    TEN,
    batch,
    check,
    lies,
    lying_entries,
    rows_of,
    starts_of,
    true_entries,
    with_batches_in_a_value,
    write_segment,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from storage.places.listing import SegmentPlace
    from storage.places.splits import Split


def found_by_tasks(splits: Sequence[Split]) -> list[Split]:
    """Each proves its own cuts, in any order, and knows nothing of the others."""
    order = [*splits]
    random.Random(len(splits)).shuffle(order)
    sent = (unpack_split(pack_split(each)) for each in order)
    found = [split for each in sent if (split := proven(each)) is not None]
    return sorted(found, key=lambda each: (each.place, each.start_pos))


def planned(place: SegmentPlace, split_bytes: int) -> list[Split]:
    return found_by_tasks(plan_places([place], split_bytes))


def test_a_plan_looks_into_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = write_segment(tmp_path / "t-0", TEN)
    shutil.rmtree(tmp_path / "t-0")
    for name in ("open_place", "offset_entries"):
        monkeypatch.delattr(splits_module, name)
    small = place._replace(file_bytes=1)
    empty = place._replace(file_bytes=0)
    splits = plan_places([place, small, empty], 4 * SIZE)
    assert [each.place for each in splits] == [place] * 3 + [small, empty]
    assert [each.start_pos for each in splits] == [0, len(TEN) // 3, 2 * len(TEN) // 3, 0, 0]
    assert [each.end_pos for each in splits[:3]] == [len(TEN) // 3, 2 * len(TEN) // 3, len(TEN)]
    assert [each.part is None for each in splits] == [False] * 3 + [True] * 2
    assert [each.is_last for each in splits] == [False, False, True, True, True]


def test_parts_are_not_too_many(tmp_path: Path) -> None:
    place = write_segment(tmp_path / "t-0", TEN)
    huge = place._replace(file_bytes=(2 << 30) - 1)
    assert len(plan_places([huge], 1)) == MAX_PARTS_COUNT
    assert len(plan_places([huge], 128 << 20)) == 16
    for split_bytes in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            plan_places([place], split_bytes)


def test_each_part_begins_where_the_one_before_ends(tmp_path: Path) -> None:
    place = write_segment(tmp_path / "t-0", TEN)
    assert [each / SIZE for each in starts_of(planned(place, 2 * SIZE))] == [0, 2, 4, 6, 8]
    assert [each / SIZE for each in starts_of(planned(place, 1))] == [*range(10)]
    check(planned(place, 1), place)


def test_without_an_index_the_first_part_is_all(tmp_path: Path) -> None:
    place = write_segment(tmp_path / "t-0", TEN, [])
    assert planned(place, 1) == [plan_places([place], 1 << 30)[0]]
    (tmp_path / "t-0" / "00000000000000000000.index").unlink()
    assert planned(place, 1) == [plan_places([place], 1 << 30)[0]]


def test_a_cut_that_does_not_hold_is_passed_over(tmp_path: Path) -> None:
    data = b"".join(batch(offset, b"v" * 39) for offset in range(60))
    place = write_segment(tmp_path / "t-0", data)
    entries = true_entries(place)
    wrong = [each._replace(relative_offset=99) if 14 <= n < 27 else each
             for n, each in enumerate(entries)]  # fmt: skip
    place = write_segment(tmp_path / "t-0", data, wrong)
    assert [each / SIZE for each in starts_of(planned(place, 20 * SIZE))] == [0, 40]
    check(planned(place, 20 * SIZE), place)


@pytest.mark.parametrize("split_bytes", [1, 150, 400])
def test_nothing_begins_in_a_value(tmp_path: Path, split_bytes: int) -> None:
    inner = batch(5, b"inner") + batch(6, b"another one") + batch(7, b"the last one")
    data, pos = with_batches_in_a_value(inner + b"tail")
    place = write_segment(tmp_path / "t-0", data)
    liars = [(5, pos), (6, pos + len(batch(5, b"inner")))]
    lying = sorted([*map(tuple, true_entries(place)), *liars], key=lambda each: each[1])
    place = write_segment(tmp_path / "t-0", data, lying)
    splits = planned(place, split_bytes)
    assert not {each[1] for each in liars} & set(starts_of(splits))
    check(splits, place)


def test_files_that_are_gone(tmp_path: Path) -> None:
    place = write_segment(tmp_path / "t-0", TEN)
    splits = plan_places([place], SIZE)
    shutil.rmtree(tmp_path / "t-0")
    (whole,) = found_by_tasks(splits)
    assert whole == plan_places([place], 1 << 30)[0]


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=logs(max_batches=20), split_bytes=st.integers(1, 600))
def test_healthy_logs(tmp_path: Path, data: bytes, split_bytes: int) -> None:
    place = write_segment(tmp_path / "t-0", data)
    check(planned(place, split_bytes), place)


@pytest.mark.exhaustive
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=logs(), damage=damaged_logs(), lies=lies, split_bytes=st.integers(1, 400),
    kept=st.sets(st.integers(0, 30)),
)  # fmt: skip
def test_damaged_logs_and_indexes(
    tmp_path: Path, data: bytes, damage: bytes, lies: Any, split_bytes: int, kept: set[int]
) -> None:
    """The index of one log beside another one: the same verdict as of one process that reads all."""
    mixed = lying_entries(write_segment(tmp_path / "t-0", data), kept, lies)
    for content in (data, damage):
        place = write_segment(tmp_path / "t-0", content, mixed)
        splits = planned(place, split_bytes)
        if content:
            assert [each.end_pos for each in splits[:-1]] == starts_of(splits)[1:]
            assert splits[0].start_pos == 0
            assert splits[-1].is_last
        assert set(starts_of(splits)[1:]) <= {row[0] for row in rows_of(place)}
        assert_same_verdict(splits, place)


def assert_same_verdict(splits: Sequence[Split], place: SegmentPlace) -> None:
    (whole,) = plan_places([place], 1 << 40)
    expected = join_partition([ReadPiece(whole, read_split(whole))])
    found = join_partition([ReadPiece(each, read_split(each)) for each in splits])
    assert found.summary.figures() == expected.summary.figures()
    assert found.findings == expected.findings
    assert found.findings_count == expected.findings_count


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=logs(max_batches=20), split_bytes=st.integers(1, 400), seed=st.integers(0, 1 << 30))
def test_an_index_that_changes_between_tasks(
    tmp_path: Path, data: bytes, split_bytes: int, seed: int
) -> None:
    """A broker builds it anew meanwhile, or it cannot be read once: nothing is lost, or counted twice."""
    place = write_segment(tmp_path / "t-0", data)
    entries = [tuple(each) for each in true_entries(place)]
    drawn, found = random.Random(seed), []
    for split in plan_places([place], split_bytes):
        some = [each for each in entries if drawn.random() < 0.5]
        write_segment(tmp_path / "t-0", data, some)
        each = proven(split)
        if each is not None:
            found.append(each)
    assert_same_verdict(found, place)


@pytest.mark.share(1)
@pytest.mark.parametrize("split_bytes", [10_000, 100_000])
def test_golden_logs(
    golden: Callable[[str], Path], golden_names: list[str], split_bytes: int
) -> None:
    cut_count = 0
    for name in golden_names:
        log_dirs = {str(each.parent.parent) for each in golden(name).rglob("*.log")}
        places = [place for each in sorted(log_dirs) for place in list_places([each]).places]
        for place in places:
            splits = planned(place, split_bytes)
            check(splits, place)
            cut_count += len(splits) - 1
    assert cut_count > 0


def test_a_piece_that_is_missing_is_seen(tmp_path: Path) -> None:
    place = write_segment(tmp_path / "t-0", TEN)
    pieces = [ReadPiece(each, read_split(each)) for each in planned(place, 1)]
    assert len(pieces) == 10
    for number in range(len(pieces)):
        found = join_partition([*pieces[:number], *pieces[number + 1 :]])
        assert found.summary.counts.batches == 10
