"""Which files of a copy a new log dir gets, and how: copied, or linked where no broker writes.

  `.log` of a closed segment    may be a second name of the same file: brokers append to the last
                                one only, and cut nothing of a log that is sound
  last `.log`                   always a copy: what is appended to a link is in the source, too
  `.index`, `.timeindex`, ...   always copies: a recovery writes them in place. Zeros that were
                                preallocated are left out: a broker makes room again
  leader-epoch-checkpoint       as it is
  partition.metadata            with the id that the topic has
  `.swap` of a compaction or    as it is: the first start puts them in the place of what they
  a split that did not end      replace, as that of the source would have (REC-4)
  `.cleaned`, `.deleted`        left out: a broker would remove them, and any `.swap` that a
                                `.cleaned` says is not all there (REC-3)

Where a copy is repaired, what the repair would make of its files is written in their place: the
source stays as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.plans.file_facts import data_bytes_of
from recovery.changes.plans.plan import Action, Step, absolute_path, remove_step, replace_step
from recovery.changes.plans.spliced_content import LogSlice, take_pieces
from storage.errors import AccessError
from storage.file_names import LEADER_EPOCHS_NAME, FileKind, FileSuffix
from storage.formats.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from storage.formats.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import FileEntry

_ENTRY_BYTES = {
    FileKind.INDEX: OFFSET_ENTRY_BYTES,
    FileKind.TIMEINDEX: TIME_ENTRY_BYTES,
}


class TakenFile(NamedTuple):
    """A file of the new directory: pieces of others, or a content.

    Attributes:
        is_whole: of `.log`: all of one file, whose segment is closed.
    """

    name: str
    ranges: tuple[LogSlice, ...]
    content: bytes
    is_whole: bool = False

    @property
    def file_bytes(self) -> int:
        """Its size."""
        return len(self.content) + sum(each.end_pos - each.start_pos for each in self.ranges)


def taken_files(partition: Partition, repairs: Sequence[Step] = ()) -> list[TakenFile]:
    """List the files that are taken of a copy, as they are or as a repair would leave them.

    Raises:
        AccessError: one cannot be read.
    """
    files = {each.name: each for each in _as_they_are(partition)}
    for step in repairs:
        name = Path(step.path).name
        if step.action is Action.REMOVE:
            files.pop(name, None)
        elif step.action is Action.TRUNCATE:
            files[name] = _sliced(step.path, step.after_bytes)
        elif step.pieces is not None:
            files[name] = TakenFile(name, step.pieces.ranges, b"")
        elif step.action is Action.REPLACE:
            files[name] = TakenFile(name, (), step.content or b"")
    # As a broker must not meet a later segment without those before it.
    return [files[name] for name in sorted(files, reverse=True)]


def _as_they_are(partition: Partition) -> Iterator[TakenFile]:
    for each in partition.segments:
        is_last = partition.is_active(each)
        end_bytes = _log_bytes(partition, each.log) if is_last else each.log.file_bytes
        yield _sliced(each.log.path, end_bytes)._replace(is_whole=not is_last)
        for entry in (each.offset_index, each.time_index, each.txn_index):
            if entry is not None:
                yield _index(entry)
    for entry in (*partition.files.snapshots, *swaps_of(partition)):
        yield _sliced(entry.path, entry.file_bytes)
    epochs = partition.files.other(LEADER_EPOCHS_NAME)
    if epochs is not None:
        yield TakenFile(LEADER_EPOCHS_NAME, (), _read(epochs.path))


def swaps_of(partition: Partition) -> list[FileEntry]:
    """The new segments that a start puts in the place of others (REC-3)."""
    others = partition.files.others
    unfinished = [e.name.offset or 0 for e in others if e.name.suffix is FileSuffix.CLEANED]
    return [
        each
        for each in others
        if each.name.suffix is FileSuffix.SWAP
        and all((each.name.offset or 0) < least for least in unfinished)
    ]


def _sliced(path: str, end_bytes: int) -> TakenFile:
    path = absolute_path(path)
    ranges = (LogSlice(path, 0, end_bytes),) if end_bytes else ()
    return TakenFile(Path(path).name, ranges, b"")


def _log_bytes(partition: Partition, entry: FileEntry) -> int:
    """Without what was preallocated. A batch may end with zeros, too."""
    end = partition.log_end()
    valid_bytes = 0 if end is None else end.valid_bytes
    return max(valid_bytes, data_bytes_of(entry.path, 0, entry.file_bytes))


def _index(entry: FileEntry) -> TakenFile:
    width = _ENTRY_BYTES.get(entry.name.kind)
    if width is None:
        return _sliced(entry.path, entry.file_bytes)
    data_bytes = data_bytes_of(entry.path, 0, entry.file_bytes)
    return _sliced(entry.path, min(-(-data_bytes // width) * width, entry.file_bytes))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise AccessError(error, path) from error


def file_steps(directory: str, files: Sequence[TakenFile], *, is_linked: bool) -> Iterator[Step]:
    """Plan the files of a partition directory that is made. Reads what is copied, for its digest.

    Raises:
        AccessError, RefusedError: a file cannot be read.
    """
    for each in files:
        path = f"{directory}/{each.name}"
        if not each.ranges:
            yield replace_step(path, each.content, "as it is in the copy")
            continue
        is_link = is_linked and each.is_whole
        yield Step(
            action=Action.LINK if is_link else Action.REPLACE,
            path=path,
            before=None,
            after_bytes=each.file_bytes,
            reason="a second name: no broker writes to it" if is_link else "copied",
            pieces=take_pieces(each.ranges),
        )


def removal_steps(partition: Partition) -> Iterator[Step]:
    """Plan to take the files of a copy away that has moved; partition.metadata stays.

    Raises:
        AccessError, RefusedError: as `remove_step`.
    """
    directory = absolute_path(partition.path)
    entries: Mapping[str, FileEntry] = {
        each.name.name: each
        for segment in reversed(partition.segments)
        for each in (
            segment.log, segment.offset_index, segment.time_index, segment.txn_index,
        )
        if each is not None
    }  # fmt: skip
    names = [each.name.name for each in swaps_of(partition)]
    names += [*entries, *(each.name.name for each in partition.files.snapshots)]
    if partition.files.other(LEADER_EPOCHS_NAME) is not None:
        names.append(LEADER_EPOCHS_NAME)
    for name in names:
        yield remove_step(f"{directory}/{name}", "it has moved")
