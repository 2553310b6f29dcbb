"""Two directories, or before and after: which records are gone, new or changed, by offset and key.

Both logs are read in order of their offsets, side by side, so memory does not depend on them. Only
what lies at or above both log starts is compared: what one of them has deleted by retention is no
loss. Where one of them is damaged, what it had there is not known, and that is told.

A reader passes over intact batches whose offsets cannot be right. Their records count as gone if
the directory that is looked at has them nowhere.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from recovery.loss.content_rows import Content
from recovery.loss.rows import ChangeKind, ChangeRow, ChangeSummary, shown
from recovery.loss.sides import SideRecords
from storage.formats.control_record import NO_MARKER
from storage.kernels.protocol import VerdictKind
from storage.log.intact_batches import OFFSET_CHECK_IDS, LeftOut, dropped_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recovery.loss.content_rows import ContentRows
    from recovery.loss.sides import Key, PartitionSide, Side


class _Record(NamedTuple):
    """One record of one side."""

    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    outcome: int
    content: Content


class _Cursor:
    """Goes through the records of one side."""

    def __init__(self, reading: SideRecords) -> None:
        self._blocks = iter(reading)
        self._offsets: list[int] = []
        self.at = 0
        self.rows: ContentRows | None = None
        self.next_block()

    def next_block(self) -> None:
        """Go to the next block; `rows` is None behind the last one."""
        self.rows = next(self._blocks, None)
        self.at = 0
        self._offsets = [] if self.rows is None else self.rows.offset.tolist()

    @property
    def offset(self) -> int | None:
        """Of the record that it stands at; None at the end."""
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
    """One comparison; iterate over `rows`, then see the rest.

    Attributes:
        other: as given.
        summaries: a row per partition that both or one of them have.
        notes: sentences for people.
        is_short: a part of one of them could not be read or listed.
    """

    def __init__(self, side: Side, other: Side, *, on_bytes: Callable[[int], object] = int) -> None:
        """`side` is looked at, `other` is what it is held against."""
        self._side = side
        self.other = other
        self._on_bytes = on_bytes
        self.summaries: list[ChangeSummary] = []
        self.notes: list[str] = [*side.notes, *other.notes]
        self.notes += (*side.shortcomings, *other.shortcomings)
        self.is_short = bool(side.shortcomings or other.shortcomings)

    def rows(self) -> Iterator[ChangeRow]:
        """Give the records that differ, partition by partition, by offset."""
        mine, theirs = self._side.partitions, self.other.partitions
        for key in sorted({*mine, *theirs}):
            yield from _ComparedPartition(
                self, key, mine.get(key), theirs.get(key), self._on_bytes
            ).rows()

    @property
    def keys(self) -> set[Key]:
        """Topic and number of all partitions of both."""
        return {*self._side.partitions, *self.other.partitions}

    @property
    def is_changed(self) -> bool:
        """Something is gone or changed."""
        return any(each.gone or each.changed for each in self.summaries)


class _ComparedPartition:
    """One partition of both sides."""

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
        # What the change has put below the log start is gone; what retention deletes is not.
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
        """Give the records of intact batches that no reader took from the other directory."""
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
        # Of a batch with a wrong offset alone the other side has given all records by now.
        findings = [
            *mine.findings,
            *(each for each in theirs.findings if each.check_id not in OFFSET_CHECK_IDS),
        ]
        self._survey.is_short |= bool(findings)
        self._survey.notes += (
            f"{each.path}: positions {each.start_pos} to {each.end_pos}: {each.kind}:"
            f" {each.reason}; what was there is not known"
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
