"""Answers about transactions: DescribeProducers, ListTransactions, DescribeTransactions.

Producers are the producers that a broker knows after its next start. Transactions have the state of
the newest records of the coordinators. Open transactions stay open, so that `kafka-transactions.sh
find-hanging` finds them.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.serve.protocol.messages import ErrorCode, RequestError
from storage.errors import AccessError, EoctlError
from storage.file_names import is_topic_name
from storage.formats.transaction_state import TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.serve.state.broker import Request, VirtualBroker
    from eoctl.serve.state.catalogue import ServedPartition
    from recovery.cluster.coordinator_log import IdRecord
    from recovery.replay.recover_state import RecoveredState
    from storage.formats.transaction_state import TransactionState


def describe_producers(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer DescribeProducers."""
    # Imported here because numpy loads slowly. The first batch is sent a third sooner without it.
    from recovery.replay.recover_state import recover_state
    from recovery.replay.snapshots import Clock

    never_expires = Clock(0)
    topics = []
    for topic in request.body["topics"]:
        answers = []
        for number in topic["partitionIndexes"]:
            answer: dict[str, Any] = {"partitionIndex": number, "activeProducers": []}
            try:
                _require_topic_name(topic["name"])
                served = partition_of(broker, topic["name"], number)
                state = recover_state(served.log.partition, never_expires)
                answer["activeProducers"] = list(_producers(state))
                _report_what_lacks(broker, f"{topic['name']}-{number}", state)
            except RequestError as exc:
                answer |= {"errorCode": exc.code, "errorMessage": exc.message}
            except EoctlError as exc:
                answer |= {"errorCode": ErrorCode.KAFKA_STORAGE_ERROR, "errorMessage": str(exc)}
            answers.append(answer)
        topics.append({"name": topic["name"], "partitions": answers})
    return {"topics": topics}


def _require_topic_name(name: str) -> None:
    if not is_topic_name(name):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
        raise RequestError(code, f"Topic name is invalid: {name!r}")


def _report_what_lacks(broker: VirtualBroker, name: str, state: RecoveredState) -> None:
    """Report why the list of producers is incomplete, for example because of remote segments."""
    is_whole = state.started_from is not None and not state.has_bad_snapshot
    for each in state.notes if not is_whole or state.is_lacking else ():
        broker.catalogue.report_once(f"{name}: its list of producers is not whole: {each}")


def _producers(state: RecoveredState) -> Iterator[dict[str, Any]]:
    for each in state.entries:
        yield {
            "producerId": each.producer_id,
            "producerEpoch": each.producer_epoch,
            "lastSequence": each.last_sequence,
            "lastTimestamp": each.timestamp_ms,
            "coordinatorEpoch": each.coordinator_epoch,
            "currentTxnStartOffset": each.current_txn_first_offset,
        }


def _known(broker: VirtualBroker) -> Iterator[tuple[IdRecord, TransactionState]]:
    ids = broker.catalogue.coordinators().ids
    for name in sorted(ids):
        state = ids[name].state
        if state is not None:
            yield ids[name], state


def list_transactions(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer ListTransactions."""
    body = request.body
    labels = {each.label for each in TransactionStatus}
    states, producer_ids = {*body["stateFilters"]}, {*body["producerIdFilters"]}
    min_age_ms = body.get("durationFilter", -1)
    pattern = body.get("transactionalIdPattern") or ""
    try:
        wanted = re.compile(pattern)
    except re.error:
        return {"errorCode": ErrorCode.INVALID_REGULAR_EXPRESSION}
    if not broker.catalogue.may_list_transactional_ids():
        return {"errorCode": ErrorCode.UNKNOWN_SERVER_ERROR}
    now_ms = time.time() * 1000
    found = []
    for record, state in _known(broker):
        label = state.status.label
        age_ms = (
            now_ms - state.start_timestamp_ms
        )  # -1 (never started) counts as old, as in a broker
        if (
            (states and label not in states)
            or (producer_ids and state.producer_id not in producer_ids)
            or (min_age_ms >= 0 and age_ms <= min_age_ms)
            or (pattern and wanted.fullmatch(record.transactional_id) is None)
        ):
            continue
        found.append(
            {
                "transactionalId": record.transactional_id,
                "producerId": state.producer_id,
                "transactionState": label,
            }
        )
    return {"transactionStates": found, "unknownStateFilters": sorted(states - labels)}


def describe_transactions(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer DescribeTransactions."""
    ids = broker.catalogue.coordinators().ids
    found = []
    for name in request.body["transactionalIds"]:
        record = ids.get(name)
        if name and not broker.catalogue.may_report_of_transactional_id(name):
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            found.append({"transactionalId": name, "errorCode": code})
            continue
        if record is None or record.state is None:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if name else ErrorCode.INVALID_REQUEST
            found.append({"transactionalId": name, "errorCode": code})
            continue
        state = record.state
        topics: dict[str, list[int]] = {}
        for topic, number in state.partitions or ():
            topics.setdefault(topic, []).append(number)
        found.append(
            {
                "transactionalId": name,
                "transactionState": state.status.label,
                "transactionTimeoutMs": state.timeout_ms,
                "transactionStartTimeMs": state.start_timestamp_ms,
                "producerId": state.producer_id,
                "producerEpoch": state.producer_epoch,
                "topics": [
                    {"topic": topic, "partitions": sorted(numbers)}
                    for topic, numbers in topics.items()
                ],
            }
        )
    return {"transactionStates": found}


# -- answers about offsets: ListOffsets and OffsetForLeaderEpoch


LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
READ_COMMITTED = 1
UNKNOWN = -1
# Special timestamps -> the first version that supports them.
KNOWN_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class FoundOffset(NamedTuple):
    """An offset, the time of its record (-1: none) and its leader epoch (-1: unknown)."""

    offset: int = UNKNOWN
    timestamp_ms: int = UNKNOWN
    leader_epoch: int = UNKNOWN


def require_epoch(found: ServedPartition, epoch: int) -> None:
    """Require that a client knows the current leader epoch. -1: the client does not check.

    Raises:
        RequestError: the client's epoch is not the current epoch.
    """
    ours = found.leader_epoch
    if epoch < 0 or epoch == ours or ours < 0:
        return
    raise RequestError(
        ErrorCode.FENCED_LEADER_EPOCH if epoch < ours else ErrorCode.UNKNOWN_LEADER_EPOCH
    )


def partition_of(broker: VirtualBroker, topic: str, number: int) -> ServedPartition:
    """Return a partition. Raises RequestError: it is not on disk."""
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
        # As in a broker, the log start offset may be inside that batch.
        timestamp, min_offset = log.max_timestamp_ms(), 0
        if timestamp < 0:
            return FoundOffset()
    place = log.find_timestamp(timestamp, min_offset)
    if place is None or place.offset >= end_offset:
        return FoundOffset()
    epoch = place.place.batch.header.partition_leader_epoch
    return FoundOffset(place.offset, place.timestamp_ms, leader_epoch=epoch)


def offset_for_leader_epoch(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer OffsetForLeaderEpoch with the end offset of an epoch."""
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
