"""What `eoctl check` says a start will do to damaged partitions, and what a real broker then does.

Each fault is planted in a partition of its own, so that one start judges many of them. Every file
of the log dirs that is another one after that start and a clean stop must have been foretold, and
no other: they are compared by digest.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crc32c
import pytest

from tests.kafka.broker import Broker, BrokerError, copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.broker

FIRST = "00000000000000000000"
END = re.compile(r"Completed load of .*log-end-offset (\d+)")
PREFIX = struct.Struct(">qi")


def batch_positions(log: Path) -> list[int]:
    data, pos, found = log.read_bytes(), 0, []
    while pos + 12 <= len(data):
        found.append(pos)
        pos += 12 + PREFIX.unpack_from(data, pos)[1]
    return found


def last_log(directory: Path) -> Path:
    return max(directory.glob("*.log"))


def edit(path: Path, pos: int, new: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[pos : pos + len(new)] = new
    path.write_bytes(data)


def flip_record(directory: Path) -> None:
    """A byte of a record in the second batch from the end."""
    log = last_log(directory)
    pos = batch_positions(log)[-2]
    edit(log, pos + 70, bytes([log.read_bytes()[pos + 70] ^ 1]))


def flip_first_record(directory: Path) -> None:
    log = last_log(directory)
    edit(log, 70, bytes([log.read_bytes()[70] ^ 1]))


def set_length(length: int) -> Callable[[Path], None]:
    def plant(directory: Path) -> None:
        log = last_log(directory)
        edit(log, batch_positions(log)[2] + 8, struct.pack(">i", length))

    return plant


def cut_tail(count: int) -> Callable[[Path], None]:
    def plant(directory: Path) -> None:
        log = last_log(directory)
        log.write_bytes(log.read_bytes()[:-count])

    return plant


def append(data: bytes) -> Callable[[Path], None]:
    def plant(directory: Path) -> None:
        log = last_log(directory)
        log.write_bytes(log.read_bytes() + data)

    return plant


def empty(directory: Path) -> None:
    last_log(directory).write_bytes(b"")


def set_magic(directory: Path) -> None:
    """No checksum covers it."""
    log = last_log(directory)
    edit(log, batch_positions(log)[-1] + 16, b"\x09")


def remove(pattern: str) -> Callable[[Path], None]:
    def plant(directory: Path) -> None:
        found = sorted(directory.glob(pattern))
        assert found
        found[-1].unlink()

    return plant


def garble_snapshots(directory: Path) -> None:
    for each in directory.glob("*.snapshot"):
        edit(each, 8, b"\xff\xff")


def set_checkpoint(name: str, value: int) -> Callable[[Path], None]:
    def plant(directory: Path) -> None:
        topic, _, number = directory.name.rpartition("-")
        path = directory.parent / name
        lines = [each for each in path.read_text().splitlines()[2:] if each.split()[0] != topic]
        lines.append(f"{topic} {number} {value}")
        path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")

    return plant


def leave_behind(directory: Path) -> None:
    """Files of a deletion and of a compaction, and an index without its log."""
    log = last_log(directory)
    for name in (f"{FIRST}.log.deleted", "00000000000000000007.log.cleaned", f"{FIRST}.index.swap"):
        shutil.copy(log, directory / name)
    (directory / "00000000000000099999.index").write_bytes(bytes(16))


def complete_swap(directory: Path) -> None:
    """A compaction that died between its renames: the new first segment has another name yet."""
    log = min(directory.glob("*.log"))
    for suffix in (".log", ".index", ".timeindex"):
        source = log.with_suffix(suffix)
        if source.exists():
            shutil.copy(source, directory / f"{source.name}.swap")


def break_middle_without_index(directory: Path) -> None:
    """A segment below the recovery point that is recovered since its index is missing."""
    middle = sorted(directory.glob("*.log"))[1]
    middle.with_suffix(".index").unlink()
    pos = batch_positions(middle)[2]
    edit(middle, pos + 100, bytes([middle.read_bytes()[pos + 100] ^ 1]))


def reach_beyond(directory: Path) -> None:
    """The last index entry has an offset that no batch has."""
    index = last_log(directory).with_suffix(".index")
    size = index.stat().st_size
    assert size >= 16
    edit(index, size - 8, struct.pack(">i", 1_000_000))


def spoil_txn_index(directory: Path) -> None:
    path = last_log(directory).with_suffix(".txnindex")
    path.write_bytes(struct.pack(">hqqqq", 0, 5, -20, -10, 0))


def break_out(directory: Path) -> None:
    """A batch of a producer inside its own transaction that does not belong to it (PRD-4)."""
    log = last_log(directory)
    data = bytearray(log.read_bytes())
    seen: set[int] = set()
    for pos in batch_positions(log):
        attributes = data[pos + 22]
        producer_id = struct.unpack_from(">q", data, pos + 43)[0]
        if attributes & 0x30 == 0x10 and producer_id in seen:
            data[pos + 22] = attributes & ~0x10
            end = pos + 12 + PREFIX.unpack_from(data, pos)[1]
            crc = crc32c.crc32c(bytes(data[pos + 21 : end]))
            struct.pack_into(">I", data, pos + 17, crc)
            log.write_bytes(data)
            return
        if attributes & 0x20:
            seen.discard(producer_id)
        else:
            seen.add(producer_id)


FAULTS: dict[str, dict[str, Callable[[Path], None]]] = {
    "crash": {
        "append-time-0": flip_record,
        "compacted-0": complete_swap,
        "ctp-out-0": set_length(1 << 30),
        "idem-none-0": set_length(5),
        "idem-gzip-0": cut_tail(10),
        "idem-lz4-0": append(bytes(1000)),
        "idem-snappy-0": append(b"\x01\x02" * 300),
        "idem-zstd-0": set_magic,
        "many-producers-0": empty,
        "plain-0": remove("*.index"),
        "plain-1": append(b"\x00" * 5),
        "rolled-0": flip_first_record,
        "trimmed-0": set_checkpoint("log-start-offset-checkpoint", 5000),
        "txn-0": flip_record,
        "txn-1": garble_snapshots,
    },
    "clean": {
        "append-time-0": set_checkpoint("recovery-point-offset-checkpoint", 9000),
        "compacted-0": leave_behind,
        "ctp-out-0": remove("*.timeindex"),
        "idem-none-0": cut_tail(10),
        "idem-lz4-0": remove("*.snapshot"),
        "idem-snappy-0": garble_snapshots,
        "idem-zstd-0": flip_record,
        "many-producers-0": set_checkpoint("log-start-offset-checkpoint", 5000),
        "plain-0": remove("*.index"),
        "plain-1": reach_beyond,
        "rolled-0": break_middle_without_index,
        "trimmed-0": append(b"\x00" * 5),
        "txn-0": spoil_txn_index,
        "txn-1": break_out,  # the snapshot at the end has what counts, so nobody reads that far
    },
}


def set_epochs(*entries: tuple[int, int]) -> Callable[[Path], None]:
    """Leader epochs and where they begin."""

    def plant(directory: Path) -> None:
        lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
        (directory / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")

    return plant


def add_strays(directory: Path) -> None:
    """Snapshots that no segment has: one inside of the log, one beyond its end."""
    source = min(directory.glob("*.snapshot"))
    for offset in (3, 999_999):
        shutil.copy(source, directory / f"{offset:020d}.snapshot")


def garble_first_snapshot(directory: Path) -> None:
    edit(min(directory.glob("*.snapshot")), 8, b"\xff\xff")


def break_middle(directory: Path) -> None:
    """A segment above the recovery point, with others behind it."""
    logs = sorted(directory.glob("*.log"))
    assert len(logs) > 2
    pos = batch_positions(logs[1])[0]
    edit(logs[1], pos + 65, bytes([logs[1].read_bytes()[pos + 65] ^ 1]))


def remove_logs(directory: Path) -> None:
    for each in directory.glob("*.log"):
        each.unlink()


def add_index_bytes(directory: Path) -> None:
    """Entries in the indexes of a segment that are not the batches'."""
    for suffix in (".index", ".timeindex"):
        path = min(directory.glob("*.log")).with_suffix(suffix)
        path.write_bytes(bytes([0, 0, 0, 1] * 6) + path.read_bytes())


