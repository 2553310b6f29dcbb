"""Run a command of eoctl in this process, as the console script would."""

from __future__ import annotations

import os
import random
import sys
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

import pytest

from eoctl import output
from eoctl.main import run
from tests.drawn import IS_ALL

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

# Where they start processes, pyarrow is loaded.
LOADING_PYARROW = {"export", "spark-audit"}


class Outcome(NamedTuple):
    """What a command left behind."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode()

    @property
    def errors(self) -> str:
        return self.stderr.decode()


def runner(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Outcome]:
    """A function that calls `eoctl ARGUMENTS...` and returns what went through its descriptors."""

    def call(*arguments: object) -> Outcome:
        capfdbinary.readouterr()
        with _alone(str(arguments[0]) if arguments else ""), pytest.raises(SystemExit) as ended:
            run([str(each) for each in arguments])
        sys.stdout.flush()
        sys.stderr.flush()
        output.use_format(
            output.OutputFormat.TEXT
        )  # messages of other tests are not this command's
        stdout, stderr = capfdbinary.readouterr()
        status = ended.value.code
        return Outcome(0 if status is None else int(status), stdout, stderr)

    return call


def _alone(command: str) -> AbstractContextManager[object]:
    """Have a command fork as in a process of its own, though other tests have loaded pyarrow.

    Processes that are started anew cost much more: one test in eight has them still, and all where
    nothing is left out.
    """
    chooser = random.Random(f"{os.environ['EOCTL_SEED']} {os.environ.get('PYTEST_CURRENT_TEST')}")
    is_anew = IS_ALL or chooser.randrange(8) == 0
    if is_anew or command in LOADING_PYARROW or threading.active_count() > 1:
        return nullcontext()
    return patch("recovery.work.processes.start_method", return_value="fork")
