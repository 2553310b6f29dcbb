"""What earlier audits have found, by segment, so that only new segments are read.

A segment is taken from the state if it has the same path, size and time of change, and the same
place in its directory. The file (`storage.dirs.state_file`) can be deleted at any time, and the
next audit then reads everything.
"""

from __future__ import annotations

import os
from errno import EACCES
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from recovery.summaries.codec import COLUMN_DTYPES, PACKED_VERSION, pack_piece, unpack_piece
from recovery.summaries.partition import ReadPiece, join_segment
from recovery.summaries.read_findings import GONE, ReadFinding
from recovery.summaries.segment import PieceSummary
from recovery.summaries.summary import Counts, Extent, Summary
from recovery.timeline.codec import COLUMN_NAMES, LAYOUTS, ROW_DTYPES
from recovery.timeline.piece import Timeline
from recovery.timeline.reading import ReadTimeline
from recovery.timeline.spans import Spans
from storage.dirs.state_file import StateFile, StateSchema
from storage.errors import AccessError, FormatError, UsageError
from storage.files import fsio
from storage.files.uris import is_uri
from storage.places.splits import Split, TimelineStart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from storage.places.listing import SegmentPlace


_NONE: Mapping[str, TimelineStart] = MappingProxyType({})


class SegmentKey(NamedTuple):
    """What a segment is known by; fields as in `SegmentPlace`."""

    path: str
    file_bytes: int
    modified_ns: int
    is_active: bool
    has_sequences: bool


class KnownPiece(NamedTuple):
    """A row of the file: the fields of a `SegmentKey`, and what `pack_piece` made.

    `timeline_from`: the log start that its timeline goes by; None: it has none.
    """

    path: str
    file_bytes: int
    modified_ns: int
    is_active: bool
    has_sequences: bool
    packed: bytes
    timeline_from: int | None


_COLUMNS = tuple(each.descr for each in COLUMN_DTYPES)
_TIMELINE = (ReadTimeline, Timeline, Spans, *(each.descr for each in ROW_DTYPES))
_BINS = tuple((COLUMN_NAMES[each], each.max_bins) for each in dict.fromkeys(LAYOUTS))
# What `recovery.summaries.codec` packs.
PIECE_TYPES = (
    *(PieceSummary, ReadFinding, Summary, Counts, Extent),
    *(*_COLUMNS, *_TIMELINE, *_BINS),
)
SCHEMA = StateSchema("eoctl-audit-state", PACKED_VERSION, (KnownPiece, *PIECE_TYPES))


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
        self._known = {key_of(each): each for each in self._file.load(KnownPiece)}

    @property
    def notes(self) -> list[str]:
        """What of the file was not used, for people."""
        return self._file.notes

    def take(
        self, places: Iterable[SegmentPlace], timelines: Mapping[str, TimelineStart] = _NONE
    ) -> tuple[list[ReadPiece], list[SegmentPlace]]:
        """Return what is known of some segments, and which have to be read.

        `timelines`: of the directories that one is wanted of.
        """
        known, unknown = [], []
        for place in places:
            row = self._known.get(key_of(place)) if place.modified_ns else None
            wanted = timelines.get(place.directory)
            piece = None
            if row is not None and (wanted is None or row.timeline_from == wanted.log_start_offset):
                try:
                    piece = unpack_piece(row.packed)
                except FormatError as exc:
                    self._file.pass_over(f"damaged ({exc})")
            if piece is None:
                unknown.append(place)
            else:
                if wanted is None and row is not None and row.timeline_from is not None:
                    wanted = TimelineStart(row.timeline_from)  # kept for the next run
                split = Split(
                    place=place,
                    start_pos=0,
                    end_pos=place.file_bytes,
                    is_last=True,
                    timeline=wanted,
                )
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
                wanted = split.timeline
                rows.append(
                    KnownPiece(
                        **key_of(split.place)._asdict(),
                        packed=pack_piece(piece),
                        timeline_from=None if wanted is None else wanted.log_start_offset,
                    )
                )
        self._file.save(sorted(rows, key=key_of))


def key_of(place: SegmentPlace | KnownPiece) -> SegmentKey:
    """Return what a segment is known by."""
    return SegmentKey(
        path=place.path,
        file_bytes=place.file_bytes,
        modified_ns=place.modified_ns,
        is_active=place.is_active,
        has_sequences=place.has_sequences,
    )
