"""Ways in which brokers of a real cluster die, and what comes of each order of starting them.

Of every topic the replicas are 0, 1, 2 in this order, and broker 2 died first of all: when the
deaths begin, 0 leads and the ISR is 0, 1.

    with die(root, "0 then 1", elr=True) as dead:
        dead.copy(there)                            # log dirs as they were left
    answers = bring_back(there, Order((1, 0, 2)))   # what real brokers make of them

What is written in between: `z` to three brokers, `a` to 0 and 1, both with acks=all. Where 1
outlives 0: `x` with acks=all, which is refused by topics that need two, and `b` with acks=1.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from eoctl.lab.environment.settings import CONTROLLER_ID
from tests.kafka import client
from tests.kafka.client import Outgoing
from tests.kafka.cluster import Cluster, PartitionSeen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REPLICAS = (0, 1, 2)
TOPICS = {
    "two": {"min.insync.replicas": "2"},
    "two-unclean": {"min.insync.replicas": "2", "unclean.leader.election.enable": "true"},
    "one": {"min.insync.replicas": "1"},
}
# Of "0 then 1" both are dead; by "both at once" the controller dies with them, and has noticed
# nothing; in "0 then 1 stopped" they were stopped cleanly.
ONE, IN_TURN, AT_ONCE, STOPPED = DEATHS = ("0", "0 then 1", "both at once", "0 then 1 stopped")
CHECKPOINTS_S = 1.5  # high watermarks are written every second
_SETTLED_S = 1.5  # an election, or a change of the ISR, is known to all brokers much sooner
_JOINED_S, _READ_S = 15.0, 90.0


def send(cluster: Cluster, topic: str, letter: str, acks: str, count: int = 5) -> str:
    """Send values `letter`0, `letter`1, ...; "" or the name of the error."""
    sender = client.producer(cluster.bootstrap, acks=acks, retries=0, message_timeout_ms=8000)
    values = (f"{letter}{number}".encode() for number in range(count))
    try:
        client.send(sender, [Outgoing(topic, 0, None, value) for value in values])
    except KafkaException as exc:
        return str(exc.args[0].name())
    return ""


def begin(cluster: Cluster) -> Cluster:
    """Start it and write `z`; then 2 dies, and 0 and 1 acknowledge `a`.

    After an error nothing of it runs any more.
    """
    try:
        cluster.start()
        for topic, settings in TOPICS.items():
            cluster.create_topic(topic, [REPLICAS], settings)
            assert not send(cluster, topic, "z", "all")
        cluster.kill(2)
        for topic in TOPICS:
            cluster.wait_for(topic, leader=0, isr={0, 1})
            assert not send(cluster, topic, "a", "all")
        time.sleep(CHECKPOINTS_S)
    except BaseException:
        cluster.close()
        raise
    return cluster


def die(root: Path, death: str, *, elr: bool) -> Cluster:
    """Start a cluster of three brokers and a controller, write, and let brokers die.

    Of it broker 1 and the controller run after the death of 0 alone, and nobody after others.
    """
    cluster = begin(Cluster(root, elr=elr))
    try:
        _let_die(cluster, death)
    except BaseException:
        cluster.close()
        raise
    return cluster


def _let_die(cluster: Cluster, death: str) -> None:
    if death == AT_ONCE:  # and the controller with them: nobody notes in which order
        cluster.kill(0, 1, CONTROLLER_ID)
        return
    end = cluster.stop if death == STOPPED else cluster.kill
    end(0)
    for topic, settings in TOPICS.items():
        cluster.wait_for(topic, leader=1, isr={1})
        refused = send(cluster, topic, "x", "all")
        expected = "NOT_ENOUGH_REPLICAS" if settings["min.insync.replicas"] == "2" else ""
        assert refused == expected, (topic, refused)
        assert not send(cluster, topic, "b", "1")
    if death == ONE:
        return
    time.sleep(CHECKPOINTS_S)
    end(1)
    time.sleep(5)  # the controller misses it, and nobody can be asked
    cluster.kill(CONTROLLER_ID)


class Order(NamedTuple):
    """Brokers as they are started.

    Attributes:
        asked_after: how many have been started when an unclean election is asked for of each topic
            that nobody leads; None: it never is.
    """

    brokers: tuple[int, ...]
    asked_after: int | None = None


class Seen(NamedTuple):
    """A topic, once one more broker was started: as clients see it.

    Attributes:
        step: how many were started.
        leader: -1 nobody.
        values: that a consumer gets; None: it gets nothing, as nobody leads.
        refusal: of acks=all; "": it is accepted. None: nobody leads.
    """

    step: int
    topic: str
    leader: int
    isr: tuple[int, ...]
    values: tuple[str, ...] | None
    refusal: str | None


def bring_back(root: Path, order: Order) -> list[Seen]:
    """Start the controller over what dead nodes left, wait for it, then brokers one by one."""
    cluster = Cluster(root)
    try:
        cluster.start(CONTROLLER_ID)
        time.sleep(4)  # the sessions of brokers that it does not know to be dead
        return start_in(cluster, order)
    finally:
        cluster.close()


def start_in(cluster: Cluster, order: Order) -> list[Seen]:
    """Start brokers one by one, and look after each start."""
    found: list[Seen] = []
    for step, broker in enumerate(order.brokers, start=1):
        cluster.start(broker)
        if order.asked_after == step:
            for topic in TOPICS:
                if _settled(cluster, topic).leader < 0:
                    cluster.elect_uncleanly(topic)
        found += observe(cluster, step)
    return found


def observe(cluster: Cluster, step: int) -> Iterator[Seen]:
    """Wait until nothing changes any more, and look at each topic."""
    for topic in TOPICS:
        seen = _settled(cluster, topic)
        values = refusal = None
        if seen.leader >= 0:
            refusal = send(cluster, topic, "w", "all", 1)
            values = tuple(_values(cluster, topic))
        yield Seen(step, topic, seen.leader, tuple(sorted(seen.isr)), values, refusal)


def _values(cluster: Cluster, topic: str) -> Iterator[str]:
    """What a consumer gets from the beginning to the high watermark, but for our `w`.

    It does not ask where the log ends: a leader that has not found out yet, or cannot while the ISR
    is too small, does not say.
    """
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap, "group.id": "deaths", "log_level": 0,
        "enable.auto.commit": False, "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
    })  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        deadline_s = time.monotonic() + _READ_S
        while time.monotonic() < deadline_s:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if (error := message.error()) is None:
                value = (message.value() or b"").decode()
                if not value.startswith("w"):
                    yield value
            elif error.code() == KafkaError._PARTITION_EOF:
                return
        raise TimeoutError(f"{topic} was not read to its end")
    finally:
        consumer.close()


def _settled(cluster: Cluster, topic: str) -> PartitionSeen:
    up = {*cluster.running} & {*REPLICAS}
    begun_s = time.monotonic()
    last: PartitionSeen | None = None
    since_s = begun_s
    while True:
        reported = {*cluster.seen(topic).values()}
        found = reported.pop() if len(reported) == 1 else None
        now_s = time.monotonic()
        if found is None or found != last:
            last, since_s = found, now_s
        elif now_s - since_s > _SETTLED_S:
            waits = found.leader >= 0 and found.isr != up and now_s - begun_s < _JOINED_S
            if not waits:
                return found
        time.sleep(0.1)
