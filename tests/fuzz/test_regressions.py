"""What fuzzing has found, each as the smallest input that showed it."""

from __future__ import annotations

import io
import json
import struct
from typing import TYPE_CHECKING, Any

import crc32c
import msgpack
import pytest

from eoctl.clock import parse_time_ms
from eoctl.dump.run import dump_paths
from eoctl.dump.selection import DumpOptions
from eoctl.output import OutputFormat
from recovery.rebuild.verify_index import check_time_index
from storage.dirs.lookup import find_time
from storage.errors import CorruptError, FormatError, UsageError
from storage.formats.time_index import TimeIndexEntry
from storage.log.segment import Segment, open_segment

from .command_targets import captured

if TYPE_CHECKING:
    from pathlib import Path

    from storage.errors import AccessError
    from storage.kernels.scan import Scan


def batch(base_offset: int, body: bytes = b"", *, leader_epoch: int = 0, count: int = 0) -> bytes:
    """A v2 batch with a right checksum; its greatest timestamp is 10 times its offset."""
    checked = struct.pack(
        ">hiqqqhii", 0, max(count - 1, 0), 0, 10 * base_offset, -1, -1, -1, count
    ) + body  # fmt: skip
    length = 9 + len(checked)
    crc = crc32c.crc32c(checked)
    return struct.pack(">qiibI", base_offset, length, leader_epoch, 2, crc) + checked


def dumped(path: Path, form: OutputFormat) -> bytes:
    """What dump-segment writes to stdout."""
    with captured() as (out, err):
        assert dump_paths([str(path)], DumpOptions(output=form)) in (0, 1), err.getvalue()
    return out.getvalue()


def test_tables_suspect_a_leader_epoch_below_minus_one(tmp_path: Path) -> None:
    """Only -1 is unknown; the bulk kernel took every negative one for it."""
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(batch(0) + batch(1, leader_epoch=-2) + batch(2))
    with open_segment(path) as segment:
        plain, tables = segment.scan(), segment.scan_tables()
        assert len(list(plain)) == sum(table.row_count for table in tables) == 3
        assert [each.check_id for each in plain.suspicions] == ["BAT-14"]
        assert tables.suspicions == plain.suspicions


@pytest.mark.parametrize("text", ["--1", "-1-", "9" * 4301, "-", ""])
def test_what_is_almost_a_number_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="not a time"):
        parse_time_ms(text)


@pytest.mark.parametrize("data", [b"", b"\0", bytes(32)])
def test_a_snapshot_without_a_header_is_closed_by_a_verdict(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / f"{7:020}.snapshot"
    path.write_bytes(data)
    rows = [json.loads(line) for line in dumped(path, OutputFormat.JSONL).splitlines()]
    assert [row["kind"] for row in rows] == ["error", "verdict"]
    assert rows[-1]["check_id"] == "SNP-1"


@pytest.mark.parametrize("form", [OutputFormat.TEXT, OutputFormat.JSONL, OutputFormat.MSGPACK])
def test_half_a_character_in_meta_properties_is_printed(tmp_path: Path, form: OutputFormat) -> None:
    """An escape can name a surrogate, which has no UTF-8."""
    path = tmp_path / "meta.properties"
    path.write_bytes(b"version=0\ncluster.id=a\\ud800b\nk\\udfff=\\udc80\n")
    out = dumped(path, form)
    if form is OutputFormat.TEXT:
        assert b"a\xef\xbf\xbdb" in out
    elif form is OutputFormat.JSONL:
        row = json.loads(out.splitlines()[0].decode("utf-8"))
        assert (row["cluster_id"], row["k\ufffd"]) == ("a\ufffdb", "\ufffd")
    else:
        unpacker = msgpack.Unpacker(io.BytesIO(out), unicode_errors="surrogateescape")
        row = next(iter(unpacker))
        assert row["cluster_id"] == "a\ufffdb"


def test_a_time_index_out_of_order_takes_one_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step back started at the first batch again: hours for one bad sector of a large one."""
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"".join(batch(offset) for offset in range(50)))
    entries = [TimeIndexEntry(10 * offset, offset) for offset in range(49, -1, -1)]
    scans_count = 0
    scan = Segment.scan

    def counted_scan(self: Segment, **options: Any) -> Scan:
        nonlocal scans_count
        scans_count += 1
        return scan(self, **options)

    monkeypatch.setattr(Segment, "scan", counted_scan)
    with open_segment(path) as segment:
        checked = list(check_time_index(entries, segment))
    assert scans_count == 1
    assert [each.offset for each in checked] == [each.relative_offset for each in entries]
    assert all(each.log_offset == each.offset and each.error is None for each in checked)


def test_kept_errors_keep_no_batches(tmp_path: Path) -> None:
    """The traceback of an error holds the buffers of every frame that it went through."""
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"".join(batch(offset, b"\xff" * 1000, count=1) for offset in range(5)))
    kept: list[FormatError | AccessError] = []
    with open_segment(path) as segment:
        found = find_time(
            segment, [], [], 0, min_offset=0, is_active=True, on_error=kept.append
        )  # fmt: skip
    assert found is None
    assert len(kept) == 5
    for error in kept:
        assert isinstance(error, CorruptError)
        assert (error.__traceback__, error.__cause__, error.__context__) == (None, None, None)
