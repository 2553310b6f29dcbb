"""What `eoctl forecast` says, and what the tasks of a real broker then delete and clean.

Each case is a partition of its own, so that one start judges many of them. The broker's retention
runs 8 s after its start, then every 5 s, and its cleaner every 2 s. The deletions in its log, the
sections that it cleaned, the first segment and the cleaner's line afterwards must be the rows of
the forecast, and no others.
"""

from __future__ import annotations

import json
import os
import re
import struct
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cases.files import HandLogDir, batch, checkpoint, time_index
from tests.kafka.broker import Broker, copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

pytestmark = pytest.mark.broker

DAY_MS = 86_400_000
OLD_MS, FRESH_MS = 60 * DAY_MS, DAY_MS
FIRST_RUN_S, INTERVAL_S = 8, 5
FAST = {
    "log.initial.task.delay.ms": "8000",
    "log.retention.check.interval.ms": "5000",
    "log.cleaner.backoff.ms": "2000",
    "log.segment.delete.delay.ms": "3000",
}
DELETING = re.compile(r"partition=([^,\]]+), .*Deleting segments? ")
BASE_OFFSET = re.compile(r"LogSegment\(baseOffset=(\d+)")
SECTION = re.compile(r"log (\S+) .*?dirty section = \[(\d+), (\d+)\]")


class Segment(NamedTuple):
    """A segment to write: its batches, the time of its index and of its file."""

    base: int
    batches: Sequence[bytes]
    index_ms: int | None  # None: no entry
    file_ms: int
    extra: bytes = b""  # behind the entry of the time index
    has_times: bool = True


class Case(NamedTuple):
    """A topic: its settings, its segments and its lines in the checkpoints."""

    config: dict[str, str]
    segments: Sequence[Segment]
    log_start: int | None = None
    high_watermark: int | None = None
    cleaner: int | None = None
    snapshot: Sequence[tuple[int, ...]] = ()
    recovery_point: int | None = None


