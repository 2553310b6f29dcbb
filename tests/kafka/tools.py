"""Kafka's command line tools, run one after the other in one JVM.

    with Tools() as tools:
        tools.run("TopicCommand", "--bootstrap-server", bootstrap, "--describe").printed

It needs a Java with its compiler (`coordinator_answers.has_compiler`).
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from . import jars

if TYPE_CHECKING:
    from types import TracebackType

PROGRAM = Path(__file__).with_name("Tools.java")
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
KNOWN = "org.apache.kafka.tools."
# The others' names are whole.
CONSOLE_CONSUMER = f"{KNOWN}consumer.ConsoleConsumer"
GET_OFFSETS = f"{KNOWN}GetOffsetShell"
TOPICS = f"{KNOWN}TopicCommand"
CONSUMER_GROUPS = f"{KNOWN}consumer.group.ConsumerGroupCommand"
GROUPS = f"{KNOWN}GroupsCommand"
TRANSACTIONS = f"{KNOWN}TransactionsCommand"
LOG_DIRS = f"{KNOWN}LogDirsCommand"
CONFIGS = jars.config_command()


class Printed(NamedTuple):
    """What a tool left behind."""

    status: int
    printed: str
    said: str


class Tools:
    """A context manager: a JVM that waits for calls of tools."""

    def __init__(self, *, heap: str = "-Xmx512M") -> None:
        """Start it; it is not waited for until the first call."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with it
        self._process = subprocess.Popen(
            jars.java_command(
                heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *jars.quick_start(), QUIET,
                str(PROGRAM),
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def run(self, tool: str, *arguments: object) -> Printed:
        """Run a tool by the name of its class, and return what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = "\t".join((tool, *map(str, arguments)))
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()
        head = self._process.stdout.readline().split()
        if len(head) != len(Printed._fields):
            self._errors.seek(0)
            raise RuntimeError(f"{PROGRAM.name} ended: {self._errors.read()[-4000:]!r}")
        status, printed_bytes, said_bytes = map(int, head)
        printed = self._process.stdout.read(printed_bytes).decode(errors="replace")
        said = self._process.stdout.read(said_bytes).decode(errors="replace")
        return Printed(status, printed, said)
