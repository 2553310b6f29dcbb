"""`eoctl produce`: plans, appends, and refusals."""

from __future__ import annotations

import fcntl
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from eoctl.clients.partitions.identity import choose_identity, run_ids
from eoctl.commands.produce import ProduceReport
from storage.errors import UsageError
from storage.formats.record_batch import MAX_SEQUENCE
from storage.log.segment import LogRecord, open_segment
from storage.producers.producer_state import CachedBatch, ProducerState, ProducerStateManager
from storage.writing.record_builder import ProducerIdentity
from tests.changes import split_answer
from tests.writing import NEW_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

NOW_MS = 1_795_230_000_000
NOW = ("--now", NOW_MS)
JSONL = ("--output", "jsonl")
SEGMENT = "00000000000000000000.log"
HOLD_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def log_dir(golden: Callable[[str], Path], tmp_path: Path) -> Path:
    """A writable copy of `clean`."""
    target = tmp_path / "log-dir"
    shutil.copytree(golden("kafka-4.3.1") / "clean", target)
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


@pytest.fixture
def lines(tmp_path: Path) -> Callable[..., Path]:
    def lines(*values: bytes, end: bytes = b"\n") -> Path:
        path = tmp_path / "lines"
        path.write_bytes(b"\n".join(values) + (end if values else b""))
        return path

    return lines


def rows_of(outcome: Outcome, kind: str = "append") -> list[dict[str, Any]]:
    rows = [json.loads(each) for each in outcome.text.splitlines()]
    return [each for each in rows if each["kind"] == kind]


def report_of(outcome: Outcome) -> dict[str, Any]:
    assert outcome.status == 0, outcome.errors
    (row,) = rows_of(outcome)
    return row


