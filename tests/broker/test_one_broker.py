"""What eoctl writes, in one log directory under one real broker: `make test` runs this one.

`make test-all` starts brokers for each command and option.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.kafka import client
from tests.kafka.broker import Broker, copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]

pytestmark = pytest.mark.broker

ISOLATIONS = (client.READ_COMMITTED, client.READ_UNCOMMITTED)
CHANGED = ("plain-0", "plain-1", "idem-zstd-0", "txn-0", "txn-1", "rolled-0", "ctp-out-0")
NOW = "2026-11-22T00:00:00Z"


def applied(eoctl: Eoctl, *words: object) -> None:
    done = eoctl(*words, "--apply")
    assert done.status == 0, done.errors


def change_everything(eoctl: Eoctl, log_dir: Path, lines: Path) -> None:
    """Produce, truncate, complete transactions, rebuild and salvage, each in its own partition."""
    lines.write_bytes(b"".join(b"%d " % n + b"x" * (n % 300) + b"\n" for n in range(500)))
    produce = ("--batch-bytes", 2000, "--index-max-bytes", 16384)
    applied(eoctl, "produce", log_dir / "plain-0", lines, *produce)
    applied(
        eoctl, "produce", log_dir / "plain-1", lines, *produce, "--segment-bytes", 16384,
        "--txn-records", 50, "--abort-every", 3, "--compression", "lz4",
    )  # fmt: skip
    applied(eoctl, "produce", log_dir / "idem-zstd-0", lines, *produce, "--compression", "zstd")
    applied(eoctl, "truncate", log_dir / "txn-0", "--to-offset", 311)
    applied(eoctl, "txn", "complete", log_dir, "--now", NOW)
    next((log_dir / "rolled-0").glob("*.index")).unlink()
    applied(eoctl, "rebuild", log_dir / "rolled-0", "--index-max-bytes", 16384)
    log = log_dir / "ctp-out-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    applied(eoctl, "repair", log_dir / "ctp-out-0", "--strategy", "salvage", "--now", NOW)


def test_a_broker_takes_over_what_the_commands_wrote(
    golden: Callable[[str], Path], eoctl: Eoctl, tmp_path: Path
) -> None:
    """A real client then reads what `eoctl consume` reads, and the log goes on."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "kafka")
    change_everything(eoctl, log_dir, tmp_path / "lines")
    checked = eoctl("check", log_dir, "--predict", "--now", NOW, "--output", "jsonl")
    rows = [json.loads(line) for line in checked.text.splitlines()]
    errors = [each for each in rows if each["kind"] == "finding" and each["severity"] == "error"]
    # What the truncation and the salvage have lost stays lost, and the journals say so.
    assert {(each["check_id"], each["topic"]) for each in errors} == {
        ("JNL-3", "txn"),
        ("JNL-3", "ctp-out"),
    }
    expected = {}
    for name in CHANGED:
        for isolation in ISOLATIONS:
            found = eoctl(
                "consume", log_dir / name, "--isolation", isolation, "--output", "jsonl",
                "--bytes", "base64",
            )  # fmt: skip
            assert found.status == (5 if name == "ctp-out-0" else 0), found.errors
            expected[name, isolation] = [
                client.from_json(line) for line in found.stdout.splitlines()
            ]
    assert len(expected["plain-1", client.READ_UNCOMMITTED]) > 500
    with Broker(log_dir) as broker:
        for (name, isolation), records in expected.items():
            topic, _, partition = name.rpartition("-")
            given = client.consume(broker.bootstrap, topic, int(partition), isolation=isolation)
            assert given.records == records, (name, isolation)
        producer = client.transactional_producer(broker.bootstrap, "next")
        for name in CHANGED:
            topic, _, partition = name.rpartition("-")
            sent = [client.Outgoing(topic, int(partition), b"key", b"more")]
            client.transact(producer, sent, commit=True)
        broker.stop()
        for name in CHANGED:
            said = "\n".join(broker.log_lines(name))
            assert "Completed load of Log" in said, name
            assert not any(word in said for word in ("ERROR", "WARN", "Truncating", "orrupt")), said
    after = eoctl("check", log_dir, "--output", "jsonl")
    found = [row for row in map(json.loads, after.text.splitlines()) if row["kind"] == "finding"]
    assert {row["check_id"] for row in found if row["severity"] == "error"} == {"JNL-3"}
