"""Checks of decoded records: real logs give nothing, planted faults exactly what they are."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import crc32c
import pytest

from recovery.checks.contents import records as records_module
from recovery.checks.contents.records import RecordCheck
from recovery.checks.context.broker_version import parse_broker_version
from recovery.checks.context.collector import Collector
from recovery.rules.findings import Finding, Severity
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.kernels.numpy_kernel import BulkScan, BulkWindow
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.kernels.protocol import ScannedBatch

STATES = ["clean", "crash", "recovered", "hard", "hard-clean", "tv2", "tv2-clean"]
PID = 1000
TIME_MS = 1_700_000_000_000
MARKER = 0x30
COMMIT = (bytes.fromhex("00000001"), bytes.fromhex("000000000003"))

Content = tuple[bytes | None, bytes | None]


def check(
    path: Path, *, is_active: bool = True, singly: bool = False, **options: object
) -> list[Finding]:
    """Check a segment as the command does, or each batch by itself."""
    collector = Collector("t", 0)
    with open_segment(path) as segment:
        checker = RecordCheck(
            segment,
            str(path),
            collector,
            **({"is_compacted": False} | options),  # type: ignore[arg-type]
        )
        if singly:
            for batch in segment.scan(is_active=is_active):
                checker.take_batch(batch)
        else:
            for part in BulkScan(segment, is_active=is_active).parts():
                if isinstance(part, BulkWindow):
                    checker.take_window(part)
                else:
                    checker.take_batch(part)
        assert checker.problems == []
    return collector.kept


# --- real logs ------------------------------------------------------------------------------------


def real_findings(log_dir: Path, *, is_compacted: bool) -> Iterator[Finding]:
    for selected in discover([log_dir]).selected:
        partition = Partition.of(selected)
        for files in partition.segments:
            yield from check(
                Path(files.log.path),
                is_active=partition.is_active(files),
                topic=partition.topic,
                is_compacted=is_compacted,
            )


@pytest.mark.parametrize("state", STATES)
def test_one_node(golden: Callable[[str], Path], state: str) -> None:
    log_dir = golden("kafka-4.3.1") / state
    assert list(real_findings(log_dir, is_compacted=True)) == []
    # A horizon outlives its tombstone in the one topic that was cleaned that often (COMP-3).
    found = list(real_findings(log_dir, is_compacted=False))
    wanted = [("BAT-13", "c2-0", 122), ("BAT-13", "c2-0", 212)] if "tv2" in state else []
    assert [
        (each.check_id, Path(each.path).parent.name, each.start_pos) for each in found
    ] == wanted


def test_three_nodes(golden: Callable[[str], Path]) -> None:
    for node in (1, 2, 3):
        log_dir = golden("kafka-4.3.1-three-brokers") / "after" / f"broker-{node}"
        assert list(real_findings(log_dir, is_compacted=False)) == []


def test_legacy(golden: Callable[[str], Path]) -> None:
    assert list(real_findings(golden("kafka-0.10.2-legacy"), is_compacted=False)) == []


def test_ordinary_batches_are_cleared_in_bulk(
    golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only control batches of KRaft, a few in a log, are looked at one by one."""
    inspected: list[str] = []

    def note(checker: RecordCheck, batch: ScannedBatch) -> None:
        inspected.append(f"{Path(checker._path).parent.name} {batch.header.attributes:#x}")

    monkeypatch.setattr(RecordCheck, "_check_batch", note)
    assert list(real_findings(golden("kafka-4.3.1") / "clean", is_compacted=True)) == []
    assert set(inspected) == {"__cluster_metadata-0 0x20"}
    assert len(inspected) < 5


# --- batches without our encoders -----------------------------------------------------------------


def varint(value: int) -> bytes:
    number, out = (value << 1) ^ (value >> 63), bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(offset_delta: int, content: Content = (b"k", b"v"), time_delta: int = 0) -> bytes:
    fields = b"\0" + varint(time_delta) + varint(offset_delta)
    fields += nullable(content[0]) + nullable(content[1]) + b"\0"
    return varint(len(fields)) + fields


def batch(
    offset: int,
    body: bytes,
    count: int,
    *,
    attributes: int = 0,
    last_delta: int | None = None,
    max_time: int = 0,
    pid: int = -1,
) -> bytes:
    sequence = 0 if pid >= 0 and not attributes & 0x20 else -1
    covered = struct.pack(
        ">hiqqqhii",
        attributes,
        count - 1 if last_delta is None else last_delta,
        TIME_MS,
        TIME_MS + max_time,
        pid,
        0 if pid >= 0 else -1,
        sequence,
        count,
    )
    covered += body
    head = struct.pack(">qiib", offset, 9 + len(covered), 0, 2)
    return head + struct.pack(">I", crc32c.crc32c(covered)) + covered


