"""Logs with repetitions as plain values, as files, and what is in them twice by definition.

The definitions are slow and plain: dictionaries and loops over all that came before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.formats.control_record import EndTxnMarker, encode_control_key, encode_end_txn_marker
from storage.formats.record import Record, RecordHeader
from tests.batches import LAP, encoded_batch, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

MARKERS = {"commit": 1, "abort": 0}

Content = tuple[bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]


class Said(NamedTuple):
    """A record: when, and what."""

    time: int = 0
    key: bytes | None = None
    value: bytes | None = b"x"
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


class Sent(NamedTuple):
    """A batch; `gap` offsets are left out before it."""

    pid: int = -1
    epoch: int = -1
    sequence: int = -1
    records: tuple[Said, ...] = (Said(),)
    kind: str = "data"  # data, txn, commit, abort
    codec: int = 0
    gap: int = 0

    @property
    def count(self) -> int:
        return 1 if self.kind in MARKERS else len(self.records)


class KnownBatch(NamedTuple):
    offset: int
    count: int
    pid: int
    epoch: int
    sequence: int
    outcome: str


class KnownRecord(NamedTuple):
    time: int
    directory: int
    offset: int
    pid: int
    epoch: int
    outcome: str
    content: Content


class Log(NamedTuple):
    """Data batches and their records, with the outcomes of their transactions."""

    batches: list[KnownBatch]
    records: list[KnownRecord]


def offsets_of(batches: Sequence[Sent], start: int = 0) -> list[int]:
    offsets = []
    for each in batches:
        start += each.gap
        offsets.append(start)
        start += each.count
    return offsets


def known(batches: Sequence[Sent], directory: int = 0) -> Log:
    log = Log([], [])
    for place, (each, offset) in enumerate(zip(batches, offsets_of(batches), strict=True)):
        if each.kind in MARKERS:
            continue
        outcome = "committed"
        if each.kind == "txn":
            ends = (b.kind for b in batches[place:] if b.kind in MARKERS and b.pid == each.pid)
            outcome = {"commit": "committed", "abort": "aborted", None: "open"}[next(ends, None)]
        log.batches.append(
            KnownBatch(offset, each.count, each.pid, each.epoch, each.sequence, outcome)
        )
        for delta, said in enumerate(each.records):
            content = (said.key, said.value, said.headers)
            log.records.append(
                KnownRecord(
                    said.time, directory, offset + delta, each.pid, each.epoch, outcome, content
                )
            )
    return log


# --- the definitions ------------------------------------------------------------------------------


def proved(batches: Iterable[KnownBatch]) -> list[tuple[int, int, int, int]]:
    """(first copy's offset, repeat's offset, first and last common sequence), in log order."""
    sessions: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    found = []
    for each in batches:
        if each.pid < 0 or each.sequence < 0:
            continue
        earlier = sessions.setdefault((each.pid, each.epoch), [])
        start = unwrapped(each.sequence, earlier[-1][1]) if earlier else each.sequence
        end = start + each.count
        shared = [known for known in earlier if known[0] < end and start < known[1]]
        if shared:
            place = min(max(known[0], start) for known in shared)
            first = next(known for known in shared if known[0] <= place < known[1])
            low, high = max(first[0], start), min(first[1], end)
            found.append((first[2], each.offset, low % LAP, (high - 1) % LAP))
        earlier.append((start, end, each.offset))
    return found


def content_size(content: Content) -> int:
    key, value, headers = content
    fields = [key, value, *(each for header in headers for each in header)]
    return sum(len(each) for each in fields if each is not None)


def id_in(content: Content, wanted: str | None) -> object:
    if wanted is None:
        return content
    if wanted == "key":
        return content[0]
    name = wanted.removeprefix("header:").encode()
    return next((value for key, value in reversed(content[2]) if key == name), None)


def suspected(
    records: Iterable[KnownRecord],
    window: int,
    wanted: str | None = None,
    min_bytes: int = 1,
) -> list[tuple[tuple[int, int], tuple[int, int], bool]]:
    """(first copy's directory and offset, repeat's, whether the contents are equal)."""
    groups: dict[object, list[KnownRecord]] = {}
    found = []
    for each in sorted(records, key=lambda record: record[:3]):
        match = id_in(each.content, wanted)
        if match is None:
            continue
        size = len(match) if isinstance(match, bytes) else content_size(each.content)
        if size < min_bytes:
            continue
        earlier = groups.setdefault(match, [])
        for other in reversed(earlier):
            is_other = other.pid < 0 or (other.pid, other.epoch) != (each.pid, each.epoch)
            if each.time - other.time > window:
                break
            if is_other or wanted is not None:
                places = (other[1:3], each[1:3])
                found.append((*places, other.content == each.content))
                break
        earlier.append(each)
    return sorted(found, key=lambda pair: pair[1])


# --- as files -------------------------------------------------------------------------------------


def encoded(batch: Sent, offset: int) -> bytes:
    attributes = batch.codec | (0x10 if batch.kind != "data" else 0)
    if batch.kind in MARKERS:
        attributes = 0x30
        key = encode_control_key(MARKERS[batch.kind])
        said = [Said(0, key, encode_end_txn_marker(EndTxnMarker(0, 0)))]
    else:
        said = list(batch.records)
    base_time = said[0].time if said else 0
    records = [
        Record(0, each.time - base_time, delta, each.key, each.value,
               tuple(RecordHeader(*header) for header in each.headers))
        for delta, each in enumerate(said)
    ]  # fmt: skip
    return encoded_batch(
        offset,
        records,
        attributes=attributes,
        base_timestamp_ms=base_time,
        max_timestamp_ms=max((each.time for each in said), default=-1),
        producer_id=batch.pid,
        producer_epoch=batch.epoch,
        base_sequence=-1 if batch.kind in MARKERS else batch.sequence,
    )


def write_log(
    directory: Path,
    batches: Sequence[Sent],
    *,
    cuts: Iterable[int] = (),
    change: Callable[[int, bytes], bytes] = lambda _, data: data,
) -> Path:
    """Write batches, a new segment before each of the places in `cuts`."""
    directory.mkdir(parents=True)
    (directory / "leader-epoch-checkpoint").write_text("0\n0\n")
    segments: dict[int, bytes] = {}
    base = 0
    for place, (each, offset) in enumerate(zip(batches, offsets_of(batches), strict=True)):
        if place == 0 or place in cuts:
            base = offset if place else 0
        segments[base] = segments.get(base, b"") + change(place, encoded(each, offset))
    for base_offset, data in segments.items():
        (directory / f"{base_offset:020d}.log").write_bytes(data)
    return directory
