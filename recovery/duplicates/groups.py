"""Duplicates by group: all copies of one batch, or of one record, in one row.

A pair tells of a repeat and of one earlier copy. Pairs that belong together are brought next to
each other by a sorter, so memory does not depend on how many there are:

  proved      all repeats of one batch, by its offset
  suspected   records of equal contents (or ids), by time; a pair belongs to the group before it as
              long as its first copy is in that: a longer pause than the window begins a new group
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.duplicates.rows import DuplicateKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.duplicates.contents import RecordFinder
    from recovery.duplicates.rows import Duplicate
    from recovery.duplicates.spill import Rows, Sorter, SpillSpace

SHARE = 1 / 8  # of the memory
MAX_LISTED = 10  # copies of a group, and sessions
SHOWN_BYTES = 64  # of a key, and of a value

_KEYS = ("group_high", "group_low", "time", "place", "at")
_KEY_DTYPE = [
    ("group_high", np.uint64),
    ("group_low", np.uint64),
    ("time", np.int64),
    ("place", np.int32),
    ("at", np.int64),
]


class DuplicateGroup(NamedTuple):
    """A batch or a record with all its copies. Times and offsets are inclusive.

    Attributes:
        kind: proved or suspected.
        topic, partition: of the first copy.
        copies_count: the first one, and all that repeat it.
        base_offset: of the first copy. `offsets`: of the first MAX_LISTED copies, in order of time;
            of copies in several partitions as PARTITION:OFFSET.
        records_count: that each copy has of the others, at most; None: unreadable.
        first_timestamp_ms, last_timestamp_ms: of the copies.
        sessions: producer id and epoch of the first MAX_LISTED sessions; -1/-1 without idempotence.
        key, value: of the first record of the first copy, SHOWN_BYTES of each; None: null.
        is_same_payload: key, value and headers of all of them are equal; None: unreadable.
        outcomes: of the copies, each once: committed, aborted, open.
        path: the `.log` of the first copy.
    """

    kind: DuplicateKind
    topic: str
    partition: int | None
    copies_count: int
    base_offset: int
    offsets: tuple[int | str, ...]
    records_count: int | None
    first_timestamp_ms: int
    last_timestamp_ms: int
    sessions: tuple[str, ...]
    key: bytes | None
    value: bytes | None
    is_same_payload: bool | None
    outcomes: tuple[str, ...]
    path: str


def by_group(pairs: Sorter, kind: DuplicateKind, space: SpillSpace) -> Sorter:
    """Sort pairs so that those of a group follow each other; the caller closes the result.

    Each row has its pair as `pair`.

    Raises:
        AccessError: temporary files cannot be written.
    """
    dtype = np.dtype([*_KEY_DTYPE, ("pair", pairs.dtype)])
    found = space.sorter(dtype, _KEYS, SHARE)
    try:
        for rows in pairs.chunks():
            found.add(_with_keys(rows, kind, dtype))
    except BaseException:
        found.close()
        raise
    return found


def _with_keys(rows: Rows, kind: DuplicateKind, dtype: np.dtype[np.void]) -> Rows:
    keyed = np.empty(len(rows), dtype)
    first, repeat = rows["first"], rows["repeat"]
    if kind is DuplicateKind.PROVED:
        keyed["group_high"] = rows["directory"]
        keyed["group_low"] = first["base_offset"]
        keyed["time"] = 0
    else:
        keyed["group_high"], keyed["group_low"] = first["hash_high"], first["hash_low"]
        keyed["time"] = repeat["timestamp_ms"]
    keyed["place"], keyed["at"] = rows["directory"], rows["offset"]
    keyed["pair"] = rows
    return keyed


def groups_of(duplicates: Iterable[Duplicate], finder: RecordFinder) -> Iterator[DuplicateGroup]:
    """Put duplicates together that follow each other and belong together."""
    group: _Group | None = None
    for each in duplicates:
        if group is None or not group.has(each):
            if group is not None:
                yield group.row(finder)
            group = _Group(each)
        group.add(each)
    if group is not None:
        yield group.row(finder)


class _Group:
    """Copies so far."""

    def __init__(self, first: Duplicate) -> None:
        self._first = first
        self._tails = {(first.topic, *_first_of(first))}
        self._copies: list[tuple[int | None, int]] = []
        self._sessions: dict[str, None] = {}
        self._outcomes: dict[str, None] = {}
        self._count = 1
        self._records_count: int | None = 0
        self._times = [first.first_timestamp_ms]
        self._is_same: bool | None = True
        self._see(first.first_partition, first.first_base_offset)
        self._met(first.first_producer_id, first.first_producer_epoch, first.first_outcome)

    def has(self, other: Duplicate) -> bool:
        """Whether the first copy of a pair is one of these."""
        is_of_kind = other.kind is self._first.kind
        return is_of_kind and (other.topic, *_first_of(other)) in self._tails

    def add(self, other: Duplicate) -> None:
        """Take the repeat of a pair."""
        self._count += 1
        # Of a run of one session all have the same first copy; the next run has one of this.
        first, repeat = (other.topic, *_first_of(other)), (other.topic, *_repeat_of(other))
        self._tails = {first, repeat}
        self._see(other.partition, other.repeat_base_offset)
        self._met(other.repeat_producer_id, other.repeat_producer_epoch, other.repeat_outcome)
        self._times = [
            min(*self._times, other.repeat_timestamp_ms),
            max(*self._times, other.repeat_timestamp_ms),
        ]
        known, count = self._records_count, other.records_count
        self._records_count = None if known is None or count is None else max(known, count)
        if self._is_same is not None:
            same = other.is_same_payload
            self._is_same = None if same is None else self._is_same and same

    def _see(self, partition: int | None, offset: int) -> None:
        if len(self._copies) < MAX_LISTED:
            self._copies.append((partition, offset))

    def _met(self, producer_id: int, epoch: int, outcome: str) -> None:
        if len(self._sessions) < MAX_LISTED:
            self._sessions.setdefault(f"{producer_id}/{epoch}")
        self._outcomes.setdefault(outcome)

    def row(self, finder: RecordFinder) -> DuplicateGroup:
        """Return the group; its first record is read."""
        first = self._first
        record = finder.at(first.first_path, first.first_base_offset)
        partitions = {partition for partition, _ in self._copies}
        offsets: tuple[int | str, ...] = tuple(offset for _, offset in self._copies)
        if len(partitions) > 1:
            offsets = tuple(f"{partition}:{offset}" for partition, offset in self._copies)
        return DuplicateGroup(
            kind=first.kind,
            topic=first.topic,
            partition=first.first_partition,
            copies_count=self._count,
            base_offset=first.first_base_offset,
            offsets=offsets,
            records_count=self._records_count,
            first_timestamp_ms=min(self._times),
            last_timestamp_ms=max(self._times),
            sessions=tuple(self._sessions),
            key=_start_of(None if record is None else record.key),
            value=_start_of(None if record is None else record.value),
            is_same_payload=self._is_same,
            outcomes=tuple(self._outcomes),
            path=first.first_path,
        )


def _first_of(pair: Duplicate) -> tuple[str, int | None, int]:
    return pair.first_path, pair.first_partition, pair.first_base_offset


def _repeat_of(pair: Duplicate) -> tuple[str, int | None, int]:
    return pair.path, pair.partition, pair.repeat_base_offset


def _start_of(content: bytes | None) -> bytes | None:
    return None if content is None else bytes(content[:SHOWN_BYTES])
