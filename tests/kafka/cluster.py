"""A real cluster of several brokers (KRaft, 4.3.1), each of them a process of its own.

    with Cluster(root) as cluster:                # brokers 0, 1, 2 and a controller apart, node 100
        cluster.create_topic("t", [[0, 1, 2]], {"min.insync.replicas": "2"})
        cluster.kill(0)                           # SIGKILL; cluster.stop(0) is a clean stop
        cluster.wait_for("t", leader=1, isr={1, 2})
        cluster.start(0)
    # whatever still runs is killed

Each node has its log dir in `root/node-ID`, its ports on the loopback address for as long as the
cluster lives, and its own log file. What `root` has already is gone on with, as it is:
`Cluster(cluster.copy(target))` starts other processes over what dead nodes left. A node whose log
dir was removed is formatted anew when it starts, as after a disk was replaced.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from eoctl.lab.bench.brokers import (
    CLUSTER_NODE,
    choose_ports,
    node_lines,
    replication_factors,
)
from eoctl.lab.environment.settings import CONTROLLER_ID

from .broker import (
    DEFAULTS,
    READY_TIMEOUT_S,
    Broker,
    BrokerError,
    copy_log_dir,
    new_uuid,
    read_properties,
)
from .jars import java_command, quick_start

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

ELR_FEATURE = "eligible.leader.replicas.version"
WAIT_S = 60.0
_POLL_S = 0.05

# A node that dies is missed after 3 s, a follower that fetches nothing after 4 s. Internal topics
# have one partition on all brokers.
CLUSTER_DEFAULTS = {
    **DEFAULTS,
    **CLUSTER_NODE,
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "4000",
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "200",
    "transaction.state.log.num.partitions": "1",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.fetch.timeout.ms": "1000",
}


class PartitionSeen(NamedTuple):
    """What a broker tells a client of a partition. `leader`: -1 if there is none."""

    leader: int
    isr: frozenset[int]
    replicas: tuple[int, ...]


class ClusterNode(Broker):
    """A node of a cluster: broker, controller, or both. `Cluster` makes and starts it."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        super().__init__(
            cluster.log_dir(node_id), overrides=cluster.settings, java_options=cluster.java_options
        )
        self.node_id = node_id
        self.is_broker = node_id in cluster.broker_ids
        self.is_controller = node_id in cluster.controller_ids
        self._cluster = cluster

    def stop(self) -> None:
        """Stop it cleanly; a broker leaves its clean-shutdown marker."""
        if self.is_broker:
            super().stop()
            return
        process = self._running()
        process.terminate()
        process.wait(READY_TIMEOUT_S)
        self._process = None

    def _choose_ports(self) -> tuple[int, int]:
        return self._cluster.ports[self.node_id]

    def _properties(self, ports: tuple[int, int]) -> str:
        lines = node_lines(
            self.node_id, {**self._cluster.ports, self.node_id: ports}, self._cluster.controller_ids,
            is_broker=self.is_broker, log_dir=self.log_dirs[0].resolve(),
        )  # fmt: skip
        return "".join(f"{name}={value}\n" for name, value in lines.items()) + self._set()

    def _wait_until_ready(self, log_pos: int) -> None:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while self.ready_words not in self._log_since(log_pos):
            self._running()
            if time.monotonic() > deadline_s:
                raise BrokerError(f"node {self.node_id} was not ready in time\n{self.log_tail()}")
            time.sleep(_POLL_S)


