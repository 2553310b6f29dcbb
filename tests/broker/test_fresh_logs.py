"""The freshly made log directory holds what it was made for, and kafka-dump-log can read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.broker import CLEAN_MARKER
from tests.kafka.dump import dumpable_files
from tests.kafka.fresh import CODECS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.dump import DumpResult
    from tests.kafka.fresh import FreshLogDir

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive]


def _names(state: Path, pattern: str) -> set[str]:
    return {str(path.relative_to(state)) for path in state.glob(pattern)}


def _printed(dumps: dict[Path, DumpResult], state: Path, pattern: str) -> bytes:
    return b"".join(dumps[path].stdout for path in sorted(state.glob(pattern)))


def test_only_the_stopped_state_has_the_marker(fresh_log_dir: FreshLogDir) -> None:
    assert not (fresh_log_dir.crash / CLEAN_MARKER).exists()
    assert (fresh_log_dir.clean / CLEAN_MARKER).exists()


@pytest.mark.parametrize(
    "pattern",
    [
        "codec-none-0/*.log",
        "txn-*/*.txnindex",
        "plain-0/*.snapshot",
        "trimmed-0/*.log",
        "doomed-*-delete/*.log",
        "__transaction_state-*/*.log",
        "bootstrap.checkpoint",
        "__cluster_metadata-0/quorum-state",
    ],
)
def test_both_states_have_the_files(fresh_log_dir: FreshLogDir, pattern: str) -> None:
    assert _names(fresh_log_dir.crash, pattern)
    assert _names(fresh_log_dir.clean, pattern)


def test_the_cleaner_was_at_work(fresh_log_dir: FreshLogDir) -> None:
    assert _names(fresh_log_dir.crash, "compacted-0/*.log.deleted")
    assert "compacted 0 " in (fresh_log_dir.crash / "cleaner-offset-checkpoint").read_text()


def test_logs_rolled_and_one_was_cut_at_its_start(fresh_log_dir: FreshLogDir) -> None:
    assert len(_names(fresh_log_dir.crash, "plain-0/*.log")) > 1
    assert len(_names(fresh_log_dir.crash, "txn-*/*.log")) > 2
    assert (fresh_log_dir.crash / "log-start-offset-checkpoint").read_text().count("trimmed 0") == 1


def test_kafka_dump_log_prints_every_file(
    fresh_log_dir: FreshLogDir,
    fresh_dumps: dict[Path, DumpResult],
    fresh_header_dumps: dict[Path, DumpResult],
) -> None:
    files = {*dumpable_files(fresh_log_dir.crash), *dumpable_files(fresh_log_dir.clean)}
    assert set(fresh_dumps) == files
    assert set(fresh_header_dumps) == {
        path for path in files if path.suffix in {".log", ".checkpoint"}
    }
    for path, result in {**fresh_header_dumps, **fresh_dumps}.items():
        assert result.stdout.startswith(b"Dumping %s\n" % bytes(path))
        if result.returncode:  # it dies on the untrimmed index of an empty log, and only there
            assert path.suffix == ".index"
            assert path.with_suffix(".log").stat().st_size == 0


@pytest.mark.parametrize("codec", CODECS)
def test_batches_have_the_codec(
    fresh_log_dir: FreshLogDir, fresh_dumps: dict[Path, DumpResult], codec: str
) -> None:
    printed = _printed(fresh_dumps, fresh_log_dir.crash, f"codec-{codec}-0/*.log")
    assert b"compresscodec: %s " % codec.encode() in printed


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("append-time-0/*.log", b"LogAppendTime: "),
        ("txn-*/*.log", b"endTxnMarker: COMMIT"),
        ("txn-*/*.log", b"endTxnMarker: ABORT"),
        ("txn-*/*.snapshot", b"currentTxnFirstOffset: OptionalLong["),
        ("recompressed-0/*.log", b"compresscodec: zstd"),
        ("__consumer_offsets-*/*.log", b"simple-1"),
        ("__consumer_offsets-*/*.log", b"<DELETE>"),
        ("__transaction_state-*/*.log", b"open-1"),
        ("__cluster_metadata-0/*.log", b"TOPIC_RECORD"),
    ],
)
def test_kinds_of_records(
    fresh_log_dir: FreshLogDir, fresh_dumps: dict[Path, DumpResult], pattern: str, words: bytes
) -> None:
    assert words in _printed(fresh_dumps, fresh_log_dir.clean, pattern)
