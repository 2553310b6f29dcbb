"""A walk over the batches of a partition from an offset on, and again from the last position.

It meets the damage that a consumer's fetches would meet. Subclasses decide what they return of the
batches: records (`consumer`), or batches (`batch_reader`).

`Partition` decides where a walk begins, which segment is next, and the bounds of a scan. They are
the same as for its own `read`, which returns every batch, damaged or not, without a verdict.

The index finds the first batch if its entry leads to a good batch. The walk continues from there,
mostly many batches at a time. A damaged batch (a wrong checksum, an impossible offset, records that
cannot be decoded) is never returned. Either the walk ends there with a DamageError, or it skips and
notes the batch. Damage before the first wanted record is ignored.
"""

from __future__ import annotations

import errno
import time
from abc import ABC, abstractmethod
from collections import deque
from errno import ENOENT
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypedDict, TypeVar, Unpack

from storage.dirs.lookup import END_KINDS, is_wrong_end
from storage.dirs.offset_ledger import OffsetLedger, begin_of, lost_range
from storage.errors import EXIT_FINDINGS, EXIT_SKIPPED, AccessError, EoctlError, pasted
from storage.file_names import HIGH_WATERMARK_NAME, FileKind, classify
from storage.formats.record_batch import NO_LEADER_EPOCH
from storage.kernels.protocol import ScannedBatch, VerdictKind
from storage.limits import MAX_OFFSET
from storage.log.decoded_records import offsets_inside
from storage.log.segment import DEFAULT_MAX_BATCH_BYTES, open_segment
from storage.places.log_reader import ReadFinding

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from numpy.typing import NDArray

    from eoctl.clients.log.table_records import IsHidden
    from storage.dirs.log_dir import StoppedState
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles
    from storage.kernels.numpy_kernel import BulkWindow
    from storage.kernels.scan import Scan
    from storage.log.segment import Segment

    Place = tuple[int, int]  # base offset of a segment, position in it


# -- waits until a partition directory has changed, and checks whether a place in it still exists


POLL_S = 0.1


