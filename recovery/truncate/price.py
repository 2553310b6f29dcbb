"""What a truncation costs: records, transactions, producers, group offsets, the broker's recovery.

One pass over the headers of what is cut counts, a second one follows its transactions from the
producer state at the new end; the records of a batch are only looked at where a bound lies inside.
What cannot be known is None, never 0: the counts if something in there is damaged (what can still
be read is then no more than a lower bound), transactions and producers also without a state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.cluster.group_offsets import find_group_offsets
from recovery.replay.price import RecoveryPrice, recovered_bytes, recovery_price
from recovery.replay.recover_state import recover_state
from recovery.truncate.counts import CutCounts
from recovery.truncate.transactions import MAX_LISTED_COUNT, TransactionChanges, cut_parts
from storage.dirs.acknowledged import offsets_count
from storage.dirs.lookup import END_KINDS
from storage.errors import EoctlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.cluster.group_offsets import CommittedOffset
    from recovery.truncate.plan import Truncation
    from recovery.truncate.transactions import TransactionChange
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir
    from storage.formats.producer_snapshot import ProducerEntry


class ProducerChange(NamedTuple):
    """A producer that is set back.

    A sequence of -1: no batch of it is known; an epoch of -1: nothing is, as of one that never was.
    """

    producer_id: int
    epoch_before: int
    last_sequence_before: int
    epoch_after: int
    last_sequence_after: int


class TruncationPrice(NamedTuple):
    """The price; None is unknown.

    Attributes:
        cut_start_offset, cut_end_offset: the offsets that go, half open.
        batches_count: batches that go, control batches too.
        records_count: data records that go and could be read: those at or above the log start.
        log_bytes: bytes of `.log` that go, preallocated zeros left out.
        high_watermark: what was acknowledged is below it; checkpointed, it is a lower bound.
        acknowledged_records_count: of `records_count` those below the high watermark.
        missing_offsets_count: acknowledged ones that the log does not give even before the cut, at
            most; once the checkpoints are lowered nothing tells of them any more.
        transactions_count: changed ones, by outcome.
        transactions: first 1000 of those that are removed, after 1000 of the others.
        producers_count: producers that are set back.
        producers: first 1000 of them.
        group_offsets: committed ones above the new end.
        group_offsets_are_complete: all partitions of `__consumer_offsets` were read.
        recovery: what the next start of the broker recovers in this log dir.
        notes: why something is not known.
    """

    cut_start_offset: int
    cut_end_offset: int
    batches_count: int | None
    records_count: int | None
    log_bytes: int
    high_watermark: int | None
    acknowledged_records_count: int | None
    missing_offsets_count: int | None
    transactions_count: dict[str, int] | None
    transactions: tuple[TransactionChange, ...] | None
    producers_count: int | None
    producers: tuple[ProducerChange, ...] | None
    group_offsets: tuple[CommittedOffset, ...] | None
    group_offsets_are_complete: bool
    recovery: RecoveryPrice | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Names and JSON values, as a plan holds them."""
        value = self._asdict()
        for name in ("transactions", "producers", "group_offsets"):
            rows = value[name]
            value[name] = None if rows is None else [each._asdict() for each in rows]
        value["recovery"] = None if self.recovery is None else self.recovery._asdict()
        value["notes"] = list(self.notes)
        return value


