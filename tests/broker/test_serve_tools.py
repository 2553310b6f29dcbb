"""Kafka's own tools print the same of `eoctl serve` as of a broker over the same directory."""

from __future__ import annotations

import json
import re
from difflib import unified_diff
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from storage.dirs.topic_settings import SETTINGS_SINCE
from tests.drawn import drawn
from tests.kafka import client, tools
from tests.kafka.broker import KEPT, Broker, copy_log_dir
from tests.kafka.coordinator_answers import has_compiler
from tests.kafka.tools import Tools
from tests.serve_answers import DAY_MS
from tests.serving import SERVED_DIRS, Served, environment_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(not has_compiler(), reason="this Java has no compiler"),
]

# Without settings of topics in its server.properties, which no directory has; and so that it
# deletes nothing by their defaults.
AS_IN_FILES = {
    **KEPT,
    "log.retention.ms": "",
    "log.index.size.max.bytes": "",
    "log.initial.task.delay.ms": "36000000",
}
TIMES = (-1, -2, -3, -4, -5, "latest", "earliest", "max-timestamp", 1, 1_500_000_000_000)
CLOCKS = {"TransactionDurationMs", "Duration(min)"}  # columns
TIME = "LastTimestamp"  # a column
SHOWN = ("offset", "partition", "timestamp", "key", "headers", "epoch")
FORMAT = [
    each
    for name in (*(f"print.{name}=true" for name in SHOWN), "line.separator=<END>")
    for each in ("--formatter-property", name)
]
GROUP = "of-the-console"
WAIT_MS = 60_000


class Call(NamedTuple):
    """A tool and its arguments, but for where the broker is."""

    tool: str
    arguments: tuple[object, ...] = ()


class Known(NamedTuple):
    """What a broker has, as librdkafka and a tool of Kafka's see it."""

    topics: Mapping[str, int]
    counts: Mapping[tuple[str, str], int]  # records by topic and isolation level
    transactional_ids: list[str]
    places: list[tuple[str, int, int]]  # topic, partition, an offset with a record


def learn(broker: Broker, running: Tools) -> Known:
    """Look what there is to be asked for."""
    found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics
    topics = {name: len(each.partitions) for name, each in sorted(found.items())}
    counts, places = {}, []
    for name in [each for each in topics if not each.startswith("__")]:
        for isolation in (client.READ_COMMITTED, client.READ_UNCOMMITTED):
            read = [
                client.consume(broker.bootstrap, name, number, isolation=isolation).records
                for number in range(topics[name])
            ]
            counts[name, isolation] = sum(map(len, read))
            places += [(name, number, each[0].offset) for number, each in enumerate(read) if each]
    listed = running.run(tools.TRANSACTIONS, "--bootstrap-server", broker.bootstrap, "list").printed
    ids = [line.split("\t")[0].strip() for line in listed.splitlines()[1:] if line]
    assert ids
    return Known(topics, counts, ids, places)


def calls(known: Known) -> Iterator[Call]:
    """All that is asked."""
    yield from offsets_and_topics(known)
    yield from groups_and_transactions(known)
    yield from settings_and_directories(known)
    yield from records(known)


def offsets_and_topics(known: Known) -> Iterator[Call]:
    """kafka-get-offsets, kafka-topics."""
    yield Call(tools.GET_OFFSETS)
    times = {1_600_000_000_000 + each for each in (0, 100_000_000_000)}
    for when in (*TIMES, *sorted(times)):
        yield Call(tools.GET_OFFSETS, ("--time", when))
    yield Call(tools.GET_OFFSETS, ("--exclude-internal-topics",))
    yield Call(tools.GET_OFFSETS, ("--topic-partitions", "txn:0-1,pl.*:0"))
    yield Call(tools.GET_OFFSETS, ("--topic", "nowhere"))
    for more in (
        (),
        ("--topic", "nowhere"),
        *(("--topic", each) for each in drawn(known.topics, 3)),
    ):
        yield Call(tools.TOPICS, ("--describe", *more))
    for option in (
        "--exclude-internal", "--under-replicated-partitions", "--unavailable-partitions",
        "--topics-with-overrides", "--at-min-isr-partitions", "--under-min-isr-partitions",
    ):  # fmt: skip
        yield Call(tools.TOPICS, ("--describe", option))
    yield Call(tools.TOPICS, ("--list",))


