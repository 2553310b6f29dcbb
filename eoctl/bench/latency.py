"""Latencies: every sample is kept, and a percentile is one of the samples.

A sample is the time from when a record was to be sent until its answer: where a producer falls
behind its rate, the waiting counts too. Percentiles are by nearest rank: the smallest sample that
at least that share of all samples does not exceed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

# Per mille of mille: whole numbers, so that no rank is off by rounding.
PERCENTILES = {"p50": 5000, "p95": 9500, "p99": 9900, "p99_9": 9990, "p99_99": 9999}
WHOLE = 10_000
MIN_SAMPLES = 10_000  # for p99.99: of fewer it would be their maximum


class Latency(NamedTuple):
    """Latencies in microseconds, rounded; None: there are too few samples."""

    samples_count: int
    avg_us: int
    min_us: int
    p50_us: int
    p95_us: int
    p99_us: int
    p99_9_us: int
    p99_99_us: int | None
    max_us: int


def nearest_rank(ordered: Ints, share: int) -> int:
    """Give the percentile of sorted samples; `share` of 10,000. There is a sample."""
    rank = -(-share * len(ordered) // WHOLE)
    return int(ordered[max(rank, 1) - 1])


def summarise(samples_ns: Ints) -> Latency | None:
    """Sum up samples, in nanoseconds; None: there are none."""
    if not len(samples_ns):
        return None
    ordered = np.sort(samples_ns)
    found = {name: _us(nearest_rank(ordered, share)) for name, share in PERCENTILES.items()}
    has_enough = len(ordered) >= MIN_SAMPLES
    return Latency(
        samples_count=len(ordered),
        avg_us=_us(int(ordered.mean())),
        min_us=_us(int(ordered[0])),
        p50_us=found["p50"],
        p95_us=found["p95"],
        p99_us=found["p99"],
        p99_9_us=found["p99_9"],
        p99_99_us=found["p99_99"] if has_enough else None,
        max_us=_us(int(ordered[-1])),
    )


def _us(time_ns: int) -> int:
    return (time_ns + 500) // 1000
