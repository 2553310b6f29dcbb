"""`kafka-consumer-groups` on a running broker, and its table as rows."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from .jars import java_command, quick_start

if TYPE_CHECKING:
    from .broker import Broker

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
WAIT_S = 60.0


def output_of(broker: Broker, *arguments: object) -> str:
    """What the tool prints; it did what it was told to."""
    command = java_command(
        *quick_start(), QUIET, TOOL, "--bootstrap-server", broker.bootstrap, *map(str, arguments)
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Error" not in done.stdout, done.stdout
    return done.stdout


def consumer_groups(broker: Broker, *arguments: object) -> list[dict[str, str]]:
    """Rows of kafka-consumer-groups by the headings of its table."""
    rows: list[dict[str, str]] = []
    heads: list[str] = []
    for line in output_of(broker, *arguments).splitlines():
        words = line.split()
        if words[:1] == ["GROUP"]:
            heads = words
        elif heads and len(words) >= len(heads):
            rows.append(dict(zip(heads, words, strict=False)))
    return rows
