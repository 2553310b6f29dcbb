"""What a Python worker of Spark has imported: left out of its garbage collections.

Spark's daemon collects garbage after each task (`pyspark/daemon.py`, `gc.collect()`): a look at
every object of every module that is loaded, 85,000 of them here. That takes 40 ms of processor
time, ten times what else a task takes in Python beside the bytes that it reads.
"""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


def keep_modules() -> None:
    """Have later collections pass over what is there now; called at the end of a task.

    What is passed over still goes when nothing refers to it; only circles of it stay. Nothing
    is done outside of a task, whose process may be anybody's.
    """
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    """Do so once: what is made later is not there to stay."""
    gc.collect()
    gc.freeze()
