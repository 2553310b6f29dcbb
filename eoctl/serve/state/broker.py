"""The virtual broker: what all answers stand on, and how a request looks to them."""

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

# What may be done with anything here, as bits of Kafka's AclOperation.
READ, DESCRIBE, DESCRIBE_CONFIGS = 1 << 3, 1 << 8, 1 << 10
TOPIC_OPERATIONS = READ | DESCRIBE | DESCRIBE_CONFIGS
GROUP_OPERATIONS = READ | DESCRIBE
CLUSTER_OPERATIONS = DESCRIBE | DESCRIBE_CONFIGS
NOT_ASKED_FOR = -INT32_MAX - 1


class Client(NamedTuple):
    """Who asks.

    Attributes:
        name: its client id; "" if it has none.
        address: where it is.
        host, port: how it has reached us, which is where it is told that we are.
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
        catalogue: what is served.
        members: of groups, in memory.
        changed: set whenever there is more to be read; a new one each time.
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
        """Its id."""
        return self.catalogue.node_id

    async def apart(self, call: Callable[..., Result], *values: Any) -> Result:
        """Do what reads files, without keeping other clients waiting."""
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
        """Wait while anything is done apart, but no longer than that, by the loop's clock.

        Threads that compute take the processor from each other, however many processors there are.
        """
        left_s = until_s - asyncio.get_running_loop().time()
        if self._asked_count and left_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._quiet.wait()

    def tell_changed(self) -> None:
        """Wake whoever waits for more."""
        before, self.changed = self.changed, asyncio.Event()
        before.set()
