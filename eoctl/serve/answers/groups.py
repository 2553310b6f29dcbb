"""Answers about consumer groups: those of the dead cluster as they were, those that form here."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any

from eoctl.serve.protocol.errors import ErrorCode, RequestError
from eoctl.serve.state.members import (
    MAX_METADATA_CHARS,
    NO_GENERATION,
    Asked,
    CommittedAt,
    PlacedCommit,
)
from storage.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.serve.state.broker import Request, VirtualBroker
    from eoctl.serve.state.catalogue import Catalogue
    from eoctl.serve.state.members import Group

GROUP_KEY, TRANSACTION_KEY = 0, 1
KNOWN_ID_SINCE = 4
STATIC_SINCE = 3
NULL_PROTOCOL_SINCE = 7
SKIP_SINCE = 9
SWEEP_S = 0.5
COMMITS_AT_ONCE = 1000


def find_coordinator(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer FindCoordinator: it is here."""
    body = request.body
    where = {"nodeId": broker.node_id, "host": request.client.host, "port": request.client.port}
    if body.get("keyType", GROUP_KEY) not in (GROUP_KEY, TRANSACTION_KEY):
        code = ErrorCode.INVALID_REQUEST
        where = {"nodeId": -1, "host": "", "port": -1}
    else:
        code = ErrorCode.NONE
    keys = body.get("coordinatorKeys", ())
    return {
        "errorCode": code,
        "errorMessage": code.name,
        **where,
        "coordinators": [{"key": each, **where, "errorCode": code} for each in keys],
    }


async def join_group(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer JoinGroup, once all have joined."""
    body = request.body
    timeout_ms = body.get("rebalanceTimeoutMs", -1)
    asked = Asked(
        member_id=body["memberId"],
        instance_id=body.get("groupInstanceId"),
        client_id=request.client.name,
        host=f"/{request.client.address}",
        session_ms=body["sessionTimeoutMs"],
        rebalance_ms=body["sessionTimeoutMs"] if timeout_ms < 0 else timeout_ms,
        protocol_type=body["protocolType"],
        protocols={each["name"]: each["metadata"] for each in body["protocols"]},
        needs_known_id=request.version >= KNOWN_ID_SINCE,
        may_skip_assignment=request.version >= SKIP_SINCE,
    )
    no_protocol = None if request.version >= NULL_PROTOCOL_SINCE else ""
    try:
        joined = await broker.members.join(body["groupId"], asked)
    except RequestError as exc:
        is_id = exc.code is ErrorCode.MEMBER_ID_REQUIRED
        return {
            "errorCode": exc.code,
            "generationId": NO_GENERATION,
            "protocolName": no_protocol,
            "leader": "",
            "memberId": exc.message if is_id else body["memberId"],
            "members": [],
        }
    return {
        "errorCode": ErrorCode.NONE,
        "generationId": joined.generation,
        "protocolType": joined.protocol_type,
        "protocolName": joined.protocol,
        "leader": joined.leader,
        "skipAssignment": joined.skips_assignment,
        "memberId": joined.member_id,
        "members": [
            {"memberId": key, "groupInstanceId": instance, "metadata": data}
            for key, instance, data in joined.members
        ],
    }


async def sync_group(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer SyncGroup, once the leader has."""
    body = request.body
    try:
        group, assignment = await broker.members.sync(
            body["groupId"],
            body["memberId"],
            body["generationId"],
            body.get("groupInstanceId"),
            {each["memberId"]: each["assignment"] for each in body["assignments"]},
        )
    except RequestError as exc:
        return {"errorCode": exc.code, "assignment": b""}
    return {
        "errorCode": ErrorCode.NONE,
        "protocolType": group.protocol_type,
        "protocolName": group.protocol,
        "assignment": assignment,
    }


def heartbeat(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer Heartbeat."""
    body = request.body
    try:
        broker.members.heartbeat(
            body["groupId"], body["memberId"], body["generationId"], body.get("groupInstanceId")
        )
    except RequestError as exc:
        return {"errorCode": exc.code}
    return {"errorCode": ErrorCode.NONE}


def leave_group(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer LeaveGroup."""
    body = request.body
    leaving = body.get("members") or [{"memberId": body.get("memberId", "")}]
    answers = []
    for each in leaving:
        code = ErrorCode.NONE
        try:
            broker.members.leave(body["groupId"], each["memberId"], each.get("groupInstanceId"))
        except RequestError as exc:
            code = exc.code
        answers.append({**each, "errorCode": code})
    is_single = request.version < STATIC_SINCE
    return {
        "errorCode": answers[0]["errorCode"] if is_single else ErrorCode.NONE,
        "members": answers,
    }


async def offset_commit(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer OffsetCommit: it is kept in memory, a piece at a time: others have their turns."""
    body, members = request.body, broker.members
    group, refused = None, ErrorCode.NONE
    try:
        group = members.require_may_commit(
            body["groupId"],
            body["memberId"],
            body["generationIdOrMemberEpoch"],
            body.get("groupInstanceId"),
        )
    except RequestError as exc:
        refused = exc.code
    topics: list[dict[str, Any]] = []
    asked = _asked_commits(broker.catalogue, body["topics"], topics)
    while piece := [*islice(asked, COMMITS_AT_ONCE)]:
        kept = []
        for answered, commit in piece:
            if group is None:
                answered["errorCode"] = refused
            elif answered["errorCode"] is ErrorCode.NONE:
                kept.append((answered, commit))
        if group is not None:
            _keep(broker, group, kept)
        await asyncio.sleep(0)
    return {"topics": topics}


def _asked_commits(
    catalogue: Catalogue, asked: Sequence[dict[str, Any]], topics: list[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], PlacedCommit]]:
    """Give what is to be committed, each with its answer, which is in `topics` by then."""
    for topic in asked:
        known = catalogue.topic_by_id(topic["topicId"]) if "topicId" in topic else None
        name = topic.get("name") or ("" if known is None else known.name)
        answers: list[dict[str, Any]] = []
        topics.append({**topic, "partitions": answers})
        for each in topic["partitions"]:
            number = each["partitionIndex"]
            at = CommittedAt(
                offset=each["committedOffset"],
                leader_epoch=each.get("committedLeaderEpoch", -1),
                metadata=each["committedMetadata"] or "",
            )
            if not name:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            elif catalogue.find(name, number) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(at.metadata) > MAX_METADATA_CHARS:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                code = ErrorCode.NONE
            answers.append({"partitionIndex": number, "errorCode": code})
            yield answers[-1], PlacedCommit(name, number, at)


def _keep(
    broker: VirtualBroker, group: Group, kept: Sequence[tuple[dict[str, Any], PlacedCommit]]
) -> None:
    try:
        broker.members.commit(group, [commit for _, commit in kept])
    except AccessError as exc:
        broker.catalogue.tell_once(f"a commit of {group.name} was not saved: {exc}")
        for answered, _ in kept:
            answered["errorCode"] = ErrorCode.UNKNOWN_SERVER_ERROR


async def expire_members(broker: VirtualBroker) -> None:
    """Take out silent members, for ever."""
    while True:
        await asyncio.sleep(SWEEP_S)
        broker.members.expire()
