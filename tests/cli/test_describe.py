"""`eoctl describe` on real directories, damaged copies, and beside a holder of the lock."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

import recovery.inspect.describe
from eoctl.console.columns import size_text
from recovery.inspect.describe import PartitionDescription, SegmentSummary
from tests.damage.planted import layout

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEX = "0123456789abcdef0123456789abcdef"


def rows_of(outcome: Any, kind: str = "partition") -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    return [row for row in rows if row["kind"] == kind]


def by_name(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {f"{row['topic']}-{row['partition']}": row for row in rows}


@pytest.fixture
def writable(golden: Callable[[str], Path], tmp_path: Path) -> Callable[[str, str], Path]:
    """A copy of one partition of a golden log dir, with the log dir's own files around it.

    Checkpoints keep the line of that partition.
    """

    def copy(state: str, name: str) -> Path:
        source = golden("kafka-4.3.1") / state
        target = tmp_path / state
        target.mkdir(exist_ok=True)
        for path in source.iterdir():
            if path.is_file():
                shutil.copy(path, target)
        shutil.copytree(source / name, target / name)
        for path in [target, *target.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        for path in target.glob("*-offset-checkpoint"):
            rows = layout.read_lines(path)
            layout.write_lines(path, [row for row in rows if f"{row[0]}-{row[1]}" == name])
        return target

    return copy


def last_log(directory: Path) -> Path:
    return max(directory.glob("*.log"))


# --- real directories -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "open_count", "stopped"),
    [
        ("crash", 2, "unclean"),
        ("recovered", 2, "unclean"),
        ("clean", 2, "clean"),
        ("hard", 106, "unclean"),
        ("hard-clean", 104, "clean"),
        ("tv2", 0, "unclean"),
        ("tv2-clean", 0, "clean"),
    ],
)
def test_one_node(
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    state: str,
    open_count: int,
    stopped: str,
) -> None:
    outcome = eoctl("describe", golden("kafka-4.3.1") / state, "--output", "jsonl")
    gapped = {"idem-none"} if state.startswith("hard") else set()  # it was made with gaps
    assert outcome.status == (1 if gapped else 0)
    rows = rows_of(outcome)
    assert len(rows) == (26 if state.startswith("tv2") else 24)
    assert {row["topic"] for row in rows if row["verdict"] != "ok"} == gapped
    assert {row["stopped"] for row in rows} == {stopped}
    assert {row["state"] for row in rows} == {"live"}
    assert sum(row["open_transactions_count"] for row in rows) == open_count
    for row in rows:
        if row["topic"] == "__cluster_metadata":
            assert row["high_watermark"] is None
            assert row["last_stable_offset"] is None
            assert row["replication_factor"] is None
            continue
        assert row["replication_factor"] == 1
        if stopped == "clean":
            assert row["high_watermark"] == row["log_end_offset"]
        if row["high_watermark"] is None:
            assert row["last_stable_offset"] is None


def test_last_stable_offsets_are_those_told_to_a_client(
    eoctl: Callable[..., Any], golden: Callable[[str], Path]
) -> None:
    outcome = eoctl("describe", golden("kafka-4.3.1") / "clean", "--output", "jsonl")
    found = by_name(rows_of(outcome))
    reported = {}
    for path in golden("kafka-4.3.1-clean.consumed").glob("**/*.read_committed.jsonl"):
        with path.open() as lines:
            header = json.loads(next(lines))
        reported[f"{header['topic']}-{header['partition']}"] = (
            header["log_start_offset"],
            header["high_watermark"],
        )
    assert len(reported) == 15
    assert {
        name: (found[name]["log_start_offset"], found[name]["last_stable_offset"])
        for name in reported
    } == reported


def test_figures_of_one_partition(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    path = golden("kafka-4.3.1") / "crash" / "rolled-0"
    outcome = eoctl("describe", path, "--output", "jsonl")
    (row,) = rows_of(outcome)
    assert row == {
        "kind": "partition",
        "topic": "rolled",
        "partition": 0,
        "state": "live",
        "verdict": "ok",
        "log_start_offset": 0,
        "local_log_start_offset": 0,
        "log_end_offset": 60,
        "high_watermark": 60,
        "last_stable_offset": 60,
        "open_transactions_count": 0,
        "segments_count": 3,
        "log_bytes": sum(each.stat().st_size for each in path.glob("*.log")),
        "batches_count": 12,
        "records_count": 60,
        "producers_count": 1,
        "codecs": ["none"],
        "replication_factor": 1,
        "leader": 1,
        "isr": [1],
        "min_insync_replicas": 1,
        "min_insync_from": "all-brokers",
        "standing": "leader",
        "uncompacted_records_count": None,
        "uncompacted_bytes": None,
        "dirty_ratio": None,
        "uncompacted_since_ms": None,
        "first_dirty_offset": None,
        "cleanable_ratio": None,
        "stopped": "unclean",
        "problems_count": 0,
        "path": str(path),
    }
    segments = rows_of(outcome, "segment")
    assert [each["base_offset"] for each in segments] == [0, 25, 50]
    assert [each["last_offset"] for each in segments] == [24, 49, 59]
    assert [each["snapshot"] for each in segments] == [False, True, True]
    assert [each["records_count"] for each in segments] == [25, 25, 10]
    dump = golden("kafka-4.3.1.dump") / "crash" / "rolled-0"
    for each in segments:
        name = f"{each['base_offset']:020d}"
        entries = (dump / f"{name}.index.txt").read_text().count("offset: ")
        assert each["index_entries_count"] == entries
        entries = (dump / f"{name}.timeindex.txt").read_text().count("timestamp: ")
        assert each["time_index_entries_count"] == entries
        assert each["txn_index_entries_count"] == 0


def test_aborted_transactions_are_counted(
    eoctl: Callable[..., Any], golden: Callable[[str], Path]
) -> None:
    outcome = eoctl("describe", golden("kafka-4.3.1") / "clean" / "txn-0", "--output", "jsonl")
    (segment,) = rows_of(outcome, "segment")
    dump = golden("kafka-4.3.1.dump") / "clean" / "txn-0" / f"{0:020d}.txnindex.txt"
    assert segment["txn_index_entries_count"] == dump.read_text().count("producerId: ")


def test_legacy(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    outcome = eoctl("describe", golden("kafka-0.10.2-legacy"), "--output", "jsonl", "--segments")
    assert outcome.status == 0
    found = by_name(rows_of(outcome))
    assert found["v0-none-0"]["records_count"] == found["v0-none-0"]["log_end_offset"]
    assert found["v1-gzip-0"]["records_count"] is None  # not known before decompression
    assert found["v1-lz4-0"]["codecs"] == ["lz4"]
    assert {row["producers_count"] for row in found.values()} == {0}
    assert {row["replication_factor"] for row in found.values()} == {None}
    times = {row["topic"]: row["max_timestamp_ms"] for row in rows_of(outcome, "segment")}
    assert times["v0-none"] is None
    assert times["v1-none"] > 0


def test_three_nodes_of_one_cluster(
    eoctl: Callable[..., Any], golden: Callable[[str], Path]
) -> None:
    root = golden("kafka-4.3.1-three-brokers") / "diverged"
    outcome = eoctl("describe", *(root / f"broker-{n}" for n in (1, 2, 3)), "--output", "jsonl")
    assert outcome.status == 0
    rows = [row for row in rows_of(outcome) if row["topic"] == "div"]
    assert [row["log_end_offset"] for row in rows] == [73, 66, 36]
    assert [row["replication_factor"] for row in rows] == [3, 3, 3]


@pytest.mark.parametrize("state", ["clean", "hard", "tv2-clean"])
def test_tables_give_the_same(
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    state: str,
) -> None:
    for path in (golden("kafka-4.3.1") / state, golden("kafka-0.10.2-legacy")):
        plain = eoctl("describe", path, "--output", "jsonl", "--segments")
        monkeypatch.setattr(recovery.inspect.describe, "BULK_BYTES", 0)
        assert eoctl("describe", path, "--output", "jsonl", "--segments") == plain
        monkeypatch.undo()


# --- output modes ---------------------------------------------------------------------------------


def test_text(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    path = golden("kafka-4.3.1") / "crash" / "trimmed-0"
    outcome = eoctl("describe", path)
    size = (path / f"{0:020d}.log").stat().st_size
    partition = ["trimmed", 0, "live", "ok", 0, 0, 300, "unknown", "unknown", 0, 1, size, 8, 300, 1]
    partition += ["none", 1, 1, 1, 1, "all-brokers", "leader"]
    partition += ["unknown"] * 6 + ["unclean", 0, path]
    segment = ["trimmed", 0, 0, 299, "ok", size, 8, 300, 1795229940050, 1795229940573]
    segment += ["unknown", 7, 7, 0, "no", path / f"{0:020d}.log"]
    assert outcome.text.splitlines() == [
        "\t".join(PartitionDescription._fields),
        "\t".join(map(str, partition)),
        "",
        "\t".join(SegmentSummary._fields),
        "\t".join(map(str, segment)),
    ]
    sentence, verified, source = outcome.errors.splitlines()
    assert sentence == f"trimmed-0: offsets 0 to 299, 300 records, {size_text(size)}, ok"
    assert verified == (
        "verified: headers and checksums of all batches; records were not decompressed"
    )
    assert source.startswith(
        "leader and ISR as of metadata record 208, 2026-11-21 02:59:03.458 UTC"
    )


def test_msgpack(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    path = golden("kafka-4.3.1") / "clean"
    packed = eoctl("describe", path, "--output", "msgpack")
    unpacker = msgpack.Unpacker()
    unpacker.feed(packed.stdout)
    assert list(unpacker) == rows_of(eoctl("describe", path, "--output", "jsonl"))


# --- damage ---------------------------------------------------------------------------------------


def test_flipped_bit(eoctl: Callable[..., Any], writable: Callable[[str, str], Path]) -> None:
    root = writable("clean", "plain-0")
    log = last_log(root / "plain-0")
    data = bytearray(log.read_bytes())
    data[5000] ^= 1
    log.write_bytes(data)
    outcome = eoctl("describe", root, "--output", "jsonl")
    assert outcome.status == 1
    (row,) = rows_of(outcome)
    assert (row["verdict"], row["problems_count"]) == ("corrupt", 1)
    assert row["batches_count"] == 9
    assert row["log_end_offset"] == 179
    assert "[BAT-1]" in outcome.errors
    assert str(log) in outcome.errors


def test_torn_tail_is_normal_after_a_crash_only(
    eoctl: Callable[..., Any], writable: Callable[[str, str], Path]
) -> None:
    """And only if it is above all that was acknowledged."""
    found = []
    for state, high_watermark in (("crash", 100), ("crash", 179), ("clean", 100)):
        root = writable(state, "plain-0")
        layout.set_offset(root, "replication", "plain-0", high_watermark)
        log = last_log(root / "plain-0")
        log.write_bytes(log.read_bytes()[:-100])
        outcome = eoctl("describe", root / "plain-0", "--output", "jsonl")
        (row,) = rows_of(outcome)
        assert row["log_end_offset"] < 179
        found.append((row["verdict"], outcome.status))
        shutil.rmtree(root)
    assert found == [("torn_tail", 0), ("missing", 1), ("missing", 1)]


def test_zeros_at_the_end(eoctl: Callable[..., Any], writable: Callable[[str, str], Path]) -> None:
    root = writable("crash", "plain-0")
    with last_log(root / "plain-0").open("ab") as log:
        log.write(bytes(4096))
    outcome = eoctl("describe", root, "--output", "jsonl")
    (row,) = rows_of(outcome)
    assert (row["verdict"], row["log_end_offset"]) == ("preallocated", 179)
    assert outcome.status == 0


def test_torn_middle_segment(
    eoctl: Callable[..., Any], writable: Callable[[str, str], Path]
) -> None:
    root = writable("crash", "rolled-0")
    log = root / "rolled-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1])
    outcome = eoctl("describe", root, "--output", "jsonl", "--segments")
    (row,) = rows_of(outcome)
    assert (row["verdict"], row["log_end_offset"]) == ("corrupt", 60)
    assert [each["verdict"] for each in rows_of(outcome, "segment")] == ["corrupt", "ok", "ok"]
    assert outcome.status == 1


def test_unreadable_checkpoint_makes_offsets_unknown(
    eoctl: Callable[..., Any], writable: Callable[[str, str], Path]
) -> None:
    root = writable("clean", "txn-0")
    (root / "replication-offset-checkpoint").write_text("rubbish\n")
    outcome = eoctl("describe", root / "txn-0", "--output", "jsonl")
    (row,) = rows_of(outcome)
    assert row["high_watermark"] is None
    assert row["last_stable_offset"] is None
    assert row["open_transactions_count"] == 1
    assert outcome.status == 1
    assert "replication-offset-checkpoint" in outcome.errors


def test_a_log_that_cannot_be_opened(
    eoctl: Callable[..., Any], writable: Callable[[str, str], Path]
) -> None:
    root = writable("clean", "plain-0")
    log = last_log(root / "plain-0")
    log.unlink()
    log.symlink_to(log.name)  # a loop
    outcome = eoctl("describe", root, "--output", "jsonl")
    (row,) = rows_of(outcome)
    assert row["segments_count"] == 0
    assert row["log_end_offset"] is None
    assert row["log_start_offset"] is None
    assert outcome.status == 5


def test_directories_set_aside(
    eoctl: Callable[..., Any], writable: Callable[[str, str], Path]
) -> None:
    root = writable("clean", "plain-0")
    (root / "plain-0").rename(root / f"plain-0.{HEX}-stray")
    outcome = eoctl("describe", root, "--output", "jsonl")
    (row,) = rows_of(outcome)
    assert (row["topic"], row["partition"], row["state"]) == ("plain", 0, "stray")
    assert row["high_watermark"] is None
    assert row["log_end_offset"] == 179


def test_foreign_directory_is_a_finding(
    eoctl: Callable[..., Any], writable: Callable[[str, str], Path]
) -> None:
    root = writable("clean", "plain-0")
    (root / "lost+found").mkdir()
    outcome = eoctl("describe", root)
    assert outcome.status == 1
    assert "[DIR-1]" in outcome.errors


def test_partition_alone(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    source = golden("kafka-4.3.1") / "clean"
    shutil.copytree(source / "txn-0", tmp_path / "txn-0")
    outcome = eoctl("describe", tmp_path / "txn-0", "--output", "jsonl")
    (row,) = rows_of(outcome)
    assert (row["stopped"], row["high_watermark"]) == ("unknown", None)
    assert row["replication_factor"] is None
    outcome = eoctl("describe", tmp_path / "txn-0", "--output", "jsonl", "--metadata-dir", source)
    (row,) = rows_of(outcome)
    assert row["replication_factor"] == 1


# --- calls ----------------------------------------------------------------------------------------


def test_server_properties(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    path = golden("kafka-4.3.1") / "clean"
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=1\nlog.dirs={path}\n")
    outcome = eoctl("describe", "--server-properties", config, "--output", "jsonl")
    assert outcome.status == 0
    assert len(rows_of(outcome)) == 24


def test_calls_that_fail(eoctl: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "song.ogg").touch()
    for arguments, status in (([], 2), (["/no/such/dir"], 3), ([tmp_path], 3)):
        outcome = eoctl("describe", *arguments)
        assert outcome.status == status
        assert outcome.stdout == b""
        assert outcome.errors.startswith("eoctl: ")


def test_missing_metadata_dir(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    path = golden("kafka-0.10.2-legacy")
    assert eoctl("describe", path, "--metadata-dir", path).status == 2


def test_one_missing_path_of_two(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    path = golden("kafka-4.3.1") / "clean" / "plain-0"
    outcome = eoctl("describe", path, "/no/such/dir", "--output", "jsonl")
    assert outcome.status == 5
    assert len(rows_of(outcome)) == 1


def test_beside_a_broker(eoctl: Callable[..., Any], writable: Callable[[str, str], Path]) -> None:
    root = writable("crash", "plain-0")
    (root / ".lock").touch()
    code = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX);"
        "print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        outcome = eoctl("describe", root, "--output", "jsonl")
        assert holder.stdin is not None
        holder.stdin.close()
    (row,) = rows_of(outcome)
    assert row["stopped"] == "live"
    assert f"in use by process {holder.pid}" in outcome.errors
    assert outcome.status == 0


def test_all_ok_is_said_of_what_is_whole(
    kafka: Path, eoctl: Callable[..., Any], tmp_path: Path
) -> None:
    """A partition that is gone, one that cannot be read: the first line says it, as the status does."""
    whole = eoctl("describe", kafka)
    assert (whole.status, "24 partitions, 2.6" in whole.errors) == (0, True)
    assert "MiB, all ok" in whole.errors
    shutil.rmtree(kafka / "plain-1")
    log = kafka / "txn-0" / f"{0:020d}.log"
    log.unlink()
    log.symlink_to(tmp_path / "nowhere")
    done = eoctl("describe", kafka)
    answers = done.errors.splitlines()[-5:]
    assert done.status == 1
    assert not any("all ok" in each for each in answers)
    assert any(each.startswith("Absent  1 partition") for each in answers), answers
    assert any("txn-0" in each for each in answers), answers
