"""Measure the audit of `eoctl bench`: what has landed in the log dirs of four brokers.

    python -m bench.landed [--mib 1024] [--runs 3] [--batch-records 4] [--directory DIR]

The logs are made once, and kept in .cache/bench-landed: 12 partitions with a copy at each of four
brokers, keys and values as the records of a run have them, so many in a batch. Each run is a
process of its own, from its start to its end, page cache warm, that reads all copies as a run of
`eoctl bench` does after it has sent, and says what has landed: every record, once in every log,
or the measurement ends. The bar is 10 s for 1 GiB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.make_log import MIB
from bench.measure import alternate, busy_lines, peak_memory_mib, read_ahead
from eoctl.lab.bench.audit import judge, read_copies
from eoctl.lab.bench.load import ACKNOWLEDGED, KEY, Sent, values_pool
from storage.dirs.topic_settings import LogConfig
from storage.kernels.kernel_choice import select_kernel
from storage.writing.record_builder import BatchBuilder
from tests.writing import NOW_MS, make_log_dir, open_writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.lab.bench.audit import Landed

KEPT_DIR = Path(__file__).parents[1] / ".cache/bench-landed"
BROKERS = (0, 1, 2, 3)
PARTITIONS_COUNT = 12
TOPIC = "bench"
RUN_KEY = 0x1234_5678_9ABC
VALUE_BYTES = 1000
RECORD_BYTES = 1040  # key, value, and what belongs to a record and its share of a batch
BAR_S, BAR_MIB = 10, 1024
COUNT_NAME = "records.json"


def made(mib: int, batch_records: int, place: Path) -> Path:
    """Make the log dirs, or take them if they are there; returns the directory of all."""
    root = place / f"{mib}-{batch_records}"
    if (root / COUNT_NAME).exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    count = mib * MIB // len(BROKERS) // RECORD_BYTES
    first = make_log_dir(root / str(BROKERS[0]))
    values = values_pool(0, VALUE_BYTES)
    for partition in range(PARTITIONS_COUNT):
        writer = open_writer(first / f"{TOPIC}-{partition}", LogConfig())
        builder = BatchBuilder()
        own = range(partition, count, PARTITIONS_COUNT)
        for place_in_log, sequence in enumerate(own, 1):
            builder.add(KEY.pack(RUN_KEY, sequence), values[sequence % len(values)], NOW_MS)
            if not place_in_log % batch_records or place_in_log == len(own):
                writer.append(builder.build())
        writer.close()
    for each in BROKERS[1:]:
        shutil.copytree(first, root / str(each))
    (root / COUNT_NAME).write_text(json.dumps(count))
    return root


def audit(root: Path) -> Landed:
    """Audit them in this process, as `eoctl bench` does."""
    count = json.loads((root / COUNT_NAME).read_text())
    sent = Sent(
        intended_ns=np.zeros(count, np.int64),
        answered_ns=np.ones(count, np.int64),
        status=np.full(count, ACKNOWLEDGED, np.int8),
        partition=(np.arange(count) % PARTITIONS_COUNT).astype(np.int32),
        errors={},
    )
    log_dirs = {each: root / str(each) for each in BROKERS}
    in_sync = dict.fromkeys(range(PARTITIONS_COUNT), BROKERS)
    return judge(sent, read_copies(RUN_KEY, count, log_dirs, TOPIC, in_sync), in_sync)


def require_all(landed: Landed, count: int) -> None:
    """Raises RuntimeError: the audit has not found what is there."""
    found = (landed.landed_count, landed.missing_count, landed.twice_count, landed.others_count)
    if found != (count, 0, 0, 0) or landed.notes:
        raise RuntimeError(f"of {count} records: {landed}")


def landed_lines(
    mib: int, runs: int, batch_records: int = 4, place: Path | None = None
) -> Iterator[str]:
    """Make the logs, audit them, and give a table."""
    root = made(mib, batch_records, place or KEPT_DIR)
    logs = sorted(root.glob(f"*/{TOPIC}-*/*.log"))
    total_bytes = 0
    for each in logs:
        total_bytes += each.stat().st_size
        read_ahead(each)
    command = [sys.executable, "-m", "bench.landed", "--audit", str(root)]
    yield "| audit of bench, four log dirs | kernel | s (CPU) | bar | MiB at most |"
    yield "| --- | --- | --- | --- | --- |"
    for kernel in dict.fromkeys((select_kernel(), "numpy")):
        chosen = ["env", f"EOCTL_KERNEL={kernel}", *command]
        (cost,) = alternate([chosen], runs)
        yield (
            f"| {total_bytes / MIB:,.0f} MiB, {batch_records} records a batch | {kernel}"
            f" | {cost.best_s:.1f} ({cost.best_cpu_s:.1f}) | {BAR_S * mib / BAR_MIB:g}"
            f" | {peak_memory_mib(chosen):.0f} |"
        )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=BAR_MIB, help="of all log dirs together")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--batch-records", type=int, default=4)
    parser.add_argument("--directory", type=Path, help="keep the logs there")
    parser.add_argument("--audit", type=Path, help="audit these, once, and say what was found")
    chosen = parser.parse_args()
    if chosen.audit is not None:
        landed = audit(chosen.audit)
        require_all(landed, json.loads((chosen.audit / COUNT_NAME).read_text()))
        print(landed)
        return
    for line in landed_lines(chosen.mib, chosen.runs, chosen.batch_records, chosen.directory):
        print(line, flush=True)
    print("\n".join(busy_lines()))


if __name__ == "__main__":
    main()
