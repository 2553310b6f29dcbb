"""A client that speaks Kafka's protocol by our tables, one request at a time: what it is given raw."""

from __future__ import annotations

import socket
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from eoctl.serve.protocol.messages import API_VERSIONS, Api, apis
from storage.formats.message import decode
from storage.kernels.pure import parse_frame

if TYPE_CHECKING:
    from storage.formats.record_batch import BatchHeader

SIZE = Struct(">i")
HEADER = Struct(">hhih")
TIMEOUT_S = 60.0


def api_named(name: str) -> Api:
    """Look up an API by its name, such as Fetch."""
    return next(each for each in apis().values() if each.name == name)


def encoded(api: Api, version: int, body: dict[str, Any], *, correlation_id: int = 7) -> bytes:
    """The bytes of a request, without its length."""
    out = bytearray(HEADER.pack(api.key, version, correlation_id, 4) + b"wire")
    if api.is_flexible(version):
        out.append(0)
    api.request.codec(version).write(out, body)
    return bytes(out)


class Wire:
    """A connection."""

    def __init__(self, bootstrap: str, *, timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send a request's bytes, with their length in front."""
        self.socket.sendall(SIZE.pack(len(data)) + data)

    def receive(self) -> bytes:
        """Receive a response, without its length. EOFError: the other side has closed."""
        (size,) = SIZE.unpack(self._exactly(SIZE.size))
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(min(count - len(data), 1 << 20))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def ask(self, name: str, version: int, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the response, all of whose bytes are read."""
        api = api_named(name)
        self.send(encoded(api, version, body or {}))
        return decoded(api, version, self.receive())


def decoded(api: Api, version: int, data: bytes) -> dict[str, Any]:
    """A response, all of whose bytes are read."""
    pos = 4
    if api.is_flexible(version) and api.key != API_VERSIONS:
        assert data[pos] == 0
        pos += 1
    value, end = decode(api.response, version, data, pos)
    assert end == len(data), f"{len(data) - end} bytes too many"
    return value


def offered(bootstrap: str) -> dict[int, tuple[int, int]]:
    """The APIs that a broker offers, and their versions."""
    with Wire(bootstrap) as wire:
        found = wire.ask("ApiVersions", 0)["apiKeys"]
    return {each["apiKey"]: (each["minVersion"], each["maxVersion"]) for each in found}


def fetch(
    wire: Wire,
    topic: str,
    partition: int,
    offset: int,
    *,
    is_committed: bool = False,
    max_bytes: int = 1 << 20,
    version: int = 12,
) -> dict[str, Any]:
    """One Fetch of one partition, that waits for nothing."""
    body = {
        "maxWaitMs": 0,
        "minBytes": 0,
        "isolationLevel": int(is_committed),
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {"partition": partition, "fetchOffset": offset, "partitionMaxBytes": max_bytes}
                ],
            }
        ],
    }
    found = wire.ask("Fetch", version, body)
    assert found.get("errorCode", 0) == 0
    answer: dict[str, Any] = found["responses"][0]["partitions"][0]
    return answer


class Batch(NamedTuple):
    """A batch of a response."""

    header: BatchHeader
    data: bytes


def batches_in(data: bytes) -> list[Batch]:
    """The batches of a response, each of which must be whole and right."""
    found = []
    pos = 0
    while pos < len(data):
        header = parse_frame(data, pos)
        end = pos + header.batch_bytes
        assert end <= len(data), "a batch is not whole"
        found.append(Batch(header, data[pos:end]))
        pos = end
    return found


def whole(data: bytes) -> bytes:
    """Without the piece of a batch that a broker's answer may end with."""
    pos = 0
    while pos + 12 <= len(data):
        end_pos = pos + 12 + int.from_bytes(data[pos + 8 : pos + 12], "big")
        if end_pos > len(data):
            break
        pos = end_pos
    return data[:pos]


def fetch_all(
    wire: Wire, topic: str, partition: int, *, is_committed: bool = False, max_bytes: int = 1 << 20
) -> tuple[list[Batch], set[tuple[int, int]], dict[str, Any]]:
    """All batches from the log start on, all aborted transactions, and the last response.

    It ends where a response has an error, or nothing.
    """
    start = list_offset(wire, topic, partition, -2)["offset"]
    found: list[Batch] = []
    aborted: set[tuple[int, int]] = set()
    offset = start
    while True:
        answer = fetch(
            wire, topic, partition, offset, is_committed=is_committed, max_bytes=max_bytes
        )
        got = batches_in(answer["records"] or b"")
        aborted |= {
            (each["producerId"], each["firstOffset"])
            for each in answer["abortedTransactions"] or ()
        }
        if answer["errorCode"] or not got:
            return found, aborted, answer
        found += got
        offset = got[-1].header.last_offset + 1


def list_offset(
    wire: Wire, topic: str, partition: int, timestamp: int, *, isolation: int = 0, version: int = 8
) -> dict[str, Any]:
    """One ListOffsets of one partition."""
    body = {
        "replicaId": -1,
        "isolationLevel": isolation,
        "topics": [
            {
                "name": topic,
                "partitions": [{"partitionIndex": partition, "timestamp": timestamp}],
            }
        ],
    }
    answer: dict[str, Any] = wire.ask("ListOffsets", version, body)["topics"][0]["partitions"][0]
    return answer
