"""One call of `bench`: brokers are started, cells run, and what it came to is shown."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from eoctl.bench.scenarios import require_possible
from eoctl.output import Report, emit, message
from eoctl.progress import Progress
from eoctl.runs.bench.request import WARMUP_RATIO, check
from eoctl.runs.told import counted, tell_first
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.bench.client import Cluster
    from eoctl.bench.course import CellRun
    from eoctl.bench.machine import MachineRow
    from eoctl.output import OutputFormat
    from eoctl.runs.bench.request import BenchRequest, CheckedCall

VALUE_BYTES = 1000
UNKNOWN_POLICY = "of its owner, not known here"


def run_bench(request: BenchRequest, output: OutputFormat) -> int:
    """Run it; returns the exit status.

    Raises:
        UsageError, RefusedError, AccessError: as `check`, `work_dir`, `BenchCourse`.
        KeyboardInterrupt: brokers are stopped, and what was recorded is shown.
    """
    checked = check(request)
    for note in checked.notes:
        message(note)
    if request.against is None:
        return _run_here(request, checked, output)
    return _run_against(request, checked, output)


def _run_here(request: BenchRequest, checked: CheckedCall, output: OutputFormat) -> int:
    from eoctl.bench.brokers import BrokerOptions, RealBrokers, fsync_policy
    from eoctl.bench.machine import disk_of
    from eoctl.bench.work_dir import work_dir

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
    from eoctl.bench.against import RunningBrokers

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
    """Run all cells; shows what there is of them when that has an early end."""
    from eoctl.bench.course import BenchCourse, CourseOptions
    from eoctl.bench.load import LoadOptions
    from eoctl.runs.bench.record import Recorder

    load = LoadOptions(
        records=request.records,
        seconds=request.seconds,
        in_flight=request.in_flight,
        value_bytes=VALUE_BYTES,
        seed=request.seed,
    )
    options = CourseOptions(
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
        course = BenchCourse(cluster, checked.cells, options, message)
        for each in course.warm():
            keep(each)
        with Progress("measuring", course.runs_count, unit="runs") as progress:
            for each in course.runs():
                keep(each)
                progress.advance(1)
    except BaseException:
        if runs:
            _show(machine, runs, request, output, is_whole=False)
        raise
    return runs


def _status(runs: list[CellRun]) -> int:
    from eoctl.bench.tables import is_sound

    if not is_sound(runs):
        return EXIT_FINDINGS
    return EXIT_SKIPPED if any(each.landed.notes for each in runs) else EXIT_OK


def _machine() -> MachineRow:
    """What is known of this machine, without brokers."""
    import confluent_kafka

    from eoctl.bench.machine import MachineRow, cpu_name, ram_bytes

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
    from eoctl.bench import tables

    found = tables.by_cell(runs)
    notes = [*_notes(machine, runs, request, is_whole=is_whole)]
    is_consumed = request.against is not None
    relations = [*tables.relation_rows(found, is_consumed=is_consumed)] if is_whole else []
    stretches = [*tables.stretch_rows(runs)]
    reports = [
        Report("machine", type(machine)._fields, [machine]),
        Report("cell", tables.CellRow._fields, [*tables.cell_rows(found)]),
        Report("latency", tables.LatencyRow._fields, [*tables.latency_rows(found, WARMUP_RATIO)]),
        Report("landed", tables.LandedRow._fields, [*tables.landed_rows(found)]),
        *([Report("stretch", tables.StretchRow._fields, stretches)] if stretches else []),
        Report("relation", tables.RelationRow._fields, relations, notes=notes),
    ]
    tell_first(tables.answer(runs), output)
    for each in reports:
        emit(each, output)


def warming_notes(runs: list[CellRun]) -> Iterator[str]:
    """Tell how far brokers were warmed before the runs that count."""
    from eoctl.bench.course import is_steady

    rates = [each.records_per_s for each in runs if each.is_warming]
    if not rates:
        return
    told = f"{rates[0]:,.0f} to {rates[-1]:,.0f} records/s"
    yield f"brokers were warmed by {counted(len(rates), 'run')}: from {told}" + (
        "" if is_steady(rates) else ", and still became quicker: later runs are quicker for that"
    )


def _notes(
    machine: MachineRow, runs: list[CellRun], request: BenchRequest, *, is_whole: bool
) -> Iterator[str]:
    from eoctl.bench.tables import bare_ratio, by_cell

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
    for scenario, ratio, told in bare_ratio(by_cell(runs)):
        yield f"scenario {scenario}: our load sends {ratio:.2f} of what the bare loop does, {told}"
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
