"""Answers about the cluster: Metadata, DescribeCluster, DescribeQuorum, DescribeTopicPartitions.

The virtual broker leads every partition on disk. Partitions that only the metadata list have no
leader.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from eoctl.serve.protocol.messages import ErrorCode, RequestError
from eoctl.serve.state.broker import (
    CLUSTER_OPERATIONS,
    NOT_REQUESTED,
    TOPIC_OPERATIONS,
    Request,
    VirtualBroker,
)
from recovery.cluster.clusters import counted_to, metadata_copies, voters_of
from storage.errors import AccessError
from storage.file_names import METADATA_TOPIC, is_topic_name
from storage.formats.message import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eoctl.serve.state.catalogue import ServedPartition, Topic


NO_LEADER = -1
NOT_KNOWN_OFFSET = -1
ENDPOINT_OF_BROKERS = 1


def metadata(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer Metadata."""
    body, catalogue = request.body, broker.catalogue
    asked = body["topics"]
    if asked is None or (request.version == 0 and not asked):
        topics = [_described(broker, each) for each in catalogue.topics.values()]
    else:
        topics = [_asked(broker, each) for each in asked]
    for each in topics:
        wants = body.get("includeTopicAuthorizedOperations")
        is_known = each["errorCode"] == ErrorCode.NONE
        each["topicAuthorizedOperations"] = (
            TOPIC_OPERATIONS if wants and is_known else NOT_REQUESTED
        )
    wants = body.get("includeClusterAuthorizedOperations")
    return {
        "brokers": [node(broker, request)],
        "clusterId": catalogue.cluster_id,
        "controllerId": broker.node_id,
        "topics": topics,
        "clusterAuthorizedOperations": CLUSTER_OPERATIONS if wants else NOT_REQUESTED,
    }


