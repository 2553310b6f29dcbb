"""Producer state as a broker derives it at its start: from snapshots, segment by segment.

Rules SNAP-6 and SNAP-9. Works without files: snapshots are entries by offset, both the valid
snapshots on disk and the snapshots that the start would write.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

from recovery.replay.bulk_state import BulkState, replay_segment
from storage.dirs.offset_ledger import OffsetLedger
from storage.log.segment import open_segment
from storage.producers.producer_state import DEFAULT_EXPIRATION_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.dirs.offset_ledger import OffsetSpan
    from storage.dirs.partition_files import SegmentFiles
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.kernels.protocol import Verdict
    from storage.producers.producer_state import Violation

Snapshots = dict[int, list["ProducerEntry"]]


class Clock(NamedTuple):
    """The time and the setting that decide expiry (PROD-10)."""

    now_ms: int
    expiration_ms: int = DEFAULT_EXPIRATION_MS

    @classmethod
    def at(cls, now_ms: int, expiration_ms: int | None) -> Self:
        """Return the clock of a command. None: the broker's own setting is not given."""
        return cls(now_ms) if expiration_ms is None else cls(now_ms, expiration_ms)

    def has_expired(self, timestamp_ms: int) -> bool:
        """Return whether a producer of this time has expired, unless a transaction is open."""
        return self.now_ms - timestamp_ms >= self.expiration_ms


class StateHistory:
    """The snapshots of a partition while it is being loaded or recovered.

    Attributes:
        snapshots: by offset. Grows as snapshots are taken.
        violations: broken rules in the replayed log.
        stops: the `.log` files whose replay ended early at a bad place, with that place.
        spans: the offsets of the replayed segments, by base offset.
    """

    def __init__(
        self, clock: Clock, snapshots: Snapshots | None = None, *, log_start_offset: int = 0
    ) -> None:
        self.clock = clock
        self.log_start_offset = log_start_offset
        # SNAP-3: each reload of the state deletes snapshots at or below the log start.
        found = snapshots or {}
        self.snapshots: Snapshots = {
            offset: entries for offset, entries in found.items() if offset > log_start_offset
        }
        self.violations: list[Violation] = []
        self.stops: dict[str, Verdict] = {}
        self.spans: dict[int, OffsetSpan] = {}

    def load(self, offset: int) -> BulkState:
        """Return a map from the newest snapshot at or below `offset`, without expired entries."""
        newest = max((each for each in self.snapshots if each <= offset), default=None)
        if newest is None:
            return BulkState(min(self.log_start_offset, offset))
        state = BulkState()
        state.load(
            self.snapshots[newest],
            newest,
            now_ms=self.clock.now_ms,
            expiration_ms=self.clock.expiration_ms,
        )
        return state

    def load_to(self, offset: int, segments: Sequence[SegmentFiles]) -> BulkState:
        """Load, and replay from the snapshot to `offset` (truncateAndReload)."""
        state = self.load(offset)
        if state.map_end_offset < offset:
            self._replay(state, offset, segments)
            state.map_end_offset = offset
        return state

    def take(self, state: BulkState) -> None:
        """Take a snapshot if the map is beyond the newest snapshot (SNAP-1)."""
        if state.map_end_offset > max(self.snapshots, default=self.log_start_offset):
            self.snapshots[state.map_end_offset] = state.entries()

    def forget_above(self, offset: int) -> None:
        """Drop the snapshots that a reload at `offset` deletes."""
        for each in [each for each in self.snapshots if each > offset]:
            del self.snapshots[each]

    def _replay(self, state: BulkState, end_offset: int, segments: Sequence[SegmentFiles]) -> None:
        start_offset = state.map_end_offset
        for place, files in enumerate(segments):
            following = segments[place + 1].base_offset if place + 1 < len(segments) else None
            if following is not None and following <= start_offset:
                continue
            if files.base_offset >= end_offset:
                break
            ledger = OffsetLedger(files.base_offset)
            with open_segment(files.log.path, base_offset=files.base_offset) as segment:
                found = replay_segment(
                    segment,
                    state,
                    start_offset=start_offset,
                    end_offset=end_offset,
                    is_active=following is None,
                    on_table=partial(ledger.take, segment=segment),
                )
            self.spans[files.base_offset] = ledger.span
            if found.stop is not None:
                self.stops[files.log.path] = found.stop
        self.violations += state.violations
