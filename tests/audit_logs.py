"""Small logs for audits: what is in them as plain values, as files, and what must be counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.formats.control_record import EndTxnMarker, encode_control_key, encode_end_txn_marker
from storage.formats.record import Record, encode_record
from storage.formats.record_batch import BatchHeader, encode_batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LAP = 2**31
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


ENDED = {"commit": "committed_transactions", "abort": "aborted_transactions"}
CONTROL_KINDS = {"commit": COMMIT, "abort": ABORT, "control": NO_MARKER}


def define(batches: Sequence[Batch]) -> dict[str, int]:
    """One batch at a time; every batch is taken to have 100 bytes."""
    counts = dict.fromkeys(COUNTED, 0)
    pending: dict[int, int] = {}
    places: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for each in batches:
        if each.kind == "corrupt":
            counts["corrupt_batches"] += 1
            continue
        is_control = each.kind in CONTROL_KINDS
        counts["batches"] += 1
        counts["records"] += 1 if is_control else each.count
        counts["bytes"] += 100
        counts["control_batches"] += is_control
        counts["transactional_batches"] += each.kind == "txn"
        if each.pid < 0:
            continue
        if each.kind == "txn":
            pending[each.pid] = pending.get(each.pid, 0) + 1
        elif each.kind in {"commit", "abort"} and each.pid in pending:
            count = pending.pop(each.pid)
            counts["aborted_batches"] += count if each.kind == "abort" else 0
            counts[ENDED[each.kind]] += 1
        if is_control or each.sequence < 0:
            continue
        known = places.setdefault((each.pid, each.epoch), [])
        start = each.sequence
        if known:
            near = known[-1][1] - LAP // 2
            start = near + (each.sequence - near) % LAP
        place = (start, start + each.count)
        counts["duplicate_batches"] += any(a < place[1] and place[0] < b for a, b in known)
        known.append(place)
    counts["open_transactions"] = len(pending)
    return counts


def encoded(batch: Batch, offset: int) -> bytes:
    is_control = batch.kind in CONTROL_KINDS
    if is_control:
        key = encode_control_key(1 if batch.kind == "commit" else 0)
        value = encode_end_txn_marker(EndTxnMarker(0, 0))
        body = encode_record(Record(0, 0, 0, key, value, ()))
    else:
        body = b"".join(encode_record(Record(0, 0, n, None, b"x", ())) for n in range(batch.count))
    header = BatchHeader(
        base_offset=offset,
        batch_length=0,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0x30 if is_control else 0x10 if batch.kind == "txn" else 0,
        last_offset_delta=0 if is_control else batch.count - 1,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=batch.pid,
        producer_epoch=batch.epoch,
        base_sequence=-1 if is_control else batch.sequence,
        records_count=1 if is_control else batch.count,
    )
    return encode_batch(header, body)


def write_segments(directory: Path, *segments: Sequence[Batch]) -> Path:
    directory.mkdir()
    offset = 0
    for batches in segments:
        path = directory / f"{offset:020d}.log"
        data = b""
        for each in batches:
            data += encoded(each, offset)
            offset += 1 if each.kind in CONTROL_KINDS else each.count
        path.write_bytes(data)
    return directory
