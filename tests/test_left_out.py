"""What is left out of a run: tests whose programs are missing, unless required; and cases not drawn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import drawn

ROOT = Path(__file__).parents[1]
BROKER_TESTS = "tests/broker/test_one_broker.py"


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


@pytest.mark.share(1)
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
    """Return the cases that pytest would run, and what it says of the others."""
    done = _pytest("--collect-only", *arguments, EOCTL_TESTS=tests)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    said = [line for line in lines if line.startswith("left to make test-all: ")]
    return [line for line in lines if "::" in line], "".join(said)


@pytest.mark.exhaustive
def test_cases_outside_the_share() -> None:
    """The same share each time; what is named is run."""
    file = "tests/damage/test_segment_faults.py"
    share, said = _collected(file)
    every, nothing = _collected(file, tests="all")
    assert {*share} < {*every}
    assert said == f"left to make test-all: {len(every) - len(share)} cases"
    assert nothing == ""
    tests = {name.partition("[")[0] for name in every}
    assert {name.partition("[")[0] for name in share} == tests
    assert _collected(file) == (share, said)
    named = [name for name in every if "test_cut_tails[" in name]
    assert _collected(f"{file}::test_cut_tails") == (named, "")


@pytest.mark.exhaustive
def test_exhaustive_tests() -> None:
    """They run in make test-all, and if they are named."""
    file = "tests/cli/test_export.py"
    share, said = _collected(file)
    every, nothing = _collected(file, tests="all")
    assert said
    assert nothing == ""
    assert {*share} < {*every}
    left = {name.partition("[")[0] for name in every} - {name.partition("[")[0] for name in share}
    for test in left:
        named = {name for name in every if name.partition("[")[0] == test}
        assert {*_collected(test)[0]} == named


def test_the_seed_of_a_run_is_fixed_unless_all_of_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn, "IS_ALL", False)
    assert drawn.seed_of_this_run() == drawn.seed_of_this_run() == drawn.FIXED_SEED
    monkeypatch.setattr(drawn, "IS_ALL", True)
    assert len({drawn.seed_of_this_run() for _ in range(5)}) == 5
