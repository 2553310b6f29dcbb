"""Jars of real brokers of other releases, for `tests/broker/test_older_releases.py` and others.

    python -m tests.kafka.older_releases        # or: make older-kafka-libs

fetches them through Maven, 55 MB each, into `.cache/kafka-libs-VERSION`; what is there stays.
"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from tests.kafka import jars
from tests.kafka.capture.releases import fetch

if TYPE_CHECKING:
    from pathlib import Path

# The release that is asked for, and the one that stands for it.
VERSIONS = {
    "3.3": "3.3.2",
    "3.7": "3.7.2",
    "3.9": "3.9.1",
    "4.0": "4.0.0",
    "4.1": "4.1.1",
    "4.2": "4.2.0",
    "4.4": "4.4.0",
}


def libs_of(release: str) -> Path:
    """Where the jars of a release are."""
    return jars.REPOSITORY_DIR / f".cache/kafka-libs-{VERSIONS[release]}"


def missing_release(release: str) -> str:
    """Why no broker of it can be started, "" when one can."""
    if reason := jars.missing_tool("java"):
        return reason
    if any(libs_of(release).glob("kafka_2.13-*.jar")):
        return ""
    return (
        f"the jars of Kafka {VERSIONS[release]} are missing. To fetch them: make older-kafka-libs"
    )


def fetch_release(release: str) -> None:
    """Fetch the jars of a release, if they are not there; all of them or none."""
    libs, version = libs_of(release), VERSIONS[release]
    if libs.is_dir():
        return
    wanted = [
        f"org.apache.kafka:kafka_2.13:{version}",
        f"org.apache.kafka:kafka-tools:{version}",
        *([f"org.apache.kafka:kafka-streams:{version}"] if release == "4.4" else []),
        "org.slf4j:slf4j-simple:1.7.36",
    ]
    begun = libs.with_name(f"{libs.name}.new")
    shutil.rmtree(begun, ignore_errors=True)
    begun.parent.mkdir(exist_ok=True)
    fetch(wanted, begun)
    for other in begun.glob("slf4j-reload4j-*.jar"):  # it would log nowhere
        other.unlink()
    begun.rename(libs)


def main() -> int:
    """Fetch all of them, or those that are named."""
    for each in sys.argv[1:] or VERSIONS:
        fetch_release(each)
        print(f"Kafka {VERSIONS[each]}: {libs_of(each)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
