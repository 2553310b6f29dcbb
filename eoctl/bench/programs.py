"""What has to be there from outside: Java, Kafka's jars, librdkafka, somebody's own commands.

Nothing is installed or fetched here: the error says how.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import NamedTuple

from eoctl.libraries import REQUIREMENTS, install_call
from storage.errors import UsageError

MIN_JAVA = 17
MAIN_JAR = re.compile(r"kafka_2\.1\d-(\d[\w.-]*)\.jar")
ASK_S = 60
ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:,/\[\]]+):(\d{1,5})")
# Where the project's own script puts jars, in a clone.
CLONE = Path(__file__).parents[2]
FETCHED = CLONE / ".cache/kafka-libs"
SCRIPT = CLONE / "scripts/fetch-kafka-libs.sh"


class Kafka(NamedTuple):
    """Kafka's programs.

    Attributes:
        java: a program.
        libs: the directory of the jars.
        version: of Kafka.
        java_version: as it says itself.
    """

    java: str
    libs: str
    version: str
    java_version: str

    def command(self, *arguments: str) -> list[str]:
        """Give a call of a class: options of the JVM, the class, its arguments."""
        return [self.java, "-cp", f"{self.libs}/*", *arguments]


def require_client() -> None:
    """Raise UsageError where confluent-kafka is not installed."""
    if find_spec("confluent_kafka") is None:
        raise UsageError(
            "bench needs confluent-kafka, which is not installed",
            next_step=install_call(REQUIREMENTS["confluent_kafka"]),
        )


def find_kafka(home: str | None) -> Kafka:
    """Find Java and the jars of Kafka.

    Args:
        home: an installation of Kafka, or a directory of jars; None: EOCTL_KAFKA_LIBS, else what
            the project's script has fetched.

    Raises:
        UsageError: Java or the jars are missing.
    """
    java, java_version = _find_java()
    named = home or os.environ.get("EOCTL_KAFKA_LIBS")
    places = [Path(named, "libs"), Path(named)] if named else [FETCHED]
    for place in places:
        versions = [found[1] for each in _names(place) if (found := MAIN_JAR.fullmatch(each))]
        if versions:
            return Kafka(
                java=java,
                libs=str(place.resolve()),
                version=versions[0],
                java_version=java_version,
            )
    if named:
        raise UsageError(
            f"{named}: no installation of Kafka: no kafka_2.13-*.jar in there, nor in its libs",
            next_step="--kafka-home DIR, as unpacked from kafka_2.13-4.3.1.tgz",
        )
    fetch = f", or {SCRIPT}" if SCRIPT.exists() else ""
    raise UsageError(
        "bench starts real brokers, and there are no jars of Kafka",
        next_step=f"--kafka-home DIR, an installation of Kafka{fetch}",
    )


def _names(place: Path) -> list[str]:
    try:
        return sorted(each.name for each in place.iterdir())
    except OSError:
        return []


def _find_java() -> tuple[str, str]:
    home = os.environ.get("JAVA_HOME")
    java = which("java", path=str(Path(home, "bin"))) if home else None
    java = java or which("java")
    if java is None:
        raise UsageError(
            f"bench starts real brokers, and there is no java (Java {MIN_JAVA} or later)",
            next_step="install a JRE, or set JAVA_HOME; or --against HOST:PORT",
        )
    try:
        asked = subprocess.run(
            [java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", check=False, timeout=ASK_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{java}: cannot be run: {error}") from error
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', asked.stderr + asked.stdout)
    if found is None or int(found[2]) < MIN_JAVA:
        said = found[1] if found else "nothing that it says"
        raise UsageError(
            f"{java}: brokers need Java {MIN_JAVA} or later, and this is {said}",
            next_step="set JAVA_HOME",
        )
    return java, found[1]


def require_addresses(text: str) -> None:
    """Raise UsageError if it is no HOST:PORT, or several with commas."""
    for each in text.split(","):
        found = ADDRESS.fullmatch(each.strip())
        if found is None or not 0 < int(found[2]) < 1 << 16:
            raise UsageError(f"--against {text}: {each!r} is no HOST:PORT")


def require_command(option: str, text: str) -> list[str]:
    """Read a command as a shell takes words. Raises UsageError if it cannot be run."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error
    if not words or which(words[0]) is None:
        raise UsageError(f"{option} {text}: no such program")
    return words
