"""Answers about consumer groups: the groups of the dead cluster, and groups that form here."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.serve.protocol.messages import ErrorCode, RequestError
from eoctl.serve.state.broker import GROUP_OPERATIONS, NOT_REQUESTED
from eoctl.serve.state.members import (
    MAX_METADATA_CHARS,
    NO_GENERATION,
    Asked,
    CommittedAt,
    PlacedCommit,
)
from recovery.groups.members import GroupKind
from storage.errors import AccessError
from storage.formats.message import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl.serve.state.broker import Request, VirtualBroker
    from eoctl.serve.state.catalogue import Catalogue
    from eoctl.serve.state.members import Group
    from recovery.groups.members import GroupState


GROUP_KEY, TRANSACTION_KEY = 0, 1
KNOWN_ID_SINCE = 4
STATIC_SINCE = 3
NULL_PROTOCOL_SINCE = 7
SKIP_SINCE = 9
SWEEP_S = 0.5
COMMITS_AT_ONCE = 1000


def find_coordinator(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer FindCoordinator: this broker is the coordinator."""
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
    """Answer JoinGroup, once all members have joined."""
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
    """Answer SyncGroup, once the leader has sent the assignments."""
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
    """Answer OffsetCommit.

    Commits are kept in memory, in pieces, so that other clients are served in between.
    """
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
    """Yield each requested commit with its answer, which is then also in `topics`."""
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
        broker.catalogue.report_once(f"a commit of {group.name} was not saved: {exc}")
        for answered, _ in kept:
            answered["errorCode"] = ErrorCode.UNKNOWN_SERVER_ERROR


async def expire_members(broker: VirtualBroker) -> None:
    """Remove silent members, forever."""
    while True:
        await asyncio.sleep(SWEEP_S)
        broker.members.expire()


# -- answers about the commits and members of groups: OffsetFetch, ListGroups and others
#
# The state of the dead cluster's groups is the state that its coordinators would have loaded. If a
# coordinator could not have loaded it, the answer is an error that stops the client.
# NOT_COORDINATOR would make the client search forever for another coordinator, and no answer may
# pass off an unknown offset as none. A group that clients have formed here replaces the dead group
# of the same name, except for offsets that it has not committed itself.


GROUP_ERROR_SINCE = 2
GROUPS_SINCE = 8  # several groups in one OffsetFetch
BY_ID_SINCE = 10
NOT_FOUND_SINCE = 6
NO_OFFSET = -1
UNREADABLE = "The known state of the group is incomplete."


class KnownOffset(NamedTuple):
    """A committed offset. `is_pending`: an open transaction has committed a newer offset."""

    offset: int
    leader_epoch: int
    metadata: str
    is_pending: bool = False


NOTHING = KnownOffset(offset=NO_OFFSET, leader_epoch=-1, metadata="")


def committed(broker: VirtualBroker, name: str) -> dict[tuple[str, int], KnownOffset]:
    """Return the committed offsets of a group, by topic and partition."""
    log = broker.catalogue.groups()
    found: dict[tuple[str, int], KnownOffset] = {}
    dead = log.groups.get(name)
    for each in () if dead is None else log.commits_of(dead):
        if each.pending_producer_id is None:
            value = each.value
            found[each.place] = KnownOffset(
                offset=value.offset, leader_epoch=value.leader_epoch, metadata=value.metadata
            )
        else:
            before = found.get(each.place, NOTHING)
            found[each.place] = before._replace(is_pending=True)
    own = broker.members.groups.get(name)
    for place, commit in ({} if own is None else own.commits.copy()).items():  # may grow
        found[place] = KnownOffset(
            offset=commit.offset, leader_epoch=commit.leader_epoch, metadata=commit.metadata
        )
    return found