def split_log_dir(log_dir: Path, names: list[str]) -> Path:
    """Move partitions, with their lines in the checkpoints, to a second log dir of the node."""
    other = log_dir.with_name("second")
    other.mkdir()
    text = (log_dir / "meta.properties").read_text()
    lines = [each for each in text.splitlines() if not each.startswith("directory.id")]
    lines.append("directory.id=Zk9vYmFyYmF6cXV4MTIzNA")
    (other / "meta.properties").write_text("\n".join(lines) + "\n")
    for name in names:
        shutil.move(log_dir / name, other / name)
    for path in log_dir.glob("*-checkpoint"):
        lines = path.read_text().splitlines()[2:]
        is_moved = ["-".join(each.split()[:2]) in names for each in lines]
        for target, wanted in ((log_dir, False), (other, True)):
            kept = [each for each, moved in zip(lines, is_moved, strict=True) if moved is wanted]
            (target / path.name).write_text("\n".join(["0", str(len(kept)), *kept]) + "\n")
    return other


FAULTS["tv2"] = {
    "append-time-0": set_epochs((0, 0), (1, 20), (9, 9999)),
    "c2-0": garble_first_snapshot,
    "ctp-out-0": remove("leader-epoch-checkpoint"),
    "idem-gzip-0": add_strays,
    "idem-lz4-0": remove_logs,
    "idem-none-0": set_epochs((0, 0), (99, 40)),
    "idem-snappy-0": set_checkpoint("log-start-offset-checkpoint", 45),
    "idem-zstd-0": shutil.rmtree,
    "many-producers-0": add_index_bytes,
    "plain-0": set_checkpoint("recovery-point-offset-checkpoint", 5),
    "plain-1": remove("*.timeindex"),
    "rolled-0": break_middle,
    "txn-0": set_checkpoint("log-start-offset-checkpoint", 0),
}
# Topics whose partitions are moved to a second log dir before.
SECOND = {"tv2": ["append-time-0", "idem-gzip-0", "plain-0", "plain-1", "rolled-0", "txn-1"]}
# The metadata log goes on being written, so that its snapshots have other names each time.
UNTOLD = re.compile(r"__cluster_metadata-0/\d{20}\.snapshot")
MARKER = ".kafka_cleanshutdown"


