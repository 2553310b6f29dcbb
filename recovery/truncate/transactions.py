"""Which transactions a truncation changes: removed, reopened, or shortened (TXN-1, TXN-2)."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.replay.bulk_state import BulkState, replay_segment
from storage.dirs.lookup import END_KINDS
from storage.errors import EoctlError
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.replay.bulk_state import EndedTransactions
    from recovery.truncate.plan import Truncation
    from storage.dirs.partition_files import SegmentFiles
    from storage.kernels.protocol import Verdict

MAX_LISTED_COUNT = 1000  # removed ones, and others; all are counted


class TransactionKind(StrEnum):
    """How a transaction ended before the cut."""

    COMMIT = "commit"
    ABORT = "abort"
    OPEN = "open"


class CutOutcome(StrEnum):
    """What becomes of a transaction; those below the end stay as they are and are not listed."""

    REOPENED = "reopened"  # data stays and the marker goes: it hangs
    REMOVED = "removed"  # all of it goes
    SHORTENED = "shortened"  # it was open, and loses data


class TransactionChange(NamedTuple):
    """A transaction that is changed."""

    producer_id: int
    first_offset: int
    marker_offset: int | None  # None: it was open
    kind: TransactionKind
    outcome: CutOutcome


def cut_parts(truncation: Truncation) -> Iterator[tuple[SegmentFiles, int]]:
    """Segments of which something goes, and from where on."""
    cut, segments = truncation.cut, truncation.partition.segments
    if cut.is_nothing:
        return
    if cut.kept_count:
        yield segments[cut.kept_count - 1], cut.kept_bytes
    for files in segments[cut.kept_count :]:
        yield files, 0


class TransactionChanges:
    """Follows the transactions of what goes, from the state at the new end on.

    Attributes:
        notes: why they are not known.
    """

    def __init__(self, truncation: Truncation, start_offset: int) -> None:
        self._truncation = truncation
        self._start_offset = start_offset
        self.notes: list[str] = []
        self._counts: Counter[str] = Counter()
        self._kept: list[TransactionChange] = []
        self._removed: list[TransactionChange] = []

    def counts(self) -> dict[str, int]:
        """How many there are, by outcome."""
        return {str(each): self._counts[each] for each in CutOutcome}

    def rows(self) -> tuple[TransactionChange, ...]:
        """Those that stay in part come first."""
        return (*self._kept, *self._removed)

    def follow(self) -> TransactionChanges | None:
        """Go through it all; None if it is not known."""
        truncation = self._truncation
        if truncation.cut.is_nothing:
            return self
        if truncation.producers is None:
            return None
        state = BulkState()
        clock, end_offset = truncation.clock, truncation.cut.end_offset
        state.load(
            truncation.producers,
            end_offset,
            now_ms=clock.now_ms,
            expiration_ms=clock.expiration_ms,
        )
        for files, _ in cut_parts(truncation):
            try:
                stop = self._replay(files, state)
            except EoctlError as error:
                self.notes.append(f"transactions that change are not known: {error}")
                return None
            if stop is not None and stop.kind not in END_KINDS:
                self.notes.append(
                    f"{files.log.path}: position {stop.start_pos}: {stop.reason or stop.kind}:"
                    " transactions that change are not known"
                )
                return None
        last_offsets = {each.producer_id: each.last_offset for each in state.entries()}
        for first_offset, producer_id in state.ongoing.owners.items():
            if first_offset >= end_offset:
                outcome = CutOutcome.REMOVED
            elif last_offsets[producer_id] >= end_offset:
                outcome = CutOutcome.SHORTENED
            else:
                continue
            self._add(
                TransactionChange(
                    producer_id=producer_id,
                    first_offset=first_offset,
                    marker_offset=None,
                    kind=TransactionKind.OPEN,
                    outcome=outcome,
                )
            )
        return self

    def _replay(self, files: SegmentFiles, state: BulkState) -> Verdict | None:
        with open_segment(files.log.path, base_offset=files.base_offset) as segment:
            return replay_segment(
                segment,
                state,
                start_offset=self._start_offset,
                verify_crc=False,
                is_active=self._truncation.partition.is_active(files),
                on_completed=self._add_ended,
            ).stop

    def _add_ended(self, ended: EndedTransactions) -> None:
        is_removed = ended.first_offset >= self._truncation.cut.end_offset
        for outcome, mask in ((CutOutcome.REOPENED, ~is_removed), (CutOutcome.REMOVED, is_removed)):
            self._counts[outcome] += int(mask.sum())
            room = self._room(outcome)
            rows = np.flatnonzero(mask)[:room]
            for row in rows.tolist():
                kind = TransactionKind.ABORT if ended.is_aborted[row] else TransactionKind.COMMIT
                self._list(
                    TransactionChange(
                        producer_id=int(ended.producer_id[row]),
                        first_offset=int(ended.first_offset[row]),
                        marker_offset=int(ended.last_offset[row]),
                        kind=kind,
                        outcome=outcome,
                    )
                )

    def _add(self, change: TransactionChange) -> None:
        self._counts[change.outcome] += 1
        if self._room(change.outcome):
            self._list(change)

    def _room(self, outcome: CutOutcome) -> int:
        return max(MAX_LISTED_COUNT - len(self._list_of(outcome)), 0)

    def _list(self, change: TransactionChange) -> None:
        self._list_of(change.outcome).append(change)

    def _list_of(self, outcome: CutOutcome) -> list[TransactionChange]:
        return self._removed if outcome is CutOutcome.REMOVED else self._kept
