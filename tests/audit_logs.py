"""Small logs for audits: what is in them as plain values, as files, and what must be counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.formats.control_record import EndTxnMarker, encode_control_key, encode_end_txn_marker
from storage.formats.record import Record
from tests.batches import LAP, encoded_batch, unwrapped

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NO_MARKER, COMMIT, ABORT = 0, 1, 2
COUNTED = (
    "batches",
    "records",
    "bytes",
    "control_batches",
    "transactional_batches",
    "aborted_batches",
    "duplicate_batches",
    "open_transactions",
    "committed_transactions",
    "aborted_transactions",
    "corrupt_batches",
)


class Batch(NamedTuple):
    """What the audit looks at."""

    pid: int = 1
    epoch: int = 0
    sequence: int = 0
    count: int = 1
    kind: str = "data"  # data, txn, commit, abort, control, corrupt


class Figures(NamedTuple):
    """What the definition says: figures, gaps and the offsets of violations by kind."""

    figures: dict[str, int]
    gaps: list[tuple[int, int, int, int, int]]
    violations: list[tuple[int, str]]


ENDED = {"commit": "committed_transactions", "abort": "aborted_transactions"}
CONTROL_KINDS = {"commit": COMMIT, "abort": ABORT, "control": NO_MARKER}


def define(batches: Sequence[Batch]) -> dict[str, int]:
    """The figures of `COUNTED`, one batch at a time; every batch has 100 bytes."""
    figures = define_all(batches).figures
    return {name: figures[name] for name in COUNTED}


def define_all(batches: Sequence[Batch]) -> Figures:
    counts = dict.fromkeys((*COUNTED, "empty_markers", "epoch_regressions", "late_batches"), 0)
    pending: dict[int, int] = {}
    places: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    last: dict[int, tuple[int, bool]] = {}
    first_epoch: dict[int, int] = {}
    violations: list[tuple[int, str]] = []
    next_offset = 0
    for each in batches:
        is_control = each.kind in CONTROL_KINDS
        offset = next_offset
        next_offset += 1 if is_control else each.count
        if each.kind == "corrupt":
            counts["corrupt_batches"] += 1
            continue
        counts["batches"] += 1
        counts["records"] += 1 if is_control else each.count
        counts["bytes"] += 100
        counts["control_batches"] += is_control
        counts["transactional_batches"] += each.kind == "txn"
        if each.pid < 0 or each.kind == "control":
            continue
        before = last.get(each.pid, (-LAP, False))
        last[each.pid] = (each.epoch, is_control)
        if each.epoch < before[0]:
            is_late = before[1] and not is_control
            counts["epoch_regressions"] += 1
            counts["late_batches"] += is_late
            violations.append((offset, "data-after-marker" if is_late else "epoch-regression"))
        if each.kind == "txn":
            pending[each.pid] = pending.get(each.pid, 0) + 1
        elif is_control and each.pid in pending:
            count = pending.pop(each.pid)
            counts["aborted_batches"] += count if each.kind == "abort" else 0
            counts[ENDED[each.kind]] += 1
        elif is_control:
            counts["empty_markers"] += 1
        if is_control:
            continue
        first_epoch.setdefault(each.pid, each.epoch)
        if each.sequence < 0:
            continue
        known = places.setdefault((each.pid, each.epoch), [])
        start = unwrapped(each.sequence, known[-1][1]) if known else each.sequence
        end = start + each.count
        if any(a < end and start < b for a, b, _ in known):
            counts["duplicate_batches"] += 1
            violations.append((offset, "duplicate"))
        known.append((start, end, offset))
    counts["open_transactions"] = len(pending)
    gaps = [
        (pid, epoch, *gap)
        for (pid, epoch), known in sorted(places.items())
        for gap in _holes(known, is_later=first_epoch[pid] != epoch)
    ]
    counts["gaps"], counts["missing_sequences"] = len(gaps), sum(gap[3] for gap in gaps)
    return Figures(counts, gaps, sorted(violations))


def _holes(known: list[tuple[int, int, int]], *, is_later: bool) -> list[tuple[int, int, int]]:
    """First sequence and size of each hole, and the offset of what begins behind it."""
    holes = []
    end = 0 if is_later else LAP
    end = min(end, *(start for start, _, _ in known), LAP)
    for start, stop, _ in sorted(known):
        if start > end:
            behind = min(offset for place, _, offset in known if place == start)
            holes.append((end % LAP, start - end, -1 if start % LAP == 0 else behind))
        end = max(end, stop)
    return holes


def encoded(batch: Batch, offset: int) -> bytes:
    is_control = batch.kind in CONTROL_KINDS
    if is_control:
        key = encode_control_key(1 if batch.kind == "commit" else 0)
        value = encode_end_txn_marker(EndTxnMarker(0, 0))
        records = [Record(0, 0, 0, key, value, ())]
    else:
        records = [Record(0, 0, delta, None, b"x", ()) for delta in range(batch.count)]
    return encoded_batch(
        offset,
        records,
        attributes=0x30 if is_control else 0x10 if batch.kind == "txn" else 0,
        producer_id=batch.pid,
        producer_epoch=batch.epoch,
        base_sequence=-1 if is_control else batch.sequence,
    )


def write_segments(directory: Path, *segments: Sequence[Batch]) -> Path:
    directory.mkdir(parents=True)
    offset = 0
    for batches in segments:
        path = directory / f"{offset:020d}.log"
        data = b""
        for each in batches:
            data += encoded(each, offset)
            offset += 1 if each.kind in CONTROL_KINDS else each.count
        path.write_bytes(data)
    return directory
