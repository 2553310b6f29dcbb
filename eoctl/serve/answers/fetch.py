"""Fetch: batches as they are in the files, with the fields that a consumer needs to read them.

No fetch sessions are kept: every request is answered for all partitions that it names. The end of a
dead log never moves. A request that finds less than `minBytes` therefore waits its full
`maxWaitMs`, because the client would otherwise repeat it at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.clients.log.log_walk import DamageError
from eoctl.serve.answers.metadata import node
from eoctl.serve.answers.transactions import READ_COMMITTED, partition_of, require_epoch
from eoctl.serve.protocol.messages import ErrorCode, RequestError
from storage.errors import AccessError
from storage.formats.message import Elsewhere
from storage.kernels.protocol import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.serve.logs.verified_batches import FilePiece, Given
    from eoctl.serve.state.broker import Request, VirtualBroker
    from eoctl.serve.state.catalogue import ServedPartition

UNKNOWN = -1
MAX_RESPONSE_BYTES = 57_671_680  # fetch.max.bytes of a broker
BY_ID_SINCE = 13
WAIT_STEP_S = 1.0  # interval at which a waiting client is checked for disconnection
NO_SESSION = 0
LEADER_SINCE = 16
NOT_KNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Fetched(NamedTuple):
    """A response to Fetch.

    Attributes:
        value: the message, without the records.
        records: the places of the records in the message and their batches, in order.
        size_bytes: size of all records.
        is_final: waiting longer would not change the response.
        partitions: the partitions with records in this response.
    """

    value: dict[str, Any]
    records: tuple[tuple[Elsewhere, Given], ...]
    size_bytes: int
    is_final: bool
    partitions: tuple[tuple[str, int], ...]

    def pieces(self) -> Iterator[tuple[int, FilePiece]]:
        """Yield each piece of records and its place in the encoded message."""
        for place, given in self.records:
            for piece in given.pieces:
                yield place.pos, piece

    def close(self) -> None:
        """Close the files of the records. Nothing is sent after this."""
        for _, given in self.records:
            given.close()


async def fetch(broker: VirtualBroker, request: Request) -> dict[str, Any] | Fetched:
    """Answer Fetch."""
    body = request.body
    if body.get("sessionId", NO_SESSION) != NO_SESSION and body["sessionEpoch"] > 0:
        return {"errorCode": ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "responses": []}
    loop = asyncio.get_running_loop()
    end_s = loop.time() + max(body["maxWaitMs"], 0) / 1000
    while True:
        changed = broker.changed
        fetched = await broker.apart(_fetch, broker, request)
        left_s = end_s - loop.time()
        if fetched.is_final or fetched.size_bytes >= body["minBytes"] or left_s <= 0:
            return fetched
        while left_s > 0 and not changed.is_set() and not request.is_gone():
            try:
                async with asyncio.timeout(min(left_s, WAIT_STEP_S)):
                    await changed.wait()
            except TimeoutError:
                left_s = end_s - loop.time()
        if not changed.is_set():
            return fetched
        fetched.close()


def _fetch(broker: VirtualBroker, request: Request) -> Fetched:
    body = request.body
    left = min(body["maxBytes"], MAX_RESPONSE_BYTES)
    records: list[tuple[Elsewhere, Given]] = []
    names: list[tuple[str, int]] = []
    is_final = not any(each["partitions"] for each in body["topics"])
    topics = []
    is_committed = body["isolationLevel"] == READ_COMMITTED
    reader = _Fetching(broker, is_committed=is_committed)
    is_follower = max(body.get("replicaId", UNKNOWN), _replica_of(body)) >= 0
    has_leader = False
    try:
        for topic in body["topics"]:
            answers = []
            for asked in topic["partitions"]:
                answer, given = reader.answer(
                    topic, asked, request.version, left, is_follower=is_follower,
                    is_needed=not records,
                )  # fmt: skip
                answers.append(answer)
                has_leader = has_leader or "currentLeader" in answer
                is_final = is_final or answer["errorCode"] != ErrorCode.NONE
                if given is not None and given.size_bytes:
                    place = Elsewhere(given.size_bytes)
                    answer["records"] = place
                    records.append((place, given))
                    names.append((reader.name_of(topic, request.version), asked["partition"]))
                    left -= given.cut_bytes
            topics.append({**topic, "partitions": answers})
    except BaseException:
        for _, given in records:
            given.close()
        raise
    return Fetched(
        value={
            "sessionId": NO_SESSION,
            "responses": topics,
            "nodeEndpoints": [node(broker, request)] if has_leader else [],
        },
        records=tuple(records),
        size_bytes=sum(each.size_bytes for each, _ in records),
        is_final=is_final,
        partitions=tuple(names),
    )


def _replica_of(body: dict[str, Any]) -> int:
    state = body.get("replicaState")
    return UNKNOWN if state is None else int(state["replicaId"])


def _empty(number: int, code: ErrorCode = ErrorCode.NONE) -> dict[str, Any]:
    """Return the answer for a partition without records."""
    return {
        "partitionIndex": number,
        "errorCode": code,
        "highWatermark": UNKNOWN,
        "lastStableOffset": UNKNOWN,
        "logStartOffset": UNKNOWN,
        "abortedTransactions": None,
        "records": b"",
    }


class _Fetching:
    """The answers for the partitions of one request, in turn."""

    def __init__(self, broker: VirtualBroker, *, is_committed: bool) -> None:
        self._broker = broker
        self._rules = broker.catalogue.rules
        self._is_committed = is_committed or self._rules.is_committed_only
        # A client that reads uncommitted records does not filter aborted ones. They are left out
        # for every client.
        self._hides = self._rules.is_committed_only

    def name_of(self, topic: dict[str, Any], version: int) -> str:
        """Return the name of a topic requested by id or by name, "" for an unknown topic."""
        if version < BY_ID_SINCE:
            return str(topic["topic"])
        found = self._broker.catalogue.topic_by_id(topic["topicId"])
        return "" if found is None else found.name

    def answer(
        self,
        topic: dict[str, Any],
        asked: dict[str, Any],
        version: int,
        left: int,
        *,
        is_follower: bool,
        is_needed: bool,
    ) -> tuple[dict[str, Any], Given | None]:
        """Return the answer for one partition. The caller inserts the records."""
        answer = _empty(asked["partition"])
        name = self.name_of(topic, version)
        try:
            served = self._served(name, asked["partition"], is_follower=is_follower)
            require_epoch(served, asked.get("currentLeaderEpoch", UNKNOWN))
            return answer, self._read(served, asked, answer, left, is_needed=is_needed)
        except RequestError as exc:
            answer = _empty(asked["partition"], exc.code)
            if exc.code in NOT_KNOWN:
                answer["abortedTransactions"] = []
            elif exc.code is ErrorCode.FENCED_LEADER_EPOCH and version >= LEADER_SINCE:
                answer["currentLeader"] = self._leader(name, asked["partition"])
        except DamageError as exc:
            is_unreadable = exc.damage.kind == VerdictKind.UNREADABLE
            answer["errorCode"] = (
                ErrorCode.KAFKA_STORAGE_ERROR if is_unreadable else ErrorCode.CORRUPT_MESSAGE
            )
            self._broker.catalogue.report_once(f"{name}-{asked['partition']}: not given: {exc}")
        except AccessError as exc:
            answer["errorCode"] = ErrorCode.KAFKA_STORAGE_ERROR
            self._broker.catalogue.report_once(str(exc))
        return answer, None

    def _leader(self, name: str, number: int) -> dict[str, int]:
        found = self._broker.catalogue.find(name, number)
        epoch = UNKNOWN if found is None else found.leader_epoch
        return {"leaderId": self._broker.node_id, "leaderEpoch": epoch}

    def _served(self, name: str, number: int, *, is_follower: bool) -> ServedPartition:
        if not name:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID)
        if is_follower:  # a follower would truncate its log to this log
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition_of(self._broker, name, number)

    def _read(
        self,
        served: ServedPartition,
        asked: dict[str, Any],
        answer: dict[str, Any],
        left: int,
        *,
        is_needed: bool,
    ) -> Given | None:
        log, offset = served.log, asked["fetchOffset"]
        bounds = log.bounds()
        answer["logStartOffset"] = bounds.start_offset
        if not bounds.start_offset <= offset <= bounds.end_offset:
            raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE)
        end_offset = bounds.end_offset
        if self._is_committed:
            stable = log.stable_end_offset()
            end_offset = min(end_offset, stable)
        else:
            stable = UNKNOWN
            with suppress(AccessError):  # in a segment that was not requested
                stable = log.known_stable_offset()
        answer["highWatermark"] = stable if self._hides else bounds.end_offset
        answer["lastStableOffset"] = stable
        last_epoch = asked.get("lastFetchedEpoch", UNKNOWN)
        if last_epoch >= 0 and self._parts(served, asked, answer, last_epoch):
            return None
        answer["abortedTransactions"] = [] if self._is_committed else None
        if offset >= end_offset:
            return None
        max_bytes = max(min(asked["partitionMaxBytes"], left), 0)
        is_committed = self._is_committed
        given = log.read(
            offset, end_offset, max_bytes, is_needed=is_needed, is_committed=is_committed
        )
        if max_bytes and not given.size_bytes:
            answer["abortedTransactions"] = None
        elif is_committed and not log.leaves_out(is_committed=True):
            answer["abortedTransactions"] = [
                {"producerId": producer_id, "firstOffset": first}
                for producer_id, first in log.view().aborted_within(offset, log.upper_bound(given))
            ]
        return given

    @staticmethod
    def _parts(
        served: ServedPartition, asked: dict[str, Any], answer: dict[str, Any], last_epoch: int
    ) -> bool:
        """Put the diverging epoch into the answer if the logs diverge.

        Raises:
            RequestError: the end of the client's epoch is unknown.

        Returns:
            Whether the logs diverge.
        """
        end = served.log.epoch_end(last_epoch, served.leader_epoch)
        if end is None:
            raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if end.epoch >= last_epoch and end.end_offset >= asked["fetchOffset"]:
            return False
        answer["divergingEpoch"] = {"epoch": end.epoch, "endOffset": end.end_offset}
        return True
