"""What we write as a `bootstrap.checkpoint` against those that kafka-storage has written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.new_log_dir.records import BATCH_RECORDS, encode_bootstrap
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.formats.record import Record
    from storage.formats.record_batch import BatchHeader

NOW_MS = 1_795_000_000_000


def batches_of(path: Path) -> list[tuple[BatchHeader, list[Record]]]:
    with open_segment(path) as segment:
        scan = segment.scan(is_active=False)
        found = [(each.header, list(segment.records(each))) for each in scan]
        assert not scan.verdicts
    return found


def values_of(path: Path) -> list[bytes]:
    return [
        record.value or b""
        for header, records in batches_of(path)
        if not header.is_control
        for record in records
    ]


@pytest.mark.parametrize(
    "path", ["kafka-3.3.2/one", "kafka-3.9.1/one", "kafka-4.3.1/clean", "kafka-4.3.1/tv2"]
)
def test_as_kafka_writes_it(path: str, golden: Callable[[str], Path], tmp_path: Path) -> None:
    """All but the times, each of which Kafka takes anew."""
    name, _, state = path.partition("/")
    theirs = golden(name) / state / "bootstrap.checkpoint"
    ours = tmp_path / "bootstrap.checkpoint"
    ours.write_bytes(encode_bootstrap(values_of(theirs), NOW_MS))
    assert ours.stat().st_size == theirs.stat().st_size
    for (made, records), (known, known_records) in zip(
        batches_of(ours), batches_of(theirs), strict=True
    ):
        times = {"base_timestamp_ms": 0, "max_timestamp_ms": 0, "crc": 0}
        assert made._replace(**times) == known._replace(**times)
        assert [(each.key, each.value) for each in records] == [
            (each.key, each.value) for each in known_records
        ]


def test_many_records_are_several_batches(tmp_path: Path) -> None:
    values = [b"%d" % number for number in range(2 * BATCH_RECORDS + 1)]
    path = tmp_path / "bootstrap.checkpoint"
    path.write_bytes(encode_bootstrap(values, NOW_MS))
    assert values_of(path) == values
    headers = [header for header, _ in batches_of(path)]
    assert [each.records_count for each in headers] == [1, BATCH_RECORDS, BATCH_RECORDS, 1, 1]
    offsets = [each.base_offset for each in headers]
    assert offsets == [0, 1, BATCH_RECORDS + 1, 2 * BATCH_RECORDS + 1, 2 * BATCH_RECORDS + 2]
