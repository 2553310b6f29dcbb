"""The log of one partition as it is served: its bounds, its transactions, ranges of whole batches.

Clients get what `eoctl consume` reads (`eoctl.clients.log.log_walk`). The same walk finds the
batches, verifies them and meets the damage. The same view of the transactions gives the end for a
read_committed consumer and the aborted transactions.

A batch is walked, and its checksum verified, before it is sent for the first time. The last runs of
batches are remembered without their bytes. A second reader, or a reader that gets a run in several
parts, therefore costs only a look-up. The bytes go from the file to the socket.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from contextlib import closing, suppress
from itertools import pairwise
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.log.log_walk import DamageError, LogWatch
from eoctl.serve.logs.verified_batches import Gathering, OpenFiles, WireWalk
from recovery.truncate.target import find_epoch_end
from storage.dirs.discovery import select_partition
from storage.dirs.offset_ledger import CHECK_ID as GAP_CHECK_ID
from storage.dirs.offset_ledger import absent, not_given
from storage.errors import AccessError
from storage.formats.checkpoint import LeaderEpochEntry
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eoctl.serve.logs.verified_batches import Given, VerifiedRun
    from recovery.transactions.unknown_ends import UnknownTransaction
    from recovery.transactions.view import TransactionView
    from recovery.truncate.target import EpochEnd
    from storage.dirs.acknowledged_offsets import Missing
    from storage.dirs.offset_ledger import KnownRange, OffsetSpan
    from storage.dirs.partition import Partition, TimePlace
    from storage.formats.offset_index import OffsetIndexEntry
    from storage.places.log_reader import ReadFinding

MAX_RUNS = 64
MAX_WALKS = 4
MAX_DAMAGE = 256
SMALL_LOG_BYTES = 64 << 20  # smaller logs always have a last stable offset


class Bounds(NamedTuple):
    """The bounds of a log for clients.

    Attributes:
        end_offset: exclusive end of the served offsets, which clients take for the high watermark.
        log_end_offset: one above the last good batch.
        high_watermark: as checkpointed, None if unknown.
    """

    start_offset: int
    end_offset: int
    log_end_offset: int
    high_watermark: int | None


class ServedLog:
    """One partition directory. Its methods may run in any thread and may take long.

    Attributes:
        partition: as it is listed now.
        missing: offsets that the log once had and does not serve. Set with the bounds.
        skipped: damage that was skipped, once per place.
        met: damage that stopped a reader, by requested offset.
        noted: batches that were served although a part of their frame is wrong.
        found: damage that `verify` has met. `is_verified`: `verify` has run.
        unknown: transactions of unknown outcome. Set with the transactions.
    """

    def __init__(
        self,
        partition: Partition,
        *,
        is_until_hw: bool,
        skips_damage: bool,
        hides_aborted: bool,
        agreed_end_offset: int | None,
        report: Callable[[str], None],
    ) -> None:
        """Serve a partition below `agreed_end_offset`, or to its end if that is None.

        With `hides_aborted`, no client gets batches of aborted transactions.

        `report` takes messages for people, from any thread.
        """
        self.partition = partition
        self.missing: tuple[Missing, ...] = ()
        self.skipped: dict[tuple[str, int], ReadFinding] = {}
        self.met: dict[int, DamageError] = {}
        self.noted: dict[tuple[str, int], ReadFinding] = {}
        self.found: tuple[ReadFinding, ...] = ()
        self.unknown: tuple[UnknownTransaction, ...] = ()
        self.is_verified = False
        self._is_until_hw = is_until_hw
        self._skips_damage = skips_damage
        self._hides_aborted = hides_aborted
        self._agreed_end_offset = agreed_end_offset
        self._report = report
        self._lock = RLock()
        self._files = OpenFiles()
        # Runs by `hides`: without it, and with it, uncommitted batches are in. The last used run is
        # last.
        self._runs: dict[bool, list[VerifiedRun]] = {False: [], True: []}
        self._walks: dict[tuple[bool, int], WireWalk] = {}  # by the offset at which they continue
        self._bounds: Bounds | None = None
        self._readable_end_offset: int | None = None  # no segment from here on can be opened
        self._is_end_read = True
        self._view: TransactionView | None = None
        self._epochs: list[LeaderEpochEntry] | None = None
        self._max_timestamp_ms: int | None = None
        self._watch: LogWatch | None = None
        self._indexes: dict[int, list[OffsetIndexEntry]] = {}

    # --- bounds

    def bounds(self) -> Bounds:
        """Return the start and end of the log. Raises AccessError."""
        with self._lock:
            if self._bounds is None:
                self._bounds = self._find_bounds()
            return self._bounds

    def _find_bounds(self) -> Bounds:
        partition = self.partition
        known_end = self._log_end_offset()
        start_offset = partition.local_log_start_offset or 0
        log_end_offset = start_offset if known_end is None else max(known_end, start_offset)
        if self._agreed_end_offset is not None:
            log_end_offset = max(min(log_end_offset, self._agreed_end_offset), start_offset)
        high_watermark = partition.high_watermark
        end_offset = log_end_offset
        if self._is_until_hw:
            known = start_offset if high_watermark is None else high_watermark
            end_offset = max(min(known, log_end_offset), start_offset)
        if partition.segments:
            self.missing = self._not_given(partition.seams())
        else:
            self.missing = partition.acknowledged.not_given(None)
        return Bounds(
            start_offset=start_offset,
            end_offset=end_offset,
            log_end_offset=log_end_offset,
            high_watermark=high_watermark,
        )

    def _not_given(
        self, span: OffsetSpan, reported: Sequence[KnownRange] = ()
    ) -> tuple[Missing, ...]:
        return not_given(
            self.partition.acknowledged,
            span,
            self.partition.cleanup,
            reported,
            end_offset=self._readable_end_offset,
            is_end_read=self._is_end_read,
        )

    def _log_end_offset(self) -> int | None:
        """Return the log end offset, None without segments.

        If the last segments cannot be opened, the segments before them are served. With
        `skips_damage` the log ends before these segments, and before damage at its end. Otherwise
        it reaches at least to the high watermark, and clients meet the error there.

        Raises:
            AccessError: no segment can be opened.
        """
        partition = self.partition
        try:
            end = partition.log_end()
        except AccessError as exc:
            end_offset = self._first_unopened()
            if end_offset is None:
                raise
            self._readable_end_offset, self._is_end_read = end_offset, False
            partition.problems.append(exc.without_frames())
        else:
            self._readable_end_offset = end_offset = None if end is None else end.offset
            self._is_end_read = end is None or end.is_read
            unlisted = partition.acknowledged.unlisted
            is_last = bool(unlisted) and (end is None or unlisted[-1] > end.files.base_offset)
            if not is_last and (end is None or not end.verdict.kind.is_damage):
                return end_offset
        if self._skips_damage:
            return end_offset
        return max(end_offset or 0, partition.high_watermark or 0)

    def _first_unopened(self) -> int | None:
        """Return the base offset from which on no segment can be opened.

        None: the last segment can be opened.
        """
        first = None
        for files in reversed(self.partition.segments):
            with suppress(AccessError), open_segment(files.log.path):
                return first
            first = files.base_offset
        return None

    def view(self) -> TransactionView:
        """Return the view of the transactions. All headers are read for it, once.

        Raises:
            AccessError: a segment was removed after it was listed, so its content is unknown.
        """
        with self._lock:
            if self._view is None:
                from recovery.transactions.view import TransactionView

                is_cut = self._is_until_hw or self._agreed_end_offset is not None
                view = TransactionView(
                    self.partition,
                    high_watermark=self.bounds().end_offset if is_cut else None,
                )
                view.update()
                for each in view.problems:
                    if each.errno == errno.ENOENT:
                        self._list_anew()
                        raise each
                self._view = view
                self._report_unknown()
            return self._view

    def _report_unknown(self) -> None:
        """Report the transactions of unknown outcome, once each."""
        found = () if self._view is None else self._view.unknown
        for each in found:
            if each not in self.unknown:
                self._report(
                    f"{self.partition.path}: {each}. read_committed withholds these records"
                )
        self.unknown = found

    def leaves_out(self, *, is_committed: bool) -> bool:
        """Return whether uncommitted batches are left out, instead of listing aborted transactions.

        If transactions end without a marker, such a list cannot say what a client has to hide.
        """
        with self._lock:
            return self._hides_aborted or (is_committed and self.view().has_ends)

    def stable_end_offset(self) -> int:
        """Return the offset at which a read_committed consumer stops.

        Unless damage is skipped, a transaction of unknown outcome stops it, too.
        """
        with self._lock:
            view = self.view()
            ends = [view.last_stable_offset, self.bounds().end_offset]
            if not self._skips_damage:
                ends += [each.first_offset for each in view.unknown]
            return max(min(ends), self.bounds().start_offset)

    def known_stable_offset(self) -> int:
        """Return the stable end offset if it is known or quickly found, else -1."""
        with self._lock:
            if self._view is None and self.partition.files.log_bytes > SMALL_LOG_BYTES:
                return -1
            return self.stable_end_offset()

    # --- leader epochs

    def epochs(self) -> list[LeaderEpochEntry]:
        """Return the leader epochs of the log, [] if they are unknown or not monotonic."""
        with self._lock:
            if self._epochs is None:
                found = self.partition.leader_epochs() or []
                is_sound = all(
                    late.epoch > early.epoch and late.start_offset > early.start_offset
                    for early, late in pairwise(found)
                )
                self._epochs = found if is_sound else []
            return self._epochs

    def epoch_end(self, epoch: int, current_epoch: int = -1) -> EpochEnd | None:
        """Return the end of a leader epoch (EPOCH-5), None if it is undefined.

        A newer current epoch from the metadata begins at the log end offset, because its leader has
        appended nothing.
        """
        end_offset = self.bounds().log_end_offset
        entries = [each for each in self.epochs() if each.start_offset <= end_offset]
        if entries and current_epoch > entries[-1].epoch:
            entries.append(LeaderEpochEntry(current_epoch, end_offset))
        return find_epoch_end(entries, epoch, end_offset)

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch of an offset, -1 if it is unknown."""
        found = -1
        for each in self.epochs():
            if each.start_offset <= offset:
                found = each.epoch
        return found

    # --- times

    def find_timestamp(self, timestamp_ms: int, min_offset: int) -> TimePlace | None:
        """Find the first record from an offset on with at least that timestamp.

        Raises AccessError.
        """
        with self._lock:
            return self.partition.find_timestamp(timestamp_ms, min_offset)

    def max_timestamp_ms(self) -> int:
        """Return the latest timestamp of all batches, from their headers, or -1 if there is none.

        Raises:
            AccessError: a `.log` cannot be opened.
        """
        with self._lock:
            if self._max_timestamp_ms is None:
                self._max_timestamp_ms = self._find_max_timestamp_ms()
            return self._max_timestamp_ms

    def _find_max_timestamp_ms(self) -> int:
        found, end_offset = -1, self.bounds().end_offset
        for files in self.partition.segments:
            with open_segment(files.log.path) as segment:
                for table in segment.scan_tables(**self.partition.bounds(files)):
                    times = table.max_timestamp_ms[table.crc_ok & (table.last_offset < end_offset)]
                    found = max(found, int(times.max(initial=-1)))
        return found

    # --- batches

    def read(
        self,
        offset: int,
        end_offset: int,
        max_bytes: int,
        *,
        is_needed: bool,
        is_committed: bool = False,
    ) -> Given:
        """Return whole batches from the batch with an offset on, if they end below the end offset.

        Args:
            offset: first requested offset.
            end_offset: first offset that may not be returned.
            max_bytes: maximum size of the batches.
            is_needed: the first batch is returned even if it is larger.
            is_committed: for a read_committed consumer, see `leaves_out`.

        Raises:
            DamageError: the batches begin with damage that is not skipped.
            AccessError: the batches cannot be read.
        """
        with self._lock:
            if (known := self.met.get(offset)) is not None:
                raise known
            if self._files.is_doubted:
                self._files.is_doubted = False
                self._forget_batches()
            taken = Gathering(self._files, offset, end_offset, max_bytes, is_needed=is_needed)
            try:
                self._gather(taken, end_offset, hides=self.leaves_out(is_committed=is_committed))
            except DamageError as exc:
                if not taken.size_bytes:
                    if len(self.met) < MAX_DAMAGE:
                        self.met[offset] = exc
                    raise
            except AccessError:
                if not taken.size_bytes:
                    raise
            return taken.given()

    def _gather(self, taken: Gathering, end_offset: int, *, hides: bool) -> None:
        has_replaced = False
        while not taken.is_full and taken.next_offset < end_offset:
            run = self._run_at(taken.next_offset, hides=hides)
            if run is None:
                return
            try:
                if not taken.take(run):
                    return
            except AccessError as exc:
                if exc.errno != errno.ENOENT or has_replaced:
                    raise
                has_replaced = True  # a file that replaced it is looked at once
                self._forget_batches()

    def _run_at(self, offset: int, *, hides: bool) -> VerifiedRun | None:
        """Return the run with an offset, walked if it is unknown. None: the end of the log.

        If a file does not return a batch that it once returned, that is not a gap of the log. Reads
        fail until the batch is back. If a running broker may have deleted it, the next read lists
        the log again.
        """
        runs = self._runs[hides]
        for place in range(len(runs) - 1, -1, -1):
            run = runs[place]
            if run.first_offset <= offset < run.next_offset:
                if place + 1 < len(runs):
                    runs.append(runs.pop(place))
                return run
        try:
            return self._walk(offset, hides=hides)
        except AccessError:
            self._list_anew()
            raise

    def _list_anew(self) -> None:
        """List the log again if a running broker may have changed it.

        Otherwise keep the old list.
        """
        log_dir = self.partition.log_dir
        if log_dir is not None and log_dir.lock.is_held:
            self.partition.refresh()
            self._forget()

    def _walk(self, offset: int, *, hides: bool) -> VerifiedRun | None:
        walk = self._walks.pop((hides, offset), None)
        if walk is None:
            is_hidden = self.view().is_hidden if hides else None
            walk = WireWalk(
                self.partition, offset, skip_corrupt=self._skips_damage, is_hidden=is_hidden
            )
        try:
            with closing(walk.read()) as reading:
                runs = next(reading, None)
            if runs is None and walk.next_offset < self.bounds().end_offset:
                walk.finish()  # a good batch was here before, so this is not an append in progress
        finally:
            self._take_notes(walk)
        if runs is None:
            return None
        known = self._runs[hides]
        known += runs[::-1]
        del known[:-MAX_RUNS]
        self._walks[hides, walk.covered_offset] = walk
        while len(self._walks) > MAX_WALKS:
            del self._walks[next(iter(self._walks))]
        return runs[0]

    def _take_notes(self, walk: WireWalk) -> None:
        for found, known, what in (
            (walk.skipped, self.skipped, "skipped"),
            (walk.noted, self.noted, "damaged, and given"),
        ):
            for each in found:
                if (each.path, each.start_pos) not in known:
                    known[each.path, each.start_pos] = each
                    self._report(f"{what}: {each.with_offsets}")
        walk.skipped, walk.noted = [], []
        partition = self.partition
        for gap in absent(
            partition.acknowledged,
            walk.ledger.span,
            partition.cleanup,
            [*self.missing, *self.skipped.values()],
            is_whole=False,
        ):
            self.missing = (*self.missing, gap)
            self._report(str(gap))

    def verify(self) -> None:
        """Walk everything that is served, and the transactions, once.

        Raises:
            AccessError: a part cannot be read.
        """
        with self._lock:
            bounds = self.bounds()
            self.view()
            walk = WireWalk(self.partition, bounds.start_offset, skip_corrupt=True)
            for _ in walk.read(bounds.end_offset):
                pass
            self.found = tuple(walk.skipped)
            self.is_verified = True
            for each in self.found:
                self._report(f"damaged: {each.with_offsets}")
            if self.partition.segments:
                gaps = self._not_given(walk.ledger.span, walk.skipped)
                self.missing = tuple(
                    each
                    for each in gaps
                    if each.check_id != GAP_CHECK_ID or each.base_offset < bounds.end_offset
                )

    @property
    def damaged_count(self) -> int:
        """The number of damaged places that were met so far by any reader."""
        places = {(each.path, each.start_pos) for each in (*self.found, *self.skipped.values())}
        damage = (each.damage for each in self.met.values())
        return len(places | {(each.path, each.start_pos) for each in damage})

    def upper_bound(self, given: Given) -> int:
        """Return the offset up to which a broker lists aborted transactions for a response.

        The bound is the first entry of the offset index at or after the end of the bytes.
        """
        with self._lock:
            files = self.partition.segment_of(given.base_offset)
            if files is None or files.base_offset != given.base_offset:
                return self.bounds().log_end_offset
            entries = self._indexes.get(given.base_offset)
            if entries is None:
                entries = list(self.partition.index_entries(files))
                self._indexes[given.base_offset] = entries
                while len(self._indexes) > MAX_WALKS:
                    del self._indexes[next(iter(self._indexes))]
            at = bisect_left(entries, given.cut_pos, key=lambda each: each.segment_pos)
            if at == 0 and entries and entries[0].segment_pos == given.cut_pos:
                at = 1  # a broker's search never finds the first entry
            if at < len(entries):
                bound = given.base_offset + entries[at].relative_offset
            else:
                later = self.partition.end_of(files)
                bound = self.bounds().log_end_offset if later is None else later
            return max(bound, given.next_offset)

    # --- changes

    def _forget_batches(self) -> None:
        self._runs, self._walks = {False: [], True: []}, {}
        self.met, self._indexes = {}, {}

    def _forget(self) -> None:
        """Forget the state of the log."""
        self._forget_batches()
        self._bounds = self._epochs = self._max_timestamp_ms = None

    def renew(self) -> bool:
        """Look for changes of the log and load them. Return whether its bounds have changed.

        Raises:
            AccessError: the log was removed.
        """
        with self._lock:
            if self._watch is None:
                self._watch = LogWatch(self.partition)
            if not self._watch.has_changed():
                return False
            before, view = self._bounds, self._view
            places = [] if view is None or view.place[0] < 0 else [view.place]
            is_there = self._watch.refresh(places)
            self.partition.log_dir = select_partition(self.partition.path).log_dir
            self._forget()
            if not is_there:
                self._view = None
            elif view is not None:
                view.high_watermark = self.bounds().end_offset
                view.update()
                self._report_unknown()
            return before is not None and self.bounds() != before
