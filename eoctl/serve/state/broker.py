"""The virtual broker: the state behind all answers, and a request as they see it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from eoctl.serve.protocol.messages import Api
    from eoctl.serve.state.catalogue import Catalogue
    from eoctl.serve.state.members import Members

Result = TypeVar("Result")

# Allowed operations on every resource, as bits of Kafka's AclOperation.
READ, DESCRIBE, DESCRIBE_CONFIGS = 1 << 3, 1 << 8, 1 << 10
TOPIC_OPERATIONS = READ | DESCRIBE | DESCRIBE_CONFIGS
GROUP_OPERATIONS = READ | DESCRIBE
CLUSTER_OPERATIONS = DESCRIBE | DESCRIBE_CONFIGS
NOT_REQUESTED = -INT32_MAX - 1


class Client(NamedTuple):
    """The client that sends a request.

    Attributes:
        name: the client id, "" if there is none.
        address: the client's address.
        host, port: the address at which the client reached us, which the answers name as ours.
    """

    name: str
    address: str
    host: str
    port: int


class Request(NamedTuple):
    """A request as answers see it."""

    api: Api
    version: int
    body: dict[str, Any]
    client: Client
    is_gone: Callable[[], bool]


class VirtualBroker:
    """The virtual broker.

    Attributes:
        catalogue: the topics and partitions that are served.
        members: the groups, in memory.
        changed: set when there is more to read. A new event each time.
    """

    def __init__(self, catalogue: Catalogue, members: Members, executor: Executor) -> None:
        self.catalogue = catalogue
        self.members = members
        self.changed = asyncio.Event()
        self._executor = executor
        self._asked_count = 0
        self._quiet = asyncio.Event()

    @property
    def node_id(self) -> int:
        """The node id of the virtual broker."""
        return self.catalogue.node_id

    async def apart(self, call: Callable[..., Result], *values: Any) -> Result:
        """Run a function that reads files in another thread, so that other clients do not wait."""
        loop = asyncio.get_running_loop()
        self._asked_count += 1
        self._quiet.clear()
        try:
            return await loop.run_in_executor(self._executor, call, *values)
        finally:
            self._asked_count -= 1
            if not self._asked_count:
                self._quiet.set()

    async def give_way(self, until_s: float) -> None:
        """Wait for running reads (see `apart`), at most until a time of the loop's clock.

        Computing threads slow each other down, however many processors there are.
        """
        left_s = until_s - asyncio.get_running_loop().time()
        if self._asked_count and left_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._quiet.wait()

    def report_changed(self) -> None:
        """Wake all fetches that wait for more."""
        before, self.changed = self.changed, asyncio.Event()
        before.set()
