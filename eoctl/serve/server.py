"""The listener: takes connections, tells of each client when it goes, watches what is followed."""

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
MAX_RESERVED = 4096  # descriptors that are left to files


class Address(NamedTuple):
    """Where to listen; port 0: any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Server:
    """Listens, and serves.

    Attributes:
        address: where it listens, once it does.
        clients: that are connected.
        turned_away_count: connections for which no descriptor was left.
    """

    def __init__(
        self, catalogue: Catalogue, members: Members, *, on_end: Callable[[Connection], None]
    ) -> None:
        """`on_end` is told of each client that has gone."""
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
        """Begin to take connections.

        Raises:
            AccessError: the address cannot be had.
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
        """Take note of what no task was there to meet: no descriptor for one more connection."""
        if isinstance(error := context.get("exception"), OSError) and "socket" in context:
            self._turn_away(f"{error.strerror}: new clients must wait")
        else:
            loop.default_exception_handler(context)

    def _turn_away(self, words: str) -> None:
        self.turned_away_count += 1
        self.broker.catalogue.tell_once(
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
            pass  # the server ends
        finally:
            self.clients.discard(connection)
            self._tasks.discard(task)
            self._on_end(connection)

    def follow(self) -> None:
        """Look from now on what is appended to the logs that somebody has asked for."""
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_S)
            if await self.broker.apart(self._renew):
                self.broker.tell_changed()

    def _renew(self) -> bool:
        has_changed = False
        for each in self.broker.catalogue.partitions():
            if each.is_open:
                try:
                    has_changed |= each.log.renew()
                except EoctlError as exc:
                    self.broker.catalogue.tell_once(str(exc))
        return has_changed

    async def close(self) -> None:
        """Take no more connections, and end those that there are."""
        if self._server is not None:
            self._server.close()
        for each in (self._sweep, self._following):
            if each is not None:
                each.cancel()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with positioned_file.broken_off():  # nobody waits for what is read any more
            self._executor.shutdown(cancel_futures=True)


class Limits(NamedTuple):
    """What descriptors there are, and what they are for.

    Attributes:
        descriptors: of this process.
        clients: that may be connected.
        backlog: of connections that may be taken at once.
    """

    descriptors: int
    clients: int
    backlog: int

    @classmethod
    def of(cls, descriptors: int) -> Self:
        """Leave some to files: clients that are connected are to be served."""
        reserved = min(descriptors // 4, MAX_RESERVED)
        clients = descriptors - reserved
        return cls(descriptors, clients, backlog=max(min(reserved // 2, MAX_BACKLOG), 1))


def raise_descriptor_limit() -> int:
    """Allow as many descriptors as this process may have, and are of use; returns how many."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return DESCRIPTORS_WANTED if soft == resource.RLIM_INFINITY else soft
