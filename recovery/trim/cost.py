"""The cost of a trim: records, groups, open transactions, remote segments, and the freed room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.changes.plans.file_facts import freed_bytes
from recovery.changes.plans.plan import Action
from recovery.cluster.group_offsets import find_group_offsets
from recovery.replay.recover_state import recover_state
from recovery.truncate.cost import CutCounts
from storage.dirs.lookup import END_KINDS
from storage.errors import EoctlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recovery.cluster.group_offsets import CommittedOffset
    from recovery.cluster.remote_segments import RemoteSegment
    from recovery.replay.snapshots import Clock
    from recovery.trim.plan import Trim
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir


class TrimCost(NamedTuple):
    """The cost of a trim. None is unknown.

    Attributes:
        trim_start_offset, trim_end_offset: the offsets that consumers lose, half open.
        records_count: data records at these offsets.
        acknowledged_records_count: of them, repeated offsets once. All are below the HW.
        log_bytes: of the removed `.log` files.
        freed_bytes: the disk blocks of the removed files.
        first_timestamp_ms, last_timestamp_ms: of the batches with these records.
        group_offsets: committed offsets below the new log start. These groups reset.
        group_offsets_are_complete: all partitions of `__consumer_offsets` were read.
        open_transactions: first offsets of open transactions that begin below the new log start, by
            producer id.
        producers_count: producers with no batch from the new log start on. Only later snapshots
            know them, and without these nothing does.
        remote_segments_count, remote_bytes: finished segments that the leader deletes in remote
            storage, because they end below the new log start.
        notes: why something is unknown.
    """

    trim_start_offset: int
    trim_end_offset: int
    records_count: int | None
    acknowledged_records_count: int | None
    log_bytes: int
    freed_bytes: int
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    group_offsets: tuple[CommittedOffset, ...] | None
    group_offsets_are_complete: bool
    open_transactions: dict[int, int] | None
    producers_count: int | None
    remote_segments_count: int | None
    remote_bytes: int | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return names and JSON values, as in a plan."""
        value = self._asdict()
        groups, opened = self.group_offsets, self.open_transactions
        value["group_offsets"] = None if groups is None else [each._asdict() for each in groups]
        value["open_transactions"] = (
            None
            if opened is None
            else [{"producer_id": each, "first_offset": opened[each]} for each in opened]
        )
        value["notes"] = list(self.notes)
        return value


class TrimReport(NamedTuple):
    """The row of a directory. None is unknown."""

    topic: str
    partition: int
    path: str
    target_offset: int
    log_start_offset: int
    new_log_start_offset: int
    first_local_offset: int
    log_end_offset: int
    high_watermark: int | None
    segments_count: int
    freed_bytes: int
    records_count: int | None
    acknowledged_count: int | None
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    groups: tuple[str, ...] | None
    open_transactions_count: int | None
    remote_segments_count: int | None
    remote_bytes: int | None
    is_due: bool | None
    applied: bool


