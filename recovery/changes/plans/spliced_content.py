"""New content that is put together from ranges of files of the log: what is copied as bytes.

A `.log` is put together from `.log` files; another file of a segment is a copy of its like.

A plan holds where the bytes are and a digest of all of them, not the bytes: a replica's log may be
as large as a disk. They are read when the step is done, and compared with the digest before the
file gets its name.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.changes.plans.checked_values import number_of, text_of
from recovery.changes.plans.confinement import is_metadata
from recovery.changes.plans.file_facts import read_chunks
from storage.errors import RefusedError
from storage.file_names import LOG_FILE_KINDS, FileKind, classify, parse_partition_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


_COPIED = LOG_FILE_KINDS - {FileKind.LEADER_EPOCHS}


class LogSlice(NamedTuple):
    """The bytes [start_pos, end_pos) of a file of the log, by its absolute path."""

    path: str
    start_pos: int
    end_pos: int


class Pieces(NamedTuple):
    """Ranges one behind the other, and the SHA-256 (hex) of all their bytes."""

    ranges: tuple[LogSlice, ...]
    sha256: str

    @property
    def total_bytes(self) -> int:
        """Size of all of it."""
        return sum(each.end_pos - each.start_pos for each in self.ranges)

    def to_json(self) -> dict[str, Any]:
        """As a plan holds it."""
        return {"ranges": [each._asdict() for each in self.ranges], "sha256": self.sha256}

    @classmethod
    def from_json(cls, value: Any) -> Pieces:
        """From what `to_json` gave; TypeError, KeyError or ValueError for anything else."""
        ranges = tuple(
            LogSlice(
                text_of(each["path"]), number_of(each["start_pos"]), number_of(each["end_pos"])
            )
            for each in value["ranges"]
        )
        for each in ranges:
            if each.start_pos >= each.end_pos:
                raise ValueError(f"an empty piece of {each.path}")
        return cls(ranges, text_of(value["sha256"]))


def take_pieces(ranges: Sequence[LogSlice]) -> Pieces:
    """Read all of it once, for its digest.

    Raises:
        AccessError: it cannot be read.
    """
    digest = sha256()
    for chunk in _chunks(ranges):
        digest.update(chunk)
    return Pieces(tuple(ranges), digest.hexdigest())


def read_pieces(pieces: Pieces) -> Iterator[bytes]:
    """Yield the bytes; whoever writes them has them as they were only if this comes to its end.

    Raises:
        AccessError: they cannot be read.
        RefusedError: behind the last one: they are not what the plan was made for.
    """
    digest = sha256()
    for chunk in _chunks(pieces.ranges):
        digest.update(chunk)
        yield chunk
    if digest.hexdigest() != pieces.sha256:
        paths = ", ".join(dict.fromkeys(each.path for each in pieces.ranges))
        raise RefusedError(
            f"{paths}: not the bytes that the plan was made for",
            next_step="they were changed since, as by a broker that runs on them",
        )


def _chunks(ranges: Iterable[LogSlice]) -> Iterator[bytes]:
    for each in ranges:
        yield from read_chunks(each.path, each.start_pos, each.end_pos)


def why_not_readable(pieces: Pieces, target: str) -> str:
    """Why a plan must not copy these into a file; "": it may. A plan may come from another hand."""
    kind = classify(Path(target).name).kind
    if kind not in _COPIED:
        return "which is no file of a segment, and only these are put together from pieces"
    wanted = parse_partition_name(Path(target).parent.name)
    for each in pieces.ranges:
        file = Path(each.path)
        found = parse_partition_name(file.parent.name)
        is_like = classify(file.name).kind is kind and file.is_absolute()
        if not is_like or ".." in file.parts or is_metadata(file.parent) or found != wanted:
            return f"from {each.path}, which is no .{kind} of the same partition"
    return ""
