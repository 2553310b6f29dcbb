"""One connection: requests in turn, as a broker reads them, and their responses.

At most one piece of the records of a response is in memory, so a slow client costs little. A client
that reads nothing or sends nothing is disconnected after some time. The reason of a disconnection
names the remedy. Most programs that are not Kafka clients, or that use TLS, are recognized by their
first bytes.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from eoctl.serve.answers import (
    described_groups,
    groups,
    metadata,
    security,
    settings,
    transactions,
)
from eoctl.serve.answers import fetch as fetching
from eoctl.serve.answers.fetch import Fetched
from eoctl.serve.answers.refusals import REFUSALS, UNOFFERED
from eoctl.serve.logs.verified_batches import SentBytes
from eoctl.serve.protocol.messages import (
    API_VERSIONS,
    CutOffError,
    ErrorCode,
    apis,
    encode_response,
    parse_body,
    parse_header,
)
from eoctl.serve.state.broker import Client, Request, VirtualBroker
from storage.errors import AccessError, FormatError

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Awaitable, Callable

    from eoctl.serve.protocol.messages import Api
    from storage.formats.varint import BytesLike

    Value = dict[str, Any] | Fetched | None
    Answering = Callable[[VirtualBroker, Request], Value | Awaitable[Value]]


# -- the answer of each API, from the bytes of a request to the bytes of its response


LARGE_REQUEST_BYTES = 1 << 16
OF_ALL_TOPICS = (3, 75)  # may be answered with everything that is served
Result = TypeVar("Result")
METADATA_VERSION, LOWEST_METADATA_VERSION = "metadata.version", 7
KRAFT_VERSION = "kraft.version"  # a record of the quorum has it
FEATURES_OF_ZERO_SINCE = 4
PRODUCE = 0  # removed versions are advertised, for old clients that look for them
STABLE = {22: 5}  # the last version of an API that a broker offers by default


class Response(NamedTuple):
    """A response. `fetched` has its records."""

    api: Api
    data: bytearray
    fetched: Fetched | None = None


def api_versions(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer ApiVersions: the answered APIs, refusals included, and the features."""
    catalogue, asked_id = broker.catalogue, request.body.get("clusterId")
    asked = (asked_id, request.body.get("nodeId"))
    if asked_id is not None and asked != (catalogue.cluster_id, broker.node_id):
        return {"errorCode": ErrorCode.REBOOTSTRAP_REQUIRED, "apiKeys": []}
    image = catalogue.image
    features = {} if image is None else {**image.features}
    if image is not None and image.kraft_version:
        features[KRAFT_VERSION] = image.kraft_version
    # Before version 4, clients fail at a feature with minimum version 0.
    supported = [
        {"name": name, "minVersion": _lowest(name, level), "maxVersion": level}
        for name, level in sorted(features.items())
        if name == METADATA_VERSION or request.version >= FEATURES_OF_ZERO_SINCE
    ]
    answered = [apis()[key] for key in sorted({*ANSWERS} - {*UNOFFERED})]
    return {
        "errorCode": ErrorCode.NONE,
        "apiKeys": [
            {
                "apiKey": each.key,
                "minVersion": 0 if each.key == PRODUCE else each.first_version,
                "maxVersion": STABLE.get(each.key, each.last_version),
            }
            for each in answered
        ],
        "supportedFeatures": supported,
        "finalizedFeaturesEpoch": -1 if image is None else max(image.end_offset - 1, -1),
        "finalizedFeatures": [
            {"name": name, "maxVersionLevel": level, "minVersionLevel": level}
            for name, level in sorted(features.items())
        ],
    }


def _lowest(feature: str, level: int) -> int:
    """Return the lowest level of a feature. Kafka 4 supports no metadata version below 3.3-IV3."""
    return min(level, LOWEST_METADATA_VERSION) if feature == METADATA_VERSION else 0


def _apart(
    answer: Callable[[VirtualBroker, Request], dict[str, Any]],
) -> Callable[[VirtualBroker, Request], Awaitable[dict[str, Any]]]:
    """Wrap an answer that reads files, so that it runs in another thread."""

    async def answering(broker: VirtualBroker, request: Request) -> dict[str, Any]:
        return await broker.apart(answer, broker, request)

    return answering


