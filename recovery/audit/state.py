"""What earlier audits have found, by segment, so that only new segments are read.

A segment is taken from the state if it has the same path, size and time of change, and the same
place in its directory. The file is msgpack, compressed, and of this program's own making: it can be
deleted at any time, and the next audit then reads everything.
"""

from __future__ import annotations

import os
import zlib
from errno import EACCES, ENOENT
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.summaries.codec import PACKED_VERSION, pack_piece, unpack_piece
from recovery.summaries.partition import ReadPiece, join_segment
from recovery.summaries.read_findings import GONE
from storage import fsio
from storage.discovery import require_outside_log_dirs
from storage.errors import AccessError, FormatError, UsageError
from storage.positioned_file import PositionedFile
from storage.splits import Split
from storage.uris import is_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from storage.listing import SegmentPlace

STATE_NAME = "eoctl-audit-state"
COMPRESSION_LEVEL = 1


class AuditState:
    """Pieces by segment.

    Raises:
        RefusedError: the file lies in a log dir.
        AccessError: it is there and cannot be read.
        UsageError: it is something else, or cut short.
    """

    def __init__(self, path: str, program: str) -> None:
        """Load it; `program` names the release, for one release may count what another does not."""
        if not path:
            raise UsageError("--state: no file is named")
        require_outside_log_dirs(
            path, "keep the state elsewhere", place=Path(path).absolute().parent
        )
        self.path = path
        self._program = program
        self._known: dict[tuple[Any, ...], bytes] = _load(path, program)

    def take(self, places: Iterable[SegmentPlace]) -> tuple[list[ReadPiece], list[SegmentPlace]]:
        """Return what is known of some segments, and which have to be read."""
        known, unknown = [], []
        for place in places:
            packed = self._known.get(_key(place)) if place.modified_ns else None
            piece = None
            if packed is not None:
                try:
                    piece = unpack_piece(packed)
                except FormatError:
                    piece = None
            if piece is None:
                unknown.append(place)
            else:
                split = Split(place, 0, place.file_bytes, is_last=True)
                known.append(ReadPiece(split, piece))
        return known, unknown

    def require_writable(self) -> None:
        """Look before the work is done: raises what `save` would, as far as it can be told."""
        if is_uri(self.path):
            raise UsageError(f"{self.path}: the state is a local file, not a URI")
        fsio.require_replaceable(self.path)
        directory = Path(self.path).absolute().parent
        if not os.access(directory, os.W_OK | os.X_OK):
            raise AccessError(PermissionError(EACCES, os.strerror(EACCES)), str(directory))

    def save(self, pieces: Sequence[ReadPiece]) -> None:
        """Replace the file by what is known of these segments now. Raises AccessError."""
        by_path: dict[str, list[ReadPiece]] = {}
        for each in pieces:
            by_path.setdefault(each.split.place.path, []).append(each)
        rows = []
        for group in by_path.values():
            group.sort(key=lambda each: each.split.start_pos)
            split, piece = join_segment(group)
            # What failed to be read, or was not there, may be there the next time.
            if not any(each.is_unreadable or each.kind == GONE for each in piece.findings):
                rows.append([*_key(split.place), pack_piece(piece)])
        from msgpack import packb

        data = packb([STATE_NAME, PACKED_VERSION, self._program, sorted(rows)], use_bin_type=True)
        fsio.replace_file(fsio.FileSystem(), self.path, zlib.compress(data, COMPRESSION_LEVEL))


def _key(place: SegmentPlace) -> tuple[Any, ...]:
    return place.path, place.file_bytes, place.modified_ns, place.is_active, place.has_sequences


def _load(path: str, program: str) -> dict[tuple[Any, ...], bytes]:
    from msgpack import unpackb

    try:
        with PositionedFile(path) as file:
            reading = file.read_at(0, file.file_bytes)
    except AccessError as exc:
        if exc.errno == ENOENT:
            return {}
        raise
    if reading.unreadable:
        raise AccessError(OSError(reading.unreadable[0].errno, "cannot be read"), path)
    data = reading.data
    try:
        name, version, made_by, *rest = unpackb(zlib.decompress(data))
        if name != STATE_NAME:
            raise _bad(path, str(name)[:40])
        if (version, made_by) != (PACKED_VERSION, program):
            return {}  # of another release: everything is read again
        (rows,) = rest
        return {tuple(key): bytes(packed) for *key, packed in rows}
    except (ValueError, TypeError, zlib.error) as exc:
        raise _bad(path, str(exc)) from None


def _bad(path: str, found: str) -> UsageError:
    # No finding: what was to be audited has not been looked at.
    return UsageError(
        f"{path}: not a state of an audit ({found})",
        next_step="name another file, or remove this one: everything is then read again",
    )
