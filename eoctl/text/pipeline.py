"""Two processes render the healthy start of one large log: pieces of the file in turn.

Piece i holds the batches that begin in [i, i + 1) times the piece size. Each process renders its
next piece ahead, from the first place in it that holds a batch with a right checksum; that is a
guess. The baton goes from process to process with the right to write: it says where the piece
before ended, and with which offset and epoch. If the guess agrees with it, the text that is ready
is the right one, because each batch was reached from a true start by its length; if not, the piece
is rendered again from the true start. So the result never depends on a guess: it is what one
process would write.

Anything but healthy batches ends the work of two: the baton then says how far it came, and the
caller goes on alone from there. The child reports nothing: what it cannot render is left to the
parent.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from copy import copy
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from eoctl.text.renderers import DeepRenderer, OffsetFollower
from recovery.work.processes import ChildProcess, WorkerLostError
from storage.errors import EoctlError
from storage.formats.record_batch import CODEC_MASK, HEADER_BYTES, LOG_OVERHEAD_BYTES
from storage.kernels import pure
from storage.kernels.layouts import empty_table
from storage.kernels.numpy_kernel import BulkWindow, scan_window
from storage.kernels.pure import LENGTH_POS, Neighbours

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from eoctl.text.renderers import HeaderRenderer
    from storage.errors import FormatError
    from storage.log.segment import Segment

PIECE_BYTES = 4 << 20
COMPRESSED_PIECE_BYTES = 1 << 20  # its text may be many times larger
MORE_BYTES = 64 << 10  # read beyond a piece: most batches that begin in it end there
MAX_BATCH_BYTES = 8 << 20
MAX_TEXT_BYTES = 32 << 20  # that a process may hold ready

GUESS_BYTES = 64 << 10

_BATCH_LENGTH = Struct(">i")
# What all but giants have in common: offset below 2^56, length, last offset delta and count below
# 2^24, magic 2, no unused attributes. Overlapping places match too.
_LIKE_A_HEADER = re.compile(rb"(?=\0.{7}(\0.{3}).{4}\x02.{4}\0.\0.{33}\0)", re.DOTALL)


class Baton(NamedTuple):
    """How far the log is written, and what the next piece must continue.

    Attributes:
        pos: end of the last batch written.
        last_offset, leader_epoch: as `Neighbours`, at `pos`.
        last_record_offset: of the last record written, -1 before the first.
        non_consecutive: found in the piece before.
        is_over: the work of two ends at `pos`.
        errno: with which writing failed; 0 if it did not.
        sure: what was so where the last piece with batches began, before which nothing is doubtful:
            its `pos`, `last_offset` and `leader_epoch`.
    """

    pos: int
    last_offset: int
    leader_epoch: int
    last_record_offset: int
    non_consecutive: dict[int, int]
    is_over: bool
    errno: int
    sure: tuple[int, int, int] = (0, -1, -1)


FIRST_BATON = Baton(
    pos=0,
    last_offset=-1,
    leader_epoch=-1,
    last_record_offset=-1,
    non_consecutive={},
    is_over=False,
    errno=0,
)


class _CannotRenderError(Exception):
    """The piece needs what only the caller of two processes can do, or too much memory."""


def _leave_to_caller(error: FormatError) -> None:
    raise _CannotRenderError from error


class _Piece(NamedTuple):
    """A piece that is rendered; its text is the worker's and not yet written."""

    start_pos: int
    end_pos: int
    is_over: bool  # what follows is not a healthy batch, or the end
    first_offset: int | None  # None: no batches
    first_epoch: int  # the first that is known, -1 if none
    neighbours: Neighbours  # after it
    follower: OffsetFollower

    def continues(self, baton: Baton) -> bool:
        """Whether this piece, rendered from a guess, is what follows the baton."""
        if self.start_pos != baton.pos or self.first_offset is None:
            return False
        is_newer = self.first_epoch < 0 or self.first_epoch >= baton.leader_epoch
        return is_newer and self.first_offset > baton.last_offset


