"""Offsets that `eoctl groups` exports and imports, against a broker and Kafka's own tool."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer

from recovery.groups.offset_files import csv_line
from tests import groups
from tests.changes import rows_of
from tests.kafka import client, jars
from tests.kafka.broker import Broker, copy_log_dir
from tests.kafka.group_tool import consumer_groups, output_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive]

WAIT_S = 60.0
DAY_MS = 86_400_000
COUNTS = {("t", 0): 30, ("t", 1): 20, ("u", 0): 10}
HOSTILE = ["a,b", 'say "hi"', "אב\u202e", "g" * 249, " a ", "{", "two\nlines", "a\\b", "a\rb"]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log dir with records and two groups, one of which has had a member."""
    root = tmp_path_factory.mktemp("moved")
    with Broker(root / "live") as broker:
        client.create_topics(broker.bootstrap, {"t": (2, {}), "u": (1, {})})
        sender = client.producer(broker.bootstrap)
        for (topic, number), count in COUNTS.items():
            client.send(
                sender,
                (client.Outgoing(topic, number, None, b"%d" % n) for n in range(count)),
            )
        client.commit_offsets(broker.bootstrap, "plain", {("t", 0): 7, ("u", 0): 0})
        client.join_group(broker.bootstrap, "had-members", "t")
    return root / "live"


def lines_of(path: Path, offsets: dict[tuple[str, str, int], int]) -> Path:
    text = "".join(csv_line(*place, offset) + "\n" for place, offset in offsets.items())
    path.write_text(text, newline="")
    return path


def bring(eoctl: Cli, log_dir: Path, source: Path, *arguments: object) -> None:
    outcome = eoctl("groups", "import", log_dir, "--from", source, *arguments, "--apply")
    assert outcome.status == 0, outcome.errors


def first_read(broker: Broker, group: str, topic: str, number: int) -> int:
    """Where a consumer of the group goes on: the offset of the first record that it is given."""
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False,
        "auto.offset.reset": "error", "log_level": 0,
    })  # fmt: skip
    try:
        consumer.subscribe([topic])
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None and message.partition() == number:
                return int(message.offset() or 0)
        raise TimeoutError(f"{group} was given nothing of {topic}-{number}")
    finally:
        consumer.close()


def test_a_broker_has_what_was_imported(stopped: Path, tmp_path: Path, eoctl: Cli) -> None:
    """As its own tool describes it, as clients are answered, and where a consumer goes on."""
    log_dir = copy_log_dir(stopped, tmp_path / "log-dir")
    wanted = {
        ("new", "t", 0): 11, ("new", "t", 1): 20, ("plain", "t", 0): 3, ("plain", "t", 1): 19,
        ("had-members", "t", 0): 29, **{(name, "u", 0): 4 for name in HOSTILE},
    }  # fmt: skip
    bring(eoctl, log_dir, lines_of(tmp_path / "in.csv", wanted))
    assert eoctl("check", log_dir, "--deep").status == 0
    with Broker(log_dir) as broker:
        theirs = consumer_groups(
            broker, "--describe",
            *(word for name in ("new", "plain", "had-members") for word in ("--group", name)),
        )  # fmt: skip
        found = {
            (each["GROUP"], each["TOPIC"], int(each["PARTITION"])): int(each["CURRENT-OFFSET"])
            for each in theirs
        }
        for name in HOSTILE:
            found[name, "u", 0] = client.committed_offset(broker.bootstrap, name, "u", 0)
        # A client of librdkafka cuts spaces off its group.id.
        (spaced,) = consumer_groups(broker, "--describe", "--group", " a ")
        found[" a ", "u", 0] = int(spaced["CURRENT-OFFSET"])
        assert found == {**wanted, ("plain", "u", 0): 0, ("had-members", "t", 1): 20}
        assert first_read(broker, "new", "t", 0) == 11
        assert first_read(broker, "had-members", "t", 0) == 29
        assert first_read(broker, HOSTILE[0], "u", 0) == 4
        assert not broker.error_lines()


def test_kafkas_tool_takes_what_is_exported(stopped: Path, tmp_path: Path, eoctl: Cli) -> None:
    """Of one group and of several; what it has set is what was exported, and exports the same."""
    one, other = (copy_log_dir(stopped, tmp_path / name) for name in ("one", "other"))
    wanted = {("a b", "t", 0): 11, ('say "hi"', "t", 1): 5, ("plain", "t", 0): 3,
              ("plain", "u", 0): 9, ("c,d", "t", 0): 8}  # fmt: skip
    bring(eoctl, one, lines_of(tmp_path / "in.csv", wanted))
    several, single = tmp_path / "several.csv", tmp_path / "single.csv"
    assert eoctl("groups", "export", one, "--to", several).status == 0
    call = ("groups", "export", one, "--group", "plain", "--no-group-column", "--to", single)
    assert eoctl(*call).status == 0
    names = [word for name in sorted({key[0] for key in wanted}) for word in ("--group", name)]
    reset = ("--reset-offsets", "--from-file")
    with Broker(other) as broker:
        planned = consumer_groups(broker, *reset, single, "--group", "plain", "--dry-run")
        assert {(each["TOPIC"], each["PARTITION"], each["NEW-OFFSET"]) for each in planned} == {
            ("t", "0", "3"), ("u", "0", "9")
        }  # fmt: skip
        consumer_groups(broker, *reset, several, *names, "--execute")
        for (group, topic, number), offset in wanted.items():
            assert client.committed_offset(broker.bootstrap, group, topic, number) == offset
    chosen = [*names, "-o", "jsonl"]
    ours, theirs = (
        rows_of(eoctl("groups", "export", each, *chosen), "group_offset") for each in (one, other)
    )
    assert [_without_time(each) for each in ours] == [_without_time(each) for each in theirs]


