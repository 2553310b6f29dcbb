"""Whether what was committed is given to the last reader of it: lost-commit.

A value may be in all replicas, and given to nobody: where its marker is lost its transaction is
open again, so that a read_committed reader ends below it, and whoever comes next may abort it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eoctl.cluster.checker.value_rows import FirstOf
from eoctl.cluster.checker.values import ABORTED, COMMITTED
from eoctl.cluster.checker.verdict import MAX_OF_A_KIND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eoctl.cluster.checker.columns import CommittedEnd
    from eoctl.cluster.checker.values import PartitionValues, ReplicaValues, Situation
    from eoctl.cluster.checker.verdict import FoundLines

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

KIND = "lost-commit"


class CommitRules:
    """Judges one partition, of which it is known already what is gone."""

    def __init__(self, values: PartitionValues, situation: Situation, end: CommittedEnd) -> None:
        self._values = values
        self._situation = situation
        self._end = end
        marks = values.read_mark
        self._rows: Ints = np.flatnonzero(marks & 1 == 1)
        is_late = marks[self._rows] // 2 >= end.start_line
        self._given = values.read_hash[self._rows[is_late]]
        self._early: Ints = self._rows[~is_late]

    def judge(self, found: FoundLines, replicas: Sequence[ReplicaValues] | None) -> None:
        """Find what was committed, is there, and was not given to the last reader."""
        if not self._situation.is_healed or self._end.line <= self._situation.healed_line:
            return
        known = self._told(found, replicas)
        self._read(found, replicas, known)

    # -- what was told to be committed

    def _told(self, found: FoundLines, replicas: Sequence[ReplicaValues] | None) -> Ints:
        """Find what a producer was told; returns the hashes of it."""
        sent, end, fates = self._values.sent, self._end, self._situation.fates
        ended = fates.end_line[sent.transaction]
        counts = (
            (sent.fate == COMMITTED) & (sent.offset >= end.start_offset) & ~self._values.is_gone
        )
        counts &= (sent.line < end.start_line) & (ended < end.start_line)
        blocker = self._blocker(replicas) if end.is_below else ()
        if not blocker:
            counts &= sent.offset < end.end_offset
        rows = np.flatnonzero(counts)
        rows = rows[~np.isin(sent.hash[rows], self._given)]
        rest = len(rows) - MAX_OF_A_KIND
        told = rows[:MAX_OF_A_KIND]
        shown = self._shown(sent.hash[told], replicas)
        for row, line in zip(told.tolist(), shown.tolist(), strict=True):
            lines = {int(sent.line[row]), int(ended[row]), end.start_line, end.line}
            offset = int(sent.offset[row])
            if blocker and offset >= end.end_offset:
                lines |= {*blocker}
            else:
                lines.add(line)
            self._add(found, offset, int(sent.hash[row]), lines, "told")
        found.add_more(KIND, max(rest, 0))
        return sent.hash[rows]

    def _shown(self, wanted: Ints, replicas: Sequence[ReplicaValues] | None) -> Ints:
        """The lines that show that values are there, where no replica does; 0: none."""
        lines = self._values.read_mark // 2
        place = FirstOf(self._values.read_hash, lines).places(wanted)
        if replicas is not None or not len(lines):
            return np.zeros(len(wanted), np.int64)
        return np.where(place >= 0, lines[place], 0)

    def _blocker(self, replicas: Sequence[ReplicaValues] | None) -> tuple[int, ...]:
        """The lines that tell that what the reader waits for has ended; (): it may well be open."""
        values, offset, fates = self._values, self._end.end_offset, self._situation.fates
        here = [
            values.sent.hash[values.sent.offset == offset],
            values.read_hash[values.read_offset == offset],
            *(each.hash[each.offset == offset] for each in replicas or ()),
        ]
        wanted = np.unique(np.concatenate(here))
        for written in (values.sent, values.unsure):
            for row in np.flatnonzero(np.isin(written.hash, wanted)).tolist():
                ended = int(fates.end_line[written.transaction[row]])
                if 0 < ended < self._end.start_line:
                    return int(written.line[row]), ended
        return ()

    # -- what was read as committed

    def _read(
        self, found: FoundLines, replicas: Sequence[ReplicaValues] | None, known: Ints
    ) -> None:
        """Find what was given as committed once: then all below it had ended."""
        values, end, fates = self._values, self._end, self._situation.fates
        first = FirstOf(values.read_hash[self._early], values.read_mark[self._early])
        rows = self._early[first.order]
        offset = values.read_offset[rows]
        counts = offset >= end.start_offset
        if not end.is_below:
            counts &= offset < end.end_offset
        rows = rows[counts]
        rows = rows[~np.isin(values.read_hash[rows], np.concatenate((self._given, known)))]
        if replicas is not None:
            there = np.concatenate([each.hash for each in replicas])
            rows = rows[np.isin(values.read_hash[rows], there)]
        if not len(rows):
            return
        sent, unsure = values.sent, values.unsure
        value = np.concatenate((sent.hash, unsure.hash))
        transaction = np.concatenate((sent.transaction, unsure.transaction))
        line = np.concatenate((sent.line, unsure.line))
        at = FirstOf(value, line).places(values.read_hash[rows])
        rows, at = rows[at >= 0], at[at >= 0]
        # What was aborted is G1a; what is in none is condemned by other rules, if it is gone.
        is_wrong = (transaction[at] >= 0) & (fates.fate[transaction[at]] != ABORTED)
        for place in np.flatnonzero(is_wrong).tolist():
            row, number = int(rows[place]), int(transaction[at[place]])
            ended = int(fates.end_line[number]) or int(fates.asked_line[number])
            lines = {
                int(line[at[place]]), ended, int(values.read_mark[row]) // 2, end.start_line,
                end.line,
            }  # fmt: skip
            offset_of = int(values.read_offset[row])
            self._add(found, offset_of, int(values.read_hash[row]), lines, "read")

    def _add(self, found: FoundLines, offset: int, value: int, lines: set[int], how: str) -> None:
        end = self._end
        where = end.end_offset if end.is_below and offset >= end.end_offset else -1
        found.add(KIND, self._values.name, offset, lines, hash=value, details=(how, where))
