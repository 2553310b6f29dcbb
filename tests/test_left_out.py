"""What is left out of a run: tests whose programs are missing, unless required; and cases not drawn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BROKER_TESTS = "tests/broker/test_partitioner.py"


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Pytest over a file of broker tests, where neither Java nor Kafka's jars can be found."""
    environment = {"EOCTL_KAFKA_LIBS": "/nonexistent", "EOCTL_REQUIRE": "", **environment}
    return _pytest(BROKER_TESTS, *arguments, **environment)


def _pytest(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT, env=bare | environment, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "worksteal")])
def test_they_are_left_out_and_the_summary_says_why(workers: tuple[str, ...]) -> None:
    done = _run(*workers)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("left out: ")]
    assert line.startswith("left out: 1 broker tests: ")
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


def _collected(*arguments: str, tests: str = "") -> tuple[list[str], str]:
    """The cases that pytest would run, and what it says of the others."""
    done = _pytest("--collect-only", *arguments, EOCTL_SEED="7", EOCTL_TESTS=tests)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    said = [line for line in lines if line.startswith("not drawn: ")]
    return [line for line in lines if "::" in line], "".join(said)


def test_cases_that_are_not_drawn() -> None:
    """A seed draws the same again; what is named is run."""
    file = "tests/damage/test_segment_faults.py"
    share, said = _collected(file)
    every, nothing = _collected(file, tests="all")
    assert {*share} < {*every}
    assert said == f"not drawn: {len(every) - len(share)} cases; EOCTL_TESTS=all runs them too"
    assert nothing == ""
    tests = {name.partition("[")[0] for name in every}
    assert {name.partition("[")[0] for name in share} == tests
    assert _collected(file) == (share, said)
    named = [name for name in every if "test_cut_tails[" in name]
    assert _collected(f"{file}::test_cut_tails") == (named, "")


def test_tests_whose_turn_it_is_not() -> None:
    """Half of those that take long; the others of their file run, and all where one is named."""
    file = "tests/cli/test_bombs.py"
    share, said = _collected(file)
    every, nothing = _collected(file, tests="all")
    assert said
    assert nothing == ""
    assert {*share} < {*every}
    left = {name.partition("[")[0] for name in every} - {name.partition("[")[0] for name in share}
    (test,) = left
    assert {*_collected(test)[0]} == {name for name in every if name.partition("[")[0] == test}
