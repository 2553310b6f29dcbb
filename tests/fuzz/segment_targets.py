"""Targets: whole files of a partition, through `storage.log.segment` and what is built on it."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import struct
import tempfile
import zlib
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.inspect.describe import describe_partition
from recovery.rebuild import verify_index
from storage.dirs import lookup
from storage.dirs.cluster_image import load_cluster_image
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.errors import AccessError, FormatError
from storage.files.positioned_file import SECTOR_BYTES
from storage.formats import offset_index, time_index
from storage.kernels import layouts, numpy_kernel, record_table
from storage.kernels.protocol import HeaderTable, Verdict, VerdictKind
from storage.limits import MAX_OFFSET
from storage.log.decoded_records import MarkerIndex
from storage.log.segment import DEFAULT_MAX_BATCH_BYTES, Segment, open_segment
from storage.producers.transactions import OpenTransactions

from .corpus import PARTITION_SUFFIXES, many_small_batches, unpack_partition
from .engine import Target
from .mutations import repair_log
from .promises import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.kernels.protocol import ScannedBatch
    from storage.kernels.scan import Scan

    from .corpus import Corpus

MAX_BATCH_BYTES = 2**20
# Where the default limit of a batch is in force, a bomb may take that much, once.
BOMB_BYTES = 3 * DEFAULT_MAX_BATCH_BYTES
MAX_RECORDS = 2000  # of one batch that are looked at
# Everything that is done in pieces gets seams in a small log.
SMALL_PIECES: tuple[tuple[Any, str, int], ...] = (
    (numpy_kernel, "WINDOW_BYTES", 600),
    (numpy_kernel, "CAREFUL_BYTES", 100),
    (record_table, "MIN_LANES", 2),
    (record_table, "MAX_SOURCE_BYTES", 300),
)


@cache
def _work_dir() -> tempfile.TemporaryDirectory[str]:
    """A directory of this process, removed at its end."""
    return tempfile.TemporaryDirectory(prefix="eoctl-fuzz-", dir=memory_dir())


def memory_dir() -> str | None:
    """Where files are fastest made and cut; None for the system's own place, or for $TMPDIR."""
    memory = "/dev/shm"
    return memory if "TMPDIR" not in os.environ and os.access(memory, os.W_OK) else None


def write_file(name: str, data: bytes) -> Path:
    """Put `data` into a file of the work directory."""
    path = Path(_work_dir().name, name)
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


def chance(data: bytes) -> Random:
    """Decisions that depend on the input alone."""
    return Random(zlib.crc32(data))


@contextlib.contextmanager
def pieces(*, small: bool) -> Iterator[None]:
    """Use small windows for a while."""
    old = [getattr(module, name) for module, name, _ in SMALL_PIECES]
    try:
        for module, name, value in SMALL_PIECES if small else ():
            setattr(module, name, value)
        yield
    finally:
        for (module, name, _), value in zip(SMALL_PIECES, old, strict=True):
            setattr(module, name, value)


@contextlib.contextmanager
def segment_of(data: bytes, **options: Any) -> Iterator[Segment]:
    """Open the bytes as a segment; its base offset depends on them."""
    rnd = chance(data)
    base_offset = rnd.choice((None, 0, 0, int.from_bytes(data[:8], "big") % 2**63))
    path = write_file("segment", data)
    with open_segment(path, base_offset=base_offset, **options) as segment:
        yield segment


# --- one segment ----------------------------------------------------------------------------------


def _scan(data: bytes) -> None:
    """A scan never raises; it accounts for every byte; its walk is the broker's."""
    is_active = chance(data).random() < 0.5
    with segment_of(data) as segment:
        plain, plain_rows = _scanned(segment, data, is_active=is_active, resume=False)
        assert [batch.pos for batch in plain_rows] == _broker_walk(data)
        full, full_rows = _scanned(segment, data, is_active=is_active, resume=True)
        assert full.valid_bytes == plain.valid_bytes
        if not plain.verdicts:
            assert full_rows == plain_rows
        hasty = segment.scan(verify_crc=False, is_active=is_active, resume=False)
        assert [batch.pos for batch in hasty] == _broker_walk(data)
        list(segment.scan(verify_crc=False, is_active=is_active))
        for batch in full_rows:
            _read_records(segment, batch)


def _scanned(segment: Segment, data: bytes, **options: Any) -> tuple[Scan, list[ScannedBatch]]:
    scan = segment.scan(**options)
    rows = list(scan)
    _accounts_for_all(rows, scan.verdicts, len(data))
    bad = {(verdict.start_pos, verdict.end_pos) for verdict in scan.verdicts}
    for row in rows:
        end_pos = row.pos + row.header.batch_bytes
        assert row.crc_ok or (row.pos, end_pos) in bad, f"no verdict of {row}"
    assert (scan.verdict.kind is VerdictKind.OK) == (not scan.verdicts)
    assert 0 <= scan.valid_bytes <= len(data)
    return scan, rows


