"""`eoctl producers`: counts against kafka-dump-log's words, expiry, what is not known, the heap."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from recovery.inspect.census import heap_bytes, is_live, read_producers
from recovery.replay.snapshots import Clock
from storage.formats.producer_snapshot import parse_snapshot
from tests.changes import in_80_columns, notes_of, rows_of, table, unpacked
from tests.truncations import open_partition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JSONL = ("--output", "jsonl")
BATCH = re.compile(r"producerId: (-?\d+) .* isControl: (true|false)")
HOUR_MS = 3_600_000


def dumped(dump: Path) -> tuple[set[int], Counter[int]]:
    """Producer ids, and data batches of each, by kafka-dump-log."""
    ids: set[int] = set()
    batches: Counter[int] = Counter()
    for path in sorted(dump.glob("*.log.txt")):
        for line in path.read_text().splitlines():
            match = BATCH.search(line) if line.startswith("baseOffset: ") else None
            if match is not None and match[1] != "-1":
                ids.add(int(match[1]))
                batches[int(match[1])] += match[2] == "false"
    return ids, batches


@pytest.mark.parametrize("name", ["txn-0", "txn-1", "many-producers-0", "idem-none-0", "plain-0"])
def test_as_the_dump_has_it(golden: Callable[[str], Path], eoctl: Callable, name: str) -> None:
    ids, batches = dumped(golden("kafka-4.3.1.dump") / "hard" / name)
    found = eoctl("producers", golden("kafka-4.3.1") / "hard" / name, "--now", 0, *JSONL)
    assert found.status == (5 if name == "idem-none-0" else 0)  # it was made with gaps
    (row,) = rows_of(found, "partition")
    assert row["producers_count"] == row["entries_count"] == len(ids)
    assert row["single_batch_count"] == sum(count == 1 for count in batches.values())
    assert (row["expired_count"], row["is_complete"]) == (0, name != "idem-none-0")


@pytest.mark.parametrize("name", ["idem-none-0", "many-producers-0", "txn-1"])
def test_live_ones_are_those_of_the_broker(golden: Callable[[str], Path], name: str) -> None:
    """After an unclean start the newest snapshot has them; the clock is that of the start."""
    partition = golden("kafka-4.3.1") / "hard-clean" / name
    newest = max(partition.glob("*.snapshot"))
    entries = parse_snapshot(newest.read_bytes())
    producers = read_producers(open_partition(partition)).producers
    last_ms = {each.producer_id: each.timestamp_ms for each in entries}
    known = set(producers.producer_id.tolist())
    assert set(last_ms) <= known
    for producer_id, found_ms, is_open in zip(
        producers.producer_id.tolist(),
        producers.last_ms.tolist(),
        producers.is_open.tolist(),
        strict=True,
    ):
        if producer_id in last_ms:
            assert found_ms == last_ms[producer_id]
            entry = next(each for each in entries if each.producer_id == producer_id)
            assert is_open == (entry.current_txn_first_offset >= 0)


def test_expiry(golden: Callable[[str], Path], eoctl: Callable) -> None:
    """An entry lives for less than the expiration; one with an open transaction lives on."""
    path = golden("kafka-4.3.1") / "hard" / "txn-0"
    producers = read_producers(open_partition(path)).producers
    last_ms = int(producers.last_ms[~producers.is_open].max())
    call = ("producers", path, "--producer-expiry-ms", 1000, *JSONL)
    (before,) = rows_of(eoctl(*call, "--now", last_ms + 999), "partition")
    (after,) = rows_of(eoctl(*call, "--now", last_ms + 1000), "partition")
    newest = int((producers.last_ms[~producers.is_open] == last_ms).sum())
    assert before["live_count"] - after["live_count"] == newest
    (never,) = rows_of(eoctl(*call, "--now", last_ms + 10**12), "partition")
    assert never["live_count"] == never["open_transactions_count"] == 1
    assert never["expired_count"] == never["entries_count"] - 1


def test_totals(golden: Callable[[str], Path], eoctl: Callable) -> None:
    """An id in two partitions is one producer and two entries; the heap adds up."""
    paths = [golden("kafka-4.3.1") / "hard" / name for name in ("txn-0", "txn-1", "rolled-0")]
    found = eoctl("producers", *paths, "--now", 0, *JSONL)
    partitions, topics = rows_of(found, "partition"), rows_of(found, "topic")
    (total,) = rows_of(found, "total")
    ids = [dumped(golden("kafka-4.3.1.dump") / "hard" / each.name)[0] for each in paths]
    rolled, txn = topics
    assert (rolled["topic"], txn["topic"]) == ("rolled", "txn")
    assert txn["producers_count"] == len(ids[0] | ids[1]) < txn["entries_count"]
    assert total["producers_count"] == len(set().union(*ids))
    for name in ("entries_count", "live_count", "open_transactions_count", "heap_bytes"):
        assert total[name] == sum(each[name] for each in partitions)
        assert total[name] == sum(each[name] for each in topics)


def test_new_ones_by_hour(golden: Callable[[str], Path], eoctl: Callable) -> None:
    path = golden("kafka-4.3.1") / "hard" / "idem-none-0"
    found = eoctl("producers", path, "--by-hour", "--now", "2026-11-21T02:59:00Z", *JSONL)
    hours = rows_of(found, "hour")
    assert [(each["hour"], each["new_producers_count"]) for each in hours] == [
        ("2026-11-20T01:00:00.000Z", 6),
        ("2026-11-21T02:00:00.000Z", 14),
    ]
    (row,) = rows_of(found, "partition")
    assert (row["new_per_hour_max"], row["new_last_hour_count"]) == (14, 14)
    first, last = (each["hour_start_ms"] for each in hours)
    assert row["new_per_hour_mean"] == pytest.approx(20 * HOUR_MS / (last - first), abs=0.1)


def test_what_only_a_snapshot_tells(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Callable
) -> None:
    """Retention has taken the log; nobody knows when they came."""
    source = golden("kafka-4.3.1") / "clean" / "txn-0"
    partition = tmp_path / "txn-0"
    partition.mkdir()
    name = "00000000000000000329"
    shutil.copyfile(source / f"{name}.snapshot", partition / f"{name}.snapshot")
    (partition / f"{name}.log").touch()
    entries = parse_snapshot((source / f"{name}.snapshot").read_bytes())
    (row,) = rows_of(eoctl("producers", partition, "--now", 0, *JSONL), "partition")
    assert row["snapshot_only_count"] == row["live_count"] == len(entries)
    assert (row["new_per_hour_max"], row["new_per_hour_mean"]) == (None, None)
    assert row["single_batch_count"] == 0


def test_damage_is_told(golden: Callable[[str], Path], tmp_path: Path, eoctl: Callable) -> None:
    partition = tmp_path / "many-producers-0"
    shutil.copytree(golden("kafka-4.3.1") / "crash" / "many-producers-0", partition)
    for path in (partition, *partition.iterdir()):
        path.chmod(path.stat().st_mode | 0o200)
    log = partition / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    found = eoctl("producers", partition, "--now", 0, *JSONL)
    assert found.status == 5
    (row,) = rows_of(found, "partition")
    assert row["is_complete"] is False
    assert any("what follows in it is not counted" in each for each in notes_of(found))


def test_the_heap(golden: Callable[[str], Path]) -> None:
    """By hand: 17 known ids, some with an open transaction, in a table of 32 buckets."""
    producers = read_producers(
        open_partition(golden("kafka-4.3.1") / "hard" / "idem-none-0")
    ).producers
    known = is_live(producers, Clock(1_795_229_939_000))
    assert (len(known), int(known.sum())) == (20, 17)
    batches, open_count = int(producers.cached[known].sum()), int(producers.is_open[known].sum())
    assert heap_bytes(producers, known) == (
        16 + 4 * 32 + 17 * (32 + 24 + 48 + 24 + 88) + 40 * batches + open_count * 152
    )
    assert heap_bytes(producers, known & False) == 0
    assert int(producers.cached.max()) <= 5


def test_text(golden: Callable[[str], Path], eoctl: Callable, monkeypatch: Any) -> None:
    monkeypatch.chdir(golden("kafka-4.3.1") / "hard")
    call = ("producers", "idem-none-0", "--now", "2026-11-21T02:58:59Z")
    found = eoctl(*call)
    columns = (
        "producers_count | entries_count | live_count | expired_count | open_transactions_count"
        " | single_batch_count | snapshot_only_count | new_last_hour_count | new_per_hour_max"
        " | new_per_hour_mean | heap_bytes"
    )
    values = "20 | 20 | 17 | 3 | 9 | 0 | 0 | 14 | 14 | 0.8 | 7424"
    assert found.text == "\n".join(
        [
            table(
                f"topic | partition | {columns} | is_complete | path",
                f"idem-none | 0 | {values} | no | idem-none-0",
            ),
            table(f"topic | {columns}", f"idem-none | {values}"),
            table(columns, values),
        ]
    )
    assert rows_of(eoctl(*call, *JSONL)) == unpacked(eoctl(*call, "--output", "msgpack"))
    assert "heap bytes " in in_80_columns("producers", "many-producers-0", *call[2:])


def test_text_has_no_rows_of_zeros(golden: Callable[[str], Path], eoctl: Callable) -> None:
    log_dir = golden("kafka-4.3.1") / "clean"
    found = eoctl("producers", log_dir)
    partitions, topics, total = found.text.split("\n\n")
    empty = len([*log_dir.glob("*-*/")]) - partitions.count("\n")
    assert f"partitions without producers, which have no row: {empty}\n" in found.errors
    for rows, place in ((partitions, 2), (topics, 1), (total, 0)):
        assert all(int(row.split("\t")[place]) for row in rows.splitlines()[1:])
    listed = eoctl("producers", log_dir, "--output", "jsonl").text
    assert listed.count('"kind":"partition"') == len([*log_dir.glob("*-*/")])


def test_no_path(eoctl: Callable) -> None:
    assert eoctl("producers").status == 2
