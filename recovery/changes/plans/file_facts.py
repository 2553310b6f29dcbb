"""The facts about a file when it was read, and checked values of plans from elsewhere."""

from __future__ import annotations

import math
import os
import stat
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import AccessError, RefusedError, os_errors
from storage.file_names import FileKind, classify
from storage.files.positioned_file import MEDIA_ERRNOS, FileRange, PositionedFile
from storage.limits import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator


# -- values of plans and journals, which may come from elsewhere, and must be checked before use.
#
# All functions raise TypeError or ValueError for anything else.


MAX_BYTES = INT64_MAX
MAX_ID = 2**32 - 1
MAX_MODE = 0o7777
# More than 64 bits: ext4 and XFS allow times after the year 2262, btrfs and tmpfs far later.
MAX_TIME_NS = 2**70
MAX_DEPTH = 32
_MESSAGE_PACK_INTEGERS = range(-INT64_MAX - 1, 2**64)


def text_of(value: object) -> str:
    """Return a text that can be the name of a file."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    if b"\0" in os.fsencode(value):  # also refuses surrogates that represent no byte
        raise ValueError(f"{value!r} is no name")
    return value


def number_of(value: object, maximum: int = MAX_BYTES) -> int:
    """Return a size, a count, or an id."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise TypeError(f"{value!r} is no number from 0 to {maximum}")
    return int(value)


def time_ns_of(value: object) -> int:
    """Return a time. It may be before 1970, or text in a journal if it has more than 64 bits."""
    number = int(value) if isinstance(value, str) and len(value) < 32 else value
    is_number = isinstance(number, int) and not isinstance(number, bool)
    if not is_number or not -MAX_TIME_NS <= number <= MAX_TIME_NS:  # type: ignore[operator]
        raise TypeError(f"{value!r} is no number of nanoseconds")
    return int(number)  # type: ignore[call-overload, no-any-return]