class _Renderer:
    """One of the two: renders every other piece."""

    def __init__(
        self,
        segment: Segment,
        renderer: HeaderRenderer,
        fd: int,
        end_pos: int,
        end_offset: int | None = None,
    ) -> None:
        self._segment = segment
        self._end_offset = end_offset
        self._renderer = renderer
        if isinstance(renderer, DeepRenderer):
            renderer.on_error = _leave_to_caller
        self._fd = fd
        self._end_pos = end_pos
        head = segment.file.read_at(0, HEADER_BYTES).data
        is_compressed = len(head) == HEADER_BYTES and head[22] & CODEC_MASK
        self._piece_bytes = COMPRESSED_PIECE_BYTES if is_compressed else PIECE_BYTES
        self._buf = bytearray(self._piece_bytes + MORE_BYTES)
        self._text = _Text()

    def render_ahead(self, index: int) -> _Piece | None:
        """Render a piece from a guess. None if that came to nothing, for whatever reason.

        A wrong guess may lie inside a value that looks like batches: anything may be raised.
        """
        start_pos, limit_pos = index * self._piece_bytes, (index + 1) * self._piece_bytes
        if start_pos >= self._end_pos:
            return None
        try:
            if index:
                found_pos = self._guess(start_pos, limit_pos)
                if found_pos is None:
                    return None
                start_pos = found_pos
            return self._render(start_pos, limit_pos, FIRST_BATON if not index else None)
        except Exception:  # noqa: BLE001 - see above
            return None

    def _new_neighbours(self) -> Neighbours:
        return Neighbours(self._segment.known_base_offset, self._end_offset)

    def _guess(self, start_pos: int, limit_pos: int) -> int | None:
        """Return the first place where a healthy batch seems to begin."""
        file, neighbours = self._segment.file, self._new_neighbours()
        for chunk_pos in range(start_pos, min(limit_pos, self._end_pos), GUESS_BYTES):
            chunk = file.read_at(chunk_pos, GUESS_BYTES + HEADER_BYTES).data
            for match in _LIKE_A_HEADER.finditer(chunk):
                pos = chunk_pos + match.start()
                size = _BATCH_LENGTH.unpack_from(match[1])[0] + LOG_OVERHEAD_BYTES
                batch = file.read_at(pos, min(size, self._end_pos - pos)).data
                rows, _ = pure.scan_window(
                    batch, 0, len(batch), file_pos=pos, neighbours=neighbours, verify_crc=True
                )
                if rows:
                    return pos
        return None

    def take_turn(self, index: int, ready: _Piece | None, baton: Baton) -> Baton:
        """Write the piece that follows `baton`; returns the next baton."""
        limit_pos = (index + 1) * self._piece_bytes
        piece = ready
        if piece is None or not piece.continues(baton):
            try:
                piece = self._render(baton.pos, limit_pos, baton)
            except Exception:  # noqa: BLE001 - the caller will meet it again and can report it
                return baton._replace(non_consecutive={}, is_over=True)
        code = 0
        try:
            self._text.write_to(self._fd)
        except OSError as error:
            code = error.errno or -1
        pairs, last_record_offset = _joined(baton.last_record_offset, piece.follower)
        has_batches = piece.first_offset is not None
        return Baton(
            pos=piece.end_pos,
            last_offset=piece.neighbours.last_offset if has_batches else baton.last_offset,
            leader_epoch=max(baton.leader_epoch, piece.neighbours.leader_epoch),
            last_record_offset=last_record_offset,
            non_consecutive=pairs,
            is_over=piece.is_over or code != 0,
            errno=code,
            sure=(baton.pos, baton.last_offset, baton.leader_epoch) if has_batches else baton.sure,
        )

    def _render(self, start_pos: int, limit_pos: int, baton: Baton | None) -> _Piece:
        """Render the healthy batches from `start_pos` on that begin before `limit_pos`."""
        neighbours = self._new_neighbours()
        if baton is not None:
            neighbours.last_offset = baton.last_offset
            neighbours.leader_epoch = baton.leader_epoch
        renderer = self._renderer
        follower = OffsetFollower(None)
        renderer.write, renderer.follower = self._text.add, follower
        self._text.size = 0
        first_offset, first_epoch = None, -1
        pos, wanted_bytes = start_pos, HEADER_BYTES
        while pos < limit_pos and wanted_bytes:
            window, pos, wanted_bytes = self._next_window(pos, limit_pos, wanted_bytes, neighbours)
            table = window.table
            if table.row_count:
                renderer.render_window(window)
                if first_offset is None:
                    first_offset = int(table.base_offset[0])
                known = table.partition_leader_epoch[table.partition_leader_epoch >= 0]
                if first_epoch < 0 and len(known):
                    first_epoch = int(known[0])
        is_over = not wanted_bytes
        return _Piece(
            start_pos=start_pos,
            end_pos=pos,
            is_over=is_over,
            first_offset=first_offset,
            first_epoch=first_epoch,
            neighbours=neighbours,
            follower=follower,
        )

    def _next_window(
        self, pos: int, limit_pos: int, wanted_bytes: int, neighbours: Neighbours
    ) -> tuple[BulkWindow, int, int]:
        """Scan what one read gives: the window, its end, and how many bytes the next one needs.

        0 bytes: there is no healthy batch at that end.
        """
        size = min(max(limit_pos + MORE_BYTES - pos, wanted_bytes), self._end_pos - pos)
        if size > len(self._buf):
            self._buf = bytearray(size)
        with memoryview(self._buf) as view:
            reading = self._segment.file.read_into(view[:size], pos)
        if reading.unreadable or reading.filled_bytes < size:
            return BulkWindow(empty_table(), self._buf, pos), pos, 0
        table, stop = scan_window(
            self._buf,
            0,
            size,
            file_pos=pos,
            neighbours=neighbours,
            verify_crc=True,
            begin_before=limit_pos - pos,
        )
        next_pos = pos + stop
        next_bytes = HEADER_BYTES
        if next_pos < limit_pos:
            next_bytes = self._cut_batch_bytes(stop, size, self._end_pos - next_pos)
        return BulkWindow(table, self._buf, pos), next_pos, next_bytes

    def _cut_batch_bytes(self, at: int, size: int, left: int) -> int:
        """Return the size of the batch at `at` if only the window's end cuts it, else 0."""
        if size - at < HEADER_BYTES:
            return 0
        length: int = _BATCH_LENGTH.unpack_from(self._buf, at + LENGTH_POS)[0]
        batch_bytes = length + LOG_OVERHEAD_BYTES
        is_cut = size - at < batch_bytes <= min(left, MAX_BATCH_BYTES)
        return batch_bytes if is_cut else 0


