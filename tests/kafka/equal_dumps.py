"""kafka-dump-log and `eoctl dump-segment` over the same files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .dump import dump_each, dumpable_files, options_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.running import Outcome


def require_equal_dumps(partitions: Iterable[Path], eoctl: Callable[..., Outcome]) -> int:
    """kafka-dump-log reads every file without complaint, and prints what ours prints.

    Returns how many files that are.
    """
    found = dump_each([path for each in partitions for path in dumpable_files(each)])
    for path, wanted in found.items():
        ours = eoctl("dump-segment", *options_for(path), path)
        if path.suffix == ".index" and not path.stat().st_size:
            continue  # the tool dies on it
        assert wanted.returncode == 0, path
        # With --deep-iteration it says so of every log that does not begin with offset 0.
        complaint = rb"(?:Non-consecutive offsets in .*\n  -1 is followed by \d+\n)?"
        assert re.fullmatch(complaint, wanted.stderr), path
        assert ours.status == 0
        got = re.sub("\ufffd+", "\ufffd", ours.stdout.decode("utf-8", "replace"))
        assert got == re.sub("\ufffd+", "\ufffd", wanted.stdout.decode("utf-8", "replace")), path
    return len(found)
