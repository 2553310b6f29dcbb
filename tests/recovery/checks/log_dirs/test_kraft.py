"""The metadata log: real ones give nothing, planted faults exactly what they are."""

from __future__ import annotations

import shutil
import struct
from typing import TYPE_CHECKING

import crc32c
import pytest

from recovery.checks.context.broker_version import parse_broker_version
from recovery.checks.context.collector import Collector
from recovery.checks.log_dirs.kraft import check_metadata_log
from recovery.rules.findings import Finding, Severity
from storage.dirs.discovery import discover, select_partition
from storage.dirs.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STATES = ["clean", "crash", "recovered", "hard", "hard-clean", "tv2", "tv2-clean"]
NAME = "__cluster_metadata-0"

# Values of records byte by byte: frame 1, then api key and version.
TOPIC = bytes.fromhex("0102000274000102030405060708090a0b0c0d0e0f00")
NO_OP = bytes.fromhex("01140000")
BEGIN, END, ABORT = (bytes.fromhex(f"01{key:02x}0000") for key in (23, 24, 25))
# Keys and values of the control records around a snapshot.
HEADER = (bytes.fromhex("00000003"), bytes.fromhex("00000000018bcfe5680000"))
FOOTER = (bytes.fromhex("00000004"), bytes.fromhex("000000"))


def varint(value: int) -> bytes:
    number, out = (value << 1) ^ (value >> 63), bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def batch(
    offset: int, *records: tuple[bytes | None, bytes], epoch: int = 1, attributes: int = 0
) -> bytes:
    """A batch as a Raft leader writes it, without our encoders."""
    body = b""
    for delta, (key, value) in enumerate(records):
        fields = b"\0\0" + varint(delta) + nullable(key) + nullable(value) + b"\0"
        body += varint(len(fields)) + fields
    count = len(records)
    covered = struct.pack(">hiqqqhii", attributes, count - 1, 5, 5, -1, -1, -1, count) + body
    head = struct.pack(">qiib", offset, 9 + len(covered), epoch, 2)
    return head + struct.pack(">I", crc32c.crc32c(covered)) + covered


def data(offset: int, *values: bytes, epoch: int = 1) -> bytes:
    return batch(offset, *((None, each) for each in values), epoch=epoch)


def control(offset: int, record: tuple[bytes, bytes]) -> bytes:
    return batch(offset, record, attributes=0x20)


def snapshot(*values: bytes) -> bytes:
    return control(0, HEADER) + data(1, *values) + control(1 + len(values), FOOTER)


