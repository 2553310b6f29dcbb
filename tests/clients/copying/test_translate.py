"""Offsets of a source in its copy: each one held against the records that come after it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eoctl.clients.copying.resume import Exactness, Translated, destination_of, translate_offset
from eoctl.clients.copying.session import MAX_ANCHORS, read_session
from eoctl.clients.log.batch_reader import BatchConsumer
from eoctl.clients.log.consumer import ConsumeOptions
from recovery.transactions.isolation import Isolation
from storage.dirs.topic_settings import LogConfig
from tests.copying import Copy, make_copy, write
from tests.drawn import examples
from tests.kafka.broker import copy_log_dir
from tests.read_log import read_log
from tests.writing import NOW_MS, batch, make_log_dir, partition_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]

EXACT = Exactness.EXACT


def translated(made: Copy, offsets: Sequence[int]) -> dict[int, Translated]:
    session = read_session(str(made.session))
    destination = destination_of(partition_at(made.destination), LogConfig())
    options = ConsumeOptions(isolation=Isolation(session.isolation))
    source = BatchConsumer(str(made.source), options, lambda _: None)
    return translate_offset(session, destination, source, offsets)


def require_right(made: Copy, *, is_committed: bool = True) -> None:
    """From each offset on a consumer of the copy is given what one of the source is given."""
    source, copy = read_log(made.source), read_log(made.destination)
    wanted = source.committed if is_committed else source.records
    copied = [(each.offset, (each.key, each.value, each.timestamp_ms)) for each in copy.records]
    wanted = wanted[: len(copied)]  # what was decided by then
    values = [(each.key, each.value, each.timestamp_ms) for each in wanted]
    end = max(each.offset for each in wanted) + 1
    found = translated(made, range(end + 1))
    for offset in range(end + 1):
        rest = [value for each, value in zip(wanted, values, strict=True) if each.offset >= offset]
        given = [value for at, value in copied if at >= found[offset].offset]
        assert found[offset].exactness is EXACT, (offset, found[offset])
        assert given == rest, offset


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "name", ["plain-0", "txn-0", "compacted-0", "idem-gzip-0", "rolled-0", "trimmed-0"]
)
def test_each_offset_of_a_real_log(
    name: str, golden: Callable[[str], Path], tmp_path: Path, eoctl: Eoctl
) -> None:
    """Transactions, aborted and open; gaps that a cleaner has left; a start that was moved."""
    source = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "source") / name
    made = Copy(eoctl, source, make_log_dir(tmp_path / "target") / "u-0")
    made.report("--isolation", "read_committed")
    require_right(made)


@settings(
    max_examples=examples(8),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=4))
def test_copied_in_several_runs(
    tmp_path_factory: pytest.TempPathFactory, eoctl: Eoctl, runs: list[list[int]]
) -> None:
    """With what others write to the destination in between: their records are not counted."""
    root = tmp_path_factory.mktemp("runs")
    made = Copy(eoctl, make_log_dir(root / "source") / "t-0", make_log_dir(root / "target") / "u-0")
    sent = 0
    for sizes in runs:
        for size in sizes:
            sent += 1
            write(made.source, batch(size, value=b"from %d" % sent, timestamp_ms=NOW_MS + sent))
        made.report()
        write(made.destination, batch(2, value=b"of others", timestamp_ms=NOW_MS))
    source, copy = read_log(made.source).records, read_log(made.destination).records
    ours = [each.offset for each in copy if each.value != b"of others"]
    assert len(ours) == len(source)
    found = translated(made, range(len(source) + 1))
    last = ours[-1] + 1
    assert [found[offset].offset for offset in range(len(source) + 1)] == [*ours, last]
    assert {each.exactness for each in found.values()} == {EXACT}


def test_what_is_not_copied_yet(tmp_path: Path, eoctl: Eoctl) -> None:
    """Behind the end of the copy it is rounded down to that end; at the end it is exact."""
    made = make_copy(eoctl, tmp_path)
    made.report()
    write(made.source, None)
    found = translated(made, [30, 31, 40, 55])
    assert found[30] == Translated(30, EXACT)
    assert found[31] == Translated(
        30, Exactness.ROUNDED_DOWN, "the copy has come to offset 30 of the source"
    )
    assert found[40].offset == 30
    assert "the log of the source ends at offset 40" in found[55].reason
    assert not found[55].is_doubtful


def test_a_copy_that_begins_later(tmp_path: Path, eoctl: Eoctl) -> None:
    """Within a batch, too."""
    made = make_copy(eoctl, tmp_path)
    made.report("--from", 13)
    found = translated(made, [5, 13, 14, 29, 30])
    assert found[5] == Translated(
        0, Exactness.BEGINS_LATER, "the copy begins at offset 13 of the source"
    )
    assert [found[each].offset for each in (13, 14, 29, 30)] == [0, 1, 16, 17]
    assert {found[each].exactness for each in (13, 14, 29, 30)} == {EXACT}


def test_a_source_that_was_trimmed(tmp_path: Path, eoctl: Eoctl) -> None:
    """What was copied from there can no more be compared: never later than the true place."""
    made = make_copy(eoctl, tmp_path)
    made.report()
    (made.source.parent / "log-start-offset-checkpoint").write_text("0\n1\nt 0 10\n")
    found = translated(made, [5, 15])
    assert {each.offset for each in found.values()} == {0}
    assert found[15].exactness is Exactness.ROUNDED_DOWN
    assert "the log of the source starts at offset 10 now" in found[15].reason
    assert found[15].is_doubtful


def test_anchors_are_gone_from_when_the_first_is_gone(tmp_path: Path, eoctl: Eoctl) -> None:
    """Each run has two anchors: of more runs than are kept the latest one below is taken."""
    made = Copy(eoctl, make_log_dir(tmp_path / "a") / "t-0", make_log_dir(tmp_path / "b") / "u-0")
    for _ in range(3):
        write(made.source, None)
        made.report()
    assert 2 < len(read_session(str(made.session)).anchors) <= MAX_ANCHORS
    (made.source.parent / "log-start-offset-checkpoint").write_text("0\n1\nt 0 15\n")
    found = translated(made, [5, 15, 25])
    assert (found[5].offset, found[15].offset, found[25]) == (0, 10, Translated(25, EXACT))


def test_something_else_in_its_place(tmp_path: Path, eoctl: Eoctl) -> None:
    """A source that was cut and written anew: what was proved counts, and nothing behind it."""
    made = make_copy(eoctl, tmp_path)
    made.report()
    log = made.source / f"{0:020d}.log"
    one = log.stat().st_size // 3
    shutil.rmtree(made.source)
    write(made.source, None)
    write(made.source, batch(10, value=b"anew", timestamp_ms=NOW_MS + 1), None)
    assert one
    found = translated(made, [4, 12, 25])
    assert found[4] == Translated(4, EXACT)
    assert (found[12].offset, found[25].offset) == (10, 10)
    assert "the source has something else" in found[12].reason
    assert found[25].is_doubtful


def test_a_copy_that_was_cut(tmp_path: Path, eoctl: Eoctl) -> None:
    """Anchors behind the cut mean nothing any more."""
    made = make_copy(eoctl, tmp_path)
    made.report()
    call = ("truncate", made.destination, "--to-offset", 20, "--single-copy", "--apply")
    assert eoctl(*call).status == 0
    found = translated(made, [15, 20, 25])
    assert (found[15], found[20]) == (Translated(15, EXACT), Translated(20, EXACT))
    assert (found[25].offset, found[25].exactness) == (20, Exactness.ROUNDED_DOWN)


def test_a_copy_whose_beginning_is_deleted(tmp_path: Path, eoctl: Eoctl) -> None:
    made = make_copy(eoctl, tmp_path)
    made.report()
    (made.destination.parent / "log-start-offset-checkpoint").write_text("0\n1\nu 0 10\n")
    found = translated(made, [5, 25])
    assert (found[5].offset, found[25].offset) == (10, 10)
    assert "the log of the copy starts at offset 10 now" in found[25].reason
