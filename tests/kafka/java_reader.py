"""Kafka's own Java consumer, of this release and of 2.8: what it is given of all topics."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from .jars import COMMON_LIBS, KAFKA_LIBS, tool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROGRAM = Path(__file__).with_name("ReadAll.java")
BESIDE = ("lz4-java", "zstd-jni", "snappy-java", "slf4j")
TIMEOUT_S = 420.0
CURRENT, OLDER = "", "older-client/"


def read_all(bootstrap: str, client: str, calls: Sequence[tuple[str, str]]) -> Iterator[list[str]]:
    """Of each call (assign or subscribe, isolation level) the lines of `ReadAll.java`, in order.

    They are from one client, `CURRENT` or `OLDER`.
    """
    libs = COMMON_LIBS if client else KAFKA_LIBS
    jars = [libs.glob(f"{client}kafka-clients-*.jar")]
    jars += [KAFKA_LIBS.glob(f"{each}-*.jar") for each in BESIDE]
    path = ":".join(str(jar) for found in jars for jar in found)
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256M"]
    options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", path]
    asked = [part for each in calls for part in (*each, f"{client}{each}")]
    done = subprocess.run(
        [tool("java"), *options, str(PROGRAM), bootstrap, *asked],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found: list[str] = []
    for line in done.stdout.splitlines():
        if line:
            found.append(line)
        else:
            yield found
            found = []
