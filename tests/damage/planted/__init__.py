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
    **{
        f"TAK-{number}": "it depends on the clock and on the room of the disk: cli/test_forecast.py"
        for number in (1, 2, 3, 4, 5, 6, 7, 8)
    },
    "BAT-15": "the tail of a compacted topic repeats keys freely, and so does a crashed cleaner's",
    "EPC-5": "each change of leaders without an append leaves such an entry",
    "SEG-10": "every reader of the matrix would walk 2 GiB; cli/test_holes.py plants it for some",
    "JNL-1": "the journal of a change of ours lies beside the log dir: cli/test_journal.py",
    "JNL-2": "a change of ours has to be interrupted: cli/test_undo_every.py",
    "JNL-3": "a change of ours has to lose records: cases/test_costs.py",
}