def digests(log_dirs: list[Path]) -> dict[Path, str]:
    """What every file is; checkpoints without the order of their lines, which is arbitrary."""
    found = {}
    for path in (each for log_dir in log_dirs for each in log_dir.rglob("*") if each.is_file()):
        data = path.read_bytes()
        if path.name.endswith("-offset-checkpoint"):
            data = b"\n".join(sorted(data.splitlines()))
        if not UNTOLD.search(str(path)) and path.name not in {".lock", "cleaner-offset-checkpoint"}:
            found[path] = hashlib.sha256(data).hexdigest()
    return found


def compare(before: dict[Path, str], after: dict[Path, str], rows: list[dict[str, Any]]) -> None:
    """Hold every file that is another one against what was foretold, both ways."""
    told = {Path(each["path"]): each for each in rows if each["kind"] == "start_change"}
    marker_paths = {path for path in before if path.name == MARKER}
    assert {path for path, each in told.items() if path.name == MARKER} == marker_paths
    found: dict[Path, str] = {}
    for path in before.keys() | after.keys():
        if before.get(path) != after.get(path) and path.name != MARKER:
            found[path] = (
                "created" if path not in before else "deleted" if path not in after else "changed"
            )
    words = {"creates": "created", "deletes": "deleted", "renames": "deleted"}
    expected = {
        path: words.get(each["action"], "changed")
        for path, each in told.items()
        if path.name != MARKER and not UNTOLD.search(str(path))
    }
    assert expected == found
    for path, each in told.items():
        if each["size_bytes"] is not None:
            assert path.stat().st_size == each["size_bytes"], path


