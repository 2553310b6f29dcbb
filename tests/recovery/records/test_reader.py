"""Records as Arrow batches: against what a client consumed, and against one batch at a time."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.drawn import examples

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa

from recovery.records.columns import RecordReader, binary_array, record_schema
from recovery.records.read_options import RECORD_COLUMNS, ReadOptions
from recovery.transactions.isolation import Isolation
from recovery.transactions.outcomes import find_stability
from storage.errors import AccessError, FormatError, UsageError
from storage.formats.record import Record, RecordHeader
from storage.kernels.protocol import VerdictKind
from storage.log.decoded_records import marker_is_commit
from storage.log.segment import open_segment
from storage.places.list_places import list_places
from storage.places.log_reader import FindingsList
from storage.places.splits import Split, split_places
from tests.audit_logs import Batch, write_segments
from tests.batches import encoded_batch
from tests.made_logs import batches, with_right_checksums
from tests.read_back import PARTITIONS, consumed, cut, places_in, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace

Row = dict[str, Any]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


# --- the definition: one batch at a time ----------------------------------------------------------


def define(places: Sequence[SegmentPlace]) -> list[Row]:
    """All records of a partition directory."""
    markers: dict[int, list[tuple[int, bool]]] = {}
    found: list[tuple[int, SegmentPlace, ScannedBatch, list[Any]]] = []
    number = 0
    for place in places:
        with open_segment(place.path) as segment:
            for batch in segment.scan(is_active=place.is_active):
                number += 1
                header = batch.header
                if batch.crc_ok is False:
                    continue
                try:
                    if header.is_control:
                        is_commit = marker_is_commit(segment, batch)
                        if is_commit is not None and header.records_count > 0:
                            markers.setdefault(header.producer_id, []).append((number, is_commit))
                        continue
                    found.append((number, place, batch, list(segment.records(batch))))
                except FormatError:
                    continue
    rows = []
    for number, place, batch, records in found:
        behind = [each for each in markers.get(batch.header.producer_id, []) if each[0] > number]
        outcome = "committed"
        if batch.header.is_transactional and batch.header.producer_id >= 0:
            outcome = ("committed" if behind[0][1] else "aborted") if behind else "open"
        rows += [define_row(place, batch, records, each, outcome) for each in records]
    return rows


def define_row(
    place: SegmentPlace, batch: ScannedBatch, records: list[Any], record: Any, outcome: str
) -> Row:
    header = batch.header
    kind = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    return {
        "broker": place.broker,
        "topic": place.topic,
        "partition": place.partition,
        "directory": place.directory,
        "path": place.path,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": kind if header.magic else None,
        "key": record.key,
        "value": record.value,
        "headers": [{"key": each.key, "value": each.value} for each in record.headers],
        "batch_base_offset": header.base_offset if header.magic == 2 else records[0].offset,
        "partition_leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "sequence": record.sequence,
        "is_transactional": header.is_transactional,
        "outcome": outcome,
        "codec": CODECS[header.codec],
    }


def read(splits: Iterable[Split], options: ReadOptions | None = None, **more: Any) -> list[Row]:
    rows: list[Row] = []
    for split in splits:
        reader = RecordReader(split, options, **more)
        own: list[Row] = []
        for batch in reader:
            batch.validate(full=True)
            assert batch.schema == reader.schema
            own += batch.to_pylist()
        counts = reader.counts
        assert counts.records == len(own)
        outcomes = (counts.committed, counts.aborted, counts.open, counts.unknown)
        assert counts.records == sum(outcomes)
        if own and "offset" in own[0]:
            assert (counts.first_offset, counts.last_offset) == (
                own[0]["offset"], own[-1]["offset"],
            )  # fmt: skip
        rows += own
    return rows


# --- what a client consumed -----------------------------------------------------------------------


def test_all_partitions_are_here(golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1-clean.consumed")
    names = {path.name.split(".")[0] for path in root.rglob("*.jsonl")}
    assert names == set(PARTITIONS)


@pytest.mark.share(6)
@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("name", PARTITIONS)
def test_what_a_client_consumed(
    golden: Callable[[str], Path], name: str, isolation: Isolation
) -> None:
    places = places_in(golden("kafka-4.3.1") / "clean" / name)
    first, expected = consumed(golden, name, isolation)
    stability = find_stability(places)
    if isolation is Isolation.READ_COMMITTED:
        assert stability.stable_offset == first["high_watermark"]
    else:
        assert stability.log_end_offset == first["high_watermark"]
    columns = ("offset", "timestamp_ms", "timestamp_type", "key", "value", "headers")
    options = ReadOptions(columns, isolation, stability.stable_offset)
    assert read(whole(places), options) == expected
    for every in (1, 2, 3, 7):
        assert read(cut(places, every=every), options) == expected


@pytest.mark.share(2)
@pytest.mark.usefixtures("gaps_were_never_filled")
@pytest.mark.parametrize("state", ["crash", "hard", "tv2", "tv2-clean"])
def test_real_directories_by_definition(golden: Callable[[str], Path], state: str) -> None:
    by_directory: dict[str, list[SegmentPlace]] = {}
    for place in places_in(golden("kafka-4.3.1") / state):
        by_directory.setdefault(place.directory, []).append(place)
    seen: set[str] = set()
    for places in by_directory.values():
        expected = define(places)
        seen |= {row["outcome"] for row in expected}
        assert read(whole(places)) == expected
        assert read(cut(places, every=5)) == expected
    assert seen >= {"committed", "aborted"}


def test_legacy_formats(golden: Callable[[str], Path]) -> None:
    places = places_in(golden("kafka-0.10.2-legacy"))
    rows = read(whole(places))
    assert rows == [row for place in places for row in define([place])]
    assert {row["timestamp_type"] for row in rows} == {None, "CreateTime"}
    assert {row["codec"] for row in rows} == set(CODECS) - {"zstd"}
    assert all(row["batch_base_offset"] <= row["offset"] for row in rows)


# --- the last stable offset -----------------------------------------------------------------------


def test_the_high_watermark_of_a_stopped_directory(golden: Callable[[str], Path]) -> None:
    """The log alone says 311; nothing from the high watermark on is stable."""
    places = places_in(golden("kafka-4.3.1") / "clean" / "txn-0")
    assert find_stability(places).stable_offset == 311
    assert find_stability(places).open_transactions == ((40, 311),)
    assert find_stability(places, high_watermark=320).stable_offset == 311
    assert find_stability(places, high_watermark=100).stable_offset <= 100
    assert find_stability([]).stable_offset == 0


def test_stability_by_hand(tmp_path: Path) -> None:
    data, ended = Batch(kind="txn"), Batch(kind="commit")
    directory = write_segments(
        tmp_path / "t-0",
        [data, Batch(pid=2, kind="txn"), ended, Batch(pid=3)],
        [data, Batch(pid=2, kind="abort"), Batch(pid=-1, count=3)],
    )
    places = places_in(directory)
    found = find_stability(places)
    assert (found.stable_offset, found.log_end_offset) == (4, 9)
    assert found.open_transactions == ((1, 4),)
    # Until its marker is replicated, a transaction is as good as open.
    assert find_stability(places, high_watermark=5).stable_offset == 1
    assert find_stability(places, high_watermark=6).stable_offset == 4
    assert find_stability(places, log_start_offset=5).stable_offset == 9
    Path(places[1].path).unlink()
    found = find_stability(places)
    assert (found.stable_offset, found.log_end_offset, len(found.problems)) == (1, 4, 1)


# --- bounds, columns, sizes -----------------------------------------------------------------------


def test_bounds(golden: Callable[[str], Path]) -> None:
    places = places_in(golden("kafka-4.3.1") / "clean" / "plain-0")
    rows = read(whole(places))
    times = sorted({row["timestamp_ms"] for row in rows})
    low, high = times[len(times) // 3], times[len(times) // 2]
    options = ReadOptions(from_offset=17, to_offset=101)
    assert read(whole(places), options) == rows[17:101]
    options = ReadOptions(from_time_ms=low, to_time_ms=high)
    within = [row for row in rows if low <= row["timestamp_ms"] < high]
    assert within
    assert read(whole(places), options) == within
    assert read(whole(places), ReadOptions(from_offset=10**6)) == []
    legacy = places_in(golden("kafka-0.10.2-legacy") / "v1-gzip-0")
    rows = read(whole(legacy))
    middle = rows[len(rows) // 2]["offset"]
    expected = [row for row in rows if row["offset"] >= middle]
    assert read(whole(legacy), ReadOptions(from_offset=middle)) == expected


def test_columns() -> None:
    assert record_schema().names == list(RECORD_COLUMNS)
    assert record_schema(("value", "offset")).names == ["value", "offset"]
    for wrong in (("valu",), ("key", "key"), ()):
        with pytest.raises(UsageError):
            record_schema(wrong)


def test_only_what_is_asked_for(
    golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    places = places_in(golden("kafka-4.3.1") / "clean" / "txn-0")
    rows = read(whole(places))
    for columns in (("offset", "outcome"), ("codec", "value"), ("headers",), ("path",)):
        expected = [{name: row[name] for name in columns} for row in rows]
        assert read(whole(places), ReadOptions(columns)) == expected
    monkeypatch.setattr("recovery.records.columns.binary_array", None)
    read(whole(places), ReadOptions(("offset", "timestamp_ms", "sequence")))


def test_arrow_batches_stay_small(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    records = [Record(0, n, n, b"k%d" % n, bytes([n]) * 100_000, ()) for n in range(200)]
    data = batch_of(0, records, codec=4) + batch_of(200, records)
    (directory / f"{0:020d}.log").write_bytes(data)
    places = places_in(directory)
    expected = define(places)
    assert len(expected) == 400
    assert read(whole(places)) == expected
    options = ReadOptions(batch_bytes=1 << 20)
    sizes = [batch.nbytes for batch in RecordReader(whole(places)[0], options)]
    assert max(sizes) < 1_300_000
    assert read(whole(places), options) == expected
    assert read(whole(places), ReadOptions(batch_bytes=1)) == expected


def test_a_batch_of_very_many_records(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    records = [Record(0, 0, n, None, b"", ()) for n in range(70_000)]
    (directory / f"{0:020d}.log").write_bytes(batch_of(0, records, codec=1))
    reader = RecordReader(whole(places_in(directory))[0])
    found = list(reader)
    assert [batch.num_rows for batch in found] == [65_536, 70_000 - 65_536]
    assert pa.Table.from_batches(found)["offset"].to_pylist() == list(range(70_000))


def batch_of(
    base_offset: int,
    records: Sequence[Record],
    *,
    codec: int = 0,
    attributes: int = 0,
    pid: int = -1,
) -> bytes:
    return encoded_batch(
        base_offset,
        records,
        attributes=attributes | codec,
        last_offset_delta=records[-1].offset_delta,
        producer_id=pid,
        producer_epoch=0 if pid >= 0 else -1,
        base_sequence=0 if pid >= 0 else -1,
    )


# --- any log --------------------------------------------------------------------------------------


@st.composite
def partitions(draw: Callable[..., Any]) -> list[bytes]:
    """Segments of one partition, each behind the other; the base offset is in their first batch."""
    offset = 0
    segments = []
    for _ in range(draw(st.integers(1, 3))):
        data = b""
        for _ in range(draw(st.integers(1, 6))):
            batch, offset = draw(batches(offset))
            data += batch
        segments.append(data)
    return segments


def write(directory: Path, segments: Sequence[bytes]) -> list[SegmentPlace]:
    directory.mkdir()
    for data in segments:
        base_offset = int.from_bytes(data[:8], "big")
        (directory / f"{base_offset:020d}.log").write_bytes(data)
    return places_in(directory)


@settings(max_examples=examples(40))
@given(partitions(), st.integers(1, 5), st.sampled_from(Isolation), st.data())
def test_any_log(segments: list[bytes], every: int, isolation: Isolation, data: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        places = write(Path(directory, "t-3"), segments)
        stable_offset = find_stability(places).stable_offset
        expected = define(places)
        if isolation is Isolation.READ_COMMITTED:
            expected = [
                row
                for row in expected
                if row["outcome"] == "committed" and row["offset"] < stable_offset
            ]
        options = ReadOptions(isolation=isolation, stable_offset=stable_offset)
        assert read(whole(places), options) == expected
        assert read(cut(places, every=every), options) == expected
        columns = tuple(data.draw(st.permutations(RECORD_COLUMNS))[:4])
        low, high = sorted(data.draw(st.tuples(st.integers(0, 50), st.integers(0, 50))))
        options = options._replace(columns=columns, from_offset=low, to_offset=high)
        assert read(cut(places, every=every), options) == [
            {name: row[name] for name in columns} for row in expected if low <= row["offset"] < high
        ]


@settings(max_examples=examples(80))
@given(partitions(), st.integers(1, 4), st.data())
def test_any_damaged_log(segments: list[bytes], every: int, data: Any) -> None:
    damaged = []
    for each in segments:
        segment = bytearray(each)
        for _ in range(data.draw(st.integers(0, 2))):
            pos = data.draw(st.integers(8, len(segment) - 1))
            kind = data.draw(st.sampled_from(["flip", "length", "drop", "zeros", "cut", "body"]))
            if kind == "flip":
                segment[pos] ^= 1 << data.draw(st.integers(0, 7))
            elif kind == "length":
                segment[8:12] = data.draw(st.integers(0, 600)).to_bytes(4, "big")
            elif kind == "drop":
                del segment[pos : pos + data.draw(st.integers(1, 100))]
            elif kind == "zeros":
                segment[pos : pos + 70] = bytes(len(segment[pos : pos + 70]))
            elif kind == "cut" and pos > 60:
                del segment[pos:]
            elif kind == "body" and len(segment) > 70:
                segment[min(pos, 63)] ^= 0x11
                segment = bytearray(with_right_checksums(bytes(segment)))
            if len(segment) < 9:
                segment = bytearray(each)
        damaged.append(bytes(each[:8] + segment[8:]))
    with tempfile.TemporaryDirectory() as directory:
        places = write(Path(directory, "t-3"), damaged)
        expected = define(places)
        rows = read(whole(places))
        for row, by_next_marker in zip(rows, expected, strict=True):
            assert row["outcome"] in {by_next_marker["outcome"], "unknown"}
            assert row == by_next_marker | {"outcome": row["outcome"]}
        for place in places:
            check_findings(place)
        assert read(cut(places, every=every)) == rows


def check_findings(place: SegmentPlace) -> None:
    """Whatever a scan finds is told, and so is what does not decode; all else gives records."""
    with open_segment(place.path) as segment:
        scan = segment.scan(is_active=place.is_active)
        bad = set()
        for batch in scan:
            if batch.crc_ok is False:
                continue
            header = batch.header
            try:
                if not header.is_control:
                    list(segment.records(batch))
                elif header.producer_id >= 0 and header.records_count > 0:
                    marker_is_commit(segment, batch)
            except FormatError:
                bad.add((batch.pos, batch.pos + header.batch_bytes))
        verdicts = {(each.start_pos, each.end_pos) for each in scan.verdicts}
    reader = RecordReader(Split(place, 0, place.file_bytes, is_last=True))
    list(reader)
    reported = {(each.start_pos, each.end_pos) for each in reader.findings}
    assert verdicts <= reported
    starts = {start for start, _ in verdicts}
    undecodable = {each for each in bad if each[0] not in starts}
    assert reported - verdicts == undecodable
    assert reader.findings == sorted(reader.findings, key=lambda each: each[1:3])


# --- findings -------------------------------------------------------------------------------------


def five(directory: Path) -> tuple[SegmentPlace, list[int]]:
    """Five batches of two records each; and where they begin, with the end."""
    write_segments(directory, [Batch(count=2, sequence=2 * n) for n in range(5)])
    (place,) = places_in(directory)
    with open_segment(place.path) as segment:
        starts = [each.pos for each in segment.scan()]
    return place, [*starts, place.file_bytes]


def test_a_wrong_checksum_is_a_finding(tmp_path: Path) -> None:
    place, edges = five(tmp_path / "t-0")
    data = bytearray(Path(place.path).read_bytes())
    data[edges[2] + 65] ^= 1
    Path(place.path).write_bytes(data)
    reader = RecordReader(Split(place, 0, place.file_bytes, is_last=True))
    rows = [row["offset"] for batch in reader for row in batch.to_pylist()]
    assert rows == [0, 1, 2, 3, 6, 7, 8, 9]
    (found,) = reader.findings
    assert found[:5] == (place.path, edges[2], edges[3], VerdictKind.CORRUPT, "BAT-1")
    assert (found.base_offset, found.last_offset, found.is_lost) == (4, 5, True)
    # Next to the ends of splits one side is not known.
    reader = RecordReader(Split(place, edges[2], edges[3], is_last=False))
    assert list(reader) == []
    assert [each[-3:] for each in reader.findings] == [(None, None, True)]


def test_what_was_lost_is_known_from_its_neighbours(tmp_path: Path) -> None:
    place, edges = five(tmp_path / "t-0")
    data = Path(place.path).read_bytes()
    Path(place.path).write_bytes(data[: edges[1] + 30] + data[edges[3] :])
    reader = RecordReader(Split(place, 0, place.file_bytes, is_last=True))
    assert sum(batch.num_rows for batch in reader) == 6
    found = reader.findings[0]
    assert (found.base_offset, found.last_offset, found.is_lost) == (2, 5, True)


def test_a_torn_tail_is_no_loss(tmp_path: Path) -> None:
    place, edges = five(tmp_path / "t-0")
    data = Path(place.path).read_bytes()
    Path(place.path).write_bytes(data[: edges[4] + 30])
    place = places_in(tmp_path / "t-0")[0]
    reader = RecordReader(Split(place, 0, place.file_bytes, is_last=True))
    assert sum(batch.num_rows for batch in reader) == 8
    (found,) = reader.findings
    assert (found.kind, found.base_offset, found.is_lost) == (VerdictKind.TORN_TAIL, 8, False)


def test_content_that_does_not_decode(tmp_path: Path) -> None:
    place, edges = five(tmp_path / "t-0")
    data = bytearray(Path(place.path).read_bytes())
    data[edges[2] - 1] = 9  # the count of headers of the last record
    Path(place.path).write_bytes(with_right_checksums(bytes(data)))
    reader = RecordReader(Split(place, 0, place.file_bytes, is_last=True))
    rows = [row["offset"] for batch in reader for row in batch.to_pylist()]
    assert rows == [0, 1, 4, 5, 6, 7, 8, 9]
    (found,) = reader.findings
    assert (found.start_pos, found.end_pos, found.check_id) == (edges[1], edges[2], "BAT-7")
    assert (found.base_offset, found.last_offset) == (2, 3)


def test_a_failing_disk(tmp_path: Path) -> None:
    place, edges = five(tmp_path / "t-0")
    bad = range(edges[2] + 10, edges[2] + 20)

    def pread(fd: int, view: memoryview, pos: int) -> int:
        if pos < bad.stop and pos + len(view) > bad.start:
            raise OSError(errno.EIO, "Input/output error")
        return os.preadv(fd, [view], pos)

    def opener(each: SegmentPlace) -> Segment:
        return open_segment(each.path, pread=pread)

    # The device fails in sectors, and all five batches lie in one or two of them.
    reader = RecordReader(Split(place, 0, place.file_bytes, is_last=True), opener=opener)
    given = sum(batch.num_rows for batch in reader)
    assert given < 10
    assert {each.kind for each in reader.findings} == {VerdictKind.UNREADABLE}
    assert reader.findings[0].errno == errno.EIO

    def refusing(each: SegmentPlace) -> Segment:
        raise_access(each.path)

    reader = RecordReader(Split(place, 0, place.file_bytes, is_last=True), opener=refusing)
    assert list(reader) == []
    (found,) = reader.findings
    assert (found.start_pos, found.end_pos) == (0, place.file_bytes)
    assert (found.errno, found.base_offset, found.last_offset) == (errno.EACCES, 0, None)


def raise_access(path: str) -> Any:
    from storage.errors import AccessError

    raise AccessError(PermissionError(errno.EACCES, "Permission denied"), path)


def test_a_bad_sector_in_a_large_log(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    record = [Record(0, 0, 0, b"k", b"v" * 3000, (RecordHeader(b"h", None),))]
    data = b"".join(batch_of(offset, record) for offset in range(50))
    (directory / f"{0:020d}.log").write_bytes(data)
    (place,) = places_in(directory)
    bad_pos = len(data) // 2 + 1500  # inside of a batch, and so is the sector

    def pread(fd: int, view: memoryview, pos: int) -> int:
        if pos <= bad_pos < pos + len(view):
            raise OSError(errno.EIO, "Input/output error")
        return os.preadv(fd, [view], pos)

    reader = RecordReader(
        Split(place, 0, len(data), is_last=True),
        opener=lambda each: open_segment(each.path, pread=pread),
    )
    offsets = [row["offset"] for batch in reader for row in batch.to_pylist()]
    assert len(offsets) == 49
    (found,) = reader.findings
    (missing,) = set(range(50)) - set(offsets)
    assert (found.kind, found.errno) == (VerdictKind.UNREADABLE, errno.EIO)
    assert (found.base_offset, found.last_offset, found.is_lost) == (missing, missing, True)


def test_a_file_that_is_shorter_than_listed(tmp_path: Path) -> None:
    place, edges = five(tmp_path / "t-0")
    Path(place.path).write_bytes(Path(place.path).read_bytes()[: edges[3]])
    for start, end, expected in ((0, 5, (edges[3], 6)), (4, 5, (edges[4], None))):
        reader = RecordReader(Split(place, edges[start], edges[end], is_last=True))
        list(reader)
        (found,) = reader.findings
        assert found.kind is VerdictKind.UNREADABLE
        assert (found.start_pos, found.base_offset) == expected


def test_a_marker_that_does_not_decode(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    data = [Record(0, 0, 0, None, b"x", ())]
    marker = [Record(0, 0, 0, b"\0", b"", ())]  # too short a key
    log = batch_of(0, data, attributes=0x10, pid=7) + batch_of(1, marker, attributes=0x30, pid=7)
    (directory / f"{0:020d}.log").write_bytes(log)
    (place,) = places_in(directory)
    reader = RecordReader(Split(place, 0, place.file_bytes, is_last=True))
    assert [row["outcome"] for batch in reader for row in batch.to_pylist()] == ["open"]
    (found,) = reader.findings
    assert (found.base_offset, found.check_id, found.is_lost) == (1, "BAT-12", False)


def test_a_transaction_that_ends_segments_later(tmp_path: Path) -> None:
    txn, other = Batch(kind="txn"), Batch(pid=5)
    directory = write_segments(
        tmp_path / "t-0", [txn, other], [other], [other, Batch(kind="abort"), txn], [other]
    )
    places = places_in(directory)
    outcomes = [
        [row["outcome"] for row in read([split], ReadOptions(("outcome",)))]
        for split in whole(places)
    ]
    assert outcomes == [
        ["aborted", "committed"], ["committed"], ["committed", "open"], ["committed"],
    ]  # fmt: skip
    Path(places[1].path).unlink()
    Path(places[1].path).mkdir()
    assert read([whole(places)[0]], ReadOptions(("outcome",)))[0] == {"outcome": "aborted"}


def test_what_cannot_be_read_is_named_once(tmp_path: Path) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch()])
    (split,) = whole(list_places([str(directory)]).places)
    path = split.place.path
    found = FindingsList.of(split)
    found.add_unreadable(AccessError(OSError(errno.EACCES, "Permission denied"), path), 0, 9)
    found.finish()
    reported = f"{path}: positions 0 to 9: unreadable: Permission denied"
    assert [str(each) for each in found.found] == [reported]


@pytest.mark.parametrize("isolation", list(Isolation))
@pytest.mark.parametrize("base_offset", [2**63 - 2, -5])
def test_offsets_that_cannot_be_are_lost(
    tmp_path: Path, isolation: Isolation, base_offset: int
) -> None:
    directory = write_segments(
        tmp_path / "t-0", [Batch(count=2), Batch(sequence=2, count=5), Batch(sequence=7)]
    )
    (log,) = directory.iterdir()
    data = bytearray(log.read_bytes())
    size = 12 + int.from_bytes(data[8:12], "big")
    data[size : size + 8] = base_offset.to_bytes(8, "big", signed=True)  # not under the checksum
    log.write_bytes(data)
    (split,) = split_places(list_places([str(log)]).places, 1 << 30)
    reader = RecordReader(split, ReadOptions(columns=("offset",), isolation=isolation))
    offsets = [offset for batch in reader for offset in batch["offset"].to_pylist()]
    assert offsets == [0, 1, 7]
    assert [each.start_pos for each in reader.findings if each.is_lost] == [size]


@pytest.mark.parametrize("null_pos", [0, 5, 99])
def test_nulls_may_lie_anywhere(null_pos: int) -> None:
    """The native kernel gives them no place of their own."""
    source = np.frombuffer(b"-ab-cde--f", np.uint8)
    for wanted in (
        [b"ab", b"cde", None],
        [None, b"ab", b"f"],
        [b"ab", None, b"", None, b"f"],
        [None],
    ):
        pos = [null_pos if each is None else max(bytes(source).find(each), 3 * (not each))
               for each in wanted]  # fmt: skip
        size = [-1 if each is None else len(each) for each in wanted]
        found = binary_array(source, np.array(pos, np.int64), np.array(size, np.int64))
        found.validate(full=True)
        assert found.to_pylist() == wanted