def inventory(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


def records_of(path: Path, first_offset: int = 0) -> list[LogRecord]:
    with open_segment(path) as segment:
        return [
            record
            for each in segment.scan()
            for record in segment.records(each)
            if record.offset >= first_offset
        ]


# --- the plan and the deed ------------------------------------------------------------------------


def test_the_plan_changes_nothing_and_is_what_is_done(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    before = inventory(log_dir)
    call = ("produce", log_dir / "plain-0", lines(b"one", b"", b"\xff\r"), *NOW, *JSONL)
    plan = eoctl(*call)
    assert inventory(log_dir) == before
    assert report_of(plan) == {
        "kind": "append",
        "topic": "plain",
        "partition": 0,
        "applied": False,
        "records": 3,
        "batches": 1,
        "bytes": 61 + 10 + 7 + 9,
        "duplicates": 0,
        "skipped": 0,
        "committed": 0,
        "aborted": 0,
        "base_offset": 179,
        "last_offset": 181,
        "segments_rolled": 0,
        "producer_id": next(run_ids(["plain-0"], 179)),
        "producer_epoch": 0,
        "base_sequence": 0,
        "last_sequence": 2,
        "leader_epoch": 2,
        "path": str(log_dir / "plain-0"),
    }
    assert "this is a plan, nothing was changed: --apply runs it" in plan.errors
    files = [
        (each["path"].removeprefix(f"{log_dir}/"), each["action"]) for each in rows_of(plan, "file")
    ]
    assert files == [
        (".kafka_cleanshutdown", "remove"),
        (f"plain-0/{SEGMENT}", "append"),
        ("plain-0/00000000000000000000.index", "replace"),
        ("plain-0/00000000000000000000.timeindex", "replace"),
        ("plain-0/00000000000000000182.snapshot", "create"),
    ]

    done = eoctl(*call, "--apply")
    assert report_of(done) == {**report_of(plan), "applied": True}
    assert rows_of(done, "file") == rows_of(plan, "file")
    after = inventory(log_dir)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert changed - {".lock"} == {name for name, _ in files}
    assert ".kafka_cleanshutdown" not in after
    assert [each[:5] for each in records_of(log_dir / "plain-0" / SEGMENT, 179)] == [
        (179, NOW_MS, 0, None, b"one"),
        (180, NOW_MS, 1, None, b""),
        (181, NOW_MS, 2, None, b"\xff\r"),
    ]

    # A second run: the marker is gone, the partition is closed all the same.
    again = report_of(eoctl(*call, "--apply"))
    assert (again["base_offset"], again["producer_id"]) == (
        182,
        next(run_ids(["plain-0"], 182)),
    )
    for path in (log_dir / "plain-0").iterdir():
        assert eoctl("dump-segment", path).status == 0


def test_text(eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]) -> None:
    path = log_dir / "plain-0"
    outcome = eoctl("produce", path, lines(b"one"), *NOW)
    row = [
        "plain",
        0,
        "no",
        1,
        1,
        71,
        0,
        0,
        0,
        0,
        179,
        179,
        0,
        next(run_ids(["plain-0"], 179)),
        0,
        0,
        0,
        2,
        path,
    ]
    assert outcome.text.splitlines() == [
        "\t".join(ProduceReport._fields),
        "\t".join(map(str, row)),
        "",
        "path\taction\tbytes",
        f"{log_dir}/.kafka_cleanshutdown\tremove\t0",
        f"{path}/{SEGMENT}\tappend\t71",
        f"{path}/00000000000000000000.index\treplace\t80",
        f"{path}/00000000000000000000.timeindex\treplace\t120",
        f"{path}/00000000000000000180.snapshot\tcreate\t56",
    ]
    answer, notes = split_answer(outcome.errors)
    assert answer[:2] == [
        "Plan append 1 record to plain-0, offsets 179..179",
        "Undo yes: a journal is kept for eoctl undo",
    ]
    assert notes == [
        (
            "verified before: headers and checksums of all batches from the recovery point on;"
            " records were not decompressed"
        ),
        "now is 2026-11-21 03:00:00 UTC (as given)",
        "this is a plan, nothing was changed: --apply runs it",
        (
            "the log dir is without its clean-shutdown marker afterwards; recovery point and high"
            " watermark stay as they are. The next start of the broker recovers 23 partitions,"
            " 750,151 bytes of log and what is appended"
        ),
    ]


def test_msgpack(eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]) -> None:
    outcome = eoctl("produce", log_dir / "plain-0", lines(b"one"), *NOW, "--output", "msgpack")
    found = list(msgpack.Unpacker(io.BytesIO(outcome.stdout)))
    assert [each["kind"] for each in found] == ["append"] + ["file"] * 5
    assert found[0]["base_offset"] == 179


def test_the_standard_input(
    eoctl: Callable[..., Outcome], log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in ([], ["-"]):
        data = io.BytesIO(b"a\nb")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(data))
        outcome = eoctl("produce", log_dir / "plain-0", *arguments, *NOW, "--output", "jsonl")
        assert report_of(outcome)["records"] == 2


def test_an_interrupt_closes_the_partition(
    eoctl: Callable[..., Outcome], log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            found = super().read1(size)
            if not found:
                raise KeyboardInterrupt
            return found

    call = ("produce", log_dir / "plain-0", *NOW, "--output", "jsonl", "--batch-records", 1)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Interrupted(b"a\nb\nc\n")))
    outcome = eoctl(*call, "--apply")
    assert outcome.status == 130
    (report,) = rows_of(outcome)
    assert (report["records"], report["last_offset"]) == (2, 180)  # the third one still waited
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"d\n")))
    assert report_of(eoctl(*call))["base_offset"] == 181


