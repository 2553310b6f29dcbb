"""Measure `eoctl serve` beside a real broker over the same files, in one run.

    python -m bench.serve [--mib 512] [--runs 3] [--no-kafka]

Both are started anew for each run and read by the same program, in turn, from a warm page cache: a
consumer of librdkafka, and a bare socket that asks for as much at a time and looks at nothing: it
shows what the consumer's own work hides. Times are the reader's, from its first request on.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Self

from bench.consume import make_partition, records_in
from bench.measure import Cost, busy_lines, family_pss_mib, read_ahead
from bench.partitions import make_log_dir
from bench.rebuild import EOCTL
from tests import wire
from tests.kafka import client
from tests.kafka.broker import Broker, force_recovery, replace_partition_files
from tests.kafka.jars import missing_broker

if TYPE_CHECKING:
    from types import TracebackType

BARS = {"16k": 0.5, "1k": 0.3}
PARTITIONS, FIRST_BYTE_BAR_S = 1000, 1.0
CONSUMERS, CONSUMERS_BAR_MIB = 200, 150
CONNECTIONS = 10_000
FETCH_BYTES = 1 << 20  # max.partition.fetch.bytes of a consumer
DESCRIPTORS = CONNECTIONS + 100
SETTLE_S = 2.0
# By default librdkafka stops asking for a second once it has 100,000 messages, whoever it asks.
UNHINDERED: dict[str, str | int | float | bool] = {
    "enable.auto.commit": False,
    "queued.min.messages": 10_000_000,
    "queued.max.messages.kbytes": 2_097_151,
}
FRAME, LAST_DELTA, LAST_DELTA_POS = Struct(">qi"), Struct(">i"), 23
WORDS = {"records": "librdkafka", "bytes": "a bare socket"}
# A broker as people run it, not as tests do: all compilers, and its threads as they are by default.
JAVA_OPTIONS = ("-Xmx1G", "-XX:TieredStopAtLevel=4")
SETTINGS = {
    "log.index.size.max.bytes": str(10 << 20), "num.network.threads": "3", "num.io.threads": "8",
}  # fmt: skip
TOPIC_SETTINGS = {"retention.ms": "-1", "segment.bytes": str(1 << 30)}


class Serving:
    """`eoctl serve` while it is measured.

    Attributes:
        bootstrap: where it listens.
        started_s: when it was started, by the clock of this process.
    """

    def __init__(self, log_dir: Path, *options: str) -> None:
        self.started_s = time.perf_counter()
        self._process = subprocess.Popen(
            [*EOCTL, "serve", str(log_dir), *options],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.bootstrap = self._process.stdout.readline().removeprefix("bootstrap ").strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()  # an interrupt would be ignored below nohup
        self._process.communicate()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def pss_mib(self) -> float:
        """Its memory now."""
        return sum(family_pss_mib(self.pid).values())


class Read(NamedTuple):
    """What a reader got, in how long, and what the server needed of the processor for it."""

    count: int
    wall_s: float
    server_cpu_s: float = 0.0


# --- readers: each is a process of its own


def read_records(bootstrap: str, topic: str, count: int) -> Read:
    """Have a consumer of librdkafka read so many records of partition 0."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", **UNHINDERED})
    consumer.list_topics(topic, timeout=client.TIMEOUT_S)
    began_s = time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = 0
    while got < count:
        got += len(consumer.consume(10_000, timeout=1.0))
    wall_s = time.perf_counter() - began_s
    consumer.close()
    return Read(got, wall_s)


def read_bytes(bootstrap: str, topic: str, size_bytes: int) -> Read:
    """Have a bare socket fetch so many bytes of batches of partition 0."""
    got = offset = 0
    with wire.Wire(bootstrap) as connection:
        connection.ask("ApiVersions", 0)
        began_s = time.perf_counter()
        while got < size_bytes:
            answer = wire.fetch(connection, topic, 0, offset, max_bytes=FETCH_BYTES)
            data = answer["records"]
            if answer["errorCode"] or not data:
                raise RuntimeError(f"{topic} ends at {offset}: error {answer['errorCode']}")
            got += len(data)
            offset = _offset_behind(data)
        wall_s = time.perf_counter() - began_s
    return Read(got, wall_s)


