"""Which of several copies of a partition is served, and up to where.

Copies of which one continues the other are no conflict: the one that reaches furthest is served.
Where they part, by their leader epochs, none can be trusted to be the cluster's log: what all of
them agree on is served, and what lies above only on demand. Copies without leader epochs are
compared batch by batch.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.cluster.coordinator_log import reach
from storage.dirs.partition import Partition
from storage.errors import AccessError, RefusedError, pasted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.elections.copies import LogCopy
    from storage.dirs.discovery import Selected


class Preferences(NamedTuple):
    """Directories that decide; empty: none does.

    Attributes:
        prefer: its copies are served, up to where all agree.
        diverged: its copies are served to their ends.
    """

    prefer: str = ""
    diverged: str = ""


class ChosenCopy(NamedTuple):
    """What is served.

    Attributes:
        selected: a directory.
        end_offset: up to where; None: to its end.
        notes: what is to be known.
        is_lacking: something that the copies have is not given, and nobody has decided so.
    """

    selected: Selected
    end_offset: int | None = None
    notes: tuple[str, ...] = ()
    is_lacking: bool = False


def lies_in(selected: Selected, directory: str) -> bool:
    """Whether a partition directory is, or lies in, one that a user has named."""
    wanted = Path(directory).resolve()
    own = Path(selected.partition.path).resolve()
    return wanted in (own, own.parent)


def choose(copies: tuple[Selected, ...], preferences: Preferences) -> ChosenCopy:
    """Choose one of the copies of a partition.

    Raises:
        AccessError: none of them can be read.
    """
    if len(copies) == 1:
        return ChosenCopy(copies[0])
    from recovery.elections.copies import read_copy

    read: list[tuple[Selected, LogCopy]] = []
    notes: list[str] = []
    failed: AccessError | None = None
    for place, each in enumerate(copies):
        try:
            read.append((each, read_copy(each, place, reads_headers=True)))
        except RefusedError as exc:
            notes.append(f"{exc.message}: this copy is not served while others are here")
        except AccessError as exc:
            failed = exc.without_frames()
            notes.append(str(failed))
    if not read:
        if failed is not None:
            raise failed
        return ChosenCopy(copies[0], notes=tuple(notes), is_lacking=True)
    read = _of_one_topic(read, notes)
    best = max(read, key=lambda each: _rank(each, preferences))
    notes += _told_apart(best[1], read)
    notes += _told_behind(best[1], read)
    is_lacking = bool(notes)
    conflict = _agreed_end(read, notes)
    if conflict is None:
        return ChosenCopy(best[0], notes=tuple(notes), is_lacking=is_lacking)
    agreed, where = conflict
    if preferences.diverged and lies_in(best[0], preferences.diverged):
        notes.append(f"{where}: that of {best[1].partition.path} is served to its end")
        return ChosenCopy(best[0], notes=tuple(notes), is_lacking=is_lacking)
    notes.append(
        f"{where}: nothing above is served; --diverged {pasted(_log_dir_of(best[0]))} serves what"
        " that copy has"
    )
    return ChosenCopy(best[0], agreed, tuple(notes), is_lacking=True)


def _told_apart(best: LogCopy, read: list[tuple[Selected, LogCopy]]) -> Iterator[str]:
    """Say which copies have what the served one has not, and nothing by which they compare."""
    for _, each in read:
        if each is not best and _is_apart(each, best):
            yield (
                f"{each.partition.path} has offsets {each.start_offset} to {each.end_offset - 1},"
                f" and {best.partition.path} begins at {best.start_offset}: they have no offset in"
                f" common; --prefer {pasted(str(Path(each.partition.path).parent))} serves it"
            )


def _told_behind(best: LogCopy, read: list[tuple[Selected, LogCopy]]) -> Iterator[str]:
    """Say which copies have more than the served one, behind damage or lost offsets."""
    for _, each in read:
        end_offset = each.log_end_offset or 0
        if each is not best and each.notes and end_offset > (best.log_end_offset or 0):
            yield f"{each.notes[-1]}; {best.partition.path} is served"


def _is_apart(one: LogCopy, other: LogCopy) -> bool:
    """Whether both have something, and nothing of it in common."""
    if one.is_empty or other.is_empty:
        return False
    return max(one.start_offset, other.start_offset) >= min(one.end_offset, other.end_offset)


def _log_dir_of(selected: Selected) -> str:
    return str(Path(selected.partition.path).parent)


def _rank(
    each: tuple[Selected, LogCopy], preferences: Preferences
) -> tuple[bool, bool, int, int, int]:
    """Those that are asked for first; then as an election does: last epoch, then length."""
    selected, copy = each
    return (
        bool(preferences.diverged) and lies_in(selected, preferences.diverged),
        bool(preferences.prefer) and lies_in(selected, preferences.prefer),
        *reach(copy.epochs, copy.end_offset),
        -copy.broker,
    )


def _of_one_topic(
    read: list[tuple[Selected, LogCopy]], notes: list[str]
) -> list[tuple[Selected, LogCopy]]:
    """Leave out copies of another topic of that name, which was deleted and made anew."""
    ids = {copy.topic_id for _, copy in read if copy.topic_id is not None}
    if len(ids) < 2:
        return read
    newest = max((each for each in read if each[1].topic_id is not None),
                 key=lambda each: Path(each[0].partition.path).stat().st_mtime_ns)  # fmt: skip
    for _, copy in read:
        if copy.topic_id not in (None, newest[1].topic_id):
            notes.append(
                f"{copy.partition.path}: of another topic of that name ({copy.topic_id}, not"
                f" {newest[1].topic_id}): not served"
            )
    return [each for each in read if each[1].topic_id in (None, newest[1].topic_id)]


def _agreed_end(read: list[tuple[Selected, LogCopy]], notes: list[str]) -> tuple[int, str] | None:
    """Where the copies part first, and how that is said; None: nowhere."""
    found: list[tuple[int, str]] = []
    for (_, one), (_, other) in combinations(read, 2):
        end = _parting(one, other, notes)
        if end is not None:
            words = f"{one.partition.path} and {other.partition.path} part at offset {end}"
            found.append((end, words))
    return min(found, default=None)


def _parting(one: LogCopy, other: LogCopy, notes: list[str]) -> int | None:
    """Return the offset where two copies part; None: one continues the other."""
    from recovery.replicas.compare import Likeness, compare_replicas, read_replica
    from recovery.truncate.target import find_common_end

    if one.is_empty or other.is_empty or _is_apart(one, other):
        return None  # retention may have removed what the one has from the other
    if one.epochs and other.epochs:
        common = find_common_end(one.epochs, one.end_offset, other.epochs, other.end_offset)
        if common is None:
            common = max(one.start_offset, other.start_offset)
        return common if common < min(one.end_offset, other.end_offset) else None
    compared = compare_replicas(
        *(read_replica(Partition(each.partition.directory, each.partition.log_dir))
          for each in (one, other))
    )  # fmt: skip
    notes += compared.notes
    return compared.divergence_offset if compared.likeness is Likeness.DIVERGED else None
