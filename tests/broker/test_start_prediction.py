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

from recovery.checks.context.kraft_release import CANNOT_LOAD
from recovery.checks.log_dirs.log_dirs import SETS_ASIDE
from recovery.start.prediction import EMPTIES, REPLACES
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from tests.cases.files import HandLogDir, batch
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
UNREPORTED = re.compile(r"__cluster_metadata-0/\d{20}\.snapshot")
MARKER = ".kafka_cleanshutdown"


def digests(log_dirs: list[Path]) -> dict[Path, str]:
    """What every file is; checkpoints without the order of their lines, which is arbitrary."""
    found = {}
    for path in (each for log_dir in log_dirs for each in log_dir.rglob("*") if each.is_file()):
        data = path.read_bytes()
        if path.name.endswith("-offset-checkpoint"):
            data = b"\n".join(sorted(data.splitlines()))
        if not UNREPORTED.search(str(path)) and path.name not in {
            ".lock",
            "cleaner-offset-checkpoint",
        }:
            found[path] = hashlib.sha256(data).hexdigest()
    return found


def compare(before: dict[Path, str], after: dict[Path, str], rows: list[dict[str, Any]]) -> None:
    """Hold every file that is another one against what was foretold, both ways."""
    reported = {Path(each["path"]): each for each in rows if each["kind"] == "start_change"}
    marker_paths = {path for path in before if path.name == MARKER}
    assert {path for path, each in reported.items() if path.name == MARKER} == marker_paths
    found: dict[Path, str] = {}
    for path in before.keys() | after.keys():
        if before.get(path) != after.get(path) and path.name != MARKER:
            found[path] = (
                "created" if path not in before else "deleted" if path not in after else "changed"
            )
    words = {"creates": "created", "deletes": "deleted", "renames": "deleted"}
    expected = {
        path: words.get(each["action"], "changed")
        for path, each in reported.items()
        if path.name != MARKER and not UNREPORTED.search(str(path))
    }
    assert expected == found
    for path, each in reported.items():
        if each["size_bytes"] is not None:
            assert path.stat().st_size == each["size_bytes"], path


@pytest.mark.exhaustive  # test_loading judges more states in each run
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


# --- directories with a suffix, and two log dirs --------------------------------------------------


def suffixed(path: Path, state: str, unique: str = "a" * 32) -> Path:
    return path.with_name(f"{path.name}.{unique}-{state}")


def make_stray(directory: Path) -> None:
    """Give it the id of no topic."""
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")


def cut_segments(directory: Path, end_offset: int) -> None:
    for each in directory.iterdir():
        if each.suffix and each.stem.isdigit() and int(each.stem) >= end_offset:
            each.unlink()


def place_directories(one: Path, two: Path) -> None:
    """Each partition another placement; the metadata assign it to where it was."""
    # Alone in the assigned log dir, and alone in the other one.
    (one / "plain-1").rename(suffixed(one / "plain-1", "future"))
    (one / "__transaction_state-1").rename(suffixed(two / "__transaction_state-1", "future"))
    # In the place of a longer one.
    shutil.copytree(two / "plain-0", one / "plain-0")
    (two / "plain-0").rename(suffixed(two / "plain-0", "future"))
    cut_segments(suffixed(two / "plain-0", "future"), 40)
    # Of no topic; beside a live one of no topic; without an id.
    shutil.copytree(two / "idempotent-0", suffixed(one / "idempotent-0", "future"))
    make_stray(suffixed(one / "idempotent-0", "future"))
    shutil.copytree(one / "txn-0", suffixed(one / "txn-0", "future"))
    make_stray(one / "txn-0")
    shutil.copytree(one / "compacted-0", suffixed(two / "compacted-0", "future"))
    (suffixed(two / "compacted-0", "future") / "partition.metadata").unlink()
    # Set aside: without a live one, and beside one whose log start is above it.
    (two / "compacted-1").rename(suffixed(two / "compacted-1", "stray"))
    shutil.copytree(two / "trimmed-0", suffixed(two / "trimmed-0", "stray"))
    cut_segments(suffixed(two / "trimmed-0", "stray"), 40)
    # To be deleted: of a live topic, and half of one.
    (two / "empty-1").rename(suffixed(two / "empty-1", "delete"))
    half = suffixed(two / "gone-0", "delete")
    half.mkdir()
    (half / f"{5:020d}.index").touch()
    # In another log dir than the assigned one; twice, of which one is stray; one of no topic alone.
    shutil.move(one / "idempotent-1", two / "idempotent-1")
    shutil.copytree(one / "trimmed-1", two / "trimmed-1")
    make_stray(two / "trimmed-1")
    make_stray(two / "txn-1")
    # A name of 255 bytes.
    tail = "-0." + "a" * 32 + "-stray"
    shutil.copytree(one / "empty-0", two / f"{'n' * (255 - len(tail))}{tail}")


