"""Answers about groups of the newer protocols: consumer, share and streams groups, all dead.

The state is the state that a coordinator has loaded, before a member has sent a heartbeat. So a
topology has the partition counts of its record, and no member has reported task offsets.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from eoctl.serve.answers.groups import UNREADABLE
from eoctl.serve.answers.transactions import partition_of
from eoctl.serve.protocol.messages import ErrorCode, RequestError
from eoctl.serve.state.broker import GROUP_OPERATIONS, NOT_REQUESTED
from recovery.groups.members import GroupKind
from recovery.groups.share_states import SharePartition, ShareState
from storage.dirs.group_settings import streams_assignor
from storage.errors import AccessError
from storage.formats.message import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from eoctl.serve.state.broker import Request, VirtualBroker
    from recovery.groups.members import Assigned, GroupState, Member

    Description = Callable[[VirtualBroker, GroupState], dict[str, Any]]

CONSUMER_ASSIGNOR, SHARE_ASSIGNOR = "uniform", "simple"  # of a broker by default
OLDER_PROTOCOL, NEWER_PROTOCOL = 0, 1
# The feature without which a broker answers nothing about a kind of group.
FEATURES = {GroupKind.SHARE: "share.version", GroupKind.STREAMS: "streams.version"}
NOT_STORED = 1  # the description of a topology is in a plugin of the broker
NO_OFFSET, NO_LAG = -1, -1


def consumer_group_describe(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer ConsumerGroupDescribe."""
    return _answer(broker, request, GroupKind.CONSUMER, _consumer_group)


def share_group_describe(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer ShareGroupDescribe."""
    return _answer(broker, request, GroupKind.SHARE, _share_group)


def streams_group_describe(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer StreamsGroupDescribe. A broker without plugin has no description of a topology."""
    found = _answer(broker, request, GroupKind.STREAMS, _streams_group)
    if request.body.get("includeTopologyDescription"):
        for each in found["groups"]:
            if "errorCode" not in each:
                each["topologyDescriptionStatus"] = NOT_STORED
    return found


def _answer(
    broker: VirtualBroker, request: Request, kind: GroupKind, describe: Description
) -> dict[str, Any]:
    wants = request.body["includeAuthorizedOperations"]
    groups = []
    for name in request.body["groupIds"]:
        found = {"groupId": name}
        try:
            found |= describe(broker, _known(broker, name, kind))
            found["authorizedOperations"] = GROUP_OPERATIONS if wants else NOT_REQUESTED
        except RequestError as exc:
            found |= {"errorCode": exc.code, "errorMessage": exc.message or None}
        groups.append(found)
    return {"groups": groups}


def _known(broker: VirtualBroker, name: str, kind: GroupKind) -> GroupState:
    """Return a group of a kind. Raises RequestError: it is unknown, or of another kind."""
    log = broker.catalogue.groups()
    group = log.groups.get(name)
    if group is None or group.kind is not kind:
        _require_feature(broker, kind)
    if not name:
        raise RequestError(ErrorCode.INVALID_GROUP_ID)
    if not broker.catalogue.may_report_of_group(name):
        raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, UNREADABLE)
    if group is None or name not in log.living():
        raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found.")
    if group.kind is not kind:
        words = f"Group {name} is not a {kind.value.lower()} group."
        raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, words)
    return group


def _require_feature(broker: VirtualBroker, kind: GroupKind) -> None:
    """Require that the cluster has enabled a kind of groups, as far as its metadata are here."""
    image = broker.catalogue.image
    feature = FEATURES.get(kind)
    if feature is not None and image is not None and not image.features.get(feature):
        words = f"{feature} is 0: this cluster has no {kind.value.lower()} groups"
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION, words)


def _described(group: GroupState) -> dict[str, Any]:
    """Return the fields that all kinds of groups have."""
    return {
        "groupState": group.state or "Unknown",
        "groupEpoch": group.epoch or 0,
        "assignmentEpoch": group.target_epoch or 0,
    }


def _described_member(member: Member) -> dict[str, Any]:
    return {
        "memberId": member.member_id,
        "instanceId": member.instance_id,
        "rackId": member.rack_id,
        "memberEpoch": member.epoch or 0,
        "clientId": member.client_id or "",
        "clientHost": member.host or "",
        "subscribedTopicNames": list(member.topic_names),
    }


def _assignment(broker: VirtualBroker, assigned: Iterable[Assigned]) -> dict[str, Any]:
    """Return partitions by topic, without topics that the cluster does not have."""
    by_id: dict[bytes, set[int]] = {}
    for each in assigned:
        if isinstance(each.topic, bytes):
            by_id.setdefault(each.topic, set()).update(each.partitions)
    named = ((broker.catalogue.name_of(topic_id), topic_id) for topic_id in by_id)
    return {
        "topicPartitions": [
            {"topicId": topic_id, "topicName": name, "partitions": sorted(by_id[topic_id])}
            for name, topic_id in named
            if name is not None
        ]
    }


# -- consumer groups


def _consumer_group(broker: VirtualBroker, group: GroupState) -> dict[str, Any]:
    members = group.members.values()
    return {
        **_described(group),
        "assignorName": _assignor(members),
        "members": [_consumer(broker, each) for each in members],
    }


def _assignor(members: Iterable[Member]) -> str:
    """Return the assignor that most members request, or else a broker's default assignor."""
    wanted = Counter(each.server_assignor for each in members if each.server_assignor)
    return str(wanted.most_common(1)[0][0]) if wanted else CONSUMER_ASSIGNOR