def offset_fetch(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer OffsetFetch."""
    body = request.body
    is_stable = body.get("requireStable", False)
    if request.version >= GROUPS_SINCE:
        groups = [
            {
                "groupId": each["groupId"],
                **_of_group(broker, each, request.version, is_stable=is_stable),
            }
            for each in body["groups"]
        ]
        return {"groups": groups}
    return _of_group(broker, body, request.version, is_stable=is_stable)


def _of_group(
    broker: VirtualBroker, asked: dict[str, Any], version: int, *, is_stable: bool
) -> dict[str, Any]:
    known = committed(broker, asked["groupId"])
    wanted, unknown = _wanted(broker, asked, version, known)
    own = broker.members.groups.get(asked["groupId"])
    here = set() if own is None else {*own.commits.copy()}
    places = {(name, each) for name, numbers in wanted.items() for each in numbers}
    is_ours = asked["topics"] is not None and places <= here
    is_known = is_ours or broker.catalogue.may_report_of_group(asked["groupId"])
    code = ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_SERVER_ERROR
    topics = []
    for name, numbers in wanted.items():
        served = broker.catalogue.topics.get(name)
        if served is None and version >= BY_ID_SINCE:
            continue  # a topic that is not served has no id to answer with
        offsets = [
            _offset(each, None if code else known.get((name, each)), is_stable=is_stable, code=code)
            for each in numbers
        ]
        topic_id = ZERO_UUID if served is None else served.topic_id
        topics.append({"name": name, "topicId": topic_id, "partitions": offsets})
    if code and version >= GROUP_ERROR_SINCE:  # the error of the group covers all topics
        return {"topics": [], "errorCode": code}
    return {"topics": [*topics, *unknown], "errorCode": code}


def _wanted(
    broker: VirtualBroker,
    asked: dict[str, Any],
    version: int,
    known: Iterable[tuple[str, int]],
) -> tuple[dict[str, list[int]], list[dict[str, Any]]]:
    """Return the requested partitions by topic, and the answers about unknown topic ids."""
    wanted: dict[str, list[int]] = {}
    unknown: list[dict[str, Any]] = []
    if asked["topics"] is None:
        for topic, number in sorted(known):
            wanted.setdefault(topic, []).append(number)
    for each in asked["topics"] or ():
        name = each.get("name")
        if version >= BY_ID_SINCE:
            found = broker.catalogue.topic_by_id(each["topicId"])
            if found is None:
                unknown.append(_unknown(each))
                continue
            name = found.name
        wanted.setdefault(str(name), []).extend(each["partitionIndexes"])
    return wanted, unknown


def _unknown(asked: dict[str, Any]) -> dict[str, Any]:
    code = ErrorCode.UNKNOWN_TOPIC_ID
    numbers = asked["partitionIndexes"]
    offsets = [_offset(each, None, is_stable=False, code=code) for each in numbers]
    return {"topicId": asked["topicId"], "partitions": offsets}


def _offset(
    number: int, known: KnownOffset | None, *, is_stable: bool, code: ErrorCode = ErrorCode.NONE
) -> dict[str, Any]:
    if known is not None and known.is_pending and is_stable:
        known, code = None, ErrorCode.UNSTABLE_OFFSET_COMMIT
    known = known or NOTHING
    return {
        "partitionIndex": number,
        "committedOffset": known.offset,
        "committedLeaderEpoch": known.leader_epoch,
        "metadata": known.metadata,
        "errorCode": code,
    }


class _Reported(NamedTuple):
    """A group as ListGroups shows it."""

    name: str
    protocol_type: str
    state: str
    kind: str


def _listed(broker: VirtualBroker) -> Iterator[_Reported]:
    log, own = broker.catalogue.groups(), broker.members.groups
    for name in sorted(log.living() | {*own}):
        here = own.get(name)
        dead = log.groups.get(name)
        if here is not None and (here.members or dead is None):
            yield _Reported(
                name=name, protocol_type=here.protocol_type, state=here.state, kind="classic"
            )
        elif dead is not None:
            kind = dead.kind
            is_classic = kind is GroupKind.CLASSIC
            yield _Reported(
                name=name,
                protocol_type=dead.protocol_type if is_classic else kind.value.lower(),
                state=dead.state or "Unknown",
                kind=kind.value.lower(),
            )


def list_groups(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer ListGroups."""
    states = {each.lower() for each in request.body.get("statesFilter", ())}
    kinds = {each.lower() for each in request.body.get("typesFilter", ())}
    if not broker.catalogue.may_list_groups():
        return {"errorCode": ErrorCode.UNKNOWN_SERVER_ERROR, "groups": []}
    return {
        "groups": [
            {
                "groupId": each.name,
                "protocolType": each.protocol_type,
                "groupState": each.state,
                "groupType": each.kind,
            }
            for each in _listed(broker)
            if (not states or each.state.lower() in states) and (not kinds or each.kind in kinds)
        ]
    }


def describe_groups(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer DescribeGroups, for classic groups here and of the dead cluster."""
    wants = request.body.get("includeAuthorizedOperations")
    operations = GROUP_OPERATIONS if wants else NOT_REQUESTED
    log = broker.catalogue.groups()
    groups = []
    for name in request.body["groups"]:
        here, dead = broker.members.groups.get(name), log.groups.get(name)
        if here is not None and (here.members or dead is None):
            described = _here(here)
        elif not broker.catalogue.may_report_of_group(name):
            described = {"errorCode": ErrorCode.UNKNOWN_SERVER_ERROR, "errorMessage": UNREADABLE}
        elif dead is not None and dead.kind is GroupKind.CLASSIC and name in log.living():
            described = _dead(dead)
        else:
            is_reported = request.version >= NOT_FOUND_SINCE
            described = {
                "errorCode": ErrorCode.GROUP_ID_NOT_FOUND if is_reported else ErrorCode.NONE,
                "errorMessage": f"Group {name} not found." if dead is None
                else f"Group {name} is not a classic group.",
                "groupState": "Dead",
            }  # fmt: skip
        groups.append({"groupId": name, **described, "authorizedOperations": operations})
    return {"groups": groups}


def _here(group: Group) -> dict[str, Any]:
    state, protocol = group.state, group.protocol
    is_stable = state == "Stable"
    return {
        "groupState": state,
        "protocolType": group.protocol_type,
        "protocolData": protocol if is_stable else "",
        "members": [
            {
                "memberId": key,
                "groupInstanceId": each.asked.instance_id,
                "clientId": each.asked.client_id,
                "clientHost": each.asked.host,
                "memberMetadata": each.asked.protocols.get(protocol, b"") if is_stable else b"",
                "memberAssignment": each.assignment,
            }
            for key, each in group.members.copy().items()  # members join and leave meanwhile
        ],
    }


def _dead(group: GroupState) -> dict[str, Any]:
    return {
        "groupState": group.state or "Unknown",
        "protocolType": group.protocol_type,
        "protocolData": (group.protocol or "") if group.members else "",
        "members": [
            {
                "memberId": each.member_id,
                "groupInstanceId": each.instance_id,
                "clientId": each.client_id or "",
                "clientHost": each.host or "",
                "memberMetadata": each.subscription,
                "memberAssignment": each.assignment,
            }
            for each in group.members.values()
        ],
    }