def named(log_dirs: list[Path]) -> dict[str, int]:
    """Count directories by log dir and name, whatever the unique part is."""
    found: dict[str, int] = {}
    for each in (one for log_dir in log_dirs for one in log_dir.iterdir() if one.is_dir()):
        name = f"{each.parent.name}/{re.sub('[.][0-9a-f]{32}-', '.ID-', each.name)}"
        found[name] = found.get(name, 0) + 1
    return found


def expected_names(before: dict[str, int], rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return what the directories are called after the start that was predicted."""
    found = dict(before)

    def move(path: Path, target: str) -> None:
        place = path.parent.name
        old = f"{place}/{re.sub('[.][0-9a-f]{32}-', '.ID-', path.name)}"
        found[old] -= 1
        found[f"{place}/{target}"] = found.get(f"{place}/{target}", 0) + 1

    for each in rows:
        path = Path(each["path"])
        live = path.name.partition(".")[0]
        if each["kind"] == "partition" and each["start"] == REPLACES:
            move(path, f"{live}.ID-delete")
        elif each["kind"] == "partition" and each["start"] == SETS_ASIDE:
            move(path, f"{live}.ID-stray")
        elif each["kind"] == "start_change" and each["action"] == "renames" and path.is_dir():
            if path.name.endswith("-future") and path not in aside_paths(rows):
                move(path, live)
        elif each.get("action") == "creates" and path.name == "partition.metadata":
            name = f"{path.parent.parent.name}/{path.parent.name}"
            found[name] = found.get(name, 0) + 1
    return {name: count for name, count in found.items() if count}


def digests_of_strays(log_dirs: list[Path]) -> dict[Path, str]:
    paths = [path for each in log_dirs for path in each.glob("*aaaa-stray/*")]
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def aside_paths(rows: list[dict[str, Any]]) -> set[Path]:
    return {Path(each["path"]) for each in rows if each.get("start") == SETS_ASIDE}


@pytest.mark.share(1)
def test_a_start_moves_directories_as_was_predicted(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Callable[..., Any]
) -> None:
    root = golden("kafka-4.3.1-two-dirs")
    log_dirs = [copy_log_dir(root / each, tmp_path / each) for each in ("one", "two")]
    place_directories(*log_dirs)
    before, files = named(log_dirs), digests_of_strays(log_dirs)
    outcome = eoctl("check", "--predict", "--now", "wall", "--output", "jsonl", *log_dirs)
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    expected = expected_names(before, rows)
    broker = Broker(log_dirs)
    try:
        broker.start()
        broker.stop()
    finally:
        broker.close()
    after = named(log_dirs)
    # What is loaded and not served is changed, too.
    left = digests_of_strays(log_dirs)
    changed = {path for path in files if left.get(path) != files[path]}
    strays = {path.parent for path in files}
    assert changed == {
        Path(each["path"])
        for each in rows
        if each["kind"] == "start_change"
        and Path(each["path"]).parent in strays
        and each["action"] != "creates"
    }
    # A copy that goes on may have ended meanwhile.
    going_on = "__transaction_state-1"
    assert {k: v for k, v in after.items() if going_on not in k} == {
        k: v for k, v in expected.items() if going_on not in k
    }
    # What it served ends where it was predicted.
    ends = {
        "/".join(Path(each["path"]).parts[-2:]).partition(".")[0]: each["start_end_offset"]
        for each in rows
        if each["kind"] == "partition"
        and each["start_end_offset"] is not None
        and not each["path"].endswith("-stray")
    }
    found = {
        name: Partition.of(select_partition(tmp_path / name)).log_end()
        for name in ends
        if going_on not in name and "__cluster_metadata" not in name
    }
    assert {name: end and end.offset for name, end in found.items()} == {
        name: ends[name] for name in found
    }
    # The copy without a live directory was emptied, as an error said.
    emptied = [each for each in rows if each.get("start") == EMPTIES]
    assert [Path(each["path"]).parent.name for each in emptied] == ["two"]
    copies = [one for each in log_dirs for one in each.glob(f"{going_on}*")]
    assert all(not log.stat().st_size for each in copies for log in each.glob("*.log"))


def two_futures(one: Path, two: Path) -> None:
    for place in (one, two):
        shutil.copytree(one / "plain-1", suffixed(place / "plain-1", "future"))
    shutil.rmtree(one / "plain-1")


def rewrite(path: Path, old: str, new: str) -> None:
    text, count = re.subn(old, new, path.read_text(), flags=re.MULTILINE)
    assert count
    path.write_text(text)


# What is done to two log dirs, words of the broker, and the rule of the finding that ends the start.
REFUSED_PLACES: dict[str, tuple[Callable[[Path, Path], object], str, str]] = {
    "a-future-beside-the-live-one": (
        lambda one, _: shutil.copytree(one / "plain-1", suffixed(one / "plain-1", "future")),
        "Directory not empty",
        "DIR-6",
    ),
    "two-live-ones": (
        lambda one, two: shutil.copytree(one / "plain-1", two / "plain-1"),
        "Duplicate log directories for plain-1",
        "DIR-2",
    ),
    "two-future-ones": (two_futures, "Duplicate log directories found", "DIR-2"),
    "metadata-in-the-other-log-dir": (
        lambda one, two: shutil.copytree(
            one / "__cluster_metadata-0", two / "__cluster_metadata-0"
        ),
        "Found unexpected metadata location",
        "DIR-2",
    ),
    "an-empty-meta-properties": (
        lambda _, two: (two / "meta.properties").write_bytes(b""),
        "node ID not found",
        "DIR-3",
    ),
    "another-cluster": (
        lambda _, two: rewrite(two / "meta.properties", "^cluster.id=.*", "cluster.id=X"),
        "Invalid cluster.id",
        "DIR-3",
    ),
    "no-cluster": (
        lambda _, two: rewrite(
            two / "meta.properties",
            "(?s).*",
            "version=0\nbroker.id=1\ndirectory.id=CV9jxj2_7rlqb1clQvnzrQ\n",
        ),
        "cluster ID not found",
        "DIR-3",
    ),
    "an-unreadable-meta-properties-beside-the-metadata": (
        lambda one, _: rewrite(one / "meta.properties", "^version=1", "version=2"),
        "Cannot continue",
        "DIR-3",
    ),
}


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize("place", REFUSED_PLACES)
def test_places_that_end_a_start(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Callable[..., Any], place: str
) -> None:
    plant, words, check_id = REFUSED_PLACES[place]
    root = golden("kafka-4.3.1-two-dirs")
    log_dirs = [copy_log_dir(root / each, tmp_path / each) for each in ("one", "two")]
    plant(*log_dirs)
    properties = tmp_path / "server.properties"
    properties.write_text(f"node.id=1\nlog.dirs={','.join(map(str, log_dirs))}\n")
    outcome = eoctl("check", "--output", "jsonl", "--server-properties", properties)
    assert outcome.status == 1
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    found = [each for each in rows if each.get("severity") == "error"]
    assert ("refuses to start", check_id) in {
        (each["broker_action"], each["check_id"]) for each in found
    }
    broker = Broker(log_dirs)
    try:
        with pytest.raises(BrokerError):
            broker.start()
        assert any(words in line for line in broker.log_lines())
    finally:
        broker.close()


# The value of a metadata record that no release knows, and words of the broker.
NEWER = {
    "record": (bytes.fromhex("01e7070000"), "Unknown metadata id 999"),
    "frame": (bytes.fromhex("02020000"), "unknown frame version 2"),
    "feature": (bytes.fromhex("010c00046e6577000100"), "only supports versions 0"),
    "level": (
        bytes.fromhex("010c000e") + b"group.version" + bytes.fromhex("000900"),
        "only supports versions 0-1",
    ),
    "metadata.version": (
        bytes.fromhex("010c0011") + b"metadata.version" + bytes.fromhex("006300"),
        "No MetadataVersion with feature level 99",
    ),
}


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize("what", NEWER)
def test_metadata_of_a_newer_release_end_a_start(
    tmp_path: Path, eoctl: Callable[..., Any], what: str
) -> None:
    value, words = NEWER[what]
    made = HandLogDir(tmp_path)
    with made.file(f"{FIRST}.log", "__cluster_metadata-0").open("ab") as log:
        log.write(batch(86, [(None, value)], leader_epoch=1))
    outcome = eoctl("check", "--output", "jsonl", made.path)
    assert outcome.status == 1
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    actions = {each["broker_action"] for each in rows if each.get("check_id") == "KRF-4"}
    assert actions == {CANNOT_LOAD}
    broker = Broker(made.path)
    try:
        with pytest.raises(BrokerError):
            broker.start()
        assert any(words in line for line in broker.log_lines())
    finally:
        broker.close()
