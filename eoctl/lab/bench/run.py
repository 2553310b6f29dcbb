"""`eoctl bench`: its options, the run, and the recorded results."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.lab.bench.brokers import find_kafka, require_client
from eoctl.lab.bench.scenarios import (
    SCENARIOS,
    chosen_cells,
    require_possible,
    with_bare,
    with_java,
)
from eoctl.messages import report_first
from eoctl.output import Report, emit, message
from eoctl.progress import Progress
from eoctl.report_files import require_target
from storage.counts import counted
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, RefusedError, UsageError, os_errors
from storage.files import fsio
from storage.files.fsio import FileSystem, own_attributes, umask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.lab.bench.brokers import Kafka, MachineRow
    from eoctl.lab.bench.client import Cluster
    from eoctl.lab.bench.runner import CellRun
    from eoctl.lab.bench.scenarios import Cell
    from eoctl.output import OutputFormat


RUNS_NAME = "runs.jsonl"


class Recorder:
    """Recorder of runs in a new or existing directory.

    - `runs.jsonl`: a line for each run.
    - `s1-NAME-1.parquet`: a row for each record of a run. Run numbers from 0 down are warm-up runs.
      The columns are partition, intended_ns, answered_ns and received_ns of one monotonic clock,
      and status (0 no answer, 1 acknowledged, 2 failed). A null time means never.
    """

    def __init__(self, directory: str) -> None:
        self._fs = FileSystem()
        self._directory = Path(directory)
        if not self._directory.is_dir():
            with os_errors(directory):
                self._fs.make_dir(directory, 0o777 & ~umask())
        self._lines: list[str] = []

    def keep(self, run: CellRun) -> None:
        """Record a run. Raises AccessError."""
        name = f"s{run.cell.scenario}-{run.cell.name}-{run.repetition + 1}"
        data = samples_parquet(run)
        path = self._directory / f"{name}.parquet"
        fsio.replace_file(self._fs, path, data, attributes=own_attributes())
        self._lines.append(json.dumps(figures_of(run)) + "\n")
        text = "".join(self._lines).encode()
        path = self._directory / RUNS_NAME
        fsio.replace_file(self._fs, path, text, attributes=own_attributes())


def figures_of(run: CellRun) -> dict[str, Any]:
    """Return the figures of one run, as they are recorded."""
    landed = run.landed._asdict()
    for name in ("missing", "twice"):
        landed[name] = [each._asdict() for each in landed[name]]
    return {
        "scenario": run.cell.scenario,
        "cell": run.cell.name,
        "repetition": run.repetition + 1,
        "topic": run.topic,
        "records_count": run.sent.records_count,
        "records_per_s": round(run.records_per_s, 1),
        "intended_per_s": round(run.rate, 1) or None,
        "moved_count": run.moved_count,
        "load_average": run.load_average,
        "audit_s": round(run.audit_s, 3),
        "failed": run.sent.errors,
        **landed,
    }


def samples_parquet(run: CellRun) -> bytes:
    """Return the samples of a run as a Parquet file."""
    from io import BytesIO

    import pyarrow as pa
    from pyarrow import parquet

    sent = run.sent
    columns = {
        "partition": pa.array(sent.partition, pa.int32()),
        "intended_ns": pa.array(sent.intended_ns, pa.int64()),
        "answered_ns": pa.array(sent.answered_ns, pa.int64(), mask=sent.answered_ns == 0),
        "status": pa.array(sent.status, pa.int8()),
    }
    if run.received_ns is not None:
        columns["received_ns"] = pa.array(run.received_ns, pa.int64(), mask=run.received_ns == 0)
    buffer = BytesIO()
    parquet.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


# -- options of `bench`, and the checks before it starts anything


WARMUP_RATIO = 0.05
DEFAULT_BROKERS = 4


class BenchRequest(NamedTuple):
    """The options of a command, as given."""

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
        """Number of brokers to start."""
        return DEFAULT_BROKERS if self.brokers is None else self.brokers


class CheckedCall(NamedTuple):
    """A command that passed all checks.

    Attributes:
        cells: with the cells for comparison.
        kafka: None if no program of Kafka runs here.
        on_kill, on_start: commands, empty without a command.
        notes: omitted cells, and the reasons.
    """

    cells: list[Cell]
    kafka: Kafka | None
    settings: dict[str, str]
    on_kill: list[str]
    on_start: list[str]
    notes: list[str]


def check(request: BenchRequest) -> CheckedCall:
    """Check that everything is possible, without touching anything.

    Raises:
        UsageError: a wrong command, or a missing program.
        RefusedError: the target is not empty, or is in a log dir.
        AccessError: the target cannot be written.
    """
    if request.is_all and request.scenarios:
        raise UsageError("--all and --scenario: one of them")
    numbers = [*SCENARIOS] if request.is_all else list(dict.fromkeys(request.scenarios))
    if not numbers:
        reported = "; ".join(f"{number} {what}" for number, (what, _) in SCENARIOS.items())
        raise UsageError("no --scenario given", next_step=f"--scenario N, or --all: {reported}")
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
    from eoctl.lab.bench.brokers import require_command

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
    from eoctl.lab.bench.brokers import require_addresses

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
    """Leave out cells that kill brokers, with a note. Raises UsageError if none is left."""
    left_out = " ".join(f"{each.scenario}:{each.name}" for each in cells if each.faults)
    left = [each for each in cells if not each.faults]
    commands = "--on-kill CMD --on-start CMD, which are called with the id of a broker"
    if not left:
        raise UsageError(f"{left_out}: brokers are killed there", next_step=commands)
    if left_out:
        notes.append(f"left out, as brokers are killed there: {left_out}; {commands}")
    return left


def with_needed(cells: Sequence[Cell]) -> list[Cell]:
    """Add cells for comparison: the bare loop, and for rates the run at full speed."""
    found: list[Cell] = []
    for number in dict.fromkeys(each.scenario for each in cells):
        own = [each for each in cells if each.scenario == number]
        first = SCENARIOS[number][1][0]
        if any(each.rate_ratio for each in own) and first not in own:
            own.insert(0, first)
        found += with_bare(own)
    return found


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Parse NAME=VALUE. Raises UsageError."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name.strip()) or not text.isprintable():
            raise UsageError(f"--setting {text}: a setting of brokers is NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


# -- a `bench` command: start brokers, run cells, show the results


VALUE_BYTES = 1000
UNKNOWN_POLICY = "of its owner, not known here"


def run_bench(request: BenchRequest, output: OutputFormat) -> int:
    """Run a benchmark, and return the exit status.

    Raises:
        UsageError, RefusedError, AccessError: as `check`, `work_dir`, `BenchRunner`.
        KeyboardInterrupt: the brokers are stopped, and the recorded runs are shown.
    """
    checked = check(request)
    for note in checked.notes:
        message(note)
    if request.against is None:
        return _run_here(request, checked, output)
    return _run_against(request, checked, output)


def _run_here(request: BenchRequest, checked: CheckedCall, output: OutputFormat) -> int:
    from eoctl.lab.bench.brokers import BrokerOptions, RealBrokers, disk_of, fsync_policy
    from eoctl.lab.bench.work_dir import work_dir

    options = BrokerOptions(
        brokers_count=request.brokers_count,
        java_options=request.java_options,
        settings=checked.settings,
        first_port=request.first_port,
    )
    assert checked.kafka is not None
    with work_dir(request.work_dir) as place:
        for found in place.found:
            message(found, level="warning")
        machine = _machine()._replace(
            disk=disk_of(place.path),
            kafka_version=checked.kafka.version,
            java_version=checked.kafka.java_version,
            brokers_count=request.brokers_count,
            fsync_policy=fsync_policy(checked.settings),
        )
        try:
            with RealBrokers(checked.kafka, place, options) as cluster:
                runs = _run_cells(cluster, machine, request, checked, output)
        except KeyboardInterrupt:
            place.leave()
            raise
        _show(machine, runs, request, output, is_whole=True)
        status = _status(runs)
        if status == EXIT_OK:
            place.leave()
        else:
            message(f"{place.path}: the log dirs are kept; the next call there removes them")
    return status


def _run_against(request: BenchRequest, checked: CheckedCall, output: OutputFormat) -> int:
    from eoctl.lab.bench.brokers import RunningBrokers

    assert request.against is not None
    with RunningBrokers(request.against, checked.on_kill, checked.on_start) as cluster:
        count = len(cluster.broker_ids)
        require_possible(checked.cells, count, is_ours=False)
        machine = _machine()._replace(brokers_count=count, fsync_policy=UNKNOWN_POLICY)
        runs = _run_cells(cluster, machine, request, checked, output)
    _show(machine, runs, request, output, is_whole=True)
    return _status(runs)


def _run_cells(
    cluster: Cluster,
    machine: MachineRow,
    request: BenchRequest,
    checked: CheckedCall,
    output: OutputFormat,
) -> list[CellRun]:
    """Run all cells. After an early end, show the finished runs."""
    from eoctl.lab.bench.load import LoadOptions
    from eoctl.lab.bench.runner import BenchRunner, ScenarioOptions

    load = LoadOptions(
        records=request.records,
        seconds=request.seconds,
        in_flight=request.in_flight,
        value_bytes=VALUE_BYTES,
        seed=request.seed,
    )
    options = ScenarioOptions(
        repetitions=request.repetitions,
        has_warmup=request.has_warmup,
        warmup_ratio=WARMUP_RATIO,
        load=load,
        kafka=checked.kafka,
    )
    recorder = Recorder(request.to) if request.to is not None else None
    runs: list[CellRun] = []

    def keep(run: CellRun) -> None:
        runs.append(run)
        if recorder is not None:
            recorder.keep(run)

    try:
        sequence = BenchRunner(cluster, checked.cells, options, message)
        for each in sequence.warm():
            keep(each)
        with Progress("measuring", sequence.runs_count, unit="runs") as progress:
            for each in sequence.runs():
                keep(each)
                progress.advance(1)
    except BaseException:
        if runs:
            _show(machine, runs, request, output, is_whole=False)
        raise
    return runs


def _status(runs: list[CellRun]) -> int:
    from eoctl.lab.bench.tables import is_sound

    if not is_sound(runs):
        return EXIT_FINDINGS
    return EXIT_SKIPPED if any(each.landed.notes for each in runs) else EXIT_OK


def _machine() -> MachineRow:
    """Return the known properties of this machine, without brokers."""
    import confluent_kafka

    from eoctl.lab.bench.brokers import MachineRow, cpu_name, ram_bytes

    return MachineRow(
        cpu=cpu_name(),
        processors_count=len(os.sched_getaffinity(0)),
        ram_bytes=ram_bytes(),
        disk=None,
        python_version=platform.python_version(),
        client=f"librdkafka {confluent_kafka.libversion()[0]}",
        kafka_version=None,
        java_version=None,
        brokers_count=0,
        fsync_policy=None,
        load_average=round(os.getloadavg()[0], 2),
    )


def _show(
    machine: MachineRow,
    runs: list[CellRun],
    request: BenchRequest,
    output: OutputFormat,
    *,
    is_whole: bool,
) -> None:
    from eoctl.lab.bench import tables

    found = tables.by_cell(runs)
    notes = [*_notes(machine, runs, request, is_whole=is_whole)]
    is_consumed = request.against is not None
    relations = [*tables.relation_rows(found, is_consumed=is_consumed)] if is_whole else []
    stretches = [*tables.stretch_rows(runs)]
    reports = [
        Report("machine", type(machine)._fields, [machine]),
        Report("cell", tables.CELL_COLUMNS, [*tables.cell_rows(found)]),
        Report("latency", tables.LATENCY_COLUMNS, [*tables.latency_rows(found, WARMUP_RATIO)]),
        Report("landed", tables.LANDED_COLUMNS, [*tables.landed_rows(found)]),
        *([Report("stretch", tables.StretchRow._fields, stretches)] if stretches else []),
        Report("relation", tables.RELATION_COLUMNS, relations, notes=notes),
    ]
    report_first(tables.answer(runs), output)
    for each in reports:
        emit(each, output)


def warming_notes(runs: list[CellRun]) -> Iterator[str]:
    """Yield how far the brokers were warmed before the counted runs."""
    from eoctl.lab.bench.runner import is_steady

    rates = [each.records_per_s for each in runs if each.is_warming]
    if not rates:
        return
    reported = f"{rates[0]:,.0f} to {rates[-1]:,.0f} records/s"
    yield f"brokers were warmed by {counted(len(rates), 'run')}: from {reported}" + (
        "" if is_steady(rates) else ", and still became quicker: later runs are quicker for that"
    )


def _notes(
    machine: MachineRow, runs: list[CellRun], request: BenchRequest, *, is_whole: bool
) -> Iterator[str]:
    from eoctl.lab.bench.tables import bare_ratio, by_cell

    if not is_whole:
        yield (
            f"not at its end: {counted(len(runs), 'run')} of these; no figure of a cell that ran"
            " less than 3 times says anything"
        )
    if request.against is not None:
        yield (
            "the brokers' disks are elsewhere: landed is what a consumer of all records was given"
            " (read_uncommitted), and not the log of every replica"
        )
    needed = machine.brokers_count + 2  # the controller, and the producer
    if request.against is None and machine.processors_count < needed:
        yield (
            f"{machine.brokers_count} brokers, a controller and the client share"
            f" {counted(machine.processors_count, 'processor')}: replicas cost more here than"
            " where each broker has its own, and no figure is one of a cluster"
        )
    yield from warming_notes(runs)
    for scenario, ratio, reported in bare_ratio(by_cell(runs)):
        sent = f"our load sends {ratio:.2f} of what the bare loop does"
        yield f"scenario {scenario}: {sent}, {reported}"
    for each in runs:
        if each.moved_count and not each.cell.faults:
            moved, acks = counted(each.moved_count, "partition"), each.cell.acks
            yield (
                f"{each.topic}: the leader of {moved} changed, though nobody was killed here: a"
                " broker that gets no processor for long loses its session. Its rate is one of that"
                + ("; with acks=0 what the old leader had not read is lost" if not acks else "")
            )
        for note in each.landed.notes:
            yield f"{each.topic}: {note}"
    read_bytes = sum(each.landed.log_bytes for each in runs)
    seconds = sum(each.audit_s for each in runs)
    yield f"audited: {read_bytes:,} bytes of logs in {seconds:.1f} s, waiting for them included"
