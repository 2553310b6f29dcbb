"""A scan whose healthy stretches the native kernel prints, in any number of threads.

What the kernel stops at (a bad place, a batch it does not know) the plain scan looks at, with the
batches before it that a later one may contradict: the rules stay where they are. Behind it the
kernel goes on. After a bad place the plain scan goes first, so that a log of nothing else costs no
more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.files import positioned_file
from storage.kernels.scan import Scan
from storage.limits import as_int64

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from storage.kernels.protocol import ScannedBatch
    from storage.kernels.select import Native
    from storage.log.segment import Segment

MIN_BYTES = 64 << 10  # below this the plain scan is as quick
PIECE_BYTES = 256 << 10  # that a thread reads at once: they stay in the processor's cache
HEADERS_FACTOR = 4  # without records there is little to do, and the handing over is felt


class PrintTo(NamedTuple):
    """What the kernel prints, and where.

    Attributes:
        records: None for batches alone, else whether keys and values are printed, and whether they
            are all that is.
        max_batch_bytes: a batch that would decompress to more is left to the plain scan.
        threads: how many.
        write: takes bytes; None is the standard output, of which nothing may wait in a buffer.
        before: called before anything is printed: what waits goes first. Returns the offset of the
            last record printed.
        after: is told the offset of the last record printed, and the pairs of offsets that followed
            each other and are not neighbours.
    """

    records: tuple[bool, bool] | None
    max_batch_bytes: int
    threads: int
    write: Callable[[bytes], object] | None
    before: Callable[[], int]
    after: Callable[[int, list[tuple[int, int]]], object]


class PrintingScan(Scan):
    """A Scan of a plain file that prints most of its batches, some of which it gives as well.

    Attributes:
        printed_pos: batches before it are printed.
    """

    def __init__(
        self, segment: Segment, native: Native, print_to: PrintTo, **options: object
    ) -> None:
        """Take the options of `Segment.scan`."""
        super().__init__(segment.file, segment.known_base_offset, **options)  # type: ignore[arg-type]
        self.printed_pos = self.start_pos
        self._native = native
        self._print_to = print_to
        self._path = segment.path
        self._name = segment.file.name_to_open_again
        self._careful_pos = 0  # up to here the plain scan goes first

    def _run(self, pos: int) -> Generator[list[ScannedBatch], None, int]:
        pos = yield from super()._run(pos)
        self._careful_pos = pos + MIN_BYTES
        return pos

    def _start_of_window(self, pos: int) -> int:
        # What is printed already may still have to be looked at: see `_print`.
        is_free = pos >= max(self._careful_pos, self.printed_pos)
        if is_free and self._name and self.end_pos - pos >= MIN_BYTES:
            return self._print(pos)
        return pos

    def _print(self, pos: int) -> int:
        """Print what is healthy from `pos` on; returns where the plain scan must begin to look."""
        to, neighbours, watcher = (
            self._print_to,
            self._neighbours,
            positioned_file.current_watcher(),
        )
        last_record_offset = to.before()
        if as_int64(last_record_offset) != last_record_offset:
            return pos  # of a batch whose offset is wrong: the kernel has 64 bits for one
        told_pos = pos

        def tell(end_pos: int) -> None:
            nonlocal told_pos
            if watcher is not None:
                watcher.read(self._path, told_pos, end_pos - told_pos)
            told_pos = end_pos

        printed = self._native.print_log(
            self._name,
            start=(pos, neighbours.last_offset, neighbours.leader_epoch),
            last_record_offset=last_record_offset,
            end_pos=self.end_pos,
            limits=(neighbours.min_offset, neighbours.max_offset),
            records=to.records,
            max_batch_bytes=to.max_batch_bytes,
            threads=to.threads,
            piece_bytes=PIECE_BYTES * (1 if to.records else HEADERS_FACTOR),
            write=to.write,
            tick=tell,
        )
        to.after(printed.last_record_offset, printed.non_consecutive)
        self.printed_pos = max(self.printed_pos, printed.place[0])
        sure_pos, neighbours.last_offset, neighbours.leader_epoch = printed.sure
        return sure_pos
