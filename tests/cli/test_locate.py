"""`eoctl locate` against kafka-dump-log's words, with good, wrong and missing indexes."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from recovery.inspect.locate import Location
from storage.formats.offset_index import OffsetIndexEntry, encode_entries
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BATCH_LINE = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) .* position: (\d+) \w+: (\d+) size: (\d+) ", re.MULTILINE
)


def rows_of(outcome: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.text.splitlines()]


def dumped_batches(golden: Callable[[str], Path], state: str, name: str) -> list[tuple[int, ...]]:
    """Segment, base offset, last offset, position, max timestamp and size of every batch."""
    found = []
    for path in sorted((golden("kafka-4.3.1.dump") / state / name).glob("*.log.txt")):
        text = path.read_text("utf-8", "replace")
        found += [
            (int(path.name.split(".")[0]), *map(int, match)) for match in BATCH_LINE.findall(text)
        ]
    return found


@pytest.fixture
def copy(golden: Callable[[str], Path], tmp_path: Path) -> Callable[[str, str], Path]:
    def copy(state: str, name: str) -> Path:
        target = tmp_path / name
        shutil.copytree(golden("kafka-4.3.1") / state / name, target)
        for path in [target, *target.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        return target

    return copy


@pytest.mark.parametrize("name", ["txn-0", "rolled-0", "idem-zstd-0", "compacted-0"])
def test_offsets(eoctl: Callable[..., Any], golden: Callable[[str], Path], name: str) -> None:
    path = golden("kafka-4.3.1") / "clean" / name
    batches = dumped_batches(golden, "clean", name)
    assert batches
    for base, first, last, pos, max_ms, size in batches[:: max(1, len(batches) // 6)]:
        outcome = eoctl("locate", path, "--offset", last, "--output", "jsonl")
        (row,) = rows_of(outcome)
        assert outcome.status == 0
        assert row["segment_base_offset"] == base
        assert (row["batch_base_offset"], row["batch_last_offset"]) == (first, last)
        assert (row["batch_pos"], row["batch_bytes"]) == (pos, size)
        assert row["batch_max_timestamp_ms"] == max_ms
        assert row["crc_ok"] is True
        assert row["path"] == str(path / f"{base:020d}.log")
        assert row["offset"] in {last, None}
        assert row["index_holds"] in {True, None}
        assert row["time_index_holds"] in {True, None}


def test_text(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    path = golden("kafka-4.3.1") / "clean" / "txn-0"
    outcome = eoctl("locate", path, "--offset", 311)
    row = ["txn", 0, 311, 1795229940645, 0, 25555, 173, 311, 317, 1795229940645, "yes", 310, 25477]
    row += ["yes", 1795229906545, 310, "yes", path / f"{0:020d}.log"]
    assert outcome.text.splitlines() == ["\t".join(Location._fields), "\t".join(map(str, row))]
    assert outcome.errors.splitlines() == [
        "offset 311: producer 40, epoch 0, in a transaction, leader epoch 0",
        "  key null, at 2026-11-21 02:59:00.645 UTC",
        f"  whose transactional id: eoctl txn describe --producer-id 40 {path.parent}",
    ]


def test_time(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    path = golden("kafka-4.3.1") / "clean" / "txn-0"
    for time in ("1795229941000", "2026-11-21T02:59:01Z", "2026-11-21T04:59:01+02:00"):
        (row,) = rows_of(eoctl("locate", path, "--timestamp", time, "--output", "jsonl"))
        assert (row["offset"], row["timestamp_ms"]) == (318, 1795229941197)
    outcome = eoctl("locate", path, "--timestamp", "2027-01-01", "--output", "jsonl")
    assert (outcome.status, outcome.stdout) == (1, b"")
    assert "no record has a timestamp" in outcome.errors


def test_keys(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    for name in ("txn-0", "idem-zstd-0", "rolled-0"):
        text = "".join(
            path.read_text("utf-8", "replace")
            for path in sorted((golden("kafka-4.3.1.dump") / "clean" / name).glob("*.log.txt"))
        )
        keyed = re.findall(r"^\| offset: (\d+) .* key: (\S+) payload: ", text, re.MULTILINE)
        key = keyed[len(keyed) // 2][1]
        path = golden("kafka-4.3.1") / "clean" / name
        rows = rows_of(eoctl("locate", path, "--key", key, "--output", "jsonl"))
        assert [row["offset"] for row in rows] == [int(o) for o, k in keyed if k == key]
    outcome = eoctl("locate", path, "--key", "nobody has this key")
    assert outcome.status == 1
    assert "no record has that key" in outcome.errors


def test_positions(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    path = golden("kafka-4.3.1") / "clean" / "rolled-0"
    for base, first, _, pos, _, size in dumped_batches(golden, "clean", "rolled-0")[3:9:2]:
        log = path / f"{base:020d}.log"
        for place in (pos, pos + size // 2, pos + size - 1):
            (row,) = rows_of(eoctl("locate", log, "--pos", place, "--output", "jsonl"))
            assert (row["batch_pos"], row["batch_base_offset"]) == (pos, first)
            assert row["offset"] is None
        (other,) = rows_of(
            eoctl("locate", path, "--segment", base, "--pos", pos, "--output", "jsonl")
        )
        assert other["batch_pos"] == pos
    assert eoctl("locate", path, "--pos", 0).status == 2
    assert eoctl("locate", path, "--pos", 0, "--segment", 7).status == 2
    outcome = eoctl("locate", path, "--pos", 10**9, "--segment", 50)
    assert outcome.status == 1
    assert "has only" in outcome.errors


def test_offset_beyond_the_end(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    outcome = eoctl("locate", golden("kafka-4.3.1") / "clean" / "txn-0", "--offset", 329)
    assert outcome.status == 1
    assert "not below the log end offset 329" in outcome.errors


def test_offset_that_compaction_removed(
    eoctl: Callable[..., Any], golden: Callable[[str], Path]
) -> None:
    path = golden("kafka-4.3.1") / "tv2-clean" / "compacted-0"
    present = set()
    for dump in (golden("kafka-4.3.1.dump") / "tv2-clean" / "compacted-0").glob("*.log.txt"):
        present |= set(
            map(int, re.findall(r"\| offset: (\d+) ", dump.read_text("utf-8", "replace")))
        )
    missing = next(each for each in range(max(present)) if each not in present)
    outcome = eoctl("locate", path, "--offset", missing, "--output", "jsonl")
    (row,) = rows_of(outcome)
    assert outcome.status == 0
    assert row["offset"] is None
    assert row["batch_last_offset"] >= missing
    assert f"no record with offset {missing}" in outcome.errors


def test_below_the_log_start(
    eoctl: Callable[..., Any], copy: Callable[[str, str], Path], tmp_path: Path
) -> None:
    path = copy("clean", "plain-0")
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nplain 0 100\n")
    outcome = eoctl("locate", path, "--offset", 5, "--output", "jsonl")
    assert rows_of(outcome)[0]["offset"] == 5
    assert "below the log start offset 100" in outcome.errors


def test_a_wrong_index_is_told_and_not_believed(
    eoctl: Callable[..., Any], copy: Callable[[str, str], Path]
) -> None:
    path = copy("clean", "txn-0")
    (right,) = rows_of(eoctl("locate", path, "--offset", 200, "--output", "jsonl"))
    assert right["index_holds"] is True
    index = path / f"{0:020d}.index"
    index.write_bytes(encode_entries([OffsetIndexEntry(150, 25555), OffsetIndexEntry(300, 26000)]))
    outcome = eoctl("locate", path, "--offset", 200, "--output", "jsonl")
    (row,) = rows_of(outcome)
    assert outcome.status == 0
    assert (row["index_offset"], row["index_pos"], row["index_holds"]) == (150, 25555, False)
    assert row["batch_pos"] == right["batch_pos"]
    index.unlink()
    (row,) = rows_of(eoctl("locate", path, "--offset", 200, "--output", "jsonl"))
    assert (row["index_offset"], row["index_holds"]) == (None, None)
    assert row["batch_pos"] == right["batch_pos"]


def test_damaged_batch(eoctl: Callable[..., Any], copy: Callable[[str, str], Path]) -> None:
    path = copy("clean", "txn-0")
    log = path / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[25555 + 100] ^= 1
    log.write_bytes(data)
    outcome = eoctl("locate", path, "--offset", 311, "--output", "jsonl")
    (row,) = rows_of(outcome)
    assert outcome.status == 1
    assert (row["batch_pos"], row["crc_ok"]) == (25555, False)
    assert "there is no record" not in outcome.errors
    outcome = eoctl("locate", path, "--key", "k15", "--output", "jsonl")
    assert outcome.status == 5  # a part was not searched
    assert rows_of(outcome)
    assert "were not searched" in outcome.errors


def test_a_batch_that_reaches_into_the_next_segment(
    eoctl: Callable[..., Any], copy: Callable[[str, str], Path]
) -> None:
    """No checksum covers a base offset: only the segment behind tells, as it does for consume."""
    path = copy("clean", "rolled-0")
    log = path / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    pos = end = 0
    while end < len(data):
        pos, end = end, end + 12 + int.from_bytes(data[end + 8 : end + 12])
    data[pos + 7] = 30  # of the last batch; the segment behind begins at 25
    log.write_bytes(data)
    assert eoctl("consume", path, "--skip-corrupt").status == 5
    outcome = eoctl("locate", path, "--key", "r40", "--output", "jsonl")
    assert [row.get("offset") for row in rows_of(outcome)] == [40]
    assert "where the segment ends" in outcome.errors
    assert outcome.status == 5
    outcome = eoctl("locate", path, "--offset", 24, "--output", "jsonl")
    (row,) = rows_of(outcome)
    assert row["batch_base_offset"] >= 25


def test_legacy_wrapper(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    path = golden("kafka-0.10.2-legacy") / "v1-gzip-0"
    (row,) = rows_of(eoctl("locate", path, "--offset", 5, "--output", "jsonl"))
    assert (row["offset"], row["batch_last_offset"], row["batch_pos"]) == (5, 11, 0)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--offset", "1", "--key", "k"],
        ["--offset", "1", "--segment", "0"],
        ["--timestamp", "yesterday"],
        ["--offset", "-1"],
        ["--offset", "x"],
    ],
)
def test_usage(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], options: list[str]
) -> None:
    outcome = eoctl("locate", golden("kafka-4.3.1") / "clean" / "txn-0", *options)
    assert outcome.status == 2
    assert outcome.stdout == b""


def test_not_one_partition(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    assert eoctl("locate", golden("kafka-4.3.1") / "clean", "--offset", 1).status == 2
    assert eoctl("locate", "/no/such/dir", "--offset", 1).status == 3


def test_who_wrote_an_offset(golden: Callable[[str], Path]) -> None:
    """On a terminal, as an operator asks; the transactional id is the second call."""
    log_dir = golden("kafka-4.3.1") / "clean"
    shown = on_terminal("locate", log_dir / "txn-0", "--offset", 100, streams=("stdout",))
    status, lines = shown.status, shown.lines
    assert status == 0
    assert lines[0] == "offset 100: producer 21, epoch 0, in a transaction, leader epoch 0"
    assert lines[1] == "  key t4, at 2026-11-21 02:58:20.981 UTC"
    call = lines[2].partition(": ")[2].split()
    assert call[:5] == ["eoctl", "txn", "describe", "--producer-id", "21"]
    shown = on_terminal(*call[1:], streams=("stdout",))
    status, lines = shown.status, shown.lines
    assert status == 0
    assert any(each.startswith("transactional id ") for each in lines[:10])
    shown = on_terminal("locate", log_dir / "plain-0", "--offset", 54, streams=("stdout",))
    lines = shown.lines
    assert lines[0] == "offset 54: a producer without idempotence, leader epoch 0"
    shown = on_terminal("locate", log_dir / "txn-0", "--offset", 131, streams=("stdout",))
    lines = shown.lines
    assert lines[0].startswith("offset 131: a marker for producer 19, epoch 0")