class OpenedLogDir(HandLogDir):
    """A log dir that a test has made, to be changed by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path


def plain(base: int, count: int, ms: int, **fields: Any) -> list[bytes]:
    """Return batches of one record at a time."""
    return [batch(each, ts=ms, **fields) for each in range(base, base + count)]


def keyed(base: int, count: int, key: bytes | None, ms: int, size: int = 30) -> list[bytes]:
    """Return batches of one record with a key at a time."""
    return [batch(each, [(key, b"x" * size)], ts=ms) for each in range(base, base + count)]


def many_keys(base: int, count: int, ms: int) -> list[bytes]:
    """Return batches of 50 records, each with a key of its own."""
    return [
        batch(first, [(b"key-%d" % each, b"v") for each in range(first, first + 50)], ts=ms)
        for first in range(base, base + count, 50)
    ]


def aged(base: int, count: int, ms: int) -> Segment:
    """Return a segment whose batches, index and file have one time."""
    return Segment(base, plain(base, count, ms), ms, ms)


def compacted(sizes: Sequence[int], now_ms: int, **config: str) -> list[Segment]:
    """Return segments of one key with these numbers of records, and one record at the end."""
    found, base = [], 0
    for count in [*sizes, 1]:
        found.append(Segment(base, keyed(base, count, b"same", now_ms), now_ms, now_ms))
        base += count
    return found


def retention_cases(now_ms: int) -> dict[str, Case]:
    old, fresh, ahead = now_ms - OLD_MS, now_ms - FRESH_MS, now_ms + 30 * DAY_MS
    soon = now_ms - 7 * DAY_MS + 40_000
    undated = [batch(each, ts=-1) for each in range(10)]
    return {
        "all-old": Case({}, [aged(0, 10, old), aged(10, 10, old)]),
        "middle-fresh": Case({}, [aged(0, 10, old), aged(10, 10, fresh), aged(20, 10, old)]),
        "future": Case({}, [aged(0, 10, ahead), aged(10, 10, old), aged(20, 5, fresh)]),
        "zeros": Case(
            {},
            [
                Segment(0, plain(0, 10, fresh), fresh, fresh, extra=b"\0" * 12),
                aged(10, 10, fresh),
            ],
        ),
        "no-times": Case(
            {},
            [
                Segment(0, plain(0, 10, fresh), fresh, old, has_times=False),
                aged(10, 10, fresh),
            ],
        ),
        "undated-old": Case({}, [Segment(0, undated, None, old), aged(10, 3, fresh)]),
        "undated-fresh": Case({}, [Segment(0, undated, None, fresh), aged(10, 3, old)]),
        "by-size": Case(
            {"retention.bytes": "1000"}, [aged(each, 10, fresh) for each in range(0, 40, 10)]
        ),
        "by-start": Case(
            {"retention.ms": "-1"},
            [aged(each, 10, old) for each in range(0, 30, 10)],
            log_start=15,
        ),
        "soon": Case({}, [aged(0, 10, soon), aged(10, 10, fresh)]),
        "both": Case({"cleanup.policy": "compact,delete"}, [aged(0, 10, old), aged(10, 10, fresh)]),
        "both-bad": Case(
            {"cleanup.policy": "compact,delete"},
            [Segment(0, [*plain(0, 9, old), bad_length(9, old)], old, old), aged(10, 10, fresh)],
        ),
        "no-mark": Case({}, [aged(0, 10, old), aged(10, 10, fresh)], high_watermark=0),
        "forever": Case({"retention.ms": "-1"}, [aged(0, 10, old), aged(10, 10, old)]),
    }


def bad_length(offset: int, ms: int, length: int = 10) -> bytes:
    """Return a batch with another length in its header."""
    data = bytearray(batch(offset, ts=ms))
    data[8:12] = struct.pack(">i", length)
    return bytes(data)


def wrong_checksum(offset: int, ms: int) -> bytes:
    """Return a batch whose record has a changed byte that a reader decodes all the same."""
    data = bytearray(batch(offset, [(b"other", b"value")], ts=ms))
    data[-2] ^= 1
    return bytes(data)


def cleaner_cases(now_ms: int) -> dict[str, Case]:
    compact = {"cleanup.policy": "compact"}
    one_size = compacted([10] * 10, now_ms)
    transaction = [
        *keyed(100, 20, b"same", now_ms),
        batch(120, [(b"same", b"open")], pid=7, epoch=0, seq=0, txn=True, ts=now_ms),
        *keyed(121, 29, b"same", now_ms),
    ]
    return {
        "dead": Case(compact, one_size),
        "ratio-4": Case(compact, one_size, cleaner=60),
        "ratio-5": Case(compact, one_size, cleaner=50),
        "ratio-6": Case(compact, one_size, cleaner=40),
        "open": Case(
            compact,
            [
                Segment(0, keyed(0, 100, b"same", now_ms), now_ms, now_ms),
                Segment(100, transaction, now_ms, now_ms),
                Segment(150, keyed(150, 5, b"same", now_ms), now_ms, now_ms),
            ],
            snapshot=[(7, 0, 0, 120, 0, now_ms, 0, 120)],
        ),
        "min-lag": Case(
            {**compact, "min.compaction.lag.ms": str(DAY_MS * 2)},
            [aged(0, 10, now_ms - 5 * DAY_MS), aged(10, 10, now_ms), aged(20, 5, now_ms)],
        ),
        "max-lag": Case(
            {
                **compact,
                "min.cleanable.dirty.ratio": "0.99",
                "max.compaction.lag.ms": str(3 * DAY_MS),
                "segment.ms": str(DAY_MS * 365),
            },
            [aged(each, 10, now_ms - 5 * DAY_MS) for each in range(0, 50, 10)],
            cleaner=30,
        ),
        "below": Case(compact, compacted([10] * 4, now_ms), log_start=20, cleaner=5),
        "beyond": Case(compact, compacted([10] * 4, now_ms), cleaner=500),
        "keyless": Case(
            compact,
            [
                Segment(
                    0,
                    [*keyed(0, 50, None, now_ms), *keyed(50, 50, b"same", now_ms)],
                    now_ms,
                    now_ms,
                ),
                Segment(100, keyed(100, 5, b"same", now_ms), now_ms, now_ms),
            ],
        ),
        "long": Case(
            compact,
            [
                Segment(
                    0,
                    [*keyed(0, 9, b"same", now_ms), bad_length(9, now_ms, 500)],
                    now_ms,
                    now_ms,
                ),
                Segment(10, keyed(10, 5, b"same", now_ms), now_ms, now_ms),
            ],
        ),
        "short": Case(
            compact,
            [
                Segment(
                    0,
                    [
                        *keyed(0, 4, b"same", now_ms),
                        bad_length(4, now_ms),
                        *keyed(5, 5, b"same", now_ms),
                    ],
                    now_ms,
                    now_ms,
                ),
                Segment(10, keyed(10, 5, b"same", now_ms), now_ms, now_ms),
            ],
        ),
        "many-keys": Case(
            compact,
            [
                Segment(base, many_keys(base, 40_000, now_ms), now_ms, now_ms)
                for base in (0, 40_000, 80_000)
            ]
            + [Segment(120_000, many_keys(120_000, 50, now_ms), now_ms, now_ms)],
        ),
        "backwards": Case(
            compact,
            [
                Segment(
                    0,
                    [
                        *keyed(0, 3, b"a", now_ms, 5000),
                        *keyed(1, 3, b"b", now_ms, 5000),
                        *keyed(4, 6, b"c", now_ms, 5000),
                    ],
                    now_ms,
                    now_ms,
                ),
                Segment(10, keyed(10, 5, b"same", now_ms), now_ms, now_ms),
            ],
        ),
        "rewritten": Case(
            compact,
            [
                Segment(
                    0,
                    [*keyed(0, 9, b"same", now_ms), wrong_checksum(9, now_ms)],
                    now_ms,
                    now_ms,
                ),
                Segment(10, keyed(10, 5, b"same", now_ms), now_ms, now_ms),
            ],
        ),
    }


class Judged:
    """A log dir with the cases, ready for a forecast and a broker."""

    def __init__(self, tmp_path: Path, eoctl: Callable[..., Any], cases: dict[str, Case]) -> None:
        self.path = tmp_path / "kafka"
        self.cases = cases
        self._eoctl = eoctl
        settings = [
            option
            for name, case in cases.items()
            for key, value in case.config.items()
            for option in ("--config", f"{name}:{key}={value}")
        ]
        topics = [option for name in cases for option in ("--topic", f"{name}:1")]
        made = eoctl(
            "init", self.path, *topics, *settings, "--broker-version", "4.3",
            "--no-internal-topics", "--apply",
        )  # fmt: skip
        assert made.status == 0, made
        with Broker(self.path):
            pass
        files = OpenedLogDir(self.path)
        for name, case in cases.items():
            self._write(files, f"{name}-0", case)

    def _write(self, files: OpenedLogDir, part: str, case: Case) -> None:
        files.remove(part=part)
        for each in case.segments:
            entries = [] if each.index_ms is None else [(each.index_ms, each.base)]
            times = time_index(entries, each.base) + each.extra
            files.segment(each.base, each.batches, times=times, part=part)
            log = files.file(f"{each.base:020d}.log", part)
            if not each.has_times:
                log.with_suffix(".timeindex").unlink()
            os.utime(log, ns=(each.file_ms * 10**6, each.file_ms * 10**6))
        last = case.segments[-1]
        end = last.base + sum(struct.unpack_from(">i", each, 57)[0] for each in last.batches)
        files.snapshot(end, case.snapshot, part=part)
        files.epochs(part=part)
        files.checkpoints(
            high_watermark=end if case.high_watermark is None else case.high_watermark,
            recovery_point=end if case.recovery_point is None else case.recovery_point,
            log_start=case.log_start,
            part=part,
        )
        if case.cleaner is not None:
            path = self.path / "cleaner-offset-checkpoint"
            rows = [each.split() for each in path.read_text().splitlines()[2:]]
            topic = part.removesuffix("-0")
            path.write_bytes(checkpoint([*rows, [topic, "0", case.cleaner]]))

    def forecast(self, broker: Broker, *options: str) -> list[dict[str, Any]]:
        """Return the rows of a forecast for a start with the settings of a broker."""
        call = ("forecast", self.path, "--server-properties", broker.properties_file())
        outcome = self._eoctl(*call, *options, "--output", "jsonl")
        assert outcome.status in {0, 1}, outcome
        rows = [json.loads(line) for line in outcome.text.splitlines()]
        return [each for each in rows if each.get("topic") in self.cases]

    def first_base(self, name: str) -> int:
        """Return the base offset of the first segment."""
        return min(int(each.stem) for each in (self.path / f"{name}-0").glob("*.log"))

    def cleaner_lines(self) -> dict[str, int]:
        """Return the lines of the cleaner's checkpoint."""
        path = self.path / "cleaner-offset-checkpoint"
        rows = [each.split() for each in path.read_text().splitlines()[2:]]
        return {topic: int(offset) for topic, _, offset in rows if topic in self.cases}