class _Text:
    """Keeps what a renderer writes, up to a limit, in one buffer that is used again."""

    def __init__(self) -> None:
        self.size = 0
        self._buf = bytearray()

    def add(self, text: bytes | memoryview) -> None:
        """Copy a text behind what is there."""
        end = self.size + len(text)
        if end > MAX_TEXT_BYTES:
            raise _CannotRenderError
        if end > len(self._buf):
            self._buf += bytes(end - len(self._buf))
        self._buf[self.size : end] = text
        self.size = end

    def write_to(self, fd: int) -> None:
        """Write all of it."""
        with memoryview(self._buf) as view:
            done = 0
            while done < self.size:
                done += os.write(fd, view[done : self.size])


def _joined(last_offset: int, follower: OffsetFollower) -> tuple[dict[int, int], int]:
    """Set the offsets of a piece behind the last one before it: all pairs, the last offset."""
    pairs = follower.non_consecutive
    if follower.first_offset is None or follower.last_offset is None:
        return pairs, last_offset
    if follower.first_offset != last_offset + 1:
        # A pair of the piece itself came later and stays.
        pairs = {last_offset: follower.first_offset, **pairs}
    return pairs, follower.last_offset


def render_with_two(
    segment: Segment,
    renderer: HeaderRenderer,
    fd: int,
    end_pos: int,
    end_offset: int | None = None,
) -> Baton:
    """Render the healthy start of a segment to `fd`; returns where and how to go on.

    The renderer's follower has then seen all records before that. `end_offset` is the base offset
    of the next segment, if there is one.

    Raises:
        OSError: writing failed.
        EoctlError: the second process was ended from outside; its part is missing.
    """
    # Forked: it reads and writes what is open here.
    child = ChildProcess(_be_second, (segment, renderer, fd, end_pos, end_offset), "fork")
    try:
        worker = _Renderer(segment, copy(renderer), fd, end_pos, end_offset)
        baton = _be_first(worker, renderer.follower, child)
    except WorkerLostError as error:
        raise EoctlError(
            "the second process ended before its work was done", next_step="--jobs 1"
        ) from error
    finally:
        # It has nothing to write any more, and may still search a place for a guess.
        child.stop()
    if baton.errno:
        raise OSError(baton.errno, os.strerror(baton.errno))
    return baton


def _be_first(worker: _Renderer, follower: OffsetFollower, second: ChildProcess) -> Baton:
    """Render pieces 0, 2, 4 and so on."""
    baton, index = FIRST_BATON, 0
    while True:
        ready = worker.render_ahead(index)
        if index:
            baton = second.receive()
            follower.non_consecutive.update(baton.non_consecutive)
        if not baton.is_over:
            baton = worker.take_turn(index, ready, baton)
            follower.non_consecutive.update(baton.non_consecutive)
            second.send(baton._replace(non_consecutive={}))
        if baton.is_over:
            follower.last_offset = baton.last_record_offset
            return baton
        index += 2


def _be_second(
    segment: Segment,
    renderer: HeaderRenderer,
    fd: int,
    end_pos: int,
    end_offset: int | None,
    first: Connection,
) -> None:
    """Render pieces 1, 3, 5 and so on, until the baton says that it is over."""
    with suppress(Exception):  # what it cannot render is left to the first, which sees it gone
        worker = _Renderer(segment, renderer, fd, end_pos, end_offset)
        index = 1
        while True:
            ready = worker.render_ahead(index)
            baton: Baton = first.recv()
            if not baton.is_over:
                baton = worker.take_turn(index, ready, baton)
                first.send(baton)
            if baton.is_over:
                return
            index += 2
