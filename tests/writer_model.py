"""A slow model of one partition and its leader: the rules APP, ROLL, PROD, SNAP and TXN once more.

Plain dicts and lists, written from docs/rules; it shares no code with what it judges, reads no
file, and keeps every batch. Times are milliseconds.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

MAX_SEQUENCE = 2**31 - 1
MAX_EPOCH = 2**15 - 1
EXPIRY_MS = 24 * 60 * 60 * 1000

State = dict[int, dict[str, Any]]  # producer id -> what is known of it


@dataclass(frozen=True)
class Sent:
    """A data batch as a client sends it."""

    producer_id: int
    epoch: int
    sequence: int
    count: int
    is_transactional: bool
    time_ms: int
    data: bytes


@dataclass(frozen=True)
class Row:
    """A batch in the log."""

    base: int
    last: int
    size: int
    leader_epoch: int
    producer_id: int
    epoch: int
    sequence: int
    is_transactional: bool
    time_ms: int
    marker: tuple[bool, int] | None  # COMMIT?, coordinator epoch


@dataclass
class Segment:
    """The batches of one segment, and the aborted transactions whose markers it has."""

    base: int
    rows: list[Row] = field(default_factory=list)
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(row.size for row in self.rows)

    @property
    def end(self) -> int:
        return self.rows[-1].last + 1 if self.rows else self.base

    def index_entries(self, interval: int) -> tuple[int, int]:
        """How many there are in `.index` and in `.timeindex` (without the last one of a close)."""
        offsets = times = pos = indexed_pos = 0
        greatest = last_time = -1
        for row in self.rows:
            greatest = max(greatest, row.time_ms)
            if pos - indexed_pos > interval:
                offsets, indexed_pos = offsets + 1, pos
                if greatest > last_time:
                    times, last_time = times + 1, greatest
            pos += row.size
        return offsets, times


@dataclass(frozen=True)
class Settings:
    """The topic's."""

    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    index_max_bytes: int
    is_log_append_time: bool


class AnswerError(Exception):
    """What a broker answers instead of an offset, by Kafka's name."""


