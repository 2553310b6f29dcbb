"""What a real client consumed, and pieces of segments to read it from."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from storage.log.segment import open_segment
from storage.places.list_places import list_places
from storage.places.splits import Split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from storage.places.listing import SegmentPlace

Row = dict[str, Any]
PARTITIONS = [
    "append-time-0", "compacted-0", "ctp-out-0", "idem-gzip-0", "idem-lz4-0", "idem-none-0",
    "idem-snappy-0", "idem-zstd-0", "many-producers-0", "plain-0", "plain-1", "rolled-0",
    "trimmed-0", "txn-0", "txn-1",
]  # fmt: skip


def consumed(golden: Callable[[str], Path], name: str, isolation: str) -> tuple[Row, list[Row]]:
    """The first line, and a row per record with its bytes."""
    root = golden("kafka-4.3.1-clean.consumed")
    (path,) = root.rglob(f"{name}.{isolation}.jsonl")
    first, *rows = (json.loads(line) for line in path.read_text().splitlines())
    for row in rows:
        row["key"], row["value"] = decoded(row["key"]), decoded(row["value"])
        row["headers"] = [
            {"key": key.encode(), "value": decoded(value)} for key, value in row["headers"]
        ]
    return first, rows


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def places_in(directory: Path | str) -> list[SegmentPlace]:
    return list(list_places([str(directory)]).places)


def whole(places: Iterable[SegmentPlace]) -> list[Split]:
    return [Split(place, 0, place.file_bytes, is_last=True) for place in places]


def cut(places: Iterable[SegmentPlace], *, every: int) -> list[Split]:
    """Cut at good batches, after each so many."""
    splits = []
    for place in places:
        with open_segment(place.path) as segment:
            scan = segment.scan(is_active=place.is_active)
            starts = [each.pos for each in scan if each.crc_ok][every::every]
        edges = [0, *(pos for pos in starts if pos), place.file_bytes]
        for start, end in pairwise(edges):
            splits.append(Split(place, start, end, is_last=end == edges[-1]))
    return splits