def _accounts_for_all(rows: list[ScannedBatch], verdicts: list[Verdict], size: int) -> None:
    """Rows and verdicts are in order, and every byte is in one of them."""
    spans = [(row.pos, row.pos + row.header.batch_bytes) for row in rows]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    bad = [(verdict.start_pos, verdict.end_pos) for verdict in verdicts]
    assert bad == sorted(bad)
    at_pos = 0
    for start_pos, end_pos in sorted(spans + bad):
        assert start_pos <= at_pos, f"nothing is said of {at_pos}..{start_pos}"
        at_pos = max(at_pos, end_pos)
    assert at_pos == size, f"nothing is said of {at_pos}..{size}"


def _broker_walk(data: bytes) -> list[int]:
    """Batch starts as Kafka's FileLogInputStream finds them."""
    found = []
    pos = 0
    while pos < len(data) - 17:
        (length,) = struct.unpack_from(">i", data, pos + 8)
        if length < 14 or pos > len(data) - 12 - length:
            break
        if data[pos + 16] not in (0, 1) and data[pos + 16] < 0x80 and len(data) - pos < 61:
            break
        found.append(pos)
        pos += 12 + length
    return found


def _read_records(segment: Segment, batch: ScannedBatch) -> None:
    try:
        for place, one in enumerate(segment.records(batch, max_batch_bytes=MAX_BATCH_BYTES)):
            assert -(2**63) <= one.timestamp_ms < 2**63
            assert -(2**31) <= one.sequence < 2**31
            if place > MAX_RECORDS:
                break
    except FormatError as error:
        end_pos = batch.pos + batch.header.batch_bytes
        is_inside = batch.pos <= error.pos <= end_pos
        require(error.path == segment.path and is_inside, f"{error} is not in its batch")


def _scan_unreadable(data: bytes) -> None:
    """Bad sectors are verdicts; what lies around them is read."""
    rnd = chance(data)
    sectors = len(data) // SECTOR_BYTES + 1
    bad = {rnd.randrange(sectors) for _ in range(rnd.choice((1, 1, 2, 3)))}
    code = rnd.choice((errno.EIO, errno.EIO, errno.ESTALE))
    shrunk_bytes = rnd.randrange(len(data) + 1) if rnd.random() < 0.3 else len(data)

    def pread(fd: int, view: memoryview, pos: int) -> int:
        first, last = pos // SECTOR_BYTES, (pos + len(view) - 1) // SECTOR_BYTES
        if not bad.isdisjoint(range(first, last + 1)):
            raise OSError(code, os.strerror(code))
        count = max(min(len(view), shrunk_bytes - pos), 0)
        return os.preadv(fd, [view[:count]], pos) if count else 0

    with segment_of(data, pread=pread) as segment:
        every: tuple[dict[str, Any], ...]
        every = ({"resume": False}, {"resume": True}, {"verify_crc": False})
        for options in every:
            scan = segment.scan(**options)
            rows = list(scan)
            assert all(verdict.start_pos < verdict.end_pos for verdict in scan.verdicts)
            for batch in rows:
                with contextlib.suppress(AccessError):
                    _read_records(segment, batch)


def _tables(data: bytes) -> None:
    """The bulk kernel finds the same rows and says the same of them as the plain one."""
    rnd = chance(data)
    options: dict[str, Any] = {
        "is_active": rnd.random() < 0.5,
        "verify_crc": rnd.random() < 0.8,
        "resume": rnd.random() < 0.6,
    }
    with segment_of(data) as segment, pieces(small=rnd.random() < 0.7):
        plain = segment.scan(**options)
        expected = numpy_kernel.table_of(plain)
        found = segment.scan_tables(**options)
        tables = list(found)
        table = HeaderTable._make(
            np.concatenate(columns) for columns in zip(layouts.empty_table(), *tables, strict=True)
        )
        for name, one, other in zip(HeaderTable._fields, table, expected, strict=True):
            found_column, expected_column = np.asarray(one), np.asarray(other)
            assert found_column.dtype == expected_column.dtype, name
            assert np.array_equal(found_column, expected_column), f"{name}: {one}, not {other}"
        assert found.verdicts == plain.verdicts
        assert found.suspicions == plain.suspicions
        assert found.valid_bytes == plain.valid_bytes
        assert found.resynced == plain.resynced


