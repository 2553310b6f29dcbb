"""What `eoctl check` says a start will do to damaged partitions, and what a real broker then does.

Each fault is planted in a partition of its own, so that one start judges many of them. The broker
is killed once it serves, so that the files are what loading has left.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
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


def sizes(directory: Path) -> dict[str, int]:
    return {each.name: each.stat().st_size for each in directory.iterdir() if each.is_file()}


@pytest.mark.parametrize("state", FAULTS)
def test_a_start_does_what_was_predicted(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Callable[..., Any], state: str
) -> None:
    log_dir = copy_log_dir(golden("kafka-4.3.1") / state, tmp_path / "kafka")
    for name, plant in FAULTS[state].items():
        plant(log_dir / name)
    before = {name: sizes(log_dir / name) for name in FAULTS[state]}
    outcome = eoctl(
        "check", "--predict", "--now", "dir", "--output", "jsonl", "--fail-on", "note", log_dir
    )
    assert outcome.status == 1
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    ends = {
        Path(each["path"]).name: each["start_end_offset"]
        for each in rows
        if each["kind"] == "partition"
    }
    changes: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in FAULTS[state]}
    for each in rows:
        if each["kind"] == "start_change":
            path = Path(each["path"])
            changes.setdefault(path.parent.name, {})[path.name] = each

    broker = Broker(log_dir, overrides={"log.index.size.max.bytes": "16384"})
    try:
        broker.start()
        broker.kill()
        for name in FAULTS[state]:
            lines = broker.log_lines(name)
            found = [END.search(line) for line in lines]
            real_ends = [int(each[1]) for each in found if each is not None]
            assert real_ends[-1:] == [ends[name]], (name, lines)
            compare(log_dir / name, before[name], changes[name], state)
    finally:
        broker.close()


def compare(
    directory: Path, before: dict[str, int], changes: dict[str, dict[str, Any]], state: str
) -> None:
    """Logs by name and size, other files by name; index files have sizes of their own."""
    expected = {name: size for name, size in before.items() if name.endswith(".log")}
    others = {name for name in before if name.endswith((".index", ".snapshot", ".txnindex"))}
    leftovers = {name for name in before if name.endswith((".deleted", ".cleaned", ".swap"))}
    for name, change in changes.items():
        action = change["action"]
        if action == "deletes":
            expected.pop(name, None)
            others.discard(name)
            leftovers.discard(name)
        elif action == "renames":
            leftovers.discard(name)
            if name.endswith(".log.swap"):
                expected[name.removesuffix(".swap")] = before[name]
        elif change["size_bytes"] is not None:
            expected[name] = change["size_bytes"]
    after = sizes(directory)
    logs = {name: size for name, size in after.items() if name.endswith(".log")}
    assert logs == expected, (state, directory.name)
    assert {each for each in others if each not in after} == set(), (state, directory.name)
    gone = {name for name in changes if name.endswith((".cleaned", ".deleted", ".swap"))}
    assert not gone & after.keys()
    assert not leftovers


# State, partition, fault, words of the broker, and the rule that a check names.
REFUSALS = [
    ("clean", "idem-gzip-0", append(bytes(1000)), "smaller than minimum record overhead", "SEG-6"),
    ("crash", "txn-0", break_out, "transactional", "PRD-4"),
    ("clean", "lost+found", lambda path: path.mkdir(), "lost+found", "DIR-1"),
]


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
    (finding,) = [each for each in rows if each.get("check_id") == check_id]
    assert "refuses" in finding["broker_action"]
    broker = Broker(log_dir)
    try:
        with pytest.raises(BrokerError):
            broker.start()
        assert any(words in line for line in broker.log_lines())
    finally:
        broker.close()