def node(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Return the entry of this broker, with the address at which the client reached it."""
    return {"nodeId": broker.node_id, "host": request.client.host, "port": request.client.port}


def _asked(broker: VirtualBroker, asked: dict[str, Any]) -> dict[str, Any]:
    name, topic_id = asked["name"], asked.get("topicId", ZERO_UUID)
    if topic_id != ZERO_UUID:
        topic = broker.catalogue.topic_by_id(topic_id)
        code = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = broker.catalogue.topics.get(name or "")
        is_possible = name is not None and is_topic_name(name)
        code = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if is_possible
            else ErrorCode.INVALID_TOPIC_EXCEPTION
        )
    if topic is None:
        return {"errorCode": code, "name": name, "topicId": topic_id, "partitions": []}
    return _described(broker, topic)


def _described(broker: VirtualBroker, topic: Topic) -> dict[str, Any]:
    return {
        "errorCode": ErrorCode.NONE,
        "name": topic.name,
        "topicId": topic.topic_id,
        "isInternal": topic.is_internal,
        "partitions": [
            _partition(broker, number, each) for number, each in topic.partitions.items()
        ],
    }


def _partition(broker: VirtualBroker, number: int, found: ServedPartition | None) -> dict[str, Any]:
    """Return the entry of a partition. A partition that is not on disk has no leader."""
    code, leader, replicas, epoch = ErrorCode.NONE, broker.node_id, [broker.node_id], -1
    if found is None:
        code, leader, replicas = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, []
    else:
        with suppress(AccessError):
            epoch = found.leader_epoch
    return {
        "errorCode": code,
        "partitionIndex": number,
        "leaderId": leader,
        "leaderEpoch": epoch,
        "replicaNodes": replicas,
        "isrNodes": replicas,
        "offlineReplicas": [],
    }


def describe_cluster(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer DescribeCluster."""
    body = request.body
    if body.get("endpointType", ENDPOINT_OF_BROKERS) != ENDPOINT_OF_BROKERS:
        return {
            "errorCode": ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "errorMessage": "The request was sent to an endpoint of type BROKER, but we wanted an"
            " endpoint of type CONTROLLER",
        }
    return {
        "clusterId": broker.catalogue.cluster_id or "",
        "controllerId": broker.node_id,
        "brokers": [
            {
                "brokerId": broker.node_id,
                "host": request.client.host,
                "port": request.client.port,
                "rack": None,
                "isFenced": False,
            }
        ],
        "clusterAuthorizedOperations": (
            CLUSTER_OPERATIONS if body["includeClusterAuthorizedOperations"] else NOT_REQUESTED
        ),
    }


def describe_quorum(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer DescribeQuorum: the dead controllers, by the newest copy of the metadata log."""
    catalogue = broker.catalogue
    asked = request.body["topics"]
    places = [(topic["topicName"], each) for topic in asked for each in topic["partitions"]]
    if [(name, each["partitionIndex"]) for name, each in places] != [(METADATA_TOPIC, 0)]:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        unknown = [
            {
                "topicName": topic["topicName"],
                "partitions": [
                    {"partitionIndex": each["partitionIndex"], "errorCode": code}
                    for each in topic["partitions"]
                ],
            }
            for topic in asked
        ]
        return {"errorCode": ErrorCode.NONE, "errorMessage": None, "topics": unknown}
    copies, problems = metadata_copies(catalogue.metadata)
    image = catalogue.image
    if image is None or not copies:
        why = problems[0] if problems else f"no {METADATA_TOPIC}-0 is here"
        return {"errorCode": ErrorCode.UNKNOWN_SERVER_ERROR, "errorMessage": why, "topics": []}
    read = next((each for each in copies if each.partition.path == image.path), copies[0])
    voters = voters_of(image, copies)
    ends = {each.node_id: each.end_offset for each in reversed(copies)}

    def replica(node_id: int) -> dict[str, Any]:
        return {
            "replicaId": node_id,
            "replicaDirectoryId": image.voter_directories.get(node_id, ZERO_UUID),
            "logEndOffset": ends.get(node_id, NOT_KNOWN_OFFSET),
        }

    partition = {
        "partitionIndex": 0,
        "errorCode": ErrorCode.NONE,
        "errorMessage": None,
        "leaderId": NO_LEADER if image.quorum_leader is None else image.quorum_leader,
        "leaderEpoch": read.epoch,
        "highWatermark": counted_to(copies, voters, image.end_offset, read=read).end_offset,
        "currentVoters": [replica(each) for each in voters],
        "observers": [replica(each) for each in sorted(image.brokers) if each not in voters],
    }
    return {
        "errorCode": ErrorCode.NONE,
        "errorMessage": None,
        "topics": [{"topicName": METADATA_TOPIC, "partitions": [partition]}],
        "nodes": [
            {
                "nodeId": node_id,
                "listeners": [endpoint._asdict() for endpoint in found.endpoints],
            }
            for node_id, found in sorted(image.controllers.items())
            if node_id in voters
        ],
    }


def describe_topic_partitions(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer DescribeTopicPartitions: topics by name, up to the requested number of partitions."""
    body, catalogue = request.body, broker.catalogue
    names = sorted(each["name"] for each in body["topics"]) or sorted(catalogue.topics)
    cursor, left = body["cursor"], max(body["responsePartitionLimit"], 1)
    if cursor is not None:
        names = [each for each in names if each >= cursor["topicName"]]
    topics: list[dict[str, Any]] = []
    for name in names:
        first = 0
        if cursor is not None and cursor["topicName"] == name:
            first = cursor["partitionIndex"]
        if not left:
            return _with_cursor(topics, name, first)
        topic = catalogue.topics.get(name)
        if topic is None:
            code = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if is_topic_name(name)
                else ErrorCode.INVALID_TOPIC_EXCEPTION
            )
            topics.append({"errorCode": code, "name": name, "partitions": []})
            continue
        numbers = [each for each in topic.partitions if each >= first]
        described = _described(broker, topic)
        wanted = set(numbers[:left])
        described["partitions"] = [
            {**each, "eligibleLeaderReplicas": [], "lastKnownElr": []}
            for each in described["partitions"]
            if each["partitionIndex"] in wanted
        ]
        described["topicAuthorizedOperations"] = TOPIC_OPERATIONS
        topics.append(described)
        if len(numbers) > left:
            return _with_cursor(topics, name, numbers[left])
        left -= len(wanted)
    return {"topics": topics, "nextCursor": None}


def _with_cursor(topics: Iterable[dict[str, Any]], name: str, number: int) -> dict[str, Any]:
    return {"topics": topics, "nextCursor": {"topicName": name, "partitionIndex": number}}


# -- answers about client quotas: DescribeClientQuotas, from the metadata
#
# No quota is enforced here.


EXACT, DEFAULT, SPECIFIED = 0, 1, 2  # match of a filter's type: that name, the default, any
IP = "ip"
TYPES = {IP, "user", "client-id"}

Entity = tuple[tuple[str, str | None], ...]


def describe_client_quotas(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer DescribeClientQuotas."""
    image = broker.catalogue.image
    quotas: dict[Entity, dict[str, float]] = {} if image is None else image.quotas
    try:
        names, types = _wanted(request.body["components"])
    except RequestError as exc:
        return {"errorCode": exc.code, "errorMessage": exc.message, "entries": None}
    return {
        "errorMessage": None,
        "entries": [
            {
                "entity": [{"entityType": kind, "entityName": name} for kind, name in entity],
                "values": [{"key": key, "value": value} for key, value in values.items()],
            }
            for entity, values in quotas.items()
            if _matches(entity, names, types, is_strict=request.body["strict"])
        ],
    }


def _wanted(components: list[dict[str, Any]]) -> tuple[dict[str, str | None], set[str]]:
    """Return the requested names by entity type, and the types of which any name matches.

    Raises:
        RequestError: the filter is invalid for any broker.
    """
    names: dict[str, str | None] = {}
    types: set[str] = set()
    for each in components:
        kind, how, name = each["entityType"], each["matchType"], each["match"]
        if not kind or kind in names or kind in types:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"type {kind!r}: empty, or twice")
        if kind not in TYPES:
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"type {kind!r} is unknown")
        if how not in (EXACT, DEFAULT, SPECIFIED) or (how == EXACT) is (name is None):
            raise RequestError(ErrorCode.INVALID_REQUEST, f"match {how} of {name!r}")
        if how == SPECIFIED:
            types.add(kind)
        else:
            names[kind] = name
    wanted = {*names, *types}
    if IP in wanted and len(wanted) > 1:
        raise RequestError(ErrorCode.INVALID_REQUEST, "an ip stands alone")
    return names, types


def _matches(
    entity: Entity, names: dict[str, str | None], types: set[str], *, is_strict: bool
) -> bool:
    own = dict(entity)
    if is_strict and len(own) != len(names) + len(types):
        return False
    return types <= own.keys() and all(
        kind in own and own[kind] == name for kind, name in names.items()
    )
