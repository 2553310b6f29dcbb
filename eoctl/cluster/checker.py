"""What a history and the directories that it left behind say together: is anything wrong?

The names of findings are those of Jepsen's test of Redpanda, where it has one. From the history:

  inconsistent-offsets  one offset has had two values, told to producers or read by consumers
  duplicate             one value was read at two offsets, or is at two in a log
  nonmonotonic-poll     a consumer was given an offset again, or a lower one, without being moved
  G1a                   a value was read, or is in a log, that was surely not sent
  hw-back               a high watermark that was told went back
  two-leaders           two brokers have acknowledged in one leader epoch
And with the directories, once all is healed:
  lost-write            a value was acknowledged, and is in no replica
  precommitted-read     a value was read, and is in no replica
  replicas-differ       two replicas have other batches below the high watermark of both
Before the heal what is missing may still come: `unseen`, which is no finding.

What is answered by nobody (`info`) may be there or not. Nothing that a node says of itself counts:
only files, and what clients were told. Memory grows with the records of the history.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.log_dir import PartitionDir, read_log_dir
from storage.dirs.partition import Partition
from storage.file_names import TopicPartition, parse_partition_name
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eoctl.cluster.history import Operation

NO_FINDINGS = frozenset({"unseen"})
MAX_OF_A_KIND = 1000


class HistoryFinding(NamedTuple):
    """Something that must not be; `line` of the history, 0: of the directories."""

    kind: str
    partition: str
    offset: int
    value: str
    words: str
    line: int


class ReplicaContent(NamedTuple):
    """What a replica has.

    Attributes:
        values: of its records, by offset.
        batches: (base offset, last offset, checksum) of each.
        high_watermark: as checkpointed; None unknown.
    """

    name: str
    values: dict[int, str]
    batches: list[tuple[int, int, int]]
    end_offset: int
    high_watermark: int | None


def read_replica(name: str, path: str) -> ReplicaContent:
    """Read a partition directory to its end.

    Raises:
        AccessError, FormatError: it cannot be read.
    """
    parsed = parse_partition_name(Path(path).name)
    assert parsed is not None
    partition = Partition(PartitionDir(path, parsed), read_log_dir(Path(path).parent))
    values: dict[int, str] = {}
    batches = []
    end_offset = 0
    for files in partition.segments:
        with open_segment(files.log.path, base_offset=files.base_offset) as segment:
            for batch in segment.scan():
                header = batch.header
                batches.append((header.base_offset, header.last_offset, header.crc))
                end_offset = header.last_offset + 1
                if header.is_control:
                    continue
                for record in segment.records(batch):
                    values[record.offset] = _text(record.value)
    return ReplicaContent(
        name=name,
        values=values,
        batches=batches,
        end_offset=end_offset,
        high_watermark=partition.high_watermark,
    )


def _text(value: bytes | memoryview | None) -> str:
    return "" if value is None else bytes(value).decode(errors="replace")


class _PartitionHistory:
    """What clients know of one partition."""

    def __init__(self) -> None:
        self.told: dict[int, str] = {}  # offset -> value, acknowledged or read
        self.acknowledged: dict[str, tuple[int, int]] = {}  # value -> offset and line
        self.failed: dict[str, int] = {}  # value -> line
        self.read: dict[str, tuple[int, int]] = {}  # value -> offset and line
        self.high_watermark = -1
        self.leaders: dict[int, int] = {}  # leader epoch -> who acknowledged


class HistoryChecker:
    """Takes a history operation by operation, then the directories partition by partition.

    Attributes:
        findings: what is wrong, at most MAX_OF_A_KIND of each kind.
        counts: of findings by kind, all of them.
        is_healed: the history has seen the end of all faults.
    """

    def __init__(self) -> None:
        self.findings: list[HistoryFinding] = []
        self.counts: dict[str, int] = {}
        self.is_healed = False
        self.operations_count = 0
        self.sends: dict[str, int] = {}
        self._partitions: dict[TopicPartition, _PartitionHistory] = {}
        self._positions: dict[tuple[str, str], int] = {}

    @property
    def partitions(self) -> list[TopicPartition]:
        """All that the history names."""
        return sorted(self._partitions)

    def _add(
        self, kind: str, key: TopicPartition, offset: int, value: str, words: str, line: int = 0
    ) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.counts[kind] <= MAX_OF_A_KIND:
            name = f"{key.topic}-{key.partition}"
            self.findings.append(
                HistoryFinding(
                    kind=kind, partition=name, offset=offset, value=value, words=words, line=line
                )
            )

    # -- the history

    def take(self, operation: Operation) -> None:
        """Take the next operation."""
        self.operations_count += 1
        if operation.op == "send":
            self._take_send(operation)
        elif operation.op == "poll":
            self._take_poll(operation)
        elif operation.op in {"fault", "heal"}:
            self.is_healed = operation.op == "heal"

    def _history_of(self, key: TopicPartition) -> _PartitionHistory:
        found = self._partitions.get(key)
        if found is None:
            found = self._partitions[key] = _PartitionHistory()
        return found

    def _take_send(self, operation: Operation) -> None:
        fields, kind = operation.fields, operation.type
        self.sends[kind] = self.sends.get(kind, 0) + 1
        topic, number = fields.get("topic"), fields.get("partition")
        if kind == "invoke" or not isinstance(topic, str) or type(number) is not int:
            return
        key, value = TopicPartition(topic, number), str(fields.get("value"))
        known = self._history_of(key)
        if kind == "fail":
            known.failed[value] = operation.line
            if value in known.read:
                self._failed_is_there(key, known.read[value][0], value, operation.line)
        elif kind == "ok":
            offset = fields.get("offset", -1)
            offset = offset if type(offset) is int else -1
            known.acknowledged[value] = (offset, operation.line)
            if offset >= 0:
                self._tell(key, known, offset, value, operation.line)
            self._take_leader(key, known, operation)

    def _take_leader(
        self, key: TopicPartition, known: _PartitionHistory, operation: Operation
    ) -> None:
        leader, epoch = operation.fields.get("leader"), operation.fields.get("leader_epoch")
        if type(leader) is not int or type(epoch) is not int:
            return
        other = known.leaders.setdefault(epoch, leader)
        if other != leader:
            words = f"brokers {other} and {leader} have both acknowledged in leader epoch {epoch}"
            value = str(operation.fields.get("value"))
            self._add("two-leaders", key, -1, value, words, operation.line)

    def _tell(
        self, key: TopicPartition, known: _PartitionHistory, offset: int, value: str, line: int
    ) -> None:
        before = known.told.setdefault(offset, value)
        if before != value:
            words = f"offset {offset} was {before}, and is {value} now"
            self._add("inconsistent-offsets", key, offset, value, words, line)
            known.told[offset] = value

    def _take_poll(self, operation: Operation) -> None:
        fields = operation.fields
        for name, offset in _mapping(fields.get("seek")):
            if type(offset) is int:
                self._positions[operation.process, name] = offset
        if operation.type != "ok":
            return
        for name, offset in _mapping(fields.get("high_watermark")):
            self._take_high_watermark(name, offset, operation)
        for name, records in _mapping(fields.get("records")):
            key = _key(name)
            if key is not None and isinstance(records, list):
                self._take_records(key, name, records, operation)

    def _take_high_watermark(self, name: str, offset: object, operation: Operation) -> None:
        key = _key(name)
        if key is None or type(offset) is not int:
            return
        known = self._history_of(key)
        if offset < known.high_watermark:
            words = f"the high watermark was {known.high_watermark}, and is {offset} now"
            self._add("hw-back", key, offset, "", words, operation.line)
        known.high_watermark = offset

    def _take_records(
        self, key: TopicPartition, name: str, records: list[object], operation: Operation
    ) -> None:
        known, line = self._history_of(key), operation.line
        for record in records:
            if not isinstance(record, list) or len(record) != 2 or type(record[0]) is not int:
                continue
            offset, value = record[0], "" if record[1] is None else str(record[1])
            expected = self._positions.get((operation.process, name), 0)
            if offset < expected:
                words = f"{operation.process} is given offset {offset} after {expected - 1}"
                self._add("nonmonotonic-poll", key, offset, value, words, line)
            self._positions[operation.process, name] = offset + 1
            self._tell(key, known, offset, value, line)
            if value in known.failed:
                self._failed_is_there(key, offset, value, line)
            before = known.read.setdefault(value, (offset, line))
            if before[0] != offset:
                words = f"{value} was read at offset {before[0]} and at {offset}"
                self._add("duplicate", key, offset, value, words, line)
                known.read[value] = (offset, line)

    def _failed_is_there(self, key: TopicPartition, offset: int, value: str, line: int) -> None:
        words = f"{value} was told to have failed, and is at offset {offset}"
        self._add("G1a", key, offset, value, words, line)

    # -- the directories

    def compare(self, key: TopicPartition, replicas: Iterable[ReplicaContent]) -> None:
        """Compare what clients know of a partition with all of its replicas."""
        known = self._history_of(key)
        found = [*replicas]
        self._compare_replicas(key, found)
        everywhere: set[str] = set()
        for each in found:
            everywhere |= {*each.values.values()}
            self._compare_offsets(key, known, each)
        for value, (offset, line) in known.acknowledged.items():
            if value not in everywhere:
                at = f" at offset {offset}" if offset >= 0 else ""
                words = f"{value} was acknowledged{at}, and is in no replica"
                kind = "lost-write" if self.is_healed else "unseen"
                self._add(kind, key, offset, value, words, line)
        for value, (offset, line) in known.read.items():
            if value not in everywhere and self.is_healed:
                words = f"{value} was read at offset {offset}, and is in no replica"
                self._add("precommitted-read", key, offset, value, words, line)

    def _compare_offsets(
        self, key: TopicPartition, known: _PartitionHistory, replica: ReplicaContent
    ) -> None:
        seen: dict[str, int] = {}
        for offset, value in replica.values.items():
            before = seen.setdefault(value, offset)
            if before != offset and (
                value not in known.read or known.read[value][0] in {offset, before}
            ):
                words = f"{replica.name} has {value} at offset {before} and at {offset}"
                self._add("duplicate", key, offset, value, words)
            if value in known.failed and value not in known.read:
                self._failed_is_there(key, offset, value, known.failed[value])
            told = known.told.get(offset)
            if self.is_healed and told is not None and told != value:
                words = f"offset {offset} was {told} to a client, and is {value} in {replica.name}"
                self._add("inconsistent-offsets", key, offset, value, words)

    def _compare_replicas(self, key: TopicPartition, replicas: list[ReplicaContent]) -> None:
        for place, each in enumerate(replicas):
            for other in replicas[place + 1 :]:
                limit = min(each.end_offset, other.end_offset)
                for replica in (each, other):
                    if replica.high_watermark is not None:
                        limit = min(limit, replica.high_watermark)
                ours, theirs = (
                    [batch for batch in replica.batches if batch[1] < limit]
                    for replica in (each, other)
                )
                different = next(
                    (pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]), None
                )
                if different is not None:
                    offset = min(different[0][0], different[1][0])
                    words = f"{each.name} and {other.name} differ from offset {offset} on"
                    self._add("replicas-differ", key, offset, "", words)

    @property
    def has_findings(self) -> bool:
        """Whether anything is wrong."""
        return any(kind not in NO_FINDINGS for kind in self.counts)


def _mapping(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from value.items()


def _key(name: str) -> TopicPartition | None:
    parsed = parse_partition_name(name)
    if parsed is None or parsed.partition < 0:
        return None
    return TopicPartition(parsed.topic, parsed.partition)
