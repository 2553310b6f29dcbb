"""Differences in the derived files of older brokers that are no errors.

A file is not wrong because a rebuild would write it differently: a broker of any release loads it
unchanged. Seen in the golden directories of 1.1.1, 2.8.2, 3.3.2 and 3.9.1:

    .index      before 2.0 an entry has the first offset of its batch, not the last
    .timeindex  before 3.8 an entry has the offset of the record with its time, not its batch's last
    .snapshot   of message formats 0 and 1: written empty at rolls and stops. Not since 4.0
                before 2.5 the time of a producer is its last data's, not its last marker's
    leader-epoch-checkpoint  of message formats 0 and 1: none since 2.8

The batches' headers prove each of them. No release is guessed, since nothing on disk names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from storage.errors import FormatError
from storage.file_names import LEADER_EPOCHS_NAME, FileKind, classify
from storage.formats.producer_snapshot import parse_snapshot
from storage.formats.record_batch import MAGIC_V2
from storage.kernels.layouts import INDEX_ENTRY, TIME_ENTRY
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from recovery.rebuild.derive import Rebuilt
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.kernels.protocol import HeaderTable

FIRST_OFFSETS = "as brokers before 2.0 wrote it: the first offset of each batch"
APPENDED_SETS = (
    "as brokers before 4.0 wrote it for message formats 0 and 1: an entry for what came at once"
)
RECORD_OFFSETS = "as brokers before 3.8 wrote it: the record that has the time, not its batch's end"
EMPTY_SNAPSHOT = "empty, as brokers before 4.0 wrote it for message formats 0 and 1"
DATA_TIMES = "as brokers before 2.5 wrote it: times of data, not of markers"
NO_EPOCHS = "message formats 0 and 1 have no leader epochs, and brokers since 2.8 write no file"


def older_reason(
    partition: Partition, rebuilt: Rebuilt, name: str, data: bytes | None, content: bytes | None
) -> str:
    """Return why a file differs from the rebuilt file because of an older broker, "" if not.

    Args:
        partition: as listed.
        rebuilt: its rebuilt files.
        name: of the file.
        data: the content on disk. None if absent.
        content: the rebuilt content. None if there is no such file.
    """
    kind = classify(name).kind
    is_legacy = bool(rebuilt.segments) and not rebuilt.epochs and rebuilt.log_end_offset > 0
    if name == LEADER_EPOCHS_NAME:
        return NO_EPOCHS if data is None and is_legacy else ""
    if data is None:
        return ""
    if kind is FileKind.SNAPSHOT:
        return _of_snapshot(partition, data, content, is_legacy=is_legacy)
    files = next(
        (each for each in partition.segments if each.base_offset == classify(name).offset), None
    )
    if files is None or content is None:
        return ""
    if kind is FileKind.INDEX:
        return _of_offset_index(files, data, content)
    if kind is FileKind.TIMEINDEX and _has_record_offsets(files, data, content):
        return RECORD_OFFSETS
    return ""


def data_times(partition: Partition, entries: Iterable[ProducerEntry]) -> dict[int, int]:
    """Return the largest time of each entry's last data batch by producer id, from headers alone.

    A producer whose batch is not in the log is left out.
    """
    wanted = {(each.producer_id, each.last_offset): each.producer_id for each in entries}
    last_offsets = np.array(sorted({offset for _, offset in wanted}), np.int64)
    found: dict[int, int] = {}
    for files in partition.segments:
        for table in _tables(files):
            for row in np.flatnonzero(np.isin(table.last_offset, last_offsets)).tolist():
                key = int(table.producer_id[row]), int(table.last_offset[row])
                if key in wanted:
                    found[wanted[key]] = int(table.max_timestamp_ms[row])
    return found


def stores_data_times(
    partition: Partition, recovered: Iterable[ProducerEntry], disk: Iterable[ProducerEntry]
) -> bool:
    """Return whether a snapshot differs from the recovered times and has the data's times."""
    on_disk = {each.producer_id: each for each in disk}
    differing = []
    for entry in recovered:
        other = on_disk.pop(entry.producer_id, None)
        if other is None or entry._replace(timestamp_ms=other.timestamp_ms) != other:
            return False
        if entry != other:
            differing.append(other)
    if on_disk or not differing:
        return False
    times = data_times(partition, differing)
    return all(times.get(each.producer_id) == each.timestamp_ms for each in differing)