ANSWERS: dict[int, Answering] = {
    **REFUSALS,
    **UNOFFERED,
    1: fetching.fetch,
    2: _apart(transactions.list_offsets),
    3: _apart(metadata.metadata),
    8: groups.offset_commit,
    9: _apart(groups.offset_fetch),
    10: groups.find_coordinator,
    11: groups.join_group,
    12: groups.heartbeat,
    13: groups.leave_group,
    14: groups.sync_group,
    15: _apart(groups.describe_groups),
    16: _apart(groups.list_groups),
    API_VERSIONS: api_versions,
    29: _apart(security.describe_acls),
    48: metadata.describe_client_quotas,
    23: _apart(transactions.offset_for_leader_epoch),
    32: _apart(settings.describe_configs),
    35: _apart(settings.describe_log_dirs),
    50: _apart(security.describe_user_scram_credentials),
    55: _apart(metadata.describe_quorum),
    60: metadata.describe_cluster,
    61: _apart(transactions.describe_producers),
    65: _apart(transactions.describe_transactions),
    66: _apart(transactions.list_transactions),
    69: _apart(described_groups.consumer_group_describe),
    74: settings.list_config_resources,
    75: _apart(metadata.describe_topic_partitions),
    77: _apart(described_groups.share_group_describe),
    89: _apart(described_groups.streams_group_describe),
    90: _apart(described_groups.describe_share_group_offsets),
}


async def answer(
    broker: VirtualBroker, data: BytesLike, client: Client, is_gone: Callable[[], bool]
) -> tuple[Response | None, str | None]:
    """Answer a request, and return the client id that it names (no response: it expects none).

    Raises:
        CutOffError: it is not a valid request, or it is refused and expects no answer.
    """
    try:
        header = parse_header(data)
    except (FormatError, UnicodeDecodeError) as exc:
        raise CutOffError(f"not a request: {exc}") from exc
    api = apis().get(header.api_key)
    if api is None or header.api_key not in ANSWERS:
        raise CutOffError(f"API {header.api_key} is unknown")
    if not api.has(header.version):
        if api.key != API_VERSIONS:
            raise CutOffError(f"{api.name} has no version {header.version}")
        # In version 0, which every client can read (KIP-511).
        asked = Request(api=api, version=0, body={}, client=client, is_gone=is_gone)
        reported = api_versions(broker, asked)
        reported["errorCode"] = ErrorCode.UNSUPPORTED_VERSION
        return Response(
            api, encode_response(api, 0, header.correlation_id, reported)
        ), header.client_id
    is_large = len(data) > LARGE_REQUEST_BYTES
    try:
        body = await _perhaps_apart(broker, is_large, parse_body, api, header, data)
    except FormatError as exc:
        raise CutOffError(f"{api.name} version {header.version}: {exc}") from exc
    request = Request(
        api=api,
        version=header.version,
        body=body,
        client=client._replace(name=header.client_id or ""),
        is_gone=is_gone,
    )
    found: Any = ANSWERS[api.key](broker, request)
    if inspect.isawaitable(found):
        found = await found
    fetched = found if isinstance(found, Fetched) else None
    value = found.value if fetched is not None else found
    if value is None:
        return None, header.client_id
    try:
        is_large = is_large or api.key in OF_ALL_TOPICS
        out = await _perhaps_apart(
            broker, is_large, encode_response, api, header.version, header.correlation_id, value
        )
    except BaseException:
        if fetched is not None:
            fetched.close()
        raise
    return Response(api, out, fetched), header.client_id


async def _perhaps_apart(
    broker: VirtualBroker, is_large: bool, call: Callable[..., Result], *values: Any
) -> Result:
    """Run a function in another thread if it is large, so that other clients do not wait."""
    return await broker.apart(call, *values) if is_large else call(*values)


# -- connection


MAX_REQUEST_BYTES = 104_857_600  # socket.request.max.bytes of a broker
# Limit of requests without records. A million of the smallest structs takes more in memory.
MAX_PLAIN_REQUEST_BYTES = 8 << 20
IDLE_S = 600.0  # connections.max.idle.ms
_SIZE = Struct(">i")
_KEY = Struct(">h")
_PRODUCE = 0
HALF = "it has sent a part of a request, and nothing more"
_TLS_HANDSHAKE = b"\x16\x03"
_HTTP_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"CONN", b"PATC", b"PRI ")


class _TooSlowError(Exception):
    """A client did nothing for too long. The message says what it failed to do."""


