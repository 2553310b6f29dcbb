"""All groups of a cluster, from `__consumer_offsets`: members, committed and pending offsets.

Each partition of the topic is replayed like a coordinator loads it.
`recovery.cluster.group_offsets` has the rules of commits. After the number of partitions was
raised, a group may have records in a partition that is not its own. No coordinator reads these
records, and eoctl ignores them if it knows the number.
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from recovery.cluster.coordinator_log import (
    add_problem,
    find_copies,
    furthest,
    partitions_count,
    read_batches,
)
from recovery.cluster.group_offsets import CommitRecord, Commits
from recovery.groups.members import GroupKind, GroupState
from storage.counts import agreeing, counted
from storage.dirs.partition import Partition
from storage.errors import AccessError, FormatError
from storage.file_names import GROUPS_TOPIC, DirState, TopicPartition
from storage.formats.consumer_offsets import (
    OFFSET_TYPES,
    RECORD_TYPES,
    OffsetCommit,
    OffsetKey,
    offset_commit_of,
)
from storage.formats.coordinator_record import parse_key, parse_value
from storage.formats.partition_metadata import format_uuid
from storage.producers.java_hash_map import coordinator_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir, PartitionDir, Problem
    from storage.formats.checkpoint import LeaderEpochEntry
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import LogRecord, Segment


UNKNOWN_TYPE = "COO-2"
NAMED_PARTITIONS = 5


class GroupCommit(NamedTuple):
    """A committed offset and its place. None for the pending producer: the commit counts.

    `record_offset` is in partition `partition` of `__consumer_offsets`.
    """

    key: OffsetKey
    value: OffsetCommit
    partition: int
    record_offset: int
    pending_producer_id: int | None = None

    @property
    def place(self) -> TopicPartition:
        """The topic-partition of the offset."""
        return TopicPartition(self.key.topic, self.key.partition)


class GroupLog:
    """The state of the coordinators of one cluster.

    Args:
        log_dirs: the log dirs to read, all of one cluster.
        image: the state of the cluster. None if the number of partitions of the topic is unknown.

    Attributes:
        groups: by name.
        partitions: the partitions of the topic that were read, and whether each was whole.
        partitions_count: of the topic. None if unknown.
        lagging: partitions with replicas that were not given and may have newer records.
        misplaced_count: records in a partition that is not their group's.
        unknown_count: records of an unknown type. They add no group.
        never_had_any: the metadata say that the cluster has no such topic.
        problems: what could not be read or parsed.
    """

    def __init__(self, log_dirs: Iterable[LogDir], image: ClusterImage | None = None) -> None:
        self.groups: dict[str, GroupState] = {}
        self.partitions: dict[int, bool] = {}
        self.lagging: list[int] = []
        self.misplaced_count = self.unknown_count = 0
        self.problems: list[Problem] = []
        self.never_had_any = False
        self._commits: dict[int, Commits[OffsetKey, OffsetCommit]] = {}
        copies, problems = find_copies(log_dirs, GROUPS_TOPIC)
        self.problems += problems
        if image is not None and not copies:
            self.never_had_any = image.is_complete and GROUPS_TOPIC not in image.topics
        highest = max(copies, default=-1)
        self.partitions_count = partitions_count(image, GROUPS_TOPIC, highest)
        for number in sorted(copies):
            self._read_furthest(number, copies[number])
            replicas = image and image.replication_factor(GROUPS_TOPIC, number)
            if replicas and len(copies[number]) < replicas:
                self.lagging.append(number)

    def _read_furthest(self, number: int, copies: list[Partition]) -> None:
        """Read replicas that reach equally far until one is whole. Keep the last if none is."""
        for source in furthest(copies):
            before = len(self.problems)
            for name in [each.group for each in self.groups.values() if each.partition == number]:
                del self.groups[name]
            self._commits[number] = Commits()
            read_batches(source, lambda *found: self._take_batch(number, *found), self.problems)
            is_there = bool(source.segments) or source.was_never_written
            self.partitions[number] = is_there and len(self.problems) == before
            if self.partitions[number]:
                break

    def _take_batch(self, number: int, segment: Segment, batch: ScannedBatch) -> None:
        if batch.header.is_control:
            self._commits[number].end_transaction(segment, batch)
            return
        for record in segment.records(batch):
            try:
                self._take_record(number, record, batch.header.producer_id)
            except FormatError as exc:
                if exc.check_id == UNKNOWN_TYPE:  # a broker ignores it
                    self.unknown_count += 1
                    continue
                exc.pos = 0  # a position in the key or the value is no position in the file
                add_problem(self.problems, exc.located(segment.path, batch.pos))

    def _take_record(self, number: int, record: LogRecord, producer_id: int) -> None:
        record_type, key = parse_key(RECORD_TYPES, record.key or b"")
        name = key.get("group", key.get("groupId", ""))
        if not self._belongs(name, number):
            self.misplaced_count += 1
            return
        version, value = -1, None
        if record.value is not None:
            _, version, value = parse_value(record_type, record.value)
        if record_type.type in OFFSET_TYPES:
            place = OffsetKey(key["group"], key["topic"], key["partition"])
            found = None if value is None else offset_commit_of(version, value)
            self._take_commit(number, record.offset, producer_id, place, found)
            return
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = GroupState(group=name, partition=number)
        group.take(record_type.type, key, value)

    def _belongs(self, name: str, number: int) -> bool:
        count = self.partitions_count
        if count is not None:
            return coordinator_partition(name, count) == number
        known = self.groups.get(name)
        return known is None or known.partition == number

    def _take_commit(
        self,
        number: int,
        offset: int,
        producer_id: int,
        place: OffsetKey,
        found: OffsetCommit | None,
    ) -> None:
        if found is None:
            self._commits[number].forget(place)
            return
        if place.group not in self.groups:
            self.groups[place.group] = GroupState(group=place.group, partition=number)
        self._commits[number].add(place, CommitRecord(offset, found), producer_id)

    # --- results

    @property
    def is_complete(self) -> bool:
        """Return whether all partitions were read whole, by a known number of them."""
        count = self.partitions_count
        return count is not None and all(self.partitions.get(each) for each in range(count))

    @property
    def missing(self) -> list[int]:
        """The partitions that were not read, by a known number of them."""
        return [each for each in range(self.partitions_count or 0) if each not in self.partitions]

    @property
    def has_all(self) -> bool:
        """Return whether all known partitions of the topic were read whole.

        If nothing shows that the topic exists, nothing is missing.
        """
        return all(self.partitions.values()) and not self.has_gaps

    def has_all_of(self, group: str) -> bool:
        """Return `has_all` for the partition of a group, or for all if its partition is unknown."""
        home = self.home_of(group)
        return self.has_all if home is None else self.partitions.get(home, False)

    def home_of(self, group: str) -> int | None:
        """Return the partition of a group. None if unknown."""
        known = self.groups.get(group)
        if known is not None:
            return known.partition
        count = self.partitions_count
        return None if count is None else coordinator_partition(group, count)

    def commits_of(self, group: GroupState) -> list[GroupCommit]:
        """Return the commits of a group by topic-partition, settled before pending commits."""
        found = [each for each in self._all_of(group.partition) if each.key.group == group.group]
        return sorted(found, key=lambda each: (each.key, each.pending_producer_id or -1))

    def all_commits(self) -> dict[str, list[GroupCommit]]:
        """Return the commits of each living group, in the order of their names."""
        found: dict[str, list[GroupCommit]] = {name: [] for name in sorted(self.living())}
        for number in self._commits:
            for each in self._all_of(number):
                if each.key.group in found:
                    found[each.key.group].append(each)
        for commits in found.values():
            commits.sort(key=lambda each: (each.key, each.pending_producer_id or -1))
        return found

    def living(self) -> set[str]:
        """Return groups that a coordinator knows: with offsets, members, or a group record."""
        with_offsets = {each.key.group for number in self._commits for each in self._all_of(number)}
        return with_offsets | {
            name for name, each in self.groups.items() if each.members or each.epoch is not None
        }

    def _all_of(self, number: int) -> Iterator[GroupCommit]:
        commits = self._commits[number]
        for key, commit in commits.settled.items():
            yield _group_commit(number, key, commit)
        for producer_id, waiting in commits.pending.items():
            for key, commit in waiting.items():
                yield _group_commit(number, key, commit, producer_id)

    def reported(self) -> Iterator[str]:
        """Yield sentences about incomplete data, for people."""
        if self.never_had_any:
            yield f"the cluster has no {GROUPS_TOPIC}. No group has ever committed an offset"
        elif not self.partitions:
            yield f"no partition of {GROUPS_TOPIC} is here. Nothing is known of any group"
        elif self.partitions_count is None:
            yield (
                f"the number of partitions of {GROUPS_TOPIC} is unknown. Groups in other "
                "partitions are not covered; --metadata-dir DIR gives the number"
            )
        for numbers, verbs, what in (
            (self.missing, ("is", "are"), "not here, and no group in there is known"),
            (self.lagging, ("has", "have"), "replicas that were not given, and may know more"),
        ):
            if numbers:
                names = ", ".join(f"{GROUPS_TOPIC}-{each}" for each in numbers[:NAMED_PARTITIONS])
                more = ", ..." if len(numbers) > NAMED_PARTITIONS else ""
                partitions = counted(len(numbers), "partition")
                yield f"{partitions} {agreeing(len(numbers), *verbs)} {what}: {names}{more}"
        if self.misplaced_count:
            yield (
                f"{counted(self.misplaced_count, 'record')} of {GROUPS_TOPIC}"
                f" {agreeing(self.misplaced_count, 'is', 'are')} in a partition that their"
                " group does not belong to. No coordinator answers them"
            )
        if self.unknown_count:
            yield (
                f"{counted(self.unknown_count, 'record')} of {GROUPS_TOPIC}"
                f" {agreeing(self.unknown_count, 'has', 'have')} an unknown type, and"
                f" {agreeing(self.unknown_count, 'was', 'were')} skipped [{UNKNOWN_TYPE}]"
            )

    @property
    def has_gaps(self) -> bool:
        """Return whether partitions are absent, or by gaps if their number is unknown."""
        if self.partitions_count is None:
            return len(self.partitions) <= max(self.partitions, default=-1)
        return bool(self.missing)

    @property
    def is_unreadable(self) -> bool:
        """Return whether a file, or a part of a file, could not be read."""
        return any(isinstance(each, AccessError) for each in self.problems)

    @property
    def is_corrupt(self) -> bool:
        """Return whether something was read that cannot be right."""
        return any(not isinstance(each, AccessError) for each in self.problems)


def _group_commit(
    number: int,
    key: OffsetKey,
    commit: CommitRecord[OffsetCommit],
    pending_producer_id: int | None = None,
) -> GroupCommit:
    return GroupCommit(
        key=key,
        value=commit.value,
        partition=number,
        record_offset=commit.record_offset,
        pending_producer_id=pending_producer_id,
    )


# -- committed offsets that a broker deletes soon after its start


RETENTION_MS = 10_080 * 60_000  # offsets.retention.minutes


def is_expired(group: GroupState, commit: GroupCommit, now_ms: int) -> bool:
    """Return whether a current broker deletes a committed offset soon after its start.

    No file has offsets.retention.minutes, so its default counts.
    """
    expires_ms = expires_at_ms(group, commit)
    return expires_ms is not None and now_ms >= expires_ms


def expires_at_ms(
    group: GroupState, commit: GroupCommit, retention_ms: int = RETENTION_MS
) -> int | None:
    """Return from when on a current broker deletes a committed offset. None: never.

    Offsets of a group without members live for offsets.retention.minutes. Offsets of an open
    transaction are kept.
    """
    if group.members or commit.pending_producer_id is not None:
        return None
    value = commit.value
    if value.expire_timestamp_ms >= 0:
        return value.expire_timestamp_ms
    since_ms = value.commit_timestamp_ms
    is_emptied = group.kind is GroupKind.CLASSIC and group.protocol_type
    if is_emptied and group.state_timestamp_ms is not None:
        since_ms = group.state_timestamp_ms
    return since_ms + retention_ms


# -- the range of each log that groups have committed offsets for
#
# Of several replicas of a partition, the replica with the highest end counts.


class OffsetPlace(StrEnum):
    """The place of a committed offset, which decides where a consumer continues."""

    IN_LOG = "in-log"  # its end included
    BELOW_START = "below-start"  # auto.offset.reset decides: the records there are deleted
    BEYOND_END = "beyond-end"  # auto.offset.reset decides: the log has lost its end
    NO_LOG = "no-log"  # not given, or unreadable


class LogReach(NamedTuple):
    """A log, as far as it is readable.

    Attributes:
        high_watermark: as checkpointed. None if unknown.
        end_offset: one above the last batch.
        path: of the replica.
        epochs: its leader epochs. Empty if unknown.
    """

    start_offset: int
    end_offset: int
    high_watermark: int | None
    path: str
    epochs: tuple[LeaderEpochEntry, ...] = ()

    def leader_epoch_before(self, offset: int) -> int | None:
        """Return the leader epoch of the record before an offset. None if unknown."""
        found = [each.epoch for each in self.epochs if each.start_offset < offset]
        return max(found, default=None)

    def place_of(self, offset: int) -> OffsetPlace:
        """Return the place of an offset."""
        if offset < self.start_offset:
            return OffsetPlace.BELOW_START
        return OffsetPlace.BEYOND_END if offset > self.end_offset else OffsetPlace.IN_LOG


class LogPlaces:
    """The logs in some log dirs of one cluster, each read on first use.

    Attributes:
        problems: what could not be read in the log dirs.
    """

    def __init__(self, log_dirs: Iterable[LogDir], image: ClusterImage | None = None) -> None:
        self.problems: list[Problem] = []
        self._image = image
        self._known: dict[TopicPartition, LogReach | None] = {}
        self._directories: dict[TopicPartition, list[tuple[PartitionDir, LogDir]]] = {}
        self._names: dict[str, str] | None = None
        for log_dir in log_dirs:
            for each in log_dir.partitions:
                if each.name.state is DirState.LIVE:
                    key = TopicPartition(each.name.topic, each.name.partition)
                    self._directories.setdefault(key, []).append((each, log_dir))

    def of(self, key: TopicPartition) -> LogReach | None:
        """Return the range of a log. None if it is absent or unreadable."""
        if key not in self._known:
            self._known[key] = self._inspect(key)
        return self._known[key]

    def _inspect(self, key: TopicPartition) -> LogReach | None:
        try:
            copies = [Partition(*each, self._image) for each in self._directories.get(key, ())]
            for source in furthest(copies):
                end, start_offset = source.log_end(), source.log_start_offset
                for problem in source.problems:
                    self.problems.append(problem.without_frames())
                if end is not None and start_offset is not None:
                    return LogReach(
                        start_offset=start_offset,
                        end_offset=end.offset,
                        high_watermark=source.high_watermark,
                        path=source.path,
                        epochs=tuple(source.leader_epochs() or ()),
                    )
        except AccessError as exc:
            self.problems.append(exc.without_frames())
        return None

    def is_known(self, key: TopicPartition) -> bool | None:
        """Return whether the cluster has a partition. None if unknown."""
        if self._image is None:
            return True if key in self._directories else None
        return self._image.partition(*key) is not None

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id, from the metadata or a partition's own file."""
        topic = None if self._image is None else self._image.topic_by_id(topic_id)
        if topic is not None:
            return topic.name
        if self._names is None:
            self._names = self._own_names()
        return self._names.get(format_uuid(topic_id))

    def _own_names(self) -> dict[str, str]:
        found = {}
        for key, directories in self._directories.items():
            with suppress(AccessError):
                own_id = Partition(*directories[0]).topic_id()
                if own_id is not None:
                    found[own_id] = key.topic
        return found
