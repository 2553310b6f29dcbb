"""Internal topics in log dirs, and transaction coordinators' state by `__transaction_state`."""

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


# -- the partitions of an internal topic in log dirs: the copy of each to read, and their number.
#
# If several nodes have copies of a partition, the copy that reaches furthest applies. Data that it
# lacks was never there, or is not part of the log any more.


MAX_PROBLEMS_COUNT = 100


def find_copies(
    log_dirs: Iterable[LogDir], topic: str
) -> tuple[dict[int, list[Partition]], list[Problem]]:
    """Return the live directories of a topic by partition, and errors of unreadable directories."""
    copies: dict[int, list[Partition]] = {}
    problems: list[Problem] = []
    listed = ((each, log_dir) for log_dir in log_dirs for each in log_dir.partitions)
    for directory, around in listed:
        if directory.name.topic == topic and directory.name.state is DirState.LIVE:
            of_number = copies.setdefault(directory.name.partition, [])
            try:
                of_number.append(Partition(directory, around))
            except AccessError as exc:  # this copy may reach furthest
                problems.append(exc.without_frames())
    return copies, problems


def furthest(copies: list[Partition]) -> list[Partition]:
    """Return the copies of one partition that reach furthest, by the order of an election."""
    if len(copies) < 2:
        return copies
    found = [reach(each.leader_epochs(), _end_offset(each)) for each in copies]
    return [each for each, own in zip(copies, found, strict=True) if own == max(found)]


def reach(epochs: Sequence[LeaderEpochEntry] | None, end_offset: int) -> tuple[int, int]:
    """Return the sort key of copies: the last leader epoch first, then the log end offset.

    After an unclean election, the longer log may be the former leader's, whose end is lost.
    """
    return (epochs[-1].epoch if epochs else -1, end_offset)


def _end_offset(partition: Partition) -> int:
    try:
        end = partition.log_end()
    except AccessError:  # raised and recorded again if this copy is read
        end = None
    return -1 if end is None else end.offset


def partitions_count(image: ClusterImage | None, topic: str, highest: int) -> int | None:
    """Return the number of partitions of a topic, or None if the image lacks it or is wrong."""
    if image is None or image.problems or topic not in image.topics:
        return None
    numbers = image.topics[topic].partitions.keys()
    is_likely = highest in numbers and numbers == set(range(len(numbers)))
    return len(numbers) if is_likely else None


def read_batches(
    source: Partition, take: Callable[[Segment, ScannedBatch], None], problems: list[Problem]
) -> None:
    """Pass on the undamaged batches of a partition from its log start offset.

    Unreadable data, and errors of `take` for a batch, are added to `problems`.
    """
    reading = source.read(source.local_log_start_offset or 0)
    for _, segment, batch in reading:
        if batch.crc_ok is False:
            continue  # it has a verdict
        try:
            take(segment, batch)
        except FormatError as exc:
            add_problem(problems, exc if exc.path else exc.located(segment.path, batch.pos))
        except AccessError as exc:
            add_problem(problems, exc)
    for each in reading_problems(source, reading):
        add_problem(problems, each)


def add_problem(problems: list[Problem], problem: Problem) -> None:
    """Add a problem, unless there are MAX_PROBLEMS_COUNT already."""
    if len(problems) < MAX_PROBLEMS_COUNT:
        problems.append(problem.without_frames())


def reading_problems(source: Partition, reading: RangeRead) -> Iterator[Problem]:
    """Yield the errors of a partition that was read to its end."""
    for files, verdict in reading.verdicts:
        if verdict.errno:
            yield AccessError(OSError(verdict.errno, verdict.reason), files.log.path)
        elif verdict.check_id != "SEG-6":  # a torn or preallocated tail loses nothing
            reason, check_id = verdict.reason or verdict.kind, verdict.check_id
            damage = CorruptError(reason, check_id=check_id, pos=verdict.start_pos)
            yield damage.located(files.log.path)
    yield from source.problems


