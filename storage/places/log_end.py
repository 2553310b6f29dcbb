"""Where the log of a listed directory ends, local or behind a URI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.dirs.lookup import find_end
from storage.formats.offset_index import OffsetIndexEntry
from storage.places.find import open_place
from storage.places.place_files import offset_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.places.listing import SegmentPlace

_ENTRIES_COUNT = 2  # what `find_end` starts from


def log_end_offset(places: Sequence[SegmentPlace]) -> int:
    """Find the log end offset: one above the last good batch.

    Args:
        places: all segments of one directory, by base offset; there is one at least.

    Raises:
        AccessError: the last one cannot be opened.
    """
    place = places[-1]
    entries = [
        OffsetIndexEntry(int(relative), int(pos))
        for relative, pos in offset_entries(place)[-_ENTRIES_COUNT:]
    ]
    with open_place(place) as segment:
        last = find_end(segment, entries, is_active=place.is_active).last
    return place.base_offset if last is None else last.header.last_offset + 1
