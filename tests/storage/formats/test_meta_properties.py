"""meta.properties: Java's properties syntax, the two versions, every golden file.

The table of syntax was taken from java.util.Properties' own answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptError, FormatError, UnsupportedError
from storage.formats.java_text import NotANumberError
from storage.formats.meta_properties import (
    NAME,
    Comment,
    MetaProperties,
    encode_meta_properties,
    parse_meta_properties,
    problems,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ARCHIVES = ("kafka-4.3.1", "kafka-4.3.1-three-brokers", "kafka-0.10.2-legacy")
ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"
ID = bytes(range(16))
# A worked example.
V1 = b"""#
#Tue Nov 14 22:13:20 UTC 2023
cluster.id=AAECAwQFBgcICQoLDA0ODw
directory.id=AAECAwQFBgcICQoLDA0ODw
node.id=1
version=1
"""

# Half of a pair would join with a neighbour; Java's strings have the same trait.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
OTHER = st.dictionaries(
    TEXT.filter(
        lambda key: key not in {"version", "cluster.id", "broker.id", "node.id", "directory.id"}
    ),
    TEXT,
    max_size=4,
).map(lambda other: tuple(other.items()))
TOKENS = [
    *("version", "node.id", "cluster.id", "directory.id", ID_TEXT, "1", "x"),
    *(
        "=",
        ":",
        " ",
        "\t",
        "\f",
        "\\",
        "\\\\",
        "\n",
        "\r",
        "\r\n",
        "#",
        "!",
        "\\u0041",
        "\\u00",
        "\xe9",
    ),
]
ANY_TEXT = st.lists(st.sampled_from(TOKENS), max_size=20).map(
    lambda t: "".join(t).encode("latin-1")
)


def test_worked_example() -> None:
    meta = parse_meta_properties(V1)
    assert meta == MetaProperties(
        version=1,
        cluster_id=ID_TEXT,
        node_id=1,
        directory_id=ID,
        comments=(Comment("#", 0), Comment("#Tue Nov 14 22:13:20 UTC 2023", 0)),
        key_order=("cluster.id", "directory.id", "node.id", "version"),
    )
    assert encode_meta_properties(meta) == V1
    assert problems(V1) == []


@pytest.mark.parametrize("archive", ARCHIVES)
def test_golden_files_come_out_with_the_same_bytes(
    golden: Callable[[str], Path], archive: str
) -> None:
    paths = list(golden(archive).rglob(NAME))
    assert paths
    for path in paths:
        buf = path.read_bytes()
        meta = parse_meta_properties(buf)
        assert encode_meta_properties(meta) == buf
        assert problems(buf) == []
        if archive == "kafka-0.10.2-legacy":
            assert meta[:4] == (0, None, 0, None)
        else:
            assert meta.version == 1
            assert meta.cluster_id
            assert meta.directory_id


@given(
    st.sampled_from([0, 1]),
    TEXT,
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.binary(min_size=16, max_size=16),
    OTHER,
)
def test_round_trip_of_any_values(
    version: int,
    cluster_id: str,
    node_id: int,
    directory_id: bytes | None,
    other: tuple[tuple[str, str], ...],
) -> None:
    meta = MetaProperties(version, cluster_id, node_id, directory_id, other)
    buf = encode_meta_properties(meta)
    again = parse_meta_properties(buf)
    assert again._replace(key_order=None) == meta
    assert encode_meta_properties(again) == buf


@given(ANY_TEXT | st.binary(max_size=60))
def test_any_bytes_give_a_value_or_format_error(buf: bytes) -> None:
    error, meta = None, None
    try:
        meta = parse_meta_properties(buf)
    except FormatError as caught:
        error = caught
    found = [(problem.check_id, problem.pos) for problem in problems(buf)]
    if meta is not None:
        assert found in ([], [("DIR-3", found[0][1] if found else 0)])
        assert parse_meta_properties(encode_meta_properties(meta)) == meta
    else:
        assert error is not None
        assert found == [("DIR-3", error.pos)]
        assert 0 <= error.pos <= len(buf)


def others(text: str) -> dict[str, str]:
    return dict(parse_meta_properties(text.encode("latin-1")).other)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a = b c ", {"a": "b c "}),
        ("a \t\f: =b", {"a": "=b"}),
        ("  \t\fa=b", {"a": "b"}),
        ("=b", {"": "b"}),
        ("a\\ b\\=\\:c=d", {"a b=:c": "d"}),
        ("a\\\\=b", {"a\\": "b"}),
        ("a=\\t\\n\\r\\f\\q\\\\\\u00e9\\u20AC", {"a": "\t\n\r\fq\\\xe9\u20ac"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("a=\\ud83dx", {"a": "\ud83dx"}),
        ("a=\xe9", {"a": "\xe9"}),
        ("a=b\rc=d\r\ne=f\n", {"a": "b", "c": "d", "e": "f"}),
        ("a=b\\\n  c\\\r\n\td", {"a": "bcd"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("\\\n#c\na=b", {"a": "b"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("# a=b\\\nc=d\n ! e\n\n \t\n", {"c": "d"}),
        ("a=1\nb=2\na=3", {"a": "3", "b": "2"}),
        ("a=b\x0bc\x85d\x1ce", {"a": "b\x0bc\x85d\x1ce"}),
        ("node.id=7", {"node.id": "7"}),  # not a key of version 0
    ],
)
def test_syntax(text: str, expected: dict[str, str]) -> None:
    assert others(text) == expected


def test_escapes_as_properties_store_writes_them() -> None:
    meta = MetaProperties(
        0, None, None, None, (("k =:#!\\ x", " v =:#!\\\t\n\r\f\x01 \u20ac\U0001f600"),)
    )
    written = rb"k\ \=\:\#\!\\\ x=\ v \=\:\#\!\\\t\n\r\f" + b"\x01 " + rb"\u20AC\uD83D\uDE00"
    assert encode_meta_properties(meta) == b"version=0\n" + written + b"\n"


def test_comments_keep_their_places() -> None:
    buf = b"#\n#date\nnode.id=1\n! why\nversion=1\ncluster.id=c\n# end\n"
    meta = parse_meta_properties(buf)
    assert [comment.property_count for comment in meta.comments] == [0, 0, 1, 3]
    assert encode_meta_properties(meta) == buf


def test_an_id_can_be_added_to_a_file() -> None:
    meta = parse_meta_properties(b"#\n#date\nbroker.id=1\nx=y\n")
    assert (meta.version, meta.node_id) == (0, 1)
    added = encode_meta_properties(meta._replace(directory_id=ID))
    assert added == b"#\n#date\nbroker.id=1\nx=y\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n"


def test_no_version_is_version_0_and_stays_away() -> None:
    for buf in (b"broker.id=3\n", b"x=y\n"):
        assert parse_meta_properties(buf).version == 0
        assert encode_meta_properties(parse_meta_properties(buf)) == buf
    assert parse_meta_properties(b"") == MetaProperties(0, None, None, None, key_order=())


@pytest.mark.parametrize(
    "text, error, pos",
    [
        ("version=2\n", UnsupportedError, 0),
        ("#\nversion=x\n", NotANumberError, 2),
        ("version=\n", NotANumberError, 0),
        ("version=1\ncluster.id=c\n", CorruptError, 23),
        ("version=1\nnode.id=1\n", CorruptError, 20),
        ("version=1\ncluster.id=c\nnode.id=1 \n", NotANumberError, 23),
        ("broker.id=2147483648\n", NotANumberError, 0),
        ("broker.id=" + "9" * 1_000_000, NotANumberError, 0),
        ("x=y\ndirectory.id=AAEC\n", CorruptError, 4),
        ("x=y\n a=\\\n  \\u00g0\n", CorruptError, 4),
        ("a=\\u12", CorruptError, 0),
        ("\\u=1", CorruptError, 0),
    ],
)
def test_what_a_broker_refuses(text: str, error: type[FormatError], pos: int) -> None:
    with pytest.raises(FormatError) as caught:
        parse_meta_properties(text.encode())
    assert type(caught.value) is error
    assert (caught.value.check_id, caught.value.pos) == ("DIR-3", pos)


def test_version_may_have_blanks_around() -> None:
    assert parse_meta_properties(b"version= 1 \nnode.id=1\ncluster.id=c\n").version == 1


@pytest.mark.parametrize("number, is_reserved", [(0, True), (2, True), (99, True), (100, False)])
def test_reserved_directory_ids(number: int, is_reserved: bool) -> None:
    meta = MetaProperties(0, None, None, number.to_bytes(16, "big"), comments=(Comment("#\\u"),))
    found = problems(encode_meta_properties(meta))
    assert [(problem.check_id, problem.pos) for problem in found] == [("DIR-3", 14)] * is_reserved
