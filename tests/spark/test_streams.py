"""Directories as streams, planned and read without a JVM: what Spark would ask, and be given."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from eoctl.spark.datasource import (
    BatchesReader,
    KafkaLogAudit,
    KafkaLogBatches,
    KafkaLogFindings,
    KafkaLogRecords,
    RecordsReader,
)
from eoctl.spark.rows.kafka_options import DataLossError
from eoctl.spark.rows.missing_segments import NotMountedError
from eoctl.spark.rows.record_plan import by_directory
from eoctl.spark.streaming.reader import fair_shares
from recovery.transactions.isolation import Isolation
from storage.errors import UsageError
from storage.places.list_places import list_places
from storage.places.splits import log_end_offset
from tests.spark.test_datasource import read
from tests.transactional import session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

Row = dict[str, Any]
COLUMNS = "topic,partition,offset,value"


class Stream:
    """A query over a stream, as Spark runs one: planned by one object, read by copies of it."""

    def __init__(self, source: Any, path: Path | str, **options: object) -> None:
        texts = {name: str(value) for name, value in options.items()}
        self._made = lambda: source({"path": str(path), **texts}).streamReader(None)
        self.reader = self._made()
        self.offsets: dict[str, Any] | None = None
        self.sizes: list[int] = []

    def restart(self) -> None:
        """Go on from the checkpoint, in another process."""
        self.reader = self._made()

    def next(self, limit: Any = None) -> list[Row] | None:
        """The rows of the next micro-batch; None: there is nothing new."""
        if self.offsets is None:
            self.offsets = kept(self.reader.initialOffset())
        end = kept(
            self.reader.latestOffset(self.offsets, limit or self.reader.getDefaultReadLimit())
        )
        if end == self.offsets:
            return None
        rows = self.range(self.offsets, end)
        self.reader.commit(end)
        self.offsets = end
        return rows

    def range(self, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
        """The rows of one micro-batch."""
        tasks, there = cloudpickle.loads(
            cloudpickle.dumps((self.reader.partitions(start, end), self.reader))
        )
        return [row for task in tasks for part in there.read(task) for row in part.to_pylist()]

    def rest(self, limit: Any = None) -> list[Row]:
        """All that is there now, in micro-batches."""
        found: list[Row] = []
        while (rows := self.next(limit)) is not None:
            self.sizes.append(len(rows))
            found += rows
        return found


def kept(offsets: dict[str, Any]) -> dict[str, Any]:
    """As they come back from the checkpoint of a query."""
    found: dict[str, Any] = json.loads(json.dumps(offsets))
    return found


def records(path: Path | str, **options: object) -> Stream:
    return Stream(KafkaLogRecords, path, **{"columns": COLUMNS, **options})


def keys_of(rows: list[Row]) -> list[tuple[str, int, int]]:
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


@pytest.fixture
def clean(golden: Callable[[str], Path]) -> Path:
    return golden("kafka-4.3.1") / "clean"


# --- what is given --------------------------------------------------------------------------------


@pytest.mark.share(1)
@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("limit", [None, ReadMaxRows(100), ReadMaxRows(7), ReadMaxBytes(50_000)])
def test_each_record_is_given_once(clean: Path, isolation: Isolation, limit: Any) -> None:
    path = f"{clean}/[!_]*-*"  # without the topics that brokers keep to themselves
    limited = clean if not isinstance(limit, ReadMaxRows) or limit.max_rows > 10 else path
    expected = read(RecordsReader, limited, columns=COLUMNS, isolation=isolation, until="hw")
    expected = [row for row in expected if row["topic"] != "__cluster_metadata"]
    if limit == ReadMaxRows(7):
        expected = [row for row in expected if row["topic"] in {"txn", "compacted"}]
        stream = records(clean, isolation=isolation, subscribe="txn,compacted")
    else:
        stream = records(limited, isolation=isolation)
    found = stream.rest(limit)
    assert keys_of(found) == keys_of(expected)
    assert {row["value"] for row in found} == {row["value"] for row in expected}
    if limit is not None:
        assert len(stream.sizes) > 3
    if isinstance(limit, ReadMaxRows):
        assert max(stream.sizes) <= limit.max_rows


@pytest.mark.share(1)
@pytest.mark.parametrize("limit", [None, ReadMaxRows(40), ReadMaxBytes(30_000)])
def test_each_batch_is_given_once(clean: Path, limit: Any) -> None:
    stream = Stream(KafkaLogBatches, clean, split_bytes=20_000)
    found = {(row["path"], row["pos"]): row for row in stream.rest(limit)}
    expected = [row for row in read(BatchesReader, clean) if row["topic"] != "__cluster_metadata"]
    assert sum(stream.sizes) == len(found) == len(expected)
    assert found == {(row["path"], row["pos"]): row for row in expected}


def test_what_is_open_is_not_given_to_read_committed(clean: Path) -> None:
    stream = records(clean, isolation="read_committed", subscribe="txn")
    found = keys_of(stream.rest())
    assert max(found)[:2] == ("txn", 1)
    assert max(offset for _, number, offset in found if number == 0) < 311
    assert stream.offsets is not None
    assert stream.offsets["1/txn-0"]["offset"] == 311
    assert stream.next() is None


def test_a_directory_without_a_high_watermark_is_refused(clean: Path, tmp_path: Path) -> None:
    """A partition by itself has no checkpoint; the end of its log may still be cut off."""
    alone = shutil.copytree(clean / "txn-0", tmp_path / "alone" / "txn-0")
    with pytest.raises(UsageError, match="nothing there says how far") as caught:
        records(alone).next()
    assert "log-end" in caught.value.next_step
    everything = read(RecordsReader, clean / "txn-0", columns=COLUMNS)
    assert keys_of(records(alone, until="log-end").rest()) == keys_of(everything)


def test_names_that_lead_to_two_directories(clean: Path, tmp_path: Path) -> None:
    shutil.copytree(clean, tmp_path / "again")
    with pytest.raises(UsageError, match="are both 1/"):
        Stream(KafkaLogRecords, f"{{{clean},{tmp_path}/again}}", paths=json.dumps(
            [str(clean), str(tmp_path / "again")])).next()  # fmt: skip


@pytest.mark.parametrize("source", [KafkaLogFindings, KafkaLogAudit])
def test_sources_that_are_no_streams(source: Any) -> None:
    with pytest.raises(UsageError, match="cannot be read as a stream"):
        source({"path": "a"}).streamReader(None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger"),
        ({"maxOffsetsPerTrigger": "much"}, "maxOffsetsPerTrigger"),
        ({"maxBytesPerTrigger": "5", "maxOffsetsPerTrigger": "5"}, "only one of them"),
        ({"endingOffsets": "latest"}, "does not take it as a stream"),
        ({"from_offset": "5"}, "does not take it as a stream"),
        ({"push_filters": "true"}, "does not take it as a stream"),
        ({"maxBytesPerTriger": "5"}, "meant is perhaps maxBytesPerTrigger"),
    ],
)
def test_wrong_options(options: dict[str, str], words: str) -> None:
    source = KafkaLogRecords({"path": "a", **options})
    with pytest.raises(UsageError, match=words):
        source.streamReader(None)


def test_limits_of_a_query_are_its_options() -> None:
    for options, expected in (
        ({}, ReadAllAvailable()),
        ({"maxbytespertrigger": "5"}, ReadMaxBytes(5)),
        ({"maxOffsetsPerTrigger": "6"}, ReadMaxRows(6)),
    ):
        reader = KafkaLogRecords({"path": "a", **options}).streamReader(None)
        assert reader.getDefaultReadLimit() == expected


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.integers(0, 100)),
    st.integers(0, 300),
)
def test_a_limit_is_shared(available: dict[str, int], limit: int) -> None:
    shares = fair_shares(available, limit)
    assert sum(shares.values()) == min(limit, sum(available.values()))
    assert all(0 <= share <= available[name] for name, share in shares.items())
    unmet = [share for name, share in shares.items() if share < available[name]]
    if unmet:  # who gets less than it has gets no less than another, but for a remainder
        assert max(shares.values()) - min(unmet) <= 1


def test_a_batch_larger_than_the_limit_comes_through(clean: Path) -> None:
    stream = records(clean, subscribe="txn", isolation="read_uncommitted")
    expected = read(RecordsReader, clean, columns=COLUMNS, subscribe="txn", until="hw")
    assert keys_of(stream.rest(ReadMaxBytes(1))) == keys_of(expected)


# --- where it begins ------------------------------------------------------------------------------


def test_where_a_query_begins(clean: Path) -> None:
    expected = read(RecordsReader, clean, columns=COLUMNS, subscribe="txn", until="hw")
    assert records(clean, subscribe="txn", startingOffsets="latest").next() is None
    found = records(clean, subscribe="txn", startingOffsets='{"txn":{"0":200,"1":-1}}').rest()
    assert keys_of(found) == [each for each in keys_of(expected) if each[1] == 0 and each[2] >= 200]
    assert keys_of(records(clean, subscribe="txn", startingOffsets="earliest").rest()) == keys_of(
        expected
    )


# --- logs that grow -------------------------------------------------------------------------------


class Growing:
    """A log dir that grows as a broker's does, which is stopped between the steps."""

    def __init__(self, eoctl: Callable[..., Outcome], root: Path) -> None:
        self._eoctl = eoctl
        self.log_dir = root / "log-dir"
        self.input = root / "input"
        self.eoctl("init", self.log_dir, "--topic", "t:2", "--apply")

    def eoctl(self, *words: object) -> None:
        outcome = self._eoctl(*words)
        assert outcome.status == 0, outcome.errors

    def send(self, partition: int, *values: str, roll: bool = False) -> None:
        """Send records of one batch each."""
        self.input.write_text("".join(f"{value}\n" for value in values))
        more = ("--segment-bytes", "200") if roll else ()
        self.eoctl("produce", self.log_dir / f"t-{partition}", self.input, "--apply",
                   "--batch-records", "1", *more)  # fmt: skip
        self.acknowledge()

    def log_starts(self, offsets: dict[str, int]) -> None:
        """Checkpoint where logs start, by "TOPIC PARTITION"."""
        lines = [f"{name} {offset}" for name, offset in offsets.items()]
        text = "\n".join(["0", str(len(lines)), *lines])
        (self.log_dir / "log-start-offset-checkpoint").write_text(f"{text}\n")

    def acknowledge(self) -> None:
        """Checkpoint the high watermarks, as a broker does every five seconds."""
        ends = {
            directory: log_end_offset(places)
            for directory, places in by_directory(list_places([str(self.log_dir)]).places)
        }
        lines = [f"{name.rsplit('/', 1)[1].replace('-', ' ')} {end}" for name, end in ends.items()]
        text = "\n".join(["0", str(len(lines)), *lines])
        (self.log_dir / "replication-offset-checkpoint").write_text(f"{text}\n")


