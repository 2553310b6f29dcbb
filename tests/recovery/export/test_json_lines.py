"""Exported records as JSON Lines: by either kernel the same bytes, and what JSON says of them."""

from __future__ import annotations

import json
from base64 import b64decode
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.export import piece
from recovery.records.columns import TYPES, record_schema
from recovery.records.read_options import RECORD_COLUMNS
from tests.bulk_kernels import BULK_KERNELS, demanded
from tests.drawn import examples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DATA = st.one_of(
    st.binary(max_size=12),
    st.text(max_size=12).map(str.encode),
    st.sampled_from([b"", b'"\\\n\r\t\x08\x0c\x00\x1f\x7f', b"\xc3\xa9", b"\xed\xa0\x80"]),
)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_integer(kind):
        return st.integers(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_binary(kind):
        return st.none() | DATA
    if pa.types.is_list(kind):
        header = st.fixed_dictionaries({"key": DATA, "value": st.none() | DATA})
        return st.lists(header, max_size=3)
    return st.none() | st.sampled_from(["gzip", 'a "topic"', "/tmp/ü/t-0"])


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Records of some columns; a slice of more, as the arrays of a reader may be."""
    names = draw(st.lists(st.sampled_from(RECORD_COLUMNS), min_size=1, unique=True))
    count = draw(st.integers(0, 7))
    arrays = [
        pa.array(
            draw(st.lists(values_of(TYPES[name]), min_size=count, max_size=count)), TYPES[name]
        )
        for name in names
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=record_schema(names))
    start = draw(st.integers(0, count))
    return batch.slice(start, draw(st.integers(0, count)))


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(piece, "CHUNK_ROWS", 3)
        yield


@given(batch=batches(), is_text=st.booleans())
@settings(max_examples=examples(150))
def test_lines_are_the_same_and_json(batch: pa.RecordBatch, is_text: bool) -> None:
    found = []
    for kernel in BULK_KERNELS:
        with demanded(kernel):
            target = BytesIO()
            piece.JsonLines(target, batch.schema, is_text=is_text).write(batch)
        found.append(target.getvalue())
    assert found == found[:1] * len(found)
    rows = [json.loads(line) for line in found[0].splitlines()]
    assert [_row(each) for each in rows] == batch.to_pylist()


def _row(line: dict[str, Any]) -> dict[str, Any]:
    """A line with bytes again."""
    return dict(_field(name, value) for name, value in line.items())


def _field(name: str, value: Any) -> tuple[str, Any]:
    plain = name.removesuffix("_base64")
    if plain not in {"key", "value"}:
        return name, [_row(each) for each in value] if name == "headers" else value
    if value is None or plain != name:
        return plain, None if value is None else b64decode(value)
    return name, value.encode()


def test_a_line_has_its_columns_in_their_order() -> None:
    names: Sequence[str] = ("offset", "key", "value", "headers", "is_transactional", "codec")
    headers = [{"key": b"h", "value": b"\xff"}, {"key": b"", "value": None}]
    columns = [[7], [b"k\n"], [b"\xff"], [headers], [True], ["lz4"]]
    arrays = [pa.array(each, TYPES[name]) for name, each in zip(names, columns, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=record_schema(names))
    for kernel in BULK_KERNELS:
        with demanded(kernel):
            target = BytesIO()
            piece.JsonLines(target, batch.schema, is_text=True).write(batch)
        assert target.getvalue() == (
            b'{"offset":7,"key":"k\\n","value_base64":"/w==","headers":[{"key":"h","value_base64":'
            b'"/w=="},{"key":"","value":null}],"is_transactional":true,"codec":"lz4"}\n'
        )
