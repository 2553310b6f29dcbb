"""Duplicates: against plain definitions, for any log, any memory, any split into segments."""

from __future__ import annotations

import resource
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recovery.duplicates.spill
from recovery.duplicates.record_digests import Digester, content_of, digest_of, parse_record_id
from recovery.duplicates.search import DuplicateOptions, DuplicateSearch
from recovery.duplicates.spill import MIN_ROWS, Duplicate, DuplicateKind, Sorter, SpillSpace
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.errors import AccessError, UsageError
from storage.formats.record_batch import HEADER, HEADER_BYTES
from storage.kernels.numpy_kernel import table_of
from storage.kernels.record_table import decode_records
from storage.log.decoded_records import MarkerIndex
from storage.log.segment import LogRecord, open_segment
from tests.batches import LAP
from tests.doubled_logs import (
    KnownBatch,
    KnownRecord,
    Log,
    Said,
    Sent,
    content_size,
    encoded,
    id_in,
    known,
    offsets_of,
    proved,
    suspected,
    write_log,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PROVED, SUSPECTED = DuplicateKind


class CountingSpace(SpillSpace):
    """Keeps the sorters it hands out, to ask them how much they held."""

    __slots__ = ()
    made: list[Sorter] = []  # noqa: RUF012 - a NamedTuple has no place of its own

    def sorter(self, dtype: Any, keys: Any, share: float) -> Sorter:
        self.made.append(super().sorter(dtype, keys, share))
        return self.made[-1]


def search(
    paths: Sequence[Path], memory_bytes: int = 1 << 20, spill: str = "", **options: Any
) -> tuple[list[Duplicate], DuplicateSearch]:
    CountingSpace.made.clear()
    with tempfile.TemporaryDirectory() as directory:
        space = CountingSpace(memory_bytes, spill or directory)
        found = DuplicateSearch(discover(paths).selected, DuplicateOptions(**options), space)
        rows = list(found.duplicates())
        assert list(Path(directory).iterdir()) == []
    for sorter in CountingSpace.made:
        row_bytes = sorter._dtype.itemsize + recovery.duplicates.spill.SORT_BYTES
        assert sorter.peak_rows_count <= max(memory_bytes // row_bytes, MIN_ROWS)
    assert found.counts == {kind: sum(row.kind is kind for row in rows) for kind in DuplicateKind}
    return rows, found


def proved_of(rows: Sequence[Duplicate]) -> list[tuple[Any, ...]]:
    return [
        (row.first_base_offset, row.repeat_base_offset, row.base_sequence, row.last_sequence)
        for row in rows
        if row.kind is PROVED
    ]


def suspected_of(rows: Sequence[Duplicate]) -> list[tuple[Any, ...]]:
    return [
        (
            (row.first_partition, row.first_base_offset),
            (row.partition, row.repeat_base_offset),
            row.is_same_payload,
        )
        for row in rows
        if row.kind is SUSPECTED
    ]


# --- any log --------------------------------------------------------------------------------------

times = st.sampled_from([0, 0, 1, 5, 9, 10, 11, 500, -1, 1_700_000_000_000])
small = st.sampled_from([None, b"", b"a", b"b", b"k" * 70])
said = st.builds(
    Said,
    time=times,
    key=small,
    value=small,
    headers=st.lists(st.tuples(st.sampled_from([b"", b"id", b"other"]), small), max_size=3).map(
        tuple
    ),
)
sequences = st.one_of(
    st.integers(0, 8), st.sampled_from([-1, LAP - 1, LAP - 3, LAP // 2, LAP // 2 - 1])
)


@st.composite
def sent(draw: Any, words: list[Said]) -> Sent:
    pid = draw(st.sampled_from([-1, 1, 1, 2, 2**63 - 1]))
    records = st.lists(st.sampled_from(words), min_size=1, max_size=6).map(tuple)
    if pid < 0:
        return Sent(records=draw(records))
    return Sent(
        pid,
        draw(st.sampled_from([0, 0, 0, 1, 32767])),
        draw(sequences),
        draw(records),
        draw(st.sampled_from(["data", "data", "data", "txn", "commit", "abort"])),
        draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4])),
        draw(st.sampled_from([0, 0, 0, 3])),
    )


@st.composite
def logs(draw: Any) -> list[Sent]:
    """Batches of a few different records, and repetitions of them."""
    words = draw(st.lists(said, min_size=1, max_size=6))
    pool = draw(st.lists(sent(words), min_size=1, max_size=12))
    places = st.integers(0, len(pool) - 1)
    return [pool[each] for each in draw(st.lists(places, max_size=30))]


memories = st.sampled_from([0, 3000, 20_000, 1 << 20])
windows = st.sampled_from([0, 1, 10, 10**6, 2**63 - 1])
ids = st.sampled_from([None, None, "key", "header:id", "header:other"])


def others_than_gaps(notes: Sequence[str]) -> list[str]:
    """Logs are drawn with gaps between their batches, which are losses."""
    return [each for each in notes if "[SEG-4]" not in each]


@given(
    batches=logs(),
    cuts=st.sets(st.integers(1, 29), max_size=4),
    memory_bytes=memories,
    window=windows,
    record_id=ids,
    min_bytes=st.sampled_from([0, 1, 2, 60]),
    is_committed_only=st.booleans(),
)
def test_any_log_as_defined(
    batches: list[Sent],
    cuts: set[int],
    memory_bytes: int,
    window: int,
    record_id: str | None,
    min_bytes: int,
    is_committed_only: bool,
) -> None:
    log = known(batches)
    if is_committed_only:
        log = Log(*([each for each in rows if each.outcome == "committed"] for rows in log))
    with tempfile.TemporaryDirectory() as root:
        path = write_log(Path(root, "t-0"), batches, cuts=cuts)
        rows, found = search(
            [path],
            memory_bytes,
            window_ms=window,
            record_id=record_id and parse_record_id(record_id),
            min_bytes=min_bytes,
            is_committed_only=is_committed_only,
        )
    assert (others_than_gaps(found.notes), found.is_skipped) == ([], False)
    assert proved_of(rows) == proved(log.batches)
    assert suspected_of(rows) == suspected(log.records, window, record_id, min_bytes)
    _check_fields(rows, log)


def _check_fields(rows: Sequence[Duplicate], log: Log) -> None:
    batches = {each.offset: each for each in log.batches}
    records = {each.offset: each for each in log.records}
    for row in rows:
        is_proved = row.kind is PROVED
        for side in ("first", "repeat"):
            offset = getattr(row, f"{side}_base_offset")
            each: Any = (batches if is_proved else records)[offset]
            assert getattr(row, f"{side}_producer_id") == each.pid
            assert getattr(row, f"{side}_producer_epoch") == each.epoch
            assert getattr(row, f"{side}_outcome") == each.outcome
            if is_proved:
                assert getattr(row, f"{side}_last_offset") == offset + each.count - 1
                times = [records[offset + delta].time for delta in range(each.count)]
                assert getattr(row, f"{side}_timestamp_ms") == max(times)
            else:
                assert getattr(row, f"{side}_timestamp_ms") == each.time
        if is_proved:
            _check_payload(row, batches, records)


def _check_payload(row: Duplicate, batches: Any, records: Any) -> None:
    assert row.base_sequence is not None
    assert row.last_sequence is not None
    count = (row.last_sequence - row.base_sequence) % LAP + 1
    contents = []
    for offset in (row.first_base_offset, row.repeat_base_offset):
        start = offset + (row.base_sequence - batches[offset].sequence) % LAP
        contents.append([records[start + delta].content for delta in range(count)])
    assert row.records_count == count
    assert row.is_same_payload is (contents[0] == contents[1])
    encoded_records = [
        content_of(LogRecord(0, 0, 0, key, value, headers, None, None))  # type: ignore[arg-type]
        for key, value, headers in contents[1]
    ]
    assert row.payload_hash == digest_of(encoded_records).hex()


@pytest.mark.exhaustive
@given(batches=st.lists(logs(), min_size=2, max_size=3), memory_bytes=memories, window=windows)
def test_across_partitions(batches: list[list[Sent]], memory_bytes: int, window: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        for number, each in enumerate(batches):
            write_log(Path(root, f"t-{number}"), each)
            write_log(Path(root, f"other-{number}"), each)
        paths = [Path(root, f"t-{number}") for number in reversed(range(len(batches)))]
        options: dict[str, Any] = {"window_ms": window, "is_across_partitions": True}
        rows, _ = search([*paths, Path(root, "other-0")], memory_bytes, **options)
    rows = [row for row in rows if row.topic == "t"]
    records = [record for n, each in enumerate(batches) for record in known(each, n).records]
    assert suspected_of(rows) == suspected(records, window)
    assert [(row.partition, *pair) for row, pair in zip(rows, proved_of(rows), strict=False)] == [
        (number, *pair)
        for number, each in enumerate(batches)
        for pair in proved(known(each).batches)
    ]


# --- real logs ------------------------------------------------------------------------------------


def read_plainly(partition: Partition) -> Log:
    """What is in a directory, batch by batch."""
    log, markers = Log([], []), MarkerIndex()
    for files in partition.segments:
        with open_segment(files.log.path) as segment:
            markers.read_segment(segment)
    for files in partition.segments:
        with open_segment(files.log.path) as segment:
            for batch in segment.scan():
                header = batch.header
                if header.is_control:
                    continue
                outcome = str(markers.outcome(header))
                pid, epoch = header.producer_id, header.producer_epoch
                count = header.last_offset_delta + 1
                log.batches.append(
                    KnownBatch(header.base_offset, count, pid, epoch, header.base_sequence, outcome)
                )
                for each in segment.records(batch):
                    headers = tuple((bytes(key), value) for key, value in each.headers)
                    content = (each.key, each.value, headers)
                    log.records.append(
                        KnownRecord(each.timestamp_ms, 0, each.offset, pid, epoch, outcome, content)
                    )
    return log


@pytest.mark.share(2)
@pytest.mark.parametrize("state", ["crash", "clean", "hard", "hard-clean", "tv2", "tv2-clean"])
def test_real_logs(golden: Callable[[str], Path], state: str) -> None:
    _check_directory(golden("kafka-4.3.1") / state)


def test_legacy_logs(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """Formats 0 and 1, compressed and plain; each beside a copy of itself."""
    root = golden("kafka-0.10.2-legacy")
    assert _check_directory(root) == 0
    names = [each.partition.name for each in discover([root]).selected]
    assert len(names) > 5
    for name in names:
        paths = [tmp_path / f"{name.topic}-{number}" for number in (0, 1)]
        for path in paths:
            shutil.copytree(root / f"{name.topic}-{name.partition}", path)
        partition = Partition.of(discover([paths[0]]).selected[0])
        records = read_plainly(partition).records
        both = [*records, *(each._replace(directory=1) for each in records)]
        rows, _ = search(paths, 1 << 14, is_across_partitions=True)
        assert len(rows) > len(records) // 2 > 0
        assert suspected_of(rows) == suspected(both, 600_000)


def _check_directory(root: Path) -> int:
    """Compare all partitions with the definitions; none has proved ones. Gives the suspected."""
    total = 0
    for selected in discover([root]).selected:
        partition = Partition.of(selected)
        log = read_plainly(partition)
        rows, found = search([Path(selected.partition.path)], 1 << 16, window_ms=10**7)
        assert (others_than_gaps(found.notes), found.is_skipped) == ([], False)
        assert proved_of(rows) == []
        if not partition.topic.startswith("__"):
            assert proved(log.batches) == []
        wanted = suspected(log.records, 10**7)
        assert [row[1:] for row in suspected_of(rows)] == [
            ((max(partition.partition, 0), repeat[1]), same) for _, repeat, same in wanted
        ]
        assert [row.first_base_offset for row in rows] == [first[1] for first, _, _ in wanted]
        total += len(rows)
    return total


# --- planted ones ---------------------------------------------------------------------------------


def at_offset(batch: bytes, offset: int) -> bytes:
    """The same batch elsewhere: no checksum covers the base offset."""
    return offset.to_bytes(8, "big") + batch[8:]


@pytest.fixture
def copied(golden: Callable[[str], Path], tmp_path: Path) -> Path:
    path = tmp_path / "rolled-0"
    shutil.copytree(golden("kafka-4.3.1") / "clean" / "rolled-0", path)
    for each in [path, *path.iterdir()]:
        each.chmod(0o755 if each.is_dir() else 0o644)
    return path


def test_a_real_batch_again(copied: Path) -> None:
    log = max(copied.glob("*.log"))
    first = min(copied.glob("*.log")).read_bytes()
    length = HEADER.unpack_from(first)[1] + 12
    header = HEADER.unpack_from(first)
    log.write_bytes(log.read_bytes() + at_offset(first[:length], 1000))
    (row,), _ = search([copied], kinds=frozenset({PROVED}))
    assert (row.first_base_offset, row.repeat_base_offset) == (0, 1000)
    assert (row.base_sequence, row.last_sequence) == (header[11], header[11] + header[6])
    assert (row.records_count, row.is_same_payload) == (header[12], True)
    assert (Path(row.first_path).name, Path(row.path)) == (f"{0:020d}.log", log)


def test_a_copy_at_the_same_offset_is_none(copied: Path) -> None:
    log = max(copied.glob("*.log"))
    data = log.read_bytes()
    log.write_bytes(data + data)
    rows, found = search([copied])
    assert rows == []
    assert found.is_skipped
    assert any("[BAT-3]" in note for note in found.notes), found.notes


def test_a_segment_that_is_there_twice(tmp_path: Path) -> None:
    batches = [Sent(1, 0, n, (Said(n, b"k%d" % n),)) for n in range(4)]
    path = write_log(tmp_path / "t-0", batches, cuts=[2])
    later = path / f"{2:020d}.log"
    first = path / f"{0:020d}.log"
    first.write_bytes(first.read_bytes() + later.read_bytes())
    rows, found = search([path])
    assert rows == []
    assert "offsets of the next segment" in "".join(found.notes)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_topics_without_sequences(tmp_path: Path, topic: str) -> None:
    batches = [Sent(1, 0, 0, (Said(0, b"k"),)), Sent(1, 0, 0), Sent(records=(Said(1, b"k"),))]
    path = write_log(tmp_path / f"{topic}-0", batches)
    rows, _ = search([path])
    assert [row.kind for row in rows] == [SUSPECTED]
    space = SpillSpace(1 << 20, str(tmp_path))
    found = DuplicateSearch(
        discover([path]).selected, DuplicateOptions(), space, requested=lambda _: False
    )
    assert list(found.duplicates()) == []
    assert "name their directories" in found.notes[0]


def test_another_lap_is_no_repetition(tmp_path: Path) -> None:
    half = LAP // 2
    around = [Sent(1, 0, n, (Said(),) * 2) for n in (LAP - 3, LAP - 1, 1)]
    batches = [Sent(1, 0, 0), Sent(1, 0, half - 1), *around, Sent(1, 0, LAP - 1, (Said(),) * 3)]
    path = write_log(tmp_path / "t-0", batches)
    rows, _ = search([path], kinds=frozenset({PROVED}))
    offset = offsets_of(batches)[-1]
    assert proved_of(rows) == [(4, offset, LAP - 1, 0)]
    assert rows[0].records_count == 2


def test_damage_is_told_and_left_out(tmp_path: Path) -> None:
    batches = [Sent(1, 0, 0, (Said(0, b"k%d" % n),)) for n in (1, 2, 1)]

    def damaged(place: int, data: bytes) -> bytes:
        return data if place != 1 else data[:-1] + bytes([data[-1] ^ 1])

    path = write_log(tmp_path / "t-0", batches, change=damaged)
    rows, found = search([path])
    assert proved_of(rows) == [(0, 2, 0, 0)]
    assert found.is_skipped
    assert "BAT-1" in found.notes[0]


def test_records_that_do_not_decode(tmp_path: Path) -> None:
    from storage.formats.record_batch import CRC, CRC_POS, compute_crc

    def cut(place: int, data: bytes) -> bytes:
        broken = bytearray(data)
        broken[HEADER_BYTES] ^= 2
        CRC.pack_into(broken, CRC_POS, compute_crc(broken))
        return data if place else bytes(broken)

    path = write_log(tmp_path / "t-0", [Sent(), Sent(), Sent()], change=cut)
    rows, found = search([path])
    assert suspected_of(rows) == [((0, 1), (0, 2), True)]
    assert "BAT-7" in found.notes[0]


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_a_hot_record_is_no_special_case(tmp_path: Path) -> None:
    """All records are equal, and all batches one: nothing can be kept apart by a hash."""
    batches = [Sent(1, 0, 5, (Said(n),)) for n in range(3000)]
    path = write_log(tmp_path / "t-0", batches)
    rows, found = search([path], 10_000)
    assert proved_of(rows) == [(0, n, 5, 5) for n in range(1, 3000)]
    batches = [Sent(records=(Said(n),)) for n in range(3000)]
    rows, found = search([write_log(tmp_path / "t-1", batches)], 10_000, window_ms=0)
    assert rows == []
    rows, found = search([tmp_path / "t-1"], 10_000, window_ms=1)
    assert [row.first_base_offset for row in rows] == list(range(2999))
    assert found.spilled_bytes > 3000 * 40


def test_sequences_split_another_way(tmp_path: Path) -> None:
    """One chain of overlaps from end to end, longer than any chunk of the sweep."""
    first = [Sent(1, 0, 2 * n, (Said(),) * 2) for n in range(300)]
    again = [Sent(1, 0, 3 * n, (Said(),) * 3) for n in range(200)]
    batches = [*first, *again]
    rows, _ = search([write_log(tmp_path / "t-0", batches)], 0, kinds=frozenset({PROVED}))
    assert proved_of(rows) == proved(known(batches).batches)
    assert len(rows) == 200


def test_long_and_short_batches(tmp_path: Path) -> None:
    """What overlaps may lie many batches back; a short one in front hides no long one."""
    singles = [Sent(1, 0, n) for n in range(100)]
    long = Sent(1, 0, 0, (Said(),) * 100)
    nested = [Sent(1, 0, start, (Said(),) * count) for start, count in ((0, 3), (1, 9), (5, 1))]
    for number, batches in enumerate([[long, *singles], [*singles, long], nested]):
        rows, _ = search([write_log(tmp_path / f"t-{number}", batches)], 0)
        assert proved_of(rows) == proved(known(batches).batches)
        assert len(proved_of(rows)) == (100, 1, 2)[number]


@pytest.mark.parametrize(("end", "outcome"), [("commit", "committed"), ("abort", "aborted")])
def test_a_long_transaction(tmp_path: Path, end: str, outcome: str) -> None:
    """Its end is further away than the rows that are held."""
    written = [Sent(1, 0, n, (Said(n, b"%d" % n),), "txn") for n in range(50)]
    other = [Sent(2, 0, n, (Said(n, b"%d" % n),), "txn") for n in range(50)]
    batches = [*written, Sent(1, 0, kind=end), *other]
    path = write_log(tmp_path / "t-0", batches, cuts=[30])
    rows, _ = search([path], 0)
    assert len(rows) == 50
    assert {(row.first_outcome, row.repeat_outcome) for row in rows} == {(outcome, "open")}
    assert search([path], 0, is_committed_only=True)[0] == []


def test_limit_prints_less_and_counts_all(tmp_path: Path) -> None:
    batches = [*(Sent(1, 0, 0) for _ in range(4)), *(Sent() for _ in range(3))]
    path = write_log(tmp_path / "t-0", batches)
    for limit in range(9):
        space = SpillSpace(1 << 20, str(tmp_path))
        found = DuplicateSearch(discover([path]).selected, DuplicateOptions(), space)
        assert len(list(found.duplicates(limit))) == min(limit, 6)
        assert found.counts == {PROVED: 3, SUSPECTED: 3}


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    path = write_log(tmp_path / "t-0", [Sent(records=(Said(n),)) for n in range(100)])
    spill = tmp_path / "spill"
    spill.mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(AccessError) as caught:
            search([path], 0, str(spill))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.path == str(spill)
    assert "--spill-dir" in caught.value.next_step
    assert list(spill.iterdir()) == []


def test_nothing_stays_after_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_log(tmp_path / "t-0", [Sent(records=(Said(n),)) for n in range(100)])
    spill = tmp_path / "spill"
    spill.mkdir()

    def interrupted(*_: object) -> Iterator[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Sorter, "_merged", interrupted)
    with pytest.raises(KeyboardInterrupt):
        search([path], 0, str(spill))
    assert list(spill.iterdir()) == []
    assert any(sorter.spilled_bytes for sorter in CountingSpace.made)
    assert all(sorter._file is None for sorter in CountingSpace.made)


# --- parts ----------------------------------------------------------------------------------------


@given(
    values=st.lists(st.tuples(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1)), max_size=400),
    max_rows=st.integers(0, 90),
    step=st.integers(1, 50),
)
def test_sorter_sorts(values: list[tuple[int, int]], max_rows: int, step: int) -> None:
    dtype = np.dtype([("first", np.int8), ("second", np.int64)])
    rows = np.array(values, dtype)
    for keys in (("first", "second"), ("second",)):
        with Sorter(dtype, keys, max_rows=max_rows, directory=tempfile.gettempdir()) as sorter:
            for start in range(0, len(rows), step):
                sorter.add(rows[start : start + step])
            for _ in range(2):  # it may be read twice
                out = [row for chunk in sorter.chunks() for row in chunk.tolist()]
                assert out == sorted(values, key=lambda row: row[2 - len(keys) :])
            assert sorter.peak_rows_count <= max(max_rows, MIN_ROWS)


@pytest.mark.parametrize(
    ("plain", "longer"),
    [
        (b"\x06key", b"\x86\x00key"),
        (b"\x01", b"\x03"),  # null by -1 and by -2
        (b"\x00", b"\x80\x00"),
    ],
)
def test_other_forms_of_numbers_say_the_same(tmp_path: Path, plain: bytes, longer: bytes) -> None:
    """Kafka reads them, and no client writes them."""
    from storage.formats.record_batch import BatchHeader, encode_batch

    forms = [(a, b, c) for a in (plain, longer) for b in (plain, longer) for c in (plain, longer)]
    data = b""
    for offset, (key, value, header_value) in enumerate(forms):
        for place, headers in enumerate([b"\x00", b"\x02\x02h" + header_value]):
            fields = b"\0\0\0" + key + value + headers
            record = bytes([2 * len(fields)]) + fields
            header = BatchHeader(2 * offset + place, 0, 0, 2, 0, 0, 0, 5, 5, -1, -1, -1, 1)
            data += encode_batch(header, record)
    path = tmp_path / "t-0"
    path.mkdir()
    (path / f"{0:020d}.log").write_bytes(data)
    rows, found = search([path], min_bytes=0)
    assert not found.is_skipped
    assert [row.repeat_base_offset - row.first_base_offset for row in rows] == [2] * 14


@given(
    records=st.lists(said, min_size=1, max_size=9).map(tuple),
    record_id=ids,
    min_bytes=st.sampled_from([0, 1, 2, 3, 70, 71]),
)
def test_digests_of_tables_are_those_of_records(
    records: tuple[Said, ...], record_id: str | None, min_bytes: int
) -> None:
    digester = Digester(record_id and parse_record_id(record_id), min_bytes=min_bytes)
    with tempfile.TemporaryDirectory() as root:
        path = write_log(Path(root, "t-0"), [Sent(records=records)])
        with open_segment(path / f"{0:020d}.log") as segment:
            (batch,) = segment.scan()
            one_by_one = digester.of_records(list(segment.records(batch)))
            data = bytearray(segment.read_batch(batch))
    table = digester.of_table(decode_records(table_of([batch]), data, 0))
    for expected, found in zip(one_by_one, table, strict=True):
        assert expected.tolist() == found.tolist()
    sizes = [
        len(match) if isinstance(match, bytes) else content_size(each[1:])
        for each in records
        for match in [id_in(each[1:], record_id)]
        if match is not None
    ]
    assert len(table.rows) == sum(size >= min_bytes for size in sizes)


@pytest.mark.parametrize("text", ["value", "header:", "", "Key"])
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(UsageError):
        parse_record_id(text)


def test_what_a_copy_says_is_looked_at(tmp_path: Path) -> None:
    batches = [Sent(1, 0, 0, (Said(0, b"k", b"old"),)), Sent(1, 0, 0, (Said(0, b"k", b"new"),))]
    (row,), _ = search([write_log(tmp_path / "t-0", batches)])
    assert (row.kind, row.is_same_payload) == (PROVED, False)
    assert encoded(batches[0], 0) != encoded(batches[1], 0)