def _consumer(broker: VirtualBroker, member: Member) -> dict[str, Any]:
    return {
        **_described_member(member),
        "subscribedTopicRegex": member.topic_regex,
        "assignment": _assignment(broker, (*member.assigned, *member.revoking)),
        "targetAssignment": _assignment(broker, member.planned),
        "memberType": OLDER_PROTOCOL if member.is_classic else NEWER_PROTOCOL,
    }


# -- share groups, and their offsets


def _share_group(broker: VirtualBroker, group: GroupState) -> dict[str, Any]:
    return {
        **_described(group),
        "assignorName": SHARE_ASSIGNOR,
        "members": [
            {**_described_member(each), "assignment": _assignment(broker, each.assigned)}
            for each in group.members.values()
        ],
    }


def describe_share_group_offsets(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer DescribeShareGroupOffsets: requested partitions, or all initialized partitions."""
    groups = []
    for asked in request.body["groups"]:
        found = {"groupId": asked["groupId"], "topics": []}
        try:
            found["topics"] = _share_offsets(broker, asked["groupId"], asked["topics"])
        except RequestError as exc:
            found |= {"errorCode": exc.code, "errorMessage": exc.message}
        groups.append(found)
    return {"groups": groups}


def _share_offsets(
    broker: VirtualBroker, name: str, asked: Iterable[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    """Return the offsets of a group, which need not exist if partitions are requested."""
    catalogue = broker.catalogue
    group = catalogue.groups().groups.get(name)
    if group is None or group.kind is not GroupKind.SHARE:
        _require_feature(broker, GroupKind.SHARE)
    wanted: list[tuple[str, bytes | None, Iterable[int]]] = []
    if asked is None:
        if not catalogue.may_report_of_group(name):
            raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, UNREADABLE)
        for each in () if group is None else group.shared:
            topic_id = each.topic if isinstance(each.topic, bytes) else ZERO_UUID
            topic = catalogue.name_of(topic_id)
            if topic is not None:
                wanted.append((topic, topic_id, each.partitions))
    for topic_asked in asked or ():
        topic = topic_asked["topicName"]
        wanted.append((topic, catalogue.id_of(topic), topic_asked["partitions"]))
    if not name and any(topic_id is not None for _, topic_id, _ in wanted):
        raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "a group needs a name")
    return [
        {
            "topicName": topic,
            "topicId": topic_id or ZERO_UUID,
            "partitions": [_share_offset(broker, name, topic, topic_id, each) for each in numbers],
        }
        for topic, topic_id, numbers in wanted
    ]


def _share_offset(
    broker: VirtualBroker, group: str, topic: str, topic_id: bytes | None, number: int
) -> dict[str, Any]:
    """Return the answer about a partition. Its lag is unknown without a complete count."""
    found: dict[str, Any] = {"partitionIndex": number, "startOffset": NO_OFFSET, "lag": NO_LAG}
    if topic_id is None:
        return found
    key = SharePartition(group, topic_id, number)
    if not broker.catalogue.may_report_of_share(key):
        return {**found, "errorCode": ErrorCode.UNKNOWN_SERVER_ERROR, "errorMessage": UNREADABLE}
    state = broker.catalogue.shares().states.get(key, ShareState())
    known = {**found, "startOffset": state.start_offset, "leaderEpoch": state.leader_epoch}
    if state.start_offset == NO_OFFSET or state.complete_count < 0:
        return known
    try:
        end_offset = partition_of(broker, topic, number).log.bounds().end_offset
    except RequestError as exc:
        return {**found, "startOffset": 0, "errorCode": exc.code, "errorMessage": exc.message}
    except AccessError as exc:
        code = ErrorCode.KAFKA_STORAGE_ERROR
        return {**found, "startOffset": 0, "errorCode": code, "errorMessage": str(exc)}
    return {**known, "lag": end_offset - state.start_offset - state.complete_count}


# -- streams groups


def _streams_group(broker: VirtualBroker, group: GroupState) -> dict[str, Any]:
    topology = group.topology
    return {
        **_described(group),
        "topology": None if topology is None else _topology(topology),
        "assignorName": streams_assignor(broker.catalogue.image, group.group),
        "members": [_streams_member(each) for each in group.members.values()],
    }


def _topology(topology: Mapping[str, Any]) -> dict[str, Any]:
    """Return a topology, with all lists in order, as a broker gives them."""
    return {
        "epoch": topology["epoch"],
        "subtopologies": [
            {
                "subtopologyId": each["subtopologyId"],
                "sourceTopics": sorted(each["sourceTopics"]),
                "repartitionSinkTopics": sorted(each["repartitionSinkTopics"]),
                "stateChangelogTopics": sorted(each["stateChangelogTopics"], key=_name),
                "repartitionSourceTopics": sorted(each["repartitionSourceTopics"], key=_name),
            }
            for each in sorted(topology["subtopologies"], key=lambda each: each["subtopologyId"])
        ],
    }


def _name(topic: Mapping[str, Any]) -> str:
    return str(topic["name"])


def _streams_member(member: Member) -> dict[str, Any]:
    client = member.client or {}
    return {
        **_described_member(member),
        "topologyEpoch": client.get("topologyEpoch", 0),
        "processId": client.get("processId", ""),
        "userEndpoint": client.get("userEndpoint"),
        "clientTags": client.get("clientTags", []),
        "assignment": _tasks(member.tasks or {}),
        "targetAssignment": _tasks(member.planned_tasks or {}),
    }


def _tasks(tasks: Mapping[str, Any]) -> dict[str, Any]:
    return {
        kind: [
            {"subtopologyId": each["subtopologyId"], "partitions": sorted(each["partitions"])}
            for each in sorted(tasks.get(kind, ()), key=lambda each: each["subtopologyId"])
        ]
        for kind in ("activeTasks", "standbyTasks", "warmupTasks")
    }
