"""Measure counting records on Spark: by rows, by offsets alone, by batches, and by segments.

    python -m bench.spark_count [--mib 256] [--parts 4] [--runs 2]

One session in `local[2]`; each query has run once before on a small log.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.audit import make_logs
from bench.spark_scale import family_cpu_s, table

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS = {
    "`kafka-log-records`, `count()`": ("kafka-log-records", {}, ""),
    "the same with `columns=offset`": ("kafka-log-records", {"columns": "offset"}, ""),
    "`kafka-log-batches`, `sum(records_count)`": ("kafka-log-batches", {}, "records_count"),
    "`kafka-log-segments`, `sum(records)`": ("kafka-log-segments", {}, "records"),
}


def query_of(
    session: Any, source: str, options: dict[str, str], column: str
) -> Callable[[list[str]], int]:
    """Return what counts the records behind paths."""

    def count(paths: list[str]) -> int:
        frame = session.read.format(source).options(**options)
        frame = frame.option("paths", json.dumps(paths)).load()
        return int(frame.agg({column: "sum"}).first()[0] if column else frame.count())

    return count


def count_lines(mib: int, parts: int, runs: int) -> list[str]:
    """Return the rows of the table."""
    from eoctl.spark.datasource import register
    from eoctl.spark.session import spark_session

    rows = []
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        root = Path(temporary)
        logs = {size: make_logs(root, size, mib, parts) for size in ("16k", "1k")}
        small = make_logs(root / "small", "16k", 1, 1)
        with spark_session("local[2]") as session:
            register(session)
            gateway: Any = session.sparkContext._gateway  # noqa: SLF001
            for name, way in WAYS.items():
                count = query_of(session, *way)
                count([str(small[0])])
                row: list[object] = [name]
                for paths in logs.values():
                    times = []
                    for _ in range(runs):
                        used, begun = family_cpu_s(gateway.proc.pid), time.perf_counter()
                        found = count([str(path) for path in paths])
                        used = family_cpu_s(gateway.proc.pid) - used
                        times.append((time.perf_counter() - begun, used))
                    row.append(f"{min(times)[0]:.1f} s, {min(each[1] for each in times):.1f} CPU s")
                rows.append([*row, f"{found:,}"])
                print(rows[-1], flush=True)
    gib = mib * parts / 1024
    heads = [f"count over {gib:g} GiB", "batches of 16 KiB", "of 1 KiB", "records of the latter"]
    return table(heads, rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=256, help="size of a segment")
    parser.add_argument("--parts", type=int, default=4, help="partitions that share it")
    parser.add_argument("--runs", type=int, default=2)
    chosen = parser.parse_args()
    print("\n".join(count_lines(chosen.mib, chosen.parts, chosen.runs)))


if __name__ == "__main__":
    main()
