"""What `eoctl produce` writes, under a real broker: it loads, a client reads it, the log goes on."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.kafka import client
from tests.kafka.broker import Broker, copy_log_dir
from tests.kafka.equal_dumps import require_equal_dumps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

pytestmark = pytest.mark.broker

INDEX_MAX_BYTES = 16_384  # what the harness gives its brokers
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "grown": (1, {"segment.bytes": "1048576", "index.interval.bytes": "512"}),
    "empty": (1, {"message.timestamp.type": "LogAppendTime"}),
    "keyed": (1, {"cleanup.policy": "compact"}),
    "fresh": (1, {}),
    **{f"codec-{name}": (1, {}) for name in ("gzip", "snappy", "lz4", "zstd")},
}


class Produced(NamedTuple):
    """A log dir to which eoctl has appended, and what was there before and after."""

    log_dir: Path
    before: dict[str, client.Consumed]
    appended: dict[str, list[tuple[bytes | None, bytes]]]
    reports: dict[str, list[dict[str, Any]]]


def lines(count: int, first: int = 0) -> list[bytes]:
    """Values of many lengths, bytes that are not UTF-8 among them; none with a line end."""
    return [b"%d \xff" % n + b"x" * (n * 7 % 300) for n in range(first, first + count)]


def append(
    eoctl: Callable[..., Outcome],
    tmp_path: Path,
    partition: Path,
    values: list[bytes],
    *more: object,
) -> dict[str, Any]:
    file = tmp_path / "input"
    file.write_bytes(b"".join(value + b"\n" for value in values))
    common = ("--index-max-bytes", INDEX_MAX_BYTES, "--output", "jsonl")
    plan = eoctl("produce", partition, file, *common, *more)
    done = eoctl("produce", partition, file, *common, *more, "--apply")
    assert (plan.status, done.status) == (0, 0), done.errors
    planned, found = (json.loads(each.text.splitlines()[0]) for each in (plan, done))
    assert {**planned, "applied": True} == found
    assert [each["path"] for each in files(plan)] == [each["path"] for each in files(done)]
    return found


def files(outcome: Outcome) -> list[dict[str, Any]]:
    rows = [json.loads(each) for each in outcome.text.splitlines()]
    return [each for each in rows if each["kind"] == "file"]


@pytest.fixture
def produced(eoctl: Callable[..., Outcome], tmp_path: Path) -> Produced:
    """Topics made by a broker, some with records, and appended to while it is stopped."""
    log_dir = tmp_path / "log-dir"
    before = {}
    with Broker(log_dir) as broker:
        client.create_topics(broker.bootstrap, TOPICS)
        sent = [client.Outgoing("grown", 0, b"k%d" % n, b"v" * n) for n in range(300)]
        client.send(client.producer(broker.bootstrap, enable_idempotence=True), sent)
        tid = client.transactional_producer(broker.bootstrap, "tid")
        client.transact(tid, [client.Outgoing("grown", 0, None, b"kept")], commit=True)
        client.transact(tid, [client.Outgoing("grown", 0, None, b"dropped")], commit=False)
        for name in TOPICS:
            before[name] = client.consume(
                broker.bootstrap, name, 0, isolation=client.READ_UNCOMMITTED
            )
    for path in (log_dir / "fresh-0").iterdir():  # to be created anew, by the metadata alone
        path.unlink()
    (log_dir / "fresh-0").rmdir()

    appended: dict[str, list[tuple[bytes | None, bytes]]] = {}
    reports: dict[str, list[dict[str, Any]]] = {}

    def add(name: str, values: list[bytes], *more: object) -> None:
        found = append(eoctl, tmp_path, log_dir / f"{name}-0", values, *more)
        reports.setdefault(name, []).append(found)
        pairs = (
            [tuple(each.split(b"\t", 1)) for each in values]
            if "--key-separator" in more
            else [(None, each) for each in values]
        )
        appended.setdefault(name, []).extend(pairs)

    add("grown", lines(12_000), "--batch-bytes", 1000)
    add("grown", lines(50, 7))  # a second run, where the first one left off
    add("empty", lines(40))
    add("keyed", [b"k%d\tv%d" % (n % 5, n) for n in range(30)], "--key-separator", "\t")
    add("fresh", lines(100), "--segment-bytes", 4096, "--batch-bytes", 1500)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        add(f"codec-{codec}", lines(200), "--compression", codec)
    return Produced(log_dir, before, appended, reports)


@pytest.mark.exhaustive
def test_a_broker_takes_it_over(
    produced: Produced, tmp_path: Path, eoctl: Callable[..., Outcome]
) -> None:
    grown = produced.reports["grown"]
    assert grown[0]["base_offset"] == produced.before["grown"].end_offset
    assert grown[1]["base_offset"] == grown[0]["last_offset"] + 1
    assert grown[0]["segments_rolled"] == 2
    assert produced.reports["fresh"][0]["segments_rolled"] > 2
    require_equal_dumps([produced.log_dir / f"{name}-0" for name in produced.appended], eoctl)
    ours = copy_log_dir(produced.log_dir, tmp_path / "ours")

    with Broker(produced.log_dir) as broker:
        for name, pairs in produced.appended.items():
            old = produced.before[name].records
            end_offset = produced.reports[name][-1]["last_offset"] + 1
            for isolation in (client.READ_COMMITTED, client.READ_UNCOMMITTED):
                found = client.consume(broker.bootstrap, name, 0, isolation=isolation)
                assert found.end_offset == end_offset, name
                new = [each for each in found.records if each not in old]
                first = produced.reports[name][0]["base_offset"]
                assert [each.offset for each in new] == list(range(first, end_offset)), name
                assert [(each.key, each.value) for each in new] == pairs, name
                assert {each.timestamp_type for each in new} == {2 if name == "empty" else 1}
            sent = [client.Outgoing(name, 0, b"key", b"more %d" % n) for n in range(20)]
            where = client.send(client.producer(broker.bootstrap, enable_idempotence=True), sent)
            assert where == [(name, 0, end_offset + n) for n in range(20)]
        broker.stop()
        for name in produced.appended:
            said = "\n".join(broker.log_lines(f"{name}-0"))
            assert "Completed load of Log" in said, name
            assert not re.search(r"ERROR|WARN|Truncating|orrupt|Exception|[Ss]tray", said), said
        # A controller says so of a machine that was too busy, not of a log.
        errors = broker.error_lines()
        assert not [each for each in errors if "event queue overloaded" not in each]

    # Recovery has written every file of the rolled segments anew: byte for byte what was there.
    compared = 0
    for path in sorted(ours.rglob("*")):
        name = path.parent.name.rpartition("-")[0]
        if name not in TOPICS or not path.stem.isdecimal():
            continue
        theirs = produced.log_dir / path.parent.name / path.name
        last_base = max(each.stem for each in path.parent.glob("*.log"))
        if path.stem < last_base or (path.stem == last_base and path.suffix == ".snapshot"):
            if path.suffix == ".snapshot" and not theirs.exists():
                continue  # at no base offset: the end of an earlier run
            assert theirs.read_bytes() == path.read_bytes(), path
            compared += path.suffix != ".log"
        elif path.suffix == ".log":
            assert theirs.read_bytes().startswith(path.read_bytes()), path
    assert compared >= 15
