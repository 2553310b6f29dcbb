"""Imported modules of a Spark Python worker, left out of its garbage collections.

Spark's daemon collects garbage after each task (`pyspark/daemon.py`, `gc.collect()`). It visits
every object of every loaded module, 85,000 of them here. That takes 40 ms of processor time, ten
times the rest of a task in Python, without the bytes that it reads.
"""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


def keep_modules() -> None:
    """Exclude current objects from later collections. Tasks call it at their end.

    An excluded object is still freed when nothing refers to it, and only circles of objects stay.
    Outside of a task this does nothing, because the process may belong to other code.
    """
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    """Exclude them once, because later objects do not stay."""
    gc.collect()
    gc.freeze()
