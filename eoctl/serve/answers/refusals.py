"""Refusals of requests that would write or that need a password, with the error code of each API.

The connection is never closed for them, because clients would retry forever. Each client gets the
error that its own API defines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eoctl.serve.protocol.messages import CutOffError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eoctl.serve.state.broker import Request, VirtualBroker

READ_ONLY = "eoctl serve shows a dead broker's directory. Nothing can be changed"
NOT_HERE = "not answered by eoctl serve"
TOPIC_RESOURCE = 2


def _top(code: ErrorCode, **fields: Any) -> Callable[[VirtualBroker, Request], dict[str, Any]]:
    """Return a function that answers an API with one error for the whole request."""

    def refuse(_broker: VirtualBroker, _request: Request) -> dict[str, Any]:
        return {"errorCode": code, "errorMessage": READ_ONLY, **fields}

    return refuse


def _each(
    asked: Iterable[dict[str, Any]], code: ErrorCode, *names: str, **fields: Any
) -> list[dict[str, Any]]:
    """Return an error for each requested item, with the names that identify the item."""
    return [
        {
            **{name: each[name] for name in names if name in each},
            "errorCode": code,
            "errorMessage": READ_ONLY,
            **fields,
        }
        for each in asked
    ]


def produce(_broker: VirtualBroker, request: Request) -> dict[str, Any] | None:
    """Refuse records. A request without acknowledgement (acks=0) gets no answer.

    Raises:
        CutOffError: a request with acks=0 has records. The client would not learn that they are
            lost, so the connection is closed, as by a broker.
    """
    if request.body["acks"] == 0:
        if any(each["partitionData"] for each in request.body["topicData"]):
            raise CutOffError("Produce wants no answer, and cannot get a refusal")
        return None
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return {
        "responses": [
            {
                "name": topic.get("name"),
                "topicId": topic.get("topicId", bytes(16)),
                "partitionResponses": _each(topic["partitionData"], code, "index", baseOffset=-1),
            }
            for topic in request.body["topicData"]
        ]
    }


def create_topics(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse to create topics."""
    return {"topics": _each(request.body["topics"], ErrorCode.POLICY_VIOLATION, "name")}


