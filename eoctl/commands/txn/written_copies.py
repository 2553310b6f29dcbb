"""Replicas of one partition that are opened and receive the same appends, and the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.clients.partitions.open_partition import open_partition
from eoctl.clients.partitions.target import TargetOptions, resolve_target
from eoctl.command_line import Lacking, LackingError
from eoctl.replica_paths import require_one_topic, select_replicas
from recovery.changes.plans.plan import absolute_path, source_of
from recovery.transactions.abort import PlannedAppends, with_recovery
from storage.dirs.partition import Partition
from storage.errors import RefusedError, pasted
from storage.file_names import CLEAN_SHUTDOWN_NAME, COORDINATOR_TOPICS, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from eoctl.clients.partitions.open_partition import OpenPartition, WriteOptions
    from eoctl.clients.partitions.target import WriteTarget
    from eoctl.clock import Now
    from recovery.changes.plans.plan import PlanSource, Step
    from storage.producers.producer_state import Origin
    from storage.writing.writer import Appended

    Place = tuple[str, int]


class WrittenCopy(NamedTuple):
    """A directory of a partition, and its appends."""

    path: str
    partition: Partition
    opened: OpenPartition
    appends: PlannedAppends


class CopiesWriter:
    """A writer of the same batches to all replicas of a partition.

    Attributes:
        copies: the replicas of the partition.
        marker_offsets: by producer id, in the first replica.
    """

    def __init__(self, copies: Sequence[WrittenCopy]) -> None:
        self.copies = copies
        self.marker_offsets: dict[int, int] = {}

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the first replica. All replicas are compared at the end."""
        return self.copies[0].appends.writer.leader_epoch

    def append(self, batch: bytes, *, origin: Origin) -> Appended:
        """Append a batch to each replica, and return its place in the first replica."""
        first, *_ = [each.appends.writer.append(batch, origin=origin) for each in self.copies]
        return first

    def end_transaction(self, producer_id: int, producer_epoch: int, **marker: Any) -> Appended:
        """Append an end marker to each replica, and return its place in the first replica."""
        first, *_ = [
            each.appends.writer.end_transaction(producer_id, producer_epoch, **marker)
            for each in self.copies
        ]
        self.marker_offsets[producer_id] = first.base_offset
        return first

    def roll_next(self) -> None:
        """Write the next batches to a new segment."""
        for each in self.copies:
            each.appends.writer.roll_next()

    def require_alike(self) -> None:
        """Check that all replicas get the same batches at the same offsets.

        Raises:
            RefusedError: they have diverged, or a replica lags behind.
        """
        first, *others = self.copies
        for each in others:
            if each.appends.logs != first.appends.logs:
                paths = " ".join(pasted(copy.path) for copy in self.copies)
                raise RefusedError(
                    f"{each.path}: ends differently: what is written would not be the same as in"
                    f" {first.path}",
                    next_step=f"eoctl replicas compare {paths}   # then eoctl replicas rejoin",
                )


def _let_pass(_: WriteTarget) -> None:
    pass


def open_copies(
    paths: Sequence[str],
    target_of: Callable[[Partition], TargetOptions],
    write: WriteOptions,
    moment: Now,
    check: Callable[[WriteTarget], None] = _let_pass,
) -> list[WrittenCopy]:
    """Find the end of each replica, as recovered if it was not stopped cleanly. Reads only.

    Args:
        paths: the directories.
        target_of: returns the known facts of a replica.
        write: the write options.
        moment: the clock.
        check: checks each replica before it is opened.

    Raises:
        RefusedError, UsageError, AccessError: a replica is not writable, or must not be written to.
    """
    partitions = [Partition.of(each) for each in select_replicas(paths)]
    require_one_topic(partitions)
    copies = []
    for path, partition in zip(paths, partitions, strict=True):
        target = resolve_target(path, target_of(partition))
        check(target)
        opened = open_partition(target, write, moment, None)
        appends = PlannedAppends(
            target.path,
            opened.tail,
            opened.config,
            leader_epoch=opened.writer.leader_epoch,
            now_ms=moment.ms,
            expiration_ms=write.expiration_ms,
        )
        copies.append(WrittenCopy(path=path, partition=partition, opened=opened, appends=appends))
    return copies


def recovered(
    copy: WrittenCopy, appended: Iterable[Step], later: Iterable[Step] = ()
) -> list[Step]:
    """Put the recovery of a replica before its appends, so that a file is changed once.

    The clean-shutdown markers are left out, because every plan adds them itself.

    Args:
        copy: the opened replica.
        appended: the next steps.
        later: steps that come after others, and change the same files.
    """
    recovery = copy.opened.recovery
    touched = {each.path for each in later}
    before = (
        each
        for each in (() if recovery is None else recovery.steps)
        if each.path not in touched and not each.path.endswith(f"/{CLEAN_SHUTDOWN_NAME}")
    )
    return [*with_recovery(before, list(appended))]


def sources_of(copies: Iterable[WrittenCopy], steps: Iterable[Step]) -> dict[str, PlanSource]:
    """Return the `.log` files that the steps depend on and do not change."""
    touched = {each.path for each in steps}
    found: dict[str, PlanSource] = {}
    for each in copies:
        if each.opened.recovery is not None:
            found |= {source.path: source for source in each.opened.recovery.sources}
        if each.partition.segments:
            path = absolute_path(each.partition.segments[-1].log.path)
            if path not in touched and path not in found:
                found[path] = source_of(path)
    return {path: each for path, each in found.items() if path not in touched}


