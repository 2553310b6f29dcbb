"""Answers about offsets: ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.serve.protocol.errors import ErrorCode, RequestError
from storage.errors import AccessError

if TYPE_CHECKING:
    from eoctl.serve.state.broker import Request, VirtualBroker
    from eoctl.serve.state.catalogue import ServedPartition

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
READ_COMMITTED = 1
UNKNOWN = -1
# Special timestamps -> the first version that knows them.
KNOWN_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class FoundOffset(NamedTuple):
    """An offset, with the time of its record (-1: none) and its leader epoch (-1: not known)."""

    offset: int = UNKNOWN
    timestamp_ms: int = UNKNOWN
    leader_epoch: int = UNKNOWN


def require_epoch(found: ServedPartition, epoch: int) -> None:
    """See that a client knows the leader epoch; -1: it does not ask.

    Raises:
        RequestError: it knows another one.
    """
    ours = found.leader_epoch
    if epoch < 0 or epoch == ours or ours < 0:
        return
    raise RequestError(
        ErrorCode.FENCED_LEADER_EPOCH if epoch < ours else ErrorCode.UNKNOWN_LEADER_EPOCH
    )


def partition_of(broker: VirtualBroker, topic: str, number: int) -> ServedPartition:
    """Return a partition. Raises RequestError: it is not here."""
    found = broker.catalogue.find(topic, number)
    if found is not None:
        return found
    known = broker.catalogue.topics.get(topic)
    if known is not None and number in known.partitions:
        raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    words = "This server does not host this topic-partition." if known is None else ""
    raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, words)


def list_offsets(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer ListOffsets."""
    is_committed = request.body.get("isolationLevel", 0) == READ_COMMITTED
    is_committed = is_committed or broker.catalogue.rules.is_committed_only
    topics = []
    for topic in request.body["topics"]:
        answers = []
        for asked in topic["partitions"]:
            code, found = ErrorCode.NONE, FoundOffset()
            try:
                if asked["timestamp"] < 0:
                    _require_known(asked["timestamp"], request.version)
                served = partition_of(broker, topic["name"], asked["partitionIndex"])
                require_epoch(served, asked.get("currentLeaderEpoch", UNKNOWN))
                found = _find(served, asked["timestamp"], is_committed=is_committed)
            except RequestError as exc:
                code = exc.code
            except AccessError:
                code = ErrorCode.KAFKA_STORAGE_ERROR
            answers.append(
                {
                    "partitionIndex": asked["partitionIndex"],
                    "errorCode": code,
                    "timestamp": found.timestamp_ms,
                    "offset": found.offset,
                    "leaderEpoch": found.leader_epoch,
                }
            )
        topics.append({"name": topic["name"], "partitions": answers})
    return {"topics": topics}


def _require_known(timestamp: int, version: int) -> None:
    if timestamp in (LATEST, EARLIEST):
        return
    if version < KNOWN_SINCE.get(timestamp, version + 1):
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION)


def _find(served: ServedPartition, timestamp: int, *, is_committed: bool) -> FoundOffset:
    log = served.log
    bounds = log.bounds()
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return FoundOffset(bounds.start_offset, leader_epoch=log.epoch_of(bounds.start_offset))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return FoundOffset()
    end_offset = log.stable_end_offset() if is_committed else bounds.end_offset
    if timestamp == LATEST:
        return FoundOffset(end_offset, leader_epoch=served.leader_epoch)
    min_offset = bounds.start_offset
    if timestamp == MAX_TIMESTAMP:
        # A broker does not mind that a log may begin in the middle of that batch.
        timestamp, min_offset = log.max_timestamp_ms(), 0
        if timestamp < 0:
            return FoundOffset()
    place = log.find_timestamp(timestamp, min_offset)
    if place is None or place.offset >= end_offset:
        return FoundOffset()
    epoch = place.place.batch.header.partition_leader_epoch
    return FoundOffset(place.offset, place.timestamp_ms, leader_epoch=epoch)


def offset_for_leader_epoch(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer OffsetForLeaderEpoch: where an epoch ends."""
    topics = []
    for topic in request.body["topics"]:
        answers = []
        for asked in topic["partitions"]:
            answer: dict[str, Any] = {"partition": asked["partition"]}
            try:
                served = partition_of(broker, topic["topic"], asked["partition"])
                require_epoch(served, asked["currentLeaderEpoch"])
                end = served.log.epoch_end(asked["leaderEpoch"], served.leader_epoch)
                if end is not None:
                    answer |= {"leaderEpoch": end.epoch, "endOffset": end.end_offset}
            except RequestError as exc:
                answer["errorCode"] = exc.code
            except AccessError:
                answer["errorCode"] = ErrorCode.KAFKA_STORAGE_ERROR
            answers.append(answer)
        topics.append({"topic": topic["topic"], "partitions": answers})
    return {"topics": topics}