def deleted(broker: Broker, cases: dict[str, Case]) -> set[tuple[str, int]]:
    """Return the segments that the tasks of a broker deleted, by its log."""
    found = set()
    for line in broker.log_lines():
        match = DELETING.search(line)
        if match is not None and match[1].removesuffix("-0") in cases:
            name = match[1].removesuffix("-0")
            found |= {(name, int(base)) for base in BASE_OFFSET.findall(line)}
    return found


def sections(broker: Broker) -> dict[str, list[tuple[int, int]]]:
    """Return the sections that the cleaner cleaned, by topic."""
    found: dict[str, list[tuple[int, int]]] = {}
    text = "\n".join(broker.log_lines())
    for name, first, end in re.findall(
        r"cleaned log (\S+?)-0 \(dirty section = \[(\d+), (\d+)\]\)", text
    ):
        found.setdefault(name, []).append((int(first), int(end)))
    return found


def taken(rows: list[dict[str, Any]], *, is_first: bool = True) -> set[tuple[str, int]]:
    return {
        (row["topic"], row["base_offset"])
        for row in rows
        if row["kind"] == "taking"
        and row["run_at_ms"] is not None
        and (row["is_first_run"] or not is_first)
    }


def test_retention_deletes_what_the_forecast_says(
    tmp_path: Path, eoctl: Callable[..., Any]
) -> None:
    now_ms = time.time_ns() // 10**6
    judged = Judged(tmp_path, eoctl, retention_cases(now_ms))
    broker = Broker(judged.path, overrides=FAST)
    rows = judged.forecast(broker)
    expected = taken(rows)
    assert {name for name, _ in expected} == {
        "all-old", "middle-fresh", "zeros", "no-times", "undated-old", "by-size", "by-start",
        "both", "no-mark",
    }  # fmt: skip
    assert {base for name, base in expected if name == "by-size"} == {0, 10}
    premature = {row["topic"] for row in rows if row.get("is_premature")}
    assert premature == {"zeros", "no-times"}
    assert {row["topic"] for row in rows if row.get("held_by") == "uncleanable"} == {"both-bad"}
    assert {row["topic"] for row in rows if row.get("held_by") == "future-time"} == {"future"}
    unsure = {row["topic"] for row in rows if row["kind"] == "taking" and not row["is_certain"]}
    assert unsure == {"both-bad"}  # the cleaner may clean the other log first
    certain = {name: case for name, case in judged.cases.items() if name not in unsure}
    due_ms = next(row["due_at_ms"] for row in rows if row.get("topic") == "soon")
    with broker:
        started = time.monotonic()
        while time.monotonic() - started < FIRST_RUN_S + INTERVAL_S:
            time.sleep(0.2)
        if time.time_ns() // 10**6 < due_ms:
            assert deleted(broker, certain) == expected
            assert judged.first_base("all-old") == 20
        while time.time_ns() // 10**6 < due_ms + 2 * INTERVAL_S * 1000:
            time.sleep(0.2)
        assert deleted(broker, certain) == expected | {("soon", 0)}
    for name, first in (("forever", 0), ("by-start", 10), ("future", 0)):
        assert judged.first_base(name) == first, name


