"""`eoctl consume --follow`: a log that grows, rolls, is cut, and loses its start."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.clients.log.consumer import TAIL_GRACE_S
from tests.audit_logs import CONTROL_KINDS, Batch, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).parents[2]
PATIENCE_S = 90


class Log:
    """A partition that somebody writes to."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.next_offset = 0
        self.roll()

    def roll(self) -> None:
        self.active = self.directory / f"{self.next_offset:020d}.log"
        self.active.touch()

    def bytes_of(self, *batches: Batch) -> bytes:
        data = b""
        for each in batches:
            data += encoded(each, self.next_offset)
            self.next_offset += 1 if each.kind in CONTROL_KINDS else each.count
        return data

    def append(self, *batches: Batch) -> None:
        with self.active.open("ab") as file:
            file.write(self.bytes_of(*batches))

    def write(self, data: bytes) -> None:
        with self.active.open("ab") as file:
            file.write(data)


class Follower:
    """A running `eoctl consume --follow`."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "eoctl", "consume", str(directory), "--follow",
             "--output", "jsonl", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self.data = self.said = b""

    def offsets(self, count: int) -> list[int]:
        """Wait for so many lines; all offsets so far."""
        deadline = time.monotonic() + PATIENCE_S
        stdout = self.process.stdout
        assert stdout is not None
        while self.data.count(b"\n") < count:
            left_s = deadline - time.monotonic()
            assert left_s > 0, (self.data, self.process.poll())
            if select.select([stdout], [], [], left_s)[0]:
                self.data += stdout.read() or b""
            assert self.process.poll() is None or self.data.count(b"\n") >= count
        return [json.loads(line)["offset"] for line in self.data.splitlines()]

    def says(self, words: str) -> None:
        """Wait until it has said so."""
        deadline = time.monotonic() + PATIENCE_S
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        while words.encode() not in self.said:
            assert time.monotonic() < deadline, self.said
            self.said += self.process.stderr.read() or b""
            time.sleep(0.02)

    def nothing_more(self) -> None:
        time.sleep(0.5)
        assert self.process.stdout is not None
        assert not self.process.stdout.read()

    def end(self, signal_number: int | None = signal.SIGINT) -> tuple[int, list[dict[str, Any]]]:
        """Interrupt it, unless it ends by itself: its status, and what it said."""
        if signal_number is not None:
            self.process.send_signal(signal_number)
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), True)
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), True)
        rest, errors = self.process.communicate(timeout=PATIENCE_S)
        self.data += rest
        return self.process.returncode, [
            json.loads(line) for line in (self.said + errors).splitlines()
        ]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "logs" / "grown-0")


@pytest.fixture
def follow(log: Log) -> Iterator[Callable[..., Follower]]:
    started: list[Follower] = []

    def start(*options: str) -> Follower:
        started.append(Follower(log.directory, *options))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def messages(notes: Sequence[dict[str, Any]]) -> str:
    return "\n".join(each["message"] for each in notes)


def test_it_grows_and_rolls(log: Log, follow: Callable[..., Follower]) -> None:
    """A torn append waits; what is appended is printed once; Ctrl-C ends it with whole lines."""
    log.append(Batch(count=3))
    follower = follow()
    assert follower.offsets(3) == [0, 1, 2]
    data = log.bytes_of(Batch(count=2))
    log.write(data[:-7])
    follower.nothing_more()
    log.write(data[-7:])
    assert follower.offsets(5)[3:] == [3, 4]
    for _ in range(3):
        log.append(Batch())
        log.roll()
        log.append(Batch(count=2))
    assert follower.offsets(14) == list(range(14))
    status, notes = follower.end()
    assert status == 130
    assert follower.data.endswith(b"\n")
    assert "interrupted: 14 records, offsets 0 to 13; next offset 14;" in messages(notes)


def test_an_open_transaction_gets_its_marker(log: Log, follow: Callable[..., Follower]) -> None:
    """It holds back what follows it; the marker lets it out, with what was not aborted."""
    follower = follow("--isolation", "read_committed")
    log.append(Batch(pid=1), Batch(pid=2, kind="txn", count=2), Batch(pid=3, kind="txn"))
    assert follower.offsets(1) == [0]
    log.append(Batch(pid=1), Batch(pid=3, kind="abort"))
    follower.nothing_more()
    log.roll()
    log.append(Batch(pid=2, kind="txn"), Batch(pid=2, kind="commit"), Batch(pid=2, kind="txn"))
    assert follower.offsets(5) == [0, 1, 2, 4, 6]
    follower.nothing_more()
    log.append(Batch(pid=2, kind="abort"), Batch(pid=1))
    assert follower.offsets(6) == [0, 1, 2, 4, 6, 10]
    assert follower.end()[0] == 130


def test_from_the_end(log: Log, follow: Callable[..., Follower]) -> None:
    log.append(Batch(count=5))
    follower = follow("--from", "latest")
    follower.nothing_more()
    deadline = time.monotonic() + PATIENCE_S
    while not follower.data:  # it may not have looked for the end yet
        assert time.monotonic() < deadline
        log.append(Batch())
        time.sleep(0.2)
        assert follower.process.stdout is not None
        follower.data += follower.process.stdout.read() or b""
    assert follower.offsets(1)[0] >= 5


def test_so_many_and_no_more(log: Log, follow: Callable[..., Follower]) -> None:
    log.append(Batch(count=3))
    counted, bounded = follow("--max-messages", "5"), follow("--until", "6")
    assert counted.offsets(3) == bounded.offsets(3) == [0, 1, 2]
    log.append(Batch(count=10))
    assert counted.end(None)[0] == bounded.end(None)[0] == 0
    assert counted.offsets(5) == [0, 1, 2, 3, 4]
    assert bounded.offsets(6) == [0, 1, 2, 3, 4, 5]


def test_the_high_watermark_moves(log: Log, follow: Callable[..., Follower]) -> None:
    checkpoint = log.directory.parent / "replication-offset-checkpoint"
    checkpoint.write_text("0\n1\ngrown 0 2\n")
    log.append(Batch(count=3), Batch(count=3))
    follower = follow("--until", "hw")
    assert follower.offsets(2) == [0, 1]
    follower.nothing_more()
    replacement = checkpoint.with_suffix(".tmp")
    replacement.write_text("0\n1\ngrown 0 6\n")
    replacement.replace(checkpoint)
    assert follower.offsets(6) == list(range(6))


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_log_is_truncated(isolation: str, log: Log, follow: Callable[..., Follower]) -> None:
    """After an election a follower cuts its log, and what it fetches then has other records."""
    log.append(Batch(count=3), Batch(pid=2, kind="txn"), Batch(pid=2, kind="abort"))
    kept, offset = log.active.stat().st_size, log.next_offset
    log.append(Batch(count=4))
    follower = follow("--isolation", isolation)
    before = [0, 1, 2, 5, 6, 7, 8] if isolation == "read_committed" else [0, 1, 2, 3, 5, 6, 7, 8]
    assert follower.offsets(len(before)) == before
    os.truncate(log.active, kept)
    follower.says("truncated to offset 5")
    log.next_offset = offset
    log.append(Batch(count=2), Batch(count=2))
    assert follower.offsets(len(before) + 4) == [*before, 5, 6, 7, 8]
    _, notes = follower.end()
    assert "truncated to offset 5. eoctl goes on from there. Offsets up to 8 were" in messages(
        notes
    )


@pytest.mark.share(3)
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(
    ("new", "is_rolled"),
    [
        ([2, 2], False),  # of the same sizes: nothing is damaged at the old place
        ([2, 2, 1], False),
        ([4, 3], False),
        ([1], False),
        ([1, 1, 9], True),
    ],
)
def test_the_log_is_written_anew_between_two_looks(
    new: list[int], isolation: str, is_rolled: bool, log: Log, follow: Callable[..., Follower]
) -> None:
    log.append(Batch(count=3))
    kept, offset = log.active.stat().st_size, log.next_offset
    log.append(Batch(pid=5, count=2), Batch(pid=5, count=2))
    follower = follow("--isolation", isolation)
    assert follower.offsets(7) == [*range(7)]
    follower.process.send_signal(signal.SIGSTOP)
    os.truncate(log.active, kept)
    log.next_offset = offset
    for count in new:
        log.append(Batch(pid=6, count=count))
        if is_rolled:
            log.roll()
    follower.process.send_signal(signal.SIGCONT)
    again = [*range(3, 3 + sum(new))]
    assert follower.offsets(7 + len(again)) == [*range(7), *again]
    log.append(Batch(pid=6))
    assert follower.offsets(8 + len(again))[-1] == log.next_offset - 1
    _, notes = follower.end()
    assert "truncated to offset 3. eoctl goes on from there. Offsets up to 6 were" in messages(
        notes
    )


def test_what_a_cleaner_writes_anew_is_not_truncated(
    log: Log, follow: Callable[..., Follower]
) -> None:
    log.append(Batch(count=3), Batch(count=2))
    cleaned = log.active
    data = bytearray(cleaned.read_bytes())
    log.roll()
    follower = follow()
    assert follower.offsets(5) == [*range(5)]
    rest = log.bytes_of(Batch(count=2))
    follower.process.send_signal(signal.SIGSTOP)
    first_bytes = int.from_bytes(data[8:12]) + 12
    cleaned.write_bytes(data[first_bytes:])  # one batch of two stays
    log.active.unlink()
    log.active = cleaned.with_name(f"{5:020d}.log")
    log.write(rest)
    follower.process.send_signal(signal.SIGCONT)
    assert follower.offsets(7) == [*range(7)]
    _, notes = follower.end()
    assert "truncated" not in messages(notes)


def test_a_segment_is_truncated_away(log: Log, follow: Callable[..., Follower]) -> None:
    log.append(Batch(count=3))
    first, offset = log.active, log.next_offset
    log.roll()
    log.append(Batch(count=3))
    follower = follow()
    assert follower.offsets(6) == list(range(6))
    log.active.unlink()
    follower.says("truncated to offset 3")
    log.active, log.next_offset = first, offset
    log.append(Batch())
    assert follower.offsets(7)[-1] == 3
    _, notes = follower.end()
    assert "truncated to offset 3" in messages(notes)


def test_a_gap_is_named_at_once(log: Log, follow: Callable[..., Follower]) -> None:
    """Whoever interrupts it has been warned; at an end by itself it is named once."""
    log.append(Batch(count=3))
    follower = follow()
    assert follower.offsets(3) == [0, 1, 2]
    log.next_offset += 4
    log.append(Batch(count=2))
    assert follower.offsets(5) == [0, 1, 2, 7, 8]
    follower.says("offsets 3 to 6 (4) are missing")
    _, notes = follower.end()
    assert messages(notes).count("offsets 3 to 6") == 1
    bounded = follow("--until", "9")
    assert bounded.offsets(5) == [0, 1, 2, 7, 8]
    status, notes = bounded.end(None)
    assert status == 5
    assert messages(notes).count("offsets 3 to 6") == 1


def test_the_start_moves_past_it(log: Log, follow: Callable[..., Follower]) -> None:
    """Retention removes what a transaction held back."""
    log.append(Batch(), Batch(pid=2, kind="txn"))
    first = log.active
    log.roll()
    log.append(Batch(), Batch())
    follower = follow("--isolation", "read_committed")
    assert follower.offsets(1) == [0]
    first.unlink()
    assert follower.offsets(3) == [0, 2, 3]
    _, notes = follower.end()
    assert "offsets 1 to 1 are gone" in messages(notes)


def test_the_directory_goes(log: Log, follow: Callable[..., Follower]) -> None:
    log.append(Batch())
    follower = follow()
    assert follower.offsets(1) == [0]
    log.directory.rename(log.directory.with_name("grown-0.0123-delete"))
    status, notes = follower.end(None)
    assert status == 3
    assert "is gone while it was followed" in messages(notes)


def test_damage_while_following(log: Log, follow: Callable[..., Follower]) -> None:
    """At the end of the log it may be an append under way, for so long."""
    log.append(Batch(count=2))
    strict, lenient = follow(), follow("--skip-corrupt")
    assert strict.offsets(2) == lenient.offsets(2) == [0, 1]
    good = log.bytes_of(Batch(count=2))
    bad = bytearray(good)
    bad[-1] ^= 1
    written_s = time.monotonic()
    log.write(bytes(bad))
    status, notes = strict.end(None)
    assert time.monotonic() - written_s >= TAIL_GRACE_S
    assert status == 1
    assert "[BAT-1]" in messages(notes)
    log.append(Batch(count=2))
    assert lenient.offsets(4) == [0, 1, 4, 5]
    status, notes = lenient.end()
    assert status == 130
    assert "skipped: " in messages(notes)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [(), ("-u",)])
def test_an_interruption_while_the_reader_is_slow(options: tuple[str, ...], log: Log) -> None:
    """What was begun is written to its end: the reader gets whole lines."""
    log.append(*(Batch(count=50) for _ in range(400)))
    program = [sys.executable, *options, "-m", "eoctl"]
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    with subprocess.Popen(
        [*program, "consume", str(log.directory), "--output", "jsonl"], bufsize=0,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=environment,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        first = child.stdout.read(1000)
        child.send_signal(signal.SIGINT)
        time.sleep(0.3)
        rest, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 130
    data = first + rest
    assert data.endswith(b"\n"), len(data)
    offsets = [json.loads(line)["offset"] for line in data.splitlines()]
    assert offsets == list(range(len(offsets)))
    assert b"interrupted" in errors
