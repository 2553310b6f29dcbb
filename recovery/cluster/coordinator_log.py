"""Internal topics in log dirs, and what transaction coordinators know by `__transaction_state`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.partition import Partition
from storage.errors import AccessError, CorruptError, FormatError
from storage.file_names import TRANSACTION_STATE_TOPIC, DirState
from storage.formats.record_batch import NO_LEADER_EPOCH
from storage.formats.transaction_state import TransactionState, parse_record
from storage.producers.java_hash_map import coordinator_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir, Problem
    from storage.dirs.partition import RangeRead
    from storage.formats.checkpoint import LeaderEpochEntry
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment


# -- the partitions of an internal topic in log dirs: which copy of each to read, and are they all
#
# Of several copies of one partition, from several nodes, the one that reaches furthest counts:
# what it lacks was never there, or is no part of the log any more.


MAX_PROBLEMS_COUNT = 100


def find_copies(
    log_dirs: Iterable[LogDir], topic: str
) -> tuple[dict[int, list[Partition]], list[Problem]]:
    """Find the live directories of a topic by partition, and those that cannot be listed."""
    copies: dict[int, list[Partition]] = {}
    problems: list[Problem] = []
    listed = ((each, log_dir) for log_dir in log_dirs for each in log_dir.partitions)
    for directory, around in listed:
        if directory.name.topic == topic and directory.name.state is DirState.LIVE:
            of_number = copies.setdefault(directory.name.partition, [])
            try:
                of_number.append(Partition(directory, around))
            except AccessError as exc:  # it may be the copy that reaches furthest
                problems.append(exc.without_frames())
    return copies, problems


def furthest(copies: list[Partition]) -> list[Partition]:
    """Return the copies of one partition that reach furthest, as an election compares them."""
    if len(copies) < 2:
        return copies
    found = [reach(each.leader_epochs(), _end_offset(each)) for each in copies]
    return [each for each, own in zip(copies, found, strict=True) if own == max(found)]


def reach(epochs: Sequence[LeaderEpochEntry] | None, end_offset: int) -> tuple[int, int]:
    """Return what tells how far a copy reaches: the last leader epoch first, then the length.

    After an unclean election the longer log may be that of the leader before, which is lost.
    """
    return (epochs[-1].epoch if epochs else -1, end_offset)


def _end_offset(partition: Partition) -> int:
    try:
        end = partition.log_end()
    except AccessError:  # met again, and recorded, if this copy is read
        end = None
    return -1 if end is None else end.offset


def partitions_count(image: ClusterImage | None, topic: str, highest: int) -> int | None:
    """How many partitions the topic has; None if the image does not tell, or cannot be right."""
    if image is None or image.problems or topic not in image.topics:
        return None
    numbers = image.topics[topic].partitions.keys()
    is_likely = highest in numbers and numbers == set(range(len(numbers)))
    return len(numbers) if is_likely else None


def read_batches(
    source: Partition, take: Callable[[Segment, ScannedBatch], None], problems: list[Problem]
) -> None:
    """Hand over the batches of a partition from its log start on, but for damaged ones.

    What cannot be read, and what `take` raises of a batch, joins `problems`.
    """
    reading = source.read(source.local_log_start_offset or 0)
    for _, segment, batch in reading:
        if batch.crc_ok is False:
            continue  # there is a verdict about the first ones
        try:
            take(segment, batch)
        except FormatError as exc:
            add_problem(problems, exc if exc.path else exc.located(segment.path, batch.pos))
        except AccessError as exc:
            add_problem(problems, exc)
    for each in reading_problems(source, reading):
        add_problem(problems, each)


def add_problem(problems: list[Problem], problem: Problem) -> None:
    """Keep a problem, unless there are very many."""
    if len(problems) < MAX_PROBLEMS_COUNT:
        problems.append(problem.without_frames())


def reading_problems(source: Partition, reading: RangeRead) -> Iterator[Problem]:
    """Tell what could not be read of a partition that was read to its end."""
    for files, verdict in reading.verdicts:
        if verdict.errno:
            yield AccessError(OSError(verdict.errno, verdict.reason), files.log.path)
        elif verdict.check_id != "SEG-6":  # a torn or preallocated tail is no loss
            reason, check_id = verdict.reason or verdict.kind, verdict.check_id
            damage = CorruptError(reason, check_id=check_id, pos=verdict.start_pos)
            yield damage.located(files.log.path)
    yield from source.problems


# -- what transaction coordinators know, by the newest record of each id in `__transaction_state`
#
# A transactional.id belongs to one partition of that topic, by its hash; what its newest record
# says holds, a null value forgets the id. Older records only tell which producer ids it has had
# (TXN-7). Nothing can be said of an id whose partition was not given, or not read whole. A record
# in another partition than the id's own is not looked at, as no coordinator would.


class IdRecord(NamedTuple):
    """The newest record of a transactional.id; `state` is None if the id was forgotten."""

    transactional_id: str
    partition: int  # of `__transaction_state`
    offset: int
    state: TransactionState | None


class StatePartition(NamedTuple):
    """A partition of `__transaction_state` that was given.

    `leader_epoch` is that of its last leader as far as it is known, -1 if it is not.
    """

    partition: int
    leader_epoch: int
    is_whole: bool
    source: Partition


class CoordinatorLog:
    """The records of all coordinators that were given.

    Args:
        log_dirs: where to look, all of one cluster.
        image: its state; None if nothing tells how many partitions the topic has.

    Attributes:
        ids: the newest record of each transactional.id.
        partitions: those of `__transaction_state` that were read.
        partitions_count: how many there are; None: unknown.
        lagging: partitions of which not all replicas were given: others may have newer records.
        misplaced_count: records of ids that do not belong to their partition.
        problems: what could not be read or parsed.
    """

    def __init__(
        self,
        log_dirs: Iterable[LogDir],
        image: ClusterImage | None = None,
        on_record: Callable[[IdRecord], None] | None = None,
    ) -> None:
        """`on_record` is told of each record, not of the newest only."""
        self._on_record = on_record
        self.ids: dict[str, IdRecord] = {}
        self.partitions: dict[int, StatePartition] = {}
        self.lagging: list[int] = []
        self.misplaced_count = 0
        self.problems: list[Problem] = []
        self._owners: dict[int, str] = {}  # producer id -> the last one that had it
        copies, problems = find_copies(log_dirs, TRANSACTION_STATE_TOPIC)
        self.problems += problems
        highest = max(copies, default=-1)
        self.partitions_count = partitions_count(image, TRANSACTION_STATE_TOPIC, highest)
        for number in sorted(copies):
            self._read_furthest(number, copies[number], image)
            replicas = image and image.replication_factor(TRANSACTION_STATE_TOPIC, number)
            if replicas and len(copies[number]) < replicas:
                self.lagging.append(number)

    # --- reading

    def _read_furthest(
        self, number: int, copies: list[Partition], image: ClusterImage | None
    ) -> None:
        for source in furthest(copies):
            before = len(self.problems)
            self._read(number, source)
            is_there = bool(source.segments) or source.was_never_written
            is_whole = is_there and len(self.problems) == before
            epochs = [each.epoch for each in source.leader_epochs() or ()]
            known = None if image is None else image.partition(TRANSACTION_STATE_TOPIC, number)
            if known is not None:
                epochs.append(known.leader_epoch)
            epoch = max(epochs, default=NO_LEADER_EPOCH)
            self.partitions[number] = StatePartition(
                partition=number, leader_epoch=epoch, is_whole=is_whole, source=source
            )
            if is_whole:
                break

    def _read(self, number: int, source: Partition) -> None:
        def take(segment: Segment, batch: ScannedBatch) -> None:
            if not batch.header.is_control:
                self._take_batch(number, segment, batch)

        read_batches(source, take, self.problems)

    def _take_batch(self, number: int, segment: Segment, batch: ScannedBatch) -> None:
        for record in segment.records(batch):
            try:
                transactional_id, state = parse_record(record.key, record.value)
                if state is not None:
                    _ = state.status  # COO-4
            except FormatError as exc:
                exc.pos = 0  # a place in the key or the value is no place in the file
                add_problem(self.problems, exc.located(segment.path, batch.pos))
                continue
            newest = self.ids.get(transactional_id)
            is_home = newest is not None and newest.partition == number
            if not is_home and not self._belongs(transactional_id, number):
                self.misplaced_count += 1
                continue
            newest = self.ids[transactional_id] = IdRecord(
                transactional_id=transactional_id,
                partition=number,
                offset=record.offset,
                state=state,
            )
            if self._on_record is not None:
                self._on_record(newest)
            if state is not None:
                known = (state.previous_producer_id, state.next_producer_id, state.producer_id)
                self._owners.update((each, transactional_id) for each in known if each >= 0)

    def _belongs(self, transactional_id: str, number: int) -> bool:
        count = self.partitions_count
        return count is None or coordinator_partition(transactional_id, count) == number

    # --- what is known

    @property
    def producer_ids(self) -> Collection[int]:
        """All that a transactional.id has, or had."""
        return self._owners.keys()

    @property
    def is_complete(self) -> bool:
        """All partitions, by a known number of them, were read whole."""
        count = self.partitions_count
        return count is not None and all(self.has_whole(each) for each in range(count))

    @property
    def has_all(self) -> bool:
        """Whether no partition that the topic is known to have is missing, or not whole.

        Where nothing tells that there is such a topic, nothing is missing.
        """
        count = self.partitions_count
        known = max(self.partitions, default=-1) + 1 if count is None else count
        return all(self.has_whole(each) for each in range(known))

    def has_all_of(self, transactional_id: str) -> bool:
        """The same of the one partition that an id belongs to; of all where that is unknown."""
        home = self.partition_of(transactional_id)
        return self.has_all if home is None else self.has_whole(home)

    def has_whole(self, partition: int) -> bool:
        """Whether a partition of `__transaction_state` was given and read whole."""
        found = self.partitions.get(partition)
        return found is not None and found.is_whole

    def owner_of(self, producer_id: int) -> IdRecord | None:
        """Return the newest record of the id that has, or had, a producer id; None: no record."""
        owner = self._owners.get(producer_id)
        return None if owner is None else self.ids[owner]

    def knows(self, producer_id: int) -> bool:
        """Whether what `owner_of` says is all that the coordinators know of a producer id."""
        owner = self.owner_of(producer_id)
        return self.is_complete if owner is None else self.has_whole(owner.partition)

    def partition_of(self, transactional_id: str) -> int | None:
        """Return the partition of `__transaction_state` for an id; None: unknown."""
        found = self.ids.get(transactional_id)
        if found is not None:
            return found.partition
        count = self.partitions_count
        return None if count is None else coordinator_partition(transactional_id, count)
