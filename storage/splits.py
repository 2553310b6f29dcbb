"""Cutting segments into pieces to be read apart, where batches are proven to begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.places import SegmentPlace


class Split(NamedTuple):
    """A contiguous piece of one segment: the batches that begin in [start_pos, end_pos).

    `end_pos` is the start of the next split; of the last one the size when it was listed, and it is
    then to be read to the end that the file has by now. Positions are in bytes.
    """

    place: SegmentPlace
    start_pos: int
    end_pos: int
    is_last: bool


def split_places(places: Iterable[SegmentPlace], split_bytes: int) -> list[Split]:
    """Cut segments into pieces of about `split_bytes`, in the order of the places.

    Raises:
        ValueError: `split_bytes` is below 1.
    """
    if split_bytes < 1:
        raise ValueError(f"split_bytes must be at least 1, not {split_bytes}")
    return [Split(place, 0, place.file_bytes, is_last=True) for place in places]
