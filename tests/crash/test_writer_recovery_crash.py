"""Every crash state of a batch and a marker of a transaction, of a roll and of a close.

Whatever is left is closed or can be recovered, and is then what the `.log` files say; the writer
goes on from there as a leader does.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest

from recovery.rebuild.derive import RebuildSettings
from recovery.replay.snapshots import Clock
from storage.dirs.log_tail import NotClosedError, read_tail
from storage.dirs.topic_settings import LogConfig
from storage.log.segment import open_segment
from storage.producers.producer_state import AppendError
from storage.writing.partition_store import FlushPolicy
from storage.writing.record_builder import build_marker
from tests.crash.scenario import (
    Scenario,
    check_scenario,
    drawn_syncs,
    record,
    refusing_nothing,
    surviving_mutants,
    syncs_of,
)
from tests.writer_files import require_files_of_rebuild
from tests.writing import (
    NOW_MS,
    NoSyncFileSystem,
    batch,
    headers_of,
    make_log_dir,
    open_writer,
    partition_at,
    recover,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from storage.writing.writer import PartitionWriter
    from tests.crash.recording import RecordingFileSystem
    from tests.crash.states import CrashState

COMBINATIONS_MAX = 64  # without any fsync of the log there is no end of them
INTERVAL_BYTES = 0
MARKER = ".kafka_cleanshutdown"
PRODUCER_ID = 7
COORDINATOR_EPOCH = 3
ABORT = -1  # in a list of what is written, in the place of a sequence
# One transaction that is aborted and one that is open.
BEFORE = (0, 1, ABORT, 2, 3)


def data_of(sequence: int) -> bytes:
    return batch(1, (PRODUCER_ID, 0, sequence), value=b"v" * 40, is_transactional=True)


def size_of(written: Sequence[int]) -> int:
    marker = build_marker(
        PRODUCER_ID, 0, NOW_MS, is_commit=False, coordinator_epoch=COORDINATOR_EPOCH
    )
    return sum(len(marker if each == ABORT else data_of(each)) for each in written)


class Run(NamedTuple):
    """What is done to a partition that has `BEFORE`.

    Attributes:
        written: sequences of data batches, or ABORT.
        segment_count: batches that fit into the first segment.
        is_closed: at the end.
    """

    written: tuple[int, ...]
    segment_count: int = 99
    is_closed: bool = False

    @property
    def all(self) -> tuple[int, ...]:
        return BEFORE + self.written

    @property
    def config(self) -> LogConfig:
        return LogConfig(
            segment_bytes=size_of(self.all[: self.segment_count]),
            index_interval_bytes=INTERVAL_BYTES,
        )


RUNS = {
    "batch": Run((4,)),
    "marker": Run((ABORT,)),
    "roll": Run((4, ABORT, 5), segment_count=7),
    "roll by a marker": Run((4, ABORT), segment_count=6),
    "close": Run((4, ABORT, 5), is_closed=True),
    "roll and close": Run((4, ABORT, 5, ABORT), segment_count=7, is_closed=True),
}


def write(writer: PartitionWriter, each: int) -> None:
    if each == ABORT:
        writer.end_transaction(PRODUCER_ID, 0, is_commit=False, coordinator_epoch=COORDINATOR_EPOCH)
    else:
        writer.append(data_of(each))


def prepare(root: Path, run: Run) -> None:
    make_log_dir(root)
    writer = open_writer(root / "t-0", run.config, flush=FlushPolicy.SEGMENT)
    for each in BEFORE:
        write(writer, each)
    writer.close()
    assert writer.rolled_count == 0
    (root / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {len(BEFORE)}\n")
    (root / MARKER).write_text('{"version":0,"brokerEpoch":9}')


def carry_out(fs: RecordingFileSystem, root: Path, run: Run, flush: FlushPolicy) -> None:
    writer = open_writer(root / "t-0", run.config, fs=fs, flush=flush)
    for each in run.written:
        write(writer, each)
        if flush is FlushPolicy.BATCH:
            fs.mark("written")
    assert writer.rolled_count == (len(run.all) > run.segment_count)
    if run.is_closed:
        writer.close()
        fs.mark("closed")
    writer.store.close_log()


def rows_of(directory: Path) -> list[int]:
    """What a start finds, up to the first bad batch, as in a list of what is written."""
    found = []
    for path in sorted(directory.glob("*.log")):
        with open_segment(path) as segment:
            scan = segment.scan(resume=False)
            headers = [each.header for each in scan if each.crc_ok]
        offsets = [each.base_offset for each in headers]
        assert offsets == [len(found) + n for n in range(len(headers))]
        found += [ABORT if each.is_control else each.base_sequence for each in headers]
        if scan.verdicts:
            break
    return found


def check(root: Path, state: CrashState, run: Run, flush: FlushPolicy) -> None:
    directory = root / "t-0"
    found = rows_of(directory)
    assert found == list(run.all[: len(found)])
    is_safe = "closed" in state.marks and flush is not FlushPolicy.NEVER
    promised = len(run.all) if is_safe else len(BEFORE) + state.marks.count("written")
    assert len(found) >= promised
    if (root / MARKER).exists():
        assert not state.marks
        assert len(found) == len(BEFORE)

    settings = RebuildSettings(NOW_MS, INTERVAL_BYTES)
    try:
        tail = read_tail(partition_at(directory), INTERVAL_BYTES)
    except NotClosedError:
        assert not is_safe
        fs, clock = NoSyncFileSystem(), Clock(NOW_MS)
        recovered = recover(directory, clock, INTERVAL_BYTES, fs, root.parent).tail
        tail = read_tail(partition_at(directory), INTERVAL_BYTES)
        values = ("base_offset", "log_bytes", "end_offset", "aborted", "producers", "epochs")
        for each in values:
            assert getattr(tail, each) == getattr(recovered, each), each
        require_files_of_rebuild(directory, settings, is_recovered=True)
    else:
        require_files_of_rebuild(directory, settings)
    assert tail.end_offset == len(found)
    assert len(headers_of(directory)) == len(found)  # nothing bad is left behind them
    require_going_on(directory, run, found)
    require_files_of_rebuild(directory, settings)


def require_going_on(directory: Path, run: Run, rows: list[int]) -> None:
    """The leader that comes next knows one batch of the producer, and its transaction."""
    writer = open_writer(directory, run.config, fs=NoSyncFileSystem())
    last_sequence = max(rows)
    aborted_at = max(n for n, each in enumerate(rows) if each == ABORT)
    is_open = aborted_at < len(rows) - 1
    assert writer.producers.ongoing == ({aborted_at + 1: PRODUCER_ID} if is_open else {})
    duplicate = writer.append(data_of(last_sequence))
    assert duplicate[::2] == (rows.index(last_sequence), True)
    for wrong in (last_sequence - 1, last_sequence + 2):
        with pytest.raises(AppendError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            writer.append(data_of(wrong))
    with pytest.raises(AppendError, match="TRANSACTION_COORDINATOR_FENCED"):
        writer.end_transaction(
            PRODUCER_ID, 0, is_commit=True, coordinator_epoch=COORDINATOR_EPOCH - 1
        )
    assert writer.append(data_of(last_sequence + 1))[::2] == (len(rows), False)
    write(writer, ABORT)
    writer.close()


SCENARIOS = {
    f"{name}, {flush}": Scenario(
        partial(prepare, run=run),
        partial(carry_out, run=run, flush=flush),
        refusing_nothing(partial(check, run=run, flush=flush)),
    )
    for name, run in RUNS.items()
    for flush in FlushPolicy
    if flush is not FlushPolicy.NEVER or name == "close"
}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_state(scratch: Path, name: str) -> None:
    report = check_scenario(SCENARIOS[name], scratch, combinations_max=COMBINATIONS_MAX, share=60)
    print(report)
    assert report.failures == []


# Not missed, because a later sync of the same directory or file comes before anything counts on it:
# the names of both indexes before that of `.txnindex`, of the snapshot before that of the new
# `.log`, and that file while it is empty.
NOT_MISSED = {
    "batch, batch": [],
    "marker, batch": [],
    "roll and close, segment": [
        "3: fsync t-0/",
        "5: fsync t-0/",
        "9: fsync t-0/",
        "10: fsync t-0/00000000000000000007.log",
        "14: fsync t-0/",
        "16: fsync t-0/",
    ],
}


@pytest.mark.share(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_MISSED)
def test_each_fsync_is_needed(scratch: Path, name: str) -> None:
    syncs = syncs_of(record(SCENARIOS[name], scratch))
    chosen = drawn_syncs(SCENARIOS[name], scratch, 5)
    survivors = surviving_mutants(SCENARIOS[name], scratch, combinations_max=8, among=chosen)
    assert survivors == [each for each in NOT_MISSED[name] if each in chosen]
    for number, text in (each.split(": ") for each in survivors):
        assert text in syncs[int(number) + 1 :]
