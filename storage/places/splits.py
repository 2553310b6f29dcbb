"""Cutting segments into pieces to be read apart, where batches are proven to begin.

An entry of the `.index` is only a hint, and the bytes at its position may look like a batch without
being one: a record's value can hold a whole batch, checksum and all. A piece begins there if
  - the batch at the position has a right checksum,
  - its last offset is the entry's (Kafka writes that since 2.0), and
  - a walk from an earlier place comes to it. That place is where the piece before begins if that is
    near, else another entry with a batch of its offset, as far away as CHAIN_BYTES allow: a walk
    around a value does not come into it, nor does one inside of it come out.
An entry that does not hold is passed over; after a few of them the cut is given up, and the piece
becomes larger. A segment without a usable index is one piece.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.errors import AccessError
from storage.kernels.protocol import VerdictKind
from storage.places.find import map_places, open_place
from storage.places.listing import SegmentPlace  # noqa: TC001 - `state_file.read_as` resolves it
from storage.places.place_files import (
    FileStamp,
    offset_entries,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from storage.kernels.protocol import ScannedBatch
    from storage.kernels.scan import Scan
    from storage.log.segment import Segment

CANDIDATES_COUNT = 4  # entries to try from where a piece shall begin on, and as many before it
ANCHORS_COUNT = 3  # entries to try as the beginning of a chain
CHAIN_BYTES = 1 << 20  # about the largest value that brokers take unless told otherwise
MAX_PROOF_BYTES = 64 << 20  # as far as a chain is followed


class TimelineStart(NamedTuple):
    """That a timeline of a piece is wanted, and what it depends on beside the file.

    Attributes:
        log_start_offset: of its directory; what ends below it is of no transaction.
        floor_offset: one above the last good batch before the piece; -1: not known yet.
        max_bins: of each axis of the directory's timeline.
    """

    log_start_offset: int = 0
    floor_offset: int = -1
    max_bins: int = 1 << 30


class PlannedPart(NamedTuple):
    """Which of the equal parts of a segment a split is meant to be; see `planned_splits`.

    Attributes:
        number, parts_count: which one, from 0 on, of how many.
        index_seen: the `.index` as it was when the query was planned; None: whoever puts the pieces
            together sees that they meet.
    """

    number: int
    parts_count: int
    index_seen: FileStamp | None = None


class Split(NamedTuple):
    """A contiguous piece of one segment: the batches that begin in [start_pos, end_pos).

    `end_pos` is the start of the next split; of the last one the size when it was listed, and it is
    then to be read to the end that the file has by now. Positions are in bytes.
    `timeline`: None where no timeline is wanted.
    `part`: None where the positions are proven; else they are where they shall be, about.
    """

    place: SegmentPlace
    start_pos: int
    end_pos: int
    is_last: bool
    timeline: TimelineStart | None = None
    part: PlannedPart | None = None


def split_places(places: Iterable[SegmentPlace], split_bytes: int) -> list[Split]:
    """Cut segments into about equal pieces of about `split_bytes`, in the order of the places.

    Pieces are larger where index entries are far from each other or do not hold; with a
    `split_bytes` of 1 every entry that holds begins one. A segment that cannot be opened is one
    piece: who reads it will meet the error.

    Raises:
        ValueError: `split_bytes` is below 1.
    """
    if split_bytes < 1:
        raise ValueError(f"split_bytes must be at least 1, not {split_bytes}")
    listed = list(places)
    starts = map_places(lambda place: start_positions(place, split_bytes), listed)
    return [
        split
        for place, positions in zip(listed, starts, strict=True)
        for split in splits_at(place, positions)
    ]


def splits_at(place: SegmentPlace, positions: Sequence[int]) -> list[Split]:
    """Return the pieces of a segment that begin at the positions; the first one is 0."""
    ends = [*positions[1:], place.file_bytes]
    last = len(positions) - 1
    return [
        Split(place=place, start_pos=start_pos, end_pos=end_pos, is_last=index == last)
        for index, (start_pos, end_pos) in enumerate(zip(positions, ends, strict=True))
    ]


def start_positions(place: SegmentPlace, split_bytes: int) -> list[int]:
    """Return where the pieces of a segment begin, ascending, the first one at 0."""
    if place.file_bytes <= split_bytes:
        return [0]
    entries = offset_entries(place)
    if not len(entries):
        return [0]
    try:
        with open_place(place) as segment:
            return _starts(StartProver(segment, entries), place.file_bytes, split_bytes)
    except AccessError:
        return [0]


def _starts(prover: StartProver, file_bytes: int, split_bytes: int) -> list[int]:
    step = -(-file_bytes // -(-file_bytes // split_bytes))  # equal pieces, each rounded up
    positions = prover.positions
    starts, first_untried = [0], 0
    wanted_pos = step
    while wanted_pos < file_bytes - step // 2:
        index = max(bisect_left(positions, wanted_pos), first_untried)
        tried_end = min(index + CANDIDATES_COUNT, len(positions))
        before = range(index - 1, max(first_untried, index - CANDIDATES_COUNT) - 1, -1)
        for each in (*range(index, tried_end), *before):
            pos = positions[each]
            if pos < file_bytes and prover.prove(each, starts[-1]) is not None:
                starts.append(pos)
                first_untried, wanted_pos = each + 1, pos + step
                break
        else:
            if tried_end == len(positions):
                break
            first_untried, wanted_pos = tried_end, max(wanted_pos + step, positions[tried_end])
    return starts


class StartProver:
    """Proves index entries of one open segment.

    Attributes:
        positions: of those that may hold, ascending, each once.
        relative_offsets: theirs.
        met_unreadable: a part of the file that proofs looked at could not be read: another time,
            or on another host, they may come out otherwise.
    """

    def __init__(self, segment: Segment, entries: NDArray[np.int32]) -> None:
        """`entries` are those of `offset_entries`."""
        self._segment = segment
        self.met_unreadable = False
        relative_offset, pos = entries.T
        is_possible = (pos > 0) & (pos < segment.file_bytes) & (relative_offset >= 0)
        order = np.flatnonzero(is_possible)
        order = order[np.argsort(pos[order], kind="stable")]
        is_last = np.ones(len(order), np.bool_)
        is_last[:-1] = np.diff(pos[order]) != 0
        order = order[is_last]
        self.positions: list[int] = pos[order].tolist()
        self.relative_offsets: list[int] = relative_offset[order].tolist()

    def prove(self, index: int, known_pos: int = 0) -> ScannedBatch | None:
        """Return the batch that an entry points at if it holds, else None.

        Args:
            index: of the entry.
            known_pos: a place before it where a batch is known to begin.
        """
        positions = self.positions
        pos = positions[index]
        if pos - known_pos <= CHAIN_BYTES:
            return self._met(index, self._walk(known_pos))
        first = min(bisect_left(positions, pos - CHAIN_BYTES), index - 1)
        if first < 0 or positions[first] <= known_pos:
            return self._met(index, self._walk(known_pos))
        for anchor in range(first, min(first + ANCHORS_COUNT, index)):
            scan = self._walk(positions[anchor])
            if self._met(anchor, scan) is not None:
                return self._met(index, scan)
        return None

    def _walk(self, start_pos: int) -> Scan:
        # On behind damage: then it comes to the same batches as a walk over the whole segment.
        end_pos = start_pos + MAX_PROOF_BYTES
        return self._segment.scan(start_pos=start_pos, end_pos=end_pos, is_active=False)

    def _met(self, index: int, scan: Scan) -> ScannedBatch | None:
        """Go on with a scan up to an entry's position: the batch there, if the entry holds."""
        pos = self.positions[index]
        last_offset = self._segment.base_offset + self.relative_offsets[index]
        batch = next((each for each in scan if each.pos >= pos), None)
        self.met_unreadable |= any(each.kind is VerdictKind.UNREADABLE for each in scan.verdicts)
        if batch is None or batch.pos != pos or batch.header.last_offset != last_offset:
            return None
        is_faulty = any(each.start_pos == pos for each in scan.verdicts)
        return None if is_faulty or not batch.crc_ok else batch
