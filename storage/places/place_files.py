"""Opening the files of places: the `.log`, and the indexes beside it, by any file system."""

from __future__ import annotations

import os
from errno import EIO
from typing import TYPE_CHECKING, NamedTuple

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

CHUNK_BYTES = 256 << 10  # a live index of an active segment is 10 MiB of zeros after few entries
MAX_INDEX_BYTES = 64 << 20
MAX_SMALL_BYTES = 4 << 20
SECOND_NS = 1_000_000_000


class FileStamp(NamedTuple):
    """The identity of a file at one time.

    Attributes:
        file_bytes: its size.
        modified_ns: time of the last write, since 1970, or 0 if unknown. Behind a URI in full
            seconds: a listing of an object store is more precise than its answer for one object.
    """

    file_bytes: int
    modified_ns: int

    def is_same(self, other: FileStamp | None) -> bool:
        """Return whether it may be the same file, unchanged."""
        if other is None or other.file_bytes != self.file_bytes:
            return False
        return other.modified_ns == self.modified_ns or not (other.modified_ns and self.modified_ns)


def stamp_of(path: str) -> FileStamp | None:
    """Return the stamp of a file at a path or URI, without opening it, or None without a file.

    Raises:
        AccessError: it cannot be read.
        UsageError: there is no file system for the URI.
    """
    local = local_path(Uri.parse(path)) if is_uri(path) else path
    if local is None:
        from storage.files.file_systems import as_os_error, locate

        located = locate(path)
        try:
            entry = located.tree.entry(located.path)
        except Exception as exc:
            raise AccessError(as_os_error(exc), path) from exc
        return None if entry is None else FileStamp(entry.file_bytes, _seconds(entry.modified_ns))
    try:
        found = os.stat(local)  # noqa: PTH116 - a place is plain text
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise AccessError(exc, path) from exc
    return FileStamp(found.st_size, found.st_mtime_ns)


def listed_stamp(place: SegmentPlace) -> FileStamp:
    """Return the result of `stamp_of` for a `.log` that is as it was listed."""
    is_remote = is_uri(place.path) and local_path(Uri.parse(place.path)) is None
    modified_ns = _seconds(place.modified_ns) if is_remote else place.modified_ns
    return FileStamp(place.file_bytes, modified_ns)


def index_stamp(place: SegmentPlace) -> FileStamp | None:
    """Return the stamp of the `.index` of a segment, as `stamp_of` does."""
    return stamp_of(_beside(place.path, ".index"))


def _seconds(modified_ns: int) -> int:
    return modified_ns // SECOND_NS * SECOND_NS


def open_file(path: str) -> PositionedFile:
    """Open a file by its path or URI.

    Raises:
        AccessError: it cannot be opened.
        UsageError: there is no file system for the URI.
    """
    if not is_uri(path):
        return PositionedFile(path)
    uri = Uri.parse(path)
    local = local_path(uri)
    if local is not None:
        return PositionedFile(local)
    from storage.files.file_systems import RemoteFile

    return RemoteFile(path)


def offset_entries(place: SegmentPlace) -> NDArray[np.int32]:
    """Return the entries of a segment's `.index`, valid or not. Empty if it cannot be read.

    A row has relative offset and position. There may be hundreds of thousands.
    """
    try:
        return read_offset_entries(place)
    except AccessError:
        return np.zeros((0, 2), np.int32)


def read_offset_entries(place: SegmentPlace) -> NDArray[np.int32]:
    """Return entries as `offset_entries` does.

    Raises AccessError if the `.index` is not readable.
    """
    data = _read(_beside(place.path, ".index"))
    count = offset_index.logical_entry_count(data)
    return np.frombuffer(data, ">i4", 2 * count).astype(np.int32).reshape(-1, 2)


def time_entries(place: SegmentPlace) -> Sequence[TimeIndexEntry]:
    """Return the entries of a segment's `.timeindex`, valid or not. [] if it cannot be read.

    It is also empty if it breaks a rule of its own (TIM-1): an index that lacks an entry looks like
    a good index.
    """
    try:
        data = _read(_beside(place.path, ".timeindex"))
    except AccessError:
        return []
    if time_index.problems(data, place.base_offset):
        return []
    return time_index.parse_entries(data)


def read_in(directory: str, name: str) -> bytes | None:
    """Read a small file of a partition directory, or return None if it cannot be read."""
    stem, found, query = directory.partition("?") if is_uri(directory) else (directory, "", "")
    try:
        with open_file(f"{stem}/{name}{found}{query}") as file:
            reading = file.read_at(0, MAX_SMALL_BYTES)
    except AccessError:
        return None
    return None if reading.unreadable else bytes(reading.data)


def _beside(log_path: str, suffix: str) -> str:
    """Return the path of an index. A URI's query stays behind it."""
    stem, found, query = log_path.rpartition(".log")
    return f"{stem}{suffix}{query}" if found else f"{log_path}{suffix}"


def _read(path: str) -> bytes:
    """Read an index up to a chunk that ends with zeros.

    Raises AccessError if a part is unreadable.
    """
    data = bytearray()
    with open_file(path) as file:
        while len(data) < MAX_INDEX_BYTES:
            reading = file.read_at(len(data), CHUNK_BYTES)
            if reading.unreadable:
                bad = reading.unreadable[0]
                raise AccessError(OSError(bad.errno or EIO, bad.strerror), path)
            data += reading.data
            if len(reading.data) < CHUNK_BYTES or not any(reading.data[-512:]):
                break
    return bytes(data)