def groups_and_transactions(known: Known) -> Iterator[Call]:
    """kafka-consumer-groups, kafka-groups, kafka-transactions."""
    for options in ((), ("--offsets", "--verbose"), ("--state",), ("--state", "--verbose"), ("--members",), ("--members", "--verbose")):  # fmt: skip
        yield Call(tools.CONSUMER_GROUPS, ("--describe", "--all-groups", *options))
        yield Call(tools.CONSUMER_GROUPS, ("--describe", "--group", "nobody", *options))
    yield Call(tools.CONSUMER_GROUPS, ("--list",))
    yield Call(tools.CONSUMER_GROUPS, ("--list", "--state", "--type"))
    yield Call(tools.CONSUMER_GROUPS, ("--list", "--state", "Stable"))
    yield Call(tools.GROUPS, ("--list",))
    yield Call(tools.TRANSACTIONS, ("list",))
    yield Call(tools.TRANSACTIONS, ("list", "--duration-filter", 1000))
    for each in (*known.transactional_ids, "nobody"):
        yield Call(tools.TRANSACTIONS, ("describe", "--transactional-id", each))
    for topic, count in known.topics.items():
        for number in range(count):
            place = ("--topic", topic, "--partition", number)
            yield Call(tools.TRANSACTIONS, ("describe-producers", *place))
    yield Call(tools.TRANSACTIONS, ("describe-producers", *place, "--broker-id", 1))
    yield Call(tools.TRANSACTIONS, ("find-hanging", "--broker-id", 1))
    yield Call(tools.TRANSACTIONS, ("find-hanging", "--broker-id", 1, "--max-transaction-timeout", 1))  # fmt: skip
    yield Call(tools.TRANSACTIONS, ("find-hanging", "--topic", "txn"))
    yield Call(tools.TRANSACTIONS, ("find-hanging", "--topic", "txn", "--partition", 1))


def settings_and_directories(known: Known) -> Iterator[Call]:
    """kafka-configs, kafka-log-dirs."""
    yield Call(tools.CONFIGS, ("--describe", "--entity-type", "topics"))
    for topic in drawn(known.topics, 4):
        named = ("--describe", "--entity-type", "topics", "--entity-name", topic)
        yield Call(tools.CONFIGS, named)
        yield Call(tools.CONFIGS, (*named, "--all"))
    yield Call(tools.CONFIGS, ("--describe", "--topic", "nowhere"))
    yield Call(tools.CONFIGS, ("--describe", "--broker", "1"))
    yield Call(tools.CONFIGS, ("--describe", "--broker", "7"))
    yield Call(tools.CONFIGS, ("--describe", "--broker-defaults"))
    for kind in ("brokers", "groups", "client-metrics", "clients", "ips"):
        yield Call(tools.CONFIGS, ("--describe", "--entity-type", kind))
    yield Call(tools.LOG_DIRS, ("--describe",))
    yield Call(tools.LOG_DIRS, ("--describe", "--topic-list", "txn,plain", "--broker-list", 1))
    yield Call(tools.LOG_DIRS, ("--describe", "--broker-list", 7))


def records(known: Known) -> Iterator[Call]:
    """kafka-console-consumer; it is told how many records there are, to end by itself."""
    some = [
        each for each, level in known.counts if level == client.READ_COMMITTED and each != "txn"
    ]
    some = [each for each in some if known.counts[each, client.READ_COMMITTED]]
    for isolation in (client.READ_COMMITTED, client.READ_UNCOMMITTED):
        common = ("--isolation-level", isolation, "--timeout-ms", WAIT_MS, *FORMAT)
        for topic in ("txn", *drawn(some, 2, isolation)):
            ending = ("--from-beginning", "--max-messages", known.counts[topic, isolation])
            group = ("--group", f"{GROUP}-{topic}-{isolation}")
            yield Call(tools.CONSOLE_CONSUMER, ("--topic", topic, *ending, *group, *common))
    yield Call(tools.CONSOLE_CONSUMER, ("--topic", "plain", "--from-beginning", "--max-messages", known.counts["plain", client.READ_UNCOMMITTED], "--group", GROUP, *FORMAT))  # fmt: skip
    yield Call(tools.CONSUMER_GROUPS, ("--describe", "--group", GROUP))
    yield Call(tools.CONSUMER_GROUPS, ("--describe", "--group", GROUP, "--state"))
    for topic, number, offset in drawn(known.places, 2):
        place = ("--topic", topic, "--partition", number, "--offset", offset)
        yield Call(tools.CONSOLE_CONSUMER, (*place, "--max-messages", 1, *FORMAT))


