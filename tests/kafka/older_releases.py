"""Holds what `eoctl init` makes against real brokers of older releases.

    python -m tests.kafka.older_releases

Maven fetches their jars, 55 MB each, so this is no part of `make test`. The tests of init that start
a broker then run with these jars in the place of those of 4.3.1.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.kafka.capture.releases import fetch

RELEASES = {"3.7": "3.7.2", "3.9": "3.9.1", "4.0": "4.0.0"}
TEST = "tests/broker/test_init.py::test_a_broker_serves_it"


def main() -> int:
    """Run the test for each release; the status of the last one that failed."""
    status = 0
    with tempfile.TemporaryDirectory(prefix="eoctl-older-") as name:
        for release, version in RELEASES.items():
            wanted = [
                f"org.apache.kafka:kafka_2.13:{version}",
                f"org.apache.kafka:kafka-tools:{version}",
                "org.slf4j:slf4j-simple:1.7.36",
            ]
            libs = fetch(wanted, Path(name, version))
            for other in libs.glob("slf4j-reload4j-*.jar"):  # it would log nowhere
                other.unlink()
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", f"{TEST}[{release}]"],
                env={**os.environ, "EOCTL_KAFKA_LIBS": str(libs)}, check=False,
            )  # fmt: skip
            print(f"Kafka {version}: {'failed' if done.returncode else 'serves it'}")
            status = done.returncode or status
    return status


if __name__ == "__main__":
    sys.exit(main())
