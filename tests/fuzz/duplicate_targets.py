"""Targets: the search for duplicates in logs of any content."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from recovery.duplicates.record_digests import parse_record_id
from recovery.duplicates.search import DuplicateOptions, DuplicateSearch
from recovery.duplicates.spill import DuplicateKind, SpillSpace
from storage.dirs.discovery import discover

from .engine import Target
from .mutations import repair_log
from .segment_targets import BOMB_BYTES, chance, log_seeds, memory_dir, write_file

if TYPE_CHECKING:
    from .corpus import Corpus

SHIFT_OFFSETS = 10_000


def _duplicates(data: bytes) -> None:
    """A search never raises, and finds the same whatever memory it has."""
    rnd = chance(data)
    path = write_file(f"twice-0/{0:020d}.log", data)
    selected = discover([path.parent]).selected
    options = DuplicateOptions(
        window_ms=rnd.choice((0, 1000, 2**63 - 1)),
        record_id=rnd.choice((None, None, parse_record_id("key"), parse_record_id("header:h"))),
        min_bytes=rnd.randrange(2),
        is_committed_only=rnd.random() < 0.3,
    )
    directory = memory_dir() or tempfile.gettempdir()
    found = []
    for memory_bytes in (0, 1 << 20):
        search = DuplicateSearch(selected, options, SpillSpace(memory_bytes, directory))
        found.append((list(search.duplicates()), search.counts, search.notes))
    assert found[0] == found[1]
    for each in found[0][0]:
        assert each.first_base_offset != each.repeat_base_offset
        if each.kind is DuplicateKind.SUSPECTED:
            assert 0 <= each.repeat_timestamp_ms - each.first_timestamp_ms <= options.window_ms


def _seeds(corpus: Corpus) -> list[bytes]:
    """Logs, each followed by itself with larger offsets."""
    return [data + _shifted(data) for data in log_seeds(corpus)]


def _shifted(data: bytes) -> bytes:
    shifted, pos = bytearray(data), 0
    while pos + 12 <= len(data):
        offset = int.from_bytes(data[pos : pos + 8], "big") + SHIFT_OFFSETS
        shifted[pos : pos + 8] = (offset % 2**64).to_bytes(8, "big")
        pos += 12 + int.from_bytes(data[pos + 8 : pos + 12], "big")
    return bytes(shifted)


TARGETS = [
    Target("duplicates", _duplicates, _seeds, 150, repair_log, allowed_bytes=BOMB_BYTES),
]