def marker(offset: int, content: Content = COMMIT, **fields: int) -> bytes:
    return batch(offset, record(0, content), 1, **({"attributes": MARKER, "pid": PID} | fields))


def sound(offset: int) -> bytes:
    return batch(offset, record(0) + record(1), 2)


def write(tmp_path: Path, *batches: bytes) -> Path:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def judge(tmp_path: Path, content: bytes, *, offset: int = 10, **options: object) -> list[Finding]:
    """Put one batch between sound ones; in bulk and singly the same must be said of it."""
    before = sound(0)
    last_offset = offset + struct.unpack_from(">i", content, 23)[0]
    path = write(tmp_path, before, content, sound(last_offset + 1))
    found = check(path, **options)  # type: ignore[arg-type]
    assert check(path, singly=True, **options) == found  # type: ignore[arg-type]
    for each in found:
        assert each.path == str(path)
        assert each.end_pos == len(before) + len(content)
        assert each.start_pos is not None
        assert each.start_pos >= len(before)
    return found


def the_one(
    tmp_path: Path,
    content: bytes,
    check_id: str,
    severity: Severity = Severity.ERROR,
    *,
    inside: int = 0,
    **options: object,
) -> Finding:
    (finding,) = judge(tmp_path, content, **options)
    assert (finding.check_id, finding.severity) == (check_id, severity)
    assert finding.start_pos == len(sound(0)) + inside
    return finding


ALL_SOUND = [
    batch(10, record(0) + record(3), 2, last_delta=5),  # after a compaction
    batch(10, record(0) + record(1, time_delta=7), 2, max_time=7),
    batch(10, record(0, time_delta=3), 1, max_time=99, attributes=0x08),  # append time
    batch(10, gzip.compress(record(0) + record(1)), 2, attributes=1),
    batch(10, b"", 0, last_delta=3, pid=PID),  # an empty batch
    batch(10, b"", 0, last_delta=0, pid=PID, attributes=MARKER),
    batch(10, record(0, (b"k", None)), 1, attributes=0x40),
    marker(10),
    marker(10, attributes=0x38),
    marker(10, attributes=0x78),
    marker(10, (b"\0\x05\0\x00", COMMIT[1] + b"more")),  # of a later version
    batch(10, record(0, (bytes.fromhex("00000004"), bytes(3))), 1, attributes=0x20),
]


def name_of(value: object) -> str | None:
    """Bytes are not told: what gzip makes has the time in it, and names must be the same always."""
    return f"{len(value)}-bytes" if isinstance(value, bytes) else None


@pytest.mark.parametrize("content", ALL_SOUND, ids=name_of)
def test_sound(tmp_path: Path, content: bytes) -> None:
    assert judge(tmp_path, content) == []


# --- bodies ---------------------------------------------------------------------------------------


def test_a_body_that_does_not_parse(tmp_path: Path) -> None:
    first, second = record(0), bytearray(record(1))
    second[-1] = 2  # a header that is not there
    content = batch(10, first + bytes(second), 2)
    finding = the_one(tmp_path, content, "BAT-7", inside=61 + len(first))
    assert (finding.base_offset, finding.last_offset) == (10, 11)


@pytest.mark.parametrize("body", [record(0) + record(1) + b"\0", record(0), b""])
def test_a_body_of_another_size(tmp_path: Path, body: bytes) -> None:
    (finding,) = judge(tmp_path, batch(10, body, 2))
    assert (finding.check_id, finding.severity) == ("BAT-7", Severity.ERROR)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_body_that_does_not_decompress(tmp_path: Path, codec: int) -> None:
    content = batch(10, b"\x1f\x8bnothing of the kind", 2, attributes=codec)
    the_one(tmp_path, content, "BAT-7", inside=61)


def test_a_codec_that_cannot_be_is_the_headers_matter(tmp_path: Path) -> None:
    assert judge(tmp_path, batch(10, record(0), 1, attributes=6)) == []


def test_a_wrong_checksum_is_the_headers_matter(tmp_path: Path) -> None:
    content = bytearray(batch(10, record(5), 1))
    content[-1] ^= 1
    assert judge(tmp_path, bytes(content)) == []


@pytest.mark.parametrize("limit", [100_000, 20 << 20])
def test_a_bomb(tmp_path: Path, limit: int) -> None:
    body = gzip.compress(record(0, (b"k", bytes(limit))), 9)
    content = batch(10, body, 1, attributes=1)
    the_one(tmp_path, content, "BAT-7", Severity.WARNING, inside=61, max_batch_bytes=limit)
    assert judge(tmp_path, content, max_batch_bytes=limit + 1000) == []


