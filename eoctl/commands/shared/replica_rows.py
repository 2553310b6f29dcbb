"""A comparison of several replicas of one partition: as rows, and with the metadata."""

from __future__ import annotations

from itertools import combinations, permutations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from eoctl.clock import resolve_now
from eoctl.commands.shared.cluster_rows import ClusterNotes, partition_state_row
from eoctl.output import PLACE, Columns
from eoctl.progress import Progress, log_bytes
from eoctl.replica_paths import (
    moment_of,
    node_id_of,
    note_of_use,
    require_one_topic,
    select_replicas,
)
from recovery.cluster.clusters import find_metadata, newest_image
from recovery.replay.snapshots import Clock
from recovery.replicas.compare import (
    Cost,
    Likeness,
    acknowledged_end_offset,
    compare_replicas,
    estimate_tail,
    read_replica,
    recommend,
    standing_of,
)
from recovery.replicas.rejoin import require_follow_offset
from storage.counts import agreeing, counted
from storage.dirs.acknowledged_offsets import NOT_KNOWN, in_cluster
from storage.dirs.cluster_image import load_bootstrap_image
from storage.dirs.discovery import Selected, discover
from storage.dirs.partition import Partition
from storage.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_SKIPPED,
    AccessError,
    FormatError,
    RefusedError,
    UsageError,
)
from storage.file_names import METADATA_TOPIC, DirState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eoctl.clock import Now
    from eoctl.commands.shared.cluster_rows import PartitionStateRow
    from recovery.replicas.compare import Comparison, ReplicaLog, Tail
    from storage.dirs.acknowledged_offsets import InCluster
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir
    from storage.file_names import TopicPartition


class ComparedCluster:
    """The newest metadata among log dirs of several brokers, or in `metadata_dir`.

    Attributes:
        is_short: not all of it could be read.

    Raises:
        UsageError: `metadata_dir` has no metadata, or another cluster's.
        AccessError: these cannot be read.
    """

    def __init__(self, log_dirs: Iterable[LogDir | None], metadata_dir: str | None) -> None:
        known = {each.path: each for each in log_dirs if each is not None}
        self._notes: list[str] = []
        self._reported = ClusterNotes()
        self.is_short = False
        self._image = self._load([*known.values()], metadata_dir)
        if self._image is not None:
            self._reported.add_image(self._image, has_doubts=False)

    def _load(self, log_dirs: Sequence[LogDir], metadata_dir: str | None) -> ClusterImage | None:
        clusters = dict.fromkeys(
            each.meta.cluster_id
            for each in log_dirs
            if each.meta is not None and each.meta.cluster_id is not None
        )
        if metadata_dir is not None:
            given = find_metadata(metadata_dir)
            meta = None if given.log_dir is None else given.log_dir.meta
            other = None if meta is None else meta.cluster_id
            if other is not None and clusters and other not in clusters:
                ours = ", ".join(map(str, clusters))
                raise UsageError(f"{metadata_dir}: of cluster {other}, the copies are of {ours}")
            candidates = [given]
        elif len(clusters) > 1:
            reported = ", ".join(map(str, clusters))
            self._notes.append(
                f"of different clusters ({reported}). The leader and the ISR are left out"
            )
            return None
        else:
            candidates = [
                Selected(each, log_dir)
                for log_dir in log_dirs
                for each in log_dir.partitions
                if each.name.topic == METADATA_TOPIC and each.name.state is DirState.LIVE
            ]
        newest = newest_image(candidates)
        self._notes += newest.notes
        self.is_short = bool(newest.notes)
        if newest.image is not None or newest.notes:
            return newest.image
        begun = (load_bootstrap_image(each.path) for each in log_dirs if each.has_bootstrap)
        return next((each for each in begun if each is not None), None)

    def places(self, logs: Sequence[ReplicaLog]) -> list[InCluster]:
        """Return the state of each replica in the metadata."""
        found = []
        for log in logs:
            directory, log_dir = log.partition.directory, log.partition.log_dir
            placed = in_cluster(directory, log_dir, self._image)
            name = f"{directory.name.topic}-{directory.name.partition}"
            self._reported.add(name, log.path, placed)
            found.append(placed)
        return found

    def state(
        self, logs: Sequence[ReplicaLog], places: Sequence[InCluster]
    ) -> PartitionStateRow | None:
        """Return the metadata's state of the partition of these replicas, or None if unknown."""
        image, first = self._image, logs[0].partition
        if image is None or all(each.leader is None for each in places):
            return None
        marks = [each.high_watermark for each in logs if each.high_watermark is not None]
        return partition_state_row(
            image,
            image.topics[first.topic],
            first.partition,
            high_watermark=max(marks, default=None),
            log_end_offset=max(each.end_offset for each in logs),
        )

    def notes(self) -> list[str]:
        """Return sentences for the end: the source of the metadata, and doubts."""
        return [*self._notes, *self._reported.notes()]


