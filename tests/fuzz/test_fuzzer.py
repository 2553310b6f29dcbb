"""The fuzzer itself: it finds what it is there to find, and its seeds and repairs are right."""

from __future__ import annotations

import random
import re
import signal
import struct
import time
from typing import TYPE_CHECKING

import pytest

from storage.errors import CorruptError
from storage.formats.producer_snapshot import CRC_POS, parse_snapshot
from storage.formats.record_batch import MAGIC_V2, compute_crc, parse_header

from . import engine
from .corpus import (
    Corpus,
    many_small_batches,
    pack_pair,
    pack_partition,
    unpack_pair,
    unpack_partition,
)
from .engine import FuzzError, Target, fuzz
from .mutations import Mutator, repair_log, repair_snapshot, whole_batches
from .promises import outcome
from .targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _target(run: Callable[[bytes], object]) -> Target:
    return Target("planted", run, lambda _: [])


def _fuzz(run: Callable[[bytes], object], seed: bytes, runs_count: int) -> bytes:
    """Fuzz until it fails; returns the input that failed."""
    with pytest.raises(FuzzError) as failure:
        fuzz(_target(run), [seed], rng=random.Random(1), runs_count=runs_count)
    return failure.value.data


def test_it_finds_another_exception() -> None:
    def parse(data: bytes) -> None:
        if not data.startswith(b"K"):
            raise CorruptError("not ours", check_id="X-1", pos=0)
        if data[1:2] == b"\x80":
            raise IndexError("the bug")

    assert _fuzz(parse, b"Kafka", 20_000).startswith(b"K\x80")


def test_it_finds_what_only_coverage_leads_to() -> None:
    parser = TARGETS["producer_snapshot"]

    def parse(data: bytes) -> None:
        parser.run(data)
        if len(data) == 10 + 46:
            raise IndexError("behind version, checksum and count")

    target = _target(parse)._replace(repair=repair_snapshot)
    seed = struct.pack(">hIi", 1, 0, 0) + bytes(60)
    with pytest.raises(FuzzError, match="behind version"):
        fuzz(target, [seed], rng=random.Random(1), runs_count=2000, is_guided=True)


def test_it_finds_an_error_that_cannot_be_printed() -> None:
    def parse(data: bytes) -> None:
        raise CorruptError(data.decode("utf-8", "replace") + "\ud800", check_id="X-1", pos=0)

    assert _fuzz(parse, b"abc", 10) == b""


def test_it_finds_a_large_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MEASURE_EVERY", 4)
    assert _fuzz(lambda data: bytearray(2**25 if data else 0), b"abc", 20)


def test_it_finds_a_hang() -> None:
    """Its time is over at once for the hang alone: a machine that stands still is none."""

    def parse(data: bytes) -> None:
        if data:
            assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= engine.HANG_S
            signal.setitimer(signal.ITIMER_REAL, 0.1)
        while data:
            try:
                time.sleep(0.01)
            except Exception:  # noqa: BLE001 - what a careless parser might do
                continue

    assert _fuzz(parse, b"abc", 10) == b"abc"


def test_a_failure_tells_all_that_is_needed_to_repeat_it() -> None:
    with pytest.raises(FuzzError, match=r"planted: ZeroDivisionError: .*\(hex\): 616263"):
        fuzz(_target(lambda data: 1 / (len(data) - 3)), [b"abc"], rng=random.Random(), runs_count=9)


def test_the_same_seed_gives_the_same_inputs() -> None:
    def inputs() -> list[bytes]:
        found: list[bytes] = []
        fuzz(_target(found.append), [b"Kafka", b"log"], rng=random.Random(7), runs_count=500)
        return found

    assert inputs() == inputs()


# --- corpus and repairs


@pytest.fixture(scope="module")
def corpus(golden: Callable[[str], Path]) -> Corpus:
    return Corpus(golden)


def test_batches_of_every_kind_are_there(corpus: Corpus) -> None:
    assert {(each.magic, each.codec) for each in corpus.batches} >= {
        (0, 0), (1, 0), *((2, codec) for codec in range(5)),
    }  # fmt: skip
    for batch in corpus.batches:
        if batch.magic == MAGIC_V2:
            header = parse_header(batch.data, 0)
            assert header.crc == compute_crc(batch.data)
            assert (header.codec, header.records_count) == (batch.codec, batch.record_count)


def test_pairs_and_partitions_come_back() -> None:
    for pair in ((b"key", b"value"), (None, b"v"), (b"k", None), (None, None), (b"", b"")):
        assert unpack_pair(pack_pair(*pair)) == pair
    files = [b"log", b"index", b"", b"txn", b"snapshot"]
    assert unpack_partition(pack_partition(files[0], files[1:])) == files
    for size in range(40):
        assert len(unpack_partition(b"\xff" * size)) == len(files)


def test_repairs_make_mutated_bytes_pass(corpus: Corpus) -> None:
    rng = random.Random(1)
    log = many_small_batches(corpus.batches, 30)
    mutator = Mutator(rng, repair=repair_log)
    right_count = 0
    for _ in range(200):
        data = mutator.mutate(log, log, len(log))
        for start_pos, end_pos in whole_batches(data):
            if data[start_pos + 16] == MAGIC_V2 and end_pos - start_pos >= 61:
                header = parse_header(data, start_pos)
                right_count += header.crc == compute_crc(data[start_pos:end_pos])
    assert right_count > 200 * 10


def test_a_repaired_snapshot_passes() -> None:
    counts = []
    for seed in range(20):
        snapshot = bytearray(random.Random(seed).randbytes(10 + 46 * 3 + 5))
        repair_snapshot(snapshot, random.Random(seed))
        found = outcome(parse_snapshot, bytes(snapshot))
        if found[0] == "value":
            counts.append(len(found[1]))
        else:
            assert found[2] != CRC_POS
    assert counts == [3] * len(counts)
    assert len(counts) > 10


def test_targets_have_names_for_files() -> None:
    assert all(re.fullmatch(r"[a-z0-9_-]+", name) for name in TARGETS)
    assert [target.name for target in TARGETS.values()] == list(TARGETS)