def answer(running: Tools, call: Call, bootstrap: str, log_dirs: list[Path]) -> list[object]:
    """What a tool prints of one of the two, what it says, and its status."""
    found = running.run(call.tool, "--bootstrap-server", bootstrap, *call.arguments)
    shown = [reported(call, each, bootstrap, log_dirs) for each in (found.printed, found.said)]
    return [*shown[0], *shown[1], found.status]


def reported(call: Call, printed: str, bootstrap: str, log_dirs: list[Path]) -> list[object]:
    """What a tool says, without clocks, addresses, and an order that none has."""
    text = printed.replace(bootstrap, "BROKER").replace(bootstrap.partition(":")[2], "PORT")
    for number, each in enumerate(log_dirs):
        text = text.replace(str(each), f"DIR-{number}")
    if call.tool == tools.CONSOLE_CONSUMER:
        return [*sorted(text.split("<END>"))]
    if call.tool == tools.LOG_DIRS:
        return [_in_order(json.loads(line)) if line[:1] == "{" else line for line in text.splitlines()]  # fmt: skip
    if call.tool == tools.TRANSACTIONS:
        return [*rows_reported(text)]
    # Defaults of groups are in Kafka's program only.
    text = re.sub(r"(?<=DYNAMIC_GROUP_CONFIG)(\S+), DEFAULT_CONFIG:\S+(?=})", r"\1", text)
    # A broker of an older release does not have these settings, and serve is as the newest one.
    names = "|".join(re.escape(name) for name, since in SETTINGS_SINCE.items() if since >= (4, 4))
    text = re.sub(rf"\n[ \t]+(?:{names})=\S* sensitive=.*", "", text)
    text = re.sub(r"(?<=Configs: )\S+", lambda each: ",".join(sorted(each[0].split(","))), text)
    # What is said of one thing is a line, and others below that are indented.
    return sorted(re.sub(r"\s*\n[ \t]+", "\t", text).splitlines())


def rows_reported(text: str) -> list[list[str]]:
    """The rows of a table with tabs, without those of producers that a broker may have forgotten."""
    lines = [[cell.strip() for cell in line.split("\t")] for line in text.splitlines()]
    if not lines or len(lines[0]) == 1:
        return lines
    rows = [dict(zip(lines[0], each, strict=True)) for each in lines[1:]]
    newest_ms = max((int(each.get(TIME, 0)) for each in rows), default=0)
    kept = [each for each in rows if int(each.get(TIME, newest_ms)) > newest_ms - DAY_MS]
    return sorted([value for name, value in each.items() if name not in CLOCKS] for each in kept)


def _in_order(value: object) -> object:
    if isinstance(value, dict):
        return {key: _in_order(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted(map(_in_order, value), key=repr)
    return value


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize(("archive", "names"), SERVED_DIRS)
def test_they_print_the_same(
    archive: str, names: tuple[str, ...], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """A broker was started on a copy of what is served."""
    dead = [golden(archive) / each for each in names]
    copies = [copy_log_dir(each, tmp_path / each.name) for each in dead]
    different: dict[Call, list[str]] = {}
    with (
        Tools() as running,
        Broker(copies, overrides=AS_IN_FILES) as broker,
        Served(*dead, "--internal", environment=environment_for(names, tmp_path)) as served,
    ):
        known = learn(broker, running)
        for call in calls(known):
            # A broker may still be removing the member of a consumer that has ended: ask again then.
            for _ in range(3):
                theirs, ours = (
                    answer(running, call, bootstrap, log_dirs)
                    for bootstrap, log_dirs in (
                        (broker.bootstrap, copies),
                        (served.bootstrap, dead),
                    )
                )
                if theirs == ours:
                    break
            else:
                one, other = ([repr(line) for line in each] for each in (theirs, ours))
                different[call] = [*unified_diff(one, other, "broker", "serve", n=0, lineterm="")]
    assert not different, "\n\n".join(
        f"{' '.join(map(str, call.arguments))}\n" + "\n".join(line[:300] for line in lines[:12])
        for call, lines in different.items()
    )