# -- from the options of `replicas compare` to rows: several directories of one partition


class ComparedRows(Protocol):
    """The result of a comparison, in rows."""

    @property
    def notes(self) -> list[str]:
        """Sentences for people."""

    @property
    def replicas(self) -> list[ReplicaRow]:
        """The replicas."""

    @property
    def comparisons(self) -> list[ComparisonRow]:
        """The pairs of replicas."""

    @property
    def choices(self) -> list[ChoiceRow]:
        """The cost of each leader."""

    @property
    def transactions(self) -> list[LostTransactionRow]:
        """The transactions that would be truncated."""

    @property
    def states(self) -> list[PartitionStateRow]:
        """The metadata's state of the partitions, if known."""

    @property
    def recommendations(self) -> list[RecommendationRow]:
        """The replicas that should lead."""

    @property
    def status(self) -> int:
        """Exit status."""


class ReplicaRow(NamedTuple):
    """The row of a directory. Unknown values are None."""

    path: str
    broker: int | None
    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None
    leader_epochs: str | None
    sound_end_offset: int
    standing: str | None


class ComparisonRow(NamedTuple):
    """Two directories. If they are equal, `divergence_offset` is the end of the shorter log."""

    one: str
    other: str
    likeness: str
    divergence_offset: int | None
    epochs_end_offset: int | None
    compared_start_offset: int | None
    compared_end_offset: int | None


class ChoiceRow(NamedTuple):
    """The loss of a directory if another directory leads."""

    leader: str
    follower: str
    truncation_offset: int | None
    log_end_offset: int
    lost_records_count: int | None = None
    lost_acknowledged_offsets_count: int | None = None
    lost_transactions_count: int | None = None
    lost_offsets_count: int | None = None
    lost_acknowledged_records_count: int | None = None
    reopened_transactions_count: int | None = None
    lost_log_bytes: int | None = None
    acknowledged_end_offset: int | None = None


class LostTransactionRow(NamedTuple):
    """A transaction that a truncation removes from a directory, in part or as a whole."""

    follower: str
    truncation_offset: int
    producer_id: int
    first_offset: int
    marker_offset: int | None
    ended_by: str
    outcome: str


class RecommendationRow(NamedTuple):
    """The replica that should lead, and the total cost in the others. None: unknown."""

    topic: str
    partition: int
    leader: str
    broker: int | None
    leader_epoch: int
    end_offset: int
    lost_records_count: int | None
    lost_acknowledged_records_count: int | None
    lost_acknowledged_offsets_count: int | None
    is_sound: bool
    reason: str
    cheaper_leader: str | None
    cheaper_acknowledged_records_count: int | None


RECOMMENDATION_COLUMNS = Columns(RecommendationRow._fields, answers=(
    *PLACE, "leader", "leader_epoch", "end_offset", "lost_records_count",
    "lost_acknowledged_records_count",
))  # fmt: skip


