"""The aborted transactions of a partition: by their markers, with the records that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.loss.rows import shown
from recovery.transactions.events import LogEvents
from recovery.transactions.unknown_ends import find_ends_of_places, log_files_of_places
from storage.formats.control_record import ABORT
from storage.places.find import open_place
from storage.producers.transactions import NO_DATA, TransactionPairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from recovery.loss.content_rows import ContentRows
    from recovery.transactions.unknown_ends import UnknownTransaction
    from storage.places.listing import SegmentPlace


class Aborted(NamedTuple):
    """A transaction that was aborted, by its records; `marker_offset` is where its marker lies."""

    producer_id: int
    producer_epoch: int
    base_offset: int
    last_offset: int
    records_count: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    first_key: bytes | None
    last_key: bytes | None
    marker_offset: int


def _abort_markers(
    events: LogEvents[SegmentPlace], log_start_offset: int
) -> dict[int, NDArray[np.int64]]:
    """Return where aborted transactions end, by producer id."""
    markers: dict[int, list[int]] = {}
    pairs = TransactionPairs()
    for table, marker in events:
        ended = pairs.take(table, marker)
        is_there = ended.is_abort & (ended.first_offset != NO_DATA)
        is_there &= ended.marker_offset >= log_start_offset
        for row in np.flatnonzero(is_there).tolist():
            offset = int(ended.marker_offset[row])
            markers.setdefault(int(ended.producer_id[row]), []).append(offset)
    return {each: np.array(offsets) for each, offsets in markers.items()}


class AbortedTransactions:
    """Puts records together to transactions; the records come in log order.

    Memory goes with the number of abort markers, eight bytes each.

    Attributes:
        unknown: transactions whose outcome nothing shows.
    """

    def __init__(self, places: Iterable[SegmentPlace], log_start_offset: int) -> None:
        """Read the markers: the headers of all segments.

        What cannot be opened is passed over: who reads the records of it tells of that.
        """
        listed = tuple(places)
        events = LogEvents(listed, open_place)
        self._markers = _abort_markers(events, log_start_offset)
        self.unknown: tuple[UnknownTransaction, ...] = ()
        if events.stretches and log_files_of_places(listed, open_place).matter(events.stretches):
            found = find_ends_of_places(listed, open_place)
            self.unknown = found.unknown
            events = LogEvents(listed, open_place, ends=found.ends)
            self._markers = _abort_markers(events, log_start_offset)
        self._found: dict[tuple[int, int], Aborted] = {}

    def take(self, rows: ContentRows) -> Iterator[Aborted]:
        """Take the next records; gives the transactions whose marker lies before them."""
        if rows.num_rows and self._found:
            yield from self._ended_before(int(rows.offset[0]))
        at = np.flatnonzero(rows.outcome == ABORT)
        if not len(at):
            return
        marker = np.full(len(at), -1, np.int64)
        for producer_id in np.unique(rows.producer_id[at]).tolist():
            own = rows.producer_id[at] == producer_id
            known = self._markers.get(producer_id)
            if known is not None:
                place = np.searchsorted(known, rows.offset[at][own], "right")
                marker[own] = np.where(
                    place < len(known), known[np.minimum(place, len(known) - 1)], -1
                )
        order = np.lexsort((np.arange(len(at)), marker, rows.producer_id[at]))
        at, marker = at[order], marker[order]
        ids = rows.producer_id[at]
        is_first = np.r_[True, (ids[1:] != ids[:-1]) | (marker[1:] != marker[:-1])]
        starts = np.flatnonzero(is_first)
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(at)], strict=True):
            self._add(rows, at[start:end].tolist(), int(marker[start]))

    def finish(self) -> Iterator[Aborted]:
        """Give the others."""
        yield from self._ended_before(None)

    def _add(self, rows: ContentRows, at: list[int], marker_offset: int) -> None:
        first, last = at[0], at[-1]
        name = int(rows.producer_id[first]), marker_offset
        times = rows.timestamp_ms[at]
        known = self._found.get(name)
        if known is None:
            known = Aborted(
                producer_id=name[0],
                producer_epoch=int(rows.producer_epoch[first]),
                base_offset=int(rows.offset[first]),
                last_offset=0,
                records_count=0,
                first_timestamp_ms=int(times.min()),
                last_timestamp_ms=int(times.max()),
                first_key=shown(rows.key(first)),
                last_key=None,
                marker_offset=marker_offset,
            )
        self._found[name] = known._replace(
            last_offset=int(rows.offset[last]),
            records_count=known.records_count + len(at),
            first_timestamp_ms=min(known.first_timestamp_ms, int(times.min())),
            last_timestamp_ms=max(known.last_timestamp_ms, int(times.max())),
            last_key=shown(rows.key(last)),
        )

    def _ended_before(self, offset: int | None) -> Iterator[Aborted]:
        done = [
            name
            for name, each in self._found.items()
            if offset is None or 0 <= each.marker_offset < offset
        ]
        for name in sorted(done, key=lambda each: self._found[each].base_offset):
            yield self._found.pop(name)
