"""Measure `eoctl metadata --history` of a long metadata log, beside `dump-segment` of it.

    python -m bench.metadata_history [--mib 32] [--runs 3] [--directory DIR]

The log is that of a cluster of 12 brokers and 5,000 partitions with three replicas each: brokers
are fenced, lead nothing and leave the ISRs, come back, are led again; settings change; a controller
with nothing to do writes a record of no operation twice a second. Rounds of that follow each other
up to the size that is asked for. `dump-segment --cluster-metadata-decoder` prints a line for each
batch and record of the same log, in the same format.
"""

from __future__ import annotations

import argparse
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.make_log import MIB
from bench.measure import alternate, busy_lines, peak_memory_mib, read_ahead
from bench.rebuild import EOCTL
from storage.checksum import load_crc32c
from storage.formats import cluster_metadata as metadata
from storage.formats.cluster_metadata import encode_record
from storage.formats.control_record import (
    ControlRecordType,
    encode_control_key,
    encode_control_message,
)
from storage.formats.record import Record
from storage.formats.record import encode_record as encode_in_batch
from storage.formats.record_batch import CONTROL_MASK, BatchHeader, encode_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKERS_COUNT = 12
TOPICS_COUNT = 100
PARTITIONS_COUNT = 50  # of each topic
REPLICAS_COUNT = 3
LARGEST_BATCH = 300  # records
SMALL_BATCH = 4
IDLE_MS = 500
START_MS = 1_790_000_000_000
EPOCH = 1
SEGMENT_MIB = 256
NAME, DECODER = "__cluster_metadata-0", "--cluster-metadata-decoder"
OFFSET_POS, CRC_POS, CRC_START_POS, TIME_POS = 0, 17, 21, 27
RATIO_BAR, MEMORY_BAR_MIB = 1.5, 300

OFFSET, CRC, TIMES = struct.Struct(">q"), struct.Struct(">I"), struct.Struct(">qq")


class Part(NamedTuple):
    """A batch of a round: its bytes from offset 0 at time 0, its records, its time in the round."""

    data: bytes
    records_count: int
    time_ms: int


def _topic_id(topic: int) -> bytes:
    return b"\x01" + topic.to_bytes(15, "big")


def _directory_id(broker: int) -> bytes:
    return b"\x02" + broker.to_bytes(15, "big")


def _replicas(topic: int, partition: int) -> list[int]:
    first = topic + partition
    return [1 + (first + each) % BROKERS_COUNT for each in range(REPLICAS_COUNT)]


def _batch(values: list[bytes], *, control: list[int] | None = None) -> bytes:
    keys: list[bytes | None] = [encode_control_key(each) for each in control or ()]
    keys = keys or [None] * len(values)
    body = b"".join(
        encode_in_batch(Record(0, 0, delta, key, value, ()))
        for delta, (key, value) in enumerate(zip(keys, values, strict=True))
    )
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=EPOCH,
        magic=2,
        crc=0,
        attributes=CONTROL_MASK if control else 0,
        last_offset_delta=len(values) - 1,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=len(values),
    )
    return encode_batch(header, body)


def _beginning() -> list[bytes]:
    """Who is there, and which topics."""
    values = [
        encode_record(metadata.FEATURE_LEVEL, 0, {"name": "metadata.version", "featureLevel": 30})
    ]
    for broker in range(1, BROKERS_COUNT + 1):
        data: dict[str, Any] = {"brokerId": broker, "brokerEpoch": broker, "fenced": False}
        data |= {"incarnationId": _directory_id(broker), "logDirs": [_directory_id(broker)]}
        values.append(encode_record(metadata.REGISTER_BROKER, 3, data))
    for topic in range(TOPICS_COUNT):
        data = {"name": f"orders-of-region-{topic}", "topicId": _topic_id(topic)}
        values.append(encode_record(metadata.TOPIC, 0, data))
        data = {"resourceType": 2, "resourceName": data["name"], "name": "min.insync.replicas"}
        values.append(encode_record(metadata.CONFIG, 0, data | {"value": "2"}))
        for partition in range(PARTITIONS_COUNT):
            replicas = _replicas(topic, partition)
            data = {"partitionId": partition, "topicId": _topic_id(topic), "leaderEpoch": 0}
            data |= {"replicas": replicas, "isr": replicas, "leader": replicas[0]}
            data |= {"directories": [_directory_id(each) for each in replicas], "partitionEpoch": 0}
            values.append(encode_record(metadata.PARTITION, 1, data))
    return values


def _change(topic: int, partition: int, **data: Any) -> bytes:
    place = {"partitionId": partition, "topicId": _topic_id(topic)}
    return encode_record(metadata.PARTITION_CHANGE, 0, place | data)


