"""What a command does for a partition does not grow with the number of the others.

Calls and bytes are counted, not seconds: three sizes of a log dir, and the cost of a partition more
between the larger two is that between the smaller two. What is quadratic at ten thousand
partitions shows at seventy.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import pytest

from tests.many_partitions import TOPIC, multiply_partition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

COUNTS = (10, 30, 70)
MOST_GROWTH = 1.15  # sorting, and what is looked at in pieces


@pytest.fixture(scope="module")
def log_dirs(golden: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same node with some number of partitions of one topic. Only read them."""
    found = []
    for count in COUNTS:
        log_dir = tmp_path_factory.mktemp("many") / "kafka"
        shutil.copytree(golden("kafka-4.3.1") / "clean", log_dir)
        for each in log_dir.rglob("*"):
            each.chmod(0o755 if each.is_dir() else 0o644)
        multiply_partition(log_dir, count)
        found.append(log_dir)
    return found


def per_partition(costs: list[int]) -> tuple[float, float]:
    """Cost of one partition more: between the smaller two, and between the larger two."""
    pairs = itertools.pairwise(zip(COUNTS, costs, strict=True))
    slopes = [(more - less) / (many - few) for (few, less), (many, more) in pairs]
    return slopes[0], slopes[1]


def calls_of(command: Callable[[], Outcome]) -> int:
    """Calls of functions, C's included, in this process."""
    counted = itertools.count()

    def count(_frame: object, event: str, _what: object) -> None:
        if event in {"call", "c_call"}:
            next(counted)

    sys.setprofile(count)
    try:
        outcome = command()
    finally:
        sys.setprofile(None)
    assert outcome.status in {0, 1}, outcome.errors
    return next(counted)


COMMANDS = [
    "check --jobs 1 @",
    "check --jobs 2 @",
    "check --jobs 2 --predict @",
    "check --jobs 1 --resume %/state @",
    "check --jobs 1 @@",
    "report --jobs 1 --output jsonl @",
    "rebuild --jobs 1 @",
    "rebuild --jobs 2 @",
    "rebuild --jobs 2 @@",
    "rebuild --jobs 2 --index-interval-bytes 1 --save-plan %/plan @",
    "repair --jobs 1 @",
    "repair --jobs 2 @",
    "repair --jobs 2 @@",
    "repair --strategy salvage @",
    "describe @",
    "describe @@",
    "producers @",
    "duplicates @",
    "loss @",
    "txn list @",
    "txn hanging @",
    "txn torn @",
    "txn stats @",
    "spark-audit --engine local --jobs 1 @",
    "spark-audit --engine local --jobs 2 @",
    "export --engine local --jobs 1 --to %/out @",
]


def arguments_of(command: str, log_dir: Path, scratch: Path) -> list[str]:
    """`@`: the log dir; `@@`: each of its topics' partitions; `%`: where things are written."""
    given: list[str] = []
    for word in command.split():
        if word == "@@":
            given += sorted(map(str, log_dir.glob("[!_]*-[0-9]*")))
        else:
            given.append(word.replace("@", str(log_dir)).replace("%", str(scratch)))
    return given


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", COMMANDS)
def test_a_partition_more_costs_the_same(
    command: str, log_dirs: list[Path], tmp_path: Path, eoctl: Callable[..., Outcome]
) -> None:
    eoctl(*arguments_of(command, log_dirs[0], tmp_path / "warm"))  # imports
    costs = []
    for number, log_dir in enumerate(log_dirs):
        (scratch := tmp_path / str(number)).mkdir()
        given = arguments_of(command, log_dir, scratch)
        costs.append(calls_of(lambda given=given: eoctl(*given)))
    few, many = per_partition(costs)
    assert 0 < many <= MOST_GROWTH * few, costs


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", ["rebuild --jobs 1", "repair --jobs 1 --strategy salvage"])
def test_a_partition_more_to_be_changed_costs_the_same(
    command: str, log_dirs: list[Path], tmp_path: Path, eoctl: Callable[..., Outcome]
) -> None:
    """And the way back, of what has one journal a log dir."""
    costs, undone = [], []
    for number, log_dir in enumerate(log_dirs):
        copy = tmp_path / str(number) / "kafka"
        shutil.copytree(log_dir, copy)
        for path in copy.glob(f"{TOPIC}-*/*.index"):
            path.unlink()
        costs.append(calls_of(lambda copy=copy: eoctl(*command.split(), "--apply", copy)))
        journals = [*copy.with_name("kafka.eoctl").iterdir()]
        if len(journals) == 1:
            undone.append(calls_of(lambda journals=journals: eoctl("undo", journals[0])))
    for each in filter(None, (costs, undone)):
        few, many = per_partition(each)
        assert 0 < many <= MOST_GROWTH * few, each


@pytest.mark.share(2)
@pytest.mark.parametrize("command", ["check", "rebuild", "repair", "spark-audit --engine local"])
def test_what_is_handed_to_processes(
    command: str,
    log_dirs: list[Path],
    eoctl: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[int] = []
    send = Connection._send_bytes  # type: ignore[attr-defined]

    def counting(self: Any, data: Any) -> Any:
        sent.append(len(data))
        return send(self, data)

    monkeypatch.setattr(Connection, "_send_bytes", counting)
    costs = []
    for log_dir in log_dirs:
        sent.clear()
        outcome = eoctl(*command.split(), "--jobs", "2", str(log_dir))
        assert outcome.status in {0, 1}, outcome.errors
        costs.append(sum(sent))
    few, many = per_partition(costs)
    assert many <= MOST_GROWTH * few, costs
    assert many < 64  # a number, and its frame
