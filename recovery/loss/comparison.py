"""A comparison of two directories, or before and after: gone, new and changed records.

Both logs are read side by side in the order of their offsets, so memory does not depend on them.
Only offsets at or above both log starts are compared: records that retention deleted are no loss.
If one log is damaged, its records there are unknown, and a note says so.

A reader skips intact batches whose offsets cannot be right. Their records count as gone if the
examined directory has them nowhere.
"""

from __future__ import annotations

import os
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.journals.journal import BackupKind, Status, read_journal
from recovery.changes.plans.preconditions import read_whole
from recovery.loss.content_rows import Content
from recovery.loss.rows import ChangeKind, ChangeRow, ChangeSummary, shown
from recovery.loss.sides import PartitionSide, Side, SideRecords
from storage.errors import RefusedError, UsageError, pasted
from storage.file_names import LOG_START_NAME, FileKind, FileSuffix, classify, parse_partition_name
from storage.files.positioned_file import ZEROS, SplicedFile
from storage.formats.checkpoint import parse_offset_checkpoint
from storage.formats.control_record import NO_MARKER
from storage.kernels.protocol import VerdictKind
from storage.log.intact_batches import OFFSET_CHECK_IDS, LeftOut, dropped_batches
from storage.log.segment import Segment
from storage.places.listing import SegmentPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recovery.changes.journals.journal import Journal, JournalStep
    from recovery.loss.content_rows import ContentRows
    from recovery.loss.sides import Key


class _Record(NamedTuple):
    """A record of a side."""

    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    outcome: int
    content: Content


class _Cursor:
    """A position in the records of one side."""

    def __init__(self, reading: SideRecords) -> None:
        self._blocks = iter(reading)
        self._offsets: list[int] = []
        self.at = 0
        self.rows: ContentRows | None = None
        self.next_block()

    def next_block(self) -> None:
        """Go to the next block. `rows` is None after the last block."""
        self.rows = next(self._blocks, None)
        self.at = 0
        self._offsets = [] if self.rows is None else self.rows.offset.tolist()

    @property
    def offset(self) -> int | None:
        """The offset of the current record. None at the end."""
        return None if self.rows is None else self._offsets[self.at]

    def advance(self) -> None:
        self.at += 1
        if self.at == len(self._offsets):
            self.next_block()

    def record(self) -> _Record:
        rows = self.rows
        assert rows is not None
        return _Record(
            timestamp_ms=int(rows.timestamp_ms[self.at]),
            producer_id=int(rows.producer_id[self.at]),
            producer_epoch=int(rows.producer_epoch[self.at]),
            outcome=int(rows.outcome[self.at]),
            content=rows.content(self.at),
        )


class AgainstSurvey:
    """One comparison. Iterate over `rows`, then read the attributes.

    Attributes:
        other: as given.
        summaries: a row per partition of either side.
        notes: sentences for people.
        is_short: a part of a side could not be read or listed.
    """

    def __init__(self, side: Side, other: Side, *, on_bytes: Callable[[int], object] = int) -> None:
        """Compare `side` with `other`."""
        self._side = side
        self.other = other
        self._on_bytes = on_bytes
        self.summaries: list[ChangeSummary] = []
        self.notes: list[str] = [*side.notes, *other.notes]
        self.notes += (*side.shortcomings, *other.shortcomings)
        self.is_short = bool(side.shortcomings or other.shortcomings)

    def rows(self) -> Iterator[ChangeRow]:
        """Yield the records that differ, partition by partition, by offset."""
        mine, theirs = self._side.partitions, self.other.partitions
        for key in sorted({*mine, *theirs}):
            yield from _ComparedPartition(
                self, key, mine.get(key), theirs.get(key), self._on_bytes
            ).rows()

    @property
    def keys(self) -> set[Key]:
        """Return topic and number of all partitions of both sides."""
        return {*self._side.partitions, *self.other.partitions}

    @property
    def is_changed(self) -> bool:
        """Return whether records are gone or changed."""
        return any(each.gone or each.changed for each in self.summaries)