def _offset_behind(data: bytes) -> int:
    """The offset behind the last batch, which need not be whole."""
    pos = last_pos = 0
    while pos + FRAME.size <= len(data):
        _, length = FRAME.unpack_from(data, pos)
        if pos + FRAME.size + length > len(data):
            break
        last_pos, pos = pos, pos + FRAME.size + length
    base_offset, _ = FRAME.unpack_from(data, last_pos)
    (delta,) = LAST_DELTA.unpack_from(data, last_pos + LAST_DELTA_POS)
    return int(base_offset + delta + 1)


READERS = {"records": read_records, "bytes": read_bytes}


def read_apart(kind: str, bootstrap: str, topic: str, count: int, server_pid: int) -> Read:
    """Run a reader in a process of its own."""
    before_s = cpu_s(server_pid)
    command = [sys.executable, "-m", "bench.serve", "--read", kind, bootstrap, topic, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = Read(*json.loads(done.stdout))
    return found._replace(server_cpu_s=cpu_s(server_pid) - before_s)


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- what is measured


def speed_lines(size: str, mib: int, runs: int, root: Path, *, has_kafka: bool) -> list[str]:
    """Read one partition of batches of one size from both, in turn."""
    made = make_partition(root, size, mib)
    count, topic = records_in(made), made.name.removesuffix("-0")
    size_bytes = sum(each.stat().st_size for each in made.glob("*.log"))
    amounts = {"records": count, "bytes": size_bytes}
    ours: dict[str, list[Read]] = {kind: [] for kind in READERS}
    theirs: dict[str, list[Read]] = {kind: [] for kind in READERS}
    log_dir = root / f"broker-{size}"
    broker = None
    if has_kafka:
        broker = Broker(log_dir, overrides=SETTINGS, java_options=JAVA_OPTIONS).start()
        client.create_topics(broker.bootstrap, {topic: (1, TOPIC_SETTINGS)})
        broker.stop()
        replace_partition_files(log_dir / made.name, made.iterdir())
        force_recovery(log_dir, made.name)
        broker.start()
        broker.stop()
    else:
        log_dir = made.parent
    for log in (log_dir / made.name).glob("*.log"):
        read_ahead(log)
    for _ in range(runs):
        for kind, amount in amounts.items():
            with Serving(log_dir, "--topic", topic) as served:
                found = read_apart(kind, served.bootstrap, topic, amount, served.pid)
                ours[kind].append(found)
            if broker is not None:
                broker.start()
                found = read_apart(kind, broker.bootstrap, topic, amount, broker.pid)
                theirs[kind].append(found)
                broker.stop()
    if broker is not None:
        broker.close()
    return [_row(size, kind, size_bytes, ours[kind], theirs[kind]) for kind in READERS]


def _row(size: str, kind: str, size_bytes: int, ours: list[Read], theirs: list[Read]) -> str:
    bar = f"{BARS[size]}" if kind == "records" else "-"
    cells = [f"{size} batches, {WORDS[kind]}", _speed(size_bytes, ours)]
    if theirs:
        ratio = min(each.wall_s for each in theirs) / min(each.wall_s for each in ours)
        cells += [_speed(size_bytes, theirs), f"{ratio:.2f}", bar]
    else:
        cells += ["-", "-", bar]
    cpu = [f"{min(each.server_cpu_s for each in of):.2f}" for of in (ours, theirs) if of]
    line = f"| {' | '.join([*cells, ', '.join(cpu)])} |"
    print(line, flush=True)
    return line


def _speed(size_bytes: int, found: list[Read]) -> str:
    cost = Cost(tuple(each.wall_s for each in found))
    return f"{size_bytes / cost.best_s / 1e6:,.0f} ({size_bytes / cost.median_s / 1e6:,.0f})"


def first_byte_line(root: Path, runs: int) -> str:
    """From the start of the program to the first batch that somebody has, of many partitions."""
    log_dir = make_log_dir(root, PARTITIONS)
    listening, first = [], []
    for number in range(runs):
        with Serving(log_dir) as served, wire.Wire(served.bootstrap) as connection:
            listening.append(time.perf_counter() - served.started_s)
            connection.ask("Metadata", 9, {"topics": None})
            answer = wire.fetch(connection, "idem-none", number * 7 % PARTITIONS, 0)
            first.append(time.perf_counter() - served.started_s)
            if not answer["records"]:
                raise RuntimeError(f"nothing was given: {answer}")
    return (
        f"- {PARTITIONS:,} partitions: it listens after {min(listening):.2f} s, and the first batch"
        f" is there after {min(first):.2f} (bar {FIRST_BYTE_BAR_S:g}), all metadata before it."
    )


def consumers_line(root: Path) -> str:
    """Memory beside consumers of librdkafka that have read a partition, and wait at its end."""
    from confluent_kafka import Consumer, TopicPartition

    made = make_partition(root / "consumers", "16k", 8)
    topic = made.name.removesuffix("-0")
    with Serving(made.parent) as served:
        alone_mib = served.pss_mib
        consumers = []
        for _ in range(CONSUMERS):
            consumer = Consumer(
                {"bootstrap.servers": served.bootstrap, "group.id": "bench",
                 "enable.auto.commit": False, "enable.partition.eof": True}
            )  # fmt: skip
            consumer.assign([TopicPartition(topic, 0, records_in(made) - 10)])
            consumers.append(consumer)
        for consumer in consumers:
            is_at_end = False
            while not is_at_end:
                for message in consumer.consume(500, timeout=1.0):
                    error = message.error()
                    is_at_end |= error is not None and error.code() == client.END_OF_PARTITION
        time.sleep(SETTLE_S)
        used = served.pss_mib
        for consumer in consumers:
            consumer.close()
    return (
        f"- {CONSUMERS} idle consumers of librdkafka at the end of a partition: {used:.0f} MiB (bar"
        f" {CONSUMERS_BAR_MIB}); {alone_mib:.0f} before the first one."
    )


def connections_line(root: Path) -> str:
    """Connections that all stay, each of which is answered twice."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        return f"- {CONNECTIONS:,} connections: not tried, `ulimit -n` allows {hard} here."
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    made = make_partition(root / "connections", "16k", 8)
    topic = made.name.removesuffix("-0")
    with Serving(made.parent) as served:
        began_s = time.perf_counter()
        held = []
        try:
            for _ in range(CONNECTIONS):
                held.append(wire.Wire(served.bootstrap))
                held[-1].ask("ApiVersions", 0)
            all_s = time.perf_counter() - began_s
            for each in held:
                if not wire.fetch(each, topic, 0, 0, max_bytes=1)["records"]:
                    raise RuntimeError("a connection was not given its batch")
            used, both_s = served.pss_mib, time.perf_counter() - began_s
        finally:
            for each in held:
                each.socket.close()
    return (
        f"- {CONNECTIONS:,} connections that stay: opened and answered one after the other in"
        f" {all_s:.1f} s, a batch given to each in {both_s - all_s:.1f}; {used:.0f} MiB."
    )


def serve_lines(mib: int, runs: int, *, has_kafka: bool = True) -> list[str]:
    """Markdown of the whole measurement."""
    heads = ["serve", "eoctl, MB/s, best (median)", "broker", "ratio", "bar", "CPU of each, s"]
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |"]
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        root = Path(temporary)
        for size in BARS:
            lines += speed_lines(size, mib, runs, root, has_kafka=has_kafka)
        lines += ["", first_byte_line(root, runs), consumers_line(root), connections_line(root)]
    return lines + busy_lines()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=512, help="size of each partition")
    parser.add_argument("--runs", type=int, default=3, help="of each server")
    parser.add_argument("--no-kafka", action="store_true", help="ours alone")
    parser.add_argument("--read", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.read:
        kind, bootstrap, topic, count = chosen.read
        print(json.dumps(READERS[kind](bootstrap, topic, int(count))))
        return
    reason = missing_broker()
    if reason:
        print(f"no broker: {reason}", file=sys.stderr)
    has_kafka = not (reason or chosen.no_kafka)
    print("\n".join(serve_lines(chosen.mib, chosen.runs, has_kafka=has_kafka)))


if __name__ == "__main__":
    main()
