"""Files of committed offsets: what Kafka's tool writes and takes, and bad lines by their number."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.groups.offset_files import FileOffset, csv_line, is_sayable, parse_offsets
from storage.errors import UsageError
from storage.limits import INT32_MAX, INT64_MAX

# Group names, and the first field that CsvUtils of kafka-tools 4.3.1 (Jackson 2.21.2) writes.
BY_JACKSON = {
    "a": "a", "a b": '"a b"', " a": '" a"', "a,b": '"a,b"', 'a"b': '"a""b"', '"a"': '"""a"""',
    "a\rb": '"a\rb"', "a\tb": '"a\tb"', "a'b": '"a\'b"', "a-b": "a-b", "a.b": "a.b", "a/b": "a/b",
    "a+b": '"a+b"', "#a": '"#a"', "a(b": '"a(b"', "a\\b": '"a\\b"', "a\\": '"a\\"', "\0": '"\0"',
    "0123456789012345678901234": '"0123456789012345678901234"',
    "012345678901234567890123": "012345678901234567890123",
    "אב\u202e": "אב\u202e", "é": "é", "😀": "😀", "\u2028": "\u2028", "\u0085": "\u0085",
    "\x7f": "\x7f", "null": "null", "\ufeffa": "\ufeffa", "a\r": '"a\r"', "a*b": '"a*b"',
    "😀" * 12: "😀" * 12, "😀" * 12 + "a": '"' + "😀" * 12 + 'a"',
}  # fmt: skip
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@pytest.mark.parametrize("name", BY_JACKSON)
def test_names_are_quoted_as_kafkas_tool_quotes_them(name: str) -> None:
    line = csv_line(name, "t", 1, 2)
    assert line == f"{BY_JACKSON[name]},t,1,2"
    assert parse_offsets(line.encode(), "f") == [FileOffset(1, name, "t", 1, 2)]


@given(
    st.dictionaries(
        st.tuples(NAMES, NAMES, st.integers(0, INT32_MAX)), st.integers(0, INT64_MAX), min_size=1
    )
)
def test_what_is_written_is_read(offsets: dict[tuple[str, str, int], int]) -> None:
    text = "".join(csv_line(*place, offset) + "\n" for place, offset in offsets.items())
    found = parse_offsets(text.encode(), "f")
    assert {each[1:4]: each.offset for each in found} == offsets
    for each in found:
        assert text.split("\n")[each.line - 1].startswith(csv_line(*each[1:5]).split("\n")[0])


@given(
    st.dictionaries(
        st.tuples(NAMES, NAMES, st.integers(0, INT32_MAX)),
        st.tuples(st.integers(0, INT64_MAX), NAMES, st.integers(-1, INT32_MAX)),
        min_size=1,
    )
)
def test_json_lines_have_all_of_it(
    offsets: dict[tuple[str, str, int], tuple[int, str, int]],
) -> None:
    rows = [
        dict(zip(("group", "topic", "partition", "offset", "metadata", "leader_epoch"),
                 place + value, strict=True))
        for place, value in offsets.items()
    ]  # fmt: skip
    text = "\n".join(map(json.dumps, rows))
    assert {each[1:4]: each[4:] for each in parse_offsets(text.encode(), "f")} == offsets


def test_without_a_group_column() -> None:
    assert csv_line(None, "t", 0, 7) == "t,0,7"
    assert parse_offsets(b"t,0,7\r\n\nu,1,8\n", "f") == [
        FileOffset(1, None, "t", 0, 7), FileOffset(3, None, "u", 1, 8)
    ]  # fmt: skip


def test_a_line_feed_cannot_be_said() -> None:
    """Kafka's tool would see two lines; here the quotes count, and lines go on being counted."""
    assert not is_sayable("a\nb")
    found = parse_offsets((csv_line("a\nb", "t", 0, 7) + "\ng,t,0,8\n").encode(), "f")
    assert [(each.line, each.group) for each in found] == [(1, "a\nb"), (3, "g")]


@pytest.mark.parametrize(
    ("data", "reported"),
    [
        (b"g,t,0,1\ng,t,0\ng,t,x,1", "line 3: partition 'x' is no number"),
        (b"g,t,0,1\ng,t,1,-5", "line 2: offset -5 is negative"),
        (b"g,t,0,1\ng,t,1,", "line 2: no offset"),
        (b"g,t,0,1\ng,t,1,1.5", "line 2: offset '1.5' is no number"),
        (b"g,t,0,1\ng,t,2147483648,1", "line 2: partition 2147483648 is above 2147483647"),
        (b"g,t,0,9223372036854775808", "line 1: offset 9223372036854775808 is above"),
        (b"g,t,0,1\n,t,1,1", "line 2: no group"),
        (b"g,t,0,1\ng,t,0,1,4", "line 2: has 5 columns"),
        (b"group,topic,partition,offset\ng,t,0,1", "line 1: partition 'partition' is no number"),
        (b"g,t,0,1\nt,1,1", "line 2: has no group, unlike line 1"),
        (b"g,t,0,1\ng,t,0,1", "line 2: t-0 of group 'g' is in line 1 already"),
        (b"t,0,1\n\nt,0,2", "line 3: t-0 is in line 1 already"),
        (b'g,t,0,1\n"g"x,t,1,1', "line 2: is no CSV"),
        (b'g,t,0,1\n"g,t,1,1', "line 2: is no CSV"),
        (b"g,t,0,1\n\xff,t,1,1", "line 2: is not UTF-8"),
        (b'{"group":"g","topic":"t","partition":0,"offset":1}\n[]', "line 2: is no JSON object"),
        (b'{"group":"g","topic":"t","partition":0,"offset":1}\n{', "line 2: is no JSON object"),
        (b'{"topic":"t","partition":0,"offset":true}', "line 1: offset True is no number"),
        (b'{"topic":"t","partition":0,"offset":0.5}', "line 1: offset 0.5 is no number"),
        (b'{"topic":7,"partition":0,"offset":5}', "line 1: no topic"),
        (b'{"topic":"\\ud800","partition":0,"offset":5}', "line 1: the topic does not fit"),
        (b'{"topic":"t","partition":0,"offset":5,"metadata":[1]}', "line 1: metadata is no text"),
        (b"g" * 40_000 + b",t,0,1", "line 1: the group does not fit"),
        (b"", "has no offset"),
        (b"\n\n", "has no offset"),
        (b"g,t,0,1\0", "line 1: offset '1\\x00' is no number"),
    ],
)  # fmt: skip
def test_bad_lines_are_named(data: bytes, reported: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_offsets(data, "f")
    assert reported in caught.value.message


def test_all_bad_lines_at_once() -> None:
    """Up to ten."""
    with pytest.raises(UsageError, match=r"line 1: .*; line 2: .*\(and 2 more\)"):
        parse_offsets(b"g,t,x,1\n" * 12, "f")


@given(st.binary(max_size=60) | st.text('gt,01"\n\r \\', max_size=40).map(str.encode))
def test_any_bytes_are_offsets_or_an_error(data: bytes) -> None:
    with suppress(UsageError):
        assert parse_offsets(data, "f")
