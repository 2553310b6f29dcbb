"""A real one-node broker (KRaft, 4.3.1) over a log directory that a test gives it.

    with Broker(log_dir) as broker:          # formatted when empty; ready when this line is done
        ...                                  # a client talks to broker.bootstrap
    # stopped cleanly; broker.kill() instead leaves what a crash leaves

Everything listens on the loopback address only, and what the broker needs beside its log directory
(properties, log file) lives in a temporary directory of its own.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from eoctl.lab.bench.brokers import NODE, choose_ports

from .jars import java_command, quick_start

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

READY_TIMEOUT_S = 90
STOP_TIMEOUT_S = 60
LEADERS_TIMEOUT_S = 60
CLEAN_MARKER = ".kafka_cleanshutdown"
# Errors that a healthy node of one logs. Its controller is asked to register the node while it
# becomes active, and is asked again. Where the machine stands still for longer than the session
# below, the node is fenced for a moment: it leads nothing, and loads its coordinators again.
HEALTHY = (
    "apiKey=CONTROLLER_REGISTRATION",
    "because the partition is not online or is no longer the leader",
)
_POLL_S = 0.05
_STARTS = 3

_PROPERTIES = """\
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={node_id}@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={log_dirs}
"""

# Small files and no replication. Open transactions stay open, however old they are, and nobody
# waits for members of a group that may still come.
DEFAULTS = {
    **NODE,
    "num.partitions": "1",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "36000000",
    # After a kill the controller waits this long before it takes the broker back (9 s otherwise).
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.index.size.max.bytes": "16384",
    "num.recovery.threads.per.data.dir": "2",
}

# Nothing goes by itself while it is looked at.
KEPT = {
    "transaction.remove.expired.transaction.cleanup.interval.ms": "36000000",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "36000000",
    "log.cleaner.backoff.ms": "36000000",
    "producer.id.expiration.ms": "2147483647",
    "transactional.id.expiration.ms": "2147483647",
    "offsets.retention.minutes": "2147483647",
}


class BrokerError(Exception):
    """The broker did not do what was asked; the text ends with the tail of its log."""


class Broker:
    """A broker over one or several log directories.

    Args:
        log_dirs: the directory or directories; an empty or absent one is formatted first. Node and
            cluster id of others are those of their `meta.properties`.
        overrides: broker settings, over `DEFAULTS`; a value of "" leaves that default out.
        java_options: options of its JVM.

    Attributes:
        bootstrap: `host:port` for clients.
        log_file: all that it logged, over all its starts.
    """

    ready_words = "Kafka Server started"

    def __init__(
        self,
        log_dirs: Path | Sequence[Path],
        *,
        overrides: Mapping[str, str] | None = None,
        java_options: Sequence[str] = ("-Xmx512M",),
    ) -> None:
        self.log_dirs = [log_dirs] if isinstance(log_dirs, Path) else list(log_dirs)
        if any("," in str(log_dir) for log_dir in self.log_dirs):
            raise ValueError("a broker separates log directories with commas")
        self.settings = {**DEFAULTS, **(overrides or {})}
        self.java_options = list(java_options)
        self.bootstrap = ""
        self._work_dir = Path(tempfile.mkdtemp(prefix="eoctl-broker-"))
        self.log_file = self._work_dir / "broker.log"
        self.log_file.touch()
        self._process: subprocess.Popen[bytes] | None = None
        self._log_pos = 0  # where its log of the last start begins

    # --- life ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._process is not None and error_type is None:
                self.stop()
        finally:
            self.close()

    def start(self) -> Self:
        """Start it and wait until it serves requests.

        Raises:
            BrokerError: it ended before that, or is not ready within `READY_TIMEOUT_S`.
        """
        for start_number in range(1, _STARTS + 1):
            self.spawn()
            try:
                self.await_ready()
            except BrokerError:
                self.kill()
                # Another process may have taken a port since we looked.
                taken = "Address already in use" in self._log_since(self._log_pos)
                if not taken or start_number == _STARTS:
                    raise
            else:
                break
        return self

    def spawn(self) -> None:
        """Start its process, and do not wait."""
        if self.is_running:
            raise BrokerError("this broker runs already")
        self._log_pos = self.log_file.stat().st_size
        self._spawn(self._choose_ports())

    def await_ready(self) -> None:
        """Wait until it serves requests.

        Raises:
            BrokerError: it has ended, or is not ready within `READY_TIMEOUT_S`.
        """
        self._wait_until_ready(self._log_pos)

    def stop(self) -> None:
        """Stop it cleanly, and make sure that it left its clean-shutdown markers.

        Raises:
            BrokerError: it had died before, did not stop in time, or left no marker.
        """
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(f"the broker did not stop\n{self.log_tail()}") from None
        self._process = None
        for log_dir in self.log_dirs:
            if not (log_dir / CLEAN_MARKER).exists():
                raise BrokerError(f"no {CLEAN_MARKER} in {log_dir}\n{self.log_tail()}")

    def send_kill(self) -> None:
        """Send it the signal that `kill` sends, and do not wait."""
        if self._process is not None:
            self._process.kill()

    def kill(self) -> None:
        """End it at once, as a crash does. Does nothing when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Kill it if it runs and remove its temporary directory; the log directories stay."""
        self.kill()
        shutil.rmtree(self._work_dir, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The process id of its JVM."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether its process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    # --- what it logged --------------------------------------------------------------------------

    def log_lines(self, partition: str = "") -> list[str]:
        """What it logged, over all its starts: all lines, or those that name `partition`."""
        lines = self.log_file.read_text(errors="replace").splitlines()
        name = re.compile(rf"(?<![\w.-]){re.escape(partition)}(?![\w-]|\.\w)")
        return [line for line in lines if name.search(line)] if partition else lines

    def error_lines(self) -> list[str]:
        """What it logged as errors, but for what a healthy node of one may say (HEALTHY)."""
        return [
            line
            for line in self.log_lines()
            if " ERROR " in line and not any(words in line for words in HEALTHY)
        ]

    def log_tail(self, lines_count: int = 40) -> str:
        """The end of its log, for the text of an error."""
        return "\n".join(self.log_lines()[-lines_count:])

    def _log_since(self, pos: int) -> str:
        with self.log_file.open("rb") as file:
            file.seek(pos)
            return file.read().decode(errors="replace")

    def properties_file(self) -> Path:
        """Write its server.properties."""
        return self._write_properties(self._choose_ports())

    # --- inside ----------------------------------------------------------------------------------

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BrokerError("this broker does not run")
        if self._process.poll() is not None:
            status = self._process.returncode
            self._process = None
            raise BrokerError(f"the broker ended with status {status}\n{self.log_tail()}")
        return self._process

    def _spawn(self, ports: tuple[int, int]) -> None:
        properties_file = self._write_properties(ports)
        if not all((log_dir / "meta.properties").exists() for log_dir in self.log_dirs):
            self._format(properties_file)
        command = java_command(
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *([] if any("Archive" in each for each in self.java_options) else quick_start()),
            *_LOGGING,
            *self.java_options,
            "kafka.Kafka",
            str(properties_file),
        )
        if setpriv := shutil.which("setpriv"):
            # The broker must not outlive the tests, however they end. (setpriv execs: same pid.)
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._work_dir
            )
        self.bootstrap = f"127.0.0.1:{ports[0]}"

    def _choose_ports(self) -> tuple[int, int]:
        first, second = choose_ports(2, None)
        return first, second

    def _write_properties(self, ports: tuple[int, int]) -> Path:
        path = self._work_dir / "server.properties"
        path.write_text(self._properties(ports))
        return path

    def _properties(self, ports: tuple[int, int]) -> str:
        known = [read_properties(log_dir / "meta.properties") for log_dir in self.log_dirs]
        text = _PROPERTIES.format(
            node_id=next((found["node.id"] for found in known if "node.id" in found), "1"),
            port=ports[0],
            controller_port=ports[1],
            log_dirs=",".join(str(log_dir.resolve()) for log_dir in self.log_dirs),
        )
        return text + self._set()

    def _set(self) -> str:
        return "".join(f"{name}={value}\n" for name, value in self.settings.items() if value)

    def _format(self, properties_file: Path) -> None:
        known = [read_properties(log_dir / "meta.properties") for log_dir in self.log_dirs]
        cluster_id = next((found["cluster.id"] for found in known if found), new_uuid())
        arguments = ("format", "--ignore-formatted", "-t", cluster_id, "-c", str(properties_file))
        done = subprocess.run(
            java_command(
                "-XX:TieredStopAtLevel=1",
                *quick_start(),
                *_LOGGING,
                "kafka.tools.StorageTool",
                *arguments,
            ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=READY_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise BrokerError(f"formatting {self.log_dirs} failed\n{done.stdout}{done.stderr}")

    def _wait_until_ready(self, log_pos: int) -> None:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while self.ready_words not in self._log_since(log_pos):
            self._running()
            if time.monotonic() > deadline_s:
                raise BrokerError(f"the broker was not ready in time\n{self.log_tail()}")
            time.sleep(_POLL_S)
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        leaders_deadline_s = time.monotonic() + LEADERS_TIMEOUT_S
        while not _serves(admin, needs_all_leaders=time.monotonic() < leaders_deadline_s):
            self._running()
            if time.monotonic() > deadline_s:
                raise BrokerError(f"the broker answered no client in time\n{self.log_tail()}")
            time.sleep(_POLL_S)


_LOGGING = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
)


def _serves(admin: AdminClient, *, needs_all_leaders: bool) -> bool:
    """Whether a client gets the end offset of every partition that has a leader.

    A partition may have none for good: its log is broken, or its leader is another broker.
    """
    try:
        topics = admin.list_topics(timeout=5).topics
        parts = [
            (TopicPartition(name, part.id), part.leader >= 0)
            for name, topic in topics.items()
            for part in topic.partitions.values()
        ]
        if needs_all_leaders and not all(has_leader for _, has_leader in parts):
            return False
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {part: latest for part, has_leader in parts if has_leader}
        for future in admin.list_offsets(asked).values() if asked else ():
            future.result(5)
    except (KafkaException, TimeoutError):
        return False
    return True


def new_uuid() -> str:
    """A random id as Kafka writes it: 22 characters of url-safe base64, no dash in front."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def read_properties(path: Path) -> dict[str, str]:
    """The `name=value` lines of a properties file; {} when there is no such file."""
    if not path.exists():
        return {}
    lines = [line.strip() for line in path.read_text().splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}