@pytest.fixture
def growing(eoctl: Callable[..., Outcome], tmp_path: Path) -> Growing:
    return Growing(eoctl, tmp_path)


def values_of(rows: list[Row] | None) -> list[str]:
    return sorted(row["value"].decode() for row in rows or [])


def test_what_comes_is_given_once(growing: Growing) -> None:
    stream = records(growing.log_dir, subscribe="t")
    assert stream.next() is None
    growing.send(0, "a", "b")
    assert values_of(stream.next()) == ["a", "b"]
    assert stream.next() is None
    growing.send(1, "c")
    growing.send(0, *"defgh", roll=True)
    stream.restart()
    assert values_of(stream.next()) == [*"cdefgh"]
    assert len([*(growing.log_dir / "t-0").glob("*.log")]) > 1
    growing.send(0, *"ijk", roll=True)
    assert values_of(stream.rest(ReadMaxRows(1))) == [*"ijk"]
    assert stream.next() is None


def test_new_partitions_begin_at_their_start(growing: Growing, clean: Path) -> None:
    growing.send(0, "a")
    shutil.move(growing.log_dir / "t-1", growing.log_dir.parent / "t-1")
    stream = records(growing.log_dir, subscribe="t", startingOffsets="latest")
    assert stream.next() is None
    shutil.move(growing.log_dir.parent / "t-1", growing.log_dir / "t-1")
    growing.send(1, "b", "c")
    assert values_of(stream.rest(ReadMaxRows(1))) == ["b", "c"]


