"""One pass over the batches of a segment, with a verdict for every stretch that is not good.

The walk is the walk of the broker's file reader (WALK 1 to 5, class FileLogInputStream). With
`resume=False` it yields the batches that the broker would get, and stops where the broker stops or
raises. With `resume=True` it continues behind damage. A scan never raises for bad bytes.

    Data at a position                                 kind           check id   continues
    the end of the range                               (ok)
    1 to 17 bytes before the end, whatever they are    torn_tail        SEG-6    no
    a length that reaches beyond the end               torn_tail        SEG-6    resume
    only zeros to the end                              preallocated     SEG-6    no
    a length below 14 (v2: 49)                         corrupt          BAT-2    resume (v2: yes)
    a batch that breaks a rule of kernels.pure         corrupt          its id   yes
    bytes that the operating system cannot read        unreadable       ""       resume

In a segment that is not the last segment (is_active=False) the three SEG-6 verdicts are corrupt, by
SEG-5.

After a failed checksum no field of the batch is trusted, not even its length (with resume=True):

- Its length is trusted if the file ends there, or if a proven batch begins there. It is also
  trusted if the chain of lengths from there leads exactly to the next proven batch. Without such a
  batch the chain must lead to the end, zeros or a torn batch. The result is a row with crc_ok False
  and the verdict BAT-1.
- Otherwise it is not trusted. It is not trusted either if proven batches inside form a chain with
  the same end (a length that includes its neighbours). The result is the verdict BAT-2 up to a
  proven batch, and no row.

A batch behind a gap is trusted if the batches behind it do not contradict its offset
(`offset_order`). If they do, it is a row with the verdict BAT-3, and the following batches are
judged as if it did not exist. A torn tail with good batches inside is corrupt. A batch whose
checksum holds for magic 2 is a row of magic 2, whatever its magic is, with a verdict that is no
loss (BAT-1, or above 2 BAT-2). See `resync` for the proof of a batch and its cost. A scan without
budget left gives up with BAT-2 to the end. Bytes that need not be read (with verify_crc=False) are
not judged.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from storage.files.positioned_file import FileRange, ReadWindow, Unreadable
from storage.formats.record_batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    MIN_BATCH_LENGTH,
    BatchHeader,
)
from storage.kernels.offset_order import INSPECTED_COUNT, OffsetOrder, Span
from storage.kernels.protocol import ScannedBatch, Verdict, VerdictKind
from storage.kernels.pure import (
    LEGACY_HEADER,
    MIN_LENGTH,
    PREFIX,
    PREFIX_BYTES,
    Neighbours,
    compute_checksum,
    crc_start_pos,
    judge,
    parse_frame,
    scan_window,
    suspect,
)
from storage.kernels.resync import CrcReader, Resync, header_as_v2

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from storage.files.positioned_file import PositionedFile
    from storage.kernels.offset_order import ClaimedEnd

WINDOW_BYTES = 1 << 20
MAX_WINDOW_BYTES = 8 << 20

# Rows to yield and the next position. None: the scan is over.
Step = tuple[list[ScannedBatch], int | None]


class Scan:
    """Iterator of ScannedBatch. Verdicts may run ahead of the rows by one window.

    Attributes:
        start_pos, end_pos: the range. `end_pos` moves down if the file shrinks meanwhile. Rows that
            were read before may lie beyond it.
        verdicts: every stretch that is not ok, by position.
        suspicions: legal data that no healthy broker writes (BAT-10, BAT-14).
        valid_bytes: end of the last whole batch of the broker's walk, which ignores checksums.
        resynced: further rows are behind a break of the chain.
        wrong_magics: by position, the stored magic of batches whose checksum proves magic 2.
        max_window_bytes: larger batches are checked singly.
    """

    max_window_bytes = MAX_WINDOW_BYTES

    def __init__(
        self,
        file: PositionedFile,
        base_offset: int | None,
        *,
        start_pos: int = 0,
        end_pos: int | None = None,
        verify_crc: bool = True,
        is_active: bool = True,
        resume: bool = True,
        end_offset: int | None = None,
        claimed_end: ClaimedEnd | None = None,
    ) -> None:
        self.start_pos = start_pos
        self.verdicts: list[Verdict] = []
        self.suspicions: list[Verdict] = []
        self.valid_bytes = start_pos
        self.resynced = False
        self.wrong_magics: dict[int, int] = {}
        self._range = FileRange(file, end_pos)
        self._verify_crc = verify_crc
        self._is_active = is_active
        self._resume = resume
        reached_offset = end_offset or (0 if claimed_end is None else claimed_end.offset)
        self._neighbours = Neighbours(base_offset, end_offset, reached_offset)
        left = max(self._range.end_pos - start_pos, 0)
        self._window = ReadWindow(self._range, min(WINDOW_BYTES, left))
        self._crcs = CrcReader(self._range)
        self._search = Resync(self._range, self._neighbours, self._crcs)
        self._order = OffsetOrder(self._search, end_offset, claimed_end)
        self._doubts: dict[int, str] = {}  # by position, why an offset is not trusted
        self._is_plain = True  # still on the broker's walk: valid_bytes follows
        self._believed_end_pos = 0  # lengths before it are proven by the chain
        self._rows = chain.from_iterable(self._blocks())

    def __iter__(self) -> Iterator[ScannedBatch]:
        return self._rows

    def __next__(self) -> ScannedBatch:
        return next(self._rows)

    def continue_after(self, last_offset: int, leader_epoch: int) -> None:
        """Begin, before the first row, behind healthy batches of another walk."""
        self._neighbours.last_offset = last_offset
        self._neighbours.leader_epoch = leader_epoch
        self._search.seen_v2 = last_offset >= 0

    @property
    def last_offset(self) -> int:
        """The last offset of the last trusted batch, or -1 before the first."""
        return self._neighbours.last_offset

    @property
    def end_pos(self) -> int:
        """The end of the scanned range."""
        return self._range.end_pos

    @property
    def shrank(self) -> bool:
        """Return whether the file became shorter during the scan."""
        return self._range.shrank

    @property
    def unreadable(self) -> list[Unreadable]:
        """The exact stretches that could not be read so far."""
        return list(self._range.unreadable)

    @property
    def verdict(self) -> Verdict:
        """The first verdict that is not ok, or ok for the whole range."""
        if self.verdicts:
            return self.verdicts[0]
        return Verdict(VerdictKind.OK, self.start_pos, max(self.start_pos, self.end_pos))

    def _blocks(self) -> Iterator[list[ScannedBatch]]:
        """Yield rows in lists: many from the hot loop, or one that needed a single check."""
        pos: int | None = self.start_pos
        while pos is not None:
            pos = yield from self._run(pos)
            is_legacy = True
            while is_legacy and pos is not None:
                rows, pos = self._step(pos)
                is_legacy = bool(rows) and rows[-1].header.magic < MAGIC_V2
                if rows:
                    yield rows

    def _run(self, pos: int) -> Generator[list[ScannedBatch], None, int]:
        """Use the hot loop as far as possible. Returns the position where it stopped."""
        window, neighbours, wanted_bytes = self._window, self._neighbours, HEADER_BYTES
        while True:
            start_pos = self._start_of_window(pos)
            if start_pos != pos:
                pos, wanted_bytes = start_pos, HEADER_BYTES
            left = window.load(pos, wanted_bytes)
            at = pos - window.pos
            last_offset, leader_epoch = neighbours.last_offset, neighbours.leader_epoch
            rows, stop = scan_window(
                window.buf,
                at,
                at + left,
                file_pos=window.pos,
                neighbours=neighbours,
                verify_crc=self._verify_crc,
            )
            doubted = self._first_doubted_row(rows, last_offset)
            if doubted is not None:
                stop = rows[doubted].pos - window.pos
                del rows[doubted:]
                neighbours.last_offset, neighbours.leader_epoch = last_offset, leader_epoch
                for each in rows:
                    judge(each.header, each.crc_ok, neighbours)
            if stop > at:
                left -= stop - at
                self._passed(window.pos + stop)
                pos = window.pos + stop
                self._search.seen_v2 = True
                yield rows
            if doubted is not None:
                return pos
            wanted_bytes = self._cut_batch_bytes(pos, left)
            if not wanted_bytes:
                return pos

    def _start_of_window(self, pos: int) -> int:
        """Return the start of the next window. A subclass may have read further already."""
        return pos

    def _cut_batch_bytes(self, pos: int, left: int) -> int:
        """Return the size to load if the batch at `pos` goes beyond the window, else 0."""
        window, most_bytes = self._window, self.max_window_bytes
        end_pos = window.pos + window.count
        if pos + left < end_pos or end_pos >= self._range.end_pos:
            return 0
        if left < HEADER_BYTES:
            return HEADER_BYTES
        _, length, _, magic = PREFIX.unpack_from(window.buf, pos - window.pos)
        size = int(length) + LOG_OVERHEAD_BYTES
        if magic != MAGIC_V2 or size <= left or size > min(most_bytes, self.end_pos - pos):
            return 0
        capacity_bytes = window.capacity_bytes
        if size * 4 > capacity_bytes < most_bytes:
            window.grow(min(most_bytes, max(size, capacity_bytes * 2)))
        return size

    def _first_doubted_row(self, rows: list[ScannedBatch], last_offset: int) -> int | None:
        first = max(0, len(rows) - INSPECTED_COUNT)
        spans = [Span.of(each.pos, each.header) for each in rows[first:]]
        if first:
            last_offset = rows[first - 1].header.last_offset
        doubted = self._doubted_of(spans, last_offset)
        return None if doubted is None else first + doubted

    def _doubted_of(self, spans: list[Span], last_offset: int) -> int | None:
        """Return the first of the last healthy batches whose offset is not trusted."""
        before = max(last_offset, self._neighbours.min_offset - 1)
        for number, span in enumerate(spans):
            if last_offset < 0 and span.start_pos == self.start_pos > 0:
                before = span.last_offset  # a start inside the file was chosen by the caller
                continue
            doubt = self._order.doubt(span, before, spans[number + 1 :])
            if doubt:
                self._doubts[span.start_pos] = doubt
                return number
            before = span.last_offset
        return None

    def _passed(self, end_pos: int) -> None:
        """Note that the walk reached `end_pos` by lengths."""
        if self._is_plain:
            self.valid_bytes = end_pos

    def _step(self, pos: int) -> Step:
        """Decide about one place where the hot loop stopped."""
        left = self.end_pos - pos
        readable = self._window.load(pos, min(max(left, 0), HEADER_BYTES))
        left = self.end_pos - pos
        if left <= 0:
            return [], None
        if left <= PREFIX_BYTES:
            self._end(VerdictKind.TORN_TAIL, pos, f"{left} bytes are no batch")
            return [], None
        if readable < PREFIX_BYTES:
            return self._pass_unreadable(pos, PREFIX_BYTES)
        if self._resume and self._crcs.budget_bytes <= 0:
            return self._skip(pos, None, "given up: too much damage that looks like batches")
        at, buf = pos - self._window.pos, self._window.buf
        _, length, _, magic = PREFIX.unpack_from(buf, at)
        if length < MIN_LENGTH:
            if self._range.is_zero_from(pos):
                self._end(VerdictKind.PREALLOCATED, pos, "zeros to the end")
                return [], None
            return self._break(pos, f"length {length} is below {MIN_LENGTH}")
        size = length + LOG_OVERHEAD_BYTES
        if size > left:
            return self._break_torn(pos, f"{left} bytes are left of a batch of {size}")
        header_bytes = HEADER_BYTES if magic >= MAGIC_V2 else LEGACY_HEADER.size
        if (
            magic >= MAGIC_V2
            and length < MIN_BATCH_LENGTH
            and (self._resume or left < HEADER_BYTES)
        ):
            reason = f"length {length} is below {MIN_BATCH_LENGTH}, the least of magic {magic}"
            return self._break(pos, reason, plain_size=size)
        if readable < header_bytes:
            return self._pass_unreadable(pos, size)
        return self._judge_batch(pos, parse_frame(buf, at), readable)

    def _judge_batch(self, pos: int, header: BatchHeader, readable: int) -> Step:
        """Decide about a batch whose frame is whole."""
        next_pos = pos + header.batch_bytes
        crc_ok = self._check_crc(pos, header, readable)
        if self._range.first_unreadable(pos, next_pos) is not None:
            return self._pass_unreadable(pos, header.batch_bytes)
        if next_pos > self.end_pos:  # the file shrank during the checksum
            return self._break_torn(pos, f"the file shrank to {self.end_pos} bytes")
        wrong_magic: int | None = None
        if self._resume and header.magic != MAGIC_V2:
            proven = self._proven_v2(pos, header, crc_ok)
            if proven is not None:
                wrong_magic, header, crc_ok = header.magic, proven, True
        if crc_ok is False and self._resume and pos >= self._believed_end_pos:
            skip_to_pos, is_believed = self._doubt_length(pos, next_pos)
            if not is_believed:
                reason = f"checksum and length {header.batch_length} do not hold"
                return self._skip(pos, skip_to_pos, reason, plain_pos=next_pos)
        if header.magic >= MAGIC_V2:
            self._search.seen_v2 = self._search.seen_v2 or crc_ok is not False
        else:
            self._search.seen_legacy = self._search.seen_legacy or crc_ok is not False
        neighbours = self._neighbours
        epoch_before = neighbours.leader_epoch
        doubt = self._doubts.pop(pos, "")
        if not doubt and crc_ok is not False and neighbours.is_in_range(header):
            doubt = self._order.doubt(Span.of(pos, header), neighbours.before)
        problem = judge(header, crc_ok, neighbours, doubt)
        if problem is not None:
            self._note(VerdictKind.CORRUPT, pos, next_pos, *problem)
        elif wrong_magic is not None:
            # To a broker a magic below 2 is an old message, whose checksum does not match.
            check_id = "BAT-1" if wrong_magic < MAGIC_V2 else "BAT-2"
            reason = f"magic {wrong_magic}, where the checksum holds for magic {MAGIC_V2}"
            self._note(VerdictKind.CORRUPT, pos, next_pos, check_id, reason, is_lost=False)
            self.wrong_magics[pos] = wrong_magic
        if problem is None or problem.check_id in ("BAT-3", "BAT-7"):
            for check_id, reason in suspect(header, epoch_before):
                verdict = Verdict(
                    kind=VerdictKind.SUSPICIOUS,
                    start_pos=pos,
                    end_pos=next_pos,
                    check_id=check_id,
                    reason=reason,
                )
                self.suspicions.append(verdict)
        self._passed(next_pos)
        return [ScannedBatch(pos, header, crc_ok)], next_pos

    def _proven_v2(self, pos: int, header: BatchHeader, crc_ok: bool | None) -> BatchHeader | None:
        """Return the header of a v2 batch with another magic, which no checksum covers."""
        is_legacy = header.magic < MAGIC_V2
        if crc_ok is None or crc_ok is is_legacy or header.batch_length < MIN_BATCH_LENGTH:
            return None  # not wanted, a right old message, or an impossible length
        head = self._range.read(pos, HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return None
        proven = header_as_v2(head)
        if is_legacy:
            if header.batch_bytes > self._crcs.budget_bytes:
                return None
            self._crcs.budget_bytes -= header.batch_bytes
            if not self._crcs.matches(pos, proven):
                return None
        return proven

    def _check_crc(self, pos: int, header: BatchHeader, readable: int) -> bool | None:
        """Compute the checksum. None if not wanted, or if not readable, which the caller checks."""
        if header.magic >= MAGIC_V2 and header.batch_length < MIN_BATCH_LENGTH:
            return False  # too short for its checksummed fields
        if not self._verify_crc:
            return None
        size = header.batch_bytes
        if size <= readable:
            at = pos - self._window.pos
            with memoryview(self._window.buf) as view:
                body = view[at + crc_start_pos(header.magic) : at + size]
                is_right = compute_checksum(body, header.magic) == header.crc
        else:
            matches = self._crcs.matches(pos, header)
            if matches is None:
                return None
            is_right = matches
        if not is_right:
            self._crcs.budget_bytes -= size
        return is_right

    def _doubt_length(self, pos: int, next_pos: int) -> tuple[int | None, bool]:
        """Return the next position after a failed checksum, and whether the length is trusted."""
        search = self._search
        if next_pos == self.end_pos or search.is_verified(next_pos):
            inner_pos = search.chain_inside(pos, next_pos)
            return (next_pos, True) if inner_pos is None else (inner_pos, False)
        found_pos = search.next_verified(pos + 1)
        if found_pos is None:
            is_believed = search.leads_to_end(next_pos)
        else:
            is_believed = search.leads_to(next_pos, found_pos)
        if is_believed:
            self._believed_end_pos = self.end_pos if found_pos is None else found_pos
            return next_pos, True
        return found_pos, False

    def _break(self, pos: int, reason: str, *, plain_size: int = 0) -> Step:
        """End the walk at a broken chain, or search the data behind it."""
        if not self._resume:
            self._note(VerdictKind.CORRUPT, pos, self.end_pos, "BAT-2", reason)
            return [], None
        found_pos = self._search.next_verified(pos + 1)
        if found_pos is None:
            found_pos = self._search.next_in_spite(pos)
        return self._skip(
            pos, found_pos, reason, plain_pos=pos + plain_size if plain_size else None
        )

    def _break_torn(self, pos: int, reason: str) -> Step:
        """Judge a batch that reaches beyond the end: a torn tail, unless good batches follow."""
        found_pos = None
        if self._resume:
            found_pos = self._search.next_verified(pos + 1)
            if found_pos is None:
                found_pos = self._search.next_in_spite(pos, may_be_torn=True)
        if found_pos is None:
            self._end(VerdictKind.TORN_TAIL, pos, reason)
            return [], None
        return self._skip(pos, found_pos, reason)

    def _pass_unreadable(self, pos: int, size: int) -> Step:
        """Pass a batch with an unreadable byte. Continues behind it if its length is certain."""
        hole = self._range.first_unreadable(pos, pos + size)
        if hole is None:  # the file shrank: try again with the new end
            return [], pos
        reason = f"positions {hole.start_pos} to {hole.end_pos}: {hole.strerror}"
        target_pos: int | None = None
        if self._resume:
            next_pos = pos + size
            if hole.end_pos <= next_pos < self.end_pos and self._search.is_verified(next_pos):
                target_pos = next_pos
            else:
                target_pos = self._search.next_verified(pos + 1)
        end_pos = self.end_pos if target_pos is None else target_pos
        self._note(VerdictKind.UNREADABLE, pos, end_pos, "", reason, hole.errno)
        self._is_plain = False
        self.resynced = True
        return [], target_pos

    def _skip(
        self, pos: int, target_pos: int | None, reason: str, *, plain_pos: int | None = None
    ) -> Step:
        """Skip [pos, target_pos). `plain_pos` is where the broker's walk would continue."""
        end_pos = self.end_pos if target_pos is None else target_pos
        self._note(VerdictKind.CORRUPT, pos, end_pos, "BAT-2", reason)
        if self._is_plain and plain_pos is not None:
            self.valid_bytes = self._walk_plainly(plain_pos)
        self._is_plain = False
        self.resynced = self.resynced or target_pos is not None
        return [], target_pos

    def _walk_plainly(self, pos: int) -> int:
        """Follow lengths as the broker does. Returns the end of the last whole batch."""
        while pos < self.end_pos - PREFIX_BYTES:
            prefix = self._range.read(pos, PREFIX_BYTES)
            if len(prefix) < PREFIX_BYTES:
                break
            _, length, _, magic = PREFIX.unpack(prefix)
            if length < MIN_LENGTH or pos > self.end_pos - LOG_OVERHEAD_BYTES - length:
                break
            if magic >= MAGIC_V2 and pos > self.end_pos - HEADER_BYTES:
                break
            pos += LOG_OVERHEAD_BYTES + length
        return pos

    def _end(self, kind: VerdictKind, pos: int, reason: str) -> None:
        if self._is_active:
            self._note(kind, pos, self.end_pos, "SEG-6", reason)
        else:
            self._note(VerdictKind.CORRUPT, pos, self.end_pos, "SEG-5", reason)

    def _note(
        self,
        kind: VerdictKind,
        start_pos: int,
        end_pos: int,
        check_id: str,
        reason: str,
        errno: int = 0,
        *,
        is_lost: bool = True,
    ) -> None:
        if start_pos < end_pos:  # else the file has become shorter
            verdict = Verdict(
                kind=kind,
                start_pos=start_pos,
                end_pos=end_pos,
                check_id=check_id,
                reason=reason,
                errno=errno,
                is_lost=is_lost,
            )
            self.verdicts.append(verdict)