def estimate_trim(
    trim: Trim,
    clock: Clock,
    *,
    log_dirs: Iterable[LogDir],
    image: ClusterImage | None = None,
    remote: Sequence[RemoteSegment] = (),
) -> TrimCost:
    """Compute the cost of a planned trim. Reads only.

    Args:
        trim: the plan.
        clock: for the expiry of producers.
        log_dirs: of the cluster, with `__consumer_offsets` if given.
        image: the cluster's state, to know whether all of `__consumer_offsets` was read.
        remote: the segments of the partition in remote storage.

    Raises:
        AccessError: a segment cannot be opened.
    """
    partition = trim.partition
    start, end = trim.log_start_offset, trim.new_log_start_offset
    counts = CutCounts(start, end, end_offset=end)
    if end > start:
        for files in partition.segments:
            following = partition.end_of(files)
            if files.base_offset < end and (following is None or following > start):
                counts.add_segment(files, 0, is_active=partition.is_active(files))
    found = counts.found
    opened, producers_count, unknown = _producers(trim, clock)
    notes = [*counts.notes, *unknown]
    groups = find_group_offsets(log_dirs, partition.topic, partition.partition, image=image)
    below = None
    if groups is not None:
        below = tuple(each for each in groups.offsets if start <= each.offset < end)
        if not groups.is_complete:
            read = ", ".join(map(str, groups.read_partitions)) or "none"
            notes.append(
                f"of __consumer_offsets only the partitions {read} were read: offsets of other "
                "groups are unknown (--coordinator-dir)"
            )
            below = below or None  # no offset found does not prove that there is none
        notes += (f"{each}: offsets of groups may be missing" for each in groups.problems[:1])
    gone = [each for each in remote if each.is_readable and each.end_offset < end > start]
    is_remote = partition.remote_range is not None and end > start
    if is_remote:
        notes.append("records in remote storage are not counted")
    is_unknown = is_remote and not remote
    return TrimCost(
        trim_start_offset=start,
        trim_end_offset=end,
        records_count=None if is_remote else counts.records_count,
        acknowledged_records_count=None if is_remote else counts.acknowledged_count,
        log_bytes=sum(each.log.file_bytes for each in trim.removed),
        freed_bytes=removed_bytes(trim),
        first_timestamp_ms=found.first_ms,
        last_timestamp_ms=found.last_ms,
        group_offsets=below,
        group_offsets_are_complete=groups is not None and groups.is_complete,
        open_transactions=opened,
        producers_count=producers_count,
        remote_segments_count=None if is_unknown else len(gone),
        remote_bytes=None if is_unknown else sum(each.log_bytes for each in gone),
        notes=tuple(notes),
    )


def report_trim(trim: Trim, cost: TrimCost, high_watermark: int | None) -> TrimReport:
    """Return the row of one replica. All replicas lose the same records."""
    partition = trim.partition
    groups = cost.group_offsets
    opened = cost.open_transactions
    return TrimReport(
        topic=partition.topic,
        partition=partition.partition,
        path=partition.path,
        target_offset=trim.offset,
        log_start_offset=trim.log_start_offset,
        new_log_start_offset=trim.new_log_start_offset,
        first_local_offset=trim.first_local_offset,
        log_end_offset=trim.log_end_offset,
        high_watermark=high_watermark,
        segments_count=len(trim.removed),
        freed_bytes=removed_bytes(trim),
        records_count=cost.records_count,
        acknowledged_count=cost.acknowledged_records_count,
        first_timestamp_ms=cost.first_timestamp_ms,
        last_timestamp_ms=cost.last_timestamp_ms,
        groups=None if groups is None else tuple(dict.fromkeys(each.group for each in groups)),
        open_transactions_count=None if opened is None else len(opened),
        remote_segments_count=cost.remote_segments_count,
        remote_bytes=cost.remote_bytes,
        is_due=None,
        applied=False,
    )


def removed_bytes(trim: Trim) -> int:
    """Return the disk blocks that the removed files of a trim free."""
    return sum(freed_bytes(each.path) for each in trim.steps if each.action is Action.REMOVE)


def _producers(
    trim: Trim, clock: Clock
) -> tuple[dict[int, int] | None, int | None, tuple[str, ...]]:
    """Return the open transactions below the new log start, and the producers without a batch."""
    end = trim.new_log_start_offset
    if end == trim.log_start_offset:
        return {}, 0, ()
    unknown = "the open transactions that begin below the new log start are unknown"
    try:
        state = recover_state(trim.partition, clock, at_offset=trim.log_end_offset)
    except EoctlError as error:
        return None, None, (f"{unknown}: {error}",)
    for path, verdict in state.damage.items():
        if verdict.kind not in END_KINDS:
            return None, None, (f"{path}: position {verdict.start_pos}: {unknown}",)
    opened = {
        each.producer_id: each.current_txn_first_offset
        for each in state.entries
        if 0 <= each.current_txn_first_offset < end
    }
    return opened, sum(each.last_offset < end for each in state.entries), ()
