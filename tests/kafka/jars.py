"""Where Java, Maven's jars and mandoc are, and what to do when they are not there.

`scripts/require-tool.sh` knows how to find a program; this asks it, and never installs anything.
EOCTL_KAFKA_LIBS names a directory with Kafka's jars; the default is what `make test` fetches.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

REPOSITORY_DIR = Path(__file__).parents[2]
# With Spark's connector, MirrorMaker, an older client, and the classes that our own Java calls.
COMMON_LIBS = REPOSITORY_DIR / ".cache/kafka-libs"
# Of the brokers. Absolute: a broker runs in a directory of its own.
KAFKA_LIBS = Path(os.environ.get("EOCTL_KAFKA_LIBS") or COMMON_LIBS).absolute()


@cache
def _find_tool(tool: str) -> tuple[str, str]:
    """Its path and "", or "" and the sentence that says how to install it."""
    script = REPOSITORY_DIR / "scripts/require-tool.sh"
    found = subprocess.run(
        [script, "--find", tool], capture_output=True, text=True, check=False, timeout=60
    )
    if found.returncode == 0:
        return found.stdout.strip(), ""
    return "", found.stderr.strip() or f"{tool} was not found"


def tool(name: str) -> str:
    """The path of `java` or `mandoc`; RuntimeError when it is missing."""
    path, reason = _find_tool(name)
    if not path:
        raise RuntimeError(reason)
    return path


def missing_tool(name: str) -> str:
    """Why a program of `scripts/require-tool.sh` cannot be used, "" when it can."""
    return _find_tool(name)[1]


def missing_broker() -> str:
    """Why no broker can be started here, "" when one can."""
    if reason := missing_tool("java"):
        return reason
    if any(KAFKA_LIBS.glob("kafka_2.13-*.jar")):
        return ""
    if reason := missing_tool("mvn"):
        return f"Kafka's jars are missing, and {reason}"
    return "Kafka's jars are missing. To fetch them: make kafka-libs"


def release() -> str:
    """The release of these jars, such as 4.3: what `init` is told for a broker of them."""
    jar = next(KAFKA_LIBS.glob("kafka_2.13-*.jar")).name
    return ".".join(jar.removeprefix("kafka_2.13-").split(".")[:2])


def config_command() -> str:
    """The class of kafka-configs: another one since 4.4."""
    is_there = any(KAFKA_LIBS.glob("kafka_2.13-*.jar"))
    is_newer = is_there and tuple(map(int, release().split("."))) >= (4, 4)
    return "org.apache.kafka.tools.ConfigCommand" if is_newer else "kafka.admin.ConfigCommand"


def class_archive() -> Path:
    """Where the archive of loaded classes of this JVM is, if `tests.kafka.classes` has made it."""
    java = Path(tool("java")).resolve()
    return KAFKA_LIBS / f"classes-{java.stat().st_mtime_ns:x}.jsa"


def quick_start() -> list[str]:
    """JVM options that use it, where it is there."""
    archive = class_archive()
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else []


def java_command(*arguments: str, libs: Path | None = None) -> list[str]:
    """A call of a class of Kafka's jars: JVM options, class name, its arguments."""
    return [tool("java"), "-cp", f"{libs or KAFKA_LIBS}/*", *arguments]