def test_a_micro_batch_is_given_again_as_it_was(growing: Growing) -> None:
    """Spark asks so after a crash; what has come since is not in it."""
    growing.send(0, "a", "b")
    stream = records(growing.log_dir, subscribe="t")
    start = kept(stream.reader.initialOffset())
    end = kept(stream.reader.latestOffset(start, ReadAllAvailable()))
    growing.send(0, "c")
    growing.send(1, "d")
    stream.restart()
    for _ in range(2):
        assert values_of(stream.range(start, end)) == ["a", "b"]
    stream.offsets = end
    assert values_of(stream.next()) == ["c", "d"]


def test_trigger_available_now_ends(growing: Growing) -> None:
    growing.send(0, *"abc")
    stream = records(growing.log_dir, subscribe="t")
    stream.reader.prepareForTriggerAvailableNow()
    growing.send(0, *"def")
    growing.send(1, "g")
    assert values_of(stream.rest(ReadMaxRows(1))) == ["a", "b", "c"]
    stream.restart()
    assert values_of(stream.rest()) == [*"defg"]


def test_open_transactions_hold_a_stream_back(growing: Growing) -> None:
    """The last stable offset is found from where it was; nothing is given early, or twice."""
    stream = records(growing.log_dir, subscribe="t", isolation="read_committed")
    growing.send(0, "a")
    with session(growing.log_dir, "x") as begun:
        begun.send("t", 0, b"open", b"rest")
    growing.send(0, "b")
    assert values_of(stream.next()) == ["a"]
    assert stream.next() is None
    with session(growing.log_dir, "x") as begun:  # it fences the one before, and aborts for it
        begun.send("t", 0, b"whole")
        begun.transactional.end(is_commit=True)
    growing.send(0, "c")
    assert values_of(stream.rest()) == ["b", "c", "whole"]
    assert stream.next() is None
    expected = read(RecordsReader, growing.log_dir, isolation="read_committed", subscribe="t")
    assert values_of(expected) == ["a", "b", "c", "whole"]