def notes_of(copies: Iterable[WrittenCopy]) -> list[str]:
    """Return notes on the opened replicas."""
    return [note for each in copies for note in (*each.opened.target.notes, *each.opened.notes)]


# -- all replicas of the partitions of a commit: opened, receiving the same appends, as steps.
#
# The order of the steps makes a crash harmless: PrepareCommit in every replica of
# `__transaction_state`, then the markers, then CompleteCommit. After a stop in between, a broker
# that starts there completes the transaction because of PrepareCommit.


REASON = "a segment with what the coordinator writes"


class CopiesOptions(NamedTuple):
    """The command line options, with `metadata_dirs` by log dir."""

    metadata_dirs: Mapping[str, str | None]
    single_copy: bool
    write: WriteOptions
    moment: Now


class PartitionCopies:
    """The partitions of a cluster, as far as its log dirs are given.

    Args:
        paths: the directories, by topic and number.
        options: the options for opening them.
    """

    def __init__(self, paths: Mapping[Place, Sequence[str]], options: CopiesOptions) -> None:
        self._paths = paths
        self._options = options
        self._opened: dict[Place, CopiesWriter] = {}

    def __iter__(self) -> Iterator[CopiesWriter]:
        """Iterate over the open partitions."""
        return iter(self._opened.values())

    def is_here(self, topic: str, partition: int) -> bool:
        """Return whether a replica of the partition was given."""
        return (topic, partition) in self._paths

    def writer(self, topic: str, partition: int) -> CopiesWriter:
        """Return the writer to all replicas, see `storage.writing.coordinator.Partitions`.

        Raises:
            RefusedError, UsageError, AccessError: a replica is not writable or must not be written
                to, replicas are not given, or data is missing.
        """
        place = topic, partition
        if place not in self._opened:
            self._opened[place] = CopiesWriter(self._open(place))
        return self._opened[place]

    def _open(self, place: Place) -> list[WrittenCopy]:
        paths, options = self._paths[place], self._options

        def target_of(partition: Partition) -> TargetOptions:
            metadata_dir = None
            if partition.log_dir is not None:
                metadata_dir = options.metadata_dirs.get(partition.log_dir.path)
            return TargetOptions(
                metadata_dir=metadata_dir,
                single_copy=True,  # the number of replicas is checked below
                may_be_internal=place[0] in COORDINATOR_TOPICS,
            )

        def check(target: WriteTarget) -> None:
            if not options.single_copy:
                _require_all(target.path, target.replication_factor, len(paths))

        copies = open_copies(paths, target_of, options.write, options.moment, check)
        for each in copies:
            _require_all_there(each.path, each.opened)
        return copies

    # -- steps

    def roll_state(self) -> None:
        """Write the coordinators' next records after the markers, in a new segment."""
        for (topic, _), writer in self._opened.items():
            if topic == TRANSACTION_STATE_TOPIC:
                writer.roll_next()

    def steps(self) -> list[Step]:
        """Close all partitions, and return the steps in a safe order."""
        decisions: list[Step] = []
        markers: list[Step] = []
        ends: list[Step] = []
        for (topic, _), writer in self._opened.items():
            is_state = topic == TRANSACTION_STATE_TOPIC
            for each in writer.copies:
                *firsts, last = each.appends.steps(REASON)  # a list for each new segment
                before = recovered(each, (step for first in firsts for step in first), last)
                (decisions if is_state else markers).extend(before)
                (ends if is_state else markers).extend(last)
        return [*decisions, *markers, *ends]

    def sources(self, steps: Sequence[Step]) -> dict[str, PlanSource]:
        """Return the `.log` files that the steps depend on and do not change."""
        return sources_of((each for writer in self for each in writer.copies), steps)

    @property
    def notes(self) -> list[str]:
        """Notes on the opened replicas."""
        return notes_of(each for writer in self for each in writer.copies)


def _require_all(path: str, factor: int | None, given_count: int) -> None:
    """Refuse missing replicas, since Kafka never detects the resulting divergence (FIX-9).

    Raises:
        RefusedError: some are not given, or one is given and their number is unknown.
    """
    if factor == given_count or (factor is None and given_count > 1):
        return
    why = f"has {factor} replicas, {given_count} given"
    first = "name the log dirs of all brokers"
    if factor is None:
        why = "its replication factor is unknown: other replicas would lack what is written here"
        first += ", and --metadata-dir DIR where none of them has the cluster's metadata"
    meaning = "no other replica will be kept"
    lacking = Lacking(why=why, options=("--single-copy",), meaning=meaning, first=first)
    raise LackingError(path, lacking)


def _require_all_there(path: str, opened: OpenPartition) -> None:
    """Refuse a log that lacks data of the transaction, or a record of its end.

    Raises:
        RefusedError: it lacks data.
    """
    partition, recovery = opened.target.partition, opened.recovery
    cut_bytes = 0 if recovery is None else recovery.price["cut_bytes"]
    if cut_bytes:
        raise RefusedError(
            f"{path}: {cut_bytes} bytes at its end are not whole, and may be of the transaction",
            next_step=f"eoctl repair {pasted(path)} --strategy as-broker   # shows which records"
            " are removed with them; run this again after the repair",
        )
    if partition is None:
        return
    missing = partition.not_given(end_offset=opened.tail.end_offset)
    if missing:
        raise RefusedError(
            f"{path}: {missing[0]}: data of the transaction may have been there",
            next_step="put the newest copy of it in place first",
        )