class Connection:
    """A client's connection.

    Attributes:
        name: the client id, "" if the client has sent none.
        address: the client's address.
        requests_count, sent_bytes: totals so far.
        partitions: the partitions whose records were sent.
        began_s: time of connection, by the monotonic clock.
        problem: reason of the disconnection, "" if there was none.
        is_our_bug: the problem is an error of this program.
    """

    def __init__(self, broker: VirtualBroker, reader: StreamReader, writer: StreamWriter) -> None:
        self.name = ""
        self.requests_count = 0
        self.sent_bytes = 0
        self.partitions: set[tuple[str, int]] = set()
        self.began_s = time.monotonic()
        self.problem = ""
        self.is_our_bug = False
        self._broker, self._reader, self._writer = broker, reader, writer
        peer = writer.get_extra_info("peername") or ("", 0)
        own = writer.get_extra_info("sockname") or ("", 0)
        self.address = f"{peer[0]}:{peer[1]}"
        self._client = Client(name="", address=str(peer[0]), host=str(own[0]), port=int(own[1]))

    async def serve(self) -> None:
        """Answer until the client disconnects or sends something that is not a request."""
        try:
            while (data := await self._request()) is not None:
                self.requests_count += 1
                found, name = await answer(self._broker, data, self._client, self._is_gone)
                self.name = name or self.name
                if found is not None:
                    await self._send(found)
        except (CutOffError, UnicodeDecodeError) as exc:
            self.problem = str(exc)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has disconnected
        except _TooSlowError as exc:
            self.problem = f"{exc} for {IDLE_S:.0f} s"
        except AccessError as exc:
            self.problem = f"a response could not be sent to its end: {exc}"
        except Exception as exc:  # noqa: BLE001 - the others are served on
            self.problem, self.is_our_bug = f"internal error: {type(exc).__name__}: {exc}", True
        finally:
            self._writer.transport.abort() if self.problem else self._writer.close()

    def _is_gone(self) -> bool:
        return self._writer.transport.is_closing() or self._reader.at_eof()

    async def _request(self) -> bytes | None:
        """Read the next request. None: the client has closed the connection."""
        try:
            first = await self._exactly(_SIZE.size, "it has requested nothing")
        except asyncio.IncompleteReadError as exc:
            if exc.partial:
                raise
            return None
        size = _SIZE.unpack(first)[0]
        if not 0 <= size <= MAX_REQUEST_BYTES:
            raise CutOffError(_words_of(first))
        if size <= MAX_PLAIN_REQUEST_BYTES:
            return await self._exactly(size, HALF)
        key = await self._exactly(_KEY.size, HALF)
        if _KEY.unpack(key)[0] != _PRODUCE:
            raise CutOffError(
                f"a request of {size} bytes, without records: at most {MAX_PLAIN_REQUEST_BYTES}"
                " are taken"
            )
        return key + await self._exactly(size - len(key), HALF)

    async def _exactly(self, count: int, missed: str) -> bytes:
        """Read this many bytes. `missed` is the message if they do not arrive in time."""
        try:
            async with asyncio.timeout(IDLE_S):
                return await self._reader.readexactly(count)
        except TimeoutError as exc:
            if exc.errno is not None:  # a timeout of the network: the client is disconnected
                raise
            raise _TooSlowError(missed) from exc

    async def _send(self, found: Response) -> None:
        fetched, data = found.fetched, found.data
        if fetched is None:
            self._writer.write(_SIZE.pack(len(data)) + data)
            await self._drain()
            self.sent_bytes += _SIZE.size + len(data)
            return
        try:
            self._writer.write(_SIZE.pack(len(data) + fetched.size_bytes))
            pos = 0
            with memoryview(data) as view:
                for place, piece in fetched.pieces():
                    if place > pos:
                        self._writer.write(bytes(view[pos:place]))
                        pos = place
                    if piece.file is None or piece.batches is None:
                        self._writer.write(piece.data)
                    else:
                        await self._send_file(SentBytes(piece.file, piece.batches))
                self._writer.write(bytes(view[pos:]))
            await self._drain()
            self.sent_bytes += _SIZE.size + len(data) + fetched.size_bytes
            self.partitions.update(fetched.partitions)
        finally:
            fetched.close()

    async def _send_file(self, reader: SentBytes) -> None:
        """Send batches of a file.

        Raises AccessError: they have changed since they were verified.
        """
        while data := await self._broker.apart(reader.read):
            self._writer.write(data)
            await self._drain()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(IDLE_S):
                await self._writer.drain()
        except TimeoutError as exc:
            if exc.errno is not None:
                raise
            raise _TooSlowError("it has hardly read of a response") from exc


def _words_of(first: bytes) -> str:
    """Return the reason to refuse first bytes that are not the size of a Kafka request."""
    if first.startswith(_TLS_HANDSHAKE):
        return "it speaks TLS, and only plain text is served: security.protocol=PLAINTEXT"
    if first in _HTTP_METHODS:
        return "it speaks HTTP, and only Kafka's protocol is served"
    size = _SIZE.unpack(first)[0]
    return f"a request of {size} bytes: at most {MAX_REQUEST_BYTES} are taken"
