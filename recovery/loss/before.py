"""Partitions as they were before an applied plan, or a run that appended: by its journal's backup.

Nothing is put back: a `.log` that was cut is read on in its backup, one that was replaced or
removed from there, and what was made is left out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.changes.journals.journal import BackupKind, Status, read_journal
from recovery.changes.plans.lowered_checkpoints import read_whole
from recovery.loss.sides import PartitionSide, Side
from storage.errors import RefusedError, UsageError, pasted
from storage.file_names import (
    LOG_START_NAME,
    FileKind,
    FileSuffix,
    classify,
    parse_partition_name,
)
from storage.files.positioned_file import ZEROS, SplicedFile
from storage.formats.checkpoint import parse_offset_checkpoint
from storage.log.segment import Segment
from storage.places.listing import SegmentPlace

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.changes.journals.journal import Journal, JournalStep
    from recovery.loss.sides import Key

Range = tuple[str, int, int]


def touched_of(path: str) -> list[str]:
    """The partition directories that a journal's change has touched.

    Raises:
        AccessError, CorruptError: it cannot be read.
    """
    return [each for each in _touched(read_journal(path)) if Path(each).is_dir()]


def key_of(directory: str) -> Key | None:
    """Return topic and number by the name of a partition directory; None if it is none."""
    name = parse_partition_name(Path(directory).name)
    return None if name is None else (name.topic, name.partition)


def side_before(path: str) -> Side:
    """Return the partitions that a journal's change has touched, as they were.

    Raises:
        AccessError, FormatError: it cannot be read.
        RefusedError: the old bytes are no longer there, or never were kept.
        UsageError: it touched no partition.
    """
    journal = read_journal(path)
    if journal.status not in {Status.APPLIED, Status.UNFINISHED, Status.KEPT}:
        raise RefusedError(
            f"{path}: is {journal.status}: its old bytes are where they were before",
            next_step=f"eoctl journal show {pasted(path)}",
        )
    partitions = {}
    for each in _touched(journal):
        key = key_of(each)
        if key is not None:
            partitions[key] = _partition(journal, each)
    if not partitions:
        raise UsageError(f"{path}: its change has touched no partition")
    return Side(partitions, (), (), is_before=True)


def _touched(journal: Journal) -> list[str]:
    return [
        each
        for each in journal.touched_directories
        if each not in journal.log_dirs and parse_partition_name(Path(each).name) is not None
    ]


def _partition(journal: Journal, directory: str) -> PartitionSide:
    facts = journal.directories.get(directory)
    before = {} if facts is None else dict(facts.files)
    steps = {Path(each.path).name: each for each in journal.steps if _is_in(each, directory)}
    logs: dict[str, list[Range]] = {}
    for name in sorted({*before, *steps}):
        parsed = classify(name)
        if parsed.kind is not FileKind.LOG or parsed.suffix is not FileSuffix.NONE:
            continue
        step = steps.get(name)
        if step is not None:
            ranges = _ranges(journal, step)
        else:
            ranges = [(os.path.join(directory, name), 0, before[name][0])]  # noqa: PTH118
        if ranges is not None:
            logs[name] = ranges
    return PartitionSide(
        path=directory,
        log_start_offset=_log_start(journal, directory),
        places=_places(directory, logs),
        opener=_opener(logs),
    )


def _log_start(journal: Journal, directory: str) -> int:
    """Where the log began, by the checkpoint as it was; 0 where nothing is said of it."""
    path = Path(directory).parent / LOG_START_NAME
    step = next((each for each in journal.steps if each.path == str(path)), None)
    if step is not None and step.backup_kind in {BackupKind.LINK, BackupKind.COPY}:
        path = Path(journal.backup_path(step))
    data = None if step is not None and step.before is None else read_whole(path)
    name = parse_partition_name(Path(directory).name)
    if data is None or name is None:
        return 0
    own = (name.topic, name.partition)
    offsets = [
        each.offset for each in parse_offset_checkpoint(data) if (each.topic, each.partition) == own
    ]
    return max(offsets, default=0)


def _is_in(step: JournalStep, directory: str) -> bool:
    return os.path.dirname(step.path) == directory  # noqa: PTH120 - called for each step


def _ranges(journal: Journal, step: JournalStep) -> list[Range] | None:
    """Where the old bytes of a file are; None: it was not there.

    The backup of a cut lacks the zeros at its end.
    """
    if step.before is None:
        return None
    backup = journal.backup_path(step)
    if step.backup_kind is BackupKind.END:
        return [(step.path, 0, step.before.file_bytes)]
    if step.backup_kind is BackupKind.NONE:
        raise RefusedError(
            f"{step.path}: was changed without a backup: what it was is not known",
            next_step=f"eoctl journal show {pasted(journal.path)}",
        )
    if step.backup_kind is BackupKind.CUT:
        cut_bytes = Path(backup).stat().st_size if Path(backup).exists() else 0
        zeros = step.before.file_bytes - step.after_bytes - cut_bytes
        found = [(step.path, 0, step.after_bytes), (backup, 0, cut_bytes), (ZEROS, 0, zeros)]
    else:
        found = [(backup, 0, step.before.file_bytes)]
    return [each for each in found if each[2] > 0]


def _places(directory: str, logs: dict[str, list[Range]]) -> tuple[SegmentPlace, ...]:
    name = parse_partition_name(Path(directory).name)
    assert name is not None
    bases = {each: classify(each).offset or 0 for each in logs}
    ordered = sorted(logs, key=bases.__getitem__)
    return tuple(
        SegmentPlace(
            broker="",
            topic=name.topic,
            partition=name.partition,
            directory=directory,
            path=os.path.join(directory, each),  # noqa: PTH118 - as a listing has it
            base_offset=bases[each],
            is_active=each == ordered[-1],
            file_bytes=sum(end - start for _, start, end in logs[each]),
            modified_ns=0,
            end_offset=None if each == ordered[-1] else bases[ordered[place + 1]],
        )
        for place, each in enumerate(ordered)
    )


def _opener(logs: dict[str, list[Range]]) -> Callable[[SegmentPlace], Segment]:
    def opened(place: SegmentPlace) -> Segment:
        ranges = logs[Path(place.path).name]
        return Segment(SplicedFile(place.path, ranges), place.base_offset)

    return opened
