"""Run a command of eoctl in this process, as the console script would."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from eoctl import output
from eoctl.main import run

if TYPE_CHECKING:
    from collections.abc import Callable


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
        with pytest.raises(SystemExit) as ended:
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
