"""Run eoctl in a process of our own, without pytest."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eoctl import output
from eoctl.main import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def streams_in(out: Path, err: Path) -> Iterator[None]:
    """Have what is printed meanwhile, through whatever descriptor, in two files."""
    kept = [os.dup(number) for number in (1, 2)]
    try:
        for number, path in ((1, out), (2, err)):
            with path.open("wb") as file:
                os.dup2(file.fileno(), number)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)


def called(words: list[str]) -> int:
    """Run one call of the program in this process; its exit status."""
    try:
        run(words)
    except SystemExit as exc:
        return int(exc.code or 0)
    finally:
        output.use_format(output.OutputFormat.TEXT)
