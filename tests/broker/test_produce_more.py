"""Transactions and whole topics from `eoctl produce`, under a real broker and a real client.

A broker makes the topics and is stopped; its own partition is appended to, by a client and by
eoctl in turn; the next broker is killed, and everything else is written over what it left. The last
one recovers all of it, and a client reads exactly what the inputs say.
"""

from __future__ import annotations

import base64
import json
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.kafka import client
from tests.kafka.broker import Broker
from tests.kafka.equal_dumps import require_equal_dumps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

pytestmark = pytest.mark.broker

INDEX_MAX_BYTES = 16_384  # what the harness gives its brokers
KEYS = [b"k%d" % n * (n % 9) for n in range(40)]
CODECS = ("gzip", "snappy", "lz4", "zstd")
DAY_MS = 86_400_000
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "where": (2, {}),
    "version-1": (2, {}),
    "version-2": (2, {}),
    "rolled": (1, {"index.interval.bytes": "512"}),
    "own": (1, {}),
    "killed": (1, {}),
    "json": (1, {"retention.ms": "-1"}),
    **{f"codec-{name}": (1, {}) for name in CODECS},
}


class Sent(NamedTuple):
    """A record of an input; `timestamp_ms` None: the clock's."""

    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


class Transactions(NamedTuple):
    """How many records each has, and which one of so many is aborted."""

    records: int
    abort_every: int
    version: int = 2

    def options(self) -> list[object]:
        return [
            *("--txn-records", self.records),
            *("--abort-every", self.abort_every),
            *("--transaction-version", self.version),
        ]

    def commits(self, number: int) -> bool:
        """Whether the transaction of a record is committed."""
        return (number // self.records + 1) % self.abort_every != 0


class Input(NamedTuple):
    """All that was sent to a topic, in order."""

    topic: str
    records: list[Sent]
    transactions: Transactions


class Produced(NamedTuple):
    """A log dir to which eoctl has appended.

    Attributes:
        partition_of: where a real client put a key, of two partitions.
        before: what a real client and its transactions left, by topic, in partition 0.
        first_offsets: of what was appended, by topic and partition.
        times_ms: when that was.
    """

    log_dir: Path
    inputs: list[Input]
    partition_of: dict[bytes, int]
    before: dict[str, list[client.Incoming]]
    first_offsets: dict[tuple[str, int], int]
    times_ms: range


# --- what is sent ---------------------------------------------------------------------------------


def value(number: int) -> bytes:
    """A value that tells its number; bytes that are not UTF-8 among them, none a line end."""
    return b"%d \xff\x00" % number + b"x" * (number * 7 % 300)


def keyed(count: int) -> list[Sent]:
    """Records with keys, and every third without."""
    keys = [None if n % 3 == 0 else KEYS[n % len(KEYS)] for n in range(count)]
    return [Sent(key, value(n)) for n, key in enumerate(keys)]


def plain(count: int) -> list[Sent]:
    return [Sent(None, value(n)) for n in range(count)]


def decorated(count: int, now_ms: int) -> list[Sent]:
    """Headers with every kind of value, and timestamps of some days."""
    values = (None, b"", b"\xff\xfe", "Größe".encode())
    return [
        Sent(
            None if n % 2 else b"",
            value(n),
            tuple((f"h{i}", values[(n + i) % len(values)]) for i in range(n % 4)),
            None if n % 5 == 0 else now_ms - n * 7919 % (3 * DAY_MS),
        )
        for n in range(count)
    ]


def as_lines(records: list[Sent], separator: bytes | None = None) -> bytes:
    if separator is None:
        return b"".join(each.value + b"\n" for each in records)
    return b"".join((each.key or b"") + separator + each.value + b"\n" for each in records)


def as_json_lines(records: list[Sent]) -> bytes:
    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    rows = [
        {
            "key": text(each.key),
            "value": text(each.value),
            "headers": [[name, text(data)] for name, data in each.headers],
            **({} if each.timestamp_ms is None else {"timestamp_ms": each.timestamp_ms}),
        }
        for each in records
    ]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _without(names: set[str], rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: row[name] for name in row if name not in names} for row in rows]


JSON = ("--format", "jsonl", "--bytes", "base64")


# --- the directory --------------------------------------------------------------------------------


