"""A log dir with many faults at once, each in a partition of its own: `python -m tests.broken LOG-DIR`.

They are those that tests of a check plant one by one; here a report has to show all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.damage.planted import FAULTS

if TYPE_CHECKING:
    from tests.damage.planted.shape import Expected

# Of logs, indexes, transactions, snapshots, checkpoints, metadata, and of the log dir itself.
BROKEN = (
    *("bit-in-an-internal-topic", "bit-in-a-payload", "zero-tail-after-clean-stop"),
    *("gap-between-segments", "index-position-behind-its-offset", "commit-turned-into-abort"),
    *("old-open-transaction", "cleaner-offset-beyond-the-log", "quorum-state-behind-the-log"),
    *("directory-of-the-file-system", "checkpoint-line-of-no-partition"),
)


def plant(log_dir: Path) -> list[Expected]:
    """Break a copy of the log dir `clean` of kafka-4.3.1; returns what has to be found."""
    known = {each.name: each for each in FAULTS}
    return [found for name in BROKEN for found in known[name].planted_in(log_dir)]


if __name__ == "__main__":
    plant(Path(sys.argv[1]))