def _of_snapshot(
    partition: Partition, data: bytes, content: bytes | None, *, is_legacy: bool
) -> str:
    try:
        disk = parse_snapshot(data)
    except FormatError:
        return ""
    if content is None:
        return EMPTY_SNAPSHOT if is_legacy and not disk else ""
    return DATA_TIMES if stores_data_times(partition, parse_snapshot(content), disk) else ""


def _tables(files: SegmentFiles) -> Iterator[HeaderTable]:
    with open_segment(files.log.path, base_offset=files.base_offset) as segment:
        yield from segment.scan_tables(verify_crc=False, resume=False)


def _entries(data: bytes, entry: np.dtype[np.void]) -> NDArray[np.void]:
    """Return the entries of an index without the zeros that may follow."""
    found = np.frombuffer(data, entry, len(data) // entry.itemsize)
    used = np.flatnonzero(found.view(np.uint8).reshape(len(found), entry.itemsize).any(axis=1))
    return found[: int(used[-1]) + 1 if len(used) else 0]


def _of_offset_index(files: SegmentFiles, data: bytes, content: bytes) -> str:
    """Compare each entry of an `.index` with the batch at its position.

    For message formats 0 and 1 a broker indexed each append by its last offset, and a wrapper shows
    only its own last offset. There an entry is right if no batch below its position has its offset.
    For format 2 the positions are the same as in a rebuild.
    """
    disk, rebuilt = _entries(data, INDEX_ENTRY), _entries(content, INDEX_ENTRY)
    positions = disk["segment_pos"].astype(np.int64)
    offsets = disk["relative_offset"].astype(np.int64) + files.base_offset
    if not len(disk) or (np.diff(positions) <= 0).any() or (np.diff(offsets) <= 0).any():
        return ""
    seen, has_legacy, has_ends, before_offset = 0, False, True, files.base_offset - 1
    for table in _tables(files):
        if not table.row_count:
            continue
        is_legacy = table.magic < MAGIC_V2
        has_legacy |= bool(is_legacy.any())
        before = np.concatenate(([before_offset], table.last_offset[:-1]))
        before_offset = int(table.last_offset[-1])
        until = int(np.searchsorted(positions, table.pos[-1], "right"))
        rows, offset = np.searchsorted(table.pos, positions[seen:until]), offsets[seen:until]
        is_right = np.where(
            is_legacy[rows], before[rows] < offset, offset == table.base_offset[rows]
        )
        if not ((table.pos[rows] == positions[seen:until]) & is_right).all():
            return ""
        has_ends &= bool((offset >= table.last_offset[rows]).all())
        seen = until
    if seen < len(disk) or offsets[-1] > before_offset:
        return ""
    if has_legacy and has_ends:
        return APPENDED_SETS
    is_alike = has_legacy or np.array_equal(disk["segment_pos"], rebuilt["segment_pos"])
    return FIRST_OFFSETS if is_alike else ""


def _has_record_offsets(files: SegmentFiles, data: bytes, content: bytes) -> bool:
    """Return whether a `.timeindex` has the rebuilt times, with offsets within the same batches."""
    disk, rebuilt = _entries(data, TIME_ENTRY), _entries(content, TIME_ENTRY)
    if not len(disk) or not np.array_equal(disk["timestamp_ms"], rebuilt["timestamp_ms"]):
        return False
    offsets = disk["relative_offset"].astype(np.int64) + files.base_offset
    last_offsets = rebuilt["relative_offset"].astype(np.int64) + files.base_offset
    found, before_offset = np.zeros(len(disk), np.bool_), files.base_offset - 1
    for table in _tables(files):
        if not table.row_count:
            continue
        before = np.concatenate(([before_offset], table.last_offset[:-1]))
        before_offset = int(table.last_offset[-1])
        rows = np.searchsorted(table.last_offset, last_offsets)
        inside = rows < table.row_count
        rows = rows[inside]
        is_here = table.last_offset[rows] == last_offsets[inside]
        first = np.where(table.magic[rows] < MAGIC_V2, before[rows] + 1, table.base_offset[rows])
        is_within = (first <= offsets[inside]) & (offsets[inside] <= last_offsets[inside])
        found[np.flatnonzero(inside)[is_here & is_within]] = True
    return bool(found.all())
