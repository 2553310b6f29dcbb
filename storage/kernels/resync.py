"""The search for the next good batch behind a place where the chain of lengths is broken.

A candidate is taken if and only if it proves itself:

- v2: magic 2, length and counts possible, attribute bits 8 to 15 zero, codec 0 to 4, CRC-32C.
- v0, v1: magic 0 or 1, length possible, attribute bits 4 to 7 zero, CRC-32. These are searched only
  in a segment that has shown legacy messages or nothing yet.
- both: a base offset above the last trusted offset (see `storage.kernels.offset_order`) and within
  the segment's range, and no unreadable byte.
- both: a possible successor. That is the end, zeros, an unreadable place, or a header with a
  possible offset or a possible length and magic. Behind damage it is a candidate with higher
  offsets.

The last condition exists for topics whose record values are whole batches (mirrors, dumps). Such a
value is a batch with a right checksum, but the bytes behind it are the rest of a record. The
condition is a strong hint and no proof. `Scan.resynced` marks batches after a resynchronisation. If
the checksum stored at the damaged place holds for all bytes up to a candidate, only a frame is
damaged. The batches found inside are then content. If there is no candidate up to the end, batches
with a wrong offset or magic count too (`next_in_spite`). They are reported, and are no torn tail.

Cost: bytes are searched once. A scan has one budget of BUDGET_BYTES and BUDGET_PER_BYTE times the
range. It pays for failed checksums, for checksums of candidates, and for following lengths. So even
a file made to look like large batches everywhere costs time proportional to its size. A candidate
larger than the rest of the budget is skipped. Without any budget left the scan gives up.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import FormatError
from storage.formats.compression import MAX_CODEC
from storage.formats.record_batch import (
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    MIN_BATCH_LENGTH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
)
from storage.kernels.offset_order import INSPECTED_COUNT, Span
from storage.kernels.pure import (
    MIN_LENGTH,
    PREFIX,
    PREFIX_BYTES,
    UNUSED_ATTRIBUTES,
    Neighbours,
    compute_checksum,
    crc_start_pos,
    extend_checksum,
    judge,
    parse_frame,
)
from storage.limits import INT32_MAX, MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.files.positioned_file import FileRange

CHUNK_BYTES = 1 << 20
FIRST_CHUNK_BYTES = 32 << 10  # the next good batch is usually near
LEGACY_HEADER_BYTES = 26
BUDGET_BYTES = 64 << 20
BUDGET_PER_BYTE = 16
CHAIN_STEP_BYTES = 64  # cost of following one length, in bytes of budget
MAGIC_POS = PREFIX_BYTES - 1
# The fields under a v2 checksum: attributes, last offset delta, and a records count that is not 0.
# Otherwise each byte of a stretch of zeros would match. Matches at the first byte.
_LOOSE_HEADER = re.compile(
    rb"(?=[\s\S]{8}[\x00-\x7f][\s\S]{12}\x00[\x00-\x7f][\x00-\x7f]"
    rb"[\s\S]{33}(?!\x00{4})[\x00-\x7f][\s\S]{3})"
)
# The length, which is not 0, magic and attributes of an old message.
_LOOSE_LEGACY_HEADER = re.compile(
    rb"(?=[\s\S]{8}(?!\x00{4})[\x00-\x7f][\s\S]{7}[\x00\x01][\x00-\x0f][\s\S]{8})"
)
_HEADER_BYTES = (LEGACY_HEADER_BYTES, LEGACY_HEADER_BYTES, HEADER_BYTES)  # by magic
MAX_KNOWN_SEARCHES = 8  # with different lower bounds
MAX_WRAPPER_BYTES = 1 << 20
MAX_KNOWN_SPANS = 64
MAX_WAITING = 64  # batches that are good if the next batch is


class _Searched(NamedTuple):
    """The range of a search from `from_pos` on, and its result."""

    from_pos: int
    to_pos: int
    found_pos: int | None
    waiting: tuple[Span, ...]  # skipped because of the bytes that follow


class CrcReader:
    """A reader of checksums of batches of any size, in pieces, paid from one budget."""

    def __init__(self, source: FileRange) -> None:
        self.source = source
        self.budget_bytes = BUDGET_BYTES + BUDGET_PER_BYTE * source.end_pos
        self._buf = bytearray()

    def matches(self, pos: int, header: BatchHeader) -> bool | None:
        """Return whether the checksum of the batch at `pos` is right. None if it cannot be read."""
        if not self._buf:
            self._buf = bytearray(CHUNK_BYTES)
        source = self.source
        at_pos, end_pos = pos + crc_start_pos(header.magic), pos + header.batch_bytes
        value = 0
        with memoryview(self._buf) as view:
            while at_pos < end_pos:
                count = source.read_into(view[: end_pos - at_pos], at_pos)
                if not count or source.first_unreadable(at_pos, at_pos + count) is not None:
                    return None
                part = view[:count]
                value = extend_checksum(part, header.magic, value)
                at_pos += count
        return value == header.crc


class Resync:
    """A search for the next batch that proves itself. Each scan has its own."""

    def __init__(self, source: FileRange, neighbours: Neighbours, crcs: CrcReader) -> None:
        self._source = source
        self._neighbours = neighbours
        self._crcs = crcs
        self._wholes: dict[Span, Span] = {}  # results for the last wrappers
        self._spans: dict[int, Span | None] = {}  # by position: each is used several times
        self._searched: dict[int, _Searched] = {}  # by the `after` offset of the search
        self.seen_v2 = False
        self.seen_legacy = False

    def next_verified(self, from_pos: int, after: int | None = None) -> int | None:
        """Return the position of the first batch at or behind `from_pos` that proves itself.

        Its offset is above `after`, by default the offset of the last trusted batch.
        """
        after = self._neighbours.last_offset if after is None else after
        known = self._searched.get(after)
        if known is not None and known.from_pos <= from_pos <= known.to_pos:
            return known.found_pos
        waiting: list[Span] = []
        found_pos = self._search(from_pos, after, waiting)
        to_pos = self._source.end_pos if found_pos is None else found_pos
        if len(self._searched) >= MAX_KNOWN_SEARCHES:
            self._searched.clear()
        self._searched[after] = _Searched(
            from_pos=from_pos, to_pos=to_pos, found_pos=found_pos, waiting=tuple(waiting)
        )
        return found_pos

    def _search(self, from_pos: int, after: int, waiting: list[Span]) -> int | None:
        """Return the first good batch, and collect the doubtful batches before it in `waiting`.

        These are doubtful only because of the bytes that follow. A batch between two damaged
        batches is good if its offsets are below the offsets of the next batch.
        """
        for pos, header in self._candidates(from_pos, self._source.end_pos, after):
            span = Span.of(pos, header)
            if not self.is_plausible(span.end_pos, span.last_offset):
                if len(waiting) < MAX_WAITING:
                    waiting.append(span)
                continue
            if waiting and not self._content_ends(from_pos - 1, span.start_pos):
                for each in reversed(waiting):
                    is_before = each.end_pos <= span.start_pos
                    if is_before and each.last_offset < span.base_offset:
                        span = each
            return span.start_pos
        return None

    def _content_ends(self, pos: int, end_pos: int) -> bool:
        """Return whether the checksum stored at `pos` holds for all bytes up to `end_pos`.

        If so, only the frame of a batch is damaged, and all batches found inside are its content.
        """
        head = self._source.read(pos, HEADER_BYTES) if pos >= 0 else b""
        size = end_pos - pos
        if len(head) < HEADER_BYTES or not HEADER_BYTES <= size <= self._crcs.budget_bytes:
            return False
        self._crcs.budget_bytes -= size
        length = size - LOG_OVERHEAD_BYTES
        header = header_as_v2(head)._replace(batch_length=length)
        if self._crcs.matches(pos, header):
            return True
        legacy = parse_frame(head, 0)._replace(batch_length=length)
        return legacy.magic < MAGIC_V2 and bool(self._crcs.matches(pos, legacy))

    def next_in_spite(self, pos: int, *, may_be_torn: bool = False) -> int | None:
        """Return a batch behind damage at `pos`, proven except for fields without a checksum.

        This is the last resort if `next_verified` finds nothing up to the end. The offset, and the
        magic of a v2 batch, may be wrong, and the following bytes may be damaged. Such a batch
        counts in these cases:

        - The checksum stored at `pos` holds for all bytes before it.
        - The bytes at `pos` cannot begin the next batch, in whose values the batch might lie.
        - It begins within the header of the batch at `pos`, where no values are.
        - An end or a header follows it, unless the bytes at `pos` may be a torn batch.

        Args:
            pos: where the chain is broken.
            may_be_torn: the batch at `pos` is longer than the rest of the file.
        """
        end_pos = self._source.end_pos
        if self._content_ends(pos, end_pos):
            return None
        is_sound = self._may_begin_batch(pos)
        known = self._searched.get(self._neighbours.last_offset)
        waiting = () if known is None or known.found_pos is not None else known.waiting
        loose = (Span.of(each, header) for each, header in self._loose(pos))
        for each in sorted({*waiting, *loose}):
            if each.start_pos <= pos:
                continue
            if not is_sound and each in waiting:
                return each.start_pos
            if each.start_pos < pos + self._header_bytes(pos):
                return each.start_pos
            if not (is_sound and may_be_torn) and self.is_plausible(each.end_pos, each.last_offset):
                return each.start_pos
            if self._content_ends(pos, each.start_pos):
                return each.start_pos
        return None

    def _header_bytes(self, pos: int) -> int:
        """Return the header length of the batch at `pos`, by its magic."""
        magic = self._source.read(pos, PREFIX_BYTES)[MAGIC_POS:]
        return HEADER_BYTES if magic and magic[0] == MAGIC_V2 else LEGACY_HEADER_BYTES

    def _may_begin_batch(self, pos: int) -> bool:
        """Return whether the bytes at `pos` may begin the next batch."""
        head = self._source.read(pos, HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return True
        offset, _, _, magic = PREFIX.unpack_from(head)
        before = max(self._neighbours.last_offset, self._neighbours.min_offset - 1)
        is_next = before < offset <= self._neighbours.max_offset and 0 <= magic <= MAGIC_V2
        return bool(is_next and (magic < MAGIC_V2 or _has_possible_fields(head)))

    def _loose(self, start_pos: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the batches behind a place with right checksums, whatever else they contain."""
        source = self._source
        patterns = [_LOOSE_HEADER]
        if self.seen_legacy or not self.seen_v2:
            patterns.append(_LOOSE_LEGACY_HEADER)
        pos = start_pos + 1
        while pos < source.end_pos:
            data = source.read(pos, CHUNK_BYTES + HEADER_BYTES)
            for pattern in patterns:
                for match in pattern.finditer(data):
                    at = match.start()
                    if at >= CHUNK_BYTES:
                        break
                    head = data[at : at + HEADER_BYTES]
                    header = header_as_v2(head) if _has_possible_fields(head) else None
                    if pattern is _LOOSE_LEGACY_HEADER:
                        header = parse_frame(head, 0) if _has_possible_length(head) else None
                    if header is not None and self._is_right(pos + at, header):
                        yield pos + at, header
            pos += CHUNK_BYTES

    def _is_right(self, pos: int, header: BatchHeader) -> bool:
        """Return whether there is room for a batch, and its checksum is right."""
        size = header.batch_bytes
        least = HEADER_BYTES if header.magic >= MAGIC_V2 else LOG_OVERHEAD_BYTES + MIN_LENGTH
        if not least <= size <= min(self._source.end_pos - pos, self._crcs.budget_bytes):
            return False
        self._crcs.budget_bytes -= size
        return bool(self._crcs.matches(pos, header))

    def goes_on(self, pos: int, count: int, last_offset: int) -> bool:
        """Return whether the next headers, as far as lengths lead, have ascending offsets."""
        most = self._neighbours.max_offset
        for _ in range(count):
            if pos not in self._spans:
                if len(self._spans) >= MAX_KNOWN_SPANS:
                    self._spans.clear()
                self._spans[pos] = self._span_at(pos)
            span = self._spans[pos]
            if span is None:
                return self.is_end(pos)
            if not last_offset < span.base_offset <= span.last_offset <= most:
                return False
            pos, last_offset = span.end_pos, span.last_offset
        return True

    def _span_at(self, pos: int) -> Span | None:
        """Read the header at `pos`, or return None if there cannot be one. Ignores its checksum."""
        self._crcs.budget_bytes -= CHAIN_STEP_BYTES
        head = self._source.read(pos, HEADER_BYTES)
        if len(head) < LEGACY_HEADER_BYTES or not _has_possible_length(head):
            return None
        magic = head[MAGIC_POS]
        if magic > MAGIC_V2 or len(head) < _HEADER_BYTES[magic]:
            return None
        return Span.of(pos, parse_frame(head, 0))

    def offset_at(self, pos: int) -> int | None:
        """Return the offset in the header at `pos`, damaged or not, or None without a header.

        Only v2 headers are recognized. The other fields of old formats do not prove a header.
        """
        head = self._source.read(pos, HEADER_BYTES)
        if (
            len(head) < HEADER_BYTES
            or head[MAGIC_POS] != MAGIC_V2
            or not _has_possible_fields(head)
        ):
            return None
        return int(PREFIX.unpack_from(head)[0])

    def followers(self, pos: int, count: int, after: int) -> list[Span]:
        """Return the next proven batches from `pos` on, behind damage only those above `after`."""
        found: list[Span] = []
        while len(found) < count and not self.is_end(pos) and self._crcs.budget_bytes > 0:
            header = self.proven_at(pos, -1)
            if header is None:
                next_pos = self.next_verified(pos + 1, after)
                if next_pos is None:
                    break
                pos = next_pos
                header = self.proven_at(pos, after)
                if header is None:
                    break
            span = Span.of(pos, header)
            found.append(span)
            pos = span.end_pos
        return found

    def is_copy(self, one: Span, other: Span) -> bool:
        """Return whether two good batches are duplicates. The headers contain the checksums."""
        header_bytes = (
            self._source.read(each.start_pos, min(HEADER_BYTES, each.end_pos - each.start_pos))
            for each in (one, other)
        )
        offsets = one.base_offset, one.last_offset
        is_same = offsets == (other.base_offset, other.last_offset)
        return is_same and next(header_bytes) == next(header_bytes)

    def whole_span(self, span: Span) -> Span:
        """Return the span with all offsets of a legacy wrapper, not only its last offset."""
        size = span.end_pos - span.start_pos
        head = self._source.read(span.start_pos, LEGACY_HEADER_BYTES)
        is_wrapper = len(head) == LEGACY_HEADER_BYTES and head[MAGIC_POS] < MAGIC_V2
        if not is_wrapper or not head[MAGIC_POS + 1] & CODEC_MASK or size > MAX_WRAPPER_BYTES:
            return span
        from storage.formats.legacy_message import inner_offsets, parse_message

        if span not in self._wholes:
            if len(self._wholes) >= INSPECTED_COUNT:
                self._wholes.clear()
            inner = None
            with suppress(FormatError):
                inner = inner_offsets(parse_message(self._source.read(span.start_pos, size), 0))
            first = span.base_offset if inner is None else inner.first_offset
            self._wholes[span] = span._replace(base_offset=min(first, span.last_offset))
        return self._wholes[span]

    def proven_at(self, pos: int, after: int) -> BatchHeader | None:
        """Return the header of the batch at `pos` if it proves itself."""
        head = self._source.read(pos, HEADER_BYTES)
        return self._verified_header(head, 0, pos, self._source.end_pos, after)

    def chain_inside(self, start_pos: int, end_pos: int) -> int | None:
        """Return the first proven batch in (start_pos, end_pos) whose chain ends at `end_pos`."""
        after = self._neighbours.last_offset
        for pos, header in self._candidates(start_pos + 1, end_pos, after):
            if self.leads_to(pos + header.batch_bytes, end_pos):
                return pos
        return None

    def leads_to(self, pos: int, end_pos: int) -> bool:
        """Return whether following the lengths from `pos` leads exactly to `end_pos`."""
        while pos < end_pos and self._crcs.budget_bytes > 0:
            self._crcs.budget_bytes -= CHAIN_STEP_BYTES
            prefix = self._source.read(pos, PREFIX_BYTES)
            if len(prefix) < PREFIX_BYTES or not _has_possible_length(prefix):
                return False
            pos += LOG_OVERHEAD_BYTES + PREFIX.unpack(prefix)[1]
        return pos == end_pos

    def leads_to_end(self, pos: int) -> bool:
        """Return whether following the lengths from `pos` leads to an end or to a torn batch."""
        while not self.is_end(pos) and self._crcs.budget_bytes > 0:
            self._crcs.budget_bytes -= CHAIN_STEP_BYTES
            prefix = self._source.read(pos, PREFIX_BYTES)
            if len(prefix) < PREFIX_BYTES or not _has_possible_length(prefix):
                return False
            offset, length, _, magic = PREFIX.unpack(prefix)
            pos += LOG_OVERHEAD_BYTES + length
            if pos > self._source.end_pos:
                neighbours = self._neighbours
                is_possible = neighbours.last_offset < offset <= neighbours.max_offset
                return bool(is_possible and 0 <= magic <= MAGIC_V2)
        return self.is_end(pos)

    def is_end(self, pos: int) -> bool:
        """Return whether the chain may end at `pos`: at the end, an ignored tail, or zeros."""
        left = self._source.end_pos - pos
        return 0 <= left <= PREFIX_BYTES or (left > 0 and self._source.is_zero_from(pos))

    def is_plausible(self, pos: int, last_offset: int) -> bool:
        """Return whether the bytes at `pos` may follow a batch that ends with `last_offset`."""
        source = self._source
        if self.is_end(pos) or source.first_unreadable(pos, pos + PREFIX_BYTES) is not None:
            return True
        prefix = source.read(pos, PREFIX_BYTES)
        if len(prefix) < PREFIX_BYTES:
            return True
        if not any(prefix):
            return True
        offset, length, _, magic = PREFIX.unpack(prefix)
        if 0 < offset - last_offset <= INT32_MAX + 1 and offset <= self._neighbours.max_offset:
            return True
        left = source.end_pos - pos - LOG_OVERHEAD_BYTES
        if 0 <= magic <= MAGIC_V2 and length <= left and _has_possible_length(prefix):
            return True
        return _has_possible_fields(source.read(pos, HEADER_BYTES))

    def is_verified(self, pos: int) -> bool:
        """Return whether the bytes at `pos` are a batch that proves itself.

        Ignores the bytes behind it.
        """
        return self.proven_at(pos, self._neighbours.last_offset) is not None

    def _candidates(
        self, start_pos: int, end_pos: int, after: int
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the proven batches that begin in [start_pos, end_pos) and end by `end_pos`."""
        chunk_bytes = FIRST_CHUNK_BYTES
        patterns = self._patterns(end_pos - start_pos, after)
        buf = bytearray()
        pos = start_pos
        while pos < min(end_pos, self._source.end_pos):
            # A batch that begins in a hole has bytes behind the hole.
            pos = max(pos, self._source.next_data_pos(pos) - HEADER_BYTES)
            if len(buf) != chunk_bytes + HEADER_BYTES:
                buf = bytearray(chunk_bytes + HEADER_BYTES)
            with memoryview(buf) as view:
                count = self._source.read_into(view, pos)
            if buf.count(0, 0, count) < count:
                for at in self._matches(buf, count, patterns):
                    if at >= min(chunk_bytes, end_pos - pos):
                        break
                    header = self._verified_header(buf, at, pos + at, end_pos, after, count)
                    if header is not None:
                        yield pos + at, header
            pos += chunk_bytes
            chunk_bytes = min(chunk_bytes * 2, CHUNK_BYTES)

    def _matches(
        self, buf: bytearray, count: int, patterns: list[re.Pattern[bytes]]
    ) -> Iterator[int]:
        """Yield the places in buf[:count] that look like a header, in order."""
        found = [
            (match.start() - MAGIC_POS for match in pattern.finditer(buf, 0, count))
            for pattern in patterns
        ]
        if len(found) == 1:
            return found[0]
        return iter(sorted(chain.from_iterable(found)))

    def _patterns(self, left: int, after: int) -> list[re.Pattern[bytes]]:
        """Return regular expressions for the bytes around the magic.

        The magic comes first because the engine finds a first literal byte fast. The bytes before
        it are checked by a look-behind. The high half of the offset and the high byte of the length
        are nearly constant in one segment and exclude almost all places.
        """
        neighbours = self._neighbours
        first = max(after + 1, neighbours.min_offset)
        most = neighbours.max_offset
        if after >= 0:
            most = min(most, first + MAX_RELATIVE_OFFSET)
        high, last_high = first >> 32, most >> 32
        if last_high - high <= 1:
            halves = {high.to_bytes(4, "big"), last_high.to_bytes(4, "big")}
            offset = b"(?:" + b"|".join(re.escape(half) for half in sorted(halves)) + b")"
        else:
            offset = rb"[\x00-\x7f][\s\S]{3}"
        length = b"[\\x00-\\x%02x]" % min(max(left, 0) >> 24, 0x7F)
        before = offset + rb"[\s\S]{4}" + length + rb"[\s\S]{7}"
        # After an upgrade of its brokers, a segment may continue in format v2 behind older
        # messages.
        behind = rb"[\s\S]{4}\x00[\x00-\x7f][\x00-\x7f]"
        patterns = [re.compile(rb"\x02(?=" + behind + rb")(?<=" + before + rb"\x02)")]
        if self.seen_legacy or not self.seen_v2:
            patterns.extend(
                re.compile(magic + rb"(?=[\x00-\x0f])(?<=" + before + magic + b")")
                for magic in (rb"\x00", rb"\x01")
            )
        return patterns

    def _verified_header(
        self,
        buf: bytearray | bytes,
        at: int,
        pos: int,
        end_pos: int,
        after: int,
        count: int | None = None,
    ) -> BatchHeader | None:
        """Parse and prove the batch at buf[at], byte `pos` of the file, or return None."""
        count = len(buf) if count is None else count
        if count - at < LEGACY_HEADER_BYTES or not _has_possible_length(buf, at):
            return None
        magic = buf[at + MAGIC_POS]
        if magic > MAGIC_V2 or (magic == MAGIC_V2 and count - at < HEADER_BYTES):
            return None
        header = parse_frame(buf, at)
        size = header.batch_bytes
        source, neighbours = self._source, self._neighbours
        if pos + size > end_pos or header.base_offset <= after:
            return None
        alone = Neighbours(None)
        alone.min_offset, alone.max_offset = neighbours.min_offset, neighbours.max_offset
        if judge(header, None, alone) is not None or size > self._crcs.budget_bytes:
            return None
        self._crcs.budget_bytes -= size
        if at + size <= count:
            with memoryview(buf) as view:
                body = view[at + crc_start_pos(header.magic) : at + size]
                is_right = compute_checksum(body, header.magic) == header.crc
            is_read = source.first_unreadable(pos, pos + size) is None
            return header if is_right and is_read else None
        return header if self._crcs.matches(pos, header) else None


def header_as_v2(head: bytes) -> BatchHeader:
    """Read a header in format v2, whatever its magic is, which no checksum covers."""
    return BatchHeader._make(HEADER.unpack(head))._replace(magic=MAGIC_V2)


def _has_possible_length(buf: bytearray | bytes, at: int = 0) -> bool:
    _, length, _, magic = PREFIX.unpack_from(buf, at)
    return bool(length >= (MIN_BATCH_LENGTH if magic >= MAGIC_V2 else MIN_LENGTH))


def _has_possible_fields(head: bytes) -> bool:
    """Return whether the checksummed bytes may belong to a v2 header with records.

    Offset, length and magic are ignored, since all of them may be damaged before a following batch.
    """
    if len(head) < HEADER_BYTES:
        return False
    header = BatchHeader._make(HEADER.unpack(head))
    return (
        not header.attributes & UNUSED_ATTRIBUTES
        and header.attributes & CODEC_MASK <= MAX_CODEC
        and 1 <= header.records_count <= header.last_offset_delta + 1
        and (header.producer_id == NO_PRODUCER_ID) == (header.producer_epoch == NO_PRODUCER_EPOCH)
        and min(header.producer_id, header.producer_epoch, header.base_sequence) >= NO_PRODUCER_ID
    )
