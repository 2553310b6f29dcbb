"""The broker harness itself: starts, stops, kills, logs, and kafka-dump-log file by file."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafka import client
from tests.kafka.broker import (
    CLEAN_MARKER,
    Broker,
    BrokerError,
    copy_log_dir,
    force_recovery,
    read_properties,
    replace_partition_files,
)
from tests.kafka.dump import dump_each, dump_log, dumpable_files, options_for

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.broker


def _lock_is_free(log_dir: Path) -> bool:
    with (log_dir / ".lock").open("r+b") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.exhaustive
def test_a_fresh_directory_from_format_to_crash(tmp_path: Path) -> None:
    log_dir = tmp_path / "log-dir"
    sent = [client.Outgoing("t", 0, b"k", b"v%d" % n, (("h", None),)) for n in range(20)]
    with Broker(log_dir) as broker:
        assert not _lock_is_free(log_dir)
        client.create_topics(broker.bootstrap, {"t": (1, {})})
        where = client.send(client.producer(broker.bootstrap, enable_idempotence=True), sent)
        assert where == [("t", 0, offset) for offset in range(20)]
        tid = client.transactional_producer(broker.bootstrap, "tid")
        client.transact(tid, [client.Outgoing("t", 0, None, b"kept")], commit=True)
        client.transact(tid, [client.Outgoing("t", 0, None, b"dropped")], commit=False)

        broker.stop()
        assert (log_dir / CLEAN_MARKER).exists()
        broker.start()
        assert not (log_dir / CLEAN_MARKER).exists()

        committed = client.consume(broker.bootstrap, "t", 0, isolation=client.READ_COMMITTED)
        everything = client.consume(broker.bootstrap, "t", 0, isolation=client.READ_UNCOMMITTED)
        assert [record.value for record in committed.records[20:]] == [b"kept"]
        assert [record.value for record in everything.records[20:]] == [b"kept", b"dropped"]
        assert [r[3:] for r in committed.records[:20]] == [
            (r.key, r.value, r.headers) for r in sent
        ]
        assert committed[1:] == everything[1:] == (0, 24)

        pid = broker.pid
        broker.kill()
        assert not _runs(pid)
        assert not (log_dir / CLEAN_MARKER).exists()
        assert _lock_is_free(log_dir)


@pytest.mark.exhaustive
def test_a_golden_directory_and_a_partition_put_under_it(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    source = golden("kafka-4.3.1") / "clean"
    log_dir = copy_log_dir(source, tmp_path / "log-dir")
    for file in source.rglob("*"):
        copied = log_dir / file.relative_to(source)
        assert copied.stat().st_mtime_ns == file.stat().st_mtime_ns

    with Broker(log_dir) as broker:
        read = client.consume(broker.bootstrap, "rolled", 0, isolation=client.READ_UNCOMMITTED)
        assert len(read.records) == read.end_offset - read.log_start_offset > 0
        broker.stop()

        # Two of its three segments, to be recovered from scratch.
        files = sorted((log_dir / "rolled-0").glob("*.log"))[:2]
        kept = [Path(shutil.copy2(file, tmp_path)) for file in files]
        replace_partition_files(log_dir / "rolled-0", kept)
        force_recovery(log_dir, "rolled-0")
        broker.start()
        part = client.consume(broker.bootstrap, "rolled", 0, isolation=client.READ_UNCOMMITTED)
        assert part.records == read.records[: len(part.records)]
        assert 0 < len(part.records) < len(read.records)
        loads = [line for line in broker.log_lines("rolled-0") if "Completed load of Log" in line]
        found = [re.search(r"with (\d+) segments", line) for line in loads]
        assert [match and match[1] for match in found] == ["3", "2"]
        assert all("rolled-0" in line for line in broker.log_lines("rolled-0"))


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "log-dir", overrides={"log.segment.bytes": "no number"})
    with pytest.raises(BrokerError, match=r"(?s)formatting .* failed.*no number"), broker:
        pass
    assert not broker.log_file.exists()


@pytest.mark.exhaustive
def test_several_log_directories(tmp_path: Path) -> None:
    log_dirs = [tmp_path / "one", tmp_path / "two"]
    with Broker(log_dirs) as broker:
        client.create_topics(broker.bootstrap, {"spread": (4, {})})
    known = [read_properties(log_dir / "meta.properties") for log_dir in log_dirs]
    assert known[0]["cluster.id"] == known[1]["cluster.id"]
    assert all((log_dir / CLEAN_MARKER).exists() for log_dir in log_dirs)
    spread = [path.name for log_dir in log_dirs for path in log_dir.glob("spread-*")]
    assert sorted(spread) == ["spread-0", "spread-1", "spread-2", "spread-3"]


@pytest.mark.exhaustive
def test_many_files_in_one_call_read_like_a_call_for_each(golden: Callable[[str], Path]) -> None:
    """In `crash` there are problems to report, and indexes on which the tool dies."""
    crash = golden("kafka-4.3.1") / "crash"
    files = dumpable_files(crash)
    together = dump_each(files)
    assert set(together) == set(files)
    died = [file for file, result in together.items() if result.returncode]
    reported = [file for file, result in together.items() if result.stderr and file not in died]
    assert died
    assert reported
    for file in [died[0], reported[0], reported[-1]]:
        alone = dump_log([file], *options_for(file))
        assert alone[0::2] == together[file][0::2]
        assert alone.returncode != 0 or alone.stderr == together[file].stderr
