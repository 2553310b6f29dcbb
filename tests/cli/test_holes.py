"""A sparse `.log` is as long as no disk is: its holes are seen, and not read.

What is told of it is what is told of the same file with a short tail of zeros, sizes apart.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from storage.files import positioned_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

HOLE_BYTES = 300 << 30
OPENED_HOLE_BYTES = 1 << 30  # a larger file has a finding of its own: no broker opens it
JUDGES = ("check", "dump-segment")
SHORT_BYTES = 300 << 10
MOST_READ_BYTES = 256 << 20
NAME = f"{0:020d}.log"
NOW = "2026-11-21T03:00:00Z"


@pytest.fixture(autouse=True)
def _reads_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this a failing test would go on for minutes."""
    preadv, pread, read_bytes = os.preadv, os.pread, 0

    def counted(result: int) -> None:
        nonlocal read_bytes
        read_bytes += result
        assert read_bytes < MOST_READ_BYTES

    def counting_preadv(fd: int, buffers: Any, pos: int) -> int:
        result = preadv(fd, buffers, pos)
        counted(result)
        return result

    def counting_pread(fd: int, count: int, pos: int) -> bytes:
        result = pread(fd, count, pos)
        counted(len(result))
        return result

    monkeypatch.setattr(os, "preadv", counting_preadv)
    monkeypatch.setattr(os, "pread", counting_pread)


def log_dir_with(source: Path, target: Path, shape: str, hole_bytes: int) -> Path:
    """Copy one partition of a node that was killed, and put a hole into its log."""
    target.mkdir(parents=True)
    for each in source.iterdir():
        if each.is_file():
            shutil.copy(each, target)
    partition = target / "idem-none-0"
    shutil.copytree(source / partition.name, partition)
    path = partition / NAME
    path.chmod(0o644)
    partition.chmod(0o755)
    data = path.read_bytes()
    size = int.from_bytes(data[8:12]) + 12
    pieces = {"behind": (data, b""), "between": (data[:size], data[size:]), "alone": (b"", b"")}
    before, behind = pieces[shape]
    with path.open("r+b") as log:
        log.truncate(len(before))
        log.truncate(len(before) + hole_bytes)
        log.seek(0, os.SEEK_END)
        log.write(behind)
    return target


READERS = [
    "dump-segment %",
    "dump-segment --print-data-log %",
    f"check --jobs 1 --now {NOW} @",
    f"check --jobs 1 --now {NOW} --deep @",
    f"rebuild --jobs 1 --now {NOW} @",
    "describe @",
    "consume @",
    "consume --skip-corrupt @",
    "duplicates @",
    "loss @",
    f"producers --now {NOW} @",
    "spark-audit --engine local --jobs 1 @",
    "export --engine local --jobs 1 --to ! @",
    f"recover-state --now {NOW} @",
    f"repair --strategy salvage --single-copy --now {NOW} @",
]
# What goes as a whole is kept, which is more than a disk takes where the hole lies between batches.
CUTTERS = [
    f"repair --strategy as-broker --single-copy --now {NOW} @",
    f"truncate --to-offset 20 --single-copy --now {NOW} @",
]


CASES = [
    *((each, "behind") for each in (*READERS, *CUTTERS)),
    *((each, "between") for each in READERS),
    *((each, "alone") for each in READERS[2:7]),
]


@pytest.mark.share(6)
@pytest.mark.parametrize(("command", "shape"), CASES)
def test_a_hole_is_told_of_as_zeros_are(
    command: str,
    shape: str,
    golden: Callable[[str], Path],
    eoctl: Callable[..., Outcome],
    tmp_path: Path,
) -> None:
    reported = []
    long_bytes = OPENED_HOLE_BYTES if command.startswith(JUDGES) else HOLE_BYTES
    for name, hole_bytes in (("long", long_bytes), ("short", SHORT_BYTES)):
        log_dir = log_dir_with(golden("kafka-4.3.1") / "crash", tmp_path / name, shape, hole_bytes)
        partition = log_dir / "idem-none-0"
        places = {"@": partition, "%": partition / NAME, "!": tmp_path / name / "out"}
        outcome = eoctl(*(places.get(each, each) for each in command.split()))
        text = outcome.stdout + outcome.stderr
        text = text.replace(str(tmp_path / name).encode(), b"DIR")
        text = re.sub(rb"[\d.]+ [KMG]?i?B\b", b"SIZE", text)
        reported.append((outcome.status, re.sub(rb"\d{4,}", b"N", text)))
        shutil.rmtree(log_dir)
    assert reported[0] == reported[1]


