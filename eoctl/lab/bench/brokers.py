"""Brokers for benchmarks: find, configure and start them, or use running brokers."""

from __future__ import annotations

import os
import platform
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from errno import EHOSTUNREACH
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, NamedTuple, Self

from eoctl.lab.bench.client import Cluster
from eoctl.lab.bench.work_dir import POLL_S, started
from eoctl.lab.environment.settings import CONTROLLER_ID
from eoctl.libraries import REQUIREMENTS, install_call
from recovery.checks.context.broker_version import CHECKED
from recovery.new_log_dir.records import NodeIdentity, encode_identity
from storage.errors import AccessError, RefusedError, UsageError
from storage.file_names import META_PROPERTIES_NAME
from storage.formats.partition_metadata import new_topic_id, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from eoctl.lab.bench.work_dir import WorkDir


# -- settings of real nodes on the loopback, for `bench` and for tests that start nodes.
#
# They differ from a broker's defaults. Many nodes share a machine, live for minutes, and must be
# missed soon after they die. Internal topics have few partitions, so that elections are small.


# Below the ports that a system gives to clients, so no client gets a port while its node is down.
FIRST_PORT, LAST_PORT = 20_000, 32_000

# For any node, alone or in a cluster.
NODE = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "num.io.threads": "4",
    "num.network.threads": "2",
}
# For a node of a larger cluster.
CLUSTER_NODE = {
    **NODE,
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "4000",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.cleaner.threads": "1",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
INTERNAL_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")


def replication_factors(brokers_count: int) -> dict[str, str]:
    """Return the replication factors of the internal topics, up to three."""
    factor = str(min(brokers_count, 3))
    return {f"{each}.replication.factor": factor for each in INTERNAL_TOPICS}


def node_lines(
    node: int,
    ports: Mapping[int, tuple[int, int]],
    controllers: tuple[int, ...],
    *,
    is_broker: bool,
    log_dir: Path,
) -> dict[str, str]:
    """Return the role and the addresses of a node and its controllers.

    Args:
        node: its id.
        ports: of each node, for clients and for controllers.
        controllers: ids of the controllers.
        is_broker: the node is a broker. It is also a controller if `controllers` has it.
        log_dir: its only log dir.
    """
    client, own = (f"127.0.0.1:{port}" for port in ports[node])
    is_controller = node in controllers
    listeners = [f"PLAINTEXT://{client}"] * is_broker + [f"CONTROLLER://{own}"] * is_controller
    lines = {
        "process.roles": ",".join(["broker"] * is_broker + ["controller"] * is_controller),
        "node.id": str(node),
        "controller.quorum.voters": ",".join(
            f"{each}@127.0.0.1:{ports[each][1]}" for each in controllers
        ),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(log_dir),
    }
    if is_broker:
        lines |= {
            "inter.broker.listener.name": "PLAINTEXT",
            "advertised.listeners": listeners[0],
        }
    return lines


# -- external requirements: Java, Kafka's jars, librdkafka, and commands of the user.
#
# eoctl installs and fetches nothing here. The error says how to do it.


MIN_JAVA = 17
MAIN_JAR = re.compile(r"kafka_2\.1\d-(\d[\w.-]*)\.jar")
ASK_S = 60
ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:,/\[\]]+):(\d{1,5})")
# Jar directory of the project's script, in a clone.
CLONE = Path(__file__).parents[3]
FETCHED = CLONE / ".cache/kafka-libs"
SCRIPT = CLONE / "scripts/fetch-kafka-libs.sh"


class Kafka(NamedTuple):
    """Kafka's programs.

    Attributes:
        java: a program.
        libs: the directory of the jars.
        version: of Kafka.
        java_version: as Java reports it.
    """

    java: str
    libs: str
    version: str
    java_version: str

    def command(self, *arguments: str) -> list[str]:
        """Return a command that runs a class: options of the JVM, the class, its arguments."""
        return [self.java, "-cp", f"{self.libs}/*", *arguments]


def require_client() -> None:
    """Raise UsageError if confluent-kafka is not installed."""
    if find_spec("confluent_kafka") is None:
        raise UsageError(
            "bench needs confluent-kafka, which is not installed",
            next_step=install_call(REQUIREMENTS["confluent_kafka"]),
        )


