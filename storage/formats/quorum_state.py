"""`quorum-state`: the vote of a KRaft node, in `__cluster_metadata-0`. One line of JSON.

    key               data_version  type             meaning
    clusterId         0             string           written empty
    leaderId          0 1           int32            -1 unknown
    leaderEpoch       0 1           int32
    votedId           0 1           int32            -1 no vote in this epoch
    votedDirectoryId    1           string, a UUID   all zero if none
    appliedOffset     0             int64            written 0
    currentVoters     0             array or null    of {"voterId": int32}; the static voters
    data_version      0 1           int16            0, or 1 from kraft.version 1 on

The file is the source of truth, since the log does not contain its content. Never delete it,
replace it by an older copy or edit it on a voter. The first line is valid if and only if these
rules hold:

- QST-1: it is a JSON object with all keys of its version, of their types and sizes.
- TXT-1: it is exactly what a broker would write. A break is harmless. Brokers ignore unknown keys
  and text after the object.

Unknown keys, and the order of all keys, are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import CorruptError, FormatError, UnsupportedError
from storage.formats.java_text import (
    encode_json,
    json_integer,
    parse_json_object,
    parse_lines,
    unusual_text,
    wrong_type,
)
from storage.formats.partition_metadata import format_uuid, parse_uuid
from storage.limits import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from storage.limits import Buf

NAME = "quorum-state"
CHECK_ID = "QST-1"
MAX_VERSION = 1

KEYS_V0 = (
    "clusterId",
    "leaderId",
    "leaderEpoch",
    "votedId",
    "appliedOffset",
    "currentVoters",
    "data_version",
)
KEYS_V1 = ("leaderId", "leaderEpoch", "votedId", "votedDirectoryId", "data_version")


class Voter(NamedTuple):
    """A static voter. `other` has the unknown keys."""

    voter_id: int
    other: tuple[tuple[str, Any], ...] = ()


class QuorumState(NamedTuple):
    """Content of quorum-state. Fields that its version lacks are None.

    `other` has the unknown keys with their JSON values. `key_order` has all keys in the order of
    the file, or None for Kafka's order.
    """

    data_version: int
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: bytes | None = None  # 16 bytes; version 1
    cluster_id: str | None = None  # version 0
    applied_offset: int | None = None  # version 0
    current_voters: tuple[Voter, ...] | None = None  # version 0, where it may be null
    other: tuple[tuple[str, Any], ...] = ()
    key_order: tuple[str, ...] | None = None


def parse_quorum_state(buf: Buf) -> QuorumState:
    """Read the first line, as a broker does.

    Raises:
        UnsupportedError: data_version is neither 0 nor 1.
        CorruptError: any other break of QST-1.
    """
    lines = parse_lines(buf, check_id=CHECK_ID)
    if not lines:
        raise CorruptError("quorum-state is empty", check_id=CHECK_ID, pos=0)
    document = parse_json_object(lines[0].text, check_id=CHECK_ID)
    data_version = _integer(document, "data_version", INT32_MAX)
    if not 0 <= data_version <= MAX_VERSION:
        raise UnsupportedError(
            "data_version of quorum-state is unknown",
            check_id=CHECK_ID,
            pos=0,
            expected="0 or 1",
            found=str(data_version),
        )
    known = KEYS_V0 if data_version == 0 else KEYS_V1
    missing = [key for key in known if key not in document]
    if missing:
        raise CorruptError(f"{missing[0]} is missing", check_id=CHECK_ID, pos=0)
    is_v0 = data_version == 0
    return QuorumState(
        data_version=data_version,
        leader_id=_integer(document, "leaderId", INT32_MAX),
        leader_epoch=_integer(document, "leaderEpoch", INT32_MAX),
        voted_id=_integer(document, "votedId", INT32_MAX),
        voted_directory_id=None
        if is_v0
        else parse_uuid(_string(document, "votedDirectoryId"), check_id=CHECK_ID),
        cluster_id=_string(document, "clusterId") if is_v0 else None,
        applied_offset=_integer(document, "appliedOffset", INT64_MAX) if is_v0 else None,
        current_voters=_voters(document["currentVoters"]) if is_v0 else None,
        other=tuple((key, value) for key, value in document.items() if key not in known),
        key_order=tuple(document),
    )


def encode_quorum_state(state: QuorumState) -> bytes:
    """Return the file. Parsed keys keep their order, also unknown keys."""
    voted_directory_id = state.voted_directory_id
    values = {
        "clusterId": state.cluster_id or "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": format_uuid(voted_directory_id or bytes(16)),
        "appliedOffset": state.applied_offset or 0,
        "currentVoters": None
        if state.current_voters is None
        else [{"voterId": voter.voter_id, **dict(voter.other)} for voter in state.current_voters],
        "data_version": state.data_version,
    }
    known = KEYS_V0 if state.data_version == 0 else KEYS_V1
    document = {key: values[key] for key in known} | dict(state.other)
    order = [key for key in state.key_order or () if key in document]
    return encode_json({key: document[key] for key in dict.fromkeys([*order, *document])})


def problems(buf: Buf) -> list[FormatError]:
    """Judge the file alone: QST-1 if it does not parse, else TXT-1."""
    try:
        state = parse_quorum_state(buf)
    except FormatError as error:
        return [error]
    return unusual_text(buf, encode_quorum_state(state))


def _integer(document: dict[str, Any], key: str, max_value: int) -> int:
    return json_integer(document, key, max_value=max_value, check_id=CHECK_ID)


def _string(document: dict[str, Any], key: str) -> str:
    value = document[key]
    if not isinstance(value, str):
        raise wrong_type(key, value, "a string", CHECK_ID)
    return value


def _voters(value: object) -> tuple[Voter, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise wrong_type("currentVoters", value, "an array or null", CHECK_ID)
    voters = []
    for voter in value:
        if not isinstance(voter, dict):
            raise wrong_type("currentVoters", voter, "an array of objects", CHECK_ID)
        other = tuple((key, item) for key, item in voter.items() if key != "voterId")
        voters.append(Voter(_integer(voter, "voterId", INT32_MAX), other))
    return tuple(voters)
