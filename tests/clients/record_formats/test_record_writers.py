"""Records as text, JSON Lines and msgpack: many at once as one by one, and nothing is lost."""

from __future__ import annotations

import io
import json
from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.clients.log.consumed import Records
from eoctl.clients.log.consumer import LogReader
from eoctl.clients.log.table_records import TableRecords
from eoctl.clients.record_formats import record_writers
from eoctl.clients.record_formats.bulk_record_writers import paint_json, paint_text
from eoctl.clients.record_formats.inputs import BytesAs, InputFormat, read_records
from eoctl.clients.record_formats.record_text import TextOptions
from eoctl.clients.record_formats.record_writers import (
    encode_json,
    encode_msgpack,
    encode_text,
    record_encoder,
)
from eoctl.output import OutputFormat
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.formats.record import Record, RecordHeader
from storage.value_pieces import LARGE_BYTES
from tests.batches import encoded_batch
from tests.bulk_kernels import BULK_KERNELS, demanded

if TYPE_CHECKING:
    from pathlib import Path

texts = st.sampled_from(
    [b"", b"a", b"plain", b'"', b"\\", b'say "hi" \\ \\"', b"\n", b"\x00\x1f", "ключ 値".encode(),
     "\u2028é\x7f".encode(), b"\xff", b"\xd0", b"\xba", b'"\xff', '"é"'.encode(), b"x" * 300]
)  # fmt: skip
strings = st.one_of(st.none(), texts, st.binary(max_size=9))
names = st.one_of(texts, st.binary(max_size=3))
headers = st.one_of(
    st.just(()), st.lists(st.builds(RecordHeader, key=names, value=strings), max_size=3).map(tuple)
)
records = st.lists(
    st.builds(Record, st.just(0), st.integers(-5, 300), st.just(0), strings, strings, headers),
    min_size=1,
    max_size=30,
)
LINE = TextOptions(
    partition=7, print_timestamp=True, print_partition=True, print_offset=True,
    print_headers=True, print_key=True, key_separator=b" | ",
)  # fmt: skip


def in_bulk(
    directory: Path, content: list[Record], monkeypatch: pytest.MonkeyPatch
) -> list[TableRecords]:
    """The records as a window of batches gives them."""
    monkeypatch.setattr("eoctl.clients.log.log_walk.BULK_MIN_BYTES", 0)
    directory.mkdir(exist_ok=True)
    numbered = [each._replace(offset_delta=n) for n, each in enumerate(content)]
    half = len(numbered) // 2
    data = b""
    for start, part in ((0, numbered[:half]), (half, numbered[half:])):
        if part:
            moved = [each._replace(offset_delta=each.offset_delta - start) for each in part]
            kind = {"attributes": 8 if start else 0, "max_timestamp_ms": 99}
            data += encoded_batch(start, moved, **kind)
    (directory / f"{0:020d}.log").write_bytes(data)
    found = list(LogReader(Partition.of(select_partition(directory)), 0).read())
    assert all(isinstance(each, TableRecords) for each in found)
    assert sum(each.row_count for each in found) == len(content)
    return found


@given(content=records)
def test_many_at_once_are_as_one_by_one(
    content: list[Record], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        for each in in_bulk(tmp_path_factory.mktemp("log") / "t-0", content, monkeypatch):
            lists = each.lists()
            for kernel, bytes_as in product(BULK_KERNELS, BytesAs):
                with demanded(kernel):
                    painted = bytes(paint_json(each, bytes_as))
                assert painted == encode_json(lists, bytes_as)
            for options in (TextOptions(), LINE):
                assert bytes(paint_text(each, options)) == encode_text(lists, options)
            last = lists.row_count - 1
            for start, end in ((0, 3), (last, 99)):
                part, expected = each.part(start, end).lists(), lists.part(start, end)
                assert encode_msgpack(part) == encode_msgpack(expected)
                assert part.next_offset == expected.next_offset


@given(content=records)
def test_a_producer_reads_back_what_was_printed(content: list[Record]) -> None:
    written = Records(
        "CreateTime",
        list(range(len(content))),
        [max(each.timestamp_delta_ms, 0) for each in content],
        [each.key for each in content],
        [each.value for each in content],
        [each.headers for each in content],
        len(content),
    )
    expected = [(each.key, each.value, each.headers) for each in content]
    for bytes_as in BytesAs:
        data = encode_json(written, bytes_as)
        found = read_records(io.BytesIO(data), "x", InputFormat.JSONL, bytes_as=bytes_as)
        again = list(found)
        assert [(each.key, each.value, each.headers) for each in again] == expected
        assert [each.timestamp_ms for each in again] == written.timestamps_ms
    packed = read_records(io.BytesIO(encode_msgpack(written)), "x", InputFormat.MSGPACK)
    assert [(each.key, each.value, each.headers) for each in packed] == expected


ONE = Records("LogAppendTime", [5], [17], [None], [b"v"], [[(b"h", None), (b"\xff", b"\xfe")]], 6)


LARGE = (
    b"\0\n" * (LARGE_BYTES // 2 + 1),
    "\N{GRINNING FACE}z".encode() * (LARGE_BYTES // 4),
    b"text" * (LARGE_BYTES // 2) + b"\xff",
    None,
)


@pytest.mark.parametrize("output", [OutputFormat.TEXT, OutputFormat.JSONL, OutputFormat.MSGPACK])
@pytest.mark.parametrize("bytes_as", BytesAs)
def test_a_large_record_in_pieces_is_the_same(output: OutputFormat, bytes_as: BytesAs) -> None:
    text = TextOptions(print_key=True, print_offset=True, print_headers=True, print_timestamp=True)
    headers = [(b"h", None), (b"\xff", b"\xfe")]
    for kind, large in product(("CreateTime", None), LARGE):
        for key, value in ((large, b"v"), (None, large), (large, large)):
            made = Records(kind, [2**40, 7], [0xC0C0, 1], [key, b"k"], [value, None], None, 9)
            for each in (made, made._replace(headers=[headers, ()])):
                whole = encode_text(each, text)
                if output is not OutputFormat.TEXT:
                    is_json = output is OutputFormat.JSONL
                    whole = encode_json(each, bytes_as) if is_json else encode_msgpack(each)
                pieces = [bytes(part) for part in record_encoder(output, bytes_as, text)(each)]
                assert b"".join(pieces) == whole
                assert large is None or len(pieces) > 4


def test_json_of_odd_bytes() -> None:
    row = json.loads(encode_json(ONE, BytesAs.TEXT))
    assert row["headers"] == [["h", None], [{"base64": "/w=="}, {"base64": "/g=="}]]
    row = json.loads(encode_json(ONE, BytesAs.BASE64))
    assert (row["key"], row["value"]) == (None, "dg==")
    assert row["headers"] == [["h", None], [{"base64": "/w=="}, "/g=="]]


def test_text_of_what_is_not_there() -> None:
    line = encode_text(ONE, LINE)
    assert line == b"LogAppendTime:17 | Partition:7 | Offset:5 | h:null,\xff:\xfe | null | v\n"
    bare = ONE._replace(timestamp_type=None, headers=None, values=[None])
    assert encode_text(bare, LINE) == (
        b"NO_TIMESTAMP | Partition:7 | Offset:5 | NO_HEADERS | null | null\n"
    )
    assert json.loads(encode_json(bare, BytesAs.TEXT))["timestamp_type"] is None


def test_few_records_need_no_painter(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = record_encoder(OutputFormat.TEXT, BytesAs.TEXT, TextOptions())
    assert [*encode(ONE)] == [b"v\n"]
    assert record_writers.BULK_MIN_ROWS > 1