def test_a_log_that_the_cleaner_fails_on_first_loses_nothing(
    tmp_path: Path, eoctl: Callable[..., Any]
) -> None:
    cases = retention_cases(time.time_ns() // 10**6)
    judged = Judged(tmp_path, eoctl, {"both-bad": cases["both-bad"]})
    broker = Broker(judged.path, overrides=FAST)
    rows = judged.forecast(broker)
    assert taken(rows) == set()
    held = [row for row in rows if row.get("held_by") == "uncleanable"]
    assert {row["is_certain"] for row in held} == {True}
    with broker:
        time.sleep(FIRST_RUN_S + INTERVAL_S)
        assert deleted(broker, judged.cases) == set()
    assert judged.first_base("both-bad") == 0
    assert judged.cleaner_lines() == {"both-bad": 0}


def test_the_cleaner_cleans_what_the_forecast_says(
    tmp_path: Path, eoctl: Callable[..., Any]
) -> None:
    now_ms = time.time_ns() // 10**6
    judged = Judged(tmp_path, eoctl, cleaner_cases(now_ms))
    settings = {
        **FAST,
        "log.initial.task.delay.ms": "600000",
        "log.cleaner.dedupe.buffer.size": "2000000",
    }
    broker = Broker(judged.path, overrides=settings)
    rows = judged.forecast(broker, "--deep")
    cleanings = {row["topic"]: row for row in rows if row["kind"] == "cleaning"}
    expected = {
        name: [(row["first_dirty_offset"], row["pass_end_offset"])]
        for name, row in cleanings.items()
        if row["is_chosen"]
    }
    assert {*expected} == {
        "dead", "ratio-6", "open", "min-lag", "max-lag", "below", "beyond", "keyless", "rewritten",
        "many-keys",
    }  # fmt: skip
    assert expected["many-keys"] == [(0, 74_999)]  # so many keys fit into the map
    assert cleanings["backwards"]["is_chosen"] is None  # not known
    assert {name for name, row in cleanings.items() if row["why_not"] == "fails"} == {
        "long", "short",
    }  # fmt: skip
    assert expected["open"] == [(0, 100)]
    assert cleanings["open"]["uncleanable_because"] == "open-transaction"
    assert cleanings["open"]["producer_id"] == 7
    assert cleanings["rewritten"]["damaged_batches_count"] == 1
    counts = {name: records_of(judged.path, name) for name in expected}
    with broker:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and {*sections(broker)} < {*expected}:
            time.sleep(0.2)
        time.sleep(5)
        found = sections(broker)
        text = "\n".join(broker.log_lines())
    assert {name: found[name][:1] for name in found if name != "backwards"} == expected
    lines = judged.cleaner_lines()
    for name in ("long", "short"):
        assert re.search(rf"{name}-0.*uncleanable", text), name
        assert lines[name] == 0  # tried, and failed
        # It fails while it reads the keys, before it makes a file.
        assert not [*(judged.path / f"{name}-0").glob("*.cleaned")]
    for name, ((_, end),) in expected.items():
        # A pass whose map is full is followed by another.
        assert lines[name] == (120_000 if name == "many-keys" else end), name
    assert cleanings["rewritten"]["superseded_records_count"] is None  # its batch is not decoded
    for name in {*expected} - {"rewritten"}:
        row = cleanings[name]
        gone = row["superseded_records_count"] + row["keyless_records_count"]
        gone += sum(
            each["records_count"]
            for each in rows
            if each["kind"] == "taking" and each["topic"] == name and each["is_first_run"]
        )
        assert counts[name] - records_of(judged.path, name) == gone, name


def test_zeros_after_a_crash(tmp_path: Path, eoctl: Callable[..., Any]) -> None:
    """The start derives the time index again from the recovery point on, and only there."""
    fresh = time.time_ns() // 10**6 - FRESH_MS
    zeros = [
        Segment(0, plain(0, 10, fresh), fresh, fresh, extra=b"\0" * 12),
        aged(10, 10, fresh),
    ]
    cases = {"all": Case({}, zeros, recovery_point=0), "last": Case({}, zeros, recovery_point=20)}
    judged = Judged(tmp_path, eoctl, cases)
    OpenedLogDir(judged.path).crash()
    broker = Broker(judged.path, overrides=FAST)
    rows = judged.forecast(broker, "--deep")
    expected = taken(rows)
    assert expected == {("last", 0)}
    assert [row["is_premature"] for row in rows if row.get("is_first_run")] == [True]
    with broker:
        time.sleep(FIRST_RUN_S + INTERVAL_S)
        assert deleted(broker, cases) == expected


def test_the_settings_of_hold_take_nothing(tmp_path: Path, eoctl: Callable[..., Any]) -> None:
    cases = retention_cases(time.time_ns() // 10**6)
    judged = Judged(tmp_path, eoctl, cases)
    hold = {"log.initial.task.delay.ms": "3600000", "log.cleaner.enable": "false"}
    broker = Broker(judged.path, overrides={**FAST, **hold})
    rows = judged.forecast(broker, "--until", "30m")
    assert taken(rows, is_first=False) == set()
    assert {row["topic"] for row in rows if row.get("held_by") == "cleaner-off"} == {
        "both", "both-bad",
    }  # fmt: skip
    with broker:
        time.sleep(FIRST_RUN_S + INTERVAL_S)
        assert deleted(broker, cases) == set()
    assert {name: judged.first_base(name) for name in cases} == dict.fromkeys(cases, 0)


def test_a_start_without_remote_storage_forgets_the_remote_segments(
    tmp_path: Path, golden: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    path = copy_log_dir(golden("kafka-4.3.1-tiered") / "clean", tmp_path / "kafka")
    broker = Broker(path)
    call = ("forecast", path, "--now", "dir", "--server-properties", broker.properties_file())
    rows = [json.loads(each) for each in eoctl(*call, "--output", "jsonl").text.splitlines()]
    ranges = {
        f"{row['topic']}-{row['partition']}": (row["base_offset"], row["end_offset"])
        for row in rows
        if row.get("what") == "remote-range"
    }
    assert ranges
    lines = (path / "log-start-offset-checkpoint").read_text()
    with broker:
        pass
    after = (path / "log-start-offset-checkpoint").read_text()
    for part, (start, end) in ranges.items():
        name, number = part.rsplit("-", 1)
        assert f"{name} {number} {start}\n" in lines
        assert f"{name} {number} " not in after
        assert min(int(each.stem) for each in (path / part).glob("*.log")) == end


def test_the_offsets_of_groups(tmp_path: Path, eoctl: Callable[..., Any]) -> None:
    """4,000 commits of 20 groups: the cleaner leaves the newest, and expiry removes these."""
    path, groups_count, rounds_count = tmp_path / "kafka", 20, 200
    settings = {
        **FAST,
        "log.initial.task.delay.ms": "600000",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": "1048576",
        "offsets.retention.minutes": "1",
        "offsets.retention.check.interval.ms": "36000000",
    }
    with Broker(path, overrides={**settings, "log.cleaner.enable": "false"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic("t", 1, 1)]).values():
            future.result(30)
        for number in range(groups_count):
            consumer = Consumer(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "group.id": f"group-{number}",
                    "enable.auto.commit": False,
                    "log_level": 0,
                }
            )
            for offset in range(rounds_count):
                place = TopicPartition("t", 0, offset, metadata="x" * 1000)
                consumer.commit(offsets=[place], asynchronous=False)
            consumer.close()
    broker = Broker(path, overrides={**settings, "offsets.retention.check.interval.ms": "90000"})
    call = ("forecast", path, "--deep", "--until", "10m", "--output", "jsonl")
    outcome = eoctl(*call, "--server-properties", broker.properties_file())
    rows = [json.loads(each) for each in outcome.text.splitlines()]
    (cleaning,) = (row for row in rows if row["kind"] == "cleaning" and row["is_chosen"])
    gone = cleaning["superseded_records_count"]
    assert gone > groups_count * rounds_count / 2
    expiring = {row["name"] for row in rows if row.get("what") == "group"}
    assert expiring == {f"group-{number}" for number in range(groups_count)}
    before = records_in(path / "__consumer_offsets-0", cleaning["pass_end_offset"])
    with broker:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and "dirty section" not in broker.log_file.read_text():
            time.sleep(0.2)
        time.sleep(5)
        left = records_in(path / "__consumer_offsets-0", cleaning["pass_end_offset"])
        assert before - left == gone
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            found = eoctl("groups", "list", path, "--output", "jsonl").text
            if "group-" not in found:
                break
            time.sleep(2)
        assert "group-" not in found


def records_in(directory: Path, end: int) -> int:
    """Count the records of data batches below an offset, by the headers of the batches."""
    count = 0
    for log in sorted(directory.glob("*.log")):
        data, pos = log.read_bytes(), 0
        while pos + 61 <= len(data):
            base, length = struct.unpack_from(">qi", data, pos)
            if base >= end:
                break
            is_control = struct.unpack_from(">h", data, pos + 21)[0] & 32
            count += 0 if is_control else struct.unpack_from(">i", data, pos + 57)[0]
            pos += 12 + length
    return count


def records_of(log_dir: Path, name: str) -> int:
    """Count the records of a partition, by the headers of its batches."""
    count = 0
    for log in sorted((log_dir / f"{name}-0").glob("*.log")):
        data, pos = log.read_bytes(), 0
        while pos + 61 <= len(data):
            length = struct.unpack_from(">i", data, pos + 8)[0]
            if not 49 <= length <= len(data) - pos - 12:
                break
            count += struct.unpack_from(">i", data, pos + 57)[0]
            pos += 12 + length
    return count