class _ComparedPartition:
    """A partition of both sides."""

    def __init__(
        self,
        survey: AgainstSurvey,
        key: Key,
        mine: PartitionSide | None,
        theirs: PartitionSide | None,
        on_bytes: Callable[[int], object],
    ) -> None:
        self._survey = survey
        self._key = key
        self._paths = mine and mine.path, theirs and theirs.path
        starts = [0 if each is None else each.log_start_offset for each in (mine, theirs)]
        # Records that a change put below the log start are gone. Records that retention deletes are
        # not.
        is_before = survey.other.is_before and theirs is not None
        self._from_offset = starts[1] if is_before else max(starts)
        own_offset = max(starts[0], self._from_offset)
        self._sides = [
            SideRecords(mine, own_offset, on_bytes),
            SideRecords(theirs, self._from_offset, on_bytes),
        ]
        self._counts = dict.fromkeys(ChangeKind, 0)
        self._equal = 0

    def rows(self) -> Iterator[ChangeRow]:
        one, other = map(_Cursor, self._sides)
        while one.rows is not None or other.rows is not None:
            if self._is_same_block(one, other):
                self._equal += 0 if one.rows is None else one.rows.num_rows
                one.next_block()
                other.next_block()
                continue
            mine, theirs = one.offset, other.offset
            if mine is not None and mine == theirs:
                yield from self._compared(mine, one.record(), other.record())
                one.advance()
                other.advance()
            elif theirs is None or (mine is not None and mine < theirs):
                assert mine is not None
                yield self._row(ChangeKind.NEW, mine, one.record())
                one.advance()
            else:
                yield self._row(ChangeKind.GONE, theirs, other.record())
                other.advance()
        yield from self._left_out()
        self._sum_up()

    def _left_out(self) -> Iterator[ChangeRow]:
        """Yield the records of intact batches that no reader took from the other directory."""
        mine, theirs = self._sides
        left_out = [
            LeftOut(partial(theirs.opened, each.path), table)
            for each in theirs.findings
            if each.kind == VerdictKind.CORRUPT
            for table in theirs.intact(each)
        ]
        dropped = dropped_batches(left_out, mine.stretches())
        for number, batches in groupby(dropped, key=lambda each: each.number):
            with left_out[number].opener() as segment:
                for batch in batches:
                    header = batch.batch.header
                    for record in batch.lost_records(segment):
                        if record.offset < self._from_offset:
                            continue
                        found = _Record(
                            timestamp_ms=record.timestamp_ms,
                            producer_id=header.producer_id,
                            producer_epoch=header.producer_epoch,
                            outcome=NO_MARKER,
                            content=Content(key=record.key, value=record.value, headers=()),
                        )
                        yield self._row(ChangeKind.GONE, record.offset, found)

    def _is_same_block(self, one: _Cursor, other: _Cursor) -> bool:
        if one.rows is None or other.rows is None or one.at or other.at:
            return False
        return one.rows.is_same(other.rows)

    def _compared(self, offset: int, mine: _Record, theirs: _Record) -> Iterator[ChangeRow]:
        differences = tuple(_differences(mine, theirs))
        if differences:
            yield self._row(ChangeKind.CHANGED, offset, mine, differences)
        else:
            self._equal += 1

    def _row(
        self, kind: ChangeKind, offset: int, record: _Record, differences: tuple[str, ...] = ()
    ) -> ChangeRow:
        self._counts[kind] += 1
        return ChangeRow(
            kind=kind,
            topic=self._key[0],
            partition=self._key[1],
            offset=offset,
            timestamp_ms=record.timestamp_ms,
            producer_id=record.producer_id,
            producer_epoch=record.producer_epoch,
            key=shown(record.content.key),
            differences=differences,
            path=self._paths[0],
            other_path=self._paths[1],
        )

    def _sum_up(self) -> None:
        mine, theirs = self._sides
        # Batches with nothing but a wrong offset: the other side has given all their records by
        # now.
        findings = [
            *mine.findings,
            *(each for each in theirs.findings if each.check_id not in OFFSET_CHECK_IDS),
        ]
        self._survey.is_short |= bool(findings)
        self._survey.notes += (
            f"{each.path}: positions {each.start_pos} to {each.end_pos}: {each.kind}: "
            f"{each.reason}; its contents are unknown"
            for each in findings
        )
        counts = self._counts
        self._survey.summaries.append(
            ChangeSummary(
                topic=self._key[0],
                partition=self._key[1],
                gone=counts[ChangeKind.GONE],
                new=counts[ChangeKind.NEW],
                changed=counts[ChangeKind.CHANGED],
                equal=self._equal,
                from_offset=self._from_offset,
                is_whole=not findings,
                path=self._paths[0],
                other_path=self._paths[1],
            )
        )


def _differences(mine: _Record, theirs: _Record) -> Iterator[str]:
    for name in mine.content._fields:
        if getattr(mine.content, name) != getattr(theirs.content, name):
            yield name
    if mine.timestamp_ms != theirs.timestamp_ms:
        yield "timestamp"
    if (mine.producer_id, mine.producer_epoch) != (theirs.producer_id, theirs.producer_epoch):
        yield "producer"
    if mine.outcome != theirs.outcome:
        yield "outcome"


# -- partitions before an applied plan, or before an append, from the journal's backup
#
# Nothing is restored. A truncated `.log` continues in its backup, a replaced or removed `.log` is
# read from there, and a new `.log` is left out.


Range = tuple[str, int, int]


def touched_of(path: str) -> list[str]:
    """Return the partition directories that a journal's change has touched.

    Raises:
        AccessError, CorruptError: it cannot be read.
    """
    return [each for each in _touched(read_journal(path)) if Path(each).is_dir()]


def key_of(directory: str) -> Key | None:
    """Return topic and number from the name of a partition directory. None for any other name."""
    name = parse_partition_name(Path(directory).name)
    return None if name is None else (name.topic, name.partition)


def side_before(path: str) -> Side:
    """Return the partitions that a journal's change has touched, as they were.

    Raises:
        AccessError, FormatError: it cannot be read.
        RefusedError: the old bytes are gone, or were never kept.
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
    """Return the old log start offset from the checkpoint, 0 if the checkpoint does not have it."""
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
    """Return where the old bytes of a file are. None if it did not exist.

    The backup of a truncation lacks the zeros at its end.
    """
    if step.before is None:
        return None
    backup = journal.backup_path(step)
    if step.backup_kind is BackupKind.END:
        return [(step.path, 0, step.before.file_bytes)]
    if step.backup_kind is BackupKind.NONE:
        raise RefusedError(
            f"{step.path}: was changed without a backup. Its earlier state is unknown",
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