class CompareRun:
    """A comparison of replicas, whose rows are complete after construction."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        now: str | None,
        expiration_ms: int | None,
        moment: Now | None = None,
        replicas: Sequence[Selected] | None = None,
        cluster: ComparedCluster | None = None,
    ) -> None:
        """Compare. A given `moment` is the clock, and is not reported again.

        `replicas` may replace the directories of the paths, whatever their nodes. The rows include
        the state in `cluster`, but the caller prints its notes.
        """
        selected = select_replicas(paths) if replicas is None else replicas
        clock = moment_of(selected, now) if moment is None else moment
        self._clock = Clock.at(clock.ms, expiration_ms)
        self.notes: list[str] = [clock.describe()] if moment is None else []
        partitions = [Partition.of(each) for each in selected]
        require_one_topic(partitions)
        self.notes += note_of_use(partitions)
        self._tails: dict[tuple[str, int], Tail] = {}
        with Progress("reading", lambda: log_bytes(selected)) as progress:
            self._logs = [read_replica(each, on_bytes=progress.advance) for each in partitions]
        for log in self._logs:
            self.notes += log.notes
        missing = list(_note_of_missing(self._logs))
        around = [str(problem) for each in selected for problem in each.problems]
        self.notes += (*around, *missing)
        self._is_short = bool(missing or around or (cluster is not None and cluster.is_short))
        places = [NOT_KNOWN] * len(self._logs)
        state = None
        if cluster is not None:
            places = cluster.places(self._logs)
            state = cluster.state(self._logs, places)
        self.states = [] if state is None else [state]
        nodes = {each.partition.path: node_id_of(each) for each in selected}
        self.replicas = [
            _replica_row(each, nodes[each.path], place.standing)
            for each, place in zip(self._logs, places, strict=True)
        ]
        found = [(*pair, compare_replicas(*pair)) for pair in combinations(self._logs, 2)]
        self.comparisons = [_comparison_row(*each) for each in found]
        self._likenesses = {each.likeness for _, _, each in found}
        for _, _, each in found:
            self.notes += each.notes
        self.choices = [self._choice(*pair) for pair in permutations(self._logs, 2)]
        self.recommendations = [self._recommended(nodes)]
        self.transactions = [row for key in self._tails for row in self._transactions(*key)]
        self.notes.append(
            "verified: headers and checksums of all batches; records were not decompressed"
        )
        self.notes = list(dict.fromkeys(self.notes))

    @property
    def status(self) -> int:
        """The exit status: 1 if some differ, 5 if something could not be compared."""
        if Likeness.DIVERGED in self._likenesses:
            return EXIT_FINDINGS
        is_whole = all(each.is_sound for each in self._logs)
        unknown = {Likeness.UNKNOWN, Likeness.DISJOINT} & self._likenesses
        return EXIT_OK if is_whole and not unknown and not self._is_short else EXIT_SKIPPED

    def _choice(self, leader: ReplicaLog, follower: ReplicaLog) -> ChoiceRow:
        others = [each for each in self._logs if each is not follower]
        acknowledged = acknowledged_end_offset(follower, others)
        try:
            offset = require_follow_offset(follower, leader)
            tail = estimate_tail(
                follower.partition, offset, acknowledged_offset=acknowledged, clock=self._clock
            )
        except RefusedError as error:
            self.notes.append(str(error))
            return ChoiceRow(
                leader=leader.path,
                follower=follower.path,
                truncation_offset=None,
                log_end_offset=follower.end_offset,
                acknowledged_end_offset=acknowledged,
            )
        self._tails.setdefault((follower.path, tail.start_offset), tail)
        self.notes += tail.notes
        counts = tail.transactions_count or {}
        lost = None
        if acknowledged is not None:
            lost = max(acknowledged - tail.start_offset, 0)
        return ChoiceRow(
            leader=leader.path,
            follower=follower.path,
            truncation_offset=tail.start_offset,
            log_end_offset=follower.end_offset,
            lost_records_count=tail.records_count,
            lost_acknowledged_offsets_count=lost,
            lost_transactions_count=None
            if tail.transactions_count is None
            else counts["removed"] + counts["shortened"],
            lost_offsets_count=follower.end_offset - tail.start_offset,
            lost_acknowledged_records_count=tail.acknowledged_records_count,
            reopened_transactions_count=counts.get("reopened"),
            lost_log_bytes=tail.log_bytes,
            acknowledged_end_offset=acknowledged,
        )

    def _recommended(self, nodes: Mapping[str, int | None]) -> RecommendationRow:
        found = recommend([standing_of(each, self._cost(each.path)) for each in self._logs])
        best, cheaper = found.leader, found.cheaper
        first = self._logs[0].partition
        return RecommendationRow(
            topic=first.topic,
            partition=first.partition,
            leader=best.path,
            broker=nodes[best.path],
            leader_epoch=best.leader_epoch,
            end_offset=best.end_offset,
            lost_records_count=best.cost.records_count,
            lost_acknowledged_records_count=best.cost.acknowledged_records_count,
            lost_acknowledged_offsets_count=best.cost.acknowledged_offsets_count,
            is_sound=best.is_sound,
            reason=found.reason,
            cheaper_leader=None if cheaper is None else cheaper.path,
            cheaper_acknowledged_records_count=None
            if cheaper is None
            else cheaper.cost.acknowledged_records_count,
        )

    def _cost(self, leader: str) -> Cost:
        """Return the loss of the others with a leader."""
        empty = {each.path for each in self._logs if each.end_offset <= each.start_offset}
        own = [
            each for each in self.choices if each.leader == leader and each.follower not in empty
        ]
        return Cost(
            records_count=_sum(each.lost_records_count for each in own),
            acknowledged_records_count=_sum(each.lost_acknowledged_records_count for each in own),
            acknowledged_offsets_count=_sum(each.lost_acknowledged_offsets_count for each in own),
        )

    def _transactions(self, path: str, offset: int) -> Iterator[LostTransactionRow]:
        for each in self._tails[path, offset].transactions or ():
            yield LostTransactionRow(
                follower=path,
                truncation_offset=offset,
                producer_id=each.producer_id,
                first_offset=each.first_offset,
                marker_offset=each.marker_offset,
                ended_by=each.kind,
                outcome=each.outcome,
            )


class CompareDirsRun:
    """A comparison of all partitions that several log dirs share, one after the other."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        now: str | None,
        expiration_ms: int | None,
        metadata_dir: str | None = None,
    ) -> None:
        copies: dict[TopicPartition, list[str]] = {}
        moment = resolve_now(now, paths)
        self.notes: list[str] = [moment.describe()]
        self._statuses: set[int] = set()
        log_dirs: list[LogDir] = []
        for path in paths:
            found = discover([path])
            log_dirs += found.log_dirs
            self._report(map(str, found.problems))
            for each in found.selected:
                name = each.partition.name
                if name.state is DirState.LIVE and name.topic != METADATA_TOPIC:
                    copies.setdefault(each.partition.topic_partition, []).append(
                        each.partition.path
                    )
        shared = {key: own for key, own in copies.items() if len(own) > 1}
        if not shared:
            raise UsageError(
                f"{', '.join(paths)}: no partition is in two of them",
                next_step="eoctl replicas compare LOG-DIR LOG-DIR..., of different brokers",
            )
        cluster = ComparedCluster(log_dirs, metadata_dir)
        self.replicas: list[ReplicaRow] = []
        self.states: list[PartitionStateRow] = []
        self.comparisons: list[ComparisonRow] = []
        self.choices: list[ChoiceRow] = []
        self.transactions: list[LostTransactionRow] = []
        self.recommendations: list[RecommendationRow] = []
        for key in sorted(shared):
            try:
                run = CompareRun(
                    shared[key],
                    now=now,
                    expiration_ms=expiration_ms,
                    moment=moment,
                    cluster=cluster,
                )
            except (AccessError, FormatError, RefusedError, UsageError) as exc:
                self._report([f"{key}: not compared: {exc}"])
                continue
            self.replicas += run.replicas
            self.comparisons += run.comparisons
            self.choices += run.choices
            self.states += run.states
            self.transactions += run.transactions
            self.recommendations += run.recommendations
            self.notes += run.notes
            self._statuses.add(run.status)
        if alone := len(copies) - len(shared):
            self.notes.append(
                f"{counted(alone, 'partition')} {agreeing(alone, 'is', 'are')} in one of the"
                " directories only"
            )
        self.notes += cluster.notes()
        self.notes = list(dict.fromkeys(self.notes))

    def _report(self, problems: Iterable[str]) -> None:
        reported = list(problems)
        self.notes += reported
        if reported:
            self._statuses.add(EXIT_SKIPPED)

    @property
    def status(self) -> int:
        """The exit status: 1 if some differ, 5 if something could not be compared."""
        graver = (EXIT_FINDINGS, EXIT_SKIPPED)
        return next((each for each in graver if each in self._statuses), EXIT_OK)


