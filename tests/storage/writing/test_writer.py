"""The writer: a broker's answers, its rolls, and files that a rebuild of the log would give."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.rebuild.derive import RebuildSettings, rebuild_partition
from storage.dirs.log_tail import LogTail, empty_tail, read_tail
from storage.dirs.topic_settings import LogConfig
from storage.errors import AccessError, RefusedError
from storage.files.fsio import FileSystem
from storage.formats.compression import Codec
from storage.formats.producer_snapshot import ProducerEntry, parse_snapshot
from storage.formats.record_batch import CRC, CRC_POS, HEADER, MAX_SEQUENCE, compute_crc
from storage.producers.producer_state import AppendError, ProducerStateManager
from storage.writing.batch_run import RunColumns
from storage.writing.partition_store import FileAction, FileStore, FlushPolicy, PlannedStore
from storage.writing.writer import Appended, PartitionWriter
from tests.crash.faults import FailingFileSystem
from tests.drawn import examples
from tests.writing import (
    NOW_MS,
    SMALL,
    TOPIC_ID,
    batch,
    content,
    headers_of,
    make_log_dir,
    open_writer,
    partition_at,
    tail_at,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from storage.files.fsio import Bytes, OpenFile


def changed(data: bytes, *, fix_crc: bool = True, **fields: int) -> bytes:
    """The batch with other header fields."""
    from storage.formats.record_batch import BatchHeader

    header = BatchHeader._make(HEADER.unpack_from(data))._replace(**fields)
    out = bytearray(data)
    HEADER.pack_into(out, 0, *header)
    if fix_crc:
        CRC.pack_into(out, CRC_POS, compute_crc(out))
    return bytes(out)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_log_dir(tmp_path / "log-dir") / "t-0"


# --- what is written ------------------------------------------------------------------------------

appends = st.lists(
    st.tuples(
        st.integers(0, 12),  # producer; 0 is none
        st.integers(1, 5),  # records
        st.integers(-50, 400),  # time
        st.sampled_from([1, 40, 300]),  # size of a value
        st.sampled_from(list(Codec)),
    ),
    max_size=25,
)


@given(runs=st.lists(appends, min_size=1, max_size=3), interval_bytes=st.sampled_from([0, 150]))
@settings(max_examples=examples(25))
def test_files_are_those_of_a_rebuild(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[tuple]], interval_bytes: int
) -> None:
    """Also when the log is closed and gone on with: indexes, snapshots with their order, epochs."""
    log_dir = tmp_path_factory.mktemp("log-dir")
    (log_dir / "meta.properties").touch()
    directory = log_dir / "t-0"
    config = SMALL._replace(index_interval_bytes=interval_bytes)
    sequences: dict[int, int] = {}
    expected: list[tuple[int, int]] = []
    ends = set()
    for epoch, run in enumerate(runs):
        writer = open_writer(directory, config, leader_epoch=epoch)
        for producer, count, time_ms, size, codec in run:
            identity = (-1, -1, -1)
            if producer:
                identity = (producer << 40 | producer, 0, sequences.get(producer, 0))
                sequences[producer] = identity[2] + count
            data = batch(
                count, identity, timestamp_ms=NOW_MS + time_ms, value=b"v" * size, codec=codec
            )
            found = writer.append(data)
            first = expected[-1][1] + 1 if expected else 0
            assert found == Appended(first, first + count - 1, is_duplicate=False)
            expected.append(found[:2])
        writer.close()
        ends.add(writer.end_offset)
        if not expected:
            assert not directory.exists()
            continue

        rebuilt = rebuild_partition(
            partition_at(directory), RebuildSettings(NOW_MS, interval_bytes)
        )
        replayed = ProducerStateManager()
        for header in headers_of(directory):
            replayed.append(header, None)
        assert replayed.map_end_offset == writer.end_offset == rebuilt.log_end_offset
        assert writer.producers.entries() == replayed.entries()
        on_disk = content(directory)
        for name, data in rebuilt.files():
            assert on_disk.pop(name) == data, name
        # What else is there: the topic id, the logs, and the snapshots of the earlier ends.
        others = {name for name in on_disk if not name.endswith(".log")}
        others -= {f"{end:020d}.snapshot" for end in ends}
        assert others == {"partition.metadata"}
    assert [(each.base_offset, each.last_offset) for each in headers_of(directory)] == expected


def test_batches_are_those_of_the_client_but_for_offset_and_epoch(directory: Path) -> None:
    data = batch(3, (7, 1, 0), codec=Codec.ZSTD)
    writer = open_writer(directory, leader_epoch=4)
    writer.append(batch(2))
    writer.append(data)
    writer.close()
    log = (directory / f"{0:020d}.log").read_bytes()
    assert log.endswith(changed(data, fix_crc=False, base_offset=2, partition_leader_epoch=4))
    assert content(directory)["leader-epoch-checkpoint"] == b"0\n1\n4 0\n"
    assert content(directory)["partition.metadata"].endswith(b"AAECAwQFBgcICQoLDA0ODw")
    assert not list(directory.parent.glob("*-delete"))


def test_log_append_time(directory: Path) -> None:
    config = SMALL._replace(is_log_append_time=True)
    writer = open_writer(directory, config, now_ms=NOW_MS + 77)
    writer.append(batch(2, timestamp_ms=5))
    writer.close()
    (header,) = headers_of(directory)
    assert header.is_log_append_time
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (5, NOW_MS + 77)


def test_nothing_appended_changes_nothing(directory: Path) -> None:
    open_writer(directory).close()
    assert not directory.exists()
    writer = open_writer(directory)
    writer.append(batch())
    writer.close()
    before = content(directory)
    open_writer(directory, leader_epoch=9).close()
    assert content(directory) == before


def test_a_closed_writer_takes_nothing(directory: Path) -> None:
    writer = open_writer(directory)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.append(batch())


def test_the_marker_goes_first(directory: Path) -> None:
    marker = directory.parent / ".kafka_cleanshutdown"
    marker.touch()
    writer = open_writer(directory)
    with pytest.raises(AppendError):
        writer.append(b"")
    assert marker.exists()
    writer.append(batch())
    assert not marker.exists()
    writer.close()
    assert not marker.exists()


def test_leader_epochs(directory: Path) -> None:
    for epoch in (0, 0, 2):
        writer = open_writer(directory, leader_epoch=epoch)
        writer.append(batch())
        writer.close()
    assert (directory / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n2 2\n"
    with pytest.raises(RefusedError, match="leader epoch 1 is below 2"):
        open_writer(directory, leader_epoch=1)
    # A leader that wrote nothing: the next one begins at the same offset.
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n2\n0 0\n5 3\n")
    writer = open_writer(directory, leader_epoch=6)
    writer.append(batch())
    writer.close()
    assert (directory / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n6 3\n"


# --- a broker's answers ---------------------------------------------------------------------------


def refused(writer: PartitionWriter, data: bytes) -> str:
    """The error code; neither the files nor the writer have changed."""
    directory = writer.store.directory
    before = (writer.end_offset, writer.producers.entries(), dict(writer.store.changes))
    with pytest.raises(AppendError) as caught:
        writer.append(data)
    assert (writer.end_offset, writer.producers.entries(), dict(writer.store.changes)) == before
    assert caught.value.exit_status == 4
    assert str(writer.end_offset) in str(caught.value), directory
    return caught.value.kafka_error


def test_the_last_five_batches_are_answered_again(directory: Path) -> None:
    writer = open_writer(directory, LogConfig())
    sent = [batch(2, (7, 0, 2 * n)) for n in range(6)]
    first = [writer.append(each) for each in sent]
    log_bytes = writer.log_bytes
    for data, answer in list(zip(sent, first, strict=True))[1:]:
        assert writer.append(data) == answer._replace(is_duplicate=True)
    assert refused(writer, sent[0]) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert (writer.log_bytes, writer.batches_count, writer.end_offset) == (log_bytes, 6, 12)
    writer.close()
    # A snapshot holds the last one only.
    writer = open_writer(directory, LogConfig())
    assert writer.append(sent[5]) == first[5]._replace(is_duplicate=True)
    assert refused(writer, sent[4]) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert writer.append(batch(1, (7, 0, 12))).base_offset == 12


def test_sequences_and_epochs(directory: Path) -> None:
    writer = open_writer(directory, LogConfig())
    writer.append(batch(3, (7, 5, 90)))  # an unknown producer may begin anywhere
    assert refused(writer, batch(1, (7, 5, 94))) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert refused(writer, batch(1, (7, 5, 92))) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert refused(writer, batch(1, (7, 4, 93))) == "INVALID_PRODUCER_EPOCH"
    assert refused(writer, batch(1, (7, 6, 1))) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert writer.append(batch(1, (7, 6, 0))).base_offset == 3
    assert writer.append(batch(1, (8, 0, 0))).base_offset == 4


def test_sequences_wrap(directory: Path) -> None:
    writer = open_writer(directory, LogConfig())
    writer.append(batch(3, (7, 0, MAX_SEQUENCE - 3)))
    writer.append(batch(3, (7, 0, MAX_SEQUENCE)))  # MAX, 0, 1
    assert refused(writer, batch(1, (7, 0, 3))) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    writer.append(batch(1, (7, 0, 2)))
    writer.close()
    (entry,) = parse_snapshot((directory / f"{7:020d}.snapshot").read_bytes())
    assert (entry.last_sequence, entry.last_offset) == (2, 6)


def test_an_expired_producer_is_unknown(directory: Path) -> None:
    writer = open_writer(directory)
    writer.append(batch(1, (7, 3, 0)))
    writer.close()
    later_ms = NOW_MS + 86_400_000
    assert refused(open_writer(directory), batch(1, (7, 2, 9))) == "INVALID_PRODUCER_EPOCH"
    writer = open_writer(directory, now_ms=later_ms)
    assert writer.append(batch(1, (7, 2, 9), timestamp_ms=later_ms)).base_offset == 1


def test_an_open_transaction_takes_no_other_batch(directory: Path) -> None:
    entry = ProducerEntry(7, 0, 0, 0, 0, NOW_MS, 1, 0)
    tail = empty_tail(0, 4096)._replace(end_offset=1, producers=(entry,))
    writer = open_writer(directory, tail=tail, store=PlannedStore(str(directory)))
    assert refused(writer, batch(1, (7, 0, 1))) == "INVALID_TXN_STATE"
    assert writer.append(batch(1, (7, 0, 1), is_transactional=True)).base_offset == 1
    assert writer.producers.entries()[0].current_txn_first_offset == 0


GOOD = batch(2, (7, 0, 0))
BAD_BATCHES = {
    "empty": (b"", "CORRUPT_MESSAGE"),
    "cut": (GOOD[:-1], "CORRUPT_MESSAGE"),
    "two": (GOOD + GOOD, "CORRUPT_MESSAGE"),
    "flipped": (GOOD[:-3] + b"?" + GOOD[-2:], "CORRUPT_MESSAGE"),
    "magic 1": (changed(GOOD, magic=1), "CORRUPT_MESSAGE"),
    "magic 3": (changed(GOOD, magic=3), "CORRUPT_MESSAGE"),
    "offset": (changed(GOOD, base_offset=1), "INVALID_RECORD"),
    "sparse": (changed(GOOD, last_offset_delta=2), "INVALID_RECORD"),
    "no records": (changed(GOOD, last_offset_delta=-1, records_count=0), "INVALID_RECORD"),
    "control": (changed(GOOD, attributes=0x20), "INVALID_RECORD"),
    "no sequence": (changed(GOOD, base_sequence=-1), "INVALID_RECORD"),
    "transaction of nobody": (
        changed(GOOD, attributes=0x10, producer_id=-1, base_sequence=-1),
        "INVALID_RECORD",
    ),
    "append time": (changed(GOOD, attributes=0x08), "INVALID_TIMESTAMP"),
    "too large": (batch(1, value=b"v" * 900), "MESSAGE_TOO_LARGE"),
    "too large for a segment": (batch(1, value=b"v" * 500), "RECORD_LIST_TOO_LARGE"),
}


@pytest.mark.parametrize("what", BAD_BATCHES)
def test_what_a_client_must_not_send(directory: Path, what: str) -> None:
    data, kafka_error = BAD_BATCHES[what]
    config = LogConfig(max_message_bytes=700, segment_bytes=500)
    writer = open_writer(directory, config)
    assert refused(writer, data) == kafka_error
    assert not directory.exists()
    assert writer.append(GOOD).base_offset == 0
    assert refused(writer, data) == kafka_error


HOUR_MS = 3_600_000


def test_times_that_a_broker_does_not_take(directory: Path) -> None:
    """An hour ahead of the clock by default, as Kafka 4 (KIP-1030); as old as can be."""
    writer = open_writer(directory)
    assert refused(writer, batch(1, timestamp_ms=NOW_MS + HOUR_MS + 1)) == "INVALID_TIMESTAMP"
    for each_ms in (NOW_MS + HOUR_MS, 0, -1):
        writer.append(batch(1, timestamp_ms=each_ms))
    assert writer.room_for([RunColumns([80], [1], [NOW_MS + HOUR_MS])]) == 1
    assert writer.room_for([RunColumns([80], [1], [NOW_MS + HOUR_MS + 1])]) == 0


def test_times_that_the_topic_takes(directory: Path) -> None:
    writer = open_writer(
        directory, LogConfig(timestamp_before_max_ms=1000, timestamp_after_max_ms=7)
    )
    for delta_ms in (-1001, 8):
        assert refused(writer, batch(1, timestamp_ms=NOW_MS + delta_ms)) == "INVALID_TIMESTAMP"
    for each_ms in (NOW_MS - 1000, NOW_MS + 7, -1):
        writer.append(batch(1, timestamp_ms=each_ms))
    writer.close()
    of_the_broker = open_writer(directory, LogConfig(is_log_append_time=True))
    of_the_broker.append(batch(1, timestamp_ms=NOW_MS + 2 * HOUR_MS))


# --- rolls ----------------------------------------------------------------------------------------


def bases_after(
    directory: Path, config: LogConfig, batches: Sequence[bytes], tail: LogTail | None = None
) -> list[int]:
    """Base offset of the segment that each batch came into."""
    writer = open_writer(directory, config, tail=tail, store=PlannedStore(str(directory)))
    found = []
    for each in batches:
        writer.append(each)
        found.append(writer.base_offset)
    writer.close()
    return found


def test_roll_by_size(directory: Path) -> None:
    """A segment may be filled to the last byte."""
    data = batch()
    fits = LogConfig(segment_bytes=2 * len(data))
    assert bases_after(directory, fits, [data] * 4) == [0, 0, 2, 2]
    assert bases_after(directory, LogConfig(segment_bytes=2 * len(data) - 1), [data] * 3) == [
        0,
        1,
        2,
    ]


def test_roll_by_time(directory: Path) -> None:
    """The batch's time against that of the segment's first batch; the same again after a reload."""
    config = LogConfig(segment_ms=100)
    times_ms = [0, 100, -500, 101, 150, 201, 202]
    batches = [batch(timestamp_ms=NOW_MS + each) for each in times_ms]
    assert bases_after(directory, config, batches) == [0, 0, 0, 3, 3, 3, 6]
    tail = empty_tail(0, 4096)._replace(log_bytes=70, end_offset=1, first_timestamp_ms=NOW_MS)
    assert bases_after(directory, config, batches, tail) == [0, 0, 0, 4, 4, 4, 7]


def test_roll_by_the_clock_if_the_first_batch_has_no_time(directory: Path) -> None:
    clock = [0]
    writer = PartitionWriter(
        PlannedStore(str(directory)),
        empty_tail(0, 4096),
        LogConfig(segment_ms=100),
        leader_epoch=0,
        now_ms=lambda: clock[0],
    )
    for clock[0], wanted in ((0, 0), (50, 0), (101, 2)):
        writer.append(batch(timestamp_ms=-1))
        assert writer.base_offset == wanted


def test_roll_by_full_indexes(directory: Path) -> None:
    """Each batch but the first has an entry; the time index keeps one slot of its own."""
    rising = [batch(timestamp_ms=NOW_MS + n) for n in range(9)]
    level = [batch()] * 9
    # 48 bytes: 6 entries of the offset index, 4 - 1 of the time index.
    config = LogConfig(index_interval_bytes=0, index_max_bytes=48)
    assert bases_after(directory, config, rising) == [0, 0, 0, 0, 4, 4, 4, 4, 8]
    assert bases_after(directory, config, level) == [0, 0, 0, 0, 0, 0, 0, 7, 7]


def test_roll_when_offsets_do_not_fit(directory: Path) -> None:
    tail = empty_tail(0, 4096)._replace(end_offset=2**31 - 3, log_bytes=70)
    two = batch(2)
    assert bases_after(directory, LogConfig(), [two, two], tail) == [0, 2**31 - 1]
    tail = tail._replace(end_offset=2**31 - 2)
    assert bases_after(directory, LogConfig(), [two, two], tail) == [0, 2**31]
    tail = tail._replace(end_offset=2**31 - 1)
    assert bases_after(directory, LogConfig(), [two, two], tail) == [2**31 - 1, 2**31 - 1]


def test_a_roll_before_the_first_append_leaves_the_old_segment_alone(directory: Path) -> None:
    writer = open_writer(directory)
    writer.append(batch(1, (7, 0, 0)))
    writer.close()
    before = content(directory)
    writer = open_writer(directory, SMALL._replace(segment_bytes=100))
    writer.append(batch(1, (7, 0, 1)))
    writer.close()
    assert writer.rolled_count == 1
    after = content(directory)
    assert {name: after[name] for name in before} == before
    added = {f"{1:020d}.{kind}" for kind in ("log", "index", "timeindex")} | {f"{2:020d}.snapshot"}
    assert set(after) - set(before) == added


# --- on a broker's own partitions -----------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["plain-0", "rolled-0", "many-producers-0", "txn-0", "compacted-0"]
)
def test_going_on_where_a_broker_stopped(
    golden: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """What the broker wrote stays; the rest is what a rebuild gives that starts from its snapshots."""
    source = golden("kafka-4.3.1") / "clean" / name
    directory = tmp_path / name
    shutil.copytree(source, directory)
    for path in [directory, *directory.iterdir()]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = content(directory)
    config = LogConfig(segment_bytes=2000, index_interval_bytes=512, timestamp_after_max_ms=2**62)
    writer = open_writer(directory, config, leader_epoch=9, now_ms=1_795_230_000_000)
    known = {each.producer_id: each for each in writer.producers.entries()}
    for n in range(40):
        writer.append(batch(2, (2**62, 0, 2 * n), value=b"v" * 100))
    writer.close()
    assert writer.rolled_count > 3
    after = content(directory)
    last_log = max(each for each in before if each.endswith(".log"))
    for each, data in before.items():
        if each not in {last_log, last_log.replace(".log", ".index"), "leader-epoch-checkpoint"}:
            is_time_index = each == last_log.replace(".log", ".timeindex")
            assert after[each].startswith(data) if is_time_index else after[each] == data, each
    assert after[last_log].startswith(before[last_log])
    found = {each.producer_id: each for each in writer.producers.entries()}
    assert found.pop(2**62).last_sequence == 79
    assert found == known
    assert tail_at(directory, config).end_offset == writer.end_offset
    assert bool(known) == (name != "plain-0")


# --- flushes and failures -------------------------------------------------------------------------


class CountingFileSystem(FileSystem):
    def __init__(self) -> None:
        self.synced: list[str] = []
        self.written: list[str] = []

    def fsync(self, file: OpenFile) -> None:
        self.synced.append(file.path.rsplit("/", 1)[1])
        super().fsync(file)

    def write(self, file: OpenFile, data: Bytes) -> None:
        self.written.append(file.path.rsplit("/", 1)[1])
        super().write(file, data)


@pytest.mark.parametrize(
    ("flush", "count"), [(FlushPolicy.BATCH, 12), (FlushPolicy.SEGMENT, 4), (FlushPolicy.NEVER, 2)]
)
def test_flush_policies(directory: Path, flush: FlushPolicy, count: int) -> None:
    """Ten batches in two segments, each of which is synced once when it is made."""
    fs = CountingFileSystem()
    data = batch()
    writer = open_writer(directory, LogConfig(segment_bytes=5 * len(data)), fs=fs, flush=flush)
    for _ in range(10):
        writer.append(data)
    writer.close()
    assert sum(name.endswith(".log") for name in fs.synced) == count
    temps = [name for name in fs.written if name.endswith(".eoctl-tmp")]
    assert set(temps) <= set(fs.synced)


class WritebackFileSystem(FileSystem):
    """A disk that takes nothing before it is asked for a sync."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int, int]] = []

    def start_writeback(self, file: OpenFile, pos: int) -> None:
        self.begun.append((file.path.rsplit("/", 1)[1], pos, file.pos))
        super().start_writeback(file, pos)
        raise OSError(errno.EIO, "nothing was begun")