def metadata_dir(path: Path, log: bytes, *, start: int = 0, epoch: int = 1) -> Path:
    directory = path / NAME
    directory.mkdir()
    (directory / f"{start:020d}.log").write_bytes(log)
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    (directory / "quorum-state").write_text(
        f'{{"leaderId":1,"leaderEpoch":{epoch},"votedId":-1,'
        '"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    return directory


def findings_of(directory: Path, version: str = "") -> list[Finding]:
    partition = Partition.of(select_partition(directory))
    collector = Collector()
    check_metadata_log(partition, collector, parse_broker_version(version) if version else None)
    assert partition.problems == []
    return collector.kept


def the_one(directory: Path, check_id: str, severity: Severity = Severity.ERROR) -> Finding:
    (finding,) = findings_of(directory)
    assert (finding.check_id, finding.severity) == (check_id, severity)
    return finding


# --- real directories -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_one_node(golden: Callable[[str], Path], state: str) -> None:
    assert findings_of(golden("kafka-4.3.1") / state / NAME) == []


@pytest.mark.parametrize("state", ["diverged", "after"])
def test_observers(golden: Callable[[str], Path], state: str) -> None:
    for node in (1, 2, 3):
        directory = golden("kafka-4.3.1-three-brokers") / state / f"broker-{node}" / NAME
        assert findings_of(directory) == []


@pytest.fixture
def real(golden: Callable[[str], Path], tmp_path: Path) -> Path:
    """A real metadata log, in a log dir, to be changed."""
    source, target = golden("kafka-4.3.1") / "crash", tmp_path / "d"
    target.mkdir()
    for name in ("meta.properties", "bootstrap.checkpoint"):
        shutil.copyfile(source / name, target / name)
    shutil.copytree(source / NAME, target / NAME, copy_function=shutil.copyfile)
    (target / NAME).chmod(0o755)
    return target


def test_a_damaged_bootstrap_checkpoint(real: Path) -> None:
    path = real / "bootstrap.checkpoint"
    content = bytearray(path.read_bytes())
    first_bytes = 12 + struct.unpack_from(">i", content, 8)[0]
    content[first_bytes + 70] ^= 1
    path.write_bytes(content)  # a broker 4.3.1 starts with it: it does not look at checksums here
    finding = the_one(real / NAME, "KRF-2", Severity.WARNING)
    assert (finding.path, finding.start_pos) == (str(path), first_bytes)


def test_an_epoch_that_was_set_back(real: Path) -> None:
    path = real / NAME / "quorum-state"
    path.write_text(path.read_text().replace('"leaderEpoch":1', '"leaderEpoch":0'))
    finding = the_one(real / NAME, "KRF-3", Severity.WARNING)
    assert (finding.path, finding.expected, finding.found) == (str(path), ">= 1", "0")


def test_another_topic_id(real: Path) -> None:
    path = real / NAME / "partition.metadata"
    path.write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    finding = the_one(real / NAME, "DIR-4")
    assert finding.found == "AAECAwQFBgcICQoLDA0ODw"
    path.unlink()  # a node writes it again
    assert findings_of(real / NAME) == []


# --- planted --------------------------------------------------------------------------------------


def test_sound(tmp_path: Path) -> None:
    log = data(0, TOPIC, NO_OP) + data(2, BEGIN, NO_OP) + data(4, END) + data(5, BEGIN, ABORT)
    assert findings_of(metadata_dir(tmp_path, log)) == []


def test_what_a_crash_leaves_is_sound(tmp_path: Path) -> None:
    """A transaction that is open, and half a batch."""
    log = data(0, BEGIN, NO_OP) + data(2, NO_OP)[:-2]
    assert findings_of(metadata_dir(tmp_path, log)) == []


def test_quorum_state_is_missing(tmp_path: Path) -> None:
    directory = metadata_dir(tmp_path, data(0, NO_OP))
    (directory / "quorum-state").unlink()
    finding = the_one(directory, "KRF-3", Severity.WARNING)
    assert finding.found == "none"
    (directory / f"{0:020d}.log").write_bytes(b"")
    assert findings_of(directory) == []


def test_quorum_state_does_not_parse(tmp_path: Path) -> None:
    directory = metadata_dir(tmp_path, data(0, NO_OP))
    (directory / "quorum-state").write_text('{"leaderId":1')
    finding = the_one(directory, "QST-1")
    assert finding.path == str(directory / "quorum-state")
    assert finding.broker_action == "refuses to start"


@pytest.mark.parametrize(
    "name, expected",
    [
        ("", "none"),
        ("00000000000000000009-0000000001.checkpoint", "9"),
        ("00000000000000000010-0000000001.checkpoint.part", "none"),
        ("00000000000000000010-0000000001.checkpoint.deleted", "none"),
        ("00000000000000000010-0000000001.checkpoint", ""),
        ("00000000000000000011-0000000001.checkpoint", ""),
    ],
)
def test_a_log_that_begins_above_0(tmp_path: Path, name: str, expected: str) -> None:
    directory = metadata_dir(tmp_path, data(10, NO_OP, NO_OP), start=10)
    if name:
        (directory / name).write_bytes(snapshot(TOPIC))
    if not expected:
        assert findings_of(directory) == []
        return
    finding = the_one(directory, "KRF-1")
    assert (finding.path, finding.found) == (str(directory), expected)
    assert finding.broker_action == "refuses to start"


SNAPSHOT = snapshot(TOPIC, NO_OP)
HEADER_BYTES, FOOTER_BYTES = len(control(0, HEADER)), len(control(0, FOOTER))


@pytest.mark.parametrize(
    "content, start_pos",
    [
        (SNAPSHOT[:-FOOTER_BYTES], len(SNAPSHOT) - FOOTER_BYTES),
        (SNAPSHOT[HEADER_BYTES:], 0),
        (SNAPSHOT[:-1], len(SNAPSHOT) - FOOTER_BYTES),
        (SNAPSHOT + data(4, NO_OP), len(SNAPSHOT) + len(data(4, NO_OP))),
        (SNAPSHOT.replace(TOPIC, TOPIC[:-2] + b"x\0"), HEADER_BYTES),  # a wrong checksum
        (control(0, (b"\0\0", b"")) + SNAPSHOT[HEADER_BYTES:], 0),
    ],
)
def test_damaged_snapshots(tmp_path: Path, content: bytes, start_pos: int) -> None:
    directory = metadata_dir(tmp_path, data(10, NO_OP), start=10)
    path = directory / "00000000000000000010-0000000001.checkpoint"
    path.write_bytes(content)
    found = findings_of(directory)
    assert {each.check_id for each in found} == {"KRF-2"}
    assert (found[0].path, found[0].start_pos) == (str(path), start_pos)
    assert found[0].broker_action.startswith("cannot load")
    newer = directory / "00000000000000000011-0000000001.checkpoint"
    newer.write_bytes(SNAPSHOT)
    assert {each.path for each in findings_of(directory)} == {str(path)}
    assert findings_of(directory)[0].broker_action.startswith("nothing")


def test_an_empty_snapshot(tmp_path: Path) -> None:
    directory = metadata_dir(tmp_path, data(0, NO_OP))
    (directory / "00000000000000000001-0000000001.checkpoint").write_bytes(b"")
    found = findings_of(directory)
    assert [(each.check_id, each.expected) for each in found] == [
        ("KRF-2", "SNAPSHOT_HEADER"),
        ("KRF-2", "SNAPSHOT_FOOTER"),
    ]


@pytest.mark.parametrize(
    "value, severity",
    [
        (b"", Severity.ERROR),
        (b"\x00\x02\x00", Severity.ERROR),  # frame of a preview release
        (b"\x80", Severity.ERROR),
        (TOPIC[:-1], Severity.ERROR),
        (TOPIC + b"x", Severity.ERROR),
        (b"\x01\xff\x7f\x00", Severity.ERROR),  # a type of a later release
        (b"\x01\x02\x63" + TOPIC[3:], Severity.NOTE),  # a version, which reads as a known one
        (b"\x01\x02\x63" + TOPIC[3:-1], Severity.ERROR),
    ],
)
def test_records_that_do_not_decode(tmp_path: Path, value: bytes, severity: Severity) -> None:
    before = data(0, NO_OP)
    log = before + data(1, NO_OP, value, NO_OP)
    directory = metadata_dir(tmp_path, log + data(4, NO_OP))
    finding = the_one(directory, "KRF-4", severity)
    assert (finding.start_pos, finding.end_pos) == (len(before), len(log))
    assert (finding.base_offset, finding.last_offset) == (2, 2)


def test_a_record_in_a_snapshot_that_does_not_decode(tmp_path: Path) -> None:
    directory = metadata_dir(tmp_path, data(0, NO_OP))
    path = directory / "00000000000000000001-0000000001.checkpoint"
    path.write_bytes(snapshot(TOPIC, b"\x80"))
    finding = the_one(directory, "KRF-4")
    assert (finding.path, finding.start_pos) == (str(path), HEADER_BYTES)


@pytest.mark.parametrize(
    "values, offset, words",
    [
        ([NO_OP, END], 1, "END_TRANSACTION_RECORD without a transaction"),
        ([ABORT], 0, "ABORT_TRANSACTION_RECORD without a transaction"),
        ([BEGIN, NO_OP, BEGIN, END], 2, "BEGIN_TRANSACTION_RECORD inside of a transaction"),
        ([BEGIN, END, END], 2, "END_TRANSACTION_RECORD without a transaction"),
    ],
)
def test_transactions_that_do_not_nest(
    tmp_path: Path, values: list[bytes], offset: int, words: str
) -> None:
    log = b"".join(data(place, value) for place, value in enumerate(values))
    finding = the_one(metadata_dir(tmp_path, log), "KRF-5", Severity.WARNING)
    assert (finding.message, finding.base_offset) == (words, offset)
    assert finding.start_pos == sum(len(data(0, each)) for each in values[:offset])


def test_a_log_that_begins_inside_of_a_transaction(tmp_path: Path) -> None:
    """What is below the newest snapshot is not replayed; what is above is."""
    log = data(10, NO_OP, END, NO_OP)
    directory = metadata_dir(tmp_path, log, start=10)
    (directory / "00000000000000000012-0000000001.checkpoint").write_bytes(SNAPSHOT)
    assert findings_of(directory) == []
    (directory / "00000000000000000012-0000000001.checkpoint").rename(
        directory / "00000000000000000011-0000000001.checkpoint"
    )
    the_one(directory, "KRF-5", Severity.WARNING)


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    directory = metadata_dir(tmp_path, data(0, NO_OP))
    path = directory / "00000000000000000001-0000000001.checkpoint"
    path.write_bytes(SNAPSHOT)
    (selected,) = discover([directory]).selected
    partition = Partition.of(selected)
    path.unlink()
    collector = Collector()
    check_metadata_log(partition, collector)
    assert collector.kept == []
    assert [str(each) for each in partition.problems] == [f"{path}: No such file or directory"]


# --- other releases -------------------------------------------------------------------------------

STOPS = "cannot load the cluster's metadata, and stops"
PARTITION_V2 = bytes.fromhex(
    "010302 00000000 000102030405060708090a0b0c0d0e0f 02 00000001 02 00000001 01 01 00000001"
    "00000000 00000000 02 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 00"
)
# Tags 1 and 3, of which versions below know nothing: they are passed over.
REGISTRATION_CHANGE_V3 = bytes.fromhex("011103 00000001 0000000000000007 02 0101 01 0301 01")


def records_of(directory: Path, version: str = "") -> list[Finding]:
    """What is told of records: quorum-state of the planted ones is that of a dynamic quorum."""
    return [each for each in findings_of(directory, version) if each.check_id == "KRF-4"]


def feature(name: str, level: int) -> bytes:
    return b"\x01\x0c\0" + bytes([len(name) + 1]) + name.encode() + struct.pack(">h", level) + b"\0"


@pytest.mark.parametrize(
    ("value", "is_known"),
    [
        (feature("metadata.version", 99), False),
        (feature("group.version", 9), False),
        (feature("of.another", 1), False),
        (feature("metadata.version", 6), True),  # too old, and nobody said that 4.3 starts here
    ],
)
def test_what_is_newer_than_every_known_release(
    tmp_path: Path, value: bytes, *, is_known: bool
) -> None:
    directory = metadata_dir(tmp_path, data(0, value))
    assert [each.broker_action for each in findings_of(directory)] == ([] if is_known else [STOPS])


def test_a_control_record_of_a_newer_release(tmp_path: Path) -> None:
    key, value = bytes.fromhex("0000004d"), bytes.fromhex("0000")
    log = data(0, NO_OP) + batch(1, (key, value), attributes=32)
    finding = the_one(metadata_dir(tmp_path, log), "KRF-4")
    assert finding.message == "Kafka 4.4 does not know control record type 77"
    assert finding.broker_action == STOPS


def test_what_a_snapshot_replaces_is_not_loaded(tmp_path: Path) -> None:
    """An unknown record below the newest snapshot's end stops nobody."""
    directory = metadata_dir(tmp_path, data(0, b"\x01\xff\x7f\x00") + data(1, NO_OP))
    (directory / "00000000000000000001-0000000001.checkpoint").write_bytes(SNAPSHOT)
    the_one(directory, "KRF-4", Severity.NOTE)


@pytest.mark.parametrize(
    "value, version, expected",
    [
        (feature("metadata.version", 30), "4.3", None),
        (feature("metadata.version", 30), "4.2", "7..29"),
        (feature("metadata.version", 22), "3.9.1", "1..21"),
        (feature("metadata.version", 21), "3.9.1", None),
        (feature("metadata.version", 8), "3.3", "1..7"),
        (feature("metadata.version", 6), "3.9", None),
        (feature("metadata.version", 6), "4.0", "7..25"),
        (feature("group.version", 1), "3.9", "0..0"),
        (feature("group.version", 1), "4.0", None),
        (feature("streams.version", 1), "4.1", "0..0"),
        (feature("share.version", 1), "4.1", None),
        (feature("of.another", 7), "3.3", None),
        (feature("of.another", 0), "4.3", None),
        (bytes.fromhex("011c00027400"), "3.9", ""),  # ClearElr
        (bytes.fromhex("011c00027400"), "4.0", None),
        (PARTITION_V2, "3.6", "0..0"),
        (PARTITION_V2, "3.7", None),
        (REGISTRATION_CHANGE_V3, "3.3", None),
        (TOPIC, "3.0", None),
    ],
)
def test_what_a_release_knows(
    tmp_path: Path, value: bytes, version: str, expected: str | None
) -> None:
    directory = metadata_dir(tmp_path, data(0, TOPIC, value))
    found = [(each.expected, each.broker_action) for each in records_of(directory, version)]
    if expected is None:
        assert found == []
        return
    ((words, action),) = found
    assert words == expected
    assert action.startswith("cannot load the cluster's metadata")
    assert records_of(directory) == []


def test_what_counts_is_what_is_replayed(tmp_path: Path) -> None:
    """What a later record undoes counts; what a newer snapshot stands for does not."""
    high, low = (feature("metadata.version", each) for each in (30, 19))
    directory = metadata_dir(tmp_path, data(0, high) + data(1, low) + data(2, NO_OP))
    (finding,) = records_of(directory, "3.7")
    assert (finding.base_offset, finding.found, finding.broker_action) == (0, "30", STOPS)
    path = directory / "00000000000000000002-0000000001.checkpoint"
    path.write_bytes(snapshot(low))
    assert records_of(directory, "3.7") == []
    path.write_bytes(snapshot(high))
    (finding,) = records_of(directory, "3.7")
    assert (finding.path, finding.found) == (str(path), "30")
    newer = directory / "00000000000000000003-0000000001.checkpoint"
    newer.write_bytes(snapshot(low))
    assert records_of(directory, "3.7") == []


def test_each_kind_is_told_once(tmp_path: Path) -> None:
    high = feature("metadata.version", 30)
    (finding,) = records_of(metadata_dir(tmp_path, data(0, high, high) + data(2, high)), "3.7")
    assert finding.base_offset == 0


def test_bootstrap_checkpoint_of_a_newer_release(real: Path) -> None:
    for each in (real / NAME).glob("*.log"):
        each.write_bytes(b"")
    found = findings_of(real / NAME, "3.9")
    assert {each.path for each in found} == {str(real / "bootstrap.checkpoint")}
    assert {each.broker_action for each in found} == {"refuses to start"}
    assert "Kafka 3.9 does not know metadata.version 30" in {each.message for each in found}
    assert findings_of(real / NAME, "3.2") == []  # does not look at it


@pytest.mark.parametrize(
    ("version", "is_refused"), [("3.4", 0), ("3.5", 1), ("3.7", 1), ("3.9", 0)]
)
def test_a_dynamic_quorum(tmp_path: Path, version: str, is_refused: int) -> None:
    """3.3 and 3.4 pass over control records, 3.5 to 3.7 stop at those of a type that is new."""
    record = (bytes.fromhex("00000005"), bytes.fromhex("0000000100"))
    found = records_of(metadata_dir(tmp_path, data(0, NO_OP) + control(1, record)), version)
    assert [each.broker_action for each in found] == [STOPS] * is_refused


def test_quorum_state_of_a_dynamic_quorum(tmp_path: Path) -> None:
    directory = metadata_dir(tmp_path, data(0, NO_OP))
    (finding,) = findings_of(directory, "3.7")
    assert (finding.check_id, finding.found) == ("QST-1", "1")
    assert finding.broker_action == "refuses to start"
    assert findings_of(directory, "3.8") == []


def test_metadata_of_kraft_to_the_preview(tmp_path: Path) -> None:
    (finding,) = records_of(metadata_dir(tmp_path, data(0, NO_OP, NO_OP)), "2.8")
    assert finding.message == "Kafka 2.8 does not know frame version 1"
