"""partition.metadata and UUIDs: what a broker reads and refuses, every golden file."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptError, FormatError, UnsupportedError
from storage.formats.java_text import NotANumberError
from storage.formats.partition_metadata import (
    METADATA_TOPIC_ID,
    NAME,
    NotCaughtError,
    PartitionMetadata,
    encode_partition_metadata,
    format_uuid,
    new_topic_id,
    parse_partition_metadata,
    parse_uuid,
    problems,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"
ID = bytes(range(16))
FILE = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"


def test_worked_example() -> None:
    assert parse_partition_metadata(FILE) == PartitionMetadata(0, ID)
    assert encode_partition_metadata(PartitionMetadata(0, ID)) == FILE
    assert problems(FILE) == []


def test_golden_files_come_out_with_the_same_bytes(golden: Callable[[str], Path]) -> None:
    paths = [
        path
        for archive in ("kafka-4.3.1", "kafka-4.3.1-three-brokers")
        for path in golden(archive).rglob(NAME)
    ]
    assert len(paths) > 150
    for path in paths:
        buf = path.read_bytes()
        metadata = parse_partition_metadata(buf)
        assert encode_partition_metadata(metadata) == buf
        assert problems(buf) == []
        is_metadata_log = path.parent.name == "__cluster_metadata-0"
        assert (metadata.topic_id == METADATA_TOPIC_ID) == is_metadata_log


@given(st.integers(0, 2**31 - 1), st.binary(min_size=16, max_size=16).filter(any))
def test_round_trip(version: int, topic_id: bytes) -> None:
    metadata = PartitionMetadata(version, topic_id)
    buf = encode_partition_metadata(metadata)
    assert parse_partition_metadata(buf) == metadata
    assert problems(buf) == []


@given(st.integers(0, len(FILE) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_damage_gives_a_finding_or_another_value(pos: int, new: bytes, cut_bytes: int) -> None:
    buf = FILE[:pos] + new + FILE[pos + cut_bytes :]
    error = None
    metadata = PartitionMetadata(0, ID)
    try:
        metadata = parse_partition_metadata(buf)
    except FormatError as caught:
        error = caught
    found = [(problem.check_id, problem.pos) for problem in problems(buf)]
    if error is not None:
        assert found == [("DIR-4", error.pos)]
        assert 0 <= error.pos <= len(buf)
    elif found:
        assert [check_id for check_id, _pos in found] == ["TXT-1"]
    else:
        assert encode_partition_metadata(metadata) == buf


@pytest.mark.parametrize(
    "buf",
    [
        FILE + b"\n",
        FILE + b"\nanything\n",
        FILE + b"==",
        FILE.replace(b"\n", b"\r\n"),
        FILE.replace(b": ", b":\t  "),
        b"x: +00\ny: AAECAwQFBgcICQoLDA0ODw: ",
        b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODx",
    ],
)
def test_unusual_text_is_read_as_a_broker_reads_it(buf: bytes) -> None:
    assert parse_partition_metadata(buf) == PartitionMetadata(0, ID)
    assert [problem.check_id for problem in problems(buf)] == ["TXT-1"]


def test_a_later_version_is_taken() -> None:
    assert parse_partition_metadata(FILE.replace(b"0", b"12", 1)).version == 12


@pytest.mark.parametrize(
    "buf, error, pos",
    [
        (b"", NotCaughtError, 0),
        (b"version: 0", NotCaughtError, 10),
        (b"version: 0\n", NotCaughtError, 11),
        (b"version:0\ntopic_id: AAECAwQFBgcICQoLDA0ODw", CorruptError, 0),
        (b"version: 0: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", CorruptError, 0),
        (b"version: x\ntopic_id: AAECAwQFBgcICQoLDA0ODw", NotANumberError, 0),
        (b"version: -1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", UnsupportedError, 0),
        (b"version: 0\n\n", CorruptError, 11),
        (b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0OD", NotCaughtError, 11),
        (b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw=", NotCaughtError, 11),
        (b"version: 0\ntopic_id: AAEC+wQFBgcICQoLDA0ODw", NotCaughtError, 11),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", CorruptError, 11),
        (b"version: 0\ntopic_id: " + b"A" * 1_000_000, NotCaughtError, 11),
        (b"version: 0\ntopic_id: \xc3AECAwQFBgcICQoLDA0ODw", CorruptError, 21),
    ],
)
def test_what_a_broker_refuses(buf: bytes, error: type[FormatError], pos: int) -> None:
    with pytest.raises(FormatError) as caught:
        parse_partition_metadata(buf)
    assert type(caught.value) is error
    assert (caught.value.check_id, caught.value.pos) == ("DIR-4", pos)


@given(st.binary(min_size=16, max_size=16))
def test_uuid_round_trip(uuid: bytes) -> None:
    text = format_uuid(uuid)
    assert len(text) == 22
    assert parse_uuid(text) == parse_uuid(f"{text}==") == uuid


def test_new_topic_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each another one; one that begins like an option is drawn again."""
    assert len({parse_uuid(new_topic_id()) for _ in range(100)}) == 100
    drawn = iter([UUID(bytes=b"\xfb" * 16), UUID(bytes=b"\x12" * 16)])
    monkeypatch.setattr("uuid.uuid4", lambda: next(drawn))
    assert format_uuid(b"\xfb" * 16).startswith("-")
    assert parse_uuid(new_topic_id()) == b"\x12" * 16


@pytest.mark.parametrize(
    "text", ["", ID_TEXT + "=", ID_TEXT + "===", ID_TEXT + " ", ID_TEXT + "AA", "é" * 22]
)
def test_text_that_is_no_uuid(text: str) -> None:
    with pytest.raises(CorruptError) as caught:
        parse_uuid(text, check_id="X-1", pos=7)
    assert (caught.value.check_id, caught.value.pos) == ("X-1", 7)
