"""The next command after a check: one command, for the worst finding.

None of these commands changes anything by itself. A repair or a rebuild shows its plan, and what it
costs in records, until you pass --apply.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from recovery.fsck.verdict import (
    Answer,
    NextCommand,
    is_command,
    is_live,
    is_log_damage,
    is_missing,
    is_suspected,
    remedy_of,
)
from recovery.rules.catalogue import rule_of
from recovery.rules.findings import Severity
from storage.errors import as_argument
from storage.file_names import METADATA_TOPIC, is_below

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.fsck.one_pass import PartitionRow
    from recovery.fsck.start_loss import StartLoss
    from recovery.fsck.verdict import Held, NodeStart, Obstacle, PlacedFinding
    from recovery.rules.findings import Finding

_PLAIN_CALL = re.compile(r"[ !#-&(-\[\]-~]*")  # neither quotes nor backslashes
_REPAIR = ("eoctl", "repair")
_FETCH = f"Take {METADATA_TOPIC}-0 from another controller, or from a backup."
_DERIVED = (("eoctl", "rebuild"), ("eoctl", "recover-state"))


class Found(NamedTuple):
    """The findings. `paths` and `metadata_dir` are as given.

    `is_taken`: retention deletes records at its first run after the start.
    """

    paths: tuple[str, ...]
    metadata_dir: str | None
    findings: Sequence[PlacedFinding]
    rows: Sequence[PartitionRow]
    starts: Sequence[NodeStart]
    cuts: Sequence[StartLoss]
    held: Sequence[Held]
    is_taken: bool = False


def find_next_command(found: Found) -> NextCommand | None:
    """Choose the next command. None if there is nothing to do."""
    graver = (_unfinished, _refused, _rescued, _fetched, _repaired, _derived)
    for choose in (*graver, _unread, _ended, _given, _listed, _other, _taken):
        call = choose(found)
        if call is not None:
            return call
    return None


def _unfinished(found: Found) -> NextCommand | None:
    for _, each in found.findings:
        if each.check_id == "JNL-2":
            return _by_fix(each, "a change of eoctl has not ended; before a broker starts")
    return None


def _refused(found: Found) -> NextCommand | None:
    """Return the remedy of an obstacle that no repair of a partition removes."""
    for start in found.starts:
        for each in start.obstacles if start.answer is Answer.NO else ():
            is_partition = any(is_below(each.path, row.path) for row in found.rows)
            if is_partition and _words(each.command)[:2] == _REPAIR:
                continue
            if each.command or each.fix:
                return _call(each.command, each.fix, "it keeps the broker from starting")
    return None


def _rescued(found: Found) -> NextCommand | None:
    """Return the remedy for records that a start deletes or ignores, and nothing else has."""
    for _, each in found.findings:
        if each.check_id == "DIR-6" and each.severity is Severity.ERROR:
            return _by_fix(each, "nothing else has its records")
    return None


def _fetched(found: Found) -> NextCommand | None:
    """Return the remedy of the metadata log, which no command changes."""
    paths = _metadata_paths(found)
    for directory, each in found.findings:
        if directory in paths and each.severity is Severity.ERROR and not each.fix:
            sentence = rule_of(each.check_id).fix or _FETCH
            if each.check_id == "DIR-9":
                sentence = f"Move {each.path} away."
            return NextCommand((), sentence, "no call changes it")
    return None


def _metadata_paths(found: Found) -> set[str]:
    return {row.path for row in found.rows if row.topic == METADATA_TOPIC}


def _repaired(found: Found) -> NextCommand | None:
    """Return the repair of logs that lose or have lost records."""
    # A start truncates an unfinished write after a crash by itself, and nothing is lost.
    directories = {each.path for each in found.cuts if each.records_count or each.is_least}
    for directory, each in found.findings:
        needs = is_log_damage(each) or is_missing(each) or each.severity is not Severity.NOTE
        if needs and _words(each.fix)[:2] == _REPAIR:
            if not directory:
                return _by_fix(each, "shows what it changes")
            directories.add(directory)
    for dead in _dead(found.starts):
        directories |= {row.path for row in found.rows if is_below(dead.path, row.path)}
    directories = set(filter(is_live, directories)) - _metadata_paths(found)
    if not directories:
        return None
    given = () if found.metadata_dir is None else ("--metadata-dir", found.metadata_dir)
    words = (*_REPAIR, *given, *_paths(found, directories))
    why = "compares what can be kept; changes nothing"
    reads_bytes = _bytes_of(found, directories)
    return NextCommand(words=words, sentence="", why=why, reads_bytes=reads_bytes)


def _dead(starts: Sequence[NodeStart]) -> list[Obstacle]:
    return [one for each in starts if each.answer is Answer.NO for one in each.obstacles]


def _derived(found: Found) -> NextCommand | None:
    """Return the rebuild of wrong derived files."""
    directories, names = set(), set()
    for directory, each in found.findings:
        words = _words(each.fix)
        if each.severity is not Severity.NOTE and words[:2] in _DERIVED and directory:
            directories.add(directory)
            names.add(words[1])
    if not directories:
        return None
    name = "rebuild" if "rebuild" in names else "recover-state"
    words = ("eoctl", name, *_paths(found, directories))
    why = "shows what it derives from the log, and loses nothing"
    reads_bytes = _bytes_of(found, directories)
    return NextCommand(words=words, sentence="", why=why, reads_bytes=reads_bytes)


def _unread(found: Found) -> NextCommand | None:
    """Return the request to make files readable. Until then all other results are guesses."""
    paths = [row.path for row in found.rows if row.unreadable]
    if not paths:
        return None
    more = f" (and {len(paths) - 1:,} more)" if len(paths) > 1 else ""
    sentence = f"Make {paths[0]}{more} readable, then check again."
    return NextCommand((), sentence, "nothing is known about the unread part")


def _ended(found: Found) -> NextCommand | None:
    directories = {each.path for each in found.held if each.is_late}
    if not directories:
        return None
    words = ("eoctl", "txn", "hanging", *_paths(found, directories))
    return NextCommand(words, "", "shows how to end each transaction")


def _given(found: Found) -> NextCommand | None:
    """Return the check of the whole node, if only a part of it was checked."""
    for start in found.starts:
        if start.answer is Answer.UNKNOWN and start.obstacles:
            first = start.obstacles[0]
            if first.command or first.fix:
                return _call(first.command, first.fix, "it may keep the broker from starting")
            if "not given" in first.what or "only some" in first.what:
                sentence = "check all log dirs of the node: --server-properties FILE"
                return NextCommand((), sentence, "until then it is unknown whether it starts")
    return None


def _listed(found: Found) -> NextCommand | None:
    directories = {each.directory for each in found.findings if is_suspected(each.finding)}
    if not directories:
        return None
    words = ("eoctl", "loss", *_paths(found, directories))
    return NextCommand(words, "", "lists the records that are suspected to be lost")


def _other(found: Found) -> NextCommand | None:
    graver = sorted(found.findings, key=lambda each: -each.finding.severity.rank)
    for _, each in graver:
        if each.severity is Severity.NOTE:
            continue
        words = each.fix or rule_of(each.check_id).fix
        if words and not words.startswith("None"):
            return _by_fix(each, "")
    return None


def _taken(found: Found) -> NextCommand | None:
    """Return the forecast, if the broker deletes records soon after its start."""
    if not found.is_taken:
        return None
    given = () if found.metadata_dir is None else ("--metadata-dir", found.metadata_dir)
    words = ("eoctl", "forecast", *given, *map(as_argument, found.paths))
    return NextCommand(words, "", "which records, when, and how to keep them")


def _by_fix(finding: Finding, why: str) -> NextCommand:
    return _call(finding.fix, remedy_of(finding), why)


def _call(command: str, sentence: str, why: str) -> NextCommand:
    """Return a command without its --apply: the user sees the plan first."""
    words = tuple(each for each in _words(command) if each != "--apply")
    return NextCommand(words, "" if words else sentence, why)


def _words(command: str) -> tuple[str, ...]:
    if not is_command(command):
        return ()
    is_plain = _PLAIN_CALL.fullmatch(command)  # most commands are, of thousands of findings
    return tuple(command.split() if is_plain else shlex.split(command))


def _paths(found: Found, directories: set[str]) -> tuple[str, ...]:
    """Return the only directory, else the paths as given."""
    given = tuple(directories) if len(directories) == 1 else found.paths
    return tuple(map(as_argument, given))


def _bytes_of(found: Found, directories: set[str]) -> int:
    rows = found.rows if len(directories) > 1 else [e for e in found.rows if e.path in directories]
    return sum(each.log_bytes or 0 for each in rows)