def test_nothing_to_append(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    before = inventory(log_dir)
    outcome = eoctl("produce", log_dir / "plain-0", lines(), *NOW, "--apply", "--output", "jsonl")
    report = report_of(outcome)
    assert (report["records"], report["base_offset"], report["last_sequence"]) == (0, None, None)
    assert "nothing is changed" in outcome.errors
    after = inventory(log_dir)
    assert after.pop(".lock", None) is not None
    before.pop(".lock", None)
    assert after == before


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_options_of_the_batches(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path], codec: str
) -> None:
    values = [b"k%d=v=%d" % (n % 3, n) for n in range(100)]
    report = report_of(
        eoctl(
            "produce", log_dir / "plain-0", lines(*values, end=b""), "--apply", *NOW,
            "--compression", codec, "--batch-records", 40, "--batch-bytes", 600, "--timestamp",
            "2026-11-21T01:00:00Z", "--key-separator", "=", "--output", "jsonl", "--fsync", "batch",
        )
    )  # fmt: skip
    found = records_of(log_dir / "plain-0" / SEGMENT, 179)
    assert [(each.key, each.value) for each in found] == [
        tuple(each.split(b"=", 1)) for each in values
    ]
    assert {each.timestamp_ms for each in found} == {1795222800000}
    assert [each.sequence for each in found] == list(range(100))
    assert report["batches"] == 3
    dumped = eoctl("dump-segment", log_dir / "plain-0" / SEGMENT).text
    assert dumped.count(f"compresscodec: {codec} ") >= 3


def test_options_of_the_segments(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    values = [b"v" * 100] * 200
    common = ("produce", log_dir / "plain-0", lines(*values), *NOW, "--output", "jsonl")
    assert report_of(eoctl(*common))["segments_rolled"] == 0
    rolled = (*common, "--segment-bytes", 40_000, "--batch-bytes", 2000)
    assert report_of(eoctl(*rolled))["segments_rolled"] == 1
    full = (*common, "--index-max-bytes", 80, "--batch-bytes", 2000, "--index-interval-bytes", 0)
    assert report_of(eoctl(*full))["segments_rolled"] > 1


def test_a_topic_decides_on_the_timestamp_and_the_codec(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    call = ("produce", log_dir / "append-time-0", lines(b"v"), *NOW, "--timestamp", 5, "--apply")
    assert eoctl(*call).status == 0
    (record,) = records_of(log_dir / "append-time-0" / SEGMENT, 60)
    assert record.timestamp_ms == NOW_MS


# --- producers ------------------------------------------------------------------------------------


def manager_with(producer_id: int, epoch: int, last_sequence: int | None) -> ProducerStateManager:
    manager = ProducerStateManager(10)
    state = ProducerState(producer_id)
    state.producer_epoch = epoch
    if last_sequence is not None:
        state.batches.append(CachedBatch(last_sequence, 9, 0, 0))
    manager.producers[producer_id] = state
    return manager


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"producer_id": -1}, (-1, -1, -1)),
        ({"producer_id": 5}, (5, 3, 42)),
        ({"producer_id": 5, "producer_epoch": 4}, (5, 4, 0)),
        ({"producer_id": 5, "base_sequence": 40}, (5, 3, 40)),
        ({"producer_id": 6}, (6, 0, 0)),
        ({"producer_id": 6, "producer_epoch": 2, "base_sequence": 9}, (6, 2, 9)),
    ],
)
def test_a_known_producer_goes_on(given: dict[str, int], wanted: tuple[int, int, int]) -> None:
    assert choose_identity(manager_with(5, 3, 41), **given) == ProducerIdentity(*wanted)


def test_what_follows_the_last_sequence_number() -> None:
    assert choose_identity(manager_with(5, 3, MAX_SEQUENCE), producer_id=5)[2] == 0
    assert choose_identity(manager_with(5, 3, None), producer_id=5) == (5, 3, 0)
    with pytest.raises(UsageError):
        choose_identity(manager_with(5, 3, 0), producer_id=-1, base_sequence=0)


