"""One call of `bench`: brokers are started, cells run, and what it came to is shown."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from eoctl.output import Report, emit, message
from eoctl.runs.bench.request import WARMUP_RATIO, check
from eoctl.runs.told import counted
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.bench.course import CellRun
    from eoctl.bench.machine import MachineRow
    from eoctl.bench.work_dir import WorkDir
    from eoctl.output import OutputFormat
    from eoctl.runs.bench.request import BenchRequest, CheckedCall

VALUE_BYTES = 1000


def run_bench(request: BenchRequest, output: OutputFormat) -> int:
    """Run it; returns the exit status.

    Raises:
        UsageError, RefusedError, AccessError: as `check`, `work_dir`, `BenchCourse`.
        KeyboardInterrupt: brokers are stopped, and what was recorded is shown.
    """
    checked = check(request)
    from eoctl.bench.brokers import BrokerOptions, RealBrokers, fsync_policy
    from eoctl.bench.course import BenchCourse, CourseOptions
    from eoctl.bench.load import LoadOptions
    from eoctl.bench.work_dir import work_dir
    from eoctl.runs.bench.record import Recorder

    options = BrokerOptions(
        brokers_count=request.brokers,
        java_options=request.java_options,
        settings=checked.settings,
        first_port=request.first_port,
    )
    load = LoadOptions(
        records=request.records,
        seconds=request.seconds,
        in_flight=request.in_flight,
        value_bytes=VALUE_BYTES,
        seed=request.seed,
    )
    course_options = CourseOptions(request.repetitions, WARMUP_RATIO, load)
    runs: list[CellRun] = []
    with work_dir(request.work_dir) as place:
        for found in place.found:
            message(found, level="warning")
        machine = _machine(checked, request, place, fsync_policy(checked.settings))
        recorder = Recorder(request.to) if request.to is not None else None
        try:
            with RealBrokers(checked.kafka, place, options) as cluster:
                course = BenchCourse(cluster, checked.cells, course_options, message)
                for each in course.runs():
                    runs.append(each)
                    if recorder is not None:
                        recorder.keep(each)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                place.leave()
            if runs:
                _show(machine, runs, request, output, is_whole=False)
            raise
        _show(machine, runs, request, output, is_whole=True)
        status = _status(runs)
        if status == EXIT_OK:
            place.leave()
        else:
            message(f"{place.path}: the log dirs are kept; the next call there removes them")
    return status


def _status(runs: list[CellRun]) -> int:
    from eoctl.bench.tables import is_sound

    if not is_sound(runs):
        return EXIT_FINDINGS
    return EXIT_SKIPPED if any(each.landed.notes for each in runs) else EXIT_OK


def _machine(checked: CheckedCall, request: BenchRequest, place: WorkDir, fsync: str) -> MachineRow:
    import confluent_kafka

    from eoctl.bench.machine import MachineRow, cpu_name, disk_of, ram_bytes

    return MachineRow(
        cpu=cpu_name(),
        processors_count=len(os.sched_getaffinity(0)),
        ram_bytes=ram_bytes(),
        disk=disk_of(place.path),
        python_version=platform.python_version(),
        client=f"librdkafka {confluent_kafka.libversion()[0]}",
        kafka_version=checked.kafka.version,
        java_version=checked.kafka.java_version,
        brokers_count=request.brokers,
        fsync_policy=fsync,
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
    relations = [*tables.relation_rows(found)] if is_whole else []
    reports = [
        Report("machine", type(machine)._fields, [machine]),
        Report("cell", tables.CellRow._fields, [*tables.cell_rows(found)]),
        Report("latency", tables.LatencyRow._fields, [*tables.latency_rows(found, WARMUP_RATIO)]),
        Report("landed", tables.LandedRow._fields, [*tables.landed_rows(found)]),
        Report("relation", tables.RelationRow._fields, relations, notes=notes),
    ]
    for each in reports:
        emit(each, output)


def _notes(
    machine: MachineRow, runs: list[CellRun], request: BenchRequest, *, is_whole: bool
) -> Iterator[str]:
    from eoctl.bench.tables import bare_ratio, by_cell

    if not is_whole:
        yield (
            f"not at its end: {counted(len(runs), 'run')} of these; no figure of a cell that ran"
            " less than 3 times says anything"
        )
    needed = request.brokers + 2  # the controller, and the producer
    if machine.processors_count < needed:
        yield (
            f"{request.brokers} brokers, a controller and the client share"
            f" {counted(machine.processors_count, 'processor')}: replicas cost more here than"
            " where each broker has its own, and no figure is one of a cluster"
        )
    for scenario, ratio in bare_ratio(by_cell(runs)):
        yield f"scenario {scenario}: our load sends {ratio:.2f} of what the bare loop does"
    for each in runs:
        for note in each.landed.notes:
            yield f"{each.topic}: {note}"
    read_bytes = sum(each.landed.log_bytes for each in runs)
    seconds = sum(each.audit_s for each in runs)
    yield f"audited: {read_bytes:,} bytes of logs in {seconds:.1f} s, waiting for them included"
