"""Failure scenarios (`tests.lab.scenarios`) on real brokers.

Nothing waits for a time: what is to be so after each step is known, and is waited for.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from eoctl.lab.environment.network import NETWORK_EXCEPTION
from eoctl.lab.environment.settings import CONTROLLER_ID
from storage.errors import EoctlError
from storage.formats import cluster_metadata
from tests.kafka import client
from tests.kafka.cluster import WAIT_S, Cluster
from tests.kafka.raw_produce import RawProducer
from tests.lab.scenarios import (
    BROKERS,
    TOPIC,
    TRANSACTION_TIMEOUT_MS,
    TRANSACTIONAL_ID,
    Facts,
    Scenario,
    Sending,
    Stand,
    facts_of,
    metadata_of,
    offsets_of,
    simulate,
    states_of,
)
from tests.writing import batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from confluent_kafka import Producer

RENAMED = {"NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER"}  # by Kafka 2.6, not by librdkafka
DEATHS = {"kill", "stop", "pause"}
MARK = "max.message.bytes"  # set to another value behind each change of another setting
FETCHED_S = 3.0  # a fetch that has nothing to give is answered after 200 ms
_CUT = re.compile(r"Truncating to offset (\d+)")


class TooSlowError(Exception):
    """The machine was so slow that a broker that ran was taken for dead."""


class RealStage:
    """Three real brokers and a controller."""

    def __init__(self, root: Path, scenario: Scenario) -> None:
        self._cluster = Cluster(
            root,
            elr=scenario.has_elr,
            overrides={
                "broker.session.timeout.ms": str(scenario.session_ms),
                "replica.lag.time.max.ms": str(scenario.lag_ms),
                "unclean.leader.election.interval.ms": "500",
            },
        )
        self._min_insync = scenario.min_insync
        self._marks = 1_000_000
        self._leader = 0
        self._paused: set[int] = set()
        self._sender: RawProducer | None = None
        self._session: Producer | None = None

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        try:
            settings = {"min.insync.replicas": str(self._min_insync)}
            self._cluster.create_topic(TOPIC, [BROKERS], settings)
        except BaseException:
            self._cluster.close()
            raise
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._sender is not None:
            self._sender.close()
        self._cluster.close()

    def simulate(self, scenario: Scenario, answers: list[list[str]], stands: list[Stand]) -> Facts:
        """Play a course that was played before.

        Raises:
            TooSlowError: that is not what happened.
            AssertionError: it differs.
        """
        reported = []
        try:
            for group, expected, stand in zip(scenario.groups(), answers, stands, strict=True):
                found = [*simulate(self, group)]
                assert found == expected, (group, found, expected)
                reported += found
                self._agree(group, stand)
        except Exception as exc:
            self._require_quick(scenario, exc)
            raise
        cuts = {each: self._cuts(each) for each in BROKERS}
        self._cluster.kill(*self._cluster.running)
        self._require_quick(scenario, None)
        return facts_of(self, reported, states_of(self.log_dir(CONTROLLER_ID)), cuts)

    def log_dir(self, broker: int) -> Path:
        """Of a node."""
        return self._cluster.log_dir(broker)

    def _cuts(self, broker: int) -> list[int]:
        lines = self._cluster.nodes[broker].log_lines(f"{TOPIC}-0")
        return [int(found[1]) for each in lines if (found := _CUT.search(each))]

    def _agree(self, group: list[list[str]], stand: Stand) -> None:
        """Wait until all is as it is to be."""
        found: Stand | None = None

        def is_so() -> bool:
            nonlocal found
            found = self._stand()
            return found == stand

        assert _wait(is_so), (group, found, stand)
        reported = {(stand.leader, frozenset(stand.isr))}
        asked = [each for each in self._running if each not in self._paused]
        assert not asked or _wait(lambda: {*map(self._reported, asked)} == reported), (
            group,
            reported,
        )
        self._leader = stand.leader

    def _reported(self, broker: int) -> tuple[int, frozenset[int]] | None:
        """Who leads, and the ISR, as a broker tells its clients."""
        seen = self._cluster.seen_by(broker, TOPIC)
        return None if seen is None else (seen.leader, seen.isr)

    def _stand(self) -> Stand | None:
        try:
            state = states_of(self.log_dir(CONTROLLER_ID))[-1]
            offsets = {each: offsets_of(self.log_dir(each)) for each in self._running}
        except EoctlError:  # it is being written
            return None
        return Stand(state.leader, state.isr, offsets)

    def _require_quick(self, scenario: Scenario, cause: Exception | None) -> None:
        """Raise TooSlowError if more sessions ended than brokers died."""
        deaths = Counter(
            words[1] for group in scenario.groups() for words in group if words[0] in DEATHS
        )
        ended: Counter[str] = Counter()
        heard_of: set[int] = set()
        for record in metadata_of(self.log_dir(CONTROLLER_ID)):
            if record.api_key != cluster_metadata.BROKER_REGISTRATION_CHANGE:
                continue
            broker, fenced = record.data["brokerId"], record.data["fenced"]
            if fenced < 0:
                heard_of.add(broker)
            elif fenced > 0 and broker in heard_of:  # it is fenced again and again
                heard_of.discard(broker)
                ended[str(broker)] += 1
        if ended - deaths:
            raise TooSlowError(f"sessions of {ended} ended, of {deaths}") from cause

    # -- steps

    def send(self, value: str, count: int, acks: int) -> str:
        """Send records with a client library."""
        sender = client.producer(
            self._cluster.bootstrap, acks=acks, retries=0, enable_idempotence=False
        )
        records = [client.Outgoing(TOPIC, 0, b"k", value.encode()) for _ in range(count)]
        try:
            return str(client.send(sender, records)[0][2])
        except KafkaException as exc:
            return str(exc.args[0].name())

    def begin(self, sending: Sending) -> None:
        """Send a batch as it is; if its broker leads, wait until it is appended, or answered."""
        assert self._sender is None
        broker = self._leader if sending.broker is None else sending.broker
        data = batch(sending.records_count, sending.identity, timestamp_ms=int(time.time() * 1000))
        before = self._log_end(broker)
        sender = self._sender = RawProducer(self._cluster.bootstrap_of(broker))
        sender.begin(TOPIC, 0, data, timeout_ms=sending.timeout_ms)
        assert _wait(lambda: sender.has_answer or self._log_end(broker) > before)

    def _log_end(self, broker: int) -> int:
        try:
            return offsets_of(self.log_dir(broker))[0]
        except EoctlError:  # it is not there yet, or being written
            return 0

    def answer(self) -> str:
        """Wait for the answer."""
        assert self._sender is not None
        with self._sender as sender:
            self._sender = None
            try:
                answer = sender.end()
            except ConnectionError:
                return NETWORK_EXCEPTION  # as Sender.handleProduceResponse of Kafka's client
        if answer.error_code:
            name = str(KafkaError(answer.error_code).name())
            return RENAMED.get(name, name)
        return str(answer.base_offset)

    def begin_transaction(self, value: str, count: int) -> str:
        """Send records in a new transaction; returns the offset of the first."""
        if self._session is None:
            self._session = client.transactional_producer(
                self._cluster.bootstrap,
                TRANSACTIONAL_ID,
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            )
        self._session.begin_transaction()
        records = [client.Outgoing(TOPIC, 0, b"k", value.encode()) for _ in range(count)]
        return str(client.send(self._session, records)[0][2])

    def end_transaction(self, *, is_commit: bool) -> None:
        """End it; it is decided when this returns."""
        assert self._session is not None
        end = self._session.commit_transaction if is_commit else self._session.abort_transaction
        end(WAIT_S)

    def read(self) -> str:
        """Count what a read_committed consumer is given."""
        reported = client.consume(
            self._cluster.bootstrap, TOPIC, 0, isolation=client.READ_COMMITTED
        )
        return f"read {len(reported.records)}"

    def act(self, action: str, target: str) -> None:
        """Do anything else."""
        if action == "set":
            self._set(*target.split("="))
        elif action == "elect":
            self._cluster.elect_uncleanly(TOPIC)
        elif action == "pause":
            self._pause(int(target))
        elif action == "resume":
            os.kill(self._cluster.nodes[int(target)].pid, signal.SIGCONT)
            self._paused.discard(int(target))
        else:
            getattr(self._cluster, action)(int(target))

    def _set(self, key: str, value: str) -> None:
        """Set it, and wait until each broker goes by it: they have taken what came after it."""
        self._marks += 1
        for name, text in ((key, value), (MARK, str(self._marks))):
            entry = ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
            admin = self._cluster.admin()  # its calls end when it goes
            (future,) = admin.incremental_alter_configs([resource]).values()
            future.result(WAIT_S)
        assert _wait(lambda: {*map(self._mark, self._running)} == {str(self._marks)})

    @property
    def _running(self) -> list[int]:
        return [each for each in BROKERS if each in self._cluster.running]

    def _mark(self, broker: int) -> str:
        admin = AdminClient(
            {"bootstrap.servers": self._cluster.bootstrap_of(broker), "log_level": 0}
        )
        asked = ConfigResource(ResourceType.TOPIC, TOPIC)
        (future,) = admin.describe_configs([asked]).values()
        return str(future.result(WAIT_S)[MARK].value)

    def _pause(self, broker: int) -> None:
        """Stop its process; what the leader appends from now on it is not given.

        A fetch that waits at the leader would be answered with it, into the connection: it is
        waited for until that was answered with nothing.
        """
        pid = self._cluster.nodes[broker].pid
        os.kill(pid, signal.SIGSTOP)
        self._paused.add(broker)
        port = self._cluster.ports[self._leader][0]
        _wait(lambda: _has_unread(pid, port), FETCHED_S)


def _wait(is_so: Callable[[], bool], timeout_s: float = 2 * WAIT_S) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.05)
    return True


def _has_unread(pid: int, port: int) -> bool:
    """Whether a process has something to read from a port of this machine."""
    own = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(str(each.readlink()))
        except OSError:
            continue
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            remote, queues, inode = words[2], words[4], words[9]
            is_there = int(remote.rpartition(":")[2], 16) == port and f"socket:[{inode}]" in own
            if is_there and int(queues.partition(":")[2], 16):
                return True
    return False
