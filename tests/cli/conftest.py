"""Log dirs to be written to: those of real brokers, and one without a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.broker import copy_log_dir
from tests.writing import make_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def kafka(golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log dir of one node that was stopped cleanly; the working directory is around it."""
    monkeypatch.chdir(tmp_path)
    return copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "kafka")


@pytest.fixture
def killed(golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same node, killed; the working directory is around it."""
    monkeypatch.chdir(tmp_path)
    return copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path / "killed")


@pytest.fixture(scope="module")
def crash(golden: Callable[[str], Path]) -> Path:
    """The log dir of the killed node as it is, which nothing writes to."""
    return golden("kafka-4.3.1") / "crash"


@pytest.fixture
def diverged(
    golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Three nodes with one log dir each; div-0 has other records on broker-1. The working dir."""
    target = tmp_path / "diverged"
    target.mkdir()
    for name in ("broker-1", "broker-2", "broker-3"):
        copy_log_dir(golden("kafka-4.3.1-three-brokers") / "diverged" / name, target / name)
    monkeypatch.chdir(target)
    return target


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log dir without a partition, of no cluster that is known."""
    return make_log_dir(tmp_path / "log-dir")
