"""What is kept of a run, as soon as it has ended: its samples, and a line of figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.files import fsio
from storage.files.file_attributes import own_attributes, umask
from storage.files.fsio import FileSystem
from storage.os_errors import os_errors

if TYPE_CHECKING:
    from eoctl.bench.course import CellRun

RUNS_NAME = "runs.jsonl"


class Recorder:
    """Keeps runs in a directory, which is made.

    runs.jsonl            a line for each run
    s1-NAME-1.parquet     a row for each record of a run (0 and less: a warm-up): partition,
                          intended_ns, answered_ns and received_ns of one monotonic clock,
                          status (0 no answer, 1 acknowledged, 2 failed); nulls: never
    """

    def __init__(self, directory: str) -> None:
        self._fs = FileSystem()
        self._directory = Path(directory)
        if not self._directory.is_dir():
            with os_errors(directory):
                self._fs.make_dir(directory, 0o777 & ~umask())
        self._lines: list[str] = []

    def keep(self, run: CellRun) -> None:
        """Keep a run. Raises AccessError."""
        name = f"s{run.cell.scenario}-{run.cell.name}-{run.repetition + 1}"
        data = samples_parquet(run)
        path = self._directory / f"{name}.parquet"
        fsio.replace_file(self._fs, path, data, attributes=own_attributes())
        self._lines.append(json.dumps(figures_of(run)) + "\n")
        text = "".join(self._lines).encode()
        path = self._directory / RUNS_NAME
        fsio.replace_file(self._fs, path, text, attributes=own_attributes())


def figures_of(run: CellRun) -> dict[str, Any]:
    """Give the figures of one run, as they are kept."""
    landed = run.landed._asdict()
    for name in ("missing", "twice"):
        landed[name] = [each._asdict() for each in landed[name]]
    return {
        "scenario": run.cell.scenario,
        "cell": run.cell.name,
        "repetition": run.repetition + 1,
        "topic": run.topic,
        "records_count": run.sent.records_count,
        "records_per_s": round(run.records_per_s, 1),
        "intended_per_s": round(run.rate, 1) or None,
        "moved_count": run.moved_count,
        "load_average": run.load_average,
        "audit_s": round(run.audit_s, 3),
        "failed": run.sent.errors,
        **landed,
    }


def samples_parquet(run: CellRun) -> bytes:
    """Give the samples of a run as a Parquet file."""
    from io import BytesIO

    import pyarrow as pa
    from pyarrow import parquet

    sent = run.sent
    columns = {
        "partition": pa.array(sent.partition, pa.int32()),
        "intended_ns": pa.array(sent.intended_ns, pa.int64()),
        "answered_ns": pa.array(sent.answered_ns, pa.int64(), mask=sent.answered_ns == 0),
        "status": pa.array(sent.status, pa.int8()),
    }
    if run.received_ns is not None:
        columns["received_ns"] = pa.array(run.received_ns, pa.int64(), mask=run.received_ns == 0)
    buffer = BytesIO()
    parquet.write_table(pa.table(columns), buffer)
    return buffer.getvalue()
