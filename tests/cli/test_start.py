"""An interrupt while the program starts or ends: it says so in one line, wherever that was."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

from eoctl.interrupt import is_interrupt
from eoctl.outcome import exit_status_of

SCRIPT = Path(sys.executable).with_name("eoctl")
PROGRAMS = [["-m", "eoctl"], [str(SCRIPT)]]
WORDS = b"eoctl: interrupted\n"
# So many modules after our first one, or when this one has been imported.
MOMENTS = [
    1,
    2,
    5,
    10,
    20,
    40,
    "typer",
    "eoctl.main",
    "numpy.exceptions",
    "numpy",
    "recovery.duplicates.spill",
]


@pytest.mark.share(3)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("program", PROGRAMS, ids=["module", "script"])
def test_an_interrupt_while_modules_are_imported(
    tmp_path: Path, program: list[str], moment: int | str
) -> None:
    """Exit status 130 and one line, as soon as our first line has run.

    Before, the interpreter itself is starting, and the script that pip wrote imports `re`: what an
    interrupt does there is theirs. With -X importtime the interpreter tells of each module when it
    has been imported, so that the first one after `eoctl.start` shows that `run` has begun.
    """
    if not Path(program[0]).exists() and program[0] != "-m":
        pytest.skip("eoctl is not installed as a script")
    endless = tmp_path / "server.properties"
    os.mkfifo(endless)  # nobody writes to it: where the imports are through, the command waits
    arguments = ["duplicates", "--server-properties", str(endless)]
    if moment == "typer":
        arguments.append("--")  # such a call is left to it
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", *program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        too_late = Timer(60, process.kill)
        too_late.start()
        count = -1
        for line in process.stderr:
            module = line.rpartition(b"|")[2].strip().decode()
            if count >= 0 or module == "eoctl.start":
                count += 1
            if count > 0 and moment in (count, module):
                break
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate()
        too_late.cancel()
    assert process.returncode == 130
    assert (stdout, re.sub(rb"(?m)^import time:.*\n", b"", stderr)) == (b"", WORDS)


FINALIZED = """
import sys
from eoctl import start

class Late:
    def __del__(self):
        raise KeyboardInterrupt if sys.argv[1] == "interrupt" else ValueError("a bug")

def run():
    late = Late()
    del late
    for _ in range(1000):
        __import__("time").sleep(0.01)
        if sys.argv[1] != "interrupt":
            sys.exit(0)

from eoctl import main
main.run = run
start.run()
"""


def test_an_interrupt_that_python_can_only_print() -> None:
    """It is raised a moment later; anything else is printed as ever."""
    call = [sys.executable, "-c", FINALIZED]
    interrupted = subprocess.run([*call, "interrupt"], capture_output=True, check=False)
    assert (interrupted.returncode, interrupted.stderr) == (130, WORDS)
    failed = subprocess.run([*call, "fail"], capture_output=True, check=False)
    assert failed.returncode == 0
    assert b"ValueError: a bug" in failed.stderr


def test_an_interrupt_that_became_another_error(capfd: pytest.CaptureFixture[str]) -> None:
    """Python 3.11 makes a RuntimeError of what is raised in a `__set_name__`."""

    def call() -> int:
        raise RuntimeError("Error calling __set_name__ on ...") from KeyboardInterrupt()

    assert exit_status_of(call) == 130
    assert WORDS.decode().strip() in capfd.readouterr().err
    assert not is_interrupt(ValueError("oops"))


ENDED = """
import atexit, os, signal, sys
from eoctl import main, start

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Last:
    def __del__(self, interrupt=interrupt):
        interrupt()

def run():
    if sys.argv[1] == "exit function":
        atexit.register(interrupt)
    else:
        sys.modules["a module that goes with all others"] = Last()
    sys.exit(int(sys.argv[2]))

main.run = run
start.run()
"""


@pytest.mark.parametrize("status", [0, 3])
@pytest.mark.parametrize("moment", ["exit function", "modules"])
def test_an_interrupt_when_all_is_done(moment: str, status: int) -> None:
    """What the command has found is what its exit status says, until the process is gone."""
    call = [sys.executable, "-c", ENDED, moment, str(status)]
    ended = subprocess.run(call, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, b"", b"")
