"""Real brokers on the loopback: started, killed, stopped by their pids.

    with work_dir(path) as place, RealBrokers(kafka, place, options) as brokers: ...

Each node is a process of its own with one log dir; the controller is node 100. Where `setpriv` is
installed they end with this process, however that ends; else the next call finds their pids.
"""

from __future__ import annotations

import secrets
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, suppress
from shutil import which
from typing import TYPE_CHECKING, NamedTuple, Self

from eoctl.bench.client import Cluster
from eoctl.bench.node_settings import (
    CLUSTER_NODE,
    CONTROLLER_ID,
    FIRST_PORT,
    LAST_PORT,
    node_lines,
    replication_factors,
)
from eoctl.bench.work_dir import POLL_S, started
from recovery.begin.records import NodeIdentity, encode_identity
from recovery.checks.grounds.broker_version import NEWEST
from storage.errors import RefusedError
from storage.file_names import META_PROPERTIES_NAME
from storage.formats.partition_metadata import new_topic_id, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from eoctl.bench.programs import Kafka
    from eoctl.bench.work_dir import WorkDir

READY_S = 180.0
STOP_S = 60.0
JAVA_OPTIONS = ("-Xmx512M", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")

# A node that dies is missed after 6 s (9 s by default).
SETTINGS = {
    **CLUSTER_NODE,
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "10000",
    "transaction.state.log.num.partitions": "4",
    "unclean.leader.election.enable": "false",
}
STALL_S = 12.0  # twice the session: a dead broker is certainly missed


class BrokerOptions(NamedTuple):
    """How brokers are started.

    Attributes:
        brokers_count: so many.
        java_options: of each JVM; empty: JAVA_OPTIONS.
        settings: of each node, over SETTINGS.
        first_port: of a row, two for each node; None: free ones.
    """

    brokers_count: int
    java_options: Sequence[str] = ()
    settings: Mapping[str, str] = {}
    first_port: int | None = None


class RealBrokers(Cluster):
    """Brokers 0, 1, ... and a controller."""

    def __init__(self, kafka: Kafka, place: WorkDir, options: BrokerOptions) -> None:
        self.broker_ids = tuple(range(options.brokers_count))
        self._kafka, self._place, self._options = kafka, place, options
        self._nodes = (CONTROLLER_ID, *self.broker_ids)
        ports = choose_ports(2 * len(self._nodes), options.first_port)
        self._ports = dict(zip(self._nodes, zip(ports[::2], ports[1::2], strict=True), strict=True))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        super().__init__(",".join(f"127.0.0.1:{self._ports[each][0]}" for each in self.broker_ids))

    def __enter__(self) -> Self:
        try:
            self._format()
            for each in self._nodes:
                self._spawn(each)
            self.await_brokers(self.broker_ids)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop all, brokers before the controller; who does not stop in time is killed."""
        super().close()
        with _deaf_to_interrupts():
            for each in (*self.broker_ids, CONTROLLER_ID):
                self._signal(each, signal.SIGTERM)
                if each == self.broker_ids[-1]:
                    self._await_end(self.broker_ids)
            self._await_end((CONTROLLER_ID,))
            self._processes.clear()
            self._place.note({})

    # --- while they run --------------------------------------------------------------------------

    @property
    def log_dirs(self) -> dict[int, Path]:
        """Of each broker."""
        return {each: self._place.path / f"node-{each}" for each in self.broker_ids}

    def kill(self, broker: int) -> None:
        """End a broker at once (SIGKILL)."""
        process = self._processes.pop(broker)
        process.kill()
        process.wait()
        self._note()

    def start(self, broker: int) -> None:
        """Start a broker again, and do not wait."""
        if broker not in self._processes:
            self._spawn(broker)

    def require_running(self) -> None:
        """Raise RefusedError if a node has ended that nobody killed."""
        for each, process in self._processes.items():
            if (status := process.poll()) is not None:
                raise RefusedError(
                    f"node {each} has ended with status {status}; it said: {self._tail(each)}",
                    next_step=f"all of them: {self._place.path}/node-{each}.log",
                )

    # --- inside ----------------------------------------------------------------------------------

    def _format(self) -> None:
        """Format one log dir by Kafka's tool; the others differ in the ids of their nodes only."""
        first = self._nodes[0]
        command = self._kafka.command(
            "-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool", "format", "-t", new_topic_id(),
            "-c", str(self._write_properties(first)),
        )  # fmt: skip
        with self._place.open_log(f"node-{first}.log") as log:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log.fd, stderr=log.fd, check=False,
                timeout=READY_S,
            )  # fmt: skip
        if done.returncode != 0:
            raise RefusedError(f"a log dir cannot be formatted: {self._tail(first)}")
        made = self._place.path / f"node-{first}"
        cluster = _property(made / META_PROPERTIES_NAME, "cluster.id")
        for each in self.broker_ids:
            directory = self._place.make_dir(f"node-{each}")
            identity = NodeIdentity(cluster, each, parse_uuid(new_topic_id()))
            for path in sorted(made.iterdir()):
                name = f"{directory.name}/{path.name}"
                if path.name == META_PROPERTIES_NAME:
                    self._place.put(name, encode_identity(identity, NEWEST).decode())
                elif path.is_file() and path.name != ".lock":
                    self._place.put_bytes(name, path.read_bytes())

    def _spawn(self, node: int) -> None:
        options = self._options.java_options or JAVA_OPTIONS
        command = self._kafka.command(*options, "kafka.Kafka", str(self._write_properties(node)))
        if setpriv := which("setpriv"):  # it execs: the pid is that of the broker
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with self._place.open_log(f"node-{node}.log") as log, _deaf_to_interrupts():
            self._processes[node] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log.fd, stderr=log.fd,
                cwd=self._place.path,
                start_new_session=True,  # an interrupt of the terminal is for us, who stop it
            )  # fmt: skip
            self._note()

    def _note(self) -> None:
        self._place.note({node: started(each.pid) for node, each in self._processes.items()})

    def _write_properties(self, node: int) -> Path:
        count = len(self.broker_ids)
        lines = {
            **node_lines(
                node, self._ports, (CONTROLLER_ID,), is_broker=node != CONTROLLER_ID,
                log_dir=self._place.path / f"node-{node}",
            ),
            **replication_factors(count),
            "transaction.state.log.min.isr": str(min(count, 2)),
            **SETTINGS,
            **self._options.settings,
        }  # fmt: skip
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        return self._place.put(f"node-{node}.properties", text)

    def _signal(self, node: int, number: int) -> None:
        process = self._processes.get(node)
        if process is not None and process.poll() is None:
            process.send_signal(number)

    def _await_end(self, nodes: Sequence[int]) -> None:
        deadline_s = time.monotonic() + STOP_S
        for each in nodes:
            process = self._processes.get(each)
            if process is None:
                continue
            try:
                process.wait(max(deadline_s - time.monotonic(), POLL_S))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _tail(self, node: int) -> str:
        path = self._place.path / f"node-{node}.log"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        told = [each for each in lines if " ERROR " in each or "Exception" in each]
        return next(iter(told[-1:] or [each for each in lines if each][-1:]), "nothing")


