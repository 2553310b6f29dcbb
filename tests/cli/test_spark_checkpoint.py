"""An audit that goes on where one was killed: `spark-audit --checkpoint`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.audit_context import Context
from tests.audit_logs import Batch, write_segments

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Cli = Callable[..., Any]

WORDS = ("--report", "all", "--output", "jsonl")
READ = ("partitions", "topics", "producers", "open", "violations", "torn", "corrupt")
LOCAL = ("--engine", "local", "--jobs", "1")
SMALL = ("--split-bytes", "1")  # waves are of a hundred pieces of such a size for each core
TAKEN = "directories are unchanged, and taken from"
KILLED_SECONDS = 240


def write_context(root: Path, seeds: int = 3) -> int:
    """Write logs with what a generator plants; the number of directories."""
    for seed in range(seeds):
        for log in Context(seed, steps=30).logs:
            log.write(root / f"broker-{seed}")
    return len({each.parent for each in root.rglob("*.log")})


def taken(outcome_errors: str) -> int:
    """How many directories were taken from the checkpoint, by the notes."""
    lines = [each for each in outcome_errors.splitlines() if TAKEN in each]
    return int(lines[0].split('"message":"')[-1].split()[0]) if lines else 0


def parts(checkpoint: Path) -> list[str]:
    return sorted(each.name for each in checkpoint.glob("part-*.state"))


@pytest.mark.exhaustive
def test_what_is_done_is_not_read_again(eoctl: Cli, tmp_path: Path) -> None:
    """Nothing of the files is read then: they may hold anything, and tell the same.

    But for replicas, which are compared where they differ.
    """
    root, checkpoint = tmp_path / "logs", tmp_path / "checkpoint"
    count = write_context(root)
    reports = [word for name in READ for word in ("--report", name)]
    call = ("spark-audit", f"{root}/*", *reports, "--output", "jsonl", *LOCAL)
    whole = eoctl(*call)
    first = eoctl(*call, *SMALL, "--checkpoint", checkpoint)
    assert (first.stdout, first.status, taken(first.errors)) == (whole.stdout, whole.status, 0)
    assert len(parts(checkpoint)) > 2
    for log in root.rglob("*.log"):
        times = log.stat()
        log.write_bytes(b"\xff" * times.st_size)
        os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))
    again = eoctl(*call, *SMALL, "--checkpoint", checkpoint)
    assert (again.stdout, again.status, taken(again.errors)) == (whole.stdout, whole.status, count)


@pytest.mark.exhaustive
def test_a_part_is_not_larger_than_what_may_be_held(
    eoctl: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One wave becomes several parts, and what is taken from them is held in a file, packed."""
    import recovery.audit.state as checkpoint_module
    import recovery.summaries.codec as held_module

    root, checkpoint, one = tmp_path / "logs", tmp_path / "checkpoint", tmp_path / "one"
    count = write_context(root)
    call = ("spark-audit", f"{root}/*", *WORDS, *LOCAL)
    whole = eoctl(*call)
    eoctl(*call, "--checkpoint", one)
    assert len(parts(one)) == 1
    monkeypatch.setattr(checkpoint_module, "HELD_BYTES", 2000)
    monkeypatch.setattr(held_module, "HELD_BYTES", 3000)
    read: list[int] = []
    read_shelf = held_module.Shelf.read

    def reading(shelf: held_module.Shelf, start_pos: int, size_bytes: int) -> bytes:
        read.append(size_bytes)
        return read_shelf(shelf, start_pos, size_bytes)

    monkeypatch.setattr(held_module.Shelf, "read", reading)
    for expected in (0, count):
        read.clear()
        outcome = eoctl(*call, "--checkpoint", checkpoint)
        assert (outcome.stdout, outcome.status) == (whole.stdout, whole.status)
        assert taken(outcome.errors) == expected
        assert len(parts(checkpoint)) > 3
        assert len(read) > count


@pytest.mark.share(1)
@pytest.mark.parametrize("change", ["grown", "touched", "another segment", "a segment less"])
def test_a_directory_that_has_changed_is_read_again(
    eoctl: Cli, tmp_path: Path, change: str
) -> None:
    root, checkpoint = tmp_path / "logs", tmp_path / "checkpoint"
    count = write_context(root, 1)
    directory = write_segments(root / "broker-0" / "more-0", [Batch()], [Batch(sequence=1)])
    call = ("spark-audit", f"{root}/*", *WORDS, *LOCAL)
    eoctl(*call, "--checkpoint", checkpoint)
    logs = sorted(directory.glob("*.log"))
    if change == "grown":
        logs[-1].write_bytes(logs[-1].read_bytes() * 2)
    elif change == "touched":
        os.utime(logs[0], ns=(1, 10**18))
    elif change == "another segment":
        (directory / f"{99:020d}.log").write_bytes(b"")
    else:
        logs[0].unlink()
    again = eoctl(*call, "--checkpoint", checkpoint)
    whole = eoctl(*call)
    assert (again.stdout, again.status) == (whole.stdout, whole.status)
    assert taken(again.errors) == count
    later = eoctl(*call, "--checkpoint", checkpoint)
    assert (later.stdout, taken(later.errors)) == (whole.stdout, count + 1)