def find_kafka(home: str | None) -> Kafka:
    """Find Java and the jars of Kafka.

    Args:
        home: an installation of Kafka, or a directory of jars. None uses EOCTL_KAFKA_LIBS, or else
            the jars that the project's script has fetched.

    Raises:
        UsageError: Java or the jars are missing.
    """
    java, java_version = _find_java()
    named = home or os.environ.get("EOCTL_KAFKA_LIBS")
    places = [Path(named, "libs"), Path(named)] if named else [FETCHED]
    for place in places:
        versions = [found[1] for each in _names(place) if (found := MAIN_JAR.fullmatch(each))]
        if versions:
            return Kafka(
                java=java,
                libs=str(place.resolve()),
                version=versions[0],
                java_version=java_version,
            )
    if named:
        raise UsageError(
            f"{named}: no installation of Kafka: no kafka_2.13-*.jar in there, nor in its libs",
            next_step="--kafka-home DIR, as unpacked from kafka_2.13-4.3.1.tgz",
        )
    fetch = f", or {SCRIPT}" if SCRIPT.exists() else ""
    raise UsageError(
        "bench starts real brokers, and there are no jars of Kafka",
        next_step=f"--kafka-home DIR, an installation of Kafka{fetch}",
    )


def _names(place: Path) -> list[str]:
    try:
        return sorted(each.name for each in place.iterdir())
    except OSError:
        return []