@pytest.fixture
def produced(eoctl: Callable[..., Outcome], tmp_path: Path) -> Produced:
    """Topics of a broker that was killed, and all the inputs in them."""
    log_dir, file, session = tmp_path / "log-dir", tmp_path / "input", tmp_path / "session"
    inputs: list[Input] = []
    first_offsets: dict[tuple[str, int], int] = {}
    recovered: set[str] = set()
    before: dict[str, list[client.Incoming]] = {}
    started_ms = int(time.time() * 1000)

    def add(
        topic: str,
        data: bytes,
        records: list[Sent],
        transactions: Transactions,
        *more: object,
    ) -> None:
        """Append an input, as its plan says."""
        file.write_bytes(data)
        count, _ = TOPICS[topic]
        place = (
            [log_dir, file, "--to-topic", topic] if count > 1 else [log_dir / f"{topic}-0", file]
        )
        options = (*transactions.options(), "--index-max-bytes", INDEX_MAX_BYTES, *more)
        # The first run of a session draws its producer id, and with it where records without key go.
        draws_id = "--producer-session" in more and not session.exists()
        plan = eoctl("produce", *place, *options, "--output", "jsonl")
        done = eoctl("produce", *place, *options, "--output", "jsonl", "--apply")
        assert (plan.status, done.status) == (0, 0), done.errors
        rows = [json.loads(each) for each in done.text.splitlines()]
        appended = [each for each in rows if each["kind"] == "append"]
        if not draws_id:
            planned = [json.loads(each) for each in plan.text.splitlines()]
            wanted = [{**each, "applied": True} for each in planned if each["kind"] == "append"]
            # A time of its own takes more bytes the further it is from now, which others have.
            is_now = {each.timestamp_ms is None for each in records}
            varying = {"bytes"} if len(is_now) > 1 else set()
            assert _without(varying, wanted) == _without(varying, appended)
        assert len(appended) == count
        for each in appended:
            first_offsets.setdefault((topic, each["partition"]), each["base_offset"])
        recovered.update({topic} if any(each["kind"] == "step" for each in rows) else set())
        inputs[:] = [each for each in inputs if each.topic != topic]
        inputs.append(Input(topic, records, transactions))

    own = [each._replace(key=each.key or b"") for each in keyed(300)]
    own_shape = Transactions(11, 4, version=1)
    with Broker(log_dir) as broker:
        client.create_topics(broker.bootstrap, TOPICS)
        partition_of = partitions_by_a_client(broker.bootstrap)
        before["own"] = write(broker.bootstrap, "own")
        broker.stop()
        add("own", as_lines(own[:132], b"\t"), own[:132], own_shape, "--key-separator", "\t")
        assert not recovered
        broker.start()
        before["killed"] = write(broker.bootstrap, "killed")
        broker.kill()
    leave_half_a_batch(log_dir / "killed-0" / f"{0:020d}.log")

    add("own", as_lines(own[132:], b"\t"), own, own_shape, "--key-separator", "\t")
    shape = Transactions(7, 3, version=1)
    records = keyed(2000)
    faults = "drop=0.05,reorder=0.1,lost-ack=0.05,seed=4"
    add(
        "version-1", as_json_lines(records), records, shape,
        *JSON, "--batch-bytes", 500, "--in-flight", 5, "--fault", faults,
    )  # fmt: skip
    shape = Transactions(6, 4, version=2)
    records = keyed(2003)
    for end in (1200, 2003):  # the input grows
        add(
            "version-2", as_json_lines(records[:end]), records[:end], shape,
            *JSON, "--batch-bytes", 400, "--producer-session", session,
        )  # fmt: skip
    for codec in CODECS:
        records = plain(200)
        add(
            f"codec-{codec}", as_lines(records), records, Transactions(9, 2),
            "--compression", codec, "--batch-bytes", 1000,
        )  # fmt: skip
    records = plain(1500)
    add(
        "rolled", as_lines(records), records, Transactions(40, 5),
        "--segment-bytes", 20_000, "--batch-bytes", 1500,
    )  # fmt: skip
    records = plain(300)
    add("killed", as_lines(records), records, Transactions(8, 3))
    assert {"own", "killed"} <= recovered
    records = decorated(300, started_ms)
    add("json", as_json_lines(records), records, Transactions(13, 2), *JSON)
    times_ms = range(started_ms, int(time.time() * 1000) + 1)
    return Produced(log_dir, inputs, partition_of, before, first_offsets, times_ms)


def partitions_by_a_client(bootstrap: str) -> dict[bytes, int]:
    keys = sorted(set(KEYS))
    chooser = client.producer(bootstrap, partitioner="murmur2_random")
    where = client.send(chooser, [client.Outgoing("where", -1, key, b"") for key in keys])
    return {key: partition for key, (_, partition, _) in zip(keys, where, strict=True)}


def write(bootstrap: str, topic: str) -> list[client.Incoming]:
    """Records of a real client, in and out of transactions; returns what is there."""
    sent = [client.Outgoing(topic, 0, b"k%d" % n, b"theirs %d" % n) for n in range(50)]
    client.send(client.producer(bootstrap, enable_idempotence=True), sent)
    tid = client.transactional_producer(bootstrap, f"tid-{topic}")
    for n in range(6):
        client.transact(tid, sent[n : n + 3], commit=n % 2 == 0)
    return client.consume(bootstrap, topic, 0, isolation=client.READ_UNCOMMITTED).records


def leave_half_a_batch(log: Path) -> None:
    """Leave what a crash may leave of an append."""
    data = log.read_bytes()
    log.write_bytes(data + data[:70])


# --- the judges -----------------------------------------------------------------------------------


def partitions_of(topic: str) -> list[tuple[str, int]]:
    return [(topic, number) for number in range(TOPICS[topic][0])]


