"""Fixtures of other folders that tests of the laboratory use too."""

from tests.cli.conftest import kafka
from tests.crash.conftest import scratch, server

__all__ = ["kafka", "scratch", "server"]