# --- what is gone ---------------------------------------------------------------------------------


def test_records_that_were_deleted_before_they_were_given(growing: Growing) -> None:
    growing.send(0, *"abcdefgh", roll=True)
    stream = records(growing.log_dir, subscribe="t")
    keeping = records(growing.log_dir, subscribe="t", failOnDataLoss=False)
    for each in (stream, keeping):
        assert len(each.next(ReadMaxRows(2)) or []) == 2
    first, second, *_ = sorted((growing.log_dir / "t-0").glob("*.log"))
    begin = int(second.stem)
    for each in (growing.log_dir / "t-0").glob(f"{first.stem}.*"):
        each.unlink()
    if begin <= 2:  # the segment that went had been given
        (growing.log_dir / "t-0" / second.name).unlink()
        begin = int(min((growing.log_dir / "t-0").glob("*.log")).stem)
    with pytest.raises(
        DataLossError, match=f"from offset 2, and the log begins at {begin}"
    ) as caught:
        stream.next()
    assert "failOnDataLoss" in caught.value.next_step
    assert values_of(keeping.rest()) == [*"abcdefgh"[begin:]]


def test_records_that_were_deleted_and_are_still_in_their_segment(growing: Growing) -> None:
    """DeleteRecords moves the log start into a segment: no consumer is given what is below."""
    shutil.move(growing.log_dir / "t-1", growing.log_dir.parent / "t-1")
    growing.send(0, *"abcdefgh")
    stream = records(growing.log_dir, subscribe="t")
    keeping = records(growing.log_dir, subscribe="t", failOnDataLoss=False)
    for each in (stream, keeping):
        assert values_of(each.next(ReadMaxRows(2))) == ["a", "b"]
    shutil.move(growing.log_dir.parent / "t-1", growing.log_dir / "t-1")
    growing.send(1, *"ijkl")
    growing.log_starts({"t 0": 5, "t 1": 2})
    with pytest.raises(DataLossError, match="from offset 2, and the log begins at 5"):
        stream.next()
    assert values_of(keeping.rest()) == [*"fghkl"]


def test_a_log_that_was_cut_back(growing: Growing) -> None:
    growing.send(0, *"abcd")
    stream = records(growing.log_dir, subscribe="t")
    keeping = records(growing.log_dir, subscribe="t", failOnDataLoss=False)
    for each in (stream, keeping):
        assert len(each.rest()) == 4
    growing.eoctl("truncate", growing.log_dir / "t-0", "--to-offset", 2, "--apply")
    with pytest.raises(DataLossError, match="from offset 4, and the log ends at 2"):
        stream.next()
    keeping.rest()
    growing.send(0, "e")
    assert values_of(keeping.rest()) == ["e"]