class LogWatch:
    """A watch on the active segment, the directory, and the checkpoint of the high watermark."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        # The log may have changed since the listing, so the first wait ends at once.
        self._seen: tuple[object, ...] = ()

    def wait(self) -> bool:
        """Sleep a moment. Return whether something has changed since `refresh`."""
        time.sleep(POLL_S)
        return self.has_changed()

    def has_changed(self) -> bool:
        """Return whether something has changed since `refresh`."""
        return self._inspect() != self._seen

    def refresh(self, places: Iterable[Place]) -> bool:
        """List the partition again. Return whether all places still exist.

        Raises:
            AccessError: the directory was removed.
        """
        partition = self._partition
        self._seen = self._inspect()
        if not Path(partition.path).is_dir():
            error = FileNotFoundError(ENOENT, "the directory is gone while it was followed")
            raise AccessError(error, partition.path)
        partition.refresh()
        partition.notes.clear()  # rolled segments are normal here
        sizes = {each.base_offset: each.log.file_bytes for each in partition.segments}
        return all(sizes.get(base_offset, -1) >= pos for base_offset, pos in places)

    def _inspect(self) -> tuple[object, ...]:
        segments = self._partition.segments
        active = segments[-1].log.path if segments else self._partition.path
        checkpoint = Path(self._partition.path).parent / HIGH_WATERMARK_NAME
        return tuple(map(_state, (Path(self._partition.path), Path(active), checkpoint)))


def _state(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


# -- damage that a consumer meets in a log


def unreadable(path: str, end_pos: int, reason: str) -> ReadFinding:
    """Return a finding for a segment that cannot be opened or listed.

    Its offsets follow from its neighbours.
    """
    return ReadFinding(
        path=path,
        start_pos=0,
        end_pos=end_pos,
        kind=VerdictKind.UNREADABLE,
        check_id="",
        reason=reason,
    )


class DamageError(EoctlError):
    """Reading ended at damage. All records before it were returned."""

    def __init__(self, damage: ReadFinding) -> None:
        inspect = f"eoctl dump-segment --offsets {damage.base_offset}.. {pasted(damage.path)}"
        repair = f"eoctl repair {pasted(Path(damage.path).parent)} --strategy salvage"
        # The message is the same for consumers, copies and transformations.
        super().__init__(
            damage.with_offsets,
            next_step=f"{inspect}   # {repair}: what can be kept; consume --skip-corrupt goes on",
        )
        self.damage = damage
        self.path, self.pos, self.check_id = damage.path, damage.start_pos, damage.check_id
        is_unreadable = damage.kind == VerdictKind.UNREADABLE
        self.exit_status = EXIT_SKIPPED if is_unreadable else EXIT_FINDINGS


class NewVerdicts:
    """The damage that a scan has met since the last `take`.

    Attributes:
        positions: the start of each damage.
        given: by position, returned batches with damage that is outside of the checksum and proven.
        ends: bytes after the last batch that the end of the log should not have.
    """

    def __init__(self, scan: Scan, path: str, stopped: StoppedState, *, gives_proven: bool) -> None:
        """Watch a scan. With `gives_proven`, batches with proven content are not damage."""
        self._gives_proven = gives_proven
        self.positions: set[int] = set()
        self.given: dict[int, ReadFinding] = {}
        self.ends: list[ReadFinding] = []
        self._stopped = stopped
        self._scan = scan
        self._path = path
        self._seen_count = 0

    def take(self) -> list[ReadFinding]:
        """Return the new damage, by position."""
        verdicts = self._scan.verdicts[self._seen_count :]
        self._seen_count += len(verdicts)
        found = []
        for each in verdicts:
            damage = ReadFinding.of_verdict(self._path, each)
            if each.kind in END_KINDS:  # the end of the log
                if is_wrong_end(each.kind, self._stopped):
                    self.ends.append(damage)
            elif self._gives_proven and not each.is_lost:
                self.given[each.start_pos] = damage
            else:
                self.positions.add(each.start_pos)
                found.append(damage)
        return found


# -- log walk


TO_BE_FOUND = -1  # found once the segment is open
BULK_MIN_BYTES = 1 << 20  # below this size, importing numpy takes longer than reading

Given = TypeVar("Given")


class PassedBatch(NamedTuple):
    """The last good batch that was passed.

    Attributes:
        segment_offset: base offset of its segment, -1 without a batch.
        pos: position in the segment.
        base_offset: of the batch.
    """

    segment_offset: int
    pos: int
    base_offset: int


NONE_BEFORE = PassedBatch(-1, 0, 0)
REMEMBERED_COUNT = 1 << 14  # batches of a followed log


class RememberedBatch(NamedTuple):
    """A good batch that was passed, with fields that identify it at its place."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    producer_id: int
    crc: int


class WalkOptions(TypedDict, total=False):
    """Options of a walk.

    `skip_corrupt`: continue after damage, instead of ending the walk. `is_hidden`: selects
    transactional data batches to leave out, None for none. `max_batch_bytes`: maximum decompressed
    size of a batch.
    """

    skip_corrupt: bool
    is_hidden: IsHidden
    max_batch_bytes: int


