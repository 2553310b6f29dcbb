"""What an audit that has not ended has found already, by directory, so that it can go on.

A directory is taken from the checkpoint if all of its segments are there that were, each with the
path, size and time of change that it had before it was read. Each part of the work is a file
(`storage.dirs.state_file`) of its own, `part-00007.state`, written when it is done: nothing is
written twice. The files can be deleted at any time, and what they hold is then read again.
"""

from __future__ import annotations

import os
import re
from errno import EACCES, ENOTDIR
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.audit.state import PIECE_TYPES, SegmentKey, key_of
from recovery.summaries.codec import PACKED_VERSION
from recovery.summaries.held import HELD_BYTES
from recovery.summaries.read_findings import GONE
from storage.dirs.discovery import require_outside_log_dirs
from storage.dirs.state_file import StateFile, StateSchema
from storage.errors import AccessError, FormatError, UsageError
from storage.files import fsio
from storage.files.uris import is_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from recovery.summaries.held import HeldSummary, Shelf
    from recovery.summaries.partition import PartitionSummary
    from storage.places.listing import SegmentPlace

PART = re.compile(r"part-(\d{5,})\.state")


class KnownPartition(NamedTuple):
    """A row of a part: its segments as they were listed, and what `pack_partition` made."""

    directory: str
    segments: tuple[SegmentKey, ...]
    packed: bytes


SCHEMA = StateSchema("eoctl-audit-checkpoint", PACKED_VERSION, (KnownPartition, *PIECE_TYPES))


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
        return StateFile(SCHEMA, "a part of a checkpoint of an audit", str(path), self._program)

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