# -- the state of transaction coordinators, by the newest record of each id.
#
# A transactional.id belongs to one partition of `__transaction_state`, by its hash. Its newest
# record holds, and a null value removes the id. Older records only show earlier producer ids
# (TXN-7). If an id's partition was not given, or not read completely, its state is unknown. Like a
# coordinator, this module skips records in another partition than the id's own.


class IdRecord(NamedTuple):
    """The newest record of a transactional.id. `state` is None if the id was removed."""

    transactional_id: str
    partition: int  # of `__transaction_state`
    offset: int
    state: TransactionState | None


class StatePartition(NamedTuple):
    """A given partition of `__transaction_state`.

    `leader_epoch` is its last leader's epoch, or -1 if it is unknown.
    """

    partition: int
    leader_epoch: int
    is_whole: bool
    source: Partition


class CoordinatorLog:
    """The records of all given coordinators.

    Args:
        log_dirs: log dirs of one cluster.
        image: its state. None if the number of partitions of the topic is unknown.

    Attributes:
        ids: the newest record of each transactional.id.
        partitions: the partitions of `__transaction_state` that were read.
        partitions_count: their number. None: unknown.
        lagging: partitions with missing replicas, which may have newer records.
        misplaced_count: records of ids that do not belong to their partition.
        problems: errors of reading or parsing.
    """

    def __init__(
        self,
        log_dirs: Iterable[LogDir],
        image: ClusterImage | None = None,
        on_record: Callable[[IdRecord], None] | None = None,
    ) -> None:
        """Read the log dirs. `on_record` is called for each record, not only for the newest."""
        self._on_record = on_record
        self.ids: dict[str, IdRecord] = {}
        self.partitions: dict[int, StatePartition] = {}
        self.lagging: list[int] = []
        self.misplaced_count = 0
        self.problems: list[Problem] = []
        self._owners: dict[int, str] = {}  # producer id -> its last transactional.id
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
                exc.pos = 0  # a position in the key or the value is not a position in the file
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

    # --- the state

    @property
    def producer_ids(self) -> Collection[int]:
        """All producer ids that a transactional.id has, or had."""
        return self._owners.keys()

    @property
    def is_complete(self) -> bool:
        """Return whether all partitions, of a known number, were read completely."""
        count = self.partitions_count
        return count is not None and all(self.has_whole(each) for each in range(count))

    @property
    def has_all(self) -> bool:
        """Return whether all known partitions of the topic were read completely.

        If the topic is unknown, nothing is missing.
        """
        count = self.partitions_count
        known = max(self.partitions, default=-1) + 1 if count is None else count
        return all(self.has_whole(each) for each in range(known))

    def has_all_of(self, transactional_id: str) -> bool:
        """Return `has_all` for the one partition of an id, or for all if that is unknown."""
        home = self.partition_of(transactional_id)
        return self.has_all if home is None else self.has_whole(home)

    def has_whole(self, partition: int) -> bool:
        """Return whether a partition of `__transaction_state` was given and read completely."""
        found = self.partitions.get(partition)
        return found is not None and found.is_whole

    def owner_of(self, producer_id: int) -> IdRecord | None:
        """Return the newest record of the id that has, or had, a producer id, or None."""
        owner = self._owners.get(producer_id)
        return None if owner is None else self.ids[owner]

    def knows(self, producer_id: int) -> bool:
        """Return whether `owner_of` has all the coordinators' knowledge about a producer id."""
        owner = self.owner_of(producer_id)
        return self.is_complete if owner is None else self.has_whole(owner.partition)

    def partition_of(self, transactional_id: str) -> int | None:
        """Return the partition of `__transaction_state` for an id, or None if it is unknown."""
        found = self.ids.get(transactional_id)
        if found is not None:
            return found.partition
        count = self.partitions_count
        return None if count is None else coordinator_partition(transactional_id, count)