class Model:
    """The partition, and the producers as its leader knows them now."""

    def __init__(self, settings: Settings, now_ms: int) -> None:
        self.settings = settings
        self.now_ms = now_ms
        self.leader_epoch = 0
        self.segments: list[Segment] = []
        self.epochs: list[tuple[int, int]] = []
        self.snapshots: dict[int, State] = {}  # as on disk
        self.producers: State = {}
        self.is_written = False  # something was appended to the last segment since it was opened
        self.was_forgetful = False  # a producer was dropped that the log still knows

    @property
    def end(self) -> int:
        return self.segments[-1].end if self.segments else 0

    # -- answers

    def append(self, sent: Sent) -> tuple[int, int, bool]:
        """First and last offset, and whether it was there already."""
        if len(sent.data) > self.settings.segment_bytes:
            raise AnswerError("RECORD_LIST_TOO_LARGE")
        known = self.producers.get(sent.producer_id)
        last_sequence = (sent.sequence + sent.count - 1) % 2**31
        if sent.producer_id >= 0 and known is not None:
            if known["epoch"] == sent.epoch:
                for first, last, base, end in known["batches"]:
                    if (first, last) == (sent.sequence, last_sequence):
                        return base, end, True
            if sent.epoch < known["epoch"]:
                raise AnswerError("INVALID_PRODUCER_EPOCH")
            expected = 0
            if sent.epoch == known["epoch"] and known["batches"]:
                newest = known["batches"][-1][1]
                expected = 0 if newest == MAX_SEQUENCE else newest + 1
            if sent.sequence != expected:
                raise AnswerError("OUT_OF_ORDER_SEQUENCE_NUMBER")
            if known["txn"] is not None and not sent.is_transactional:
                raise AnswerError("INVALID_TXN_STATE")
        time_ms = self.now_ms if self.settings.is_log_append_time else sent.time_ms
        row = Row(
            self.end,
            self.end + sent.count - 1,
            len(sent.data),
            self.leader_epoch,
            sent.producer_id,
            sent.epoch,
            sent.sequence,
            sent.is_transactional,
            time_ms,
            None,
        )
        self._write(row)
        return row.base, row.last, False

    def end_transaction(
        self, producer_id: int, epoch: int, *, is_commit: bool, coordinator_epoch: int, version: int
    ) -> int:
        """Offset of the marker."""
        known = self.producers.get(producer_id)
        if known is not None:
            is_late = epoch < known["epoch"]
            if version == 2 and epoch == known["epoch"]:
                is_late = known["txn"] is not None and epoch != MAX_EPOCH
            if is_late:
                raise AnswerError("INVALID_PRODUCER_EPOCH")
            if coordinator_epoch < known["coordinator_epoch"]:
                raise AnswerError("TRANSACTION_COORDINATOR_FENCED")
        marker = (is_commit, coordinator_epoch)
        row = Row(
            self.end, self.end, 78, self.leader_epoch, producer_id, epoch, -1, True, self.now_ms,
            marker,
        )  # fmt: skip
        self._write(row)
        return row.base

    # -- the log

    def _write(self, row: Row) -> None:
        if not self.epochs or self.epochs[-1][0] < self.leader_epoch:
            self.epochs = [each for each in self.epochs if each[1] < row.base]
            self.epochs.append((self.leader_epoch, row.base))
        if not self.segments:
            self.segments.append(Segment(row.base))
        elif self._must_roll(row):
            if self.is_written:
                self.snapshots[row.base] = copy.deepcopy(self.producers)
            self.segments.append(Segment(row.base))
        self.segments[-1].rows.append(row)
        self.is_written = True
        aborted = apply(self.producers, row)
        if aborted is not None:
            self.segments[-1].aborted.append(aborted)

    def _must_roll(self, row: Row) -> bool:
        segment = self.segments[-1]
        if not segment.rows:
            return False
        offsets, times = segment.index_entries(self.settings.index_interval_bytes)
        return (
            segment.size + row.size > self.settings.segment_bytes
            or row.time_ms - segment.rows[0].time_ms > self.settings.segment_ms
            or offsets >= self.settings.index_max_bytes // 8
            or times >= self.settings.index_max_bytes // 12 - 1
        )

    # -- what happens to the writer

    def close(self) -> None:
        if self.is_written:
            self.snapshots[self.end] = copy.deepcopy(self.producers)
            self.is_written = False

    def open(self) -> None:
        """Begin with what the snapshot at the end says."""
        self.producers = self._loaded(self.snapshots.get(self.end, {}))
        self.is_written = False

    def recover(self) -> None:
        """A start after a crash: every segment from the state before it, nothing else stays."""
        self.was_forgetful = False
        self.snapshots = self._recovered_snapshots()
        self.epochs = [each for each in self.epochs if each[1] <= self.end]

    def truncate(self, offset: int) -> None:
        """Whole batches go from `offset` on; the writer is closed."""
        if offset >= self.end:
            return
        removed = [each.base for each in self.segments if each.base > offset]
        self.segments = [each for each in self.segments if each.base <= offset]
        last = self.segments[-1]
        last.rows = [row for row in last.rows if row.last < offset]
        last.aborted = [each for each in last.aborted if each[2] < last.end]
        self.epochs = [each for each in self.epochs if each[1] < last.end]
        for each in list(self.snapshots):
            if each > last.end or each in removed:
                del self.snapshots[each]
        if last.end:
            self.snapshots[last.end] = self._recovered_snapshots()[last.end]

    def _recovered_snapshots(self) -> dict[int, State]:
        found: dict[int, State] = {}
        for segment in self.segments:
            state = self._loaded(found.get(segment.base, {}))
            for row in segment.rows:
                apply(state, row)
            if segment.rows:
                found[segment.end] = state
        return found

    def _loaded(self, snapshot: State) -> State:
        """A snapshot as it is read: the newest batch only, and nobody who was quiet for a day."""
        state: State = {}
        for producer_id, each in snapshot.items():
            if each["txn"] is None and self.now_ms - each["time_ms"] >= EXPIRY_MS:
                self.was_forgetful = True
                continue
            state[producer_id] = {**each, "batches": each["batches"][-1:]}
        return state


def apply(state: State, row: Row) -> tuple[int, int, int, int] | None:
    """Reflect a batch that is in the log; the `.txnindex` entry of what it aborts."""
    if row.producer_id < 0:
        return None
    known = state.setdefault(
        row.producer_id, {"epoch": -1, "coordinator_epoch": -1, "txn": None, "batches": []}
    )
    if row.epoch != known["epoch"]:
        known["epoch"], known["batches"] = row.epoch, []
    known["time_ms"] = row.time_ms
    if row.marker is None:
        last_sequence = (row.sequence + row.last - row.base) % 2**31
        batch = (row.sequence, last_sequence, row.base, row.last)
        known["batches"] = [*known["batches"], batch][-5:]
        if row.is_transactional and known["txn"] is None:
            known["txn"] = row.base
        return None
    is_commit, known["coordinator_epoch"] = row.marker
    first, known["txn"] = known["txn"], None
    if first is None or is_commit:
        return None
    others = [each["txn"] for each in state.values() if each["txn"] is not None]
    return row.producer_id, first, row.base, min(others, default=row.base + 1)


def snapshot_entries(state: State) -> list[tuple[int, ...]]:
    """The entries of a `.snapshot`, by producer id."""
    found = []
    for producer_id, each in sorted(state.items()):
        newest = each["batches"][-1] if each["batches"] else (-1, -1, -1, -1)
        found.append(
            (
                producer_id,
                each["epoch"],
                newest[1],
                newest[3],
                newest[3] - newest[2],
                each["time_ms"],
                each["coordinator_epoch"],
                -1 if each["txn"] is None else each["txn"],
            )
        )
    return found
