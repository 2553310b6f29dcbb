"""One connection: requests one after the other, as a broker takes them, and their responses.

Of the records of a response no more than a piece is in memory: a client that reads slowly costs
little, and one that does not read at all is cut off after some time, as is one that is silent.
What cuts a client off says what people can do about it: most who are no clients of Kafka's, or are
told to use TLS, begin with the same few bytes.
"""

from __future__ import annotations

import asyncio
import time
from struct import Struct
from typing import TYPE_CHECKING

from eoctl.serve.answers.api import Response, answer
from eoctl.serve.logs.sent_bytes import SentBytes
from eoctl.serve.protocol.errors import CutOffError
from eoctl.serve.state.broker import Client
from storage.errors import AccessError

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

    from eoctl.serve.state.broker import VirtualBroker

MAX_REQUEST_BYTES = 104_857_600  # socket.request.max.bytes of a broker
# Of requests that hold no records: a million of the smallest structs, which take more in memory.
MAX_PLAIN_REQUEST_BYTES = 8 << 20
IDLE_S = 600.0  # connections.max.idle.ms
_SIZE = Struct(">i")
_KEY = Struct(">h")
_PRODUCE = 0
HALF = "it has sent a part of a request, and nothing more"
_TLS_HANDSHAKE = b"\x16\x03"
_HTTP_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"CONN", b"PATC", b"PRI ")


class _TooSlowError(Exception):
    """A client has not done for a long time what is said."""


class Connection:
    """A client.

    Attributes:
        name: its client id; "" if it has told none.
        address: where it is.
        requests_count, sent_bytes: so far.
        partitions: that it was given records of.
        began_s: when it came, by the monotonic clock.
        problem: why it was cut off; "": it was not.
        is_our_bug: that is an error of this program.
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
        """Answer until the client goes, or sends what is no request."""
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
            pass  # it is gone
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
        """Read the next request; None: there is none any more."""
        try:
            first = await self._exactly(_SIZE.size, "it has asked for nothing")
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
        """Read so many bytes; `missed` is what to say if they do not come in time."""
        try:
            async with asyncio.timeout(IDLE_S):
                return await self._reader.readexactly(count)
        except TimeoutError as exc:
            if exc.errno is not None:  # of the network: it is gone
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
        """Send batches of a file. Raises AccessError: they are not what they were any more."""
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
    """Say what somebody speaks who does not begin with the size of a request."""
    if first.startswith(_TLS_HANDSHAKE):
        return "it speaks TLS, and only plain text is served: security.protocol=PLAINTEXT"
    if first in _HTTP_METHODS:
        return "it speaks HTTP, and only Kafka's protocol is served"
    size = _SIZE.unpack(first)[0]
    return f"a request of {size} bytes: at most {MAX_REQUEST_BYTES} are taken"