@pytest.mark.share(5)
@pytest.mark.parametrize("shape", ["behind", "between"])
@pytest.mark.parametrize(
    "command",
    [
        "dump-segment %",
        "dump-segment --print-data-log %",
        "dump-segment --output jsonl %",
        f"check --jobs 1 --now {NOW} --output jsonl @",
        f"check --jobs 1 --now {NOW} --deep --output jsonl @",
    ],
)
def test_a_log_that_no_broker_opens_is_never_good(
    command: str,
    shape: str,
    golden: Callable[[str], Path],
    eoctl: Callable[..., Outcome],
    tmp_path: Path,
) -> None:
    """FileRecords' constructor; kafka-dump-log dies of it, and a broker does not start."""
    source = golden("kafka-4.3.1") / "crash"
    log_dir = log_dir_with(source, tmp_path / "kafka", shape, HOLE_BYTES)
    partition = log_dir / "idem-none-0"
    places = {"@": partition, "%": partition / NAME}
    outcome = eoctl(*(places.get(each, each) for each in command.split()))
    assert outcome.status == 1
    assert b"SEG-10" in outcome.stdout + outcome.stderr
    # All of it is looked at: what lies beyond a tool's limit has been read, or is a known hole.
    size = (partition / NAME).stat().st_size
    if command.startswith("check"):
        rows = [json.loads(each) for each in outcome.text.splitlines()]
        (row,) = (each for each in rows if each.get("kind") == "partition")
        assert row["start"].endswith("refuses to start"), row["start"]
        assert row["start_end_offset"] is None
        (finding,) = (each for each in rows if each.get("check_id") == "SEG-10")
        assert (finding["severity"], finding["broker_action"]) == ("error", "refuses to start")
    elif shape == "between":
        reported = outcome.stdout + outcome.stderr
        assert b"lastOffset: 149" in reported or b'"last_offset":149' in reported.replace(b" ", b"")
    else:
        assert str(size).encode() in outcome.stdout + outcome.stderr


def test_a_limit_that_is_asked_for_is_kept(
    golden: Callable[[str], Path], eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    source = golden("kafka-4.3.1") / "crash"
    path = log_dir_with(source, tmp_path / "kafka", "between", HOLE_BYTES) / "idem-none-0" / NAME
    outcome = eoctl("dump-segment", "--max-bytes", 2**31 - 1, path)
    assert outcome.status == 1
    assert b"SEG-10" in outcome.stderr
    assert b"lastOffset: 149" not in outcome.stdout


@pytest.mark.parametrize("command", ["export --to !", "spark-audit"])
def test_a_hole_is_no_reason_to_start_spark(
    command: str,
    golden: Callable[[str], Path],
    eoctl: Callable[..., Outcome],
    tmp_path: Path,
) -> None:
    log_dir = log_dir_with(
        golden("kafka-4.3.1") / "crash", tmp_path / "kafka", "between", HOLE_BYTES
    )
    words = command.replace("!", str(tmp_path / "out")).split()
    outcome = eoctl(*words, log_dir / "idem-none-0")
    assert "engine: local, as no cluster was named" in outcome.errors


def test_a_cut_and_its_undo(
    golden: Callable[[str], Path], eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    """The zeros behind what is cut are neither copied nor read, and come back."""
    source = golden("kafka-4.3.1") / "crash"
    log_dir = log_dir_with(source, tmp_path / "kafka", "behind", HOLE_BYTES)
    path = log_dir / "idem-none-0" / NAME
    size_bytes, data = path.stat().st_size, (source / "idem-none-0" / NAME).read_bytes()
    cut = eoctl("truncate", "--to-offset", 20, "--single-copy", "--apply", path.parent)
    assert cut.status == 0, cut.errors
    assert path.stat().st_size < len(data)
    (journal,) = (tmp_path / "kafka.eoctl").iterdir()
    assert eoctl("undo", journal).status == 0
    assert path.stat().st_size == size_bytes
    with path.open("rb") as log:
        assert log.read(len(data) + 4096) == data + bytes(4096)
    assert path.stat().st_blocks * 512 < len(data) + (1 << 20)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_file_system_that_tells_of_no_holes(
    code: int,
    golden: Callable[[str], Path],
    eoctl: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: int) -> int:
        raise OSError(code, os.strerror(code))

    log_dir = log_dir_with(golden("kafka-4.3.1") / "crash", tmp_path / "kafka", "between", 8 << 20)
    before = eoctl("check", "--jobs", 1, "--now", NOW, log_dir)
    with monkeypatch.context() as patch:
        patch.setattr(positioned_file.os, "lseek", refuse)
        assert eoctl("check", "--jobs", 1, "--now", NOW, log_dir) == before
