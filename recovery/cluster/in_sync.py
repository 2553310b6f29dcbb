"""Who was in the ISR when an offset of a partition was acknowledged, as far as that can be told.

The log says in which leader epoch a record was appended, the metadata who led in that epoch and
which ISRs there were in it, one after the other. When it was acknowledged is written nowhere: not
before it was appended, and not later than the first high watermark above it that is known. So each
ISR of its epoch may have been that one; the record's own time says which one is likely. If it was
not acknowledged in its epoch, it was in a later one, and these are given, too.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from recovery.cluster.changes import PartitionChange
from storage.errors import AccessError, FormatError
from storage.formats.partition_metadata import format_uuid
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TypeGuard

    from recovery.cluster.changes import Change
    from storage.dirs.cluster_image import PartitionImage
    from storage.dirs.partition import Partition, Place


class AckStanding(StrEnum):
    """How an ISR stands to the acknowledgement of an offset."""

    KNOWN = "known"  # there was no other ISR
    LIKELY = "likely"  # by the record's own time
    POSSIBLE = "possible"  # in its leader epoch
    LATER = "later"  # in a later leader epoch: if it was not acknowledged before


class RecordOrigin(NamedTuple):
    """An offset as copies of the partition have it. Copies that have diverged have two of one.

    Attributes:
        timestamp_ms: of the record; None: it has none, or it cannot be read.
        is_append_time: by the clock of the leader; else by that of the producer.
        topic_id: of partition.metadata; None: not known.
        paths: of the copies.
        acknowledged_by: the copies whose high watermark is above it.
    """

    offset: int
    leader_epoch: int
    timestamp_ms: int | None
    is_append_time: bool
    topic_id: str | None
    paths: tuple[str, ...]
    acknowledged_by: tuple[str, ...]


class InSync(NamedTuple):
    """An ISR that may have acknowledged it; `state` was in force from its start to its end.

    Attributes:
        end_offset, end_timestamp_ms: of the change that ended it; None: it is in force still.
    """

    standing: AckStanding
    state: PartitionImage
    min_insync_replicas: int
    start_offset: int
    start_timestamp_ms: int
    end_offset: int | None
    end_timestamp_ms: int | None


def record_origins(copies: Iterable[Partition], offset: int) -> list[RecordOrigin]:
    """Find an offset in copies of a partition; one value for each leader epoch that it has there.

    What cannot be read is among the problems of the copy.
    """
    found: dict[tuple[int, str | None], RecordOrigin] = {}
    for copy in copies:
        place = _find(copy, offset)
        if place is None:
            continue
        header = place.batch.header
        key = header.partition_leader_epoch, copy.topic_id()
        high_watermark = copy.high_watermark
        is_acknowledged = high_watermark is not None and high_watermark > offset
        origin = found.get(key) or RecordOrigin(
            offset=offset,
            leader_epoch=header.partition_leader_epoch,
            timestamp_ms=_time(place, offset),
            is_append_time=header.is_log_append_time,
            topic_id=key[1],
            paths=(),
            acknowledged_by=(),
        )
        found[key] = origin._replace(
            paths=(*origin.paths, copy.path),
            acknowledged_by=(*origin.acknowledged_by, *([copy.path] if is_acknowledged else [])),
        )
    return sorted(found.values(), key=lambda each: each.leader_epoch)


def _find(copy: Partition, offset: int) -> Place | None:
    try:
        place = copy.find_offset(offset)
    except (AccessError, FormatError) as exc:
        copy.problems.append(exc)
        return None
    return place if place is not None and place.batch.header.base_offset <= offset else None


def _time(place: Place, offset: int) -> int | None:
    """The time of a record; of its batch, where compaction has removed it from there."""
    header = place.batch.header
    time_ms = header.max_timestamp_ms
    try:
        with open_segment(place.files.log.path) as segment:
            for record in segment.records(place.batch):
                if record.offset == offset:
                    time_ms = record.timestamp_ms
    except (AccessError, FormatError):
        pass
    return None if time_ms < 0 else time_ms


def in_sync_at(
    changes: Iterable[Change],
    origin: RecordOrigin,
    topic: str,
    partition: int,
    *,
    before_epoch: int | None = None,
) -> list[InSync]:
    """Tell the ISRs that may have acknowledged a record, in order; [] if its epoch is not known.

    Args:
        changes: of the metadata, all of them.
        origin: where the record is.
        topic: its name.
        partition: its number.
        before_epoch: another copy has another record there, of that leader epoch: from then on it
            was this one no more that was acknowledged. None: there is none.
    """
    found = [
        each
        for each in _versions(changes, origin, topic, partition)
        if before_epoch is None or each.state.leader_epoch < before_epoch
    ]
    own = [each for each in found if each.state.leader_epoch == origin.leader_epoch]
    if not own:
        return []
    if len(found) == 1:
        return [found[0]._replace(standing=AckStanding.KNOWN)]
    likely = _likely(own, origin)
    return [
        each._replace(standing=AckStanding.LIKELY) if each is likely else each for each in found
    ]


def _versions(
    changes: Iterable[Change], origin: RecordOrigin, topic: str, partition: int
) -> Iterator[InSync]:
    """The states with a leader from the record's epoch on, each with its end."""
    current: InSync | None = None
    for change in changes:
        if not _is_of(change, origin, topic, partition):
            continue
        after = change.after
        if current is not None:
            if after is not None and _is_same(current.state, after):
                continue
            yield current._replace(end_offset=change.offset, end_timestamp_ms=change.timestamp_ms)
            current = None
        if after is not None and after.leader >= 0 and after.leader_epoch >= origin.leader_epoch:
            is_own = after.leader_epoch == origin.leader_epoch
            current = InSync(
                standing=AckStanding.POSSIBLE if is_own else AckStanding.LATER,
                state=after,
                min_insync_replicas=change.min_insync_replicas,
                start_offset=change.offset,
                start_timestamp_ms=change.timestamp_ms,
                end_offset=None,
                end_timestamp_ms=None,
            )
    if current is not None:
        yield current


def _is_of(
    change: Change, origin: RecordOrigin, topic: str, partition: int
) -> TypeGuard[PartitionChange]:
    if not isinstance(change, PartitionChange) or change.partition != partition:
        return False
    if origin.topic_id is not None:
        return format_uuid(change.topic_id) == origin.topic_id
    return change.topic == topic


def _is_same(one: PartitionImage, other: PartitionImage) -> bool:
    return (one.leader, one.leader_epoch, one.isr) == (other.leader, other.leader_epoch, other.isr)


def _likely(own: Sequence[InSync], origin: RecordOrigin) -> InSync | None:
    """The one in force at the record's own time; the nearest one if it lies before or behind."""
    time_ms = origin.timestamp_ms
    if time_ms is None:
        return None
    begun = [each for each in own if each.start_timestamp_ms <= time_ms]
    return begun[-1] if begun else own[0]
