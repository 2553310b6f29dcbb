"""Targets: summaries of logs of any content, in pieces of any size."""

from __future__ import annotations

from itertools import pairwise

from recovery.summaries.codec import pack_piece, pack_summary, unpack_piece
from recovery.summaries.partition import ReadPiece, join_partition
from recovery.summaries.segment import read_split
from storage.places.list_places import list_places, open_place
from storage.places.splits import Split

from .engine import Target
from .mutations import repair_log
from .promises import require
from .segment_targets import BOMB_BYTES, chance, log_seeds, write_file


def _summary(data: bytes) -> None:
    """Reading never raises, and pieces come to what the whole does, wherever batches begin."""
    rnd = chance(data)
    path = write_file(f"pieces-0/{0:020d}.log", data)
    (place,) = list_places([str(path)]).places
    with open_place(place) as segment:
        starts = [each.pos for each in segment.scan() if each.pos and rnd.random() < 0.5]
    edges = [0, *starts, place.file_bytes]
    splits = [
        Split(place, start_pos, end_pos, is_last=number == len(edges) - 2)
        for number, (start_pos, end_pos) in enumerate(pairwise(edges))
    ]
    whole = join_partition(
        [ReadPiece(split := Split(place, 0, place.file_bytes, is_last=True), read_split(split))]
    )
    pieces = [ReadPiece(each, unpack_piece(pack_piece(read_split(each)))) for each in splits]
    joined = join_partition(pieces)
    require(pack_summary(joined.summary) == pack_summary(whole.summary), "another summary")
    require(joined.findings == whole.findings, "other findings")


TARGETS = [
    Target("summary", _summary, log_seeds, 150, repair_log, allowed_bytes=BOMB_BYTES),
]