def test_what_could_not_be_read_is_tried_again(
    eoctl: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eoctl.commands.shared import audit_run
    from recovery.summaries.segment import read_split
    from storage.errors import AccessError

    root, checkpoint = tmp_path / "logs", tmp_path / "checkpoint"
    count = write_context(root, 1)
    bad = write_segments(root / "broker-0" / "bad-0", [Batch()])
    call = ("spark-audit", f"{root}/*", *WORDS, *LOCAL)

    import recovery.summaries.segment as reading

    summarize_split = reading.summarize_split

    def failing(split: Any, *more: Any) -> Any:
        if str(bad) in split.place.path:
            raise AccessError(OSError(5, "Input/output error"), str(bad))
        return summarize_split(split, *more)

    assert audit_run.read_split is read_split
    with monkeypatch.context() as patch:
        patch.setattr(reading, "summarize_split", failing)
        outcome = eoctl(*call, "--checkpoint", checkpoint)
    assert outcome.status in {1, 5}
    assert "Input/output error" in outcome.errors
    again = eoctl(*call, "--checkpoint", checkpoint)
    whole = eoctl(*call)
    assert (again.stdout, again.status, taken(again.errors)) == (
        whole.stdout,
        whole.status,
        count,
    )


@pytest.mark.exhaustive
def test_damaged_and_foreign_parts(eoctl: Cli, tmp_path: Path) -> None:
    """What is damaged is read again, and said; what is something else is left as it is."""
    root, checkpoint = tmp_path / "logs", tmp_path / "checkpoint"
    write_context(root)
    call = ("spark-audit", f"{root}/*", *WORDS, *LOCAL)
    whole = eoctl(*call)
    eoctl(*call, *SMALL, "--checkpoint", checkpoint)
    part = checkpoint / parts(checkpoint)[0]
    part.write_bytes(part.read_bytes()[:-9])
    again = eoctl(*call, *SMALL, "--checkpoint", checkpoint)
    assert again.stdout == whole.stdout
    assert f"{part}: damaged" in again.errors
    assert taken(again.errors) > 0
    part.write_text("mine")
    refused = eoctl(*call, "--checkpoint", checkpoint)
    assert (refused.status, refused.stdout, part.read_text()) == (2, b"", "mine")


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        (["--checkpoint", "s3://bucket/x"], 2, "local directory"),
        (["--checkpoint", ""], 2, "no directory is named"),
        (["--checkpoint", "@/inside"], 4, "elsewhere"),
        (["--checkpoint", "!/no/where"], 3, "No such file or directory"),
        (["--checkpoint", "!/c", "--state", "!/s"], 2, "--state"),
        (["--checkpoint", "!/c", "--report-html", "!/h"], 2, "--report-html"),
    ],
)
def test_what_cannot_be(
    eoctl: Cli,
    golden: Callable[[str], Path],
    tmp_path: Path,
    more: list[str],
    status: int,
    words: str,
) -> None:
    logs = golden("kafka-4.3.1") / "clean"
    call = [each.replace("@", str(logs)).replace("!", str(tmp_path)) for each in more]
    outcome = eoctl("spark-audit", logs, *LOCAL, *call)
    assert (outcome.status, outcome.stdout) == (status, b"")
    assert words in outcome.errors


# --- a driver that is killed ----------------------------------------------------------------------


def started(root: Path, checkpoint: Path, *more: str) -> list[str]:
    call = [sys.executable, "-P", "-m", "eoctl", "spark-audit", f"{root}/*", *WORDS]
    return [*call, "--checkpoint", str(checkpoint), *SMALL, *more]


def kill_after_a_part(command: list[str], checkpoint: Path) -> None:
    """Start an audit, and kill its driver when a part is there, but not yet all of them."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        deadline = time.monotonic() + KILLED_SECONDS
        while not parts(checkpoint):
            assert process.poll() is None, process.stdout.read() if process.stdout else ""
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.xdist_group("spark")
def test_a_killed_driver_of_spark(eoctl: Cli, tmp_path: Path) -> None:
    """The next run reads the rest, and tells what an audit tells that was never killed."""
    pytest.importorskip("pyspark")
    root, checkpoint = tmp_path / "logs", tmp_path / "checkpoint"
    count = write_context(root, 6)
    spark = ("--engine", "spark", "--master", "local[1]")
    kill_after_a_part(started(root, checkpoint, *spark), checkpoint)
    done = subprocess.run(
        started(root, checkpoint, *spark),
        stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    whole = eoctl("spark-audit", f"{root}/*", *WORDS, *LOCAL)
    assert (done.stdout, done.returncode) == (whole.stdout, whole.status)
    assert 0 < taken(done.stderr.decode()) < count