@pytest.mark.parametrize("flush", list(FlushPolicy))
def test_a_segment_that_is_synced_at_its_end_is_on_its_way_before(
    directory: Path, monkeypatch: pytest.MonkeyPatch, flush: FlushPolicy
) -> None:
    data = batch()
    size = len(data)
    monkeypatch.setattr("storage.writing.writer.WRITEBACK_BYTES", 2 * size)
    fs = WritebackFileSystem()
    writer = open_writer(directory, LogConfig(segment_bytes=5 * size), fs=fs, flush=flush)
    for _ in range(8):
        writer.append(data)
    writer.close()
    first, second = f"{0:020d}.log", f"{5:020d}.log"
    expected = [(first, 0, 2 * size), (first, 2 * size, 4 * size), (second, 0, 2 * size)]
    assert fs.begun == (expected if flush is FlushPolicy.SEGMENT else [])
    assert len(headers_of(directory)) == 8


def send_five(writer: PartitionWriter, answers: list[Appended]) -> AccessError | None:
    """Append five batches and close; the error that ended it."""
    try:
        answers.extend(writer.append(batch(2, (7, 0, 2 * n))) for n in range(5))
        writer.close()
    except AccessError as exc:
        return exc
    return None


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO])
def test_every_call_may_fail(tmp_path: Path, error_number: int) -> None:
    """It is told as what it is; whole batches stay, and nothing passes for closed that is not."""
    config = LogConfig(segment_bytes=300, index_interval_bytes=0)
    states = 0
    for fails_at in range(1000):
        log_dir = tmp_path / f"{error_number}-{fails_at}"
        log_dir.mkdir()
        (log_dir / "meta.properties").touch()
        directory = log_dir / "t-0"
        fs = FailingFileSystem(fails_at, error_number)
        writer = open_writer(directory, config, fs=fs, flush=FlushPolicy.BATCH)
        done: list[Appended] = []
        error = send_five(writer, done)
        if error is None and len(fs.calls) <= fails_at:
            break
        if error is not None:
            assert error.errno == error_number
            assert error.next_step
            with pytest.raises(ValueError, match="failed"):
                writer.append(batch())
            writer.close()
        states += 1
        found = headers_of(directory) if directory.exists() else []
        ends = [each.last_offset for each in found]
        assert ends[: len(done)] == [each.last_offset for each in done]
        assert len(ends) <= len(done) + 1
        if directory.exists() and len(done) < 5:
            try:
                tail = read_tail(partition_at(directory), 0)
            except RefusedError:
                continue
            assert tail.end_offset == (ends[-1] + 1 if ends else 0)
            assert [each.last_offset for each in tail.producers] == ends[-1:]
    assert states > 40