class LogWalk(ABC, Generic[Given]):
    """A walk that continues at `next_offset` with every `read`.

    Attributes:
        next_offset: of the next record, above all batches that were passed.
        skipped: damage that was skipped.
        noted: batches that were returned although a part outside of the checksum is wrong.
        wrong_end: bytes after the last batch of a log that was closed. No record is missing.
        tail: damage at the end of the log, without a good batch after it. It may be an append in
            progress. The next `read` checks it again, and `finish` counts it as damage.
        ledger: the offsets of the batches that were passed, and the gaps between them.
    """

    gives_proven = False  # records do not depend on the frame, bytes of batches do

    def __init__(
        self, partition: Partition, next_offset: int, **options: Unpack[WalkOptions]
    ) -> None:
        self.next_offset = next_offset
        self.skipped: list[ReadFinding] = []
        self.noted: list[ReadFinding] = []
        self.wrong_end: ReadFinding | None = None
        self.tail: list[ReadFinding] = []
        cleaned_offset = partition.acknowledged.cleaned_offset
        self.ledger = OffsetLedger(next_offset, cleaned_offset=cleaned_offset)
        self._partition = partition
        self._skip_corrupt = options.get("skip_corrupt", False)
        self._is_hidden = options.get("is_hidden")
        self._max_batch_bytes = options.get("max_batch_bytes", DEFAULT_MAX_BATCH_BYTES)
        self._base_offset = -1  # of the current segment, -1: not found yet
        self._pos = 0  # in the segment, or TO_BE_FOUND
        self._before = NONE_BEFORE
        self._floor_offset = 0  # offset after the previous batch
        self._is_before_first = True  # no batch from `next_offset` on so far
        # Offsets of bad batches, by position, and whether their checksums are right.
        self._stated: dict[int, tuple[tuple[int, int], bool]] = {}
        self._waiting: list[ReadFinding] = []  # until the next good batch is known
        self._remembered: deque[RememberedBatch] | None = None

    def seek(self, offset: int) -> None:
        """Continue at another offset."""
        self.next_offset = offset
        self.ledger.seek(offset)
        self._base_offset, self._pos = -1, 0
        self._before = NONE_BEFORE
        self._is_before_first = True
        self._waiting, self.tail = [], []
        while self._remembered and self._remembered[-1].last_offset >= offset:
            self._remembered.pop()

    def remember(self) -> None:
        """Remember the batches from now on, because the log may be truncated and written again."""
        self._remembered = deque(maxlen=REMEMBERED_COUNT)

    def is_last_as_passed(self) -> bool:
        """Return whether the last batch that was passed in the active segment is unchanged."""
        segments, before = self._partition.segments, self._before
        if not (
            self._remembered and segments and segments[-1].base_offset == before.segment_offset
        ):
            return True
        with open_segment(segments[-1].log.path) as segment:
            scan = segment.scan(start_pos=before.pos, **self._partition.bounds(segments[-1]))
            found = next(iter(scan), None)
        return found is not None and _remembered(found) == self._remembered[-1]

    def first_other_offset(self) -> int | None:
        """Return the first offset at which a batch differs from the batch that was passed there.

        None: all batches are unchanged. A cleaner rewrites batches of older segments, and keeps
        their offsets and epochs.
        """
        if not self._remembered:
            return None
        known = {each.base_offset: each for each in self._remembered}
        first_offset = self._remembered[0].base_offset
        for placed in self._partition.read(first_offset, self.next_offset):
            if placed.batch.crc_ok is False:
                continue
            found = _remembered(placed.batch)
            before = known.get(found.base_offset)
            if before is not None and not self._partition.is_active(placed.files):
                before = before._replace(crc=found.crc)
            if found != before:
                return max(found.base_offset, first_offset)
        return None

    def is_place_of(self, damage: ReadFinding) -> bool:
        """Return whether damage is at the start of the last `read`.

        The log there may have been written again.
        """
        return damage.start_pos in {self._pos, self._before.pos}

    @property
    def place(self) -> tuple[int, int]:
        """The position of the next `read`: base offset of the segment, and position in it."""
        return self._base_offset, max(self._pos, 0)

    def read(self, end_offset: int = MAX_OFFSET) -> Generator[Given]:
        """Yield the present batches below `end_offset`, as the partition is listed now.

        Raises:
            DamageError: there is damage, and it is not skipped.
            AccessError: a segment was removed after the listing (ENOENT).
        """
        self.tail = []
        files = self._locate()
        if files is None:
            self._miss_unlisted(-1, end_offset)
        while files is not None and self.next_offset < end_offset:
            is_over = yield from self._read_segment(files, end_offset)
            if is_over:
                return
            later = self._partition.segment_after(files)
            later_offset = MAX_OFFSET if later is None else later.base_offset
            self._miss_unlisted(files.base_offset, min(later_offset, end_offset))
            if later is not None:
                self._base_offset, self._pos = later.base_offset, 0
            files = later
        if self._waiting:
            self.tail, self._waiting = self._waiting, []

    def finish(self) -> None:
        """Count the tail as damage. Raises DamageError unless damage is skipped."""
        self._waiting, self.tail = self.tail, []
        if self._waiting:
            self._pos = self._waiting[-1].end_pos
            self._resolve(None)

    # --- segments ---

    def _locate(self) -> SegmentFiles | None:
        """Find the segment to continue in."""
        base_offset = self._base_offset
        if base_offset >= 0:
            segments = self._partition.segments
            return next((each for each in segments if each.base_offset >= base_offset), None)
        files = self._partition.segment_of(self.next_offset)
        if files is not None:
            self._base_offset, self._pos = files.base_offset, TO_BE_FOUND
        return files

    def _miss_unlisted(self, base_offset: int, end_offset: int) -> None:
        """Report the segments in a range of offsets whose size cannot be read."""
        found = {}
        for problem in self._partition.files.problems:
            name = classify(Path(problem.path).name)
            if isinstance(problem, AccessError) and name.kind is FileKind.LOG:
                found[-1 if name.offset is None else name.offset] = problem
        for offset, problem in sorted(found.items()):
            if base_offset < offset < end_offset:
                self._waiting.append(unreadable(problem.path, 0, problem.reason))

    def _read_segment(self, files: SegmentFiles, end_offset: int) -> Generator[Given, None, bool]:
        """Read one segment from `_pos` on. Return True at `end_offset`."""
        if files.base_offset != self._base_offset:  # the current segment was removed
            self._base_offset, self._pos = files.base_offset, 0
        try:
            segment = open_segment(files.log.path)
        except AccessError as exc:
            if exc.errno == errno.ENOENT:
                raise
            self._waiting.append(unreadable(files.log.path, files.log.file_bytes, exc.message))
            return False
        self._floor_offset = files.base_offset
        segment.max_batch_bytes = self._max_batch_bytes
        with segment:
            if self._pos == TO_BE_FOUND:
                self._pos = self._partition.start_in(files, segment, self.next_offset)
            known_pos = self._pos  # damage that ends there is known
            scan, parts = self._scan(segment, files)
            stopped, is_giving = self._partition.stopped, self.gives_proven
            verdicts = NewVerdicts(scan, files.log.path, stopped, gives_proven=is_giving)
            for part in parts:
                self._meet(verdicts, known_pos)
                if isinstance(part, ScannedBatch) and part.pos in verdicts.positions:
                    if 0 <= part.header.base_offset <= MAX_OFFSET:
                        stated = part.header.base_offset, part.header.last_offset
                        self._stated[part.pos] = stated, part.crc_ok is not False
                    continue
                try:
                    if isinstance(part, ScannedBatch):
                        inner = offsets_inside(part, segment)
                        if self._waiting:
                            yield from self._flush()
                            self._resolve(begin_of(part.header, inner))
                        self._note(verdicts.given.pop(part.pos, None), part)
                        self.ledger.take_batch(part.header, inner)
                        lost_count = len(self.skipped)
                        is_over = yield from self._read_single(part, segment, end_offset)
                        if len(self.skipped) == lost_count:
                            self._floor_offset = part.header.last_offset + 1
                    else:
                        yield from self._flush()
                        self._resolve(int(part.table.base_offset[0]))
                        self.ledger.take(part.table)
                        is_over = yield from self._read_window(part, segment, end_offset)
                        self._floor_offset = int(part.table.last_offset[-1]) + 1
                finally:  # the caller may stop in the middle
                    self._keep_before(part, files)
                if is_over:
                    yield from self._flush()
                    return True
            self._meet(verdicts, known_pos)
            for each in verdicts.ends:
                self.wrong_end = each._replace(base_offset=self._floor_offset)
            yield from self._flush()
        return False

    def _scan(
        self, segment: Segment, files: SegmentFiles
    ) -> tuple[Scan, Iterator[BulkWindow | ScannedBatch]]:
        bounds, start_pos, before = self._partition.bounds(files), self._pos, self._before
        is_behind = before.segment_offset == files.base_offset and before.pos < start_pos
        if is_behind:
            start_pos = before.pos  # the good batch before it reveals a wrong offset
        if segment.file_bytes - start_pos < BULK_MIN_BYTES:
            scan = segment.scan(start_pos=start_pos, **bounds)
            parts: Iterator[BulkWindow | ScannedBatch] = iter(scan)
        else:
            from storage.kernels.numpy_kernel import BulkScan

            scan = bulk = BulkScan(segment, start_pos=start_pos, **bounds)
            parts = bulk.parts()
        if is_behind:
            scan.continue_after(before.base_offset - 1, NO_LEADER_EPOCH)
        return scan, parts

    def _meet(self, verdicts: NewVerdicts, known_pos: int) -> None:
        """Add new damage, except damage before the position of the walk."""
        self._waiting += [each for each in verdicts.take() if each.end_pos > known_pos]

    def _keep_before(self, part: BulkWindow | ScannedBatch, files: SegmentFiles) -> None:
        """Keep the last batch that was passed, because the next read begins with it again."""
        if isinstance(part, ScannedBatch):
            if part.pos + part.header.batch_bytes <= self._pos:
                self._before = PassedBatch(files.base_offset, part.pos, part.header.base_offset)
                self._remember([_remembered(part)])
            return
        table = part.table
        passed = int((table.pos + table.batch_bytes).searchsorted(self._pos, side="right"))
        if passed:
            row = passed - 1
            pos, base_offset = int(table.pos[row]), int(table.base_offset[row])
            self._before = PassedBatch(files.base_offset, pos, base_offset)
            if self._remembered is not None:
                rows = slice(max(passed - REMEMBERED_COUNT, 0), passed)
                columns: list[NDArray[Any]] = [
                    table.base_offset,
                    table.last_offset,
                    table.partition_leader_epoch,
                    table.producer_id,
                    table.crc,
                ]
                found = zip(*(each[rows].tolist() for each in columns), strict=True)
                self._remember(map(RememberedBatch._make, found))

    def _remember(self, batches: Iterable[RememberedBatch]) -> None:
        """Add batches, except batches that a read begins with again."""
        remembered = self._remembered
        if remembered is None:
            return
        for each in batches:
            if not remembered or each.base_offset > remembered[-1].base_offset:
                remembered.append(each)

    @abstractmethod
    def _read_window(
        self, window: BulkWindow, segment: Segment, end_offset: int
    ) -> Generator[Given, None, bool]:
        """Read healthy batches, many at a time. Return True at `end_offset`."""

    @abstractmethod
    def _read_single(
        self, batch: ScannedBatch, segment: Segment, end_offset: int
    ) -> Generator[Given, None, bool]:
        """Read a batch of an old format, or with unusual content. Return True at `end_offset`."""

    @abstractmethod
    def _flush(self) -> Iterator[Given]:
        """Yield the gathered batches."""

    def _is_visible(self, batch: ScannedBatch) -> bool:
        if self._is_hidden is None or not batch.header.is_transactional:
            return True
        from eoctl.clients.log.table_records import is_visible

        return is_visible(batch, self._is_hidden)

    # --- passed batches ---

    def _passed(self, next_offset: int) -> None:
        if next_offset > self.next_offset:
            self.next_offset = next_offset
            self._is_before_first = False

    def _resolve(self, base_offset: int | None) -> None:
        """Report the pending damage, with the offset of the next good batch, or None at the end."""
        waiting, self._waiting = self._waiting, []
        if (
            self._is_before_first
            and self._base_offset < self.next_offset  # otherwise the segment has no lower offset
            and base_offset is not None
            and base_offset <= self.next_offset
        ):
            return
        last_offset = None if base_offset is None else base_offset - 1
        for each in waiting:
            stated, is_proven = self._stated.pop(each.start_pos, (None, False))
            first, last = lost_range(self.next_offset, last_offset, stated, is_proven=is_proven)
            self._lose(each._replace(base_offset=first, last_offset=last))

    def _note(self, damage: ReadFinding | None, batch: ScannedBatch) -> None:
        header = batch.header
        if damage is not None and header.last_offset >= self.next_offset:
            self.noted.append(
                damage._replace(base_offset=header.base_offset, last_offset=header.last_offset)
            )

    def _lose(self, damage: ReadFinding) -> None:
        if not self._skip_corrupt:
            raise DamageError(damage)
        self.skipped.append(damage)


def _remembered(batch: ScannedBatch) -> RememberedBatch:
    header = batch.header
    return RememberedBatch(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        crc=header.crc,
    )
