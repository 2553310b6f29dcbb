"""From the options of `replicas compare` to rows: several directories of one partition."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import TYPE_CHECKING, NamedTuple

from eoctl.progress import Progress, log_bytes
from eoctl.replica_paths import (
    moment_of,
    node_id_of,
    require_one_topic,
    select_replicas,
    told_of_use,
)
from recovery.replay.snapshots import Clock
from recovery.replicas.compare import (
    Likeness,
    acknowledged_end_offset,
    compare_replicas,
    price_tail,
    read_replica,
)
from recovery.replicas.rejoin import require_follow_offset
from storage.dirs.partition import Partition
from storage.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_SKIPPED,
    RefusedError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.replicas.compare import Comparison, ReplicaLog, Tail


class ReplicaRow(NamedTuple):
    """One directory. What is not known is None."""

    path: str
    broker: int | None
    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None
    leader_epochs: str | None
    sound_end_offset: int


class ComparisonRow(NamedTuple):
    """Two directories; `divergence_offset` is where the shorter one ends if they are equal."""

    one: str
    other: str
    likeness: str
    divergence_offset: int | None
    epochs_end_offset: int | None
    compared_start_offset: int | None
    compared_end_offset: int | None


class ChoiceRow(NamedTuple):
    """What a directory loses when another one leads."""

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
    """A transaction that a directory has, in part or as a whole, behind a cut."""

    follower: str
    truncation_offset: int
    producer_id: int
    first_offset: int
    marker_offset: int | None
    ended_by: str
    outcome: str


class CompareRun:
    """Compares copies; rows are complete once it is made."""

    def __init__(self, paths: Sequence[str], *, now: str | None, expiration_ms: int | None) -> None:
        if len(paths) < 2:
            raise UsageError(
                f"{len(paths)} directories, two are needed",
                next_step="eoctl replicas compare DIR DIR...",
            )
        selected = select_replicas(paths)
        moment = moment_of(selected, now)
        self._clock = Clock.at(moment.ms, expiration_ms)
        self.notes: list[str] = [moment.describe()]
        partitions = [Partition.of(each) for each in selected]
        require_one_topic(partitions)
        self.notes += told_of_use(partitions)
        self._tails: dict[tuple[str, int], Tail] = {}
        with Progress("reading", lambda: log_bytes(selected)) as progress:
            self._logs = [read_replica(each, on_bytes=progress.advance) for each in partitions]
        for log in self._logs:
            self.notes += log.notes
        missing = list(_told_of_missing(self._logs))
        self.notes += missing
        self._is_short = bool(missing)
        nodes = {each.partition.path: node_id_of(each) for each in selected}
        self.replicas = [_replica_row(each, nodes[each.path]) for each in self._logs]
        found = [(*pair, compare_replicas(*pair)) for pair in combinations(self._logs, 2)]
        self.comparisons = [_comparison_row(*each) for each in found]
        self._likenesses = {each.likeness for _, _, each in found}
        for _, _, each in found:
            self.notes += each.notes
        self.choices = [self._choice(*pair) for pair in permutations(self._logs, 2)]
        self.transactions = [row for key in self._tails for row in self._transactions(*key)]
        self.notes.append(
            "verified: headers and checksums of all batches; records were not decompressed"
        )
        self.notes = list(dict.fromkeys(self.notes))

    @property
    def status(self) -> int:
        """1: some differ; 5: something could not be compared."""
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
            tail = price_tail(follower, offset, acknowledged_offset=acknowledged, clock=self._clock)
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


def _told_of_missing(logs: Sequence[ReplicaLog]) -> Iterator[str]:
    """Say what was acknowledged of a copy and is not in it, and which of the others have it."""
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


def _replica_row(log: ReplicaLog, node_id: int | None) -> ReplicaRow:
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
