"""Faults for `eoctl check`: at least one for every rule that can be broken by hand.

Nothing here imports anything of ours: a fault is an edit of bytes in a copy of a real broker's log
dir, and what it breaks is worked out from Kafka's layout. Each fault leaves alone as many other
rules as it can: what is appended to a log is also in its time index, snapshot and checkpoints.
"""

from __future__ import annotations

from tests.damage.planted import (
    batches,
    dirs,
    indexes,
    kraft,
    legacy,
    offsets,
    producers,
    segments,
)

FAULTS = [
    fault
    for module in (dirs, segments, batches, legacy, indexes, producers, offsets, kraft)
    for fault in module.FAULTS.all
]

# Rules of which no fault is planted, and why.
NOT_PLANTED = {
    "BAT-15": "the tail of a compacted topic repeats keys freely, and so does a crashed cleaner's",
    "EPC-5": "each change of leaders without an append leaves such an entry",
}

_RANGES = {
    "DIR": 9, "SEG": 9, "BAT": 17, "IDX": 6, "TIM": 4, "TXI": 7, "SNP": 6, "PRD": 5, "TXO": 3,
    "OFS": 6, "EPC": 5, "KRF": 5,
}  # fmt: skip
RULES = {f"{kind}-{number}" for kind, last in _RANGES.items() for number in range(1, last + 1)}
RULES.add("BAT-11b")
