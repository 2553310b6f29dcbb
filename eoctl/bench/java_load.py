"""The same records from Kafka's own producer, for comparison: kafka-producer-perf-test.

It does not wait for answers but for room in its buffer (32 MiB), and its records carry nothing by
which they could be known again: the audit counts them.
"""

from __future__ import annotations

import re
import subprocess
import time
from typing import TYPE_CHECKING

import numpy as np

from eoctl.bench.load import ACKNOWLEDGED, FAILED, Sent
from storage.errors import RefusedError

if TYPE_CHECKING:
    from eoctl.bench.load import LoadOptions
    from eoctl.bench.programs import Kafka
    from eoctl.bench.scenarios import Cell

PROGRAM = "org.apache.kafka.tools.ProducerPerformance"
LONGEST_S = 3600.0
_TOLD = re.compile(r"(\d+) records sent, ([\d.]+) records/sec")
_FAILED = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)")


def send_by_java(
    kafka: Kafka, bootstrap: str, cell: Cell, topic: str, options: LoadOptions
) -> Sent:
    """Send them; all have the same times, by which the rate is that of the tool.

    Raises:
        RefusedError: the tool fails, or says nothing that is understood.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "acks": str(cell.acks),
        "retries": str(cell.retries),
        "linger.ms": "0",
        "enable.idempotence": str(cell.is_idempotent).lower(),
    }
    command = kafka.command(
        "-Xmx256M", PROGRAM, "--topic", topic, "--num-records", str(options.records),
        "--record-size", str(options.value_bytes), "--throughput", "-1",
        "--producer-props", *(f"{name}={value}" for name, value in settings.items()),
    )  # fmt: skip
    begun_ns = time.monotonic_ns()
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        check=False, timeout=LONGEST_S,
    )  # fmt: skip
    told = _TOLD.findall(done.stdout)
    if done.returncode != 0 or not told:
        last = [*filter(None, (done.stderr + done.stdout).splitlines())][-1:]
        raise RefusedError(f"{PROGRAM} ended with status {done.returncode}: {''.join(last)}")
    count, rate = int(told[-1][0]), float(told[-1][1])
    errors: dict[str, int] = {}
    for name in _FAILED.findall(done.stdout + done.stderr):
        errors[name] = errors.get(name, 0) + 1
    acknowledged = max(count - sum(errors.values()), 0)
    ended_ns = begun_ns + round(count * 1e9 / rate) if rate else begun_ns
    return Sent(
        intended_ns=np.full(count, begun_ns, np.int64),
        answered_ns=np.full(count, ended_ns, np.int64),
        status=np.where(np.arange(count) < acknowledged, ACKNOWLEDGED, FAILED).astype(np.int8),
        partition=np.full(count, -1, np.int32),
        errors=errors,
    )