def _deaf_to_interrupts() -> ExitStack:
    """Hold interrupts back: a process that was started is noted, one that is told to end ends."""
    stack = ExitStack()
    with suppress(ValueError):  # not in the main thread
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        stack.callback(signal.signal, signal.SIGINT, before)
    return stack


def _property(path: Path, name: str) -> str:
    for line in path.read_text().splitlines():
        key, _, value = line.partition("=")
        if key == name:
            return value
    raise RefusedError(f"{path}: has no {name}")


def choose_ports(count: int, first: int | None) -> list[int]:
    """Choose ports of the loopback that nobody listens on.

    Args:
        count: how many.
        first: of a row; None: wherever they are free.

    Raises:
        RefusedError: one of the row is taken, or too few are free.
    """
    if first is not None:
        row = list(range(first, first + count))
        taken = [each for each in row if not _is_free(each)]
        if taken:
            raise RefusedError(
                f"--first-port {first}: taken: {' '.join(map(str, taken))}; nothing was started",
                next_step="without --first-port free ones are chosen",
            )
        return row
    # Calls at one time begin at different places, and those of one process: nodes may be down.
    span = LAST_PORT - FIRST_PORT
    begin = secrets.randbelow(span)
    found: list[int] = []
    for step in range(span):
        port = FIRST_PORT + (begin + step) % span
        if _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise RefusedError(f"fewer than {count} ports are free between {FIRST_PORT} and {LAST_PORT}")


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


def fsync_policy(settings: Mapping[str, str]) -> str:
    """When the brokers sync their logs, in words, by what is set over their defaults."""
    names = ("log.flush.interval.messages", "log.flush.interval.ms")
    found = [f"{name}={settings[name]}" for name in names if name in settings]
    return ", ".join(found) or "no fsync but at a roll or a stop (Kafka's default)"
