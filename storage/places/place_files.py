"""Opening what places name: the `.log`, and the indexes beside it, by whichever file system."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from storage.errors import AccessError
from storage.files.positioned_file import PositionedFile
from storage.files.uris import Uri, is_uri, local_path
from storage.formats import offset_index, time_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from storage.formats.time_index import TimeIndexEntry
    from storage.places.listing import SegmentPlace

CHUNK_BYTES = 256 << 10  # the live index of an active segment is 10 MiB of zeros behind little
MAX_INDEX_BYTES = 64 << 20
MAX_SMALL_BYTES = 4 << 20


def open_file(path: str) -> PositionedFile:
    """Open a file by its path or URI.

    Raises:
        AccessError: it cannot be opened.
        UsageError: nothing here reads such URIs.
    """
    if not is_uri(path):
        return PositionedFile(path)
    uri = Uri.parse(path)
    local = local_path(uri)
    if local is not None:
        return PositionedFile(local)
    from storage.files.remote_file import RemoteFile

    return RemoteFile(path)


def offset_entries(place: SegmentPlace) -> NDArray[np.int32]:
    """Return the entries of a segment's `.index`, good or not; none if it cannot be read.

    A row has relative offset and position. There may be hundreds of thousands.
    """
    data = _read(_beside(place.path, ".index"))
    count = offset_index.logical_entry_count(data)
    return np.frombuffer(data, ">i4", 2 * count).astype(np.int32).reshape(-1, 2)


def time_entries(place: SegmentPlace) -> Sequence[TimeIndexEntry]:
    """Return the entries of a segment's `.timeindex`, good or not; [] if it cannot be read.

    Empty too if it breaks a rule of its own (TIM-1): one that lacks an entry looks like a good one.
    """
    data = _read(_beside(place.path, ".timeindex"))
    if time_index.problems(data, place.base_offset):
        return []
    return time_index.parse_entries(data)


def read_in(directory: str, name: str) -> bytes | None:
    """Read a small file of a partition directory; None if it is not there, or cannot be read."""
    stem, found, query = directory.partition("?") if is_uri(directory) else (directory, "", "")
    try:
        with open_file(f"{stem}/{name}{found}{query}") as file:
            reading = file.read_at(0, MAX_SMALL_BYTES)
    except AccessError:
        return None
    return None if reading.unreadable else bytes(reading.data)


def _beside(log_path: str, suffix: str) -> str:
    """Return the path of an index; a URI's query stays behind it."""
    stem, found, query = log_path.rpartition(".log")
    return f"{stem}{suffix}{query}" if found else f"{log_path}{suffix}"


def _read(path: str) -> bytes:
    """Read an index up to a chunk that ends with zeros; nothing if a part is unreadable."""
    data = bytearray()
    try:
        with open_file(path) as file:
            while len(data) < MAX_INDEX_BYTES:
                reading = file.read_at(len(data), CHUNK_BYTES)
                if reading.unreadable:
                    return b""
                data += reading.data
                if len(reading.data) < CHUNK_BYTES or not any(reading.data[-512:]):
                    break
    except AccessError:
        return b""
    return bytes(data)
