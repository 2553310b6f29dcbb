"""The listener: accepts connections, reports each disconnected client, follows open logs."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from eoctl.serve.answers.groups import expire_members
from eoctl.serve.connection import Connection
from eoctl.serve.state.broker import VirtualBroker
from storage.errors import AccessError, EoctlError
from storage.files import positioned_file

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Callable

    from eoctl.serve.state.catalogue import Catalogue
    from eoctl.serve.state.members import Members

MAX_BACKLOG = 1024
READERS = 4  # threads
FOLLOW_S = 0.2
DESCRIPTORS_WANTED = 65_536
MAX_RESERVED = 4096  # file descriptors reserved for files


class Address(NamedTuple):
    """The address to listen on. Port 0: any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Server:
    """The server of client connections.

    Attributes:
        address: the actual address, once the server listens.
        clients: the open connections.
        turned_away_count: connections that got no file descriptor.
    """

    def __init__(
        self, catalogue: Catalogue, members: Members, *, on_end: Callable[[Connection], None]
    ) -> None:
        """Make a server that calls `on_end` with each client that has disconnected."""
        self.address = Address("", 0)
        self.clients: set[Connection] = set()
        self.turned_away_count = 0
        self._limits = Limits.of(raise_descriptor_limit())
        self._executor = ThreadPoolExecutor(READERS, thread_name_prefix="reader")
        self.broker = VirtualBroker(catalogue, members, self._executor)
        self._on_end = on_end
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, address: Address) -> None:
        """Begin to accept connections.

        Raises:
            AccessError: the address is not available.
        """
        asyncio.get_running_loop().set_exception_handler(self._handle)
        try:
            self._server = await asyncio.start_server(
                self._accept, address.host, address.port, backlog=self._limits.backlog
            )
        except (OSError, OverflowError) as exc:
            error = exc if isinstance(exc, OSError) else OSError(0, str(exc))
            raise AccessError(error, str(address)) from exc
        self._sweep = asyncio.create_task(expire_members(self.broker))
        own = self._server.sockets[0].getsockname()
        self.address = Address(str(own[0]), int(own[1]))

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle errors outside of tasks: no file descriptor for another connection."""
        if isinstance(error := context.get("exception"), OSError) and "socket" in context:
            self._turn_away(f"{error.strerror}: new clients must wait")
        else:
            loop.default_exception_handler(context)

    def _turn_away(self, words: str) -> None:
        self.turned_away_count += 1
        self.broker.catalogue.report_once(
            f"{words}; {self._limits.clients} clients at a time is what `ulimit -n`"
            f" {self._limits.descriptors} leaves room for, beside open files"
        )

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        if len(self.clients) >= self._limits.clients:
            self._turn_away(f"a client is turned away, beside {len(self.clients)} others")
            writer.transport.abort()
            return
        connection = Connection(self.broker, reader, writer)
        sock = writer.get_extra_info("socket")
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.clients.add(connection)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await connection.serve()
        except asyncio.CancelledError:
            pass  # the server stops
        finally:
            self.clients.discard(connection)
            self._tasks.discard(task)
            self._on_end(connection)

    def follow(self) -> None:
        """Begin to watch the logs that clients have opened for appended batches."""
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_S)
            if await self.broker.apart(self._renew):
                self.broker.report_changed()

    def _renew(self) -> bool:
        has_changed = False
        for each in self.broker.catalogue.partitions():
            if each.is_open:
                try:
                    has_changed |= each.log.renew()
                except EoctlError as exc:
                    self.broker.catalogue.report_once(str(exc))
        return has_changed

    async def close(self) -> None:
        """Accept no more connections, and close the open connections."""
        if self._server is not None:
            self._server.close()
        for each in (self._sweep, self._following):
            if each is not None:
                each.cancel()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with positioned_file.broken_off():  # nobody waits for these reads
            self._executor.shutdown(cancel_futures=True)


class Limits(NamedTuple):
    """The available file descriptors and their use.

    Attributes:
        descriptors: limit of this process.
        clients: maximum of open connections.
        backlog: maximum of connections accepted at once.
    """

    descriptors: int
    clients: int
    backlog: int

    @classmethod
    def of(cls, descriptors: int) -> Self:
        """Reserve some descriptors for files, so that connected clients can be served."""
        reserved = min(descriptors // 4, MAX_RESERVED)
        clients = descriptors - reserved
        return cls(descriptors, clients, backlog=max(min(reserved // 2, MAX_BACKLOG), 1))


def raise_descriptor_limit() -> int:
    """Raise the limit of file descriptors to what is allowed and useful, and return it."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return DESCRIPTORS_WANTED if soft == resource.RLIM_INFINITY else soft
