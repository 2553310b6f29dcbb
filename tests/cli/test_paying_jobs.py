"""Processes are started where there is enough for them to do, and what comes out is the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from recovery import pool
from recovery.pool import paying_jobs
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.running import Outcome

NOW = "2026-11-21T03:00:00Z"
COMMANDS = [
    "check @",
    "check --deep @",
    "rebuild @",
    "rebuild @/rolled-0",
    "repair @",
    "repair --strategy salvage @/rolled-0",
]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that are started in processes."""
    found: list[str] = []
    start = pool.Worker.__init__

    def counted(child: pool.Worker, work: Any, *arguments: Any) -> None:
        found.append(work.__module__)
        start(child, work, *arguments)

    monkeypatch.setattr(pool.Worker, "__init__", counted)
    return found


@pytest.mark.share(3)
@pytest.mark.usefixtures("workers_pay")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_small_job_starts_no_process(
    command: str,
    golden: Callable[[str], Path],
    eoctl: Callable[..., Outcome],
    started: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "kafka")
    next(log_dir.glob("rolled-0/*.index")).unlink()
    words = command.replace("@", str(log_dir)).split()

    def outcome(jobs: int) -> Outcome:
        found = eoctl(*words, "--jobs", jobs, "--now", NOW)
        return found._replace(stderr=re.sub(rb"--jobs \d", b"--jobs N", found.stderr))

    with_two = outcome(2)
    assert started
    started.clear()
    with monkeypatch.context() as patch:
        patch.setattr(pool, "MIN_SHARED_BYTES", 256 << 20)
        small = outcome(2)
        assert not started
    assert with_two == small == outcome(1)
    assert small.status in {0, 1}, small.errors


def test_no_more_is_asked_for_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MIN_SHARED_BYTES", 100)
    asked: list[int] = []

    def sizes() -> Iterator[int]:
        for each in (1, 60, 1, 60, 60):
            asked.append(each)
            yield each

    assert paying_jobs(2, sizes()) == 2
    assert asked == [1, 60, 1, 60]
    assert paying_jobs(2, [99]) == 1
    assert paying_jobs(2, [1] * 9) == 1
    assert paying_jobs(2, [1] * 9, least_bytes=20) == 2
    assert paying_jobs(1, [1000]) == 1
