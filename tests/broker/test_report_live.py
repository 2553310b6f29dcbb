"""`eoctl report` of a log dir that a broker writes meanwhile: it is told, and nothing is made up."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tests.changes import rows_of
from tests.kafka import client
from tests.kafka.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive]

SECONDS = 300
REPORTS = 3
SETTINGS = {"segment.bytes": "1048576"}  # the smallest of a broker: it rolls while we read
GRAVE = {"error", "warning"}


class _Writing(threading.Thread):
    """Sends records until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.sent_count = 0
        self._servers = bootstrap
        self._stop_asked = threading.Event()
        self.has_sent = threading.Event()

    def run(self) -> None:
        producer = client.producer(self._servers, enable_idempotence=True)
        value = os.urandom(2000)
        while not self._stop_asked.is_set():
            client.send(producer, [client.Outgoing("live", 0, b"key", value)] * 50)
            self.sent_count += 50
            self.has_sent.set()

    def stop(self) -> None:
        self._stop_asked.set()
        self.join(SECONDS)
        assert not self.is_alive()


def test_a_report_while_a_broker_writes(tmp_path: Path, eoctl: Callable[..., Outcome]) -> None:
    """In use is said at the top; no error, no warning; afterwards the numbers are the commands'."""
    log_dir, to = tmp_path / "log-dir", tmp_path / "r.html"
    with Broker(log_dir) as broker:
        client.create_topics(broker.bootstrap, {"live": (1, SETTINGS)})
        writing = _Writing(broker.bootstrap)
        writing.start()
        try:
            assert writing.has_sent.wait(SECONDS)
            for _ in range(REPORTS):
                before = writing.sent_count
                command = [sys.executable, "-m", "eoctl", "report", log_dir, "--jobs", "1"]
                done = subprocess.run(
                    [*command, "--to", to, "--force", "--output", "jsonl"],
                    stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=SECONDS,
                )  # fmt: skip
                assert done.returncode == 0, done.stdout[-2000:] + done.stderr
                rows = rows_of(done)
                found = [each for each in rows if each.get("severity") in GRAVE]
                assert [each for each in found if each["kind"] == "finding"] == []
                (live,) = (
                    each
                    for each in rows
                    if (each["kind"], each.get("topic")) == ("partition", "live")
                )
                assert live["end_offset"] >= before
                first = to.read_text().partition('id="timelines"')[0]
                assert f"{log_dir}: a broker is running on it" in first
                assert 'class="answer good"><h3>What is wrong' not in first
        finally:
            writing.stop()
        assert not broker.error_lines()
    done = eoctl("report", log_dir, "--now", "dir", "--output", "jsonl")
    own = {each["path"]: each["end_offset"] for each in rows_of(done, "partition")}
    check = eoctl("check", log_dir, "--now", "dir", "--output", "jsonl")
    assert own == {each["path"]: each["end_offset"] for each in rows_of(check, "partition")}
    assert own[str(log_dir / "live-0")] >= writing.sent_count