def _without_time(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "commit_timestamp_ms"}


def test_the_tools_export_is_imported(stopped: Path, tmp_path: Path, eoctl: Cli) -> None:
    """What `kafka-consumer-groups --export` prints, head and empty lines and all."""
    log_dir = copy_log_dir(stopped, tmp_path / "log-dir")
    with Broker(log_dir) as broker:
        text = output_of(
            broker, "--reset-offsets", "--export", "--dry-run", "--to-offset", "5",
            "--group", "plain", "--group", "had-members", "--topic", "t",
        )  # fmt: skip
    source = tmp_path / "theirs.csv"
    source.write_text(text)
    bring(eoctl, log_dir, source)
    outcome = eoctl("groups", "export", log_dir, "--topic", "t")
    assert sorted(outcome.text.split()) == sorted(text.split())


def test_offsets_outlive_the_time_since_which_a_group_is_empty(
    stopped: Path, tmp_path: Path, eoctl: Cli
) -> None:
    """A group that was emptied a month ago keeps what is imported; without its record it loses it."""
    log_dir = copy_log_dir(stopped, tmp_path / "log-dir")
    now_ms = int(time.time() * 1000)
    emptied = {
        "protocolType": "consumer", "generation": 3, "protocol": None, "leader": None,
        "currentStateTimestamp": now_ms - 30 * DAY_MS, "members": [],
    }  # fmt: skip
    for name in ("kept", "lost"):
        groups.record(log_dir, 2, {"group": name}, emptied, version=3)
    groups.commit(log_dir, "lost", "t", 0, 4, time_ms=now_ms)
    bring(eoctl, log_dir, lines_of(tmp_path / "in.csv", {("kept", "t", 0): 4}))
    overrides = {"offsets.retention.check.interval.ms": "500"}
    with Broker(log_dir, overrides=overrides) as broker:
        deadline_s = time.monotonic() + WAIT_S
        while client.committed_offset(broker.bootstrap, "lost", "t", 0) == 4:
            assert time.monotonic() < deadline_s
            time.sleep(0.2)
        time.sleep(2)
        assert client.committed_offset(broker.bootstrap, "kept", "t", 0) == 4


def left_of(broker: Broker, group: str, topic: str, count: int) -> dict[int, list[bytes]]:
    """What a consumer of the group is given of each partition: so many records, and no more."""
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False,
        "auto.offset.reset": "error", "log_level": 0, "isolation.level": "read_committed",
    })  # fmt: skip
    found: dict[int, list[bytes]] = {}
    try:
        consumer.subscribe([topic])
        deadline_s = time.monotonic() + WAIT_S
        grace_s = 0.0
        while time.monotonic() < (grace_s or deadline_s):
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.setdefault(message.partition() or 0, []).append(message.value() or b"")
            if not grace_s and sum(map(len, found.values())) >= count:
                grace_s = time.monotonic() + 2
        return found
    finally:
        consumer.close()


def test_groups_go_on_in_a_copy_of_another_cluster(tmp_path: Path, eoctl: Cli) -> None:
    """A new cluster with copies: each group is given exactly what it had not consumed."""
    source, target = tmp_path / "source", tmp_path / "target"
    with Broker(source) as broker:
        client.create_topics(broker.bootstrap, {"t": (2, {})})
        transactional = client.transactional_producer(broker.bootstrap, "tid")
        for number in range(24):
            records = (
                client.Outgoing("t", number % 2, None, b"%d-%d" % (number, n)) for n in range(3)
            )
            client.transact(transactional, records, commit=number % 5 != 1)
        given = {
            number: client.consume(broker.bootstrap, "t", number, isolation=client.READ_COMMITTED)
            for number in range(2)
        }
        wanted: dict[str, dict[int, int]] = {}
        for index in (0, 1, 10, 15):
            offsets = {
                n: given[n].records[min(index, len(given[n].records) - 1)].offset for n in given
            }
            wanted[f"group-{index}"] = offsets
        wanted["at-the-end"] = {n: each.end_offset for n, each in given.items()}
        for group, offsets in wanted.items():
            client.commit_offsets(
                broker.bootstrap, group, {("t", n): offset for n, offset in offsets.items()}
            )
    assert (
        eoctl(
            "init", target, "--topic", "t:2", "--broker-version", jars.release(), "--apply"
        ).status
        == 0
    )
    for number in range(2):
        call = ("copy", source / f"t-{number}", target / f"t-{number}", "--isolation",
                "read_committed", "--apply")  # fmt: skip
        assert eoctl(*call).status == 0
    lines = tmp_path / "offsets.csv"
    outcome = eoctl("groups", "translate", source, "--copy", target, "--to", lines)
    assert outcome.status == 0, outcome.errors
    assert "10 offsets translated: 10 exact" in outcome.errors
    bring(eoctl, target, lines)
    with Broker(target) as broker:
        for group, offsets in wanted.items():
            rest = {
                n: [each.value for each in given[n].records if each.offset >= offset]
                for n, offset in offsets.items()
            }
            rest = {n: values for n, values in rest.items() if values}
            count = sum(map(len, rest.values()))
            assert left_of(broker, group, "t", count) == rest, group
        described = consumer_groups(broker, "--describe", "--group", "at-the-end")
        assert {each["LAG"] for each in described} == {"0"}
        assert not broker.error_lines()