def delete_topics(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse to delete topics, by name or by id."""
    body = request.body
    asked = body.get("topics") or [{"name": each} for each in body.get("topicNames", ())]
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return {"responses": _each(asked, code, "name", "topicId")}


def delete_records(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse to move log start offsets."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": _each(topic["partitions"], code, "partitionIndex", lowWatermark=-1),
            }
            for topic in request.body["topics"]
        ]
    }


def init_producer_id(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse producer ids."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if request.body["transactionalId"] is not None:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return {"errorCode": code, "producerId": -1, "producerEpoch": -1}


def add_partitions_to_txn(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse to add partitions to a transaction, or to several if a broker requests it."""
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    def results(topics: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {
                "name": topic["name"],
                "resultsByPartition": [
                    {"partitionIndex": number, "partitionErrorCode": code}
                    for number in topic["partitions"]
                ],
            }
            for topic in topics
        ]

    return {
        "resultsByTopicV3AndBelow": results(request.body.get("v3AndBelowTopics", ())),
        "resultsByTransaction": [
            {"transactionalId": each["transactionalId"], "topicResults": results(each["topics"])}
            for each in request.body.get("transactions", ())
        ],
    }


def write_txn_markers(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse transaction markers."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return {
        "markers": [
            {
                "producerId": marker["producerId"],
                "topics": [
                    {
                        "name": topic["name"],
                        "partitions": [
                            {"partitionIndex": number, "errorCode": code}
                            for number in topic["partitionIndexes"]
                        ],
                    }
                    for topic in marker["topics"]
                ],
            }
            for marker in request.body["markers"]
        ]
    }


def txn_offset_commit(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse offsets of a transaction."""
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return {
        "topics": [
            {
                **{name: topic[name] for name in ("name", "topicId") if name in topic},
                "partitions": _each(topic["partitions"], code, "partitionIndex"),
            }
            for topic in request.body["topics"]
        ]
    }


def create_acls(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse to create ACLs, as a broker without an authorizer does."""
    return {"results": _each(request.body["creations"], ErrorCode.SECURITY_DISABLED)}


def delete_acls(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse to delete ACLs, as a broker without an authorizer does."""
    code = ErrorCode.SECURITY_DISABLED
    return {"filterResults": _each(request.body["filters"], code, matchingAcls=[])}


def alter_configs(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse settings."""
    found = _each(
        request.body["resources"], ErrorCode.POLICY_VIOLATION, "resourceType", "resourceName"
    )
    return {"responses": found}


def alter_replica_log_dirs(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse to move replicas."""
    topics = [each for log_dir in request.body["dirs"] for each in log_dir["topics"]]
    return {
        "results": [
            {
                "topicName": topic["name"],
                "partitions": [
                    {
                        "partitionIndex": number,
                        "errorCode": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                    }
                    for number in topic["partitions"]
                ],
            }
            for topic in topics
        ]
    }


def create_partitions(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse to add partitions."""
    return {"results": _each(request.body["topics"], ErrorCode.POLICY_VIOLATION, "name")}


def delete_groups(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse to delete groups."""
    return {
        "results": [
            {"groupId": each, "errorCode": _GROUP, "errorMessage": READ_ONLY}
            for each in request.body["groupsNames"]
        ]
    }


def elect_leaders(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse elections."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return {
        "errorCode": code,
        "replicaElectionResults": [
            {
                "topic": topic["topic"],
                "partitionResult": [
                    {"partitionId": number, "errorCode": code, "errorMessage": READ_ONLY}
                    for number in topic["partitions"]
                ],
            }
            for topic in request.body["topicPartitions"] or ()
        ],
    }


def alter_client_quotas(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse quotas."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return {"entries": _each(request.body["entries"], code, "entity")}


def alter_user_scram_credentials(_broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Refuse credentials."""
    body = request.body
    users = dict.fromkeys(each["name"] for each in [*body["deletions"], *body["upsertions"]])
    return {
        "results": [
            {
                "user": each,
                "errorCode": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "errorMessage": READ_ONLY,
            }
            for each in users
        ]
    }


def _no_reassignments(_broker: VirtualBroker, _request: Request) -> dict[str, Any]:
    return {"errorMessage": None, "topics": []}


_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_TOKENS = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
REFUSALS: dict[int, Callable[[VirtualBroker, Request], dict[str, Any] | None]] = {
    0: produce,
    17: _top(ErrorCode.ILLEGAL_SASL_STATE),
    19: create_topics,
    20: delete_topics,
    21: delete_records,
    22: init_producer_id,
    24: add_partitions_to_txn,
    25: _top(_TRANSACTION),
    26: _top(_TRANSACTION, producerId=-1, producerEpoch=-1),
    27: write_txn_markers,
    28: txn_offset_commit,
    30: create_acls,
    31: delete_acls,
    33: alter_configs,
    34: alter_replica_log_dirs,
    36: _top(ErrorCode.ILLEGAL_SASL_STATE),
    37: create_partitions,
    38: _top(_TOKENS),
    39: _top(_TOKENS),
    40: _top(_TOKENS),
    41: _top(_TOKENS),
    42: delete_groups,
    43: elect_leaders,
    44: alter_configs,
    45: _top(_CLUSTER),
    46: _no_reassignments,
    47: _top(_GROUP),
    49: alter_client_quotas,
    51: alter_user_scram_credentials,
    57: _top(_CLUSTER),
    64: _top(_CLUSTER),
    80: _top(_CLUSTER),
    81: _top(_CLUSTER),
    91: _top(_GROUP),
    92: _top(_GROUP),
    94: _top(_CLUSTER),
}
# Answered but not advertised in ApiVersions. Clients would use these APIs if they saw them.
UNOFFERED: dict[int, Callable[[VirtualBroker, Request], dict[str, Any] | None]] = {
    key: _top(ErrorCode.UNSUPPORTED_VERSION) for key in (68, 71, 72, 76, 78, 79, 88, 93)
}