@pytest.mark.parametrize(
    "deltas, last_delta, severity, words",
    [
        ([0, 2], 1, Severity.ERROR, "12"),
        ([-1, 1], 1, Severity.ERROR, "9"),
        ([1, 0], 1, Severity.WARNING, "10 after 11"),
        ([1, 1], 1, Severity.WARNING, "11 after 11"),
        ([1, 0, 7], 2, Severity.ERROR, "17"),
    ],
)
def test_offsets(
    tmp_path: Path, deltas: list[int], last_delta: int, severity: Severity, words: str
) -> None:
    content = batch(10, b"".join(map(record, deltas)), len(deltas), last_delta=last_delta)
    assert the_one(tmp_path, content, "BAT-8", severity).found == words


def test_offsets_under_a_count_that_cannot_be(tmp_path: Path) -> None:
    """BAT-4 is said of the header; nothing more is known to be wrong."""
    content = batch(10, record(0) + record(1), 2, last_delta=0)
    path = write(tmp_path, content)
    assert check(path) == check(path, singly=True) == []


@pytest.mark.parametrize("max_time", [0, 8])
def test_the_max_timestamp(tmp_path: Path, max_time: int) -> None:
    content = batch(10, record(0) + record(1, time_delta=7), 2, max_time=max_time)
    finding = the_one(tmp_path, content, "BAT-9", Severity.WARNING)
    assert finding.expected == str(TIME_MS + 7)
    assert finding.found == str(TIME_MS + max_time)


def test_a_horizon_without_a_tombstone(tmp_path: Path) -> None:
    content = batch(10, record(0), 1, attributes=0x40)
    the_one(tmp_path, content, "BAT-13", Severity.NOTE)
    assert judge(tmp_path, content, is_compacted=True) == []


def test_batches_of_more_records_than_are_decoded_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "MAX_RECORDS", 3)
    monkeypatch.setattr(records_module, "MAX_BATCH_RECORDS", 5)
    good = batch(0, b"".join(map(record, range(9))), 9)
    bad = batch(9, b"".join(map(record, [*range(8), 9])), 9)
    path = write(tmp_path, good, bad, sound(18), sound(20), sound(22))
    assert [(each.check_id, each.base_offset) for each in check(path)] == [("BAT-8", 9)]


# --- control batches ------------------------------------------------------------------------------


@pytest.mark.parametrize("attributes", [0x20, 0x31, 0x21])
def test_attributes_of_markers(tmp_path: Path, attributes: int) -> None:
    body = record(0, COMMIT)
    content = batch(
        10, gzip.compress(body) if attributes & 1 else body, 1, attributes=attributes, pid=PID
    )
    finding = the_one(tmp_path, content, "BAT-12", Severity.WARNING)
    assert (finding.expected, finding.found) == ("0x30", f"{attributes:#x}")


def test_several_markers_in_a_batch(tmp_path: Path) -> None:
    content = batch(10, record(0, COMMIT) + record(1, COMMIT), 2, attributes=MARKER, pid=PID)
    assert the_one(tmp_path, content, "BAT-12", Severity.WARNING).found == "2 records"


@pytest.mark.parametrize(
    "content, action",
    [
        ((COMMIT[0], COMMIT[1][:5]), "does not start"),
        ((COMMIT[0], None), "does not start"),
        ((None, COMMIT[1]), "does not start"),
        ((b"\0\0\0\x02", COMMIT[1]), "does not start"),
        ((b"\0\0\0", COMMIT[1]), "truncates the log"),
        ((b"\xff\xff\0\x01", COMMIT[1]), "truncates the log"),
        ((COMMIT[0], b"\xff\xff\0\0\0\0"), "truncates the log"),
    ],
)
def test_markers_that_cannot_be_read(tmp_path: Path, content: Content, action: str) -> None:
    assert action in the_one(tmp_path, marker(10, content), "BAT-12").broker_action


@pytest.mark.parametrize(
    "content, severity",
    [
        (COMMIT, Severity.WARNING),  # a marker that ends nobody's transaction
        ((b"\0\0\0\x63", b""), Severity.WARNING),
        ((b"\0\0\0\x02", b"\0"), Severity.ERROR),
        ((b"\0", b""), Severity.ERROR),
        ((None, b""), Severity.ERROR),
    ],
)
def test_control_records_without_a_producer(
    tmp_path: Path, content: Content, severity: Severity
) -> None:
    the_one(tmp_path, batch(10, record(0, content), 1, attributes=0x20), "BAT-12", severity)


