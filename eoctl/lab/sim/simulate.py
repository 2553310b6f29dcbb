"""`sim init` and `sim run`: from the options to directories and a history."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.partitions.target import require_legal
from eoctl.lab.environment.faults import parse_faults
from eoctl.lab.environment.settings import (
    IDEMPOTENT_IN_FLIGHT_MAX,
    MARKER_NAME,
    RETRIES_MAX,
    START_MS,
    RunSettings,
)
from eoctl.lab.guarantees.scenarios import load_scenario, load_script, script_names
from eoctl.lab.layout import (
    hand_over,
    make_cluster,
    node_paths,
    open_cluster,
    require_whole,
    save_cluster,
)
from eoctl.lab.nodes.coordinator import has_state
from eoctl.lab.simulation import Simulation
from eoctl.messages import folded, report_first
from eoctl.output import Report, emit, message
from eoctl.progress import Progress
from storage.counts import counted
from storage.errors import EXIT_SKIPPED, RefusedError, UsageError, os_errors, pasted
from storage.file_names import METADATA_TOPIC
from storage.files.broker_lock import take
from storage.files.fsio import FileSystem, sync_tree
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eoctl.lab.environment.network import TraceEvent
    from eoctl.lab.environment.settings import PlaySettings
    from eoctl.lab.guarantees.scenarios import SavedCourse
    from eoctl.lab.layout import SimulatedCluster
    from eoctl.lab.simulation import RunResult
    from eoctl.output import OutputFormat
    from storage.files.fsio import OpenFile


BUFFER_BYTES = 1 << 16
ENDS = ("ok", "fail", "info")
NOT_ANSWERED = "not all of these have an answer"


class NodeRow(NamedTuple):
    """A node of a new cluster."""

    node: int
    path: str
    partitions_count: int


class EventRow(NamedTuple):
    """An event of a cluster."""

    time_us: int
    event: str
    node: str
    partition: str
    words: str


def init_cluster(path: str, settings: PlaySettings, output: OutputFormat) -> int:
    """Create a cluster. Raises as `make_cluster`, and UsageError for impossible settings."""
    require_possible(settings)
    made = make_cluster(path, settings)
    rows = [
        NodeRow(number, node, sum(number in each for each in settings.assignment))
        for number, node in enumerate(node_paths(made))
    ]
    notes = [f"eoctl sim run {pasted(path)} lets it live"]
    if settings.min_insync > settings.replication_factor:
        notes.append(
            f"min.insync.replicas={settings.min_insync} counts as {settings.replication_factor}:"
            " there are no more replicas"
        )
    emit(Report("node", NodeRow._fields, rows, notes=notes), output)
    return 0


def require_possible(settings: PlaySettings) -> None:
    """Refuse impossible settings of a cluster. Raises UsageError."""
    require_legal(settings.topic)
    if settings.topic == METADATA_TOPIC:
        raise UsageError(f"--topic {settings.topic}: is the controller's own")
    if settings.fetch_wait_max_ms > settings.lag_time_max_ms:  # a broker does not start with it
        raise UsageError(
            f"--replica-fetch-wait-max-ms {settings.fetch_wait_max_ms}: is longer than"
            f" --replica-lag-time-max-ms {settings.lag_time_max_ms}, and no broker starts so",
            next_step=f"--replica-fetch-wait-max-ms {settings.lag_time_max_ms}, or less",
        )
    if settings.replication_factor > settings.nodes:
        raise UsageError(
            f"--replication-factor {settings.replication_factor}: there are"
            f" {counted(settings.nodes, 'node')}",
            next_step=f"--nodes {settings.replication_factor}",
        )


def require_producer(run: RunSettings) -> None:
    """Refuse settings that no producer has (ProducerConfig.postProcessAndValidate). UsageError."""
    most = IDEMPOTENT_IN_FLIGHT_MAX
    if run.is_idempotent and run.in_flight > most:
        raise UsageError(
            f"--in-flight {run.in_flight}: at most {most} with idempotence, by which a leader knows"
            " the last five batches",
            next_step=f"--in-flight {most}, or --no-idempotence",
        )
    if run.is_transactional and not run.is_idempotent:
        raise UsageError(
            "--transaction-records: a transactional producer is idempotent, with acks=all",
            next_step="leave out --acks and --no-idempotence",
        )
    if run.is_transactional and not run.retries:
        raise UsageError(
            "--transaction-records: a transactional producer sends again what has no answer",
            next_step="--retries max",
        )
    most_ms = DEFAULT_MAX_TIMEOUT_MS
    if run.transaction_timeout_ms > most_ms:
        raise UsageError(
            f"--transaction-timeout-ms {run.transaction_timeout_ms}: at most {most_ms}, which is"
            " transaction.max.timeout.ms",
            next_step=f"--transaction-timeout-ms {most_ms}, or less",
        )
    if run.abort_every and not run.is_transactional:
        raise UsageError(
            f"--abort-every {run.abort_every}: there are no transactions",
            next_step="--transaction-records 10",
        )
    own = RunSettings._field_defaults
    if run.transaction_timeout_ms != own["transaction_timeout_ms"] and not run.is_transactional:
        raise UsageError(
            f"--transaction-timeout-ms {run.transaction_timeout_ms}: there are no transactions",
            next_step="--transaction-records 10",
        )


def require_isolation(run: RunSettings, *, has_transactions: bool) -> None:
    """Refuse an isolation level without effect. Raises UsageError.

    `has_transactions` means that earlier runs had transactions.
    """
    is_own = run.isolation == RunSettings._field_defaults["isolation"]
    if not (is_own or run.is_transactional or has_transactions):
        raise UsageError(
            f"--isolation {run.isolation}: there are no transactions, so that all levels are one",
            next_step="--transaction-records 10",
        )


def parse_retries(text: str) -> int:
    """Read --retries. Raises UsageError."""
    if text == "max":
        return RETRIES_MAX
    if not (text.isdecimal() and text.isascii() and int(text) <= RETRIES_MAX):
        raise UsageError(f"--retries {text}: a number, or max", next_step="--retries max")
    return int(text)


class _HistoryFile:
    """Buffer and file of a history. It calls `on_write` after each write.

    Raises:
        RefusedError: the file has a run that the marker does not know.
        AccessError: the file cannot be created.
    """

    def __init__(self, path: str) -> None:
        self._fs = FileSystem()
        self._path = path
        with os_errors(path):
            if os.path.lexists(path):
                self._remove_begun()
            self._file: OpenFile = self._fs.open_new(path, 0o644)
        self.on_write: Callable[[], None] = lambda: None
        self._lines: list[bytes] = []
        self._bytes = 0

    def _remove_begun(self) -> None:
        """Remove the file of a run that was killed before it was counted: at most the header."""
        with Path(self._path).open("rb") as file:
            file.readline()
            has_more = bool(file.read(1))
        if has_more:
            raise RefusedError(
                f"{self._path}: {MARKER_NAME} knows of no such run; nothing was touched",
                next_step="move it away",
            )
        self._fs.unlink(self._path)

    def write(self, line: bytes) -> None:
        self._lines.append(line)
        self._bytes += len(line)
        if self._bytes >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        data, self._lines, self._bytes = b"".join(self._lines), [], 0
        with os_errors(self._path):
            self._fs.write(self._file, data)
        self.on_write()

    def close(self) -> None:
        self.flush()
        with os_errors(self._path):
            self._fs.close(self._file)


def run_cluster(path: str, run: RunSettings, output: OutputFormat, *, digest: str = "") -> int:
    """Run a cluster. `digest` is the expected digest of the history.

    Raises:
        UsageError: the faults cannot be parsed.
        RefusedError: no simulated cluster, a running broker, or damage that stops a broker.
        AccessError: a file cannot be read or written.
    """
    require_producer(run)
    cluster = open_cluster(path)
    require_whole(cluster, with_controller=True)
    parse_faults(run.faults, cluster.settings.nodes, run.clients)
    if not digest:
        require_isolation(run, has_transactions=has_state(Path(cluster.root)))
    with ExitStack() as stack:
        stack.enter_context(take(node_paths(cluster)))
        if cluster.ended_count < cluster.runs_count:
            message(
                f"run {cluster.runs_count} has not come to its end: its nodes are started as after"
                " a kill"
            )
        number = cluster.runs_count + 1
        cluster = cluster._replace(runs_count=number)
        history = _HistoryFile(cluster.history_path(number))
        stack.callback(history.close)
        simulation = Simulation(
            cluster.root,
            cluster.cluster,
            cluster.settings,
            run,
            number,
            start_us=cluster.end_us,
            write=history.write,
        )
        # A killed run leaves its committed transactions in the logs, so the history must have their
        # commit requests before.
        simulation.history.on_commit = history.flush
        history.flush()  # so each counted run has the header of its history
        save_cluster(cluster)
        with Progress("playing", run.records, unit="records") as progress:
            producer = simulation.producer
            history.on_write = lambda: progress.advance(
                producer.answered_count - progress.done_bytes
            )
            result = simulation.run()
        end_us = simulation.scheduler.now_us
        hand_over(cluster, simulation.controller.beginning(), START_MS + end_us // 1000)
        sync_tree(FileSystem(), Path(cluster.root))  # simulated fsyncs do not sync the disk
        save_cluster(cluster._replace(ended_count=number, end_us=end_us))
    _show(path, run, simulation, result, output)
    is_whole = result.is_answered and (not run.heals or (result.is_quiet and result.is_read))
    for words in _what_is_left(path, run, result):
        message(words, level="warning")
    if digest and result.digest != digest:
        message(
            "this is not the course of events that was saved: this release plays it otherwise",
            level="warning",
        )
        is_whole = False
    return 0 if is_whole else EXIT_SKIPPED


def _what_is_left(path: str, run: RunSettings, result: RunResult) -> Iterator[str]:
    """Yield why a run is incomplete, unless `_notes` says it."""
    if not result.is_answered:
        given = result.counts.get(("send", "invoke"), 0)
        answered = sum(result.counts.get(("send", each), 0) for each in ENDS)
        has_answers = given == answered + result.forgotten_count
        yield (
            f"of {counted(run.records, 'record')} {given:,} were given to the producer, and"
            f" {'the last transaction has not ended' if has_answers else NOT_ANSWERED}:"
            " nothing went on any more"
        )
    if run.heals and result.is_quiet and not result.is_read:
        yield (
            "all replicas are in sync, and a consumer was not given all that they have, or has not"
            f" handled it: eoctl sim check {pasted(path)} says whether it is lost"
        )


def event_row(event: TraceEvent) -> EventRow:
    """Return the row of an event."""
    return EventRow(
        time_us=event.time_us,
        event=event.kind,
        node="" if event.node is None or event.node < 0 else str(event.node),
        partition="" if event.key is None else f"{event.key.topic}-{event.key.partition}",
        words=event.words,
    )


def _show(
    path: str, run: RunSettings, simulation: Simulation, result: RunResult, output: OutputFormat
) -> None:
    rows = [event_row(each) for each in simulation.trace.events]
    report_first(folded(_words(path, run, result), output), output)
    notes = _notes(path, run, result)
    emit(Report("event", EventRow._fields, rows, notes=[*notes]), output)


def _words(path: str, run: RunSettings, result: RunResult) -> Iterator[str]:
    sends = {kind: result.counts.get(("send", kind), 0) for kind in ("ok", "fail", "info")}
    yield (
        f"{path}: {counted(result.counts.get(('send', 'invoke'), 0), 'record')} given to the"
        f" producer: {sends['ok']:,} {_done(run)}, {sends['fail']:,} failed{_dropped(result)},"
        f" {sends['info']:,} without an answer that says which{_forgotten(result)}"
    )
    if ended := _transactions(result):
        yield f"transactions: {ended}"
    for each in result.servings:
        yield f"after {', '.join(each.after)}:"
        yield f"    {each.words}"


def _transactions(result: RunResult) -> str:
    """Return the results of the transactions, "" without transactions."""
    counts = result.counts
    begun = counts.get(("begin", "invoke"), 0)
    if not begun:
        return ""
    committed, aborted = (counts.get((each, "ok"), 0) for each in ("commit", "abort"))
    # A producer whose abort is refused does not learn the result.
    refused = counts.get(("commit", "fail"), 0)
    open_count = begun - committed - aborted - refused
    return (
        f"{begun:,} begun, {committed:,} committed, {aborted:,} aborted, {refused:,} aborted by the"
        f" coordinator, {open_count:,} without an end"
    )


def _done(run: RunSettings) -> str:
    """Return the meaning of `ok`, because with acks=0 no broker answers."""
    return "acknowledged" if run.acks else "sent, never acknowledged (acks=0)"


def _forgotten(result: RunResult) -> str:
    """Return the records in the memory of a killed producer, in words."""
    if not result.forgotten_count:
        return ""
    return (
        f", {result.forgotten_count:,} in the memory of a killed producer"
        f" ({result.unsent_count:,} never sent)"
    )


def _dropped(result: RunResult) -> str:
    """Return the failed records that were never sent, in words."""
    return f" (dropped by the client: {result.dropped_count:,})" if result.dropped_count else ""


def _notes(path: str, run: RunSettings, result: RunResult) -> Iterator[str]:
    sends = {kind: result.counts.get(("send", kind), 0) for kind in ("ok", "fail", "info")}
    yield (
        f"{sends['ok']} {_done(run)}, {sends['fail']} failed{_dropped(result)},"
        f" {sends['info']} not known{_forgotten(result)};"
        f" {result.events_count} events, history {result.digest[:16]}"
    )
    if not result.is_quiet:
        yield (
            "at the end not all replicas are in sync, or a transaction has not ended; or it was"
            " ended without healing"
        )
    yield f"eoctl sim check {pasted(path)} judges it"


def simulated(path: str) -> SimulatedCluster:
    """Open a cluster that was run. Raises as `open_cluster`, and UsageError if it was not."""
    cluster = open_cluster(path)
    if not cluster.runs_count:
        raise UsageError(f"{path}: was never run", next_step=f"eoctl sim run {pasted(path)}")
    return cluster


# -- `sim run --replay`, `--script`, `sim scripts`: saved scenarios


class ScriptRow(NamedTuple):
    """A script of the package."""

    script: str
    words: str


def replay_saved(
    path: str, given: RunSettings, output: OutputFormat, *, file: str, script: str
) -> int:
    """Create the cluster of a saved scenario, run it, and return the exit status.

    Raises:
        UsageError: options that the scenario sets itself, or an unknown script.
        RefusedError: no scenario in the file, another cluster, or a cluster that was run before.
        AccessError: a file cannot be read or written.
    """
    option = f"--replay {pasted(file)}" if file else f"--script {pasted(script)}"
    if file and script:
        raise UsageError(
            "--replay and --script: one of them",
            next_step=f"eoctl sim run {pasted(path)} --replay {pasted(file)}",
        )
    if given != RunSettings():
        raise UsageError(
            f"{option}: has all that a run is told itself",
            next_step=f"eoctl sim run {pasted(path)} {option}",
        )
    scenario = load_scenario(file) if file else load_script(script)
    _require_ready(path, scenario)
    return run_cluster(path, scenario.whole_run, output, digest=scenario.digest)


def _require_ready(path: str, scenario: SavedCourse) -> None:
    """Create the scenario's cluster, or require the same cluster without a run."""
    if not Path(path, MARKER_NAME).exists():
        make_cluster(path, scenario.settings)
        return
    cluster = open_cluster(path)
    if cluster.settings != scenario.settings or cluster.runs_count:
        why = "was run already" if cluster.runs_count else "is another cluster"
        raise RefusedError(
            f"{path}: {why}; the same course of events begins with a new one; nothing was touched",
            next_step="name a directory that is not there yet",
        )


def list_scripts(output: OutputFormat) -> int:
    """List the scripts of the package."""
    rows = [ScriptRow(each, load_script(each).title) for each in script_names()]
    emit(
        Report("script", ScriptRow._fields, rows, notes=["eoctl sim run ./play --script NAME"]),
        output,
    )
    return 0
