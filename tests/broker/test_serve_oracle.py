"""`eoctl serve` answers every request as a real broker over the same directory, alive and dead."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer

from tests.kafka import client
from tests.kafka.broker import KEPT, Broker, copy_log_dir
from tests.serve_answers import ask, differences
from tests.serve_questions import Question, learn, questions
from tests.serving import SERVED_DIRS, Served, environment_for
from tests.wire import Wire, api_named, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kafka.fresh import FreshLogDir

pytestmark = pytest.mark.broker

TIMEOUT_S = 60.0
NOT_YET = 15  # COORDINATOR_NOT_AVAILABLE


def require_equal(asked: list[Question], theirs: list[dict[str, object]], served: Served) -> None:
    """Ask the same, and compare."""
    found = []
    with Wire(served.bootstrap) as ours:
        for question, answer in zip(asked, theirs, strict=True):
            found += differences(question, answer, ask(ours, question))
    by_field = {(each.api, each.field): each for each in found}
    assert not found, "\n".join(str(each)[:1000] for each in by_field.values())


def every_question(broker: Broker) -> tuple[list[Question], list[dict[str, object]]]:
    """All questions about what it has, and its answers."""
    with Wire(broker.bootstrap) as theirs:
        for kind in (0, 1):  # its own topics are made for whoever looks for a coordinator first
            theirs.ask("FindCoordinator", 1, {"key": "any", "keyType": kind})
        shared = {"keyType": 2, "coordinatorKeys": [f"any:{'A' * 22}:0"]}
        deadline_s = time.monotonic() + TIMEOUT_S
        while theirs.ask("FindCoordinator", 6, shared)["coordinators"][0]["errorCode"] == NOT_YET:
            assert time.monotonic() < deadline_s
            time.sleep(0.2)
        asked = list(questions(learn(theirs)))
        assert len(asked) > 1000
        return asked, [ask(theirs, each) for each in asked]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("archive", "names"), SERVED_DIRS)
def test_beside_a_broker(
    archive: str, names: tuple[str, ...], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """Both have the same files before them at the same time."""
    log_dirs = [copy_log_dir(golden(archive) / each, tmp_path / each) for each in names]
    with Broker(log_dirs, overrides=KEPT) as broker:
        asked, answers = every_question(broker)
        environment = environment_for(names, tmp_path)
        with Served(*log_dirs, "--internal", environment=environment) as served:
            require_equal(asked, answers, served)
            for bootstrap in (broker.bootstrap, served.bootstrap):
                require_cut_off(bootstrap)


def require_cut_off(bootstrap: str) -> None:
    """Records that are refused and want no answer end the connection: the others are answered."""
    record = {"index": 0, "records": b""}
    refused = {"name": "no-such-topic", "partitionData": [record]}
    for version, topics in product((3, 9), ([refused], [])):
        body = {"acks": 0, "timeoutMs": 1000, "topicData": topics}
        with Wire(bootstrap) as connection:
            connection.send(encoded(api_named("Produce"), version, body))
            try:
                connection.send(encoded(api_named("ApiVersions"), 0, {}))
                connection.receive()
            except (EOFError, ConnectionError):
                assert topics
            else:
                assert not topics


@pytest.mark.exhaustive
def test_after_it_was_killed(fresh_log_dir: FreshLogDir, tmp_path: Path) -> None:
    """With members in groups and a transaction open: what it answered last, and what it left."""
    log_dir = copy_log_dir(fresh_log_dir.clean, tmp_path / "log-dir")
    with ExitStack() as stack:
        broker = Broker(log_dir, overrides=KEPT)
        stack.callback(broker.close)
        broker.start()
        client.create_topics(broker.bootstrap, {"read": (4, {"max.message.bytes": "7777"})})
        set_quotas(broker.bootstrap)
        sender = client.transactional_producer(broker.bootstrap, "open-while-killed")
        for number in range(4):
            client.transact(sender, records(number, 30), commit=number % 2 == 0)
        sender.begin_transaction()
        client.send(sender, records(1, 10))
        for group, protocol, count in (("one", "classic", 1), ("three", "classic", 3), ("new", "consumer", 2)):  # fmt: skip
            stack.enter_context(members(broker.bootstrap, group, protocol, count))
        asked, answers = every_question(broker)
        broker.kill()
        with Served(log_dir, "--internal") as served:
            require_equal(asked, answers, served)


def set_quotas(bootstrap: str) -> None:
    """Of users, clients and addresses, named and not; one is taken back, one changed."""
    user, other, app = ("user", "alice"), ("user", None), ("client-id", "app")
    for entity, key, value in (
        ((user,), "producer_byte_rate", 1000.0), ((user,), "consumer_byte_rate", 2000.0),
        ((other,), "producer_byte_rate", 3000.0), ((user, app), "request_percentage", 12.5),
        ((other, ("client-id", None)), "request_percentage", 99.0),
        ((app,), "consumer_byte_rate", 5.0), ((("ip", None),), "connection_creation_rate", 7.0),
        ((("ip", "127.0.0.1"),), "connection_creation_rate", 8.0),
        ((user,), "producer_byte_rate", 1001.0), ((user,), "consumer_byte_rate", None),
        ((other,), "producer_byte_rate", None),
    ):  # fmt: skip
        names = [{"entityType": kind, "entityName": name} for kind, name in entity]
        change = {"key": key, "value": value or 0.0, "remove": value is None}
        body = {"entries": [{"entity": names, "ops": [change]}], "validateOnly": False}
        with Wire(bootstrap) as connection:
            (answered,) = connection.ask("AlterClientQuotas", 1, body)["entries"]
        assert answered["errorCode"] == 0, answered


def records(partition: int, count: int) -> Iterator[client.Outgoing]:
    """Some."""
    for number in range(count):
        yield client.Outgoing("read", partition, b"%d" % number, b"v" * 50)


@contextmanager
def members(bootstrap: str, group: str, protocol: str, count: int) -> Iterator[None]:
    """Consumers that share the partitions of a topic, and have committed; they stay."""
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol,
        "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0,
    }  # fmt: skip
    consumers = []
    try:
        for number in range(count):
            consumers.append(Consumer({**settings, "client.id": f"{group}-{number}"}))
            consumers[-1].subscribe(["read"])
        deadline_s = time.monotonic() + TIMEOUT_S
        settled = 0
        while settled < 3:  # looks, one after the other
            assert time.monotonic() < deadline_s, f"{group} came to no rest"
            read = [each.poll(0.3) for each in consumers]
            counts = [len(each.assignment()) for each in consumers]
            settled = settled + 1 if sum(counts) == 4 and all(counts) else 0
            for each, message in zip(consumers, read, strict=True):
                if settled and message is not None and message.error() is None:
                    each.commit(message=message, asynchronous=False)
        yield
    finally:
        for each in consumers:
            each.close()