# --- the coordinators' topics ---------------------------------------------------------------------

# Bytes of worked examples.
TRANSACTION: Content = (
    bytes.fromhex("0000" "0005" "6d792d7478"),
    bytes.fromhex(
        "0000" "00000000000003e8" "0005" "0000ea60" "00" "ffffffff" "0000018bcfe56800"
        "ffffffffffffffff"
    ),
)  # fmt: skip
OFFSET: Content = (
    bytes.fromhex("000100016700017400000000"),
    bytes.fromhex("0003000000000000002a0000000700000000018bcfe56800"),
)
GROUP: Content = (bytes.fromhex("0003000167"), bytes.fromhex("00000000000500"))


@pytest.mark.parametrize(
    "topic, content",
    [
        ("__transaction_state", TRANSACTION),
        ("__transaction_state", (TRANSACTION[0], None)),
        ("__consumer_offsets", OFFSET),
        ("__consumer_offsets", GROUP),
        ("orders", (None, b"any")),
    ],
)
def test_records_that_decode(tmp_path: Path, topic: str, content: Content) -> None:
    path = write(tmp_path, batch(0, record(0, content), 1), marker(1))
    assert check(path, topic=topic) == check(path, topic=topic, singly=True) == []


@pytest.mark.parametrize(
    "topic, content, check_id, severity",
    [
        ("__transaction_state", (None, TRANSACTION[1]), "COO-1", Severity.ERROR),
        ("__transaction_state", (b"\0\x09rest", None), "COO-2", Severity.NOTE),
        ("__transaction_state", (TRANSACTION[0], b"\0\x09"), "COO-3", Severity.WARNING),
        (
            "__transaction_state",
            (TRANSACTION[0], (TRANSACTION[1] or b"")[:16] + b"\x0b" + (TRANSACTION[1] or b"")[17:]),
            "COO-4",
            Severity.WARNING,
        ),
        ("__transaction_state", (TRANSACTION[0], b"\0\0\0"), "MSG-1", Severity.ERROR),
        ("__consumer_offsets", (OFFSET[0], (OFFSET[1] or b"")[:-1]), "MSG-1", Severity.ERROR),
        ("__consumer_offsets", (b"\0", None), "MSG-1", Severity.ERROR),
        ("__consumer_offsets", (GROUP[0], (GROUP[1] or b"")[:-2]), "MSG-1", Severity.WARNING),
        ("__consumer_offsets", (GROUP[0], GROUP[1][:-1] + b"\x01\x09\x00"), "COO-5", Severity.NOTE),
    ],
)
def test_records_that_do_not_decode(
    tmp_path: Path, topic: str, content: Content, check_id: str, severity: Severity
) -> None:
    good = TRANSACTION if topic == "__transaction_state" else OFFSET
    first = batch(0, record(0, good), 1)
    second = batch(1, record(0, good) + record(1, content), 2)
    path = write(tmp_path, first, second, marker(3), batch(4, record(0, good), 1))
    (finding,) = found = check(path, topic=topic)
    assert check(path, topic=topic, singly=True) == found
    assert (finding.check_id, finding.severity) == (check_id, severity)
    assert (finding.start_pos, finding.end_pos) == (len(first), len(first) + len(second))
    assert (finding.base_offset, finding.last_offset) == (2, 2)


# --- legacy ---------------------------------------------------------------------------------------


def message(
    offset: int, value: bytes | None, *, magic: int = 1, attributes: int = 0, time: int = TIME_MS,
    key: bytes | None = None,
) -> bytes:  # fmt: skip
    def sized(data: bytes | None) -> bytes:
        return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data

    covered = struct.pack(">bb", magic, attributes)
    covered += (struct.pack(">q", time) if magic else b"") + sized(key) + sized(value)
    size = 4 + len(covered)
    return struct.pack(">qiI", offset, size, zlib.crc32(covered)) + covered


def wrapper(offset: int, inner: bytes, **fields: int) -> bytes:
    return message(offset, gzip.compress(inner), attributes=fields.pop("attributes", 1), **fields)


INNER = message(0, b"a") + message(1, b"b", time=TIME_MS + 1)
BAD_CRC = bytes([*INNER[:-1], INNER[-1] ^ 1])


