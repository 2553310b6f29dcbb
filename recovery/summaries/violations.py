"""The first violations of a piece of log, by offset; how many there are is counted elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recovery.summaries.producer_summary import Regressions
    from storage.kernels.protocol import HeaderTable

    Violations = NDArray[Any]
else:
    Violations = np.ndarray

MAX_VIOLATIONS_COUNT = 1000
EPOCH_FELL, LATE_DATA, DUPLICATE = 0, 1, 2
# What they are called, and the rule: data behind a marker is a fall of the epoch too.
NAMES = ("epoch-regression", "data-after-marker", "duplicate")
CHECK_IDS = ("PRD-3", "PRD-3", "PRD-2")

# Expected and found: of an epoch; of a duplicate its epoch and base sequence.
VIOLATION_DTYPE = np.dtype(
    [
        ("offset", "<i8"),
        ("kind", "i1"),
        ("producer_id", "<i8"),
        ("expected", "<i4"),
        ("found", "<i4"),
        ("last_offset", "<i8"),
    ]
)


def no_violations() -> Violations:
    """Return none."""
    return np.empty(0, VIOLATION_DTYPE)


def regression_violations(found: Regressions) -> Violations:
    """Return those of epochs that fall."""
    rows = np.zeros(len(found.offset), VIOLATION_DTYPE)
    rows["offset"] = rows["last_offset"] = found.offset
    rows["kind"] = np.where(found.is_late, LATE_DATA, EPOCH_FELL)
    rows["producer_id"] = found.producer_id
    rows["expected"], rows["found"] = found.expected, found.found
    return rows


def duplicate_violations(table: HeaderTable, repeated: NDArray[np.int64]) -> Violations:
    """Return those of batches whose sequences an earlier one has."""
    rows = np.zeros(len(repeated), VIOLATION_DTYPE)
    rows["offset"] = table.base_offset[repeated]
    rows["last_offset"] = table.last_offset[repeated]
    rows["kind"] = DUPLICATE
    rows["producer_id"] = table.producer_id[repeated]
    rows["expected"] = table.producer_epoch[repeated]
    rows["found"] = table.base_sequence[repeated]
    return rows


def join_violations(*parts: Violations) -> Violations:
    """Put those of several pieces in order, and keep the first ones."""
    parts = tuple(part for part in parts if len(part))
    if not parts:
        return no_violations()
    rows = np.concatenate(parts)
    return np.sort(rows, order=VIOLATION_DTYPE.names)[:MAX_VIOLATIONS_COUNT]
