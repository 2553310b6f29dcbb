"""What earlier audits have found, by segment, so that only new segments are read.

A segment is taken from the state if it has the same path, size and time of change, and the same
place in its directory. The file (`storage.dirs.state_file`) can be deleted at any time, and the
next audit then reads everything.
"""

from __future__ import annotations

import os
from errno import EACCES
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.summaries.codec import COLUMN_DTYPES, PACKED_VERSION, pack_piece, unpack_piece
from recovery.summaries.partition import ReadPiece, join_segment
from recovery.summaries.read_findings import GONE, ReadFinding
from recovery.summaries.segment import PieceSummary
from recovery.summaries.summary import Counts, Extent, Summary
from storage.dirs.state_file import StateFile, StateSchema
from storage.errors import AccessError, FormatError, UsageError
from storage.files import fsio
from storage.files.uris import is_uri
from storage.places.splits import Split

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from storage.places.listing import SegmentPlace


class Key(NamedTuple):
    """What a segment is known by; fields as in `SegmentPlace`."""

    path: str
    file_bytes: int
    modified_ns: int
    is_active: bool
    has_sequences: bool


class KnownPiece(NamedTuple):
    """A row of the file: the fields of a `Key`, and what `pack_piece` made."""

    path: str
    file_bytes: int
    modified_ns: int
    is_active: bool
    has_sequences: bool
    packed: bytes


_PIECE = (PieceSummary, ReadFinding, Summary, Counts, Extent)
_COLUMNS = tuple(each.descr for each in COLUMN_DTYPES)
SCHEMA = StateSchema("eoctl-audit-state", PACKED_VERSION, (KnownPiece, *_PIECE, *_COLUMNS))


class AuditState:
    """Pieces by segment.

    Raises:
        RefusedError: the file lies in a log dir.
        AccessError: it is there and cannot be read.
        UsageError: it is something else.
    """

    def __init__(self, path: str, program: str) -> None:
        """Load it; `program` names the release, for one release may count what another does not."""
        if not path:
            raise UsageError("--state: no file is named")
        self.path = path
        self._file = StateFile(SCHEMA, "a state of an audit", path, program)
        self._known = {_key(each): each.packed for each in self._file.load(KnownPiece)}

    @property
    def notes(self) -> list[str]:
        """What of the file was not used, for people."""
        return self._file.notes

    def take(self, places: Iterable[SegmentPlace]) -> tuple[list[ReadPiece], list[SegmentPlace]]:
        """Return what is known of some segments, and which have to be read."""
        known, unknown = [], []
        for place in places:
            packed = self._known.get(_key(place)) if place.modified_ns else None
            piece = None
            if packed is not None:
                try:
                    piece = unpack_piece(packed)
                except FormatError as exc:
                    self._file.pass_over(f"damaged ({exc})")
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
                rows.append(KnownPiece(**_key(split.place)._asdict(), packed=pack_piece(piece)))
        self._file.save(sorted(rows))


def _key(place: SegmentPlace | KnownPiece) -> Key:
    return Key(
        path=place.path,
        file_bytes=place.file_bytes,
        modified_ns=place.modified_ns,
        is_active=place.is_active,
        has_sequences=place.has_sequences,
    )
