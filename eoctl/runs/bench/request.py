"""What a call of `bench` asks for, and all that must be right before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.bench.programs import find_kafka, require_client
from eoctl.bench.scenarios import SCENARIOS, chosen_cells, require_possible, with_bare
from eoctl.report_files import require_target
from storage.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eoctl.bench.programs import Kafka
    from eoctl.bench.scenarios import Cell

WARMUP_RATIO = 0.05
DEFAULT_BROKERS = 4


class BenchRequest(NamedTuple):
    """The options of a call, as they were given."""

    scenarios: Sequence[int]
    is_all: bool
    cells: Sequence[str]
    brokers: int
    records: int
    seconds: float
    repetitions: int
    in_flight: int
    seed: int
    kafka_home: str | None
    work_dir: str
    first_port: int | None
    java_options: Sequence[str]
    settings: Sequence[str]
    to: str | None


class CheckedCall(NamedTuple):
    """What was asked for and can be done."""

    cells: list[Cell]
    kafka: Kafka
    settings: dict[str, str]


def check(request: BenchRequest) -> CheckedCall:
    """See that all of it can be done. Nothing is touched.

    Raises:
        UsageError: a wrong call, or a program is missing.
        RefusedError: the target is not empty, or lies in a log dir.
        AccessError: the target cannot be written.
    """
    if request.is_all and request.scenarios:
        raise UsageError("--all and --scenario: one of them")
    numbers = [*SCENARIOS] if request.is_all else list(dict.fromkeys(request.scenarios))
    if not numbers:
        told = "; ".join(f"{number} {what}" for number, (what, _) in SCENARIOS.items())
        raise UsageError("no --scenario given", next_step=f"--scenario N, or --all: {told}")
    cells = chosen_cells(numbers, request.cells)
    require_possible(cells, request.brokers)
    settings = parse_settings(request.settings)
    if request.to is not None:
        require_target(request.to)
        if Path(request.to).exists() and any(Path(request.to).iterdir()):
            raise RefusedError(
                f"--to {request.to}: is not empty; nothing was touched",
                next_step="name a directory that is not there yet",
            )
    require_client()
    return CheckedCall(with_needed(cells), find_kafka(request.kafka_home), settings)


def with_needed(cells: Sequence[Cell]) -> list[Cell]:
    """Add what others are measured by: the bare loop, and of rates the run as fast as may be."""
    found: list[Cell] = []
    for number in dict.fromkeys(each.scenario for each in cells):
        own = [each for each in cells if each.scenario == number]
        first = SCENARIOS[number][1][0]
        if any(each.rate_ratio for each in own) and first not in own:
            own.insert(0, first)
        found += with_bare(own)
    return found


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Read NAME=VALUE. Raises UsageError."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name.strip()) or not text.isprintable():
            raise UsageError(f"--setting {text}: a setting of brokers is NAME=VALUE")
        found[name.strip()] = value.strip()
    return found
