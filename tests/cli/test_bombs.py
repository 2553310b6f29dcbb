"""A batch of millions of records in two megabytes: what a reader keeps of it is bounded."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from storage.formats.compression import compress
from storage.formats.record import Record
from storage.formats.record_batch import encode_batch
from storage.formats.varint import encode_varint
from storage.log.segment import Segment
from tests.batches import PLAIN_HEADER, encoded_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

ZSTD = 4
RECORDS_COUNT = 3_000_000
MOST_MIB = 400
NULL = encode_varint(-1)
# The peak of the largest process below the one that measures.
MEASURE = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
"""


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One batch of empty records."""
    body = bytearray()
    for number in range(RECORDS_COUNT):
        fields = b"\0\0" + encode_varint(number) + NULL + NULL + b"\0"
        body += encode_varint(len(fields)) + fields
    header = PLAIN_HEADER._replace(
        attributes=ZSTD, last_offset_delta=RECORDS_COUNT - 1, records_count=RECORDS_COUNT
    )
    directory = tmp_path_factory.mktemp("bomb") / "topic-0"
    directory.mkdir()
    log = encode_batch(header, compress(ZSTD, bytes(body)))
    assert len(log) < 3 << 20
    (directory / f"{0:020d}.log").write_bytes(log)
    return directory


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "command",
    [
        "dump-segment --print-data-log",
        "consume --output jsonl",
        "duplicates",
        "check --deep --fail-on error",
        "export --engine local --jobs 1 --to %",
    ],
)
def test_memory_is_bounded(command: str, partition: Path, tmp_path: Path) -> None:
    words = [each.replace("%", str(tmp_path / "out")) for each in command.split()]
    called = [sys.executable, "-c", MEASURE, sys.executable, "-m", "eoctl", *words, str(partition)]
    done = subprocess.run(called, capture_output=True, check=True, text=True)
    status, peak_mib = map(int, done.stdout.split())
    assert status == 0, done.stderr
    assert peak_mib < MOST_MIB


LARGE_MIB = 64
BASE_MIB = 40
ARROW_MIB = 110
# Of one record whose text as JSON is six times as large: most, in sizes of the record.
LARGE_CALLS = {
    "consume --output jsonl": (BASE_MIB, 3),
    "consume --output text": (BASE_MIB, 3),
    "consume --output msgpack": (BASE_MIB, 3),
    "dump-segment --print-data-log --output text": (BASE_MIB, 3),
    "dump-segment --print-data-log --output jsonl": (BASE_MIB, 3),
    "dump-segment --print-data-log --output msgpack": (BASE_MIB, 3),
    "export --engine local --jobs 1 --format jsonl --text --to %": (ARROW_MIB, 3),
    "export --engine local --jobs 1 --to %": (ARROW_MIB, 4),
}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One compressed record of zeros."""
    directory = tmp_path_factory.mktemp("large") / "topic-0"
    directory.mkdir()
    record = Record(0, 0, 0, b"key", bytes(LARGE_MIB << 20), ())
    log = encoded_batch(0, [record], attributes=ZSTD)
    (directory / f"{0:020d}.log").write_bytes(log)
    return directory


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(each, marks=() if place in {0, 4} else pytest.mark.exhaustive)
        for place, each in enumerate(LARGE_CALLS)
    ],
)
def test_memory_is_a_small_multiple_of_the_largest_record(
    command: str, large: Path, tmp_path: Path
) -> None:
    words = [each.replace("%", str(tmp_path / "out")) for each in command.split()]
    called = [sys.executable, "-c", MEASURE, sys.executable, "-m", "eoctl", *words, str(large)]
    done = subprocess.run(called, capture_output=True, check=True, text=True)
    status, peak_mib = map(int, done.stdout.split())
    assert status == 0, done.stderr
    base_mib, times = LARGE_CALLS[command]
    assert peak_mib < base_mib + times * LARGE_MIB


def test_a_batch_beyond_the_limit_is_refused(
    large: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    refused = eoctl("consume", large, "--max-batch-bytes", 1 << 20)
    assert (refused.status, refused.stdout) == (4, b"")
    assert "the batch at offset 0 decompresses to more than 1,048,576 bytes" in refused.errors
    assert "--max-batch-bytes" in refused.errors
    skipped = eoctl("consume", large, "--max-batch-bytes", 1 << 20, "--skip-corrupt")
    assert "exceeds the limit of 1,048,576 bytes" in skipped.errors
    options = ("--engine", "local", "--max-batch-bytes", 1 << 20)
    exported = eoctl("export", large, "--to", tmp_path / "out", *options)
    assert exported.status == 1
    assert "exceeds the limit of 1,048,576 bytes" in exported.errors
    assert "--max-batch-bytes N raises the limit" in exported.errors


@pytest.mark.exhaustive
@pytest.mark.share(4)
@pytest.mark.parametrize("huge", [False, True])
@pytest.mark.parametrize(
    "command", ["dump-segment --print-data-log", "consume", "duplicates", "check --deep"]
)
def test_a_large_batch_is_no_reason_to_decode_records_one_by_one(
    command: str,
    huge: bool,
    eoctl: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Larger than the window of a plain scan, and than what is decoded at once."""
    count = 300_000 if huge else 3
    value_bytes = 30 if huge else 3 << 20
    value = encode_varint(value_bytes) + bytes(value_bytes)
    body = bytearray()
    for number in range(count):
        fields = b"\0\0" + encode_varint(number) + NULL + value + b"\0"
        body += encode_varint(len(fields)) + fields
    header = PLAIN_HEADER._replace(
        last_offset_delta=count - 1,
        records_count=count,
        max_timestamp_ms=PLAIN_HEADER.base_timestamp_ms,
    )
    directory = tmp_path / "topic-0"
    directory.mkdir()
    log = encode_batch(header, bytes(body))
    assert 8 << 20 < len(log) < 32 << 20
    (directory / f"{0:020d}.log").write_bytes(log)
    monkeypatch.setattr(Segment, "records", None)
    outcome = eoctl(*command.split(), directory)
    assert outcome.status in {0, 1}, outcome.errors
