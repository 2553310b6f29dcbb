"""Class D: `-future` and `-stray` directories whose records a live replica has.

A name is no proof. The live replica of a `-future` directory must load completely, and each batch
of a `-stray` directory must be in a live replica, by offsets and checksum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.changes.plans.file_facts import freed_bytes
from recovery.reclaim.find import Reclaimable
from storage.dirs.lookup import END_KINDS
from storage.dirs.partition import Partition
from storage.errors import EoctlError
from storage.file_names import LOG_FILE_KINDS, METADATA_TOPIC, DirState, FileSuffix, classify

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.dirs.discovery import Selected
    from storage.dirs.partition import PlacedBatch

_STATES = frozenset({DirState.FUTURE, DirState.STRAY})


def find_copies(
    selected: Sequence[Selected], *, is_elsewhere: bool = False
) -> Iterator[tuple[Reclaimable, str]]:
    """Yield the directories of class D, and why each must stay ("": it may go). Reads all of them.

    Args:
        selected: all given directories.
        is_elsewhere: the user says that `-stray` directories are elsewhere.
    """
    live = [each for each in selected if each.partition.name.state is DirState.LIVE]
    for each in selected:
        name = each.partition.name
        if name.state not in _STATES or name.topic == METADATA_TOPIC:
            continue
        others = [
            other
            for other in live
            if other.partition.name.partition == name.partition
            and (other.partition.name.topic == name.topic or name.topic_may_be_cut)
        ]
        try:
            found = Partition.of(each)
            item = _directory(found, name.state)
            if not item.files:
                continue
            if name.state is DirState.FUTURE:
                yield item, _why_future_stays(found, each, others)
            else:
                yield item, "" if is_elsewhere else _why_stray_stays(found, others)
        except EoctlError as error:
            yield _unread(each, name.state), f"it cannot be read: {error}"


def _directory(partition: Partition, state: DirState) -> Reclaimable:
    """Return the files of the log. The directory stays, with its `partition.metadata`."""
    entries = [
        *(
            entry
            for files in partition.segments
            for entry in (files.log, files.offset_index, files.time_index, files.txn_index)
            if entry is not None
        ),
        *partition.files.snapshots,
        *(
            each
            for each in partition.files.others
            if each.name.suffix is FileSuffix.NONE
            and classify(each.name.name).kind in LOG_FILE_KINDS
        ),
    ]
    is_future = state is DirState.FUTURE
    return Reclaimable(
        reclaim_class="D",
        path=partition.path,
        files=tuple(each.path for each in entries),
        size_bytes=sum(each.file_bytes for each in entries),
        freed_bytes=sum(freed_bytes(each.path) for each in entries),
        why="a replica that moves to this disk" if is_future else "set aside by the broker",
        costs="the move begins again" if is_future else "that copy; a live replica has its records",
        is_taken_by_start=False,
    )


def _unread(selected: Selected, state: DirState) -> Reclaimable:
    return Reclaimable(
        reclaim_class="D",
        path=selected.partition.path,
        files=(),
        size_bytes=0,
        freed_bytes=0,
        why=str(state),
        is_taken_by_start=False,
    )


def _why_future_stays(partition: Partition, selected: Selected, others: Sequence[Selected]) -> str:
    """Return why a `-future` directory must stay."""
    for other in others:
        meta, own = other.log_dir and other.log_dir.meta, selected.log_dir and selected.log_dir.meta
        if meta is None or own is None or meta.node_id != own.node_id:
            continue
        current = Partition.of(other)
        if current.topic_id() is None or current.topic_id() != partition.topic_id():
            continue
        return _why_not_whole(current)
    return "the current replica of this node is not among the given directories"


def _why_not_whole(partition: Partition) -> str:
    """Return why a log does not load completely."""
    reading = partition.read(0)
    for _ in reading:
        pass
    bad = [each for _, each in reading.verdicts if each.kind not in END_KINDS]
    if bad or partition.problems or partition.not_given():
        return f"the current replica {partition.path} is not whole: eoctl check"
    return ""


def _why_stray_stays(partition: Partition, others: Sequence[Selected]) -> str:
    """Return why a `-stray` directory must stay."""
    for other in others:
        if _has_all(Partition.of(other), partition):
            return ""
    if not others:
        return "no live replica of it is among the given directories: it may be the only copy"
    return "no given live replica has all of its batches"


def _has_all(copy: Partition, wanted: Partition) -> bool:
    """Return whether a log has each batch of another, by offsets and checksum."""
    reading, there = wanted.read(0), copy.read(0)
    found: PlacedBatch | None = None
    for each in reading:
        header = each.batch.header
        while found is None or found.batch.header.base_offset < header.base_offset:
            found = next(there, None)
            if found is None:
                return False
        other = found.batch.header
        is_same = (other.base_offset, other.last_offset, other.crc) == (
            header.base_offset,
            header.last_offset,
            header.crc,
        )
        if not is_same or each.batch.crc_ok is False or found.batch.crc_ok is False:
            return False
    return not wanted.problems and not [
        each for _, each in reading.verdicts if each.kind not in END_KINDS
    ]
