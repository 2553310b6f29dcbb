"""The history of the cluster: a stream of changes from `__cluster_metadata-0`.

`read_history` returns typed changes in log order, of partitions, brokers, settings, features and
the quorum's leaders. The first state of the metadata comes first, as changes from nothing. Memory
holds one state of the cluster. Records of a metadata transaction come at its end, with the end's
offset and time.

For missing offsets it returns an `Unread`. Later changes then refer to the state before, until a
whole snapshot of later offsets shows the true state. The differences to it are changes by
`Why.SNAPSHOT`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from storage.dirs.cluster_image import (
    BROKER_RESOURCE,
    MAX_PROBLEMS_COUNT,
    TOPIC_RESOURCE,
    TORN_TAIL,
    ClusterImage,
    load_snapshot,
    replay_control,
    unread_of,
)
from storage.dirs.topic_settings import MIN_INSYNC_REPLICAS, wanted_min_insync_replicas
from storage.errors import AccessError, CorruptError, FormatError, UnsupportedError, UsageError
from storage.formats import cluster_metadata as records
from storage.formats.control_record import ControlRecordType
from storage.kernels.protocol import VerdictKind
from storage.limits import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from storage.dirs.cluster_image import (
        BrokerImage,
        MetadataBatch,
        MetadataBatches,
        MetadataLog,
        PartitionImage,
        TopicImage,
    )
    from storage.dirs.log_dir import Problem
    from storage.formats.cluster_metadata import MetadataRecord
    from storage.kernels.protocol import Verdict


# -- the reason for a change of a partition or a broker, from the states before and after


NO_LEADER = -1


class Why(StrEnum):
    """The kind of a change of a partition."""

    CREATED = "created"
    DELETED = "deleted"
    ELECTION = "election"  # of a member of the ISR
    ELR_ELECTION = "ELR election"  # of an eligible leader replica with all acknowledged records
    LAST_KNOWN_ELECTION = "last known election"  # of the last leader, with ISR and ELR empty
    UNCLEAN_ELECTION = "unclean election"
    NO_LEADER = "no leader"
    EPOCH_BUMP = "epoch bump"  # the same leader in a new epoch
    RECOVERED = "recovered"  # the leader of an unclean election has finished its recovery
    ISR_SHRINK = "ISR shrink"
    ISR_EXPAND = "ISR expand"
    ELR = "ELR"
    REASSIGNMENT = "reassignment"  # replicas are added or removed
    REASSIGNED = "reassigned"  # the reassignment is complete
    REASSIGNMENT_CANCELLED = "reassignment cancelled"
    DIRECTORY = "directory"
    SETTING = "setting"  # of min.insync.replicas: acks=all is refused or accepted since then
    SNAPSHOT = "snapshot"  # the cause is unknown
    NONE = "no change"

    @property
    def is_unclean(self) -> bool:
        """Return whether the new leader may lack acknowledged records."""
        return self in (Why.UNCLEAN_ELECTION, Why.LAST_KNOWN_ELECTION)

    @property
    def is_election(self) -> bool:
        """Return whether the leader changed."""
        return self in _ELECTIONS


_ELECTIONS = frozenset(
    (Why.ELECTION, Why.ELR_ELECTION, Why.LAST_KNOWN_ELECTION, Why.UNCLEAN_ELECTION)
)


class BrokerWhy(StrEnum):
    """The kind of a change of a broker."""

    REGISTERED = "registered"  # each start is a new registration
    UNREGISTERED = "unregistered"
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    DIRECTORIES = "directories"  # others are online or cordoned
    SNAPSHOT = "snapshot"
    OTHER = "other"


def partition_reasons(
    before: PartitionImage | None, after: PartitionImage | None
) -> tuple[Why, ...]:
    """Return the differences between two states of a partition, never empty."""
    if before is None or after is None:
        return (Why.DELETED if after is None else Why.CREATED,)
    found = []
    if after.leader_epoch != before.leader_epoch or after.leader != before.leader:
        found.append(_election(before, after))
    if after.isr is not before.isr and after.isr != before.isr:
        had, has = {*before.isr}, {*after.isr}
        if had - has:
            found.append(Why.ISR_SHRINK)
        if has - had:
            found.append(Why.ISR_EXPAND)
    if before.is_recovering and not after.is_recovering:
        found.append(Why.RECOVERED)
    if after.elr != before.elr or after.last_known_elr != before.last_known_elr:
        found.append(Why.ELR)
    if _moves(before) != _moves(after):
        found.append(_reassignment(before, after))
    if after.directories != before.directories and after.replicas == before.replicas:
        found.append(Why.DIRECTORY)
    return tuple(found) or (Why.NONE,)


def _election(before: PartitionImage, after: PartitionImage) -> Why:
    leader = after.leader
    if leader == NO_LEADER:
        return Why.NO_LEADER
    if leader == before.leader:
        return Why.EPOCH_BUMP
    if leader in before.isr:
        return Why.ELECTION
    if leader in before.elr:
        return Why.ELR_ELECTION
    if not before.isr and leader in before.last_known_elr:
        return Why.LAST_KNOWN_ELECTION
    return Why.UNCLEAN_ELECTION


def _moves(image: PartitionImage) -> tuple[tuple[int, ...], ...]:
    return image.replicas, image.adding_replicas, image.removing_replicas


def _reassignment(before: PartitionImage, after: PartitionImage) -> Why:
    if after.adding_replicas or after.removing_replicas:
        return Why.REASSIGNMENT
    if not before.adding_replicas and not before.removing_replicas:
        return Why.REASSIGNED  # within one record
    replicas = {*after.replicas}
    is_done = replicas >= {*before.adding_replicas} and not replicas & {*before.removing_replicas}
    return Why.REASSIGNED if is_done else Why.REASSIGNMENT_CANCELLED


def broker_reasons(before: BrokerImage | None, after: BrokerImage | None) -> tuple[BrokerWhy, ...]:
    """Return the differences between two states of a broker, never empty."""
    if after is None:
        return (BrokerWhy.UNREGISTERED,)
    if before is None or after.broker_epoch != before.broker_epoch:
        return (BrokerWhy.REGISTERED,)
    found = []
    if after.is_fenced != before.is_fenced:
        found.append(BrokerWhy.FENCED if after.is_fenced else BrokerWhy.UNFENCED)
    if after.in_controlled_shutdown and not before.in_controlled_shutdown:
        found.append(BrokerWhy.CONTROLLED_SHUTDOWN)
    if (after.log_dirs, after.cordoned_log_dirs) != (before.log_dirs, before.cordoned_log_dirs):
        found.append(BrokerWhy.DIRECTORIES)
    return tuple(found) or (BrokerWhy.OTHER,)


# -- the changes of a cluster that `history` returns, as values


class PartitionChange(NamedTuple):
    """A change of a partition.

    Attributes:
        offset, timestamp_ms: of the metadata record that brought it into force. A time of -1 is
            none.
        before: None: the partition was created.
        after: None: the partition was deleted.
        why: the kinds of the change, never empty.
        min_insync_replicas: the required replicas for acks=all, or 0 after deletion.
        is_under_min_isr: acks=all is refused: the ISR is too small, or there is no leader.
    """

    offset: int
    timestamp_ms: int
    topic: str
    topic_id: bytes
    partition: int
    before: PartitionImage | None
    after: PartitionImage | None
    why: tuple[Why, ...]
    min_insync_replicas: int
    is_under_min_isr: bool

    @property
    def is_unclean(self) -> bool:
        """Return whether an elected leader may lack acknowledged records."""
        return any(each.is_unclean for each in self.why)


class BrokerChange(NamedTuple):
    """A broker that was registered, fenced, unfenced, or unregistered."""

    offset: int
    timestamp_ms: int
    broker_id: int
    before: BrokerImage | None
    after: BrokerImage | None
    why: tuple[BrokerWhy, ...]


class SettingChange(NamedTuple):
    """A dynamic setting. Values may be secrets: see `cluster_metadata.SECRET_CONFIG`."""

    offset: int
    timestamp_ms: int
    resource_type: int
    resource_name: str
    name: str
    before: str | None
    after: str | None


class FeatureChange(NamedTuple):
    """A new level of a feature. 0: none."""

    offset: int
    timestamp_ms: int
    name: str
    before: int
    after: int


class QuorumLeaderChange(NamedTuple):
    """A controller that became leader of the metadata log."""

    offset: int
    timestamp_ms: int
    leader: int | None
    epoch: int
    voters: tuple[int, ...]


class Unread(NamedTuple):
    """Unknown offsets, which may contain changes.

    Attributes:
        offset: the first offset.
        timestamp_ms: of the record before, or -1.
        end_offset: exclusive end. None: unknown.
    """

    offset: int
    timestamp_ms: int
    end_offset: int | None
    reason: str


Change = (
    PartitionChange | BrokerChange | SettingChange | FeatureChange | QuorumLeaderChange | Unread
)


# -- the start of a history of the cluster, and its requested end


class Moment(NamedTuple):
    """The requested end: after an offset, or before the first record of a later time."""

    offset: int | None = None
    timestamp_ms: int | None = None

    def is_before(self, offset: int, timestamp_ms: int) -> bool:
        """Return whether a record is after this moment."""
        if self.offset is not None:
            return offset > self.offset
        return self.timestamp_ms is not None and timestamp_ms > self.timestamp_ms


class HistoryStart(NamedTuple):
    """The start of the changes: a snapshot, or offset 0 without any state."""

    image: ClusterImage
    problems: tuple[Problem, ...] = ()


def find_start(partition: MetadataLog, until: Moment | None) -> HistoryStart:
    """Return the oldest snapshot that the log continues, or the newest before a moment.

    Without any log, return the newest snapshot.
    """
    log_start = partition.segments[0].base_offset if partition.segments else None
    entries = list(partition.files.checkpoints)
    is_newest_first = log_start is None or until is not None
    if is_newest_first:
        entries.reverse()
    rejected: list[Problem] = []
    below: ClusterImage | None = None
    for entry in entries:
        offset = entry.name.offset or 0
        if until is None and log_start == 0:
            break
        if until is not None and until.offset is not None and offset > until.offset + 1:
            continue
        image = load_snapshot(entry.path, offset)
        if image is None:
            problem = CorruptError("not a whole snapshot", check_id="KRF-2", pos=0)
            rejected.append(problem.located(entry.path))
        elif log_start is not None and offset < log_start:
            below = image
        elif until is None or not _is_beyond(image, until):
            return HistoryStart(image, tuple(rejected))
    if until is not None and log_start != 0:
        return find_start(partition, None)  # nothing else can be as old
    if log_start == 0 or below is None:
        return HistoryStart(ClusterImage(), tuple(rejected))
    return HistoryStart(below, tuple(rejected))


def _is_beyond(image: ClusterImage, until: Moment) -> bool:
    if until.timestamp_ms is None:
        return False
    return image.snapshot_timestamp_ms is None or image.snapshot_timestamp_ms > until.timestamp_ms


def require_within(partition: MetadataLog, start: HistoryStart, until: Moment) -> None:
    """Raise UsageError if a moment lies before all data of a directory."""
    first = start.image.snapshot_offset
    time_ms = start.image.snapshot_timestamp_ms
    is_early = until.offset is not None and until.offset < first - 1
    if until.timestamp_ms is not None and time_ms is not None:
        is_early = until.timestamp_ms < time_ms
    if is_early:
        raise UsageError(
            f"{partition.path}: what was before offset {first} is in no file any more",
            next_step="a later moment, or the directory of another controller",
        )


# -- history


ALL = Moment()


def read_history(
    partition: MetadataLog,
    *,
    until: Moment = ALL,
    is_wanted: Callable[[str], bool] | None = None,
) -> History:
    """Read all changes that a `__cluster_metadata-0` directory still has.

    Args:
        partition: a `storage.dirs.partition.Partition` of it.
        until: records after this moment are not read.
        is_wanted: selects the topics whose changes are returned. The state includes all topics.

    Raises:
        UsageError: `until` lies before all data of the directory.
    """
    return History(partition, find_start(partition, None), until, is_wanted)


def read_state(partition: MetadataLog, until: Moment) -> History:
    """Read the state at a moment, from the newest snapshot before it, without changes.

    Raises:
        UsageError: `until` lies before all data of the directory.
    """
    return _drained(History(partition, find_start(partition, until), until, lambda _topic: False))


def read_through(partition: MetadataLog, until: Moment = ALL) -> History:
    """Read all data of `read_history` without changes, to check that it is whole.

    Raises:
        UsageError: as `read_history`.
    """
    return _drained(History(partition, find_start(partition, None), until, lambda _topic: False))


def _drained(history: History) -> History:
    for _ in history:
        pass
    return history


class History:
    """Iterator of changes, in log order.

    Attributes:
        image: the state after the last returned change.
        start_offset: start of the changes. Earlier changes are in no file, or not requested.
        timestamp_ms: of the last applied record, or -1.
        end_offset: one above the last applied record.
        records_count: number of records read.
        went_back_offset: the first record that is older than an earlier record, because clocks of
            controllers differ. None: there is none.
        problems: errors of reading, complete at the end.
        torn: the verdict on a torn last batch, as after a crash. None: there is none.
        is_past: a record after the moment was read, so that nothing before it is missing.
    """

    def __init__(
        self,
        partition: MetadataLog,
        start: HistoryStart,
        until: Moment,
        is_wanted: Callable[[str], bool] | None,
    ) -> None:
        self.image = start.image
        self.start_offset = self.image.snapshot_offset
        self.timestamp_ms = -1
        if self.image.snapshot_timestamp_ms is not None:
            self.timestamp_ms = self.image.snapshot_timestamp_ms
        self.end_offset = self.start_offset
        self.records_count = 0
        self.went_back_offset: int | None = None
        self.problems: list[Problem] = [*start.problems, *self.image.problems]
        self.torn: Verdict | None = None
        self.is_past = False
        self._partition = partition
        self._until = until
        self._is_wanted = is_wanted
        self._insync: dict[tuple[str, int], int] = {}
        self._resync: list[int] = []  # ends of snapshots that may show the state after a gap
        self._offset = self.start_offset  # of the current record
        require_within(partition, start, until)
        self._changes = self._read()

    def __iter__(self) -> Iterator[Change]:
        return self._changes

    def __next__(self) -> Change:
        return next(self._changes)

    @property
    def is_complete(self) -> bool:
        """Return whether every record so far was read and is of a known kind."""
        return not self.problems and not self.image.unknown_records_count

    @property
    def reaches(self) -> bool:
        """Return whether it reaches the requested end."""
        until = self._until
        if until.offset is not None:
            return self.end_offset > until.offset
        return until.timestamp_ms is None or self.is_past

    # --- the walk ---------------------------------------------------------------------------------

    def _read(self) -> Iterator[Change]:
        self._offset = max(self.start_offset - 1, 0)
        yield from self._differences(ClusterImage(), self.image)
        read = self._partition.read(self.start_offset)
        last: MetadataBatch | None = None
        for placed in read:
            header = placed.batch.header
            if placed.batch.crc_ok is False or header.last_offset < self.end_offset:
                continue
            if self._until.is_before(header.base_offset, header.max_timestamp_ms):
                self.is_past = True
                break
            if header.base_offset > self.end_offset:
                yield self._unread(header.base_offset, "missing in the log")
            yield from self._resynced(header.base_offset)
            yield from self._batch(placed)
            last = placed
        if not self.is_past:
            yield from self._tail(read, last)
        for problem in unread_of(self._partition, read):
            self._add(problem)
        torn = [each for _, each in read.verdicts if each.kind is VerdictKind.TORN_TAIL]
        self.torn = torn[-1] if torn else None

    def _tail(self, read: MetadataBatches, last: MetadataBatch | None) -> Iterator[Change]:
        """Yield changes after the last good batch: damage, or a snapshot ahead of the log."""
        base_offset = -1 if last is None else last.segment.base_offset
        end_pos = 0 if last is None else last.batch.pos + last.batch.header.batch_bytes
        reasons = [
            verdict.reason or str(verdict.kind)
            for files, verdict in read.verdicts
            if verdict.check_id != TORN_TAIL
            and (files.base_offset, verdict.start_pos) >= (base_offset, end_pos)
        ]
        unopened = {each.path for each in self._partition.problems}
        reasons += (
            "cannot be opened"
            for each in self._partition.segments
            if each.base_offset >= self.end_offset and each.log.path in unopened
        )
        ahead = self._snapshot_ends(self.end_offset + 1)
        if self._until.offset is not None:
            ahead = [each for each in ahead if each <= self._until.offset + 1]
        if reasons or (ahead and self._partition.segments):
            reason = reasons[0] if reasons else "only in a snapshot"
            yield self._unread(ahead[-1] if ahead else None, reason)
            self._resync = ahead[-1:]
            yield from self._resynced(MAX_OFFSET)

    def _batch(self, placed: MetadataBatch) -> Iterator[Change]:
        """Take a batch, record by record."""
        segment, batch = placed.segment, placed.batch
        header, image = batch.header, self.image
        self._note_time(header.base_offset, header.max_timestamp_ms)
        if header.is_control:
            yield from self._control(placed)
        else:
            first = self.end_offset
            last = MAX_OFFSET if self._until.offset is None else self._until.offset
            try:
                for record in segment.records(batch):
                    offset = record.offset
                    if not first <= offset <= last:
                        continue
                    self._offset = offset
                    self.records_count += 1
                    try:
                        parsed = records.parse_record(record.value)
                    except FormatError as exc:
                        yield self._not_understood(exc, placed)
                        continue
                    for due in image.due(parsed):
                        yield from self._reported(due)
            except (FormatError, AccessError) as exc:
                self._add(exc)
                yield self._unread(header.last_offset + 1, exc.message, from_offset=self._offset)
        end_offset = header.last_offset + 1
        if self._until.offset is not None:
            end_offset = min(end_offset, self._until.offset + 1)
        self.end_offset = image.end_offset = max(self.end_offset, end_offset)

    def _note_time(self, offset: int, timestamp_ms: int) -> None:
        if timestamp_ms < self.timestamp_ms and self.went_back_offset is None:
            self.went_back_offset = offset
        self.timestamp_ms = timestamp_ms

    def _control(self, placed: MetadataBatch) -> Iterator[Change]:
        image, header = self.image, placed.batch.header
        before = image.quorum_leader, image.voters
        problems_count = len(image.problems)
        types = replay_control(image, placed.segment, placed.batch)
        self.records_count += len(types)
        for problem in image.problems[problems_count:]:
            self._add(problem)
        is_election = ControlRecordType.LEADER_CHANGE in types
        if is_election or (image.quorum_leader, image.voters) != before:
            yield QuorumLeaderChange(
                offset=header.base_offset,
                timestamp_ms=header.max_timestamp_ms,
                leader=image.quorum_leader,
                epoch=header.partition_leader_epoch,
                voters=image.voters,
            )

    def _add(self, problem: Problem) -> None:
        if len(self.problems) < MAX_PROBLEMS_COUNT:
            self.problems.append(problem.without_frames())

    # --- unknown offsets --------------------------------------------------------------------------

    def _unread(
        self, end_offset: int | None, reason: str, *, from_offset: int | None = None
    ) -> Unread:
        start = self.end_offset if from_offset is None else from_offset
        self._resync = [] if end_offset is None else self._snapshot_ends(end_offset)
        self._add(
            CorruptError(
                f"offsets from {start} are {reason}",
                check_id="KRF-1",
                pos=0,
                expected=f"offset {start}",
                found="none" if end_offset is None else f"offset {end_offset}",
            ).located(self._partition.path)
        )
        self.end_offset = max(self.end_offset, end_offset or 0)
        return Unread(
            offset=start, timestamp_ms=self.timestamp_ms, end_offset=end_offset, reason=reason
        )

    def _not_understood(self, exc: FormatError, placed: MetadataBatch) -> Unread:
        self.image.unknown_records_count += 1
        if not isinstance(exc, UnsupportedError):
            self._add(exc.located(placed.segment.path, placed.batch.pos))
        return Unread(
            offset=self._offset,
            timestamp_ms=self.timestamp_ms,
            end_offset=self._offset + 1,
            reason=exc.message,
        )

    def _snapshot_ends(self, from_offset: int) -> list[int]:
        found = [each.name.offset or 0 for each in self._partition.files.checkpoints]
        return [each for each in found if each >= from_offset]

    def _resynced(self, offset: int) -> Iterator[Change]:
        """Take the first whole snapshot after a gap, once the log reaches its end offset."""
        while self._resync and self._resync[0] <= offset:
            end_offset = self._resync.pop(0)
            (path,) = (
                each.path
                for each in self._partition.files.checkpoints
                if each.name.offset == end_offset
            )
            image = load_snapshot(path, end_offset)
            if image is None:
                continue
            self._resync = []
            before, self.image = self.image, image
            image.voters = image.voters or before.voters
            image.quorum_leader = before.quorum_leader
            image.unknown_records_count += before.unknown_records_count
            self._insync.clear()
            self._offset = end_offset - 1
            if image.snapshot_timestamp_ms is not None:
                self.timestamp_ms = image.snapshot_timestamp_ms
            self.end_offset = max(self.end_offset, end_offset)
            yield from self._differences(before, image)

    def _differences(self, before: ClusterImage, after: ClusterImage) -> Iterator[Change]:
        """Yield the differences of a snapshot to the state before."""
        for name in sorted({*before.features} | {*after.features}):
            levels = before.features.get(name, 0), after.features.get(name, 0)
            if levels[0] != levels[1]:
                yield self._feature_change(name, *levels)
        for broker_id in sorted({*before.brokers} | {*after.brokers}):
            pair = before.brokers.get(broker_id), after.brokers.get(broker_id)
            if pair[0] != pair[1]:
                yield self._broker_change(broker_id, *pair, why=(BrokerWhy.SNAPSHOT,))
        for kind, resource in sorted({*before.configs} | {*after.configs}):
            had = before.configs.get((kind, resource), {})
            has = after.configs.get((kind, resource), {})
            for name in sorted({*had} | {*has}):
                if had.get(name) != has.get(name):
                    yield self._setting_change(kind, resource, name, had.get(name), has.get(name))
        topics = {each.topic_id: each for each in before.topics.values()}
        gone = [each for key, each in topics.items() if after.topic_by_id(key) is None]
        for topic in gone:
            yield from self._partitions_changed(topic, topic.partitions, {})
        for topic in after.topics.values():
            old = topics.get(topic.topic_id)
            yield from self._partitions_changed(
                topic, {} if old is None else old.partitions, topic.partitions
            )

    def _partitions_changed(
        self,
        topic: TopicImage,
        before: dict[int, PartitionImage],
        after: dict[int, PartitionImage],
    ) -> Iterator[Change]:
        if self._is_wanted is not None and not self._is_wanted(topic.name):
            return
        for number in sorted({*before} | {*after}):
            old, new = before.get(number), after.get(number)
            if old != new:
                yield self._change(topic, number, old, new, why=(Why.SNAPSHOT,))

    # --- one record -------------------------------------------------------------------------------

    def _reported(self, record: MetadataRecord) -> Iterable[Change]:
        """Apply a record, and return its changes."""
        report = self._REPORT.get(record.api_key)
        if report is None:
            self.image.apply(record)
            return ()
        return report(self, record)

    def _of_partition(self, record: MetadataRecord) -> Iterable[Change]:
        data, image = record.data, self.image
        number = data["partitionId"]
        topic = image.topic_by_id(data["topicId"])
        if topic is None:
            return ()
        before = topic.partitions.get(number)
        image.apply(record)
        after = topic.partitions.get(number)
        if after is None or (self._is_wanted is not None and not self._is_wanted(topic.name)):
            return ()
        return (self._change(topic, number, before, after, why=partition_reasons(before, after)),)

    def _of_removed_topic(self, record: MetadataRecord) -> Iterable[Change]:
        topic = self.image.topic_by_id(record.data["topicId"])
        self.image.apply(record)
        if topic is None or (self._is_wanted is not None and not self._is_wanted(topic.name)):
            return ()
        return [
            self._change(topic, number, before, None, why=(Why.DELETED,))
            for number, before in sorted(topic.partitions.items())
        ]

    def _of_cleared_elr(self, record: MetadataRecord) -> Iterable[Change]:
        name = record.data["topicName"]
        topics = [each for each in self.image.topics.values() if not name or each.name == name]
        before = [(topic, dict(topic.partitions)) for topic in topics]
        self.image.apply(record)
        return [
            self._change(topic, number, old, topic.partitions[number], why=(Why.ELR,))
            for topic, partitions in before
            if self._is_wanted is None or self._is_wanted(topic.name)
            for number, old in partitions.items()
            if topic.partitions[number] != old
        ]

    def _of_setting(self, record: MetadataRecord) -> Iterable[Change]:
        data, image = record.data, self.image
        kind, resource, name = data["resourceType"], data["resourceName"], data["name"]
        if name != MIN_INSYNC_REPLICAS or kind not in (TOPIC_RESOURCE, BROKER_RESOURCE):
            before = image.configs.get((kind, resource), {}).get(name)
            image.apply(record)
            return (self._setting_change(kind, resource, name, before, data["value"]),)
        before = image.configs.get((kind, resource), {}).get(name)
        of_topic = image.topics.get(resource)
        topics = list(image.topics.values()) if kind == BROKER_RESOURCE else [of_topic]
        wanted = [
            (topic, number, each, self._is_under(topic.name, each))
            for topic in topics
            if topic is not None and (self._is_wanted is None or self._is_wanted(topic.name))
            for number, each in topic.partitions.items()
        ]
        image.apply(record)
        self._insync.clear()
        found: list[Change] = [self._setting_change(kind, resource, name, before, data["value"])]
        found += (
            self._change(topic, number, each, each, why=(Why.SETTING,))
            for topic, number, each, was_under in wanted
            if self._is_under(topic.name, each) != was_under
        )
        return found

    def _of_feature(self, record: MetadataRecord) -> Iterable[Change]:
        name = record.data["name"]
        before = self.image.features.get(name, 0)
        self.image.apply(record)
        after = self.image.features.get(name, 0)
        return (self._feature_change(name, before, after),)

    def _of_broker(self, record: MetadataRecord) -> Iterable[Change]:
        data = record.data
        broker_id = data["id"] if "id" in data else data["brokerId"]
        before = self.image.brokers.get(broker_id)
        self.image.apply(record)
        after = self.image.brokers.get(broker_id)
        if before == after:
            return ()
        why = broker_reasons(before, after)
        return (self._broker_change(broker_id, before, after, why=why),)

    def _change(
        self,
        topic: TopicImage,
        number: int,
        before: PartitionImage | None,
        after: PartitionImage | None,
        *,
        why: tuple[Why, ...],
    ) -> PartitionChange:
        needed = 0 if after is None else self._needed(topic.name, after)
        is_under = after is not None and (after.leader < 0 or len(after.isr) < needed)
        return PartitionChange(
            offset=self._offset,
            timestamp_ms=self.timestamp_ms,
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=number,
            before=before,
            after=after,
            why=why,
            min_insync_replicas=needed,
            is_under_min_isr=is_under,
        )

    def _needed(self, topic: str, image: PartitionImage) -> int:
        key = topic, image.leader
        found = self._insync.get(key)
        if found is None:
            found = wanted_min_insync_replicas(self.image, topic, broker_id=image.leader)
            self._insync[key] = found
        count = len(image.replicas)
        return min(count, found)

    def _is_under(self, topic: str, image: PartitionImage) -> bool:
        return image.leader < 0 or len(image.isr) < self._needed(topic, image)

    def _broker_change(
        self,
        broker_id: int,
        before: BrokerImage | None,
        after: BrokerImage | None,
        *,
        why: tuple[BrokerWhy, ...],
    ) -> BrokerChange:
        return BrokerChange(
            offset=self._offset,
            timestamp_ms=self.timestamp_ms,
            broker_id=broker_id,
            before=before,
            after=after,
            why=why,
        )

    def _setting_change(
        self, kind: int, resource: str, name: str, before: str | None, after: str | None
    ) -> SettingChange:
        return SettingChange(
            offset=self._offset,
            timestamp_ms=self.timestamp_ms,
            resource_type=kind,
            resource_name=resource,
            name=name,
            before=before,
            after=after,
        )

    def _feature_change(self, name: str, before: int, after: int) -> FeatureChange:
        return FeatureChange(
            offset=self._offset,
            timestamp_ms=self.timestamp_ms,
            name=name,
            before=before,
            after=after,
        )

    _REPORT: ClassVar[dict[int, Callable[[History, MetadataRecord], Iterable[Change]]]] = {
        records.PARTITION_CHANGE: _of_partition,
        records.PARTITION: _of_partition,
        records.REMOVE_TOPIC: _of_removed_topic,
        records.CLEAR_ELR: _of_cleared_elr,
        records.CONFIG: _of_setting,
        records.FEATURE_LEVEL: _of_feature,
        records.REGISTER_BROKER: _of_broker,
        records.UNREGISTER_BROKER: _of_broker,
        records.FENCE_BROKER: _of_broker,
        records.UNFENCE_BROKER: _of_broker,
        records.BROKER_REGISTRATION_CHANGE: _of_broker,
    }
