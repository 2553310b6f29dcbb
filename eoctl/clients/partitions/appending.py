"""Around a run that appends: locks, what an earlier run has left, a journal, the way back."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from eoctl.changing import how_to_undo
from eoctl.output import message
from recovery.changes.append_journal import AppendJournal
from recovery.changes.apply import close_appends
from recovery.changes.journals.backups import Applied
from recovery.changes.journals.journal import Status
from recovery.changes.journals.listing import ways_out
from storage.files import fsio
from storage.files.broker_lock import take

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.change_options import ChangeOptions


@contextmanager
def appending(
    log_dirs: Sequence[str], change: ChangeOptions, command: str
) -> Iterator[AppendJournal]:
    """Hold the locks of log dirs for a run that appends, and tell how it is taken back at the end.

    What a run that was killed has left is closed first, and that is said.

    Args:
        log_dirs: in which the run changes anything.
        change: how.
        command: as in the id of a journal: small letters and `-`.

    Raises:
        RefusedError: the lock is held, or another change is unfinished there.
        AccessError: a directory cannot be locked, or a journal not be used.
    """
    with take(log_dirs, broker_is_stopped=change.broker_is_stopped):
        fs = fsio.FileSystem()
        for each in close_appends(fs, log_dirs):
            found = each.journal
            message(
                f"an earlier {found.command} was interrupted: what it wrote stays, and partitions"
                f" that it left open are recovered; {how_to_undo(each)}"
            )
        journal = AppendJournal(
            fs, log_dirs, command, backup_dir=change.backup_dir, has_backup=not change.no_backup
        )
        try:
            yield journal
        finally:
            closed = journal.close()
            if closed is not None and closed.status is Status.UNFINISHED:
                message(f"the change is unfinished: {ways_out(closed)}")
            elif closed is not None:
                message(how_to_undo(Applied(closed, was_done=False)))
