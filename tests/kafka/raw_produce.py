"""Produce requests whose batches a test makes itself: any producer id, epoch and sequence.

A client library chooses all three by itself, and never repeats or skips on purpose. Version 7 of
the request is the newest that Kafka's generic clients still send with plain arrays and strings.
"""

from __future__ import annotations

import select
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from types import TracebackType

TIMEOUT_S = 30.0
PRODUCE_KEY = 0
VERSION = 7
ALL_REPLICAS = -1
CLIENT_ID = b"eoctl-tests"

NONE = 0
INVALID_TIMESTAMP = 32
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48

_HEAD = struct.Struct(">ihhi")  # size, api key, api version, correlation id
_PARTITION = struct.Struct(">ihqqq")  # index, error, base offset, append time, log start offset


class Answer(NamedTuple):
    """What a broker says to one batch; the offset is -1 with an error."""

    error_code: int
    base_offset: int


class RawProducer:
    """A connection to one broker, one request at a time.

    with RawProducer(broker.bootstrap) as client:
        client.send("topic", 0, batch)
    """

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._correlation_id = 0
        self._sent = ("", 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def send(
        self, topic: str, partition: int, batch: bytes, *, timeout_ms: int = int(TIMEOUT_S * 1000)
    ) -> Answer:
        """Send one batch and wait for the answer, which comes after `timeout_ms` at the latest.

        Raises:
            OSError: the broker closed the connection, as it does with what it cannot parse.
        """
        self.begin(topic, partition, batch, timeout_ms=timeout_ms)
        return self.end()

    def begin(self, topic: str, partition: int, batch: bytes, *, timeout_ms: int) -> None:
        """Send one batch; `end` waits for its answer."""
        self._correlation_id += 1
        self._sent = (topic, partition)
        body = b"".join(
            (
                _string(CLIENT_ID),
                struct.pack(">h", -1),  # no transactional id
                struct.pack(">hi", ALL_REPLICAS, timeout_ms),
                struct.pack(">i", 1) + _string(topic.encode()),
                struct.pack(">iii", 1, partition, len(batch)) + batch,
            )
        )
        size_bytes = _HEAD.size - 4 + len(body)
        self._socket.sendall(
            _HEAD.pack(size_bytes, PRODUCE_KEY, VERSION, self._correlation_id) + body
        )

    @property
    def has_answer(self) -> bool:
        """Whether an answer has come, or the connection has ended."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def end(self) -> Answer:
        """Wait for the answer to what was begun. OSError: the connection ended, or none came."""
        (size_bytes,) = struct.unpack(">i", self._receive(4))
        return self._parse(self._receive(size_bytes), *self._sent)

    def _parse(self, data: bytes, topic: str, partition: int) -> Answer:
        head = struct.pack(">ii", self._correlation_id, 1) + _string(topic.encode())
        pos = len(head) + 4  # the number of partitions
        if data[: len(head)] != head or data[len(head) : pos] != struct.pack(">i", 1):
            raise ValueError(f"not the answer to what was asked: {data[:60]!r}")
        index, error_code, base_offset, _, _ = _PARTITION.unpack_from(data, pos)
        if index != partition:
            raise ValueError(f"asked for partition {partition}, the answer is for {index}")
        return Answer(error_code, base_offset)

    def _receive(self, size_bytes: int) -> bytes:
        parts = b""
        while len(parts) < size_bytes:
            part = self._socket.recv(size_bytes - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return parts


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text
