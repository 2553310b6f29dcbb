"""Places in a segment, found in bulk as one batch after the other."""

from __future__ import annotations

import tempfile
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.dirs import lookup
from storage.dirs.lookup import DoubtfulOffsets, find_batch, find_end, find_start
from storage.formats.offset_index import parse_entries
from storage.log.segment import open_segment
from tests.drawn import examples
from tests.made_logs import damaged_logs, with_right_checksums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment


@given(data=damaged_logs(), right=st.booleans(), is_active=st.booleans())
@settings(max_examples=examples(80))
def test_the_end_of_a_large_segment_is_that_of_a_small_one(
    data: bytes, right: bool, is_active: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, f"{0:020}.log")
        path.write_bytes(with_right_checksums(data) if right else data)
        with open_segment(path) as segment:
            one_by_one = find_end(segment, (), is_active=is_active)
            with patch.object(lookup, "BULK_BYTES", 0):
                assert find_end(segment, (), is_active=is_active) == one_by_one


def sound(segment: Segment, start_pos: int) -> Iterator[ScannedBatch]:
    """The batches from a position on whose offsets are believed."""
    scan = segment.scan(start_pos=start_pos)
    doubtful = DoubtfulOffsets(scan)
    return (each for each in scan if each.pos not in doubtful.positions)


def test_a_wrong_offset_is_seen_wherever_a_walk_begins(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """An index entry leads to the very batch whose offset, which no checksum covers, is wrong."""
    source = golden("kafka-4.3.1") / "clean" / "plain-0" / f"{0:020d}.log"
    entries = parse_entries(source.with_suffix(".index").read_bytes())
    assert len(entries) > 4
    data = source.read_bytes()
    log = tmp_path / source.name
    log.write_bytes(data)
    with open_segment(log) as segment:
        batches = [*segment.scan()]
    ends = [each.header.last_offset for each in batches]
    offsets = sorted({*ends, *(each + 1 for each in ends)})
    seen = 0
    for batch, bit in product(batches, (1, 2, 4)):
        damaged = bytearray(data)
        damaged[batch.pos + 7] ^= 1 << bit
        log.write_bytes(damaged)
        with open_segment(log) as segment:
            for offset in offsets:
                found = find_batch(segment, entries, offset, is_active=True)
                plain = find_batch(segment, (), offset, is_active=True)
                assert (found and found.batch) == (plain and plain.batch), (batch.pos, bit, offset)
                pos = find_start(segment, entries, offset, is_active=True, end_offset=None)
                walked = (each for each in sound(segment, pos) if each.header.last_offset >= offset)
                assert next(walked, None) == (plain and plain.batch), (batch.pos, bit, offset)
                seen += found is not None and found.via_index
    assert seen