def bool_of(value: object) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def plain_object(value: object) -> dict[str, Any]:
    """Return a JSON object that can be printed in each format, and written again."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no object")
    _require_plain(value, MAX_DEPTH)
    return value


def _require_plain(value: object, depth: int) -> None:
    if depth == 0:
        raise ValueError("it is nested too deeply")
    if isinstance(value, dict):
        for name, each in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{name!r} is no name of a field")
            _require_plain(each, depth - 1)
    elif isinstance(value, list):
        for each in value:
            _require_plain(each, depth - 1)
        # A list with an object is a table. Its columns are the fields of its first row.
        if len({frozenset(each) if isinstance(each, dict) else None for each in value}) > 1:
            raise ValueError("the rows of a table have different fields")
    elif isinstance(value, int):
        if value not in _MESSAGE_PACK_INTEGERS:
            raise ValueError("it has a number of more than 64 bits")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no number")
    elif value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} is no value of JSON")


# -- facts about a file when it was read, so that a later check shows whether it changed.
#
# Size and modification time show changes by a broker, mode and owner changes by an administrator.
# The digest shows a replaced file with the same values. It covers the bytes that a step touches and
# the last MiB, or all of a small file. To read terabytes of `.log` again would take hours. It
# leaves out the zeros at the end, which the size implies: a file with a hole there may be larger
# than its disk.


Range = tuple[int, int]  # positions in a file, half open

TAIL_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 20
_BLOCK_BYTES = 512  # of st_blocks, on every file system

UNREADABLE = "unreadable"


class FileFacts(NamedTuple):
    """A regular file at one moment. `sha256` (hex) is of the bytes [digest_start, digest_end).

    It does not include the zeros at their end.
    """

    file_bytes: int
    mtime_ns: int
    mode: int
    uid: int
    gid: int
    digest_start: int
    digest_end: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        """Return the object that the plan and the journal store."""
        return self._asdict()

    @classmethod
    def from_json(cls, value: Any) -> FileFacts:
        """Parse the output of `to_json`. Raises TypeError or ValueError for anything else."""
        facts = cls(**value)
        for number in (facts.file_bytes, facts.digest_start, facts.digest_end):
            number_of(number)
        number_of(facts.mode, MAX_MODE)
        number_of(facts.uid, MAX_ID)
        number_of(facts.gid, MAX_ID)
        text_of(facts.sha256)
        return facts._replace(mtime_ns=time_ns_of(facts.mtime_ns))


def inspect(
    path: str, *, touched_from: int | None = 0, digest_range: Range | None = None
) -> FileFacts | None:
    """Return the facts of a regular file, or None if the path does not exist.

    Args:
        path: symbolic links are not followed.
        touched_from: start of the bytes that a step touches, up to the end of the file. None: only
            the file name changes. The digest covers these bytes and the last MiB. If only the name
            changes and the disk cannot read that MiB, the digest covers nothing.
        digest_range: the digest instead covers the last MiB of these bytes.

    Raises:
        AccessError: it cannot be read.
        RefusedError: it is not a regular file, and a change would destroy it.
    """
    found = _lstat(path)
    if found is None:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise RefusedError(
            f"{path}: is no regular file, and changing it would lose what it is",
            next_step="put the file itself there, then run it again",
        )
    size = found.st_size
    start, end = (0, size) if digest_range is None else digest_range
    start = max(end - TAIL_BYTES, start)
    if touched_from is not None and digest_range is None:
        start = min(start, touched_from)
    try:
        sha256_hex = digest_of_data(path, start, end)
    except AccessError as error:
        if touched_from is not None or error.errno not in MEDIA_ERRNOS:
            raise
        start = end
        sha256_hex = digest_of_data(path, start, end)
    return FileFacts(
        file_bytes=size,
        mtime_ns=found.st_mtime_ns,
        mode=stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        digest_start=start,
        digest_end=end,
        sha256=sha256_hex,
    )


def is_still(path: str, facts: FileFacts | None) -> bool:
    """Return whether the file is unchanged. None: return whether there is no file.

    Raises:
        AccessError: it cannot be read.
    """
    found = _lstat(path)
    if found is None or facts is None:
        return found is None and facts is None
    if not stat.S_ISREG(found.st_mode):
        return False
    mode = stat.S_IMODE(found.st_mode)
    now = (found.st_size, found.st_mtime_ns, mode, found.st_uid, found.st_gid)
    if now != (facts.file_bytes, facts.mtime_ns, facts.mode, facts.uid, facts.gid):
        return False
    return digest_of_data(path, facts.digest_start, facts.digest_end) == facts.sha256


def has_bytes_of(path: str, facts: FileFacts) -> bool:
    """Return whether a file has the same content as another, whatever its mode and owner are.

    If the digest does not cover the whole file, the modification time must be the same.

    Raises:
        AccessError: it cannot be read.
    """
    found = _lstat(path)
    if found is None or not stat.S_ISREG(found.st_mode) or found.st_size != facts.file_bytes:
        return False
    is_whole = facts.digest_start == 0 and facts.digest_end == facts.file_bytes
    if not is_whole and found.st_mtime_ns != facts.mtime_ns:
        return False
    return digest_of_data(path, facts.digest_start, facts.digest_end) == facts.sha256


def _lstat(path: str) -> os.stat_result | None:
    with os_errors(path):
        try:
            return os.lstat(path)
        except FileNotFoundError:
            return None


def freed_bytes(path: str) -> int:
    """Return the disk blocks that the removal of a file frees. 0 if it has other hard links.

    A file whose blocks are shared with a copy (reflink) frees less.

    Raises:
        AccessError: its state cannot be read.
    """
    found = _lstat(path)
    return 0 if found is None or found.st_nlink > 1 else found.st_blocks * _BLOCK_BYTES


def digest_of(path: str, start_pos: int, end_pos: int) -> str:
    """Return the SHA-256 of the bytes [start_pos, end_pos) as hex, up to the end of the file.

    Raises:
        AccessError: they cannot be read.
    """
    digest = sha256()
    for chunk in read_chunks(path, start_pos, end_pos):
        digest.update(chunk)
    return digest.hexdigest()


def digest_of_data(path: str, start_pos: int, end_pos: int) -> str:
    """Return the digest without the zeros at the end, as `FileFacts` has it.

    Raises:
        AccessError: they cannot be read.
    """
    return digest_of(path, start_pos, start_pos + data_bytes_of(path, start_pos, end_pos))


def read_chunks(path: str, start_pos: int, end_pos: int) -> Iterator[bytes]:
    """Yield the bytes [start_pos, end_pos) of a file in chunks, up to its end.

    Raises:
        AccessError: the operating system refused to read them.
    """
    fd = -1
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        pos = start_pos
        while pos < end_pos:
            chunk = os.pread(fd, min(_CHUNK_BYTES, end_pos - pos), pos)
            if not chunk:
                return
            yield chunk
            pos += len(chunk)
    except OSError as error:
        raise AccessError(
            error,
            path,
            next_step="nothing was changed; what cannot be read cannot be backed up either:"
            " save what can be read first",
        ) from error
    finally:
        if fd >= 0:
            os.close(fd)


def data_bytes_of(path: str, start_pos: int, end_pos: int) -> int:
    """Return the size of the bytes [start_pos, end_pos) without the zeros at their end.

    Unreadable bytes do not count as zeros. Holes are not read.

    Raises:
        AccessError: the file cannot be opened.
    """
    with PositionedFile(path) as file:
        return max(FileRange(file, end_pos).data_end_pos(start_pos) - start_pos, 0)


MAX_KEPT_ZEROS = 4095  # a batch often ends with a zero, a hole in a file has whole blocks


def kept_bytes_of(path: str, start_pos: int, end_pos: int) -> int:
    """Return how many of the bytes [start_pos, end_pos) a backup keeps.

    It leaves out zeros at their end, which the size implies, if there are many.

    Raises:
        AccessError: the file cannot be opened.
    """
    data_bytes = data_bytes_of(path, start_pos, end_pos)
    is_whole = end_pos - start_pos - data_bytes <= MAX_KEPT_ZEROS
    return end_pos - start_pos if is_whole else data_bytes


def listing_digest(directory: str) -> str:
    """Return the SHA-256 (hex) of names, sizes and times of the files of a directory.

    "": it does not exist. UNREADABLE: it cannot be listed, so changes cannot be detected.
    """
    try:
        if not Path(directory).is_dir():
            return ""
        files = sorted(list_files(directory).items())
    except (OSError, AccessError):
        return UNREADABLE
    return sha256(repr(files).encode("utf-8", "replace")).hexdigest()


def list_files(directory: str) -> dict[str, tuple[int, int]]:
    """Return size and mtime_ns of Kafka's data files in a directory.

    This excludes eoctl's own files: temporary files, and the note of an unfinished plan.

    Raises:
        AccessError: it cannot be listed.
    """
    found = {}
    with os_errors(directory), os.scandir(directory) as entries:
        for entry in entries:
            is_kafkas = classify(entry.name).kind not in (FileKind.UNKNOWN, FileKind.LOCK)
            if not is_kafkas or not entry.is_file(follow_symlinks=False):
                continue
            status = entry.stat(follow_symlinks=False)
            found[entry.name] = (status.st_size, status.st_mtime_ns)
    return found