def _round() -> Iterator[Part]:
    """Each broker goes and comes back once; in between nothing but a setting and idle time."""
    time_ms = 0
    idle = _batch([encode_record(metadata.NO_OP, 0, {})])
    for broker in range(1, BROKERS_COUNT + 1):
        gone, back, led = [], [], []
        for topic in range(TOPICS_COUNT):
            for partition in range(PARTITIONS_COUNT):
                replicas = _replicas(topic, partition)
                if broker not in replicas:
                    continue
                left = [each for each in replicas if each != broker]
                if replicas[0] == broker:
                    gone.append(_change(topic, partition, isr=left, leader=left[0]))
                    led.append(_change(topic, partition, leader=broker))
                else:
                    gone.append(_change(topic, partition, isr=left))
                back.append(_change(topic, partition, isr=[*left, broker]))
        state: dict[str, Any] = {"brokerId": broker, "brokerEpoch": broker}
        fence = encode_record(metadata.BROKER_REGISTRATION_CHANGE, 0, state | {"fenced": 1})
        unfence = encode_record(metadata.BROKER_REGISTRATION_CHANGE, 0, state | {"fenced": -1})
        for values, size, step_ms in (
            ([fence, *gone], LARGEST_BATCH, 1),
            ([unfence], 1, 60_000),
            (back, SMALL_BATCH, 5),
            (led, LARGEST_BATCH, 300_000),
        ):
            for start in range(0, len(values), size):
                time_ms += step_ms
                some = values[start : start + size]
                yield Part(_batch(some), len(some), time_ms)
        for number in range(200):
            time_ms += IDLE_MS
            if number == 100:
                data = {"resourceType": 2, "resourceName": f"orders-of-region-{broker}"}
                data |= {"name": "retention.ms", "value": str(3_600_000 * broker)}
                yield Part(_batch([encode_record(metadata.CONFIG, 0, data)]), 1, time_ms)
            yield Part(idle, 1, time_ms)


def make_metadata_log(path: Path, total_bytes: int) -> None:
    """Make the `__cluster_metadata-0` of a controller."""
    path.mkdir(parents=True)
    crc32c = load_crc32c()
    offset, base_ms, left_bytes = 0, START_MS, total_bytes
    message = {"leaderId": 1, "voters": [{"voterId": 1}]}
    leader = encode_control_message(ControlRecordType.LEADER_CHANGE, message)
    beginning = _beginning()
    parts = [Part(_batch([leader], control=[ControlRecordType.LEADER_CHANGE]), 1, 0)]
    for start in range(0, len(beginning), LARGEST_BATCH):
        some = beginning[start : start + LARGEST_BATCH]
        parts.append(Part(_batch(some), len(some), 0))
    following = [*_round()]
    while left_bytes > 0:
        with (path / f"{offset:020d}.log").open("wb", buffering=1 << 20) as file:
            while left_bytes > 0 and file.report() < SEGMENT_MIB * MIB:
                for data, count, time_ms in parts:
                    batch = bytearray(data)
                    OFFSET.pack_into(batch, OFFSET_POS, offset)
                    TIMES.pack_into(batch, TIME_POS, base_ms + time_ms, base_ms + time_ms)
                    CRC.pack_into(batch, CRC_POS, crc32c(memoryview(batch)[CRC_START_POS:]))
                    file.write(batch)
                    left_bytes -= len(batch)
                    offset += count
                    if left_bytes <= 0:
                        break
                base_ms += parts[-1].time_ms
                parts = following
    (path / "leader-epoch-checkpoint").write_text(f"0\n1\n{EPOCH} 0\n")


def history_lines(mib: int, runs: int, directory: Path | None = None) -> list[str]:
    """Markdown of the whole measurement."""
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        root = directory or Path(temporary)
        path = root / f"metadata-{mib}" / NAME
        if not path.exists():
            make_metadata_log(path, mib * MIB)
        segments = sorted(path.glob("*.log"))
        for each in segments:
            read_ahead(each)
        dump = [*EOCTL, "dump-segment", DECODER, *map(str, segments)]
        history = [*EOCTL, "metadata", str(path), "--history"]
        lines = [
            f"| history of {mib} MiB | s (CPU) | dump-segment, s (CPU) | ratio | CPU | bar | MiB |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for output in ("text", "jsonl"):
            form = ("--output", output)
            ours, theirs = alternate([[*history, *form], [*dump, *form]], runs)
            used = peak_memory_mib([*history, *form])
            cells = [
                output,
                f"{ours.best_s:.1f} ({ours.best_cpu_s:.1f})",
                f"{theirs.best_s:.1f} ({theirs.best_cpu_s:.1f})",
                f"{ours.best_s / theirs.best_s:.2f}",
                f"{ours.best_cpu_s / theirs.best_cpu_s:.2f}",
                f"{RATIO_BAR:g}",
                f"{used:.0f} (bar {MEMORY_BAR_MIB})",
            ]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    return lines + busy_lines()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=32, help="size of the log")
    parser.add_argument("--runs", type=int, default=3, help="of each program")
    parser.add_argument("--directory", type=Path, help="keep the log there")
    chosen = parser.parse_args()
    print("\n".join(history_lines(chosen.mib, chosen.runs, chosen.directory)))


if __name__ == "__main__":
    main()