def described(eoctl: Callable[..., Outcome], path: Path) -> dict[str, Any]:
    outcome = eoctl("describe", path, "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    row: dict[str, Any] = json.loads(outcome.text.splitlines()[0])
    return row


def number_of(record: client.Incoming) -> int:
    return int((record.value or b"").split(b" ", 1)[0])


def require_equal(record: client.Incoming, sent: Sent, times_ms: range) -> None:
    assert (record.key, record.value, record.headers) == (sent.key, sent.value, sent.headers)
    assert record.timestamp_type == 1
    if sent.timestamp_ms is None:
        assert record.timestamp_ms in times_ms
    else:
        assert record.timestamp_ms == sent.timestamp_ms


def require_input(bootstrap: str, made: Produced, sent: Input, ends: dict) -> None:
    """A client gets each record of an input once, in order, and only the committed ones."""
    numbers: list[int] = []
    for place in partitions_of(sent.topic):
        first_offset = made.first_offsets[place]
        found = {}
        for isolation in (client.READ_UNCOMMITTED, client.READ_COMMITTED):
            consumed = client.consume(bootstrap, *place, isolation=isolation)
            assert consumed.end_offset == ends[place], (place, isolation)
            old = [each for each in consumed.records if each.offset < first_offset]
            if isolation == client.READ_UNCOMMITTED:
                assert old == made.before.get(sent.topic, [])
            found[isolation] = [each for each in consumed.records if each.offset >= first_offset]
        everything = found[client.READ_UNCOMMITTED]
        mine = [number_of(each) for each in everything]
        assert mine == sorted(set(mine)), place
        for number, each in zip(mine, everything, strict=True):
            require_equal(each, sent.records[number], made.times_ms)
            if len(partitions_of(sent.topic)) > 1 and each.key is not None:
                assert place[1] == made.partition_of[each.key]
        assert found[client.READ_COMMITTED] == [
            each
            for number, each in zip(mine, everything, strict=True)
            if sent.transactions.commits(number)
        ]
        numbers += mine
    assert sorted(numbers) == list(range(len(sent.records))), sent.topic


def go_on(bootstrap: str, places: list[tuple[str, int]], ends: dict) -> dict:
    """Write to all partitions with a real client; returns the new ends."""
    idempotent = client.producer(bootstrap, enable_idempotence=True)
    records = [
        client.Outgoing(*place, b"key", b"more %d" % n) for n in range(20) for place in places
    ]
    where = client.send(idempotent, records)
    assert where == [(*place, ends[place] + n) for n in range(20) for place in places]
    tid = client.transactional_producer(bootstrap, "afterwards")
    for commit in (True, False, True):
        client.transact(tid, records[: len(places)], commit=commit)
    return {place: ends[place] + 20 + 6 for place in places}


@pytest.mark.exhaustive
def test_a_broker_and_its_clients_take_it_over(
    produced: Produced, eoctl: Callable[..., Outcome]
) -> None:
    log_dir = produced.log_dir
    places = [place for each in produced.inputs for place in partitions_of(each.topic)]
    paths = {place: log_dir / f"{place[0]}-{place[1]}" for place in places}
    assert require_equal_dumps(paths.values(), eoctl) > 60
    ends = {}
    for place, path in paths.items():
        row = described(eoctl, path)
        assert row["open_transactions_count"] == 0
        ends[place] = row["log_end_offset"]
    assert len(list((log_dir / "rolled-0").glob("*.log"))) > 10
    used = {each for topic in ("version-1", "version-2") for each in partitions_of(topic)}
    assert min(ends[place] for place in used) > 600

    with Broker(log_dir) as broker:
        for each in produced.inputs:
            require_input(broker.bootstrap, produced, each, ends)
        ends = go_on(broker.bootstrap, places, ends)
        for place in places:
            both = [
                client.consume(broker.bootstrap, *place, isolation=isolation)
                for isolation in (client.READ_UNCOMMITTED, client.READ_COMMITTED)
            ]
            assert [each.end_offset for each in both] == [ends[place]] * 2
            added = [
                [record for record in each.records if record.offset >= ends[place] - 26]
                for each in both
            ]
            assert list(map(len, added)) == [23, 22]
        broker.stop()
        for topic, number in places:
            said = "\n".join(broker.log_lines(f"{topic}-{number}"))
            assert "Completed load of Log" in said
            after = said[said.rindex("Completed load of Log") :]
            assert not re.search(r"ERROR|WARN|Truncating|orrupt|Exception|[Ss]tray", after), after

    for place, path in paths.items():
        recovered = eoctl("recover-state", path)
        assert recovered.status == 0, recovered.text + recovered.errors
        from_scratch = eoctl("recover-state", path, "--from-scratch")
        assert from_scratch.status == 0, from_scratch.text + from_scratch.errors
        row = described(eoctl, path)
        names = ("log_end_offset", "high_watermark", "last_stable_offset")
        assert [row[name] for name in names] == [ends[place]] * 3
        assert (row["verdict"], row["stopped"], row["problems_count"]) == ("ok", "clean", 0)
