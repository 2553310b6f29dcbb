"""What happens to tests whose programs are missing: left out and said, or a failure when required."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Pytest over the broker tests, where neither Java nor Kafka's jars can be found."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    bare |= {"EOCTL_KAFKA_LIBS": "/nonexistent", "EOCTL_REQUIRE": "", **environment}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/broker", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT, env=bare, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "worksteal")])
def test_they_are_left_out_and_the_summary_says_why(workers: tuple[str, ...]) -> None:
    done = _run(*workers)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("left out: ")]
    assert line.split(" broker tests: ")[0].removeprefix("left out: ").isdigit()
    assert "make kafka-libs" in line or "apt-get install" in line


def test_what_is_required_must_be_there() -> None:
    done = _run(EOCTL_REQUIRE="java,broker")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "EOCTL_REQUIRE" in done.stderr
    assert "Kafka's jars are missing" in done.stderr


def test_a_misspelt_requirement_is_refused() -> None:
    done = _run(EOCTL_REQUIRE="java,brokers")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "brokers" in done.stderr
