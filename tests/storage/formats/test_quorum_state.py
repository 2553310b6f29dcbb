"""quorum-state: both versions, every golden file, what a broker refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptError, FormatError, UnsupportedError
from storage.formats.quorum_state import (
    NAME,
    QuorumState,
    Voter,
    encode_quorum_state,
    parse_quorum_state,
    problems,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# A worked example.
V0 = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1}],"data_version":0}'
)
V1 = (
    b'{"leaderId":-1,"leaderEpoch":2,"votedId":1,'
    b'"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw","data_version":1}'
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
JSON = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers())
OTHER = st.dictionaries(st.text(min_size=1).map("x-{}".format), JSON, max_size=3).map(
    lambda other: tuple(other.items())
)
STATES = st.builds(
    lambda ids, cluster_id, applied_offset, voters, other: QuorumState(
        0,
        *ids,
        cluster_id=cluster_id,
        applied_offset=applied_offset,
        current_voters=voters,
        other=other,
    ),
    st.tuples(INT32, INT32, INT32),
    st.text(),
    INT64,
    st.none() | st.lists(st.builds(Voter, INT32, OTHER), max_size=3).map(tuple),
    OTHER,
) | st.builds(
    lambda ids, uuid, other: QuorumState(1, *ids, voted_directory_id=uuid, other=other),
    st.tuples(INT32, INT32, INT32),
    st.binary(min_size=16, max_size=16),
    OTHER,
)


def changed(file: bytes, **values: object) -> bytes:
    return json.dumps(json.loads(file) | values).encode()


def test_version_0() -> None:
    state = parse_quorum_state(V0)
    expected = QuorumState(0, 1, 2, -1, cluster_id="", applied_offset=0, current_voters=(Voter(1),))
    assert state._replace(key_order=None) == expected
    assert encode_quorum_state(state) == encode_quorum_state(expected) == V0
    assert problems(V0) == []


def test_version_1() -> None:
    state = parse_quorum_state(V1)
    expected = QuorumState(1, -1, 2, 1, voted_directory_id=bytes(range(16)))
    assert state._replace(key_order=None) == expected
    assert encode_quorum_state(state) == encode_quorum_state(expected) == V1
    assert problems(V1) == []


def test_golden_files_come_out_with_the_same_bytes(golden: Callable[[str], Path]) -> None:
    paths = [
        path
        for archive in ("kafka-4.3.1", "kafka-4.3.1-three-brokers")
        for path in golden(archive).rglob(NAME)
    ]
    assert len(paths) > 10
    for path in paths:
        buf = path.read_bytes()
        assert encode_quorum_state(parse_quorum_state(buf)) == buf
        assert problems(buf) == []


@given(STATES)
def test_round_trip(state: QuorumState) -> None:
    buf = encode_quorum_state(state)
    again = parse_quorum_state(buf)
    assert again._replace(key_order=None) == state
    assert encode_quorum_state(again) == buf
    assert problems(buf) == []


@given(st.sampled_from([V0, V1]), st.data())
def test_damage_gives_a_finding_or_another_value(file: bytes, data: st.DataObject) -> None:
    pos = data.draw(st.integers(0, len(file) - 1))
    new = data.draw(
        st.binary(max_size=3) | st.sampled_from([b"null", b"[", b"{", b'"', b"1", b"e9"])
    )
    buf = file[:pos] + new + file[pos + data.draw(st.integers(0, 3)) :]
    error, state = None, None
    try:
        state = parse_quorum_state(buf)
    except FormatError as caught:
        error = caught
    found = [(problem.check_id, problem.pos) for problem in problems(buf)]
    if state is None:
        assert error is not None
        assert found == [("QST-1", error.pos)]
        assert 0 <= error.pos <= len(buf)
    elif found:
        assert [check_id for check_id, _pos in found] == ["TXT-1"]
    else:
        assert encode_quorum_state(state) == buf


def test_unknown_keys_and_order_are_kept() -> None:
    buf = (
        b'{"data_version":0,"new":{"a":[1,2.5,null]},"votedId":-1,"appliedOffset":0,"leaderId":1,'
        b'"leaderEpoch":2,"currentVoters":[{"x":1,"voterId":1}],"clusterId":"\xc3\xa9"}'
    )
    state = parse_quorum_state(buf)
    assert state.other == (("new", {"a": [1, 2.5, None]}),)
    assert state.current_voters == (Voter(1, (("x", 1),)),)
    assert state.cluster_id == "é"
    assert encode_quorum_state(state) == buf.replace(b'{"x":1,"voterId":1}', b'{"voterId":1,"x":1}')


def test_only_the_first_object_of_the_first_line_counts() -> None:
    for buf in (V0 + b"\n", V0 + b"\ngarbage", V0 + b" {", b" " + V0, V0.replace(b",", b", ")):
        assert parse_quorum_state(buf) == parse_quorum_state(V0)
        assert [problem.check_id for problem in problems(buf)] == ["TXT-1"]


def test_voters_may_be_null_or_none() -> None:
    assert parse_quorum_state(changed(V0, currentVoters=None)).current_voters is None
    assert parse_quorum_state(changed(V0, currentVoters=[])).current_voters == ()
    for voters in (None, ()):
        state = parse_quorum_state(V0)._replace(current_voters=voters)
        assert parse_quorum_state(encode_quorum_state(state)) == state


@pytest.mark.parametrize("version", [-1, 2, 65536])
def test_other_versions(version: int) -> None:
    with pytest.raises(UnsupportedError) as caught:
        parse_quorum_state(changed(V1, data_version=version))
    assert caught.value.check_id == "QST-1"


@pytest.mark.parametrize(
    "file, values",
    [
        (V0, {"data_version": "0"}),
        (V0, {"data_version": None}),
        (V0, {"data_version": 0.0}),
        (V0, {"data_version": False}),
        (V0, {"leaderId": "1"}),
        (V0, {"leaderId": 2**31}),
        (V0, {"leaderEpoch": 2.0}),
        (V0, {"leaderEpoch": 10**4000}),
        (V0, {"votedId": True}),
        (V0, {"votedId": None}),
        (V0, {"clusterId": None}),
        (V0, {"clusterId": 5}),
        (V0, {"appliedOffset": -(2**63) - 1}),
        (V0, {"appliedOffset": [1]}),
        (V0, {"currentVoters": {}}),
        (V0, {"currentVoters": [1]}),
        (V0, {"currentVoters": [{}]}),
        (V0, {"currentVoters": [{"voterId": "1"}]}),
        (V1, {"votedDirectoryId": None}),
        (V1, {"votedDirectoryId": "AAAA"}),
        (V1, {"votedDirectoryId": 1}),
        (V1, {"data_version": 0}),
        (V0, {"data_version": 1}),
    ],
)
def test_values_of_the_wrong_type_or_size(file: bytes, values: dict[str, Any]) -> None:
    buf = changed(file, **values)
    with pytest.raises(CorruptError) as caught:
        parse_quorum_state(buf)
    assert caught.value.check_id == "QST-1"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("key", [*json.loads(V0)])
def test_missing_keys(key: str) -> None:
    document = json.loads(V0)
    del document[key]
    with pytest.raises(CorruptError, match=f"{key} is missing"):
        parse_quorum_state(json.dumps(document).encode())


@pytest.mark.parametrize(
    "buf",
    [
        b"",
        b"\n" + V0,
        b"[]",
        b"{",
        V0[:-1],
        V0.replace(b"0}", b"NaN}"),
        V0.replace(b"0}", b"9" * 10_000 + b"}"),
        V0[:-1] + b',"x":' + b"[" * 100_000,
        V0[:-1] + b',"x":' + b"[" * 500 + b"]" * 500 + b"}",
        V0.replace(b'""', b'"\xff"'),
    ],
)
def test_text_that_is_no_object(buf: bytes) -> None:
    with pytest.raises(CorruptError) as caught:
        parse_quorum_state(buf)
    assert caught.value.check_id == "QST-1"
