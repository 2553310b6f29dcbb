"""What a JVM prints goes to neither stream of ours (EOCTL_DEBUG=1 lets it through)."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_TOLD_BYTES = 4096


@contextmanager
def hidden_output() -> Iterator[Callable[[], str]]:
    """Keep what this process and its new children print; gives a function that returns the end.

    The JVM inherits the descriptors and keeps them as long as it lives.
    """
    if os.environ.get("EOCTL_DEBUG") or not hasattr(os, "memfd_create"):
        yield str
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.memfd_create("eoctl-spark")
    saved = [os.dup(each) for each in (1, 2)]
    os.dup2(kept, 1)
    os.dup2(kept, 2)

    def heard() -> str:
        size = os.fstat(kept).st_size
        data = os.pread(kept, MAX_TOLD_BYTES, max(size - MAX_TOLD_BYTES, 0))
        return data.decode("utf-8", "replace")

    try:
        yield heard
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for target, each in zip((1, 2), saved, strict=True):
            os.dup2(each, target)
            os.close(each)
        os.close(kept)
