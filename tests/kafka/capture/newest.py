"""Captures `tests/golden/kafka-4.4.0.tar.xz`, and its `.dump`: what Kafka 4.4.0 writes.

    python -m tests.kafka.capture.newest LIBS ARCHIVE      # LIBS: jars of 4.4.0 and kafka-streams

A combined node with dynamic voters (`--standalone`), a SCRAM user, and two log dirs: `killed`, with
members in its groups, and `clean`, the same after a start and a clean stop. Controller 8 has
registered and was unregistered, controller 9 has registered and is gone: a ghost. Share groups
`rejecting` (with a dead letter queue) and `accepting`, streams groups `counting` and
`counting-refused`, access control lists with hosts in CIDR, an open transaction.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from eoctl.lab.bench.brokers import choose_ports
from tests.kafka import client, jars
from tests.kafka.broker import KEPT, READY_TIMEOUT_S, Broker, BrokerError, new_uuid
from tests.kafka.capture.releases import records, run_tool
from tests.kafka.dump import dump_each, dumpable_files, options_for
from tests.kafka.jars import java_command, tool

SOURCES = Path(__file__).parents[1]
UNREGISTERED, GHOST = 8, 9
SETTINGS = {
    **KEPT,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.streams.topology.description.plugin.class": "Descriptions",
    "group.streams.heartbeat.interval.ms": "1000",
    "group.streams.min.heartbeat.interval.ms": "1000",
    "group.coordinator.append.linger.ms": "5",
}


class DynamicBroker(Broker):
    """A combined node that is the only voter of a dynamic quorum."""

    def _properties(self, ports: tuple[int, int]) -> str:
        self.controller = f"127.0.0.1:{ports[1]}"
        text = super()._properties(ports)
        lines = [each for each in text.splitlines() if not each.startswith("controller.quorum.v")]
        lines += [
            f"controller.quorum.bootstrap.servers={self.controller}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://{self.controller}",
        ]
        return "\n".join(lines) + "\n"

    def _format(self, properties_file: Path) -> None:
        self.cluster_id = new_uuid()
        user = "SCRAM-SHA-256=[name=alice,password=alice-secret]"
        options = ("-t", self.cluster_id, "-c", str(properties_file), "--standalone")
        run_tool("kafka.tools.StorageTool", "format", *options, "--add-scram", user)


def observe(node: int, controller: str, cluster_id: str, work: Path) -> None:
    """Let a controller register itself, and end it."""
    directory = work / f"controller-{node}"
    directory.mkdir()
    port = choose_ports(1, None)[0]
    properties = directory / "server.properties"
    properties.write_text(
        f"process.roles=controller\nnode.id={node}\nlog.dirs={directory / 'data'}\n"
        f"controller.quorum.bootstrap.servers={controller}\n"
        f"listeners=CONTROLLER://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT\n"
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        "super.users=User:ANONYMOUS\n"
    )
    options = ("-t", cluster_id, "-c", str(properties), "--no-initial-controllers")
    run_tool("kafka.tools.StorageTool", "format", *options)
    log = directory / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            java_command("-Xmx256M", "kafka.Kafka", str(properties)),
            stdin=subprocess.DEVNULL, stdout=file, stderr=file,
        )  # fmt: skip
    try:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while f"ControllerRegistration(id={node}," not in (text := log.read_text(errors="replace")):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise BrokerError(f"controller {node} did not register\n{text[-4000:]}")
            time.sleep(0.2)
    finally:
        process.terminate()
        process.wait()


def alter(bootstrap: str, kind: str, name: str, setting: str) -> None:
    """Set a setting of a topic or of a group."""
    run_tool(
        "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", bootstrap, "--entity-type", kind,
        "--entity-name", name, "--alter", "--add-config", setting,
    )  # fmt: skip


def share_groups(bootstrap: str) -> None:
    """Two share groups; what one of them rejects goes to a dead letter queue."""
    dead = {
        "errors.deadletterqueue.group.enable": "true",
        "max.decompressed.message.bytes": "99999",
    }
    client.create_topics(bootstrap, {"dlq.rejected": (1, dead)})
    alter(bootstrap, "groups", "rejecting", "share.auto.offset.reset=earliest")
    alter(bootstrap, "groups", "rejecting", "errors.deadletterqueue.topic.name=dlq.rejected")
    alter(bootstrap, "groups", "rejecting", "errors.deadletterqueue.copy.record.enable=true")
    alter(bootstrap, "groups", "accepting", "share.auto.offset.reset=earliest")
    for group, options in (("rejecting", ("--reject",)), ("accepting", ())):
        run_tool(
            "org.apache.kafka.tools.consumer.ConsoleShareConsumer", "--bootstrap-server", bootstrap,
            "--topic", "plain", "--group", group, "--max-messages", "12", "--timeout-ms", "20000",
            *options,
        )  # fmt: skip


def streams_group(bootstrap: str, group: str, work: Path) -> subprocess.Popen[bytes]:
    """Start a member of a streams group, and wait until it has tasks."""
    log = work / f"{group}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            java_command(
                "-Xmx256M", str(SOURCES / "StreamsGroup.java"), bootstrap, group, "plain", "counted",
                str(work / group), "one",
            ),
            stdin=subprocess.PIPE, stdout=file, stderr=file,
        )  # fmt: skip
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while "running" not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline_s:
            process.kill()
            process.wait()
            raise BrokerError(f"{group}: no tasks\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.2)
    return process


def end(members: list[subprocess.Popen[bytes]]) -> None:
    """Kill members of streams groups: they do not leave."""
    for each in members:
        each.kill()
        each.wait()


def access_lists(bootstrap: str) -> None:
    """Hosts as they always were, and as ranges."""
    for kind, principal, host in (
        ("--allow", "User:alice", "10.1.0.0/16"), ("--deny", "User:bob", "2001:db8::/32"),
        ("--allow", "User:carol", "10.9.8.7"),
    ):  # fmt: skip
        run_tool(
            "org.apache.kafka.tools.AclCommand", "--bootstrap-server", bootstrap, "--add",
            f"{kind}-principal", principal, f"{kind}-host", host, "--operation", "Read",
            "--topic", "plain",
        )  # fmt: skip


def capture(work: Path) -> None:
    """Write all that is to be written: `killed` and `clean` in `work`."""
    log_dirs = [work / "killed" / each for each in ("one", "two")]
    for each in log_dirs:
        each.mkdir(parents=True)
    broker = DynamicBroker(log_dirs, overrides=SETTINGS)
    members: list[subprocess.Popen[bytes]] = []
    try:
        broker.start()
        client.create_topics(
            broker.bootstrap, {"plain": (2, {}), "txn": (1, {}), "counted": (2, {})}
        )
        plain = client.producer(broker.bootstrap, enable_idempotence=True, batch_size=500)
        for number in range(2):
            client.send(plain, records("plain", number, "p", 30))
        writer = client.transactional_producer(broker.bootstrap, "ended")
        offsets = {("plain", 0): 7}
        client.transact(writer, records("txn", 0, "e", 4), commit=True, offsets=offsets)
        client.transact(writer, records("txn", 0, "e", 4), commit=False)
        access_lists(broker.bootstrap)
        for node in (UNREGISTERED, GHOST):
            observe(node, broker.controller, broker.cluster_id, work)
        run_tool(
            "org.apache.kafka.tools.ClusterTool", "unregister-controller",
            "--bootstrap-server", broker.bootstrap, "--id", str(UNREGISTERED),
        )  # fmt: skip
        share_groups(broker.bootstrap)
        client.join_group(broker.bootstrap, "classic", "plain")
        client.join_group(broker.bootstrap, "next-generation", "plain", protocol="consumer")
        members += [
            streams_group(broker.bootstrap, each, work) for each in ("counting", "counting-refused")
        ]
        open_writer = client.transactional_producer(broker.bootstrap, "open")
        open_writer.begin_transaction()
        client.send(open_writer, records("txn", 0, "o", 4))
        time.sleep(8)
        broker.kill()
        end(members)
        subprocess.run(["cp", "-a", str(work / "killed"), str(work / "clean")], check=True)
        broker.log_dirs = [work / "clean" / each.name for each in log_dirs]
        broker.start()
        time.sleep(5)
        broker.stop()
    finally:
        end(members)
        broker.close()


def words(root: Path, target: Path) -> None:
    """Write what kafka-dump-log says of every file below `root`, as the other `.dump` archives."""
    lines = []
    files = [each for each in dumpable_files(root) if each.stat().st_size]
    for path, found in dump_each(files).items():
        name = str(path.relative_to(root))
        text = target / f"{name}.txt"
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_bytes(found.text.replace(b"%s/" % bytes(root), b""))
        lines.append(f"{name} rc={found.returncode} args={' '.join(options_for(path))}")
    (target / "COMMANDS").write_text("\n".join(sorted(lines)) + "\n")


def main() -> None:
    """Write the archive that the command line names, and its `.dump` beside it."""
    libs, archive_path = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="eoctl-newest-") as name:
        work = Path(name)
        jars.KAFKA_LIBS = work / "libs"
        jars.KAFKA_LIBS.mkdir()
        for each in Path(libs).resolve().glob("*.jar"):
            (jars.KAFKA_LIBS / each.name).symlink_to(each)
        javac = Path(tool("java")).resolve().with_name("javac")
        subprocess.run(
            [javac, "-cp", f"{libs}/*", "-d", str(work / "made"), SOURCES / "Descriptions.java"],
            check=True,
        )
        subprocess.run(
            [javac.with_name("jar"), "cf", jars.KAFKA_LIBS / "descriptions.jar", "-C",
             str(work / "made"), "."],
            check=True,
        )  # fmt: skip
        capture(work)
        with tarfile.open(archive_path, "w:xz", preset=9) as archive:
            for state in ("killed", "clean"):
                archive.add(work / state, state)
        dump_path = archive_path.replace(".tar.xz", ".dump.tar.xz")
        with tarfile.open(dump_path, "w:xz", preset=9) as archive:
            for state in ("killed", "clean"):
                for log_dir in ("one", "two"):
                    words(work / state / log_dir, work / "dump" / state / log_dir)
                archive.add(work / "dump" / state, state)


if __name__ == "__main__":
    main()