@pytest.mark.share(1)
@pytest.mark.parametrize("state", FAULTS)
def test_a_start_does_what_was_predicted(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Callable[..., Any], state: str
) -> None:
    log_dirs = [copy_log_dir(golden("kafka-4.3.1") / state, tmp_path / "kafka")]
    moved = SECOND.get(state, [])
    if moved:
        log_dirs.append(split_log_dir(log_dirs[0], moved))
    places = {name: log_dirs[name in moved] / name for name in FAULTS[state]}
    for name, plant in FAULTS[state].items():
        plant(places[name])
    before = digests(log_dirs)
    outcome = eoctl(
        "check", "--predict", "--now", "wall", "--output", "jsonl", "--fail-on", "note", *log_dirs
    )
    assert outcome.status == 1
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    ends = {
        Path(each["path"]).name: each["start_end_offset"]
        for each in rows
        if each["kind"] == "partition"
    }
    delay = {"log.segment.delete.delay.ms": "100", "log.index.size.max.bytes": "16384"}
    broker = Broker(log_dirs, overrides=delay)
    try:
        broker.start()
        assert not any((each / MARKER).exists() for each in log_dirs)
        wait_for_deletions(log_dirs)
        broker.stop()
        for name in FAULTS[state].keys() & ends.keys():
            lines = broker.log_lines(name)
            found = [END.search(line) for line in lines]
            real_ends = [int(each[1]) for each in found if each is not None]
            assert real_ends[-1:] == [ends[name]], (name, lines)
    finally:
        broker.close()
    compare(before, digests(log_dirs), rows)


def wait_for_deletions(log_dirs: list[Path]) -> None:
    """Until what a start has put aside is gone."""
    deadline_s = time.monotonic() + 90
    while any(each for log_dir in log_dirs for each in log_dir.rglob("*.deleted")):
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


# State, partition, fault, words of the broker, and the rule that a check names.
REFUSALS = [
    ("clean", "idem-gzip-0", append(bytes(1000)), "smaller than minimum record overhead", "SEG-6"),
    ("crash", "txn-0", break_out, "transactional", "PRD-4"),
    ("clean", "lost+found", lambda path: path.mkdir(), "lost+found", "DIR-1"),
    ("clean", "plain-0/abc.snapshot", lambda path: path.touch(), 'string: "abc"', "DIR-9"),
    (
        "clean",
        "bootstrap.checkpoint",
        lambda path: path.write_bytes(path.read_bytes()[:83]),
        "No FeatureLevelRecord for metadata.version",
        "KRF-2",
    ),
]


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize(
    ("state", "name", "plant", "words", "check_id"), REFUSALS, ids=[r[4] for r in REFUSALS]
)
def test_a_start_that_fails_was_predicted(
    golden: Callable[[str], Path],
    tmp_path: Path,
    eoctl: Callable[..., Any],
    state: str,
    name: str,
    plant: Callable[[Path], None],
    words: str,
    check_id: str,
) -> None:
    log_dir = copy_log_dir(golden("kafka-4.3.1") / state, tmp_path / "kafka")
    plant(log_dir / name)
    outcome = eoctl("check", "--now", "dir", "--output", "jsonl", log_dir)
    assert outcome.status == 1
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    finding = next(each for each in rows if each.get("check_id") == check_id)
    assert "refuses" in finding["broker_action"]
    broker = Broker(log_dir)
    try:
        with pytest.raises(BrokerError):
            broker.start()
        assert any(words in line for line in broker.log_lines())
    finally:
        broker.close()
