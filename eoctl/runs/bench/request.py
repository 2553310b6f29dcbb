"""What a call of `bench` asks for, and all that must be right before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.bench.programs import find_kafka, require_client
from eoctl.bench.scenarios import SCENARIOS, chosen_cells, require_possible, with_bare, with_java
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
    brokers: int | None
    records: int
    seconds: float
    repetitions: int
    has_warmup: bool
    in_flight: int
    seed: int
    kafka_home: str | None
    work_dir: str
    first_port: int | None
    java_options: Sequence[str]
    settings: Sequence[str]
    to: str | None
    has_java_client: bool
    against: str | None
    on_kill: str | None
    on_start: str | None

    @property
    def brokers_count(self) -> int:
        """How many are started."""
        return DEFAULT_BROKERS if self.brokers is None else self.brokers


class CheckedCall(NamedTuple):
    """What was asked for and can be done.

    Attributes:
        cells: with those that others are compared with.
        kafka: None: nothing of it is started here.
        on_kill, on_start: commands; empty: none.
        notes: what was left out, and why.
    """

    cells: list[Cell]
    kafka: Kafka | None
    settings: dict[str, str]
    on_kill: list[str]
    on_start: list[str]
    notes: list[str]


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
    notes: list[str] = []
    on_kill, on_start = _commands(request)
    if request.against is None:
        require_possible(cells, request.brokers_count)
    else:
        _require_against(request)
        if not on_kill:
            cells = _without_faults(cells, notes)
    settings = parse_settings(request.settings)
    if request.to is not None:
        require_target(request.to)
        if Path(request.to).exists() and any(Path(request.to).iterdir()):
            raise RefusedError(
                f"--to {request.to}: is not empty; nothing was touched",
                next_step="name a directory that is not there yet",
            )
    require_client()
    needs_kafka = request.against is None or request.has_java_client
    found = with_needed(cells)
    return CheckedCall(
        cells=with_java(found) if request.has_java_client else found,
        kafka=find_kafka(request.kafka_home) if needs_kafka else None,
        settings=settings,
        on_kill=on_kill,
        on_start=on_start,
        notes=notes,
    )


def _commands(request: BenchRequest) -> tuple[list[str], list[str]]:
    from eoctl.bench.programs import require_command

    given = {"--on-kill": request.on_kill, "--on-start": request.on_start}
    named = {option: text for option, text in given.items() if text is not None}
    if not named:
        return [], []
    if request.against is None:
        raise UsageError(f"{' and '.join(named)}: only with --against; brokers here are ours")
    if len(named) == 1:
        raise UsageError("--on-kill and --on-start: both, or none")
    kill, start = (require_command(option, text) for option, text in named.items())
    return kill, start


def _require_against(request: BenchRequest) -> None:
    from eoctl.bench.programs import require_addresses

    assert request.against is not None
    require_addresses(request.against)
    ours = {
        "--brokers": request.brokers is not None,
        "--first-port": request.first_port is not None,
        "--java-option": bool(request.java_options),
        "--setting": bool(request.settings),
    }
    if wrong := [option for option, is_given in ours.items() if is_given]:
        raise UsageError(f"{', '.join(wrong)}: of brokers that are started here, not --against")


def _without_faults(cells: Sequence[Cell], notes: list[str]) -> list[Cell]:
    """Leave out what kills brokers; say so. Raises UsageError if nothing is left."""
    left_out = " ".join(f"{each.scenario}:{each.name}" for each in cells if each.faults)
    left = [each for each in cells if not each.faults]
    commands = "--on-kill CMD --on-start CMD, which are called with the id of a broker"
    if not left:
        raise UsageError(f"{left_out}: brokers are killed there", next_step=commands)
    if left_out:
        notes.append(f"left out, as brokers are killed there: {left_out}; {commands}")
    return left


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
