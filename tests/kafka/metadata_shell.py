"""kafka-metadata-shell, Kafka's own image of the cluster, from a snapshot or a log of metadata."""

from __future__ import annotations

import re
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .jars import KAFKA_LIBS, java_command, missing_broker, quick_start

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S = 240
CALL_TIMEOUT_S = 30  # a call takes less than one, and may hang at its end
INDENT = 2
_FIELD = re.compile(r"([A-Za-z]+)=")

Tree = dict[str, Any]


def missing_shell() -> str:
    """Why the shell cannot be started here, "" when it can."""
    if reason := missing_broker():
        return reason
    if any(KAFKA_LIBS.glob("kafka-shell-*.jar")):
        return ""
    return "Kafka's shell is missing. To fetch it: make kafka-libs"


def image_of(file: Path) -> Tree:
    """The image as a tree of names; what has no more names below it is a leaf, a text.

    The shell ignores what it cannot read, and takes the lock of a log dir for itself: give it a copy.
    It does not wait for its own image, which is empty until it is whole, and once in a while it does
    not end: it is asked again then.

    Raises:
        TimeoutError: it had none.
    """
    end_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end_s:
        with suppress(subprocess.TimeoutExpired):
            tree = _asked(file)
            if not tree["provenance"].startswith("offset -1,"):
                return tree
    raise TimeoutError(f"{file}: no image")


def _asked(file: Path) -> Tree:
    done = subprocess.run(
        java_command(
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *quick_start(),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "org.apache.kafka.shell.MetadataShell",
            "--snapshot",
            str(file),
            "tree",
            "/image",
        ),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        check=True,
        timeout=CALL_TIMEOUT_S,
    )
    return _tree(done.stdout.splitlines())


def _tree(lines: list[str]) -> Tree:
    """Lines of names with a colon, indented; a line without one is the contents of its file."""
    root: Tree = {}
    above: list[tuple[Tree, str]] = []  # of each depth: where the last name stands
    for line in lines:
        depth = (len(line) - len(line.lstrip(" "))) // INDENT
        text, here = line.strip(), root
        if depth:
            parent, name = above[depth - 1]
            if not text.endswith(":"):
                parent[name] = text
                continue
            here = parent[name]
        here[text[:-1]] = {}
        above[depth:] = [(here, text[:-1])]
    return root


def fields_of(text: str) -> dict[str, Any]:
    """The fields of a Java record's words, such as `PartitionRegistration(isr=[1, 2], leader=1)`.

    Lists become lists of texts; what lies within a field stays text.
    """
    inner = text[text.index("(") + 1 : text.rindex(")")]
    found: dict[str, Any] = {}
    pos = 0
    while pos < len(inner):
        match = _FIELD.match(inner, pos)
        assert match is not None, inner[pos:]
        start = pos = match.end()
        depth = 0
        while pos < len(inner) and (depth or not inner.startswith(", ", pos)):
            depth += (inner[pos] in "[({") - (inner[pos] in "])}")
            pos += 1
        value = inner[start:pos]
        if value.startswith("[") and "(" not in value:
            found[match[1]] = value[1:-1].split(", ") if value != "[]" else []
        else:
            found[match[1]] = value
        pos += len(", ")
    return found
