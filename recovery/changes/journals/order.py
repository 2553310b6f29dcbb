"""In which order the plans of a place were applied, whatever the clock did meanwhile.

Each journal is read once as long as it stays the same: `rebuild --apply` of a log dir makes one for
each of thousands of partitions.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.journals.journal import JOURNAL_NAME, Status, read_journal
from storage.errors import AccessError, CorruptError, os_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from recovery.changes.journals.journal import Journal


_ON_TOP = frozenset({Status.APPLIED, Status.UNDOING})


class _Ordered(NamedTuple):
    path: str
    order: int
    status: Status
    log_dirs: tuple[str, ...]
    has_backup: bool


def next_order(place: str, now_ms: int) -> int:
    """The order of a plan that is applied now: the time, but above all that are there.

    Raises:
        AccessError: the place cannot be listed.
    """
    return max(now_ms, 1 + max((each.order for each in _journals_in(place)), default=0))


def later_applied(found: Journal) -> str:
    """The journal of a later plan for one of the log dirs that still is applied; "": none.

    Raises:
        AccessError: its place cannot be listed.
    """
    return next(_later(found, _ON_TOP), "")


def later_without_backup(found: Journal) -> str:
    """Of those later plans the journal of one that cannot be undone; "": none. Raises as that."""
    return next((each for each in _later(found, _ON_TOP, is_kept=False)), "")


def all_later(found: Journal) -> list[str]:
    """All that are to be undone before it, unfinished ones too. Raises as `later_applied`."""
    return [*_later(found, {Status.APPLIED, Status.UNDOING, Status.UNFINISHED})]


def _later(
    found: Journal, wanted: AbstractSet[Status], *, is_kept: bool | None = None
) -> Iterator[str]:
    """Later journals of these states; `is_kept`: only those with a backup, or without."""
    for each in _journals_in(str(Path(found.path).parent)):
        is_later = each.path != found.path and each.order > found.order
        if is_kept not in {None, each.has_backup}:
            continue
        if each.status in wanted and is_later and not {*each.log_dirs}.isdisjoint(found.log_dirs):
            yield each.path


def _journals_in(place: str) -> Iterator[_Ordered]:
    """Those that can be read."""
    with os_errors(place):
        directories = sorted(map(str, Path(place).iterdir()))
    for directory in directories:
        try:
            found = os.lstat(f"{directory}/{JOURNAL_NAME}")
        except OSError:
            continue
        ordered = _read(directory, found.st_ino, found.st_size, found.st_mtime_ns)
        if ordered is not None:
            yield ordered


@lru_cache(maxsize=1 << 16)
def _read(directory: str, *identity: int) -> _Ordered | None:
    del identity
    try:
        found = read_journal(directory)
    except (AccessError, CorruptError):
        return None
    return _Ordered(
        path=found.path,
        order=found.order,
        status=found.status,
        log_dirs=found.log_dirs,
        has_backup=found.has_backup,
    )
