"""Scan a segment with checksums and print nothing; and what checksums alone cost here.

`python -m bench.scan FILE` prints one JSON object. The measure of speed is R0: CRC-32C over 1 MiB
slices of a fresh mapping, about the best that one process can do with these bytes.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import time
from pathlib import Path

from storage.checksum import load_crc32c
from storage.formats.offset_index import parse_entries
from storage.kernels.numpy_kernel import BulkScan
from storage.log.segment import open_segment

SLICE_BYTES = 1 << 20
ROUNDS = 5


def scan_range(path: Path, start_pos: int, end_pos: int | None) -> None:
    """Scan a range that must be healthy and end at a batch boundary."""
    with open_segment(path) as segment:
        scan = BulkScan(segment, with_bodies=False, start_pos=start_pos, end_pos=end_pos)
        for _ in scan.parts():
            pass
        if scan.verdicts:
            raise RuntimeError(f"{path}: {scan.verdict}")


def scan_s(path: Path) -> float:
    """One process."""
    started = time.perf_counter()
    scan_range(path, 0, None)
    return time.perf_counter() - started


def halves_s(path: Path) -> float:
    """Two processes, each with one half; the index says where a batch begins in the middle."""
    entries = parse_entries(path.with_suffix(".index").read_bytes())
    middle = entries[len(entries) // 2].segment_pos
    started = time.perf_counter()
    child = os.fork()
    if not child:
        scan_range(path, middle, None)
        os._exit(0)
    scan_range(path, 0, middle)
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"{path}: the second half is not healthy")
    return time.perf_counter() - started


def mapping_s(path: Path) -> float:
    crc32c = load_crc32c()
    started = time.perf_counter()
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data,
        memoryview(data) as view,
    ):
        for pos in range(0, len(data), SLICE_BYTES):
            crc32c(view[pos : pos + SLICE_BYTES])
    return time.perf_counter() - started


def main() -> None:
    path = Path(sys.argv[1])
    rounds = [(scan_s(path), halves_s(path), mapping_s(path)) for _ in range(ROUNDS)]
    scans, halves, mappings = zip(*rounds, strict=True)
    found = {"scan_s": min(scans), "halves_s": min(halves), "mapping_s": min(mappings)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
