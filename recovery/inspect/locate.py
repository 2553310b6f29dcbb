"""Find an offset, a time, a key or a byte position, and compare the indexes with it.

The result never depends on an index. It also has the entry of each index where a reader would
begin, and whether that entry is right.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs import lookup
from storage.dirs.lookup import END_KINDS, is_wrong_end
from storage.errors import AccessError, FormatError, UsageError
from storage.kernels.protocol import in_words
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles
    from storage.formats.offset_index import OffsetIndexEntry
    from storage.formats.time_index import TimeIndexEntry
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import LogRecord


class Location(NamedTuple):
    """A batch, a record in it if the search is for a record, and the index entries that lead there.

    `offset` and `timestamp_ms` are the record's. They are None for a whole batch, or if the record
    cannot be read. `*_holds` is None if the index has no entry to begin at. `crc_ok` is the
    batch's.
    """

    topic: str
    partition: int | None
    offset: int | None
    timestamp_ms: int | None
    segment_base_offset: int
    batch_pos: int
    batch_bytes: int
    batch_base_offset: int
    batch_last_offset: int
    batch_max_timestamp_ms: int
    crc_ok: bool | None
    index_offset: int | None
    index_pos: int | None
    index_holds: bool | None
    time_index_timestamp_ms: int | None
    time_index_offset: int | None
    time_index_holds: bool | None
    path: str


class Search:
    """The searches of one partition.

    Attributes:
        notes: why a result differs from the request, or is missing.
        is_unreadable: a part of the log could not be read: there may be more results.
        is_damaged: a closed log has bytes after its last batch.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.notes: list[str] = []
        self.is_unreadable = False
        self.is_damaged = False
        self._entries: dict[int, tuple[Sequence[OffsetIndexEntry], Sequence[TimeIndexEntry]]] = {}

    def by_offset(self, offset: int) -> Location | None:
        """Find the record with an offset. Without it, find the next batch above, and add a note."""
        partition = self.partition
        log_start = partition.local_log_start_offset
        if log_start is not None and offset < log_start:
            self.notes.append(f"offset {offset} is below the log start offset {log_start}")
        place = partition.find_offset(offset)
        if place is None:
            self._note_end(offset)
            return None
        record = self._record(place.files, place.batch, offset)
        header = place.batch.header
        # An unreadable batch may have the record all the same.
        if record is None and not self.is_unreadable:
            where = "the batch that spans it"
            if header.magic >= 2 and not header.base_offset <= offset <= header.last_offset:
                where = "the next batch"
            self.notes.append(f"there is no record with offset {offset}; this is {where}")
        return self._location(place.files, place.batch, record)

    def by_time(self, timestamp_ms: int) -> Location | None:
        """Find the first record at or after a time, from the log start on."""
        found = self.partition.find_timestamp(timestamp_ms)
        if found is None:
            self.notes.append(f"no record has a timestamp of {timestamp_ms} or later")
            return None
        record = self._record(found.place.files, found.place.batch, found.offset)
        return self._location(
            found.place.files, found.place.batch, record, timestamp_ms=timestamp_ms
        )

    def by_key(self, key: bytes) -> Iterator[Location]:
        """Yield every record with a key, in log order. Reads and decompresses everything."""
        read = self.partition.read(self.partition.local_log_start_offset or 0)
        is_found = False
        for placed in read:
            batch = placed.batch
            if batch.header.is_control or batch.crc_ok is False:
                continue
            try:
                for record in placed.segment.records(batch):
                    if record.key == key:
                        is_found = True
                        yield self._location(placed.files, batch, record)
            except (FormatError, AccessError) as exc:
                self._pass_over(exc)
        for files, verdict in read.verdicts:
            if is_wrong_end(verdict.kind, self.partition.stopped):
                self.is_damaged = True
                self.notes.append(in_words(files.log.path, verdict))
            elif verdict.kind not in END_KINDS:
                self.is_unreadable = True
                self.notes.append(
                    f"{files.log.path}: positions {verdict.start_pos} to {verdict.end_pos} were "
                    f"not searched: {verdict.kind}: {verdict.reason}"
                )
        if not is_found:
            self.notes.append("no record has that key")

    def by_position(self, pos: int, *, base_offset: int | None = None) -> Location | None:
        """Find the batch with a byte of a segment.

        Args:
            pos: from the start of the segment's file.
            base_offset: of the segment. None if the partition has only one.

        Raises:
            UsageError: no segment is given, or it does not exist.
        """
        segments = self.partition.segments
        if base_offset is None and len(segments) != 1:
            raise UsageError(
                f"{len(segments)} segments in {self.partition.path}",
                next_step="name one with --segment BASE_OFFSET",
            )
        files = next((each for each in segments if base_offset in {None, each.base_offset}), None)
        if files is None:
            raise UsageError(f"{self.partition.path}: no segment {base_offset}")
        before: ScannedBatch | None = None
        with open_segment(files.log.path) as segment:
            scan = segment.scan(**self.partition.bounds(files))
            for before in scan:
                if before.pos <= pos < before.pos + before.header.batch_bytes:
                    return self._location(files, before, None)
                if before.pos > pos:
                    break
            file_bytes = segment.file_bytes
        if pos >= file_bytes:
            self.notes.append(f"{files.log.path} has only {file_bytes} bytes")
        for verdict in scan.verdicts:
            if verdict.start_pos <= pos < verdict.end_pos:
                self.notes.append(
                    f"position {pos} is in no batch: {verdict.kind} from {verdict.start_pos} to "
                    f"{verdict.end_pos}: {verdict.reason}"
                )
        return None

    def _record(self, files: SegmentFiles, batch: ScannedBatch, offset: int) -> LogRecord | None:
        try:
            with open_segment(files.log.path) as segment:
                return next(
                    (each for each in segment.records(batch) if each.offset == offset), None
                )
        except (FormatError, AccessError) as exc:
            self._pass_over(exc)
            return None

    def _pass_over(self, exc: FormatError | AccessError) -> None:
        self.is_unreadable = True
        self.notes.append(str(exc))

    def _note_end(self, offset: int) -> None:
        end = self.partition.log_end()
        if end is None:
            self.notes.append(f"{self.partition.path} has no segments")
        else:
            self.notes.append(f"offset {offset} is not below the log end offset {end.offset}")

    def _location(
        self,
        files: SegmentFiles,
        batch: ScannedBatch,
        record: LogRecord | None,
        *,
        timestamp_ms: int | None = None,
    ) -> Location:
        header = batch.header
        number = self.partition.partition
        offset = header.last_offset if record is None else record.offset
        if timestamp_ms is None:
            timestamp_ms = header.max_timestamp_ms if record is None else record.timestamp_ms
        index = self._index_entry(files, offset)
        times = self._time_index_entry(files, timestamp_ms)
        return Location(
            topic=self.partition.topic,
            partition=number if number >= 0 else None,
            offset=None if record is None else record.offset,
            timestamp_ms=None if record is None else record.timestamp_ms,
            segment_base_offset=files.base_offset,
            batch_pos=batch.pos,
            batch_bytes=header.batch_bytes,
            batch_base_offset=header.base_offset,
            batch_last_offset=header.last_offset,
            batch_max_timestamp_ms=header.max_timestamp_ms,
            crc_ok=batch.crc_ok,
            index_offset=index[0],
            index_pos=index[1],
            index_holds=index[2],
            time_index_timestamp_ms=times[0],
            time_index_offset=times[1],
            time_index_holds=times[2],
            path=files.log.path,
        )

    def _index_entry(
        self, files: SegmentFiles, offset: int
    ) -> tuple[int | None, int | None, bool | None]:
        """Return the entry that a reader of `offset` begins at: offset, position, and its truth."""
        entries, _ = self._indexes(files)
        relative_offset = offset - files.base_offset
        place = bisect_right(entries, relative_offset, key=attrgetter("relative_offset"))
        if not place:
            return None, None, None
        entry = entries[place - 1]
        with open_segment(files.log.path) as segment:
            holds = lookup.entry_holds(segment, entry, is_active=self.partition.is_active(files))
        return files.base_offset + entry.relative_offset, entry.segment_pos, holds

    def _time_index_entry(
        self, files: SegmentFiles, timestamp_ms: int
    ) -> tuple[int | None, int | None, bool | None]:
        """Return the entry that a search by time begins at: timestamp, offset, and its truth."""
        entries, times = self._indexes(files)
        place = bisect_right(times, timestamp_ms, key=attrgetter("timestamp_ms"))
        if not place:
            return None, None, None
        entry = times[place - 1]
        with open_segment(files.log.path) as segment:
            holds = lookup.time_entry_holds(
                segment, entry, entries, is_active=self.partition.is_active(files)
            )
        return entry.timestamp_ms, files.base_offset + entry.relative_offset, holds

    def _indexes(
        self, files: SegmentFiles
    ) -> tuple[Sequence[OffsetIndexEntry], Sequence[TimeIndexEntry]]:
        """Return the entries of both indexes, read once: a key may be found thousands of times."""
        if files.base_offset not in self._entries:
            self._entries[files.base_offset] = (
                self.partition.index_entries(files),
                self.partition.time_index_entries(files),
            )
        return self._entries[files.base_offset]