def compare(
    paths: Sequence[str],
    *,
    now: str | None,
    expiration_ms: int | None,
    metadata_dir: str | None = None,
) -> ComparedRows:
    """Compare directories of one partition, or all partitions that log dirs share.

    Raises:
        UsageError: they are neither, or share nothing, or `metadata_dir` has no metadata for them.
        RefusedError, AccessError: the one partition cannot be compared.
    """
    if len(paths) < 2:
        raise UsageError(
            f"{len(paths)} directories, two are needed",
            next_step="eoctl replicas compare DIR DIR...",
        )
    if all(Path(each).is_dir() and discover([each]).whole for each in paths):
        return CompareDirsRun(
            paths, now=now, expiration_ms=expiration_ms, metadata_dir=metadata_dir
        )
    selected = select_replicas(paths)
    cluster = ComparedCluster((each.log_dir for each in selected), metadata_dir)
    run = CompareRun(
        paths, now=now, expiration_ms=expiration_ms, replicas=selected, cluster=cluster
    )
    run.notes += cluster.notes()
    return run


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(each or 0 for each in known)


def _note_of_missing(logs: Sequence[ReplicaLog]) -> Iterator[str]:
    """Yield the acknowledged records that a replica lacks, and the replicas that have them."""
    for log in logs:
        end_offset = log.end_offset if log.partition.segments else None
        for missing in log.partition.acknowledged.not_given(end_offset):
            holders = [
                other.path
                for other in logs
                if other is not log
                and missing.last_offset is not None
                and other.start_offset <= missing.base_offset
                and other.sound_end_offset > missing.last_offset
            ]
            who = f"{', '.join(holders)} has them" if holders else "no other directory has them all"
            yield f"{log.path}: {missing}; {who}"


def _replica_row(log: ReplicaLog, node_id: int | None, standing: str | None) -> ReplicaRow:
    epochs = None
    if log.epochs is not None:
        epochs = " ".join(f"{each.epoch}@{each.start_offset}" for each in log.epochs)
    return ReplicaRow(
        path=log.path,
        broker=node_id,
        log_start_offset=log.start_offset,
        log_end_offset=log.end_offset,
        high_watermark=log.high_watermark,
        leader_epochs=epochs,
        sound_end_offset=log.sound_end_offset,
        standing=standing,
    )


def _comparison_row(one: ReplicaLog, other: ReplicaLog, found: Comparison) -> ComparisonRow:
    divergence_offset = found.divergence_offset
    if found.likeness in {Likeness.EQUAL, Likeness.BEHIND}:
        divergence_offset = found.end_offset
    return ComparisonRow(
        one=one.path,
        other=other.path,
        likeness=str(found.likeness),
        divergence_offset=divergence_offset,
        epochs_end_offset=found.epochs_end_offset,
        compared_start_offset=found.start_offset,
        compared_end_offset=found.end_offset,
    )