def _transactions(data: bytes) -> None:
    """Open transactions by batch and by table are the same; markers of any bytes are read."""
    rnd = chance(data)
    limits: dict[str, Any] = {
        "log_start_offset": rnd.choice((0, 0, 10)),
        "high_watermark": rnd.choice((None, 0, 20, 10_000)),
    }
    by_batch, by_table = OpenTransactions(**limits), OpenTransactions(**limits)
    with segment_of(data) as segment:
        rows = list(segment.scan())
        if any(batch.header.last_offset > MAX_OFFSET for batch in rows):
            return  # a corrupt one: its place in a table is a wrapped number
        for batch in rows:
            if batch.crc_ok:
                by_batch.add_batch(batch.header)
        for table in segment.scan_tables():
            by_table.add_table(table)
        assert list(by_table) == list(by_batch)
        assert by_table.first_unstable_offset == by_batch.first_unstable_offset
        markers = MarkerIndex()
        markers.read_segment(segment, on_error=lambda error: require(bool(str(error)), ""))
        for batch in rows:
            markers.outcome(batch.header)


# --- a segment and its indexes --------------------------------------------------------------------


def _lookup(data: bytes) -> None:
    """Any index leads to what is found without one, as long as the log is sound."""
    log, index, times, *_ = unpack_partition(data)
    rnd = chance(data)
    entries, time_entries = offset_index.parse_entries(index), time_index.parse_entries(times)
    base_offset = int.from_bytes(log[:8], "big") % 2**63
    path = write_file("segment", log)
    with open_segment(path, base_offset=base_offset) as segment:
        scan = segment.scan()
        rows = list(scan)
        is_sound = not scan.verdicts and not scan.suspicions
        offsets = [base_offset, *(rnd.choice(rows).header.last_offset for _ in rows[:2])]
        offsets += [base_offset + each.relative_offset for each in entries[:2]]
        for offset in offsets:
            found = lookup.find_batch(segment, entries, offset, is_active=True)
            plain = lookup.find_batch(segment, (), offset, is_active=True)
            if is_sound and all(row.header.magic == 2 for row in rows):
                assert (found and found.batch) == (plain and plain.batch), offset
        end = lookup.find_end(segment, entries, is_active=True)
        if is_sound:
            assert end.last == (rows[-1] if rows else None)
        faults: list[Exception] = []
        for timestamp_ms in [-1, *(each.timestamp_ms for each in time_entries[:2]), 2**62]:
            lookup.find_time(
                segment,
                time_entries,
                entries,
                timestamp_ms,
                min_offset=0,
                is_active=True,
                on_error=faults.append,
            )
        for _ in verify_index.check_offset_index(entries, segment, max_message_bytes=5 * 2**20):
            pass
        if entries:
            verify_index.check_last_index_offset(entries[-1], segment)
        for _ in verify_index.check_time_index(time_entries, segment):
            pass


def _partition(data: bytes) -> None:
    """A directory of any files can be described, searched and read."""
    files = unpack_partition(data)
    for suffix, content in zip(PARTITION_SUFFIXES, files, strict=True):
        path = write_file(f"topic-0/{0:020}{suffix}", content)
    (selected,) = discover([path.parent]).selected
    partition = Partition.of(selected)
    description = describe_partition(partition)
    assert len(description.segments) == 1
    end = partition.log_end()
    assert end is not None
    assert 0 <= end.valid_bytes <= len(files[0])
    partition.aborted_transactions(partition.segments[0])
    for offset in (0, 1, end.offset - 1, end.offset):
        partition.find_offset(offset)
    partition.find_timestamp(0)
    partition.find_timestamp(1_700_000_000_000)
    for placed in partition.read(1):
        _read_records(placed.segment, placed.batch)


def _cluster_image(data: bytes) -> None:
    """Any log of metadata gives an image."""
    path = write_file("__cluster_metadata-0/00000000000000000000.log", data)
    (selected,) = discover([path.parent]).selected
    image = load_cluster_image(Partition.of(selected))
    for name, topic in image.topics.items():
        for number in topic.partitions:
            image.replication_factor(name, number)


def log_seeds(corpus: Corpus) -> list[bytes]:
    return [*corpus.logs(), *(many_small_batches(corpus.batches, count) for count in (3, 30, 60))]


TARGETS = [
    Target("scan", _scan, log_seeds, 500, repair_log),
    Target("scan_unreadable", _scan_unreadable, log_seeds, 300, repair_log),
    Target("tables", _tables, log_seeds, 400, repair_log),
    Target("transactions", _transactions, log_seeds, 300, repair_log, allowed_bytes=BOMB_BYTES),
    Target(
        "lookup",
        _lookup,
        lambda corpus: corpus.partitions(),
        200,
        repair_log,
        allowed_bytes=BOMB_BYTES,
    ),
    Target(
        "partition",
        _partition,
        lambda corpus: corpus.partitions(),
        150,
        repair_log,
        allowed_bytes=BOMB_BYTES,
    ),
    Target(
        "cluster_image",
        _cluster_image,
        lambda corpus: corpus.logs(topic="__cluster_metadata"),
        200,
        repair_log,
        allowed_bytes=BOMB_BYTES,
    ),
]
