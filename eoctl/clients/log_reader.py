"""Reads the records of a partition from an offset on, and again from where it came to.

That is what a consumer's fetches bring, with the damage that they would meet.

Batches are found by the index where its entry leads to a good batch, and walked from there; most
are decoded many at a time. Control batches give no records. Of a batch that is damaged in any way
(a wrong checksum, an offset that cannot be right, content that does not decode) nothing is given:
either the reading ends there with a DamageError, or it is passed over and noted. Damage in front of
the first record that is wanted is none of a consumer's business.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from eoctl.clients.log_damage import Damage, DamageError, NewVerdicts, content_damage
from eoctl.clients.single_records import SingleRecords, decoded_records
from storage import lookup
from storage.errors import AccessError, FormatError
from storage.formats.record_batch import MAGIC_V2
from storage.kernels.protocol import ScannedBatch, VerdictKind
from storage.partition import floor_of
from storage.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from eoctl.clients.bulk_records import IsHidden
    from eoctl.clients.consumed import Records
    from eoctl.clients.table_records import TableRecords
    from storage.kernels.numpy_kernel import BulkWindow
    from storage.partition import Partition
    from storage.partition_files import SegmentFiles
    from storage.scan import Scan
    from storage.segment import Segment

    AnyRecords = Records | TableRecords

MAX_OFFSET = 2**63 - 1
BULK_MIN_BYTES = 1 << 20  # reading less takes less time than importing numpy


class LogReader:
    """Reads on from `next_offset` with every call of `read`.

    Attributes:
        next_offset: of the next record; above all batches that were passed.
        skipped: what was passed over.
        tail: damage at the end of the log that no good batch follows: an append under way looks
            like that, too. The next `read` looks at it again; `finish` takes it for what it is.
    """

    def __init__(
        self,
        partition: Partition,
        next_offset: int,
        *,
        skip_corrupt: bool = False,
        is_hidden: IsHidden = None,
    ) -> None:
        """`is_hidden` tells which transactional data batches are not to be given."""
        self.next_offset = next_offset
        self.skipped: list[Damage] = []
        self.tail: list[Damage] = []
        self._partition = partition
        self._skip_corrupt = skip_corrupt
        self._is_hidden = is_hidden
        self._base_offset = -1  # of the segment to go on in; -1: to be found
        self._pos = 0  # in it
        self._is_before_first = True  # no batch from `next_offset` on was met yet
        self._waiting: list[Damage] = []  # for the next good batch: it tells what is missing
        self._singles = SingleRecords()

    def seek(self, offset: int) -> None:
        """Go on at another offset."""
        self.next_offset = offset
        self._base_offset, self._pos = -1, 0
        self._is_before_first = True
        self._waiting, self.tail = [], []

    @property
    def place(self) -> tuple[int, int]:
        """Base offset of the segment where the next `read` goes on, and the position in it."""
        return self._base_offset, self._pos

    def read(self, end_offset: int = MAX_OFFSET) -> Iterator[AnyRecords]:
        """Give what there is below `end_offset`, as the partition is listed now.

        Raises:
            DamageError: unless it is to be skipped.
            AccessError: a segment has gone since the listing (ENOENT).
        """
        self.tail = []
        files = self._locate()
        while files is not None and self.next_offset < end_offset:
            is_over = yield from self._read_segment(files, end_offset)
            if is_over:
                return
            later = self._after(files)
            if later is not None:
                self._base_offset, self._pos = later.base_offset, 0
            files = later
        if self._waiting:
            self.tail, self._waiting = self._waiting, []

    def finish(self) -> None:
        """Say that nothing follows the tail. Raises DamageError unless it is to be skipped."""
        self._waiting, self.tail = self.tail, []
        if self._waiting:
            self._pos = self._waiting[-1].end_pos
            self._resolve(None)

    # --- segments ---

    def _locate(self) -> SegmentFiles | None:
        """Find where to go on: with the index, if it leads to a good batch."""
        segments = self._partition.segments
        if self._base_offset >= 0:
            base_offset = self._base_offset
            return next((each for each in segments if each.base_offset >= base_offset), None)
        if not segments:
            return None
        files = segments[floor_of(segments, self.next_offset)]
        self._base_offset, self._pos = files.base_offset, 0
        if self.next_offset > files.base_offset:
            entries = self._partition.index_entries(files)
            if entries:
                is_active = self._partition.is_active(files)
                with open_segment(files.log.path) as segment:
                    found = lookup.find_batch(
                        segment, entries, self.next_offset, is_active=is_active
                    )
                if found is not None and found.via_index:
                    self._pos = found.batch.pos
        return files

    def _after(self, files: SegmentFiles) -> SegmentFiles | None:
        base_offset = files.base_offset
        later = (each for each in self._partition.segments if each.base_offset > base_offset)
        return next(later, None)

    def _read_segment(
        self, files: SegmentFiles, end_offset: int
    ) -> Generator[AnyRecords, None, bool]:
        """Read one segment from `_pos` on; returns True if `end_offset` is reached."""
        if files.base_offset != self._base_offset:  # the one to go on in is gone
            self._base_offset, self._pos = files.base_offset, 0
        try:
            segment = open_segment(files.log.path)
        except AccessError as exc:
            if exc.errno == errno.ENOENT:
                raise
            words = (VerdictKind.UNREADABLE, "", exc.message)
            self._waiting.append(Damage(files.log.path, 0, files.log.file_bytes, *words, 0))
            return False
        with segment:
            scan, parts = self._scan(segment, is_active=self._partition.is_active(files))
            verdicts = NewVerdicts(scan, files.log.path)
            for part in parts:
                self._waiting += verdicts.take()
                if not isinstance(part, ScannedBatch):
                    yield from self._flush()
                    is_over = yield from self._read_window(part, segment, end_offset)
                elif part.pos in verdicts.positions:
                    continue
                else:
                    is_over = yield from self._read_single(part, segment, end_offset)
                if is_over:
                    yield from self._flush()
                    return True
            self._waiting += verdicts.take()
            yield from self._flush()
        return False

    def _scan(
        self, segment: Segment, *, is_active: bool
    ) -> tuple[Scan, Iterator[BulkWindow | ScannedBatch]]:
        if segment.file_bytes - self._pos < BULK_MIN_BYTES:
            scan = segment.scan(start_pos=self._pos, is_active=is_active)
            return scan, iter(scan)
        from storage.kernels.numpy_kernel import BulkScan

        bulk = BulkScan(segment, start_pos=self._pos, is_active=is_active)
        return bulk, bulk.parts()

    def _read_window(
        self, window: BulkWindow, segment: Segment, end_offset: int
    ) -> Generator[AnyRecords, None, bool]:
        """Read many batches at a time."""
        from eoctl.clients.bulk_records import records_of_window, stop_in

        self._resolve(int(window.table.base_offset[0]))
        stop = stop_in(window.table, end_offset)
        for each in records_of_window(window, self.next_offset, end_offset, self._is_hidden):
            if isinstance(each, ScannedBatch):
                yield from self._decode(each, segment, end_offset)
                yield from self._flush()
            else:
                self._passed(each.next_offset)
                yield each
        self._pos = stop.pos
        self._passed(stop.next_offset)
        return stop.is_over

    def _read_single(
        self, batch: ScannedBatch, segment: Segment, end_offset: int
    ) -> Generator[AnyRecords, None, bool]:
        """Read a batch of an old format, or one that needed a closer look."""
        header = batch.header
        is_v2 = header.magic >= MAGIC_V2
        if self._waiting:
            yield from self._flush()
            self._resolve(header.base_offset)
        if is_v2 and header.base_offset >= end_offset:
            self._passed(end_offset)
            return True
        is_data = not (header.is_control or (is_v2 and header.records_count == 0))
        if is_data and header.last_offset >= self.next_offset and self._is_visible(batch):
            yield from self._decode(batch, segment, end_offset)
        is_over = header.last_offset + 1 >= end_offset
        self._pos = batch.pos + (0 if header.last_offset >= end_offset else header.batch_bytes)
        self._passed(end_offset if is_over else header.last_offset + 1)
        return is_over

    def _is_visible(self, batch: ScannedBatch) -> bool:
        if self._is_hidden is None or not batch.header.is_transactional:
            return True
        from eoctl.clients.bulk_records import is_visible

        return is_visible(batch, self._is_hidden)

    def _decode(self, batch: ScannedBatch, segment: Segment, end_offset: int) -> Iterator[Records]:
        """Collect the records of a batch that decodes to its end."""
        header = batch.header
        try:
            records = decoded_records(batch, segment)
        except (FormatError, AccessError) as exc:
            yield from self._flush()
            self._lose(content_damage(batch, segment.path, exc))
            return
        for record in records:
            if self.next_offset <= record.offset < end_offset:
                if self._singles.is_full(header):
                    yield from self._flush()
                self._singles.add(header, record)
        self._passed(min(header.last_offset + 1, end_offset))

    def _flush(self) -> Iterator[Records]:
        if self._singles.records:
            yield self._singles.take()

    # --- what was passed ---

    def _passed(self, next_offset: int) -> None:
        if next_offset > self.next_offset:
            self.next_offset = next_offset
            self._is_before_first = False

    def _resolve(self, base_offset: int | None) -> None:
        """A good batch follows the damage that was met, or (None) none does."""
        waiting, self._waiting = self._waiting, []
        if not waiting or (
            self._is_before_first and base_offset is not None and base_offset <= self.next_offset
        ):
            return
        last_offset = None if base_offset is None else base_offset - 1
        for each in waiting:
            self._lose(each._replace(base_offset=self.next_offset, last_offset=last_offset))

    def _lose(self, damage: Damage) -> None:
        if not self._skip_corrupt:
            raise DamageError(damage)
        self.skipped.append(damage)
