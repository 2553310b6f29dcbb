"""What the journals beside a log dir say: JNL-2, a change has not ended; JNL-3, it lost records.

A broker ignores the file that says so, and goes on with files of which one half is what they were
and the other half what they were to become. So it is told before a broker is started.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.changes.journals.journal import Status, read_journal
from recovery.changes.journals.unfinished import (
    UNFINISHED_NAME,
    unfinished_path,
    ways_out,
    ways_out_of,
)
from recovery.rules.findings import Finding, Severity
from storage.errors import AccessError, CorruptError, pasted
from storage.file_names import LOCK_FILE_NAME, parse_partition_name
from storage.files.broker_lock import probe

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from recovery.changes.journals.losses import JournalLoss

CHECK_ID = "JNL-2"


def unfinished_changes(log_dirs: Iterable[str]) -> Iterator[Finding]:
    """Give a finding for each log dir in which a change has not ended; takes no lock.

    While somebody holds the lock it is a warning: the change may be going on just now.
    """
    for log_dir in dict.fromkeys(map(os.path.realpath, log_dirs)):
        try:
            path = unfinished_path(log_dir)
        except AccessError as error:
            yield _finding(log_dir, f"cannot be used: {error}", error.next_step)
            continue
        if path is None:
            continue
        try:
            found = read_journal(path)
        except (AccessError, CorruptError):
            yield _finding(log_dir, f"a change is unfinished; {ways_out_of(log_dir, path)}", "")
            continue
        what = f"a change by {found.command} has not ended"
        if found.status is Status.APPLIED:
            what = f"a change by {found.command} is done, but not closed"
        elif found.status in {Status.UNDOING, Status.UNDONE}:
            what = f"the undo of a change by {found.command} has not ended"
        is_undo = found.status in {Status.UNDOING, Status.UNDONE}
        fix = f"eoctl {'undo' if is_undo else 'apply'} {path}"
        yield _finding(log_dir, f"{what}: {ways_out(found)}", fix)


def lost_by_changes(
    losses: Iterable[JournalLoss], directories: Collection[str]
) -> Iterator[Finding]:
    """Give a finding for each applied change that took something from one of these directories."""
    known = {os.path.realpath(each): each for each in directories}
    for each in losses:
        name = parse_partition_name(Path(each.directory).name)
        directory = known.get(os.path.realpath(each.directory))
        if directory is None or name is None:
            continue
        severity = Severity.ERROR if each.lost.is_acknowledged else Severity.NOTE
        yield Finding(
            check_id="JNL-3",
            severity=Severity.WARNING if each.is_moved else severity,
            path=directory,
            message=each.told,
            topic=name.topic,
            partition=name.partition,
            base_offset=each.base_offset,
            last_offset=each.last_offset,
            broker_action="nothing",
            fix=f"eoctl loss --against {pasted(each.journal)}",
        )


def is_explained(finding: Finding, losses: Sequence[JournalLoss]) -> bool:
    """Whether a finding only repeats what a change of eoctl has lost in that partition.

    Such are a gap between batches (SEG-4), and the sequences of producers behind it (PRD-1).
    """
    first, last = finding.base_offset, finding.last_offset
    if finding.check_id == "SEG-4" and first is not None and last is not None:
        return any(each.explains(first, last) for each in losses)
    is_behind = finding.check_id == "PRD-1" and finding.severity is Severity.NOTE
    return is_behind and any(
        last is not None and last < (first or 0) for each in losses for _, last in each.ranges
    )


def _finding(log_dir: str, message: str, fix: str) -> Finding:
    is_held = probe(Path(log_dir, LOCK_FILE_NAME)).is_held
    severity = Severity.WARNING if is_held else Severity.ERROR
    path = str(Path(log_dir, UNFINISHED_NAME))
    action = "ignores it, and changes more"
    return Finding(
        check_id=CHECK_ID,
        severity=severity,
        path=path,
        message=message,
        broker_action=action,
        fix=fix,
    )