def test_a_log_that_lost_its_end(growing: Growing) -> None:
    """The high watermark lies beyond it; a broker will give those offsets to other records."""
    growing.send(0, *"abcd")
    growing.eoctl("truncate", growing.log_dir / "t-0", "--to-offset", 2, "--apply")
    checkpoint = growing.log_dir / "replication-offset-checkpoint"
    lines = checkpoint.read_text().splitlines()
    lines[2:] = ["t 0 4", *(line for line in lines[2:] if not line.startswith("t 0 "))]
    lines[1] = str(len(lines) - 2)
    checkpoint.write_text("\n".join(lines) + "\n")
    stream = records(growing.log_dir, subscribe="t")
    assert values_of(stream.rest()) == ["a", "b"]
    growing.send(0, "e", "f")
    assert values_of(stream.rest()) == ["e", "f"]


def test_a_log_that_was_replaced_by_another_leaders(growing: Growing) -> None:
    """KIP-320: the leader epoch of the last record ends below it now."""
    growing.send(0, *"abcd")
    stream = records(growing.log_dir, subscribe="t")
    stream.rest()
    epochs = growing.log_dir / "t-0" / "leader-epoch-checkpoint"
    before = epochs.read_text()
    assert before == "0\n1\n0 0\n"
    epochs.write_text("0\n2\n0 0\n1 4\n")
    assert stream.next() is None  # a new leader that went on
    epochs.write_text("0\n2\n0 0\n1 3\n")
    with pytest.raises(DataLossError, match="of leader epoch 0, which ends at 3"):
        stream.next()


def test_a_topic_that_was_made_again(growing: Growing) -> None:
    growing.send(0, *"abcd")
    stream = records(growing.log_dir, subscribe="t")
    keeping = records(growing.log_dir, subscribe="t", failOnDataLoss=False)
    for each in (stream, keeping):
        each.rest()
    metadata = growing.log_dir / "t-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: aR8wPhyoSziRgy7ZucmFaA\n")
    with pytest.raises(DataLossError, match="deleted and made again"):
        stream.next()
    assert values_of(keeping.rest()) == [*"abcd"]
    assert keeping.next() is None


def test_a_partition_that_is_gone(growing: Growing) -> None:
    growing.send(0, "a")
    growing.send(1, "b")
    stream = records(growing.log_dir)
    keeping = records(growing.log_dir, failOnDataLoss=False)
    for each in (stream, keeping):
        each.rest()
    shutil.rmtree(growing.log_dir / "t-1")
    with pytest.raises(DataLossError, match="1/t-1: it is gone; the query stands at offset 1"):
        stream.next()
    growing.send(0, "c")
    assert values_of(keeping.next()) == ["c"]


@pytest.mark.filterwarnings("ignore::eoctl.spark.rows.missing_segments.LeftOutWarning")
def test_a_segment_that_goes_while_a_micro_batch_is_read(growing: Growing) -> None:
    growing.send(0, "a")
    for options, is_lost in (({}, True), ({"failOnDataLoss": False}, False)):
        stream = records(growing.log_dir, subscribe="t", **options)
        start = kept(stream.reader.initialOffset())
        end = kept(stream.reader.latestOffset(start, ReadAllAvailable()))
        (task,) = stream.reader.partitions(start, end)
        log = growing.log_dir / "t-0" / f"{0:020}.log"
        log.rename(log.with_suffix(".deleted"))
        if is_lost:
            with pytest.raises(DataLossError, match="is gone since the micro-batch was planned"):
                [*stream.reader.read(task)]
        else:
            assert [*stream.reader.read(task)] == []
        log.with_suffix(".deleted").rename(log)


def test_a_host_that_has_not_the_directory(clean: Path, tmp_path: Path) -> None:
    """Nothing from there would look as if nothing were in it."""
    seen = shutil.copytree(clean / "txn-0", tmp_path / "txn-0")
    for cls in (RecordsReader, BatchesReader):
        reader = cls({"path": str(seen)})
        tasks = reader.partitions()
        seen.rename(tmp_path / "elsewhere")
        with pytest.raises(NotMountedError, match="there is no directory"):
            [*reader.read(tasks[0])]
        (tmp_path / "elsewhere").rename(seen)
