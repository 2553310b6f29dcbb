"""How much of what is there goes into one micro-batch: by offsets, or by bytes of the logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.spark.rows.source_options import ReadBounds
from storage.places.find import open_place
from storage.places.splits import prune_splits, split_places

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eoctl.spark.streaming.reach import Reach
    from storage.places.splits import Split

PIECES_COUNT = 8  # into which the share of a partition is cut: it is met so well
LEAST_PIECE_BYTES = 64 << 10


def fair_shares(available: Mapping[str, int], limit: int) -> dict[str, int]:
    """Share a limit: who has less than its part leaves the rest to others."""
    shares = {}
    left = len(available)
    for name in sorted(available, key=lambda each: (available[each], each)):
        shares[name] = min(available[name], limit // left)
        limit -= shares[name]
        left -= 1
    return shares


def ends_by_offsets(
    begins: Mapping[str, int], reaches: Mapping[str, Reach], limit: int
) -> dict[str, int]:
    """Return where each partition ends so that no more than `limit` offsets are given."""
    available = {name: reaches[name].end_offset - begin for name, begin in begins.items()}
    shares = fair_shares(available, limit)
    return {name: begin + shares[name] for name, begin in begins.items()}


def ends_by_bytes(
    begins: Mapping[str, int], reaches: Mapping[str, Reach], limit: int
) -> dict[str, int]:
    """Return where each partition ends so that about `limit` bytes of log are read.

    At least one piece is given, so that a batch larger than the limit comes through.
    """
    piece_bytes = max(limit // (max(len(begins), 1) * PIECES_COUNT), LEAST_PIECE_BYTES)
    pieces = {
        name: _pieces(reaches[name], begin, limit, piece_bytes) for name, begin in begins.items()
    }
    available = {name: sum(map(_size, found)) for name, found in pieces.items()}
    shares = fair_shares(available, limit)
    ends, given = {}, 0
    for name, begin in begins.items():
        taken, size = 0, 0
        for each in pieces[name]:
            if size + _size(each) > shares[name]:
                break
            taken, size = taken + 1, size + _size(each)
        ends[name] = _end_of(reaches[name], pieces[name], taken, begin)
        given += ends[name] - begin
    if not given and begins:
        name = max(begins, key=lambda each: reaches[each].end_offset - begins[each])
        taken = 1
        while ends[name] == begins[name] and taken <= len(pieces[name]):
            ends[name] = _end_of(reaches[name], pieces[name], taken, begins[name])
            taken += 1
    return ends


def _pieces(reach: Reach, begin: int, limit: int, piece_bytes: int) -> list[Split]:
    """Cut what is to be read into pieces; a little more than the limit, however much there is."""
    bounds = ReadBounds(from_offset=begin, to_offset=reach.end_offset).inclusive()
    wanted, size = [], 0
    for place in reach.places:
        if not place.may_hold(begin, reach.end_offset):
            continue
        found = prune_splits(split_places([place], piece_bytes), bounds)
        wanted += found
        size += sum(map(_size, found))
        if size > limit:
            break
    return wanted


def _size(split: Split) -> int:
    return split.end_pos - split.start_pos


def _end_of(reach: Reach, pieces: list[Split], taken: int, begin: int) -> int:
    """Where the first pieces end, as an offset: where the next one begins."""
    if not taken:
        return begin
    if taken == len(pieces):
        last = pieces[-1].place
        is_whole = last.end_offset is None or last.end_offset >= reach.end_offset
        return reach.end_offset if is_whole else max(begin, last.end_offset or 0)
    following = pieces[taken]
    if following.start_pos == 0:
        return min(max(begin, following.place.base_offset), reach.end_offset)
    with open_place(following.place) as segment:
        scan = segment.scan(start_pos=following.start_pos, is_active=following.place.is_active)
        batch = next(iter(scan), None)
    if batch is None or batch.pos != following.start_pos:  # it was proven to begin there
        return begin
    return min(max(begin, batch.header.base_offset), reach.end_offset)
