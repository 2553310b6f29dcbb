"""All copies of the partitions that a commit is written to: opened, appended to alike, as steps.

The order of the steps is what makes a crash harmless: PrepareCommit in every copy of
`__transaction_state`, then the markers, then CompleteCommit. Stopped in between, a broker that
starts there is told by the first what it has to finish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.call import Lacking, LackingError
from eoctl.clients.partitions.open_partition import WriteOptions, open_partition
from eoctl.clients.partitions.target import TargetOptions, resolve_target
from eoctl.replica_paths import require_one_topic, select_replicas
from recovery.changes.plans.plan import absolute_path, source_of
from recovery.transactions.planned_append import PlannedAppends, with_recovery
from storage.dirs.partition import Partition
from storage.errors import RefusedError
from storage.file_names import CLEAN_SHUTDOWN_NAME, COORDINATOR_TOPICS, TRANSACTION_STATE_TOPIC
from storage.shell_words import pasted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eoctl.clients.partitions.open_partition import OpenPartition
    from eoctl.clock import Now
    from recovery.changes.plans.plan import PlanSource, Step
    from storage.producers.producer_state import Origin
    from storage.writing.writer import Appended

    Place = tuple[str, int]

REASON = "a segment with what the coordinator writes"


class CopiesOptions(NamedTuple):
    """What the command line says; `metadata_dirs` by log dir."""

    metadata_dirs: Mapping[str, str | None]
    single_copy: bool
    write: WriteOptions
    moment: Now


class WrittenCopy(NamedTuple):
    """One directory of a partition, and what is appended to it."""

    path: str
    partition: Partition
    opened: OpenPartition
    appends: PlannedAppends


class CopiesWriter:
    """Writes the same to all copies of a partition.

    Attributes:
        copies: of the partition.
        marker_offsets: by producer id, in the first copy.
    """

    def __init__(self, copies: Sequence[WrittenCopy]) -> None:
        self.copies = copies
        self.marker_offsets: dict[int, int] = {}

    @property
    def leader_epoch(self) -> int:
        """Of the first copy: they are compared when all is written."""
        return self.copies[0].appends.writer.leader_epoch

    def append(self, batch: bytes, *, origin: Origin) -> Appended:
        """Append a batch to each; returns where the first one has it."""
        first, *_ = [each.appends.writer.append(batch, origin=origin) for each in self.copies]
        return first

    def end_transaction(self, producer_id: int, producer_epoch: int, **marker: Any) -> Appended:
        """Append an end marker to each; returns where the first one has it."""
        first, *_ = [
            each.appends.writer.end_transaction(producer_id, producer_epoch, **marker)
            for each in self.copies
        ]
        self.marker_offsets[producer_id] = first.base_offset
        return first

    def roll_next(self) -> None:
        """Have what comes next go into another segment."""
        for each in self.copies:
            each.appends.writer.roll_next()

    def require_alike(self) -> None:
        """All copies get the same batches at the same offsets.

        Raises:
            RefusedError: they have diverged, or one lags behind.
        """
        first, *others = self.copies
        for each in others:
            if each.appends.logs != first.appends.logs:
                paths = " ".join(pasted(copy.path) for copy in self.copies)
                raise RefusedError(
                    f"{each.path}: ends differently: what is written would not be the same as in"
                    f" {first.path}",
                    next_step=f"eoctl replicas compare {paths}, then eoctl replicas rejoin",
                )


class PartitionCopies:
    """The partitions of a cluster, as far as log dirs of it are given.

    Args:
        paths: of the directories, by topic and number.
        options: how they are opened.
    """

    def __init__(self, paths: Mapping[Place, Sequence[str]], options: CopiesOptions) -> None:
        self._paths = paths
        self._options = options
        self._opened: dict[Place, CopiesWriter] = {}

    def __iter__(self) -> Iterator[CopiesWriter]:
        """Those that are open."""
        return iter(self._opened.values())

    def is_here(self, topic: str, partition: int) -> bool:
        """Whether a copy of it was given."""
        return (topic, partition) in self._paths

    def writer(self, topic: str, partition: int) -> CopiesWriter:
        """Return what writes to all copies; see `storage.writing.coordinator.Partitions`.

        Raises:
            RefusedError, UsageError, AccessError: one must not be written to, or cannot be; not all
                copies are given; or something of what was there is missing.
        """
        place = topic, partition
        if place not in self._opened:
            paths = self._paths[place]
            partitions = [Partition.of(each) for each in select_replicas(paths)]
            require_one_topic(partitions)
            copies = [
                self._open(path, found) for path, found in zip(paths, partitions, strict=True)
            ]
            self._opened[place] = CopiesWriter(copies)
        return self._opened[place]

    def _open(self, path: str, partition: Partition) -> WrittenCopy:
        name, options = partition.directory.name, self._options
        count = len(self._paths[name.topic, name.partition])
        metadata_dir = None
        if partition.log_dir is not None:
            metadata_dir = options.metadata_dirs.get(partition.log_dir.path)
        target = resolve_target(
            path,
            TargetOptions(
                metadata_dir=metadata_dir,
                single_copy=True,  # how many there have to be is told below
                may_be_internal=name.topic in COORDINATOR_TOPICS,
            ),
        )
        if not options.single_copy:
            _require_all(path, target.replication_factor, count)
        opened = open_partition(target, options.write, options.moment, None)
        _require_all_there(path, opened)
        appends = PlannedAppends(
            target.path,
            opened.tail,
            opened.config,
            leader_epoch=opened.writer.leader_epoch,
            now_ms=options.moment.ms,
            expiration_ms=options.write.expiration_ms,
        )
        return WrittenCopy(path=path, partition=partition, opened=opened, appends=appends)

    # -- what comes of it

    def roll_state(self) -> None:
        """What the coordinators write from now on comes behind the markers."""
        for (topic, _), writer in self._opened.items():
            if topic == TRANSACTION_STATE_TOPIC:
                writer.roll_next()

    def steps(self) -> list[Step]:
        """Close all of them, and tell what is to be done, in the order in which it is safe."""
        decisions: list[Step] = []
        markers: list[Step] = []
        ends: list[Step] = []
        for (topic, _), writer in self._opened.items():
            is_state = topic == TRANSACTION_STATE_TOPIC
            for each in writer.copies:
                *firsts, last = each.appends.steps(REASON)  # a list for each new segment
                (decisions if is_state else markers).extend(_recovered(each, firsts, last))
                (ends if is_state else markers).extend(last)
        return [*decisions, *markers, *ends]

    def sources(self, steps: Sequence[Step]) -> dict[str, PlanSource]:
        """The `.log` files that the steps depend on and do not touch."""
        touched = {each.path for each in steps}
        found: dict[str, PlanSource] = {}
        for writer in self:
            for each in writer.copies:
                recovery = each.opened.recovery
                known = () if recovery is None else recovery.sources
                found |= {source.path: source for source in known}
                if each.partition.segments:
                    path = absolute_path(each.partition.segments[-1].log.path)
                    if path not in found:
                        found[path] = source_of(path)
        return {path: each for path, each in found.items() if path not in touched}

    @property
    def notes(self) -> list[str]:
        """What a person should know of what was opened."""
        return [
            note
            for writer in self
            for each in writer.copies
            for note in (*each.opened.target.notes, *each.opened.notes)
        ]


def _recovered(
    copy: WrittenCopy, firsts: Iterable[Sequence[Step]], last: Sequence[Step]
) -> list[Step]:
    """The recovery of a copy, and all but its last new segment; a file is changed once.

    The clean-shutdown markers are left out, which every plan adds itself.
    """
    recovery = copy.opened.recovery
    steps = () if recovery is None else recovery.steps
    touched = {each.path for each in last}
    before = (
        each
        for each in steps
        if each.path not in touched and not each.path.endswith(f"/{CLEAN_SHUTDOWN_NAME}")
    )
    return [*with_recovery(before, [step for first in firsts for step in first])]


def _require_all(path: str, factor: int | None, given_count: int) -> None:
    """Replicas that diverge below the high watermark are never found by Kafka (FIX-9).

    Raises:
        RefusedError: some are not given; or one is, and how many there are is unknown.
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
    """Refuse a log that lacks something: data of the transaction, or a record of its end.

    Raises:
        RefusedError: it does.
    """
    partition, recovery = opened.target.partition, opened.recovery
    cut_bytes = 0 if recovery is None else recovery.price["cut_bytes"]
    if cut_bytes:
        raise RefusedError(
            f"{path}: {cut_bytes} bytes at its end are not whole, and may be of the transaction",
            next_step=f"eoctl repair {pasted(path)} --strategy as-broker tells what goes with"
            " them; and again, when it is repaired",
        )
    if partition is None:
        return
    missing = partition.acknowledged.not_given(opened.tail.end_offset)
    if missing:
        raise RefusedError(
            f"{path}: {missing[0]}: data of the transaction may have been there",
            next_step="put the newest copy of it in place first",
        )
