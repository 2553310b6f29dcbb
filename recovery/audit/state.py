"""What earlier audits have found, one that did not end too, so that only new segments are read."""

from __future__ import annotations

import os
import re
from errno import EACCES, ENOTDIR
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from recovery.summaries.codec import (
    COLUMN_DTYPES,
    HELD_BYTES,
    PACKED_VERSION,
    pack_piece,
    unpack_piece,
)
from recovery.summaries.partition import ReadPiece, join_segment
from recovery.summaries.segment import PieceSummary
from recovery.summaries.summary import Counts, Extent, Summary
from recovery.timeline.piece import COLUMN_NAMES, LAYOUTS, ROW_DTYPES, ReadTimeline, Timeline
from recovery.timeline.spans import Spans
from storage.dirs.discovery import require_outside_log_dirs
from storage.dirs.state_file import StateFile, StateSchema
from storage.errors import AccessError, FormatError, UsageError
from storage.files import fsio
from storage.files.uris import is_uri
from storage.places.log_reader import GONE, ReadFinding
from storage.places.splits import Split, TimelineStart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from recovery.summaries.codec import HeldSummary, Shelf
    from recovery.summaries.partition import PartitionSummary
    from storage.places.listing import SegmentPlace


# -- what earlier audits have found, by segment, so that only new segments are read
#
# A segment is taken from the state if it has the same path, size and time of change, and the same
# place in its directory. The file (`storage.dirs.state_file`) can be deleted at any time, and the
# next audit then reads everything.


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


# -- what an audit that has not ended has found already, by directory, so that it can go on
#
# A directory is taken from the checkpoint if all of its segments are there that were, each with
# the path, size and time of change that it had before it was read. Each part of the work is a
# file (`storage.dirs.state_file`) of its own, `part-00007.state`, written when it is done:
# nothing is written twice. The files can be deleted at any time, and what they hold is then read
# again.


PART = re.compile(r"part-(\d{5,})\.state")


class KnownPartition(NamedTuple):
    """A row of a part: its segments as they were listed, and what `pack_partition` made."""

    directory: str
    segments: tuple[SegmentKey, ...]
    packed: bytes


CHECKPOINT_SCHEMA = StateSchema(
    "eoctl-audit-checkpoint", PACKED_VERSION, (KnownPartition, *PIECE_TYPES)
)


class AuditCheckpoint:
    """Directories that are done; of what was found a part at a time is in memory, and the shelf.

    Attributes:
        notes: what of it was not used, for people.

    Raises:
        RefusedError: it lies in a log dir.
        AccessError: it cannot be read.
        UsageError: it is behind a URI, or a part is something else.
    """

    def __init__(self, path: str, program: str, shelf: Shelf) -> None:
        """Load it onto a shelf.

        `program` names the release, for one release may count what another does not.
        """
        if not path:
            raise UsageError("--checkpoint: no directory is named")
        if is_uri(path):
            raise UsageError(f"--checkpoint {path}: it is a local directory, not a URI")
        require_outside_log_dirs(path, "name a directory elsewhere")
        self.path = path
        self.notes: list[str] = []
        self._program = program
        self._known: dict[str, tuple[tuple[SegmentKey, ...], HeldSummary]] = {}
        numbers = sorted(self._part_numbers())
        self._next_number = numbers[-1] + 1 if numbers else 0
        for number in numbers:
            part = self._part(number)
            for each in part.load(KnownPartition):
                self._known[each.directory] = each.segments, shelf.put(each.packed)
            self.notes += part.notes

    def _part_numbers(self) -> list[int]:
        try:
            names = [each.name for each in Path(self.path).iterdir()]
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise AccessError(exc, self.path) from exc
        return [int(found[1]) for found in map(PART.fullmatch, names) if found]

    def _part(self, number: int) -> StateFile:
        path = Path(self.path, f"part-{number:05d}.state")
        return StateFile(
            CHECKPOINT_SCHEMA, "a part of a checkpoint of an audit", str(path), self._program
        )

    def require_writable(self) -> None:
        """Make the directory, and see that parts can be written. Raises AccessError."""
        if not os.path.lexists(self.path):
            try:
                fsio.FileSystem().make_dir(self.path)
            except OSError as exc:
                raise AccessError(exc, self.path) from exc
        is_dir = Path(self.path).is_dir()
        if not (is_dir and os.access(self.path, os.W_OK | os.X_OK)):
            code = EACCES if is_dir else ENOTDIR
            raise AccessError(OSError(code, os.strerror(code)), self.path)

    def take(
        self, places: Iterable[SegmentPlace]
    ) -> tuple[dict[str, HeldSummary], list[SegmentPlace]]:
        """Return what is known, by directory, and the segments of the others."""
        known: dict[str, HeldSummary] = {}
        wanted: list[SegmentPlace] = []
        for directory, segments in by_directory(places):
            keys, held = self._known.pop(directory, (None, None))
            if held is None or keys != _keys(segments) or not _are_dated(segments):
                wanted += segments
                continue
            try:
                held.unpacked()
            except FormatError as exc:
                self.notes.append(f"{self.path}: {directory} is damaged ({exc}): read again")
                wanted += segments
            else:
                known[directory] = held
        return known, wanted

    def keep(self, found: Mapping[str, HeldSummary], places: Iterable[SegmentPlace]) -> None:
        """Write what was found in directories, as a part or as several of about HELD_BYTES.

        What failed to be read, or was not there, may be there the next time: it is left out.

        Args:
            found: by directory.
            places: all segments of these, as they were listed before they were read.

        Raises:
            AccessError: it cannot be written.
        """
        rows: list[KnownPartition] = []
        size = 0
        for directory, segments in by_directory(places):
            held = found.get(directory)
            if held is None or not _is_whole(held.unpacked()):
                continue
            packed = held.packed()
            rows.append(KnownPartition(directory, _keys(segments), packed))
            size += len(packed)
            if size >= HELD_BYTES:
                self._save(rows)
                rows, size = [], 0
        self._save(rows)

    def _save(self, rows: Sequence[KnownPartition]) -> None:
        if rows:
            self._part(self._next_number).save(rows)
            self._next_number += 1


def by_directory(places: Iterable[SegmentPlace]) -> Iterator[tuple[str, list[SegmentPlace]]]:
    """Give each directory with its segments, in the order in which they come."""
    groups: dict[str, list[SegmentPlace]] = {}
    for each in places:
        groups.setdefault(each.directory, []).append(each)
    yield from groups.items()


def waves_of(places: Iterable[SegmentPlace], wave_bytes: int) -> Iterator[list[SegmentPlace]]:
    """Give the segments of whole directories, in waves of at least `wave_bytes`."""
    wave: list[SegmentPlace] = []
    size = 0
    for _, segments in by_directory(places):
        wave += segments
        size += sum(each.file_bytes for each in segments)
        if size >= wave_bytes:
            yield wave
            wave, size = [], 0
    if wave:
        yield wave


def _keys(segments: Sequence[SegmentPlace]) -> tuple[SegmentKey, ...]:
    return tuple(map(key_of, segments))


def _are_dated(segments: Sequence[SegmentPlace]) -> bool:
    """Is it known of all of them when they were changed?"""
    return all(each.modified_ns for each in segments)


def _is_whole(found: PartitionSummary) -> bool:
    """Was all of it read? Only the first of many findings are there to tell."""
    is_told = found.findings_count <= len(found.findings)
    is_lost = found.damage.is_unreadable or any(each.kind == GONE for each in found.findings)
    return is_told and not is_lost