def copy_log_dir(source: Path, target: Path) -> Path:
    """A writable copy of a log directory, mtimes kept: a broker may be started on it.

    The golden directories are read-only; their modes are not taken over.
    """
    shutil.copytree(source, target)
    for directory, _, files in os.walk(target):
        for name in [*files, "."]:
            path = Path(directory, name)
            path.chmod(path.stat().st_mode | 0o200)
    return target


def replace_partition_files(partition_dir: Path, files: Iterable[Path]) -> None:
    """Put other files under a stopped broker: all but `partition.metadata` are replaced by `files`.

    The topic id in `partition.metadata` is the cluster's, so the broker keeps the directory.
    """
    for old in partition_dir.iterdir():
        if old.name != "partition.metadata":
            old.unlink()
    for file in files:
        if file.name != "partition.metadata":
            shutil.copy2(file, partition_dir / file.name)


def force_recovery(log_dir: Path, partition: str) -> None:
    """Make the next start recover `partition` from its log's start, as after a crash."""
    (log_dir / CLEAN_MARKER).unlink(missing_ok=True)
    checkpoint = log_dir / "recovery-point-offset-checkpoint"
    topic, _, number = partition.rpartition("-")
    lines = checkpoint.read_text().splitlines()
    start = f"{topic} {number} "
    lines = [f"{start}0" if line.startswith(start) else line for line in lines]
    checkpoint.write_text("\n".join(lines) + "\n")
