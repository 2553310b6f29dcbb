"""Transactions of a log that is written to: what is not stable yet, and what was aborted.

  TXN-3  ended, and not replicated yet: its marker is at or above the high watermark
  TXN-4  what is stable ends below the first offset of these and of the open ones
  RC-3   a consumer is told of the aborted transactions that reach into what it is given

Source: ProducerStateManager (unreplicatedTxns), LocalLog.collectAbortedTransactions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from storage.producers.transactions import OpenTransactions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.formats.record_batch import BatchHeader
    from storage.formats.txn_index import AbortedTxn
    from storage.producers.producer_state import CompletedTransaction


class _Ended(NamedTuple):
    """A transaction from its first offset to its marker."""

    first_offset: int
    last_offset: int


class RunningTransactions:
    """Those of one log that have ended; the open ones are in its writer's producer state."""

    def __init__(self) -> None:
        self._unreplicated: deque[_Ended] = deque()
        self._aborted: list[AbortedTxn] = []  # in the order of their markers, as in `.txnindex`
        self._markers: list[int] = []
        self._scanned = OpenTransactions(log_start_offset=0, high_watermark=None)

    def scanned(self, header: BatchHeader) -> None:
        """Take a transactional batch that is found there at a start, in the order of the log."""
        if header.is_control and header.records_count:
            first_offset = self._scanned.first_offset(header.producer_id)
            if first_offset is not None:
                self._unreplicated.append(_Ended(first_offset, header.base_offset))
        self._scanned.add_batch(header)

    def indexed(self, entries: Iterable[AbortedTxn]) -> None:
        """Take the entries of the next `.txnindex`."""
        for each in entries:
            self._aborted.append(each)
            self._markers.append(each.last_offset)

    def ended(self, completed: CompletedTransaction, aborted: AbortedTxn | None) -> None:
        """Take what a marker that is appended has ended."""
        self._unreplicated.append(_Ended(completed.first_offset, completed.last_offset))
        if aborted is not None:
            self.indexed((aborted,))

    def last_stable_offset(self, open_offsets: Iterable[int], high_watermark: int) -> int:
        """TXN-4; `open_offsets`: the first ones of the open transactions.

        The high watermark of a leader does not go back: what is below it once is not asked for
        again.
        """
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0].last_offset < high_watermark:
            unreplicated.popleft()
        firsts = (each.first_offset for each in unreplicated)
        return min([high_watermark, *open_offsets, *firsts])

    def aborted_in(self, offset: int, end_offset: int) -> list[AbortedTxn]:
        """Those that reach into a range of offsets (RC-3)."""
        found = []
        for place in range(bisect_left(self._markers, offset), len(self._markers)):
            each = self._aborted[place]
            if each.first_offset < end_offset:
                found.append(each)
            if each.last_stable_offset >= end_offset:
                break  # all that began below has ended by then
        return found