def test_records_sent_again_are_found(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    path = log_dir / "plain-0"
    call = ("produce", path, lines(b"a", b"b"), *NOW, "--output", "jsonl", "--producer-id", 77)
    first = report_of(eoctl(*call, "--apply"))
    before = inventory(log_dir)
    again = report_of(eoctl(*call, "--apply", "--base-sequence", 0))
    assert (again["records"], again["duplicates"], again["bytes"]) == (0, 2, 0)
    assert inventory(log_dir) == before
    assert (first["base_sequence"], report_of(eoctl(*call))["base_sequence"]) == (0, 2)
    plain = report_of(eoctl("produce", path, lines(b"a"), *NOW, "--output", "jsonl",
                            "--producer-id", -1))  # fmt: skip
    assert (plain["producer_id"], plain["producer_epoch"], plain["last_sequence"]) == (-1, -1, None)


def test_what_the_log_refuses_ends_it(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    """What came before stays, and the report says so."""
    path = log_dir / "plain-0"
    large = lines(b"a", b"b" * 1_100_000, b"c")
    outcome = eoctl("produce", path, large, *NOW, "--apply", "--output", "jsonl")
    assert outcome.status == 4
    (report,) = rows_of(outcome)
    assert (report["records"], report["last_offset"]) == (1, 179)
    error = json.loads(outcome.errors.splitlines()[-1])
    assert error["message"].startswith(f"{path}: MESSAGE_TOO_LARGE: ")
    assert "max.message.bytes" in error["next_step"]
    assert [each.value for each in records_of(path / SEGMENT, 179)] == [b"a"]
    before = inventory(log_dir)
    for more, kafka_error in [
        (
            ("--producer-id", next(run_ids(["plain-0"], 179)), "--base-sequence", 5),
            "OUT_OF_ORDER",
        ),
        (("--producer-id", 9, "--producer-epoch", 3), ""),
    ]:
        found = eoctl("produce", path, lines(b"x"), *NOW, *more)
        assert (found.status, kafka_error in found.errors) == (4 if kafka_error else 0, True)
        assert ("try: eoctl producers" in found.errors) == bool(kafka_error)
    assert inventory(log_dir) == before


def test_an_expired_producer_is_a_new_one(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    call = ("produce", log_dir / "plain-0", lines(b"v"), "--producer-id", 5, "--output", "jsonl")
    assert report_of(eoctl(*call, *NOW, "--apply"))["base_sequence"] == 0
    later = ("--now", NOW_MS + 1000)
    assert report_of(eoctl(*call, *later, "--producer-expiry-ms", 1001))["base_sequence"] == 1
    assert report_of(eoctl(*call, *later, "--producer-expiry-ms", 1000))["base_sequence"] == 0


def test_lines_without_a_key(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    call = ("produce", log_dir / "plain-0", lines(b"k:v", b"none"), *NOW, "--key-separator", ":")
    outcome = eoctl(*call)
    assert outcome.status == 2
    assert "line 2 has no ':' after a key" in outcome.errors
    outcome = eoctl("produce", log_dir / "compacted-0", lines(b"v"), *NOW)
    assert "takes no record without a key" in outcome.errors
    assert outcome.status == 2
    assert eoctl("produce", log_dir / "plain-0", lines(b"v"), "--key-separator", "").status == 2


# --- what is refused ------------------------------------------------------------------------------


def refused(outcome: Outcome, words: str, status: int = 4) -> None:
    assert outcome.status == status, outcome.errors
    assert words in outcome.errors
    assert outcome.text == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("__cluster_metadata-0", "is never changed"),
        ("__consumer_offsets-0", "only its coordinator writes to the internal topic"),
        ("plain-0.0123456789abcdef0123456789abcdef-stray", "set aside"),
        ("plain-2", "the topic has partitions 0, 1"),
        ("unheard-0", "its replication factor is unknown"),
    ],
)
def test_partitions_that_are_not_written_to(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path], name: str, words: str
) -> None:
    before = inventory(log_dir)
    refused(eoctl("produce", log_dir / name, lines(b"v"), *NOW, "--apply"), words)
    assert inventory(log_dir) == before


def test_a_refusal_names_all_that_is_missing_and_the_call_that_works(
    eoctl: Callable[..., Outcome], tmp_path: Path, lines: Callable[..., Path]
) -> None:
    log_dir = tmp_path / "log dir"
    log_dir.mkdir()
    outcome = eoctl("produce", log_dir / "t-0", lines(b"v"), *NOW, "--apply")
    refused(outcome, "its replication factor is unknown")
    refused(outcome, "; it does not exist, and without the cluster's metadata the id")
    first, _, call = outcome.errors.splitlines()[-1].partition(": eoctl ")
    assert "--metadata-dir DIR" in first
    assert "no cluster has the topic" in first
    again = eoctl(*shlex.split(call))
    assert again.status == 0, again.errors
    assert [each.value for each in records_of(log_dir / "t-0" / SEGMENT)] == [b"v"]


def test_no_partition_at_all(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    refused(eoctl("produce", log_dir / "plain", lines(b"v")), "not the name of a partition", 2)
    refused(eoctl("produce", log_dir / "none" / "t-0", lines(b"v")), "No such file", 3)
    refused(eoctl("produce", log_dir / "plain-0", log_dir / "none"), "No such file", 3)


def test_several_replicas(
    eoctl: Callable[..., Outcome],
    golden: Callable[[str], Path],
    tmp_path: Path,
    lines: Callable[..., Path],
) -> None:
    source = golden("kafka-4.3.1-three-brokers") / "after" / "broker-1"
    log_dir = tmp_path / "log-dir"
    shutil.copytree(source, log_dir)
    for path in [log_dir, *log_dir.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    call = ("produce", log_dir / "div-0", lines(b"v"), *NOW)
    refused(eoctl(*call), "has 3 replicas")
    outcome = eoctl(*call, "--single-copy")
    assert outcome.status == 0
    assert (
        "replication factor 3. Other replicas lack the records that are appended here"
        in outcome.errors
    )


def test_the_metadata_of_another_place(
    eoctl: Callable[..., Outcome], log_dir: Path, tmp_path: Path, lines: Callable[..., Path]
) -> None:
    metadata = tmp_path / "metadata"
    metadata.mkdir()
    shutil.move(log_dir / "__cluster_metadata-0", metadata)
    call = ("produce", log_dir / "plain-0", lines(b"v"), *NOW)
    refused(eoctl(*call), "its replication factor is unknown")
    assert eoctl(*call, "--metadata-dir", metadata).status == 0
    assert "replication factor unknown" in eoctl(*call, "--single-copy").errors
    (metadata / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=another\n")
    refused(eoctl(*call, "--metadata-dir", metadata), "of cluster another", 2)


def test_a_replica_of_another_node(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    meta = log_dir / "meta.properties"
    original = meta.read_text()
    meta.write_text(original.replace("node.id=1", "node.id=2"))
    refused(eoctl("produce", log_dir / "plain-0", lines(b"v")), "node 2 has no replica of it")
    kept = [each for each in original.splitlines() if not each.startswith("directory.id")]
    meta.write_text("\n".join([*kept, "directory.id=AAECAwQFBgcICQoLDA0ODw"]) + "\n")
    refused(eoctl("produce", log_dir / "plain-0", lines(b"v")), "its log dir has the")


def test_a_held_lock(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    lock = log_dir / ".lock"
    lock.touch()
    before = inventory(log_dir)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        for more in ((), ("--apply",)):
            outcome = eoctl("produce", log_dir / "plain-0", lines(b"v"), *NOW, *more)
            refused(outcome, f"process {holder.pid} holds the lock")
        holder.stdin.close()
    assert inventory(log_dir) == before
    assert eoctl("produce", log_dir / "plain-0", lines(b"v"), *NOW, "--apply").status == 0
    with lock.open("r+") as file:  # and it is free again
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_partition_that_is_not_closed_is_recovered_first(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    """With a plan, a journal and a backup, like every change."""
    path = log_dir / "plain-0" / SEGMENT
    whole = path.read_bytes()
    path.write_bytes(whole + b"torn")
    before = inventory(log_dir)
    call = ("produce", log_dir / "plain-0", lines(b"v"), *NOW, *JSONL)
    planned = eoctl(*call)
    assert planned.status == 0
    assert "torn tail at position 30491: 4 bytes are no batch: a broker truncates it there" in (
        planned.errors
    )
    steps = rows_of(planned, "step")
    assert ("truncate", f"plain-0/{SEGMENT}") in {(each["action"], each["file"]) for each in steps}
    assert inventory(log_dir) == before
    done = eoctl(*call, "--apply")
    assert done.status == 0
    assert path.read_bytes()[:-69] == whole
    found = re.search(r"eoctl undo (\S+) undoes it", done.errors)
    assert found is not None
    assert any(each.read_bytes() == b"torn" for each in Path(found[1]).rglob("*") if each.is_file())


def test_checkpoints_that_cannot_be_read(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    (log_dir / "recovery-point-offset-checkpoint").write_text("xxx")
    how = f"eoctl repair {log_dir} --strategy salvage"
    refused(eoctl("produce", log_dir / "plain-0", lines(b"v"), *NOW), how)


def test_leader_epochs(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    call = ("produce", log_dir / "plain-0", lines(b"v"), *NOW, "--leader-epoch")
    refused(eoctl(*call, 1), "leader epoch 1 is below 2")
    refused(eoctl(*call, 1000), "leader epoch 1000 is above")
    assert eoctl(*call, 2).status == 0


# --- new partitions -------------------------------------------------------------------------------


def test_a_partition_that_the_cluster_knows_is_created(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    path = log_dir / "plain-0"
    topic_id = (path / "partition.metadata").read_bytes()
    shutil.rmtree(path)
    call = ("produce", path, lines(b"v"), *NOW, "--output", "jsonl")
    refused(eoctl(*call), "had its recovery point at 179")  # its offsets were given out
    checkpoint = log_dir / "recovery-point-offset-checkpoint"
    kept = [each for each in checkpoint.read_text().splitlines()[2:] if each != "plain 0 179"]
    checkpoint.write_text("\n".join(["0", str(len(kept)), *kept, ""]))
    plan = eoctl(*call)
    assert not path.exists()
    report = report_of(eoctl(*call, "--apply"))
    assert (report["base_offset"], report["leader_epoch"]) == (0, 0)
    assert rows_of(plan, "file")[1:3] == [
        {"kind": "file", "path": f"{path}/{name}", "action": "create", "bytes": size}
        for name, size in [("partition.metadata", 43), ("leader-epoch-checkpoint", 8)]
    ]
    assert (path / "partition.metadata").read_bytes() == topic_id
    assert {each.name for each in path.iterdir()} == {
        "partition.metadata", "leader-epoch-checkpoint", SEGMENT,
        "00000000000000000000.index", "00000000000000000000.timeindex",
        "00000000000000000001.snapshot",
    }  # fmt: skip
    assert [each.value for each in records_of(path / SEGMENT)] == [b"v"]


def test_a_new_partition_of_no_cluster_needs_a_topic_id(
    eoctl: Callable[..., Outcome], tmp_path: Path, lines: Callable[..., Path]
) -> None:
    path = tmp_path / "somewhere" / "t-3"
    path.parent.mkdir()
    call = ("produce", path, lines(b"v"), *NOW, "--single-copy", "--apply")
    refused(eoctl(*call), "without the cluster's metadata the id of its topic is unknown")
    refused(eoctl(*call, "--topic-id", "short"), "--topic-id", 2)
    refused(eoctl(*call, "--topic-id", "A" * 22), "all zero", 2)
    assert eoctl(*call, "--topic-id", "AAECAwQFBgcICQoLDA0ODw").status == 0
    assert (path / "partition.metadata").read_text().endswith("AAECAwQFBgcICQoLDA0ODw")
    assert eoctl(*call).status == 0
    refused(eoctl(*call, "--topic-id", "BBECAwQFBgcICQoLDA0ODw"), "DIR-4")
    assert len(records_of(path / SEGMENT)) == 2


def test_topic_ids_that_contradict(
    eoctl: Callable[..., Outcome], log_dir: Path, lines: Callable[..., Path]
) -> None:
    path = log_dir / "plain-0"
    call = ("produce", path, lines(b"v"), *NOW)
    refused(eoctl(*call, "--topic-id", "AAECAwQFBgcICQoLDA0ODw"), "knows plain by the topic id")
    (path / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    refused(eoctl(*call), "of an earlier topic of that name")
    (path / "partition.metadata").write_text("nonsense")
    refused(eoctl(*call), "DIR-4", 1)
    (path / "partition.metadata").unlink()
    assert eoctl(*call, "--apply").status == 0
    assert (path / "partition.metadata").exists()


# --- symbolic links -------------------------------------------------------------------------------


def test_a_link_from_elsewhere_is_the_partition_that_it_leads_to(
    eoctl: Callable[..., Outcome], log_dir: Path, tmp_path: Path, lines: Callable[..., Path]
) -> None:
    """Its own log dir counts: the lock of that, its metadata, its checkpoints."""
    for name in ("plain-0", "here"):
        link = tmp_path / name
        link.symlink_to(log_dir / "plain-0")
        outcome = eoctl("produce", link, lines(b"v"), *NOW)
        assert outcome.status == 0, outcome.errors
        with subprocess.Popen(
            [sys.executable, "-c", HOLD_LOCK, _touched(log_dir / ".lock")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as holder:  # fmt: skip
            assert holder.stdout is not None
            holder.stdout.readline()
            refused(eoctl("produce", link, lines(b"v"), *NOW, "--apply"), f"process {holder.pid}")
        assert eoctl("produce", link, lines(b"v"), *NOW, "--apply").status == 0
        assert not (tmp_path / ".lock").exists()


@pytest.mark.parametrize("name", [".kafka_cleanshutdown", "plain-0/00000000000000000000.timeindex"])
def test_a_file_that_is_a_link(
    eoctl: Callable[..., Outcome],
    log_dir: Path,
    tmp_path: Path,
    lines: Callable[..., Path],
    name: str,
) -> None:
    """An undo could not bring it back, so nothing is begun."""
    (log_dir / name).rename(tmp_path / "elsewhere")
    (log_dir / name).symlink_to(tmp_path / "elsewhere")
    _touched(log_dir / ".lock")
    before = inventory(log_dir)
    outcome = eoctl("produce", log_dir / "plain-0", lines(b"v"), *NOW, "--apply")
    assert outcome.status == 4, outcome.errors
    assert "is no regular file" in outcome.errors
    assert "nothing was changed" in outcome.errors
    assert "remove" not in outcome.text
    assert inventory(log_dir) == before
    assert (log_dir / name).is_symlink()
    assert not list(tmp_path.rglob(".eoctl-unfinished"))


def _touched(path: Path) -> Path:
    path.touch()
    return path


@pytest.mark.parametrize("name", ["plain-0", "__cluster_metadata-0"])
def test_a_link_into_another_log_dir(
    eoctl: Callable[..., Outcome],
    log_dir: Path,
    tmp_path: Path,
    lines: Callable[..., Path],
    name: str,
) -> None:
    """The lock of the log dir that it is named in says nothing of that one."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "meta.properties").write_bytes((log_dir / "meta.properties").read_bytes())
    (other / "linked-0").symlink_to(log_dir / name)
    (tmp_path / "linked-0").symlink_to(log_dir / name)
    before = inventory(log_dir)
    options = (*NEW_TOPIC, "--apply")
    words = "is never changed" if name.startswith("__") else "which is another log dir"
    refused(eoctl("produce", other / "linked-0", lines(b"v"), *NOW, *options), words)
    if name.startswith("__"):
        refused(eoctl("produce", tmp_path / "linked-0", lines(b"v"), *NOW, *options), words)
    assert inventory(log_dir) == before