def price_truncation(
    truncation: Truncation,
    *,
    log_dirs: Iterable[LogDir] | None = None,
    image: ClusterImage | None = None,
    high_watermark: int | None = None,
) -> TruncationPrice:
    """Work out what a planned truncation costs. Reads only.

    Args:
        truncation: the plan.
        log_dirs: of the cluster, where `__consumer_offsets` may be; None: the partition's own.
        image: the cluster's state, to know whether all of `__consumer_offsets` was read.
        high_watermark: instead of the checkpointed one.

    Raises:
        AccessError: what is cut cannot be opened.
    """
    partition, cut = truncation.partition, truncation.cut
    if high_watermark is None:
        high_watermark = partition.high_watermark
    # What is below the log start is on the disk, but nobody can read it any more.
    start_offset = max(cut.end_offset, truncation.target.log_start_offset)
    counts = CutCounts(start_offset, high_watermark)
    for files, start_pos in cut_parts(truncation):
        counts.add_segment(files, start_pos, is_active=partition.is_active(files))
    transactions = TransactionChanges(truncation, start_offset)
    changed = transactions.follow() if counts.is_whole else None
    producers, unknown = _producers_set_back(truncation)
    notes = [*counts.notes, *transactions.notes, *unknown]
    if log_dirs is None:
        log_dirs = [] if partition.log_dir is None else [partition.log_dir]
    groups = find_group_offsets(log_dirs, partition.topic, partition.partition, image=image)
    beyond = None
    if groups is not None:
        beyond = tuple(each for each in groups.offsets if each.offset > cut.end_offset)
        if not groups.is_complete:
            read = ", ".join(map(str, groups.read_partitions)) or "none"
            notes.append(
                f"of __consumer_offsets only the partitions {read} were read: offsets of other"
                " groups are not known (--coordinator-dir)"
            )
            beyond = beyond or None  # none found is not none there
        notes += (f"{each}: offsets of groups may be missing" for each in groups.problems[:1])
    return TruncationPrice(
        cut_start_offset=cut.end_offset,
        cut_end_offset=cut.log_end_offset,
        batches_count=counts.batches_count if counts.is_whole else None,
        records_count=counts.records_count,
        log_bytes=counts.log_bytes,
        high_watermark=high_watermark,
        acknowledged_records_count=counts.acknowledged_count,
        missing_offsets_count=offsets_count(partition.not_given()),
        transactions_count=None if changed is None else changed.counts(),
        transactions=None if changed is None else changed.rows(),
        producers_count=None if producers is None else len(producers),
        producers=None if producers is None else tuple(producers[:MAX_LISTED_COUNT]),
        group_offsets=beyond,
        group_offsets_are_complete=groups is not None and groups.is_complete,
        recovery=price_recovery(truncation),
        notes=tuple(notes),
    )


# --- producers, recovery --------------------------------------------------------------------------


def _producers_set_back(
    truncation: Truncation,
) -> tuple[list[ProducerChange] | None, tuple[str, ...]]:
    """Compare the state at the old end with that at the new one.

    Returns:
        The producers, None if a state is not known; and why that is so.
    """
    if truncation.cut.is_nothing:
        return [], ()
    if truncation.producers is None:
        return None, ()
    try:
        before = recover_state(
            truncation.partition, truncation.clock, at_offset=truncation.cut.log_end_offset
        )
    except EoctlError as error:
        return None, (f"producers that are set back are not known: {error}",)
    for path, verdict in before.damage.items():
        if verdict.kind in END_KINDS:
            continue
        where = f"{path}: position {verdict.start_pos}"
        return None, (f"{where}: producers that are set back are not known",)
    return list(producers_set_back(before.entries, truncation.producers)), ()


def producers_set_back(
    before: Iterable[ProducerEntry], after: Iterable[ProducerEntry]
) -> Iterator[ProducerChange]:
    """Give the producers whose epoch or last sequence is another afterwards."""
    still_known = {each.producer_id: each for each in after}
    for old in before:
        new = still_known.get(old.producer_id)
        if new is None:
            yield ProducerChange(
                producer_id=old.producer_id,
                epoch_before=old.producer_epoch,
                last_sequence_before=old.last_sequence,
                epoch_after=-1,
                last_sequence_after=-1,
            )
        elif (old.producer_epoch, old.last_sequence) != (new.producer_epoch, new.last_sequence):
            yield ProducerChange(
                producer_id=old.producer_id,
                epoch_before=old.producer_epoch,
                last_sequence_before=old.last_sequence,
                epoch_after=new.producer_epoch,
                last_sequence_after=new.last_sequence,
            )


def price_recovery(truncation: Truncation) -> RecoveryPrice | None:
    """Add up the log dir as it is then, without its clean-shutdown marker."""
    partition, cut = truncation.partition, truncation.cut
    log_dir = partition.log_dir
    if log_dir is None:
        return None
    others = recovery_price(log_dir, without=partition.directory)
    log_bytes = 0
    if cut.is_nothing or cut.kept_count:
        kept = partition.segments[: cut.kept_count]
        point = min(log_dir.recovery_point(partition.directory) or 0, cut.end_offset)
        log_bytes = recovered_bytes(kept, point)
        if not cut.is_nothing:
            log_bytes -= kept[-1].log.file_bytes - cut.kept_bytes
    return RecoveryPrice(others.partitions_count + 1, others.log_bytes + log_bytes)