def _find_java() -> tuple[str, str]:
    home = os.environ.get("JAVA_HOME")
    java = which("java", path=str(Path(home, "bin"))) if home else None
    java = java or which("java")
    if java is None:
        raise UsageError(
            f"bench starts real brokers, and there is no java (Java {MIN_JAVA} or later)",
            next_step="install a JRE, or set JAVA_HOME; or --against HOST:PORT",
        )
    try:
        asked = subprocess.run(
            [java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", check=False, timeout=ASK_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{java}: cannot be run: {error}") from error
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', asked.stderr + asked.stdout)
    if found is None or int(found[2]) < MIN_JAVA:
        said = found[1] if found else "nothing that it says"
        raise UsageError(
            f"{java}: brokers need Java {MIN_JAVA} or later, and this is {said}",
            next_step="set JAVA_HOME",
        )
    return java, found[1]


def require_addresses(text: str) -> None:
    """Raise UsageError unless the text is HOST:PORT, or several with commas."""
    for each in text.split(","):
        found = ADDRESS.fullmatch(each.strip())
        if found is None or not 0 < int(found[2]) < 1 << 16:
            raise UsageError(f"--against {text}: {each!r} is no HOST:PORT")


def require_command(option: str, text: str) -> list[str]:
    """Split a command as a shell does. Raises UsageError if it cannot be run."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error
    if not words or which(words[0]) is None:
        raise UsageError(f"{option} {text}: no such program")
    return words


# -- the machine of the figures, which mean nothing without it


class MachineRow(NamedTuple):
    """The machine of the figures. None for unknown properties of brokers on other machines."""

    cpu: str
    processors_count: int
    ram_bytes: int
    disk: str | None
    python_version: str
    client: str
    kafka_version: str | None
    java_version: str | None
    brokers_count: int
    fsync_policy: str | None
    load_average: float


def cpu_name() -> str:
    """Return the name that the processor reports."""
    for line in _lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return platform.processor() or platform.machine()


def ram_bytes() -> int:
    """Return the size of the memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def disk_of(path: Path) -> str:
    """Return the file system of a path, and whether its disk is rotational."""
    device = path.stat().st_dev
    numbers = f"{os.major(device)}:{os.minor(device)}"
    kind = "unknown file system"
    for line in _lines("/proc/self/mountinfo"):
        fields = line.split()
        if numbers == fields[2]:
            kind = fields[fields.index("-") + 1]
    for place in (f"/sys/dev/block/{numbers}/queue", f"/sys/dev/block/{numbers}/../queue"):
        for turns in _lines(f"{place}/rotational"):
            return f"{kind}, {'disk that turns' if turns.strip() == '1' else 'no disk that turns'}"
    return kind


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []


# -- real brokers on the loopback: started, killed, stopped by their pids.
#
#     with work_dir(path) as place, RealBrokers(kafka, place, options) as brokers: ...
#
# Each node is a process of its own with one log dir. The controller is node 100. With `setpriv`,
# the nodes end with this process, however it ends. Without it, the next command finds their pids.


READY_S = 180.0
STOP_S = 60.0
JAVA_OPTIONS = ("-Xmx512M", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")

# A dead node is missed after 6 s (9 s by default).
SETTINGS = {
    **CLUSTER_NODE,
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "10000",
    "transaction.state.log.num.partitions": "4",
    "unclean.leader.election.enable": "false",
}
STALL_S = 12.0  # twice the session timeout, after which a dead broker is certainly missed


class BrokerOptions(NamedTuple):
    """Options for starting brokers.

    Attributes:
        brokers_count: number of brokers.
        java_options: of each JVM. Empty for JAVA_OPTIONS.
        settings: of each node, over SETTINGS.
        first_port: first of successive ports, two for each node. None for free ports.
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
        """Stop all, brokers before the controller. Kill nodes that do not stop in time."""
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
        """The log dir of each broker."""
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
        """Raise RefusedError if a node has ended without a kill."""
        for each, process in self._processes.items():
            if (status := process.poll()) is not None:
                raise RefusedError(
                    f"node {each} has ended with status {status}; it said: {self._tail(each)}",
                    next_step=f"all of them: {self._place.path}/node-{each}.log",
                )

    # --- inside ----------------------------------------------------------------------------------

    def _format(self) -> None:
        """Format one log dir by Kafka's tool. The others differ only in their node ids."""
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
                    self._place.put(name, encode_identity(identity, CHECKED).decode())
                elif path.is_file() and path.name != ".lock":
                    self._place.put_bytes(name, path.read_bytes())

    def _spawn(self, node: int) -> None:
        options = self._options.java_options or JAVA_OPTIONS
        command = self._kafka.command(*options, "kafka.Kafka", str(self._write_properties(node)))
        if setpriv := which("setpriv"):  # it execs, so the pid is the broker's
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with self._place.open_log(f"node-{node}.log") as log, _deaf_to_interrupts():
            self._processes[node] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log.fd, stderr=log.fd,
                cwd=self._place.path,
                start_new_session=True,  # eoctl gets the terminal's interrupt, and stops the node
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
        reported = [each for each in lines if " ERROR " in each or "Exception" in each]
        return next(iter(reported[-1:] or [each for each in lines if each][-1:]), "nothing")


def _deaf_to_interrupts() -> ExitStack:
    """Ignore interrupts, so that started processes are recorded and stopped processes end."""
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
    """Choose unused ports of the loopback.

    Args:
        count: number of ports.
        first: first of successive ports. None for any free ports.

    Raises:
        RefusedError: a successive port is taken, or too few ports are free.
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
    # Concurrent commands begin at different ports, and so do later calls, as nodes may be down.
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
    """Return when the brokers sync their logs, in words, from settings over the defaults."""
    names = ("log.flush.interval.messages", "log.flush.interval.ms")
    found = [f"{name}={settings[name]}" for name in names if name in settings]
    return ", ".join(found) or "no fsync but at a roll or a stop (Kafka's default)"


# -- running brokers: a cluster of the user, with the user's commands to kill and start brokers.
#
# eoctl creates, uses and deletes topics there, and touches nothing else.


FIND_S = 30.0
COMMAND_S = 300.0


class RunningBrokers(Cluster):
    """A running cluster of the user.

    Args:
        bootstrap: HOST:PORT, with commas.
        on_kill: command that gets the id of a broker, and ends it at once. () without a command.
        on_start: command that gets the id of a broker, and starts it again.
    """

    def __init__(self, bootstrap: str, on_kill: list[str], on_start: list[str]) -> None:
        super().__init__(bootstrap)
        self.broker_ids = ()
        self._on_kill, self._on_start = on_kill, on_start
        self._calls: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> Self:
        deadline_s = time.monotonic() + FIND_S
        while not self.broker_ids:
            self.broker_ids = self.known_brokers()
            if not self.broker_ids and time.monotonic() > deadline_s:
                raise AccessError(
                    OSError(EHOSTUNREACH, "no broker answers"),
                    self.bootstrap,
                    next_step="--against HOST:PORT of one that runs",
                )
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def kill(self, broker: int) -> None:
        """Run the kill command, without waiting, because records continue."""
        self._call(self._on_kill, broker)

    def start(self, broker: int) -> None:
        """Run the start command."""
        self._call(self._on_start, broker)

    def require_running(self) -> None:
        """Raise RefusedError if a command of the user failed."""
        for call, process in self._calls:
            if process.poll():
                raise RefusedError(f"{call} ended with status {process.returncode}")

    def close(self) -> None:
        """Wait for the commands."""
        super().close()
        for _, process in self._calls:
            try:
                process.wait(COMMAND_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _call(self, command: list[str], broker: int) -> None:
        words = [*command, str(broker)]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno())
        self._calls.append((shlex.join(words), process))
