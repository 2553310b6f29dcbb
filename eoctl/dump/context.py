"""Where a dumped file lies: what is normal at its end depends on its neighbours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from storage.file_names import CLEAN_SHUTDOWN_NAME, META_PROPERTIES_NAME
from storage.kernels.protocol import Verdict, VerdictKind
from storage.log.segment import parse_base_offset

LOG_SUFFIX = ".log"
TAIL_CHECK_IDS = ("SEG-5", "SEG-6")


class LogContext(NamedTuple):
    """The neighbours of a `.log` that its tail is judged by (SEG-5, SEG-6)."""

    is_last: bool  # no later segment lies beside it: the active one of its partition
    is_unclean: bool  # in a log dir without the marker of a clean stop: crashed, or live
    is_limited: bool = False  # only the beginning is read, so it may end anywhere
    end_offset: int | None = None  # base offset of the segment behind it, if one lies beside it

    def is_normal(self, verdict: Verdict) -> bool:
        """Whether a broker that crashed, or runs, leaves such a tail."""
        if self.is_limited and verdict.check_id in TAIL_CHECK_IDS:
            return True
        tails = (VerdictKind.TORN_TAIL, VerdictKind.PREALLOCATED)
        return self.is_last and self.is_unclean and verdict.kind in tails


def log_context(path: str, *, is_limited: bool = False) -> LogContext:
    """Look at the directory of a `.log` and at its log dir."""
    file = Path(path)
    partition_dir = file.parent
    log_dir = Path(os.path.realpath(partition_dir)).parent
    is_clean = (log_dir / CLEAN_SHUTDOWN_NAME).exists()
    is_unclean = (log_dir / META_PROPERTIES_NAME).exists() and not is_clean
    later = later_segments(path)
    end_offset = parse_base_offset(os.path.basename(later[0])) if later else None  # noqa: PTH119
    return LogContext(
        is_last=not later, is_unclean=is_unclean, is_limited=is_limited, end_offset=end_offset
    )


def later_segments(path: str) -> list[str]:
    """`.log` files of the same directory with greater base offsets, in order."""
    own_name = os.path.basename(path)  # noqa: PTH119 - keeps the path's own spelling
    if not own_name.endswith(LOG_SUFFIX):
        return []
    directory = os.path.dirname(path)  # noqa: PTH120
    try:
        names = os.listdir(directory or ".")  # noqa: PTH208
    except OSError:
        return []
    later = [each for each in names if each.endswith(LOG_SUFFIX) and each > own_name]
    return [os.path.join(directory, each) for each in sorted(later)]  # noqa: PTH118