def test_a_log_that_grew_meanwhile_is_refused(directory: Path) -> None:
    writer = open_writer(directory)
    writer.append(batch())
    writer.close()
    writer = open_writer(directory)
    path = directory / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + b"more")
    before = content(directory)
    with pytest.raises(RefusedError, match="when it was read"):
        writer.append(batch())
    writer.close()
    assert content(directory) == before


def test_a_plan_is_what_is_done(directory: Path) -> None:
    stores = [PlannedStore(str(directory), topic_id=TOPIC_ID)]
    stores.append(FileStore(str(directory), FileSystem(), topic_id=TOPIC_ID))
    for store in stores:
        writer = open_writer(directory, SMALL, store=store, tail=empty_tail(0, 150))
        for n in range(30):
            writer.append(batch(2, (7, 0, 2 * n), value=b"v" * 50))
        writer.close()
    assert list(stores[0].changes.values()) == list(stores[1].changes.values())
    sizes = {str(path): path.stat().st_size for path in directory.iterdir()}
    assert {each.path: each.bytes for each in stores[1].changes.values()} == sizes
    assert {each.action for each in stores[1].changes.values()} == {FileAction.CREATE}


def test_a_directory_with_a_long_name(tmp_path: Path) -> None:
    """While it is made it has a name that a broker takes for one to be deleted."""
    from storage.file_names import DirState, parse_partition_name

    names = []

    class Watching(FileSystem):
        def make_dir(self, path: Any, mode: int = 0o700) -> None:
            names.append(str(path).rsplit("/", 1)[1])
            super().make_dir(path, mode)

    directory = tmp_path / f"{'t' * 249}-0"
    writer = open_writer(directory, fs=Watching())
    writer.append(batch())
    writer.close()
    (name,) = names
    parsed = parse_partition_name(name)
    assert parsed is not None
    assert (parsed.state, parsed.partition, len(name)) == (DirState.DELETE, 0, 255)
    assert directory.stat().st_mode == tmp_path.stat().st_mode
