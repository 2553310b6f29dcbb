"""What a producer is fed with: the records, their places, and the words for what is malformed."""

from __future__ import annotations

import io
import json
import re
import tracemalloc
from base64 import b64encode
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.clients.record_formats import inputs
from eoctl.clients.record_formats.inputs import (
    BytesAs,
    InputFormat,
    InputRecord,
    read_line_blocks,
    read_records,
)
from storage.errors import UsageError
from storage.formats.record import RecordHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LINES, JSONL, MSGPACK = InputFormat.LINES, InputFormat.JSONL, InputFormat.MSGPACK


class Trickle(io.RawIOBase):
    """Gives at most `sizes` bytes at a time, in turn, as a pipe does."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self.data = data
        self.sizes = sizes
        self.pos = self.calls_count = 0

    def read1(self, size: int) -> bytes:
        size = min(size, self.sizes[self.calls_count % len(self.sizes)])
        self.calls_count += 1
        self.pos += size
        return self.data[self.pos - size : self.pos]


def records_of(data: bytes, kind: InputFormat, **options: Any) -> list[InputRecord]:
    return list(read_records(io.BytesIO(data), "input", kind, **options))


def refusal(data: bytes, kind: InputFormat, **options: Any) -> str:
    with pytest.raises(UsageError) as caught:
        records_of(data, kind, **options)
    return caught.value.message


def record(
    key: bytes | None,
    value: bytes | None,
    end_pos: int,
    headers: Any = (),
    ms: int | None = None,
    partition: int | None = None,
) -> InputRecord:
    named = tuple(RecordHeader(*each) for each in headers)
    return InputRecord(key, value, named, ms, partition, end_pos)


# --- lines ----------------------------------------------------------------------------------------

TEXTS = st.lists(st.sampled_from([b"\n", b"\r\n", b"a", b"b:", b":", b"long line" * 5])).map(
    b"".join
)
SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=5)


def lines_slowly(data: bytes) -> Iterator[tuple[bytes, int]]:
    """One byte after the other."""
    line = b""
    for pos in range(len(data)):
        if data[pos] == ord("\n"):
            yield line, pos + 1
            line = b""
        else:
            line += data[pos : pos + 1]
    if line:
        yield line, len(data)


@given(TEXTS, SIZES, st.integers(0, 1000), st.integers(1, 20))
def test_blocks_and_records_are_the_lines(
    data: bytes, sizes: list[int], start_pos: int, block_bytes: int
) -> None:
    reported: list[int] = []
    blocks = list(
        read_line_blocks(
            Trickle(data, sizes), "input", on_bytes=reported.append, start_pos=start_pos,
            block_bytes=block_bytes,
        )
    )  # fmt: skip
    wanted = [(line, start_pos + end_pos) for line, end_pos in lines_slowly(data)]
    assert [line for lines, _ in blocks for line in lines] == [line for line, _ in wanted]
    assert sum(reported) == len(data)
    done = 0
    for lines, end_pos in blocks:
        done += len(lines)
        assert end_pos == wanted[done - 1][1]
    found = list(read_records(Trickle(data, sizes), "input", LINES, start_pos=start_pos))
    assert found == [record(None, line, end_pos) for line, end_pos in wanted]
    assert {type(each) for each in found} <= {InputRecord}


@given(TEXTS, SIZES)
def test_lines_with_keys(data: bytes, sizes: list[int]) -> None:
    wanted, missing = [], None
    for number, (line, end_pos) in enumerate(lines_slowly(data), 1):
        key, separator, value = line.partition(b":")
        if not separator:
            missing = f"input: line {number} has no ':' after a key"
            break
        wanted.append(record(key, value, end_pos))
    records = read_records(Trickle(data, sizes), "input", LINES, key_separator=b":")
    assert [next(records) for _ in wanted] == wanted
    if missing is None:
        assert next(records, None) is None
    else:
        with pytest.raises(UsageError, match=re.escape(missing)):
            next(records)


def test_a_line_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_RECORD_BYTES", 10)
    for sizes in ([1], [3], [10], [100]):
        whole = list(read_line_blocks(Trickle(b"0123456789\n" * 3 + b"0123456789", sizes), "input"))
        assert [line for lines, _ in whole for line in lines] == [b"0123456789"] * 4
        for end in (b"", b"\n"):
            data = Trickle(b"a\n0123456789x" + end, sizes)
            records = read_records(data, "input", LINES, start_pos=7)
            assert next(records).value == b"a"
            with pytest.raises(UsageError, match="input: line 2 after byte 7 is longer than 10 by"):
                next(records)


def test_options_that_contradict() -> None:
    assert "takes no record without a key" in refusal(b"", LINES, needs_keys=True)
    assert records_of(b"a:b", LINES, needs_keys=True, key_separator=b":") == [record(b"a", b"b", 3)]
    assert "a key separator is for lines" in refusal(b"", JSONL, key_separator=b":")


# --- objects --------------------------------------------------------------------------------------


def both(obj: Any) -> list[tuple[InputFormat, bytes]]:
    return [(JSONL, json.dumps(obj).encode()), (MSGPACK, msgpack.packb(obj))]


HEADERS = ((b"a", b"1"), (b"n", None), (b"a", b""))


@pytest.mark.parametrize(
    ("obj", "key", "value", "headers", "ms"),
    [
        ({}, None, None, (), None),
        ({"key": None, "value": "", "headers": None, "timestamp_ms": None}, None, b"", (), None),
        ({"key": "ключ", "value": "\n\0"}, "ключ".encode(), b"\n\0", (), None),
        ({"key": {"base64": "/w=="}, "value": {"base64": ""}}, b"\xff", b"", (), None),
        ({"key_base64": "/w==", "value_base64": None}, b"\xff", None, (), None),
        ({"headers": [["a", "1"], ["n", None], ["a", ""]]}, None, None, HEADERS, None),
        ({"headers": [{"key": "a", "value": "1"}, {"key": "n"}, {"key_base64": "YQ==",
          "value_base64": ""}]}, None, None, HEADERS, None),
        ({"headers": [["a", {"base64": "MQ=="}], {"key": "n", "value": None},
          [{"base64": "YQ=="}, ""]]}, None, None, HEADERS, None),
        ({"headers": {"a": "1", "n": None}}, None, None, HEADERS[:2], None),
        ({"headers": {"base64": "1"}}, None, None, ((b"base64", b"1"),), None),
        ({"headers": [], "timestamp_ms": 0}, None, None, (), 0),
        ({"headers": {}, "timestamp_ms": 2**63 - 1}, None, None, (), 2**63 - 1),
        ({"timestamp_ms": -1}, None, None, (), None),
        ({"offset": 4, "topic": "t", "partition": None, "timestamp_type": "CreateTime", "kind": "x",
          "outcome": "aborted", "codec": None, "value": "v"}, None, b"v", (), None),
    ],
)  # fmt: skip
def test_objects(obj: Any, key: Any, value: Any, headers: Any, ms: int | None) -> None:
    for kind, data in both(obj):
        assert records_of(data, kind) == [record(key, value, len(data), headers, ms)], format


def test_a_partition_is_one_of_those_written_to() -> None:
    for kind, data in both({"value": "v", "partition": 2}):
        for partitions in (None, [1, 2]):
            found = records_of(data, kind, partitions=partitions)
            assert found == [record(None, b"v", len(data), partition=2)]
        assert "partition: expected 0, 1, found 2" in refusal(data, kind, partitions=[0, 1])
    for kind, data in both({"value": "v", "partition": True}):
        assert "partition: expected an integer, found a boolean" in refusal(data, kind)


def test_strings_that_are_base64() -> None:
    obj = {"key": "aw==", "value": "", "headers": [["name", "dg=="], ["n", None]]}
    for kind, data in both(obj):
        found = records_of(data, kind, bytes_as=BytesAs.BASE64)
        assert found == [record(b"k", b"", len(data), ((b"name", b"v"), (b"n", None)))]


def test_bytes_in_msgpack_stand_for_themselves() -> None:
    data = msgpack.packb({"key": b"\xff", "value": b"v", "headers": {b"\xfe": b"\xfd"}})
    for bytes_as in BytesAs:
        found = records_of(data, MSGPACK, bytes_as=bytes_as)
        assert found == [record(b"\xff", b"v", len(data), ((b"\xfe", b"\xfd"),))]


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        ([1], "expected an object, found a list"),
        (None, "expected an object, found null"),
        (
            {"vaule": "x"},
            "unknown field 'vaule', expected headers, key, partition, timestamp_ms, value",
        ),
        ({"x" * 100: 1}, f"unknown field '{'x' * 60}'..., expected"),
        ({"\x1b[31m": 1}, r"unknown field '\x1b[31m', expected"),
        ({"key": 1}, 'key: expected a string, null or {"base64": "..."}, found an integer'),
        ({"value": True}, "value: expected a string"),
        ({"value": 1.5}, "found a number"),
        ({"value": ["a"]}, "found a list"),
        ({"value": {"base64": 1}}, "found an object"),
        ({"value": {"base64": "MA==", "more": 1}}, "found an object"),
        ({"value": {"base64": "MA="}}, "value: expected base64, found 'MA='"),
        ({"value_base64": "M A=="}, "value: expected base64, found 'M A=='"),
        ({"value_base64": "é"}, "value: expected base64, found 'é'"),
        ({"value_base64": 1}, "value: expected a string"),
        ({"value_base64": "", "value": ""}, "both value and value_base64 are given"),
        ({"headers": "a"}, "headers: expected a list or an object, found a string"),
        ({"headers": 0}, "headers: expected a list or an object, found an integer"),
        ({"headers": ["a"]}, "headers: expected [name, value] or"),
        ({"headers": [["a"]]}, "found a list that is neither"),
        ({"headers": [{"value": "a"}]}, "found an object that is neither"),
        ({"headers": [{"key": "a", "value": "1", "other": 2}]}, "unknown field 'other'"),
        ({"headers": [[None, "a"]]}, "name of a header: expected a string, found null"),
        ({"headers": [[1, "a"]]}, "name of a header: expected a string"),
        ({"headers": [["a", 1]]}, "value of a header: expected a string"),
        ({"timestamp_ms": "1"}, "timestamp_ms: expected an integer, found a string"),
        ({"timestamp_ms": True}, "timestamp_ms: expected an integer, found a boolean"),
        ({"timestamp_ms": 1.0}, "timestamp_ms: expected an integer, found a number"),
        ({"timestamp_ms": 2**63}, "timestamp_ms: expected 0 to 2^63 - 1"),
        ({"timestamp_ms": -2}, "timestamp_ms: expected 0 to 2^63 - 1"),
    ],
)
def test_objects_that_are_no_records(obj: Any, words: str) -> None:
    """The good record before it is given first, and the place is named."""
    for kind, good, places in (
        (JSONL, b"{}\n", ("input: line 2: ", "input: line 2 after byte 9: ")),
        (MSGPACK, b"\x80", ("input: record at byte 1: ", "input: record at byte 10: ")),
    ):
        data = good + dict(both(obj))[kind]
        for start_pos, place in zip((0, 9), places, strict=True):
            records = read_records(io.BytesIO(data), "input", kind, start_pos=start_pos)
            assert next(records) == record(None, None, start_pos + len(good))
            with pytest.raises(UsageError) as caught:
                next(records)
            assert caught.value.message.startswith(place)
            assert words in caught.value.message


def test_a_compacted_topic_needs_keys() -> None:
    for kind, data in both({"value": "v"}):
        assert refusal(data, kind, needs_keys=True).endswith("takes no record without a key")
    for kind, data in both({"key": ""}):
        assert records_of(data, kind, needs_keys=True)[0].key == b""


# --- JSON Lines -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "expected JSON: "),
        (b"{} {}", "more than one value, from character 3 on"),
        (b'{"value": tru}', "expected JSON: Expecting value at character 11"),
        (b"\xef\xbb\xbf{}", "expected JSON: "),
        (b'{"value": "\xff"}', "expected UTF-8, found byte 0xff at byte 12"),
        (b'{"value": "a\tb"}', "expected JSON: Invalid control character"),
        (b'{"value": "\\ud800"}', "value: half of a surrogate pair is no character"),
        (b'{"timestamp_ms": NaN}', "NaN is no value of JSON"),
        (b'{"timestamp_ms": -Infinity}', "-Infinity is no value of JSON"),
        (b'{"timestamp_ms": ' + b"9" * 5000 + b"}", "a number has too many digits"),
        (b'{"timestamp_ms": 1e999}', "timestamp_ms: expected an integer, found a number"),
        (b'{"key": "a", "value": "", "key": "a"}', "the field 'key' occurs twice"),
        (b'{"headers": {"a": "", "a": ""}}', "the field 'a' occurs twice"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b'{"value": ' * 100_000, "it is nested too deeply"),
    ],
)
def test_lines_that_are_no_json(line: bytes, words: str) -> None:
    message = refusal(b"{}\n" + line + b"\n{}\n", JSONL)
    assert message.startswith("input: line 2: ")
    assert words in message


@given(SIZES, st.lists(st.sampled_from(["{}", '{"value":"é"}', "", " \t", "\r"]), max_size=9))
def test_places_in_json_lines(sizes: list[int], lines: list[str]) -> None:
    data = "\n".join(lines).encode()
    found = list(read_records(Trickle(data, sizes), "input", JSONL, start_pos=5))
    wanted = [
        record(None, json.loads(line).get("value", "").encode() or None, 5 + end_pos)
        for line, end_pos in lines_slowly(data)
        if line.strip()
    ]
    assert found == wanted
    for each in found:  # and so a producer resumes
        rest = io.BytesIO(data[each.end_pos - 5 :])
        later = list(read_records(rest, "input", JSONL, start_pos=each.end_pos))
        assert later == found[found.index(each) + 1 :]


def test_what_a_client_consumed_can_be_read(golden: Callable[[str], Path]) -> None:
    headers_count = 0
    for path in sorted(golden("kafka-4.3.1-clean.consumed").rglob("*.jsonl")):
        _, _, data = path.read_bytes().partition(b"\n")  # the first line tells of the partition
        found = records_of(data, JSONL, bytes_as=BytesAs.BASE64)
        rows = [json.loads(line) for line in data.splitlines()]
        for each, row in zip(found, rows, strict=True):
            for name in ("key", "value"):
                data = getattr(each, name)
                assert row[name] == (None if data is None else b64encode(data).decode())
            assert [header.key_text for header in each.headers] == [a for a, _ in row["headers"]]
            assert each.timestamp_ms == row["timestamp_ms"]
            headers_count += len(each.headers)
    assert headers_count > 100


# --- msgpack --------------------------------------------------------------------------------------

MAPS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.none() | st.binary(max_size=40) | st.text(max_size=10),
            "value": st.binary(max_size=300) | st.text(max_size=40),
            "timestamp_ms": st.integers(0, 2**63 - 1),
            "headers": st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3))),
        },
    ),
    max_size=6,
)


def as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


@given(MAPS, SIZES, st.integers(0, 100))
def test_places_in_msgpack(maps: list[dict[str, Any]], sizes: list[int], start_pos: int) -> None:
    wanted = []
    data = b""
    for each in maps:
        data += msgpack.packb(each)
        headers = [(as_bytes(name), value) for name, value in each.get("headers", ())]
        key, value = as_bytes(each.get("key")), as_bytes(each.get("value"))
        wanted.append(record(key, value, start_pos + len(data), headers, each.get("timestamp_ms")))
    reported: list[int] = []
    found = read_records(
        Trickle(data, sizes), "input", MSGPACK, start_pos=start_pos, on_bytes=reported.append
    )
    assert list(found) == wanted
    assert sum(reported) == len(data)


@given(MAPS.filter(bool), st.data())
def test_msgpack_that_is_cut(maps: list[dict[str, Any]], data: st.DataObject) -> None:
    packed = [msgpack.packb(each) for each in maps]
    cut = data.draw(st.integers(1, len(packed[-1])))
    stream = b"".join(packed)[:-cut]
    start = len(stream) - (len(packed[-1]) - cut)
    records = read_records(io.BytesIO(stream), "input", MSGPACK)
    for _ in packed[:-1]:
        next(records)
    if start == len(stream):
        assert next(records, None) is None
        return
    with pytest.raises(UsageError, match=f"input: byte {start}: the input ends within a record"):
        next(records)


@given(st.binary(max_size=60))
def test_any_bytes_give_records_or_words(data: bytes) -> None:
    for kind in InputFormat:
        found = []
        with suppress(UsageError):
            found = records_of(data, kind)
        ends = [each.end_pos for each in found]
        assert ends == sorted(set(ends))


NAMES = st.sampled_from(["key", "value", "headers", "timestamp_ms", "base64", "key_base64", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(2**63), 2**63) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES | st.dictionaries(NAMES, VALUES))
def test_any_object_gives_a_record_or_words(obj: Any) -> None:
    for kind, data in both(obj):
        for bytes_as in BytesAs:
            with suppress(UsageError):
                (found,) = records_of(data, kind, bytes_as=bytes_as)
                assert found.end_pos == len(data)
                assert {type(each) for each in found[:2]} <= {bytes, type(None)}
                assert {type(each) for each in found.headers} <= {RecordHeader}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xc1", "byte 0: expected msgpack (FormatError)"),
        (b"\x91" * 5000, "byte 0: expected msgpack (StackError)"),
        (b"\x81\x90\x01", "record at byte 0: a list or a map is no name of a field"),
        (b"\x81\x01\x01", "unknown field an integer"),
        (b"\x81\xa1\xff\x01", "a str is not UTF-8: pack it as bin"),
        (b"\x82\xa1k\x01\xa1k\x01", "the field 'k' occurs twice"),
        (b"\xc7\x01\xffa", "expected msgpack: invalid timestamp data"),
        (msgpack.packb({"value": msgpack.ExtType(3, b"x")}), "found a value of type ExtType"),
    ],
)
def test_bytes_that_are_no_msgpack(data: bytes, words: str) -> None:
    assert words in refusal(data, MSGPACK)


# --- bounded memory -------------------------------------------------------------------------------


def test_a_record_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_RECORD_BYTES", 50)
    good, large = (msgpack.packb({"value": b"v" * count}) for count in (50 - 9, 50 - 8))
    assert len(good) == 50
    for sizes in ([1], [7], [1000]):
        found = list(read_records(Trickle(good * 3, sizes), "input", MSGPACK))
        assert [each.end_pos for each in found] == [50, 100, 150]
        for data in (good + large, good + large[:-1], good + b"\xc6\xff\xff\xff\xff" + b"v" * 60):
            records = read_records(Trickle(data, sizes), "input", MSGPACK)
            assert next(records).end_pos == 50
            with pytest.raises(UsageError, match="input: byte 50: "):
                next(records)


def large_records() -> list[tuple[InputFormat, bytes]]:
    value = '\\" [{,' * 300_000  # brackets and quotes that are part of a string
    obj = {"key": "\\", "value": value, "headers": [["n", value]] * 2}
    return both(obj)


def test_large_records_are_read() -> None:
    for kind, data in large_records():
        assert len(data) > 3 * inputs.PLAIN_BYTES
        (found,) = records_of(data, kind)
        assert found.value == found.headers[1].value == b'\\" [{,' * 300_000


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (JSONL, b'{"headers":[' + b"[]," * 4_000_000),
        (JSONL, b'{"headers":[' + b'"a",' * 3_000_000),
        (JSONL, b'{"headers":[' + b"1000," * 3_000_000),
        (MSGPACK, b"\x81\xa7headers\xdd" + (12_000_000).to_bytes(4) + b"\x90" * 12_000_000),
        (MSGPACK, b"\x81\xa7headers\xdd" + (6_000_000).to_bytes(4) + b"\xa2ab" * 6_000_000),
        (MSGPACK, (b"\xdd" + b"\x7f\xff\xff\xff") * 1000),
    ],
)  # fmt: skip
def test_a_bomb_is_refused_in_little_memory(kind: InputFormat, data: bytes) -> None:
    tracemalloc.start()
    try:
        refusal(data, kind)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 6 * len(data) + (20 << 20)
