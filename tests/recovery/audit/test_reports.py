"""Audits of whole directories: against a generator's ledger, and the reports."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import recovery.summaries.segment
from eoctl.commands.shared.audit_run import read_transactional_ids
from recovery.audit.local_workers import read_pieces, tasks_of
from recovery.audit.reports import COLUMNS, Audit, Audited
from recovery.audit.state import SCHEMA, AuditState
from recovery.pool import WorkerLostError
from recovery.summaries.codec import LoadedSummary
from recovery.summaries.partition import ReadPiece, join_partition
from recovery.summaries.segment import PieceSummary, read_split
from storage.dirs.acknowledged_offsets import Acknowledged
from storage.errors import AccessError, RefusedError, UsageError
from storage.places.list_places import list_places, open_place
from storage.places.splits import Split, split_places, splits_at
from tests.audit_context import Context

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.places.listing import Listing, SegmentPlace

ROOT = Path(__file__).parents[3]


def audit_of(listing: Listing, pieces: Sequence[ReadPiece]) -> Audit:
    audited = [
        Audited.of(
            each,
            tuple(place for place in listing.places if place.directory == each.directory),
            LoadedSummary(
                join_partition(
                    [piece for piece in pieces if piece.split.place.directory == each.directory]
                )
            ),
            Acknowledged(),
        )
        for each in listing.directories
    ]
    clusters = {each.directory: each.cluster for each in listing.directories}
    ids = {
        (clusters[place.directory], producer_id): name
        for place in listing.places
        for producer_id, name in read_transactional_ids([place])[0].items()
    }
    return Audit(audited, ids)


def audit_path(path: Path, cut: Callable[[SegmentPlace], list[Split]]) -> Audit:
    listing = list_places([str(path)])
    splits = [split for place in listing.places for split in cut(place)]
    return audit_of(listing, [ReadPiece(each, read_split(each)) for each in splits])


def whole(place: SegmentPlace) -> list[Split]:
    return splits_at(place, [0])


def every_batch(place: SegmentPlace) -> list[Split]:
    with open_place(place) as segment:
        starts = [each.pos for each in segment.scan()]
    return splits_at(place, starts or [0])


def every_third(place: SegmentPlace) -> list[Split]:
    with open_place(place) as segment:
        starts = [each.pos for each in segment.scan()][::3]
    return splits_at(place, starts or [0])


def named(audit: Audit, report: str) -> list[dict[str, Any]]:
    return [dict(zip(COLUMNS[report], row, strict=True)) for row in audit.rows(report)]


# --- a ledger -------------------------------------------------------------------------------------


@pytest.mark.share(1)
@pytest.mark.parametrize("cut", [whole, every_batch, every_third])
@pytest.mark.parametrize("seed", range(6))
def test_the_ledger(tmp_path: Path, seed: int, cut: Callable[[SegmentPlace], list[Split]]) -> None:
    context = Context(seed)
    for log in context.logs:
        log.write(tmp_path)
    audit = audit_path(tmp_path, cut)
    rows = named(audit, "partitions")
    assert [(row["topic"], row["partition"]) for row in rows] == [log.key for log in context.logs]
    for row, log in zip(rows, context.logs, strict=True):
        expected = log.figures()
        assert {name: row[name] for name in expected} == expected, log.name
        assert (row["corrupt_batches"], row["problems_count"]) == (0, 0)
        assert row["last_offset"] == log.end_offset - 1
        found = [
            (each["offset"], each["violation"])
            for each in named(audit, "violations")
            if (each["topic"], each["partition"]) == log.key
        ]
        assert found == sorted(log.violations)
        opened = [
            (each["first_offset"], each["producer_id"], each["batches"])
            for each in named(audit, "open")
            if (each["topic"], each["partition"]) == log.key
        ]
        assert opened == sorted(
            (offsets[0], pid, len(offsets)) for pid, offsets in log.open.items()
        )
    torn = [
        (each["producer_id"], each["why"], tuple(each["open_in"])) for each in named(audit, "torn")
    ]
    assert torn == sorted(context.torn)
    assert context.torn


def test_producers_and_topics_add_up(tmp_path: Path) -> None:
    context = Context(3)
    for log in context.logs:
        log.write(tmp_path)
    audit = audit_path(tmp_path, whole)
    producers, topics = named(audit, "producers"), named(audit, "topics")
    for topic in topics:
        of_topic = [log for log in context.logs if log.key[0] == topic["topic"]]
        for name in ("batches", "duplicate_batches", "gaps", "aborted_transactions"):
            assert topic[name] == sum(log.figures().get(name, 0) for log in of_topic)
        assert topic["partitions_count"] == 2
        rows = [row for row in producers if row["topic"] == topic["topic"]]
        for name in (
            *("aborted_batches", "duplicate_batches", "late_batches", "empty_markers"),
            *("gaps", "missing_sequences"),
        ):
            assert sum(row[name] for row in rows) == topic[name]
        data_batches = topic["batches"] - topic["control_batches"]
        assert sum(row["batches"] for row in rows) == data_batches


# --- real directories -----------------------------------------------------------------------------


def test_who_holds_the_last_stable_offset(golden: Callable[[str], Path]) -> None:
    audit = audit_path(golden("kafka-4.3.1") / "crash", whole)
    found = [
        (row["topic"], row["partition"], row["first_offset"], row["transactional_id"])
        for row in named(audit, "open")
    ]
    assert found == [("txn", 0, 311, "open-1"), ("txn", 1, 282, "open-2")]
    assert all(row["holds_last_stable_offset"] for row in named(audit, "open"))
    ids = {row["transactional_id"]: row for row in named(audit, "transactional-ids")}
    assert ids["fenced"]["aborted_transactions"] == 1
    assert (ids["tx-0"]["partitions_count"], ids["tx-0"]["open_transactions"]) == (2, 0)
    assert audit.rows("torn") == []


def test_copies_that_part(golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1-three-brokers")
    rows = [
        row
        for row in named(audit_path(root / "diverged" / "*", whole), "replicas")
        if row["topic"] in {"div", "calm"}
    ]
    assert [(row["topic"], row["is_equal"], row["first_different_offset"]) for row in rows] == [
        ("calm", True, None),
        ("calm", True, None),
        ("div", False, 36),
        ("div", True, None),
    ]
    assert {
        row["is_equal"] for row in named(audit_path(root / "after" / "*", whole), "replicas")
    } == {True}


@pytest.mark.parametrize("changed", ["value", "epoch", "gone"])
def test_a_copy_that_differs_in_one_batch(
    golden: Callable[[str], Path], tmp_path: Path, changed: str
) -> None:
    source = golden("kafka-4.3.1") / "clean" / "many-producers-0"
    for broker in ("a", "b"):
        shutil.copytree(source, tmp_path / broker / source.name)
    (log,) = (tmp_path / "b" / source.name).glob("*.log")
    log.chmod(0o644)
    (place,) = list_places([str(log)]).places
    with open_place(place) as segment:
        batch = [*segment.scan()][30]
    data = bytearray(log.read_bytes())
    if changed == "gone":
        del data[batch.pos : batch.pos + batch.header.batch_bytes]
    elif changed == "epoch":
        # Not under the checksum: the leader epoch, raised from here on as for a new leader.
        with open_place(place) as segment:
            for each in [*segment.scan()][30:]:
                data[each.pos + 15] += 1
    else:
        import struct

        import crc32c

        end = batch.pos + batch.header.batch_bytes
        data[end - 2] ^= 1
        struct.pack_into(">I", data, batch.pos + 17, crc32c.crc32c(data[batch.pos + 21 : end]))
    log.write_bytes(data)
    if changed == "value":  # through an index, too: that of the other copy fits
        assert log.with_suffix(".index").stat().st_size
    (row,) = named(audit_path(tmp_path / "*", every_third), "replicas")
    assert (row["is_equal"], row["first_different_offset"]) == (False, batch.header.base_offset)
    assert (row["broker"], row["other_broker"]) == ("a", "b")


def test_what_is_set_aside_is_no_copy(tmp_path: Path) -> None:
    log = Context(4, steps=12).logs[0]
    log.write(tmp_path)
    moved = tmp_path / f"{log.name}.0123456789abcdef0123456789abcdef-delete"
    shutil.copytree(tmp_path / log.name, moved)
    more = next(moved.iterdir())
    more.write_bytes(b"")
    audit = audit_path(tmp_path, whole)
    assert len(audit.rows("partitions")) == 2
    assert audit.rows("replicas") == []
    (topic,) = named(audit, "topics")
    assert (topic["partitions_count"], topic["batches"]) == (1, log.figures()["batches"])


@pytest.mark.parametrize("clusters", [("A", "A"), ("A", "B")])
def test_topics_of_two_clusters_are_no_copies(tmp_path: Path, clusters: tuple[str, str]) -> None:
    for number, cluster in enumerate(clusters):
        root = tmp_path / str(number)
        Context(number + 1, steps=20).logs[0].write(root)
        text = f"version=1\nnode.id=1\ncluster.id={cluster}\n"
        (root / "meta.properties").write_text(text)
    listing = list_places([str(tmp_path / "*")])
    is_one = clusters[0] == clusters[1]
    rules = {getattr(each, "check_id", "") for each in listing.problems}
    assert ("DIR-2" in rules) == is_one
    audit = audit_path(tmp_path / "*", whole)
    assert len(audit.rows("replicas")) == is_one
    (topic,) = named(audit, "topics")
    assert topic["partitions_count"] == (1 if is_one else 2)


# --- the local engine -----------------------------------------------------------------------------


def by_place(pieces: Sequence[ReadPiece]) -> list[ReadPiece]:
    return sorted(pieces, key=lambda each: (each.split.place.path, each.split.start_pos))


def test_processes_find_the_same(tmp_path: Path) -> None:
    for log in Context(1).logs:
        log.write(tmp_path)
    listing = list_places([str(tmp_path)])
    splits = [split for place in listing.places for split in every_third(place)]
    alone = audit_of(listing, [*read_pieces(splits, 1)])
    together = audit_of(listing, [*read_pieces(splits, 2, task_bytes=0)])
    for name in COLUMNS:
        assert together.rows(name) == alone.rows(name)


def dying(split: Split) -> PieceSummary:
    """Die at the first try of one split."""
    marker = Path(os.environ["EOCTL_TEST_DIED"])
    if split.start_pos == 0 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), 9)
    return read_split(split)


def always_dying(split: Split) -> PieceSummary:
    os.kill(os.getpid(), 9)
    return read_split(split)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("workers_pay")
def test_a_killed_process_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOCTL_TEST_DIED", str(tmp_path / "died"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for log in Context(2, steps=10).logs:
        log.write(tmp_path / "logs")
    splits = split_places(list_places([str(tmp_path / "logs")]).places, 1 << 30)
    alone = by_place([*read_pieces(splits, 1)])
    found = by_place([*read_pieces(splits, 2, read=dying, task_bytes=0)])
    assert (tmp_path / "died").exists()
    assert [each.split for each in found] == [each.split for each in alone]
    figures = [each.piece.summary.figures() for each in found]
    assert figures == [each.piece.summary.figures() for each in alone]
    with pytest.raises(WorkerLostError):
        list(read_pieces(splits, 2, read=always_dying, task_bytes=0))


def test_small_splits_share_a_task(golden: Callable[[str], Path]) -> None:
    splits = split_places(list_places([str(golden("kafka-4.3.1") / "tv2")]).places, 100_000)
    for task_bytes in (0, 1, 100_000, 1_200_000, 1 << 30):
        tasks = list(tasks_of(splits, task_bytes))
        assert [split for task in tasks for split in task] == splits
        for task in tasks:
            assert len(task) == 1 or sum(s.end_pos - s.start_pos for s in task) <= task_bytes
    assert len(list(tasks_of(splits, 1 << 30))) == 1
    assert list(tasks_of([], 1)) == []


# --- the state of earlier runs --------------------------------------------------------------------


def with_state(state: Path, root: Path, program: str = "this") -> tuple[Audit, list[str]]:
    """Audit as the command does; returns the report and the files that were read."""
    saved = AuditState(str(state), program)
    saved.require_writable()
    listing = list_places([str(root)])
    known, wanted = saved.take(listing.places)
    read = [ReadPiece(each, read_split(each)) for each in split_places(wanted, 1000)]
    saved.save([*known, *read])
    names = sorted({each.split.place.path for each in read})
    return audit_of(listing, [*known, *read]), names


def all_rows(audit: Audit) -> dict[str, Any]:
    return {name: audit.rows(name) for name in COLUMNS}


@pytest.mark.exhaustive
def test_only_new_segments_are_read(tmp_path: Path) -> None:
    context, root, state = Context(5), tmp_path / "logs", tmp_path / "state"
    for log in context.logs:
        log.write(root)
    first, names = with_state(state, root)
    assert names == sorted(map(str, root.glob("*/*.log")))
    again, names = with_state(state, root)
    assert names == []
    assert all_rows(again) == all_rows(first)
    # The last segment grows, another one begins, and retention removes the first one.
    log = next(each for each in context.logs if len(each.segments) > 2)
    times = {path: path.stat().st_mtime_ns for path in root.glob("*/*.log")}
    grown = root / log.name / f"{log.segments[-1][0]:020d}.log"
    shutil.rmtree(root / log.name)
    log.data(context._tick(), 9999, 0, 2, is_transactional=True)
    log.roll()
    log.again(context._tick(), 9999, 0, 1)
    rolled = root / log.name / f"{log.segments[-1][0]:020d}.log"
    log.write(root)
    for path, modified_ns in times.items():
        if path != grown:
            os.utime(path, ns=(modified_ns, modified_ns))
    (root / log.name / f"{0:020d}.log").unlink()
    third, names = with_state(state, root)
    assert names == sorted(map(str, (grown, rolled)))
    assert all_rows(third) == all_rows(audit_path(root, whole))


def test_a_segment_that_was_gone_is_looked_for_again(tmp_path: Path) -> None:
    for log in Context(5, steps=5).logs:
        log.write(tmp_path / "logs")
    path = min((tmp_path / "logs").glob("*/*.log"))
    places = list_places([str(tmp_path / "logs")]).places
    data, modified_ns = path.read_bytes(), path.stat().st_mtime_ns
    path.unlink()
    state = AuditState(str(tmp_path / "state"), "this")
    state.save([ReadPiece(each, read_split(each)) for each in split_places(places, 1 << 30)])
    path.write_bytes(data)
    os.utime(path, ns=(modified_ns, modified_ns))
    _, names = with_state(tmp_path / "state", tmp_path / "logs")
    assert names == [str(path)]


@pytest.mark.exhaustive
def test_a_segment_that_has_changed_is_read_again(tmp_path: Path) -> None:
    context, root, state = Context(5), tmp_path / "logs", tmp_path / "state"
    for log in context.logs:
        log.write(root)
    with_state(state, root)
    for change in (
        lambda path: os.utime(path, ns=(1, 1)),
        lambda path: path.write_bytes(path.read_bytes() + b"\0" * 70),
    ):
        path = min(root.glob("*/*.log"))
        change(path)
        _, names = with_state(state, root)
        assert names == [str(path)]


def test_what_is_no_state(tmp_path: Path) -> None:
    path = tmp_path / "state"
    for data in (b"", b"something else", bytes(100)):
        path.write_bytes(data)
        with pytest.raises(UsageError) as caught:
            AuditState(str(path), "this")
        assert caught.value.next_step
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(RefusedError):
        AuditState(str(tmp_path / "other"), "this")
    (tmp_path / "meta.properties").unlink()
    for wrong in (tmp_path / "nowhere" / "state", tmp_path):
        with pytest.raises((AccessError, RefusedError)):
            AuditState(str(wrong), "this").require_writable()
    with pytest.raises(UsageError):
        AuditState("s3://bucket/state", "this").require_writable()


def test_a_state_of_another_release_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for log in Context(5, steps=5).logs:
        log.write(tmp_path / "logs")
    _, first = with_state(tmp_path / "state", tmp_path / "logs")
    _, names = with_state(tmp_path / "state", tmp_path / "logs", program="the next")
    assert names == first
    monkeypatch.setattr("recovery.audit.state.SCHEMA", SCHEMA._replace(version=999))
    _, names = with_state(tmp_path / "state", tmp_path / "logs", program="the next")
    assert names == first


def test_what_could_not_be_read_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for log in Context(5, steps=5).logs:
        log.write(tmp_path / "logs")
    path = min((tmp_path / "logs").glob("*/*.log"))

    def failing(split: Split, *more: Any) -> Any:
        if split.place.path == str(path):
            raise AccessError(OSError(5, "Input/output error"), split.place.path)
        return real(split, *more)

    real = recovery.summaries.segment.summarize_split
    monkeypatch.setattr("recovery.summaries.segment.summarize_split", failing)
    with_state(tmp_path / "state", tmp_path / "logs")
    monkeypatch.undo()
    _, names = with_state(tmp_path / "state", tmp_path / "logs")
    assert names == [str(path)]


def test_columns_have_names_of_their_own() -> None:
    for columns in COLUMNS.values():
        assert len(set(columns)) == len(columns)