class Cluster:
    """Brokers 0, 1, ... and their controllers.

    Args:
        root: where the log dirs are, or will be.
        brokers: how many.
        combined: every broker is a controller, too; else node 100 is the only controller.
        elr: the cluster keeps eligible leader replicas (KIP-966). Of a cluster that is there
            already, what it was formatted with holds.
        overrides: settings of all nodes, over `CLUSTER_DEFAULTS`.
        java_options: of each JVM.

    Attributes:
        nodes: by id; each knows its log lines and its pid.
    """

    def __init__(
        self,
        root: Path,
        *,
        brokers: int = 3,
        combined: bool = False,
        elr: bool = True,
        overrides: Mapping[str, str] | None = None,
        java_options: Sequence[str] = ("-Xmx256M",),
    ) -> None:
        self.root = root
        self.broker_ids = tuple(range(brokers))
        self.controller_ids = self.broker_ids if combined else (CONTROLLER_ID,)
        self.java_options = tuple(java_options)
        self._elr = elr
        factors = replication_factors(brokers)
        self.settings = {**CLUSTER_DEFAULTS, **factors, **(overrides or {})}
        ids = sorted({*self.broker_ids, *self.controller_ids})
        ports = choose_ports(2 * len(ids), None)
        self.ports = dict(zip(ids, zip(ports[::2], ports[1::2], strict=True), strict=True))
        self.nodes = {each: ClusterNode(self, each) for each in ids}

    # --- life ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self.start(*self.nodes)
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

    def start(self, *ids: int, wait: bool = True) -> None:
        """Start nodes side by side, controllers first. Log dirs that are not there are formatted.

        Args:
            ids: nodes; none: those that do not run.
            wait: until each of them serves, and a broker is let in by the controller. Without:
                a broker whose controllers do not run never is.
        """
        self.format()
        wanted = [each for each in self.nodes if not ids or each in ids]
        wanted = [each for each in wanted if not self.nodes[each].is_running]
        for each in sorted(wanted, key=lambda each: each not in self.controller_ids):
            self.nodes[each].spawn()
        if wait:
            self.await_ready(*wanted)

    def await_ready(self, *ids: int) -> None:
        """Wait until nodes that were started serve."""
        for each in ids:
            self.nodes[each].await_ready()

    def stop(self, *ids: int) -> None:
        """Stop nodes cleanly, brokers before controllers, one after the other as they are named.

        A broker cannot be stopped cleanly once most of the controllers are gone: of combined nodes
        the last ones have to be killed.
        """
        for each in sorted(ids, key=lambda each: each not in self.broker_ids):
            self.nodes[each].stop()

    def kill(self, *ids: int) -> None:
        """End nodes at once (SIGKILL), without letting any of them see another one go."""
        for each in ids:
            self.nodes[each].send_kill()
        for each in ids:
            self.nodes[each].kill()

    def close(self) -> None:
        """Kill what still runs; the log dirs stay."""
        self.kill(*self.nodes)
        for each in self.nodes.values():
            each.close()

    @property
    def running(self) -> list[int]:
        """Nodes whose processes run, brokers and controllers."""
        return [each for each, node in self.nodes.items() if node.is_running]

    # --- its directories -------------------------------------------------------------------------

    def log_dir(self, node_id: int) -> Path:
        """The log dir of a node."""
        return self.root / f"node-{node_id}"

    def copy(self, target: Path) -> Path:
        """Copy all log dirs as they are, for `Cluster(target)`; best when all nodes are stopped."""
        target.mkdir(parents=True)
        for each in self.nodes:
            copy_log_dir(self.log_dir(each), target / self.log_dir(each).name)
        return target

    def format(self) -> None:
        """Format log dirs that are not there.

        One by Kafka's tool; the others differ in the ids in their meta.properties only.
        """
        missing = [each for each in self.nodes if not self.log_dir(each).exists()]
        if not missing:
            return
        first = missing[0]
        there = next((self.log_dir(each) for each in self.nodes if each not in missing), None)
        known = {} if there is None else read_properties(there / "meta.properties")
        done = subprocess.run(
            java_command(
                "-XX:TieredStopAtLevel=1", *quick_start(),
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
                "kafka.tools.StorageTool", "format", "-t", known.get("cluster.id") or new_uuid(), "-c",
                str(self.nodes[first].properties_file()),
                "--feature", f"{ELR_FEATURE}={int(self._elr)}",
            ),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=READY_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode != 0:
            raise BrokerError(f"formatting {self.root} failed\n{done.stdout}{done.stderr}")
        for each in missing[1:]:
            shutil.copytree(self.log_dir(first), self.log_dir(each))
            path = self.log_dir(each) / "meta.properties"
            own = {
                **read_properties(path), "node.id": str(each), "directory.id": new_uuid(),
            }  # fmt: skip
            path.write_text("".join(f"{name}={value}\n" for name, value in own.items()))

    # --- as a client sees it ---------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """`host:port` of all brokers, whether they run or not."""
        return ",".join(f"127.0.0.1:{self.ports[each][0]}" for each in self.broker_ids)

    def bootstrap_of(self, broker: int) -> str:
        """`host:port` of one broker."""
        return f"127.0.0.1:{self.ports[broker][0]}"

    def admin(self) -> AdminClient:
        """A new client of the brokers that run; it says nothing by itself."""
        up = [self.bootstrap_of(each) for each in self.broker_ids if each in self.running]
        return AdminClient({"bootstrap.servers": ",".join(up), "log_level": 0})

    def create_topic(
        self,
        name: str,
        replicas: Sequence[Sequence[int]],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; `replicas`: of each partition its brokers, the preferred leader first.

        It returns when each partition is led by its first replica, with all in the ISR, and every
        broker that runs knows so.
        """
        topic = NewTopic(
            name,
            num_partitions=len(replicas),
            replica_assignment=[list(each) for each in replicas],
            config=dict(settings or {}),
        )
        admin = self.admin()  # its calls end when it goes
        (future,) = admin.create_topics([topic], operation_timeout=WAIT_S).values()
        future.result(WAIT_S)
        for number, each in enumerate(replicas):
            self.wait_for(name, number, leader=each[0], isr=each)

    def seen_by(self, broker: int, topic: str, partition: int = 0) -> PartitionSeen | None:
        """What a broker answers a client; None: it knows no such partition, or does not answer."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_of(broker), "log_level": 0})
        try:
            found: Any = admin.list_topics(topic, timeout=5).topics[topic]
        except KafkaException:
            return None
        part = found.partitions.get(partition)
        if part is None:
            return None
        return PartitionSeen(part.leader, frozenset(part.isrs), tuple(part.replicas))

    def seen(self, topic: str, partition: int = 0) -> dict[int, PartitionSeen | None]:
        """What each broker that runs answers."""
        up = [each for each in self.broker_ids if each in self.running]
        return {each: self.seen_by(each, topic, partition) for each in up}

    def wait_for(
        self,
        topic: str,
        partition: int = 0,
        *,
        leader: int | None = None,
        isr: Collection[int] | None = None,
        timeout_s: float = WAIT_S,
    ) -> PartitionSeen:
        """Wait until all brokers that run tell the same of a partition, and what is wanted.

        Raises:
            TimeoutError: with what they tell.
        """

        def is_so(seen: PartitionSeen) -> bool:
            return leader in (None, seen.leader) and (isr is None or seen.isr == {*isr})

        return self.wait_until(topic, partition, is_so, timeout_s=timeout_s)

    def wait_until(
        self,
        topic: str,
        partition: int,
        is_so: Callable[[PartitionSeen], bool],
        *,
        timeout_s: float = WAIT_S,
    ) -> PartitionSeen:
        """As `wait_for`, for anything that can be asked of what they tell."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            reported = {*self.seen(topic, partition).values()}
            if len(reported) == 1 and (only := reported.pop()) is not None and is_so(only):
                return only
            if time.monotonic() > deadline_s:
                seen = self.seen(topic, partition)
                raise TimeoutError(f"{topic}-{partition} is not as wanted: {seen}")
            time.sleep(_POLL_S)

    def elect_uncleanly(self, topic: str, partition: int = 0) -> None:
        """Ask for an unclean election, as kafka-leader-election does.

        Raises:
            KafkaException: it was refused, or found no leader.
        """
        asked = TopicPartition(topic, partition)
        admin = self.admin()
        answer = admin.elect_leaders(ElectionType.UNCLEAN, [asked]).result(WAIT_S)
        if error := answer[asked]:
            raise KafkaException(error)
