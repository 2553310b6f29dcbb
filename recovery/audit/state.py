"""Results of earlier and unfinished audits, so that an audit reads only new segments."""

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


# -- results of earlier audits, by segment, so that only new segments are read.
#
# A segment comes from the state if it has the same path, size and modification time, and the same
# place in its directory. The file (`storage.dirs.state_file`) can be deleted at any time. The
# next audit then reads everything.


_NONE: Mapping[str, TimelineStart] = MappingProxyType({})


class SegmentKey(NamedTuple):
    """The key of a segment. The fields are as in `SegmentPlace`."""

    path: str
    file_bytes: int
    modified_ns: int
    is_active: bool
    has_sequences: bool


class KnownPiece(NamedTuple):
    """A row of the file: the fields of a `SegmentKey`, and the output of `pack_piece`.

    `timeline_from`: the log start offset that its timeline uses. None: it has no timeline.
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
# The types that `recovery.summaries.codec` packs.
PIECE_TYPES = (
    *(PieceSummary, ReadFinding, Summary, Counts, Extent),
    *(*_COLUMNS, *_TIMELINE, *_BINS),
)
SCHEMA = StateSchema("eoctl-audit-state", PACKED_VERSION, (KnownPiece, *PIECE_TYPES))


class AuditState:
    """The pieces of earlier audits, by segment.

    Raises:
        RefusedError: the file lies in a log dir.
        AccessError: the file exists and cannot be read.
        UsageError: the file is something else.
    """

    def __init__(self, path: str, program: str) -> None:
        """Load the file. `program` names the release, because releases may count differently."""
        if not path:
            raise UsageError("--state: no file is named")
        self.path = path
        self._file = StateFile(SCHEMA, "a state of an audit", path, program)
        self._known = {key_of(each): each for each in self._file.load(KnownPiece)}

    @property
    def notes(self) -> list[str]:
        """Messages about the unused rows of the file."""
        return self._file.notes

    def take(
        self, places: Iterable[SegmentPlace], timelines: Mapping[str, TimelineStart] = _NONE
    ) -> tuple[list[ReadPiece], list[SegmentPlace]]:
        """Return the known pieces of some segments, and the segments to read.

        `timelines`: for the directories that need a timeline.
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
        """Check before the audit for errors of `save`, as far as they can be predicted."""
        if is_uri(self.path):
            raise UsageError(f"{self.path}: the state is a local file, not a URI")
        fsio.require_replaceable(self.path)
        directory = Path(self.path).absolute().parent
        if not os.access(directory, os.W_OK | os.X_OK):
            raise AccessError(PermissionError(EACCES, os.strerror(EACCES)), str(directory))

    def save(self, pieces: Sequence[ReadPiece]) -> None:
        """Replace the file by the pieces of these segments. Raises AccessError."""
        by_path: dict[str, list[ReadPiece]] = {}
        for each in pieces:
            by_path.setdefault(each.split.place.path, []).append(each)
        rows = []
        for group in by_path.values():
            group.sort(key=lambda each: each.split.start_pos)
            split, piece = join_segment(group)
            # Unreadable or missing segments may be readable in the next run.
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
    """Return the key of a segment."""
    return SegmentKey(
        path=place.path,
        file_bytes=place.file_bytes,
        modified_ns=place.modified_ns,
        is_active=place.is_active,
        has_sequences=place.has_sequences,
    )


# -- results of an unfinished audit, by directory, so that the audit can resume.
#
# A directory comes from the checkpoint if it has the same segments as before. Each must have the
# path, size and modification time from before it was read. Each part is a separate file
# (`storage.dirs.state_file`), `part-00007.state`. It is written once, when that part is done.
# The files can be deleted at any time. Their directories are then read again.


PART = re.compile(r"part-(\d{5,})\.state")


class KnownPartition(NamedTuple):
    """A row of a part: its segments as they were listed, and the output of `pack_partition`."""

    directory: str
    segments: tuple[SegmentKey, ...]
    packed: bytes


CHECKPOINT_SCHEMA = StateSchema(
    "eoctl-audit-checkpoint", PACKED_VERSION, (KnownPartition, *PIECE_TYPES)
)


class AuditCheckpoint:
    """The finished directories. Memory holds a single part, and the shelf holds the results.

    Attributes:
        notes: messages about unused parts.

    Raises:
        RefusedError: it lies in a log dir.
        AccessError: it cannot be read.
        UsageError: the path is empty or a URI, or a part is something else.
    """

    def __init__(self, path: str, program: str, shelf: Shelf) -> None:
        """Load it onto a shelf.

        `program` names the release, because releases may count differently.
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
        """Create the directory, and check that parts can be written. Raises AccessError."""
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
        """Return the known results by directory, and the segments of the other directories."""
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
        """Write the results of directories, as one or several parts of about HELD_BYTES.

        Directories with unreadable or missing files are left out, so that the next run reads them.

        Args:
            found: results by directory.
            places: all segments of these directories, as they were listed before they were read.

        Raises:
            AccessError: a part cannot be written.
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
    """Yield each directory with its segments, in input order."""
    groups: dict[str, list[SegmentPlace]] = {}
    for each in places:
        groups.setdefault(each.directory, []).append(each)
    yield from groups.items()


def waves_of(places: Iterable[SegmentPlace], wave_bytes: int) -> Iterator[list[SegmentPlace]]:
    """Yield the segments of whole directories, in waves of at least `wave_bytes`."""
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
    """Return whether all of them have a modification time."""
    return all(each.modified_ns for each in segments)


def _is_whole(found: PartitionSummary) -> bool:
    """Return whether all of it was read, and it keeps all of its findings."""
    is_reported = found.findings_count <= len(found.findings)
    is_lost = found.damage.is_unreadable or any(each.kind == GONE for each in found.findings)
    return is_reported and not is_lost
