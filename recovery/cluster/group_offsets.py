"""Committed offsets of all consumer groups for one topic-partition, from `__consumer_offsets`.

Each partition of that topic is replayed from its log start offset, as a group coordinator of Kafka
4 loads it (CoordinatorLoaderImpl, OffsetMetadataManager.replay and replayEndTransactionMarker):

    commit without producer id  is in force at once, whatever was there
    commit with a producer id   is pending until the next marker of that id. COMMIT replaces the
                                commit in force only if its own record has the greater offset, so
                                that a later commit stays. ABORT drops it
    tombstone                   removes the commit in force, and pending commits of all producers

Commits above the high watermark are in force too: the offset up to which they were replicated is
unknown. Only keys with topic and partition next to each other can be relevant. Other records are
skipped, and so are uncompressed batches without these bytes. Records in them that do not parse,
under a correct checksum, are not reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from recovery.cluster.coordinator_log import (
    MAX_PROBLEMS_COUNT,
    add_problem,
    find_copies,
    furthest,
    partitions_count,
    read_batches,
)
from storage.errors import FormatError
from storage.file_names import GROUPS_TOPIC, TopicPartition
from storage.formats.consumer_offsets import OFFSET_TYPES, RECORD_TYPES
from storage.formats.coordinator_record import parse_key, parse_value
from storage.formats.message import INT16, INT32, MAX_STRING_BYTES
from storage.formats.record_batch import NO_PRODUCER_ID
from storage.log.decoded_records import marker_is_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir, Problem
    from storage.dirs.partition import Partition
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import LogRecord, Segment

Key = TypeVar("Key")
Value = TypeVar("Value")
WINDOW_BYTES = 1 << 20


class CommittedOffset(NamedTuple):
    """The next offset that a group consumes."""

    group: str
    offset: int
    is_pending: bool  # its transaction has no marker, so it is not in force


class GroupOffsets(NamedTuple):
    """The commits of all groups for one topic-partition.

    `offsets` are by group: the commit in force, then one pending commit per open transaction. If
    the number of partitions was raised, a group may have commits in several partitions, and is
    listed for each. `offsets_in` has them by partition of `__consumer_offsets`.
    """

    offsets: tuple[CommittedOffset, ...]
    read_partitions: tuple[int, ...]  # of `__consumer_offsets`, if they were read completely
    partitions_count: int | None  # by the cluster image; None: unknown
    problems: tuple[Problem, ...]  # unreadable or unknown data, at most 100 entries
    offsets_in: Mapping[int, tuple[CommittedOffset, ...]]

    @property
    def is_complete(self) -> bool:
        """Return whether all partitions, of a known number, were read completely."""
        count = self.partitions_count
        return not self.problems and count is not None and self.read_partitions == (*range(count),)


def find_group_offsets(
    log_dirs: Iterable[LogDir], topic: str, partition: int, *, image: ClusterImage | None = None
) -> GroupOffsets | None:
    """Find the commits of all groups for `topic`-`partition`.

    All `log_dirs`, and the image, must be of one cluster. If a partition of `__consumer_offsets`
    has several copies, the copy that reaches furthest is used, even if it diverged.

    Returns None if no log dir has a live partition of `__consumer_offsets`. Data on disk raises no
    error: see `problems`. A value that cannot be read leaves the earlier value.
    """
    copies, problems = find_copies(log_dirs, GROUPS_TOPIC)
    if not copies:
        return None
    wanted = TopicPartition(topic, partition)
    replays = {n: _replay_furthest(copies[n], wanted) for n in sorted(copies) if copies[n]}
    offsets_in = {number: tuple(replay.offsets()) for number, replay in replays.items()}
    offsets = [each for found in offsets_in.values() for each in found]
    problems += (each for replay in replays.values() for each in replay.problems)
    return GroupOffsets(
        offsets=tuple(sorted(offsets, key=lambda each: (each.group, each.is_pending, each.offset))),
        read_partitions=tuple(number for number, replay in replays.items() if replay.is_whole),
        partitions_count=partitions_count(image, GROUPS_TOPIC, max(copies)),
        problems=tuple(problems[:MAX_PROBLEMS_COUNT]),
        offsets_in=offsets_in,
    )


def _replay_furthest(copies: list[Partition], wanted: TopicPartition) -> _Replay:
    """Replay the copy with the greatest log end offset, preferably a whole copy."""
    for each in furthest(copies):
        replay = _Replay(each, wanted)
        if replay.is_whole:
            break
    return replay


class CommitRecord(NamedTuple, Generic[Value]):
    """A commit, and the offset of its record in `__consumer_offsets`."""

    record_offset: int
    value: Value


class Commits(Generic[Key, Value]):
    """Commits in force and pending commits, by the rules of this module.

    Attributes:
        settled: the commits in force, by key.
        pending: by producer id, commits that its COMMIT marker puts in force.
    """

    def __init__(self) -> None:
        self.settled: dict[Key, CommitRecord[Value]] = {}
        self.pending: dict[int, dict[Key, CommitRecord[Value]]] = {}

    def add(self, key: Key, commit: CommitRecord[Value], producer_id: int) -> None:
        """Take a commit. Like a coordinator, it does not check the transactional flag."""
        if producer_id == NO_PRODUCER_ID:
            self.settled[key] = commit
        else:
            self.pending.setdefault(producer_id, {})[key] = commit

    def forget(self, key: Key) -> None:
        """Take a tombstone."""
        for commits in (self.settled, *self.pending.values()):
            commits.pop(key, None)

    def end_transaction(self, segment: Segment, batch: ScannedBatch) -> None:
        """Take a control batch."""
        producer_id = batch.header.producer_id
        if producer_id not in self.pending:
            return
        is_commit = marker_is_commit(segment, batch)
        waiting = {} if is_commit is None else self.pending.pop(producer_id)
        for key, commit in waiting.items():
            settled = self.settled.get(key)
            if is_commit and (settled is None or commit.record_offset > settled.record_offset):
                self.settled[key] = commit


class _Replay:
    """The commits for one topic-partition in one partition of `__consumer_offsets`."""

    def __init__(self, source: Partition, wanted: TopicPartition) -> None:
        self.problems: list[Problem] = []
        self._wanted = wanted
        # No key has an illegal name, so its encoding does not matter.
        name = wanted.topic.encode(errors="replace")[:MAX_STRING_BYTES]
        self._needle = INT16.pack(len(name)) + name + INT32.pack(wanted.partition)
        self._commits: Commits[str, int] = Commits()  # by group
        self._window: _Window | None = None
        read_batches(source, self._take_batch, self.problems)
        is_there = bool(source.segments) or source.was_never_written
        self.is_whole = is_there and not self.problems

    def offsets(self) -> Iterator[CommittedOffset]:
        settled = self._commits.settled
        for by_group in (settled, *self._commits.pending.values()):
            for group, commit in by_group.items():
                yield CommittedOffset(group, commit.value, by_group is not settled)

    def _take_batch(self, segment: Segment, batch: ScannedBatch) -> None:
        if self._window is None or self._window.segment is not segment:
            self._window = _Window(segment)
        if batch.header.is_control:
            self._commits.end_transaction(segment, batch)
        elif self._window.may_hold(self._needle, batch):
            self._replay_batch(segment, batch)

    def _replay_batch(self, segment: Segment, batch: ScannedBatch) -> None:
        for record in segment.records(batch):
            try:
                if record.key is not None and self._needle in record.key:
                    self._replay_record(record, record.key, batch.header.producer_id)
            except FormatError as exc:
                exc.pos = 0  # a position in the key or the value is not a position in the file
                add_problem(self.problems, exc.located(segment.path, batch.pos))

    def _replay_record(self, record: LogRecord, key: bytes, producer_id: int) -> None:
        record_type, fields = parse_key(RECORD_TYPES, key)
        is_offset = record_type.type in OFFSET_TYPES
        if not is_offset or (fields["topic"], fields["partition"]) != self._wanted:
            return
        group = fields["group"]
        if record.value is None:
            self._commits.forget(group)
            return
        offset = parse_value(record_type, record.value)[2]["offset"]
        self._commits.add(group, CommitRecord(record.offset, offset), producer_id)


class _Window:
    """A window of a segment that shows without decoding whether batches may contain some bytes."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._start_pos = 0
        self._data = b""
        self._is_readable = True

    def may_hold(self, needle: bytes, batch: ScannedBatch) -> bool:
        """Return False if the batch certainly does not contain the bytes."""
        size = batch.header.batch_bytes
        if not self._is_readable or batch.header.codec or size > WINDOW_BYTES:
            return True
        start = batch.pos - self._start_pos
        if start + size > len(self._data):  # batches come by position
            self._data, unreadable = self.segment.file.read_at(batch.pos, WINDOW_BYTES)
            self._start_pos, start = batch.pos, 0
            # Else the rest of the segment is read batch by batch, and that reports the error.
            self._is_readable = not unreadable and size <= len(self._data)
        return not self._is_readable or self._data.find(needle, start, start + size) >= 0