@pytest.mark.parametrize(
    "content",
    [
        message(11, b"plain"),
        message(11, b"plain", magic=0),
        wrapper(11, INNER, time=TIME_MS + 1),
        wrapper(11, INNER, time=TIME_MS + 50, attributes=9),  # append time
        wrapper(11, message(0, b"a") + message(5, b"b"), time=TIME_MS),  # compacted
        wrapper(11, message(10, b"a", magic=0) + message(11, b"b", magic=0), magic=0),
    ],
    ids=name_of,
)
def test_sound_legacy_messages(tmp_path: Path, content: bytes) -> None:
    assert check(write(tmp_path, message(1, b"x"), content)) == []


@pytest.mark.parametrize(
    "content, check_id, severity",
    [
        (message(11, b"no gzip", attributes=1), "BAT-17", Severity.ERROR),
        (message(11, None, attributes=1), "BAT-17", Severity.ERROR),
        (wrapper(11, b""), "BAT-17", Severity.ERROR),
        (wrapper(11, wrapper(0, INNER)), "BAT-17", Severity.ERROR),
        (wrapper(11, BAD_CRC, time=TIME_MS + 1), "BAT-17", Severity.ERROR),
        (wrapper(11, message(1, b"a") + message(0, b"b")), "BAT-17", Severity.ERROR),
        (wrapper(11, message(3, b"a", magic=0), magic=0), "BAT-17", Severity.ERROR),
        (wrapper(11, message(12, b"a")), "BAT-17", Severity.ERROR),
        (wrapper(11, INNER, time=TIME_MS), "BAT-9", Severity.WARNING),
        (
            message(11, gzip.compress(INNER), attributes=1, key=b"k", time=TIME_MS + 1),
            "BAT-17",
            Severity.WARNING,
        ),
    ],
    ids=name_of,
)
def test_legacy_messages(tmp_path: Path, content: bytes, check_id: str, severity: Severity) -> None:
    before = message(1, b"x")
    (finding,) = check(write(tmp_path, before, content))
    assert (finding.check_id, finding.severity) == (check_id, severity)
    assert (finding.start_pos, finding.end_pos) == (len(before), len(before) + len(content))


TRANSACTION_V1: Content = (
    TRANSACTION[0],
    bytes.fromhex(
        "0001" "00000000000003e8" "0005" "0000ea60" "00" "00" "0000018bcfe56800"
        "ffffffffffffffff" "00"
    ),
)  # fmt: skip
OFFSET_V4: Content = (
    OFFSET[0],
    bytes.fromhex("0004000000000000002a00000007010000018bcfe5680000"),
)
REGULAR_EXPRESSION: Content = (bytes.fromhex("0010000167000172"), None)
NO_GROUP = "its coordinator loads no group and no offset of the partition"
NO_MORE_IDS = "its coordinator loads no transactional id that follows in the partition"
OVER = "skips it"


@pytest.mark.parametrize(
    "topic, content, version, expected",
    [
        ("__transaction_state", TRANSACTION_V1, "3.4.1", None),
        ("__transaction_state", TRANSACTION_V1, "3.4.0", ("COO-3", Severity.ERROR, NO_MORE_IDS)),
        ("__transaction_state", TRANSACTION, "2.8", None),
        ("__transaction_state", (TRANSACTION[0], None), "2.8", None),
        ("__consumer_offsets", OFFSET_V4, "3.4", None),
        ("__consumer_offsets", OFFSET_V4, "3.3", ("COO-3", Severity.ERROR, NO_GROUP)),
        ("__consumer_offsets", OFFSET, "2.8", None),
        ("__consumer_offsets", GROUP, "4.0", None),
        ("__consumer_offsets", GROUP, "3.9", ("COO-2", Severity.NOTE, OVER)),
        ("__consumer_offsets", GROUP, "3.3", ("COO-2", Severity.ERROR, NO_GROUP)),
        ("__consumer_offsets", REGULAR_EXPRESSION, "4.0", None),
        ("__consumer_offsets", (b"\0\x11\0\1g", None), "4.0", ("COO-2", Severity.NOTE, OVER)),
        ("__consumer_offsets", (b"\0\x11\0\1g", None), "4.1", None),
    ],
)
def test_records_that_a_release_cannot_load(
    tmp_path: Path,
    topic: str,
    content: Content,
    version: str,
    expected: tuple[str, Severity, str] | None,
) -> None:
    """KIP-915 came with 3.4.1; before, one record that is too new costs what is in its partition."""
    path = write(tmp_path, batch(0, record(0, content), 1))
    release = parse_broker_version(version)
    found = check(path, topic=topic, version=release)
    assert check(path, topic=topic, version=release, singly=True) == found
    rows = [(each.check_id, each.severity, each.broker_action) for each in found]
    assert rows == ([] if expected is None else [expected])
    assert check(path, topic=topic) == []
