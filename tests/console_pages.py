"""Pages whose calls are run: what stands below each `$ ` in a `console` block is what is seen then.

Each section (`## `) runs in a directory of its own, on a terminal of 80 columns, with the clock at
`NOW`. It begins with the log dirs that its comment names, copies of golden ones:

    <!-- kafka: kafka-4.3.1/crash -->

A line `...` in the page stands for any lines. With EOCTL_SNAPSHOTS=write the test writes what is
not as the page says anew.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.kafka.broker import copy_log_dir
from tests.terminal import ONE_GIB_FREE, on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
PAGES = ("docs/incidents.md",)
NOW = "2026-11-21T09:00:00+00:00"
GAP = "..."  # any lines
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LOG_DIR = re.compile(r"^<!-- ([\w-]+): ([\w./-]+) -->$", re.MULTILINE)
# Names of journals have the time and four digits drawn at random.
_PLAN_ID = re.compile(r"\d{8}T\d{6}(?:\.\d+)?Z?(-[a-z-]+-)[0-9a-f]{4}")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")  # of a port that was free
# A run of eoctl whose wall clock stands still, and that never takes long.
_PROGRAM = f"""#!{sys.executable}
import datetime, sys
sys.path.insert(0, {str(ROOT)!r})
{ONE_GIB_FREE}
from eoctl import clock, progress
progress.QUIET_SECONDS = 1e9  # however slow the machine is
clock.wall_ms = lambda: int(datetime.datetime.fromisoformat({NOW!r}).timestamp() * 1000)
from eoctl.main import run
run()
"""


class Call(NamedTuple):
    """A command of a page, as it is written there, and what stands below it."""

    written: str
    shown: list[str]

    @property
    def command(self) -> str:
        """What a shell is given."""
        return self.written.replace("\\\n", "")


def sections(page: str) -> list[str]:
    """Return the sections that have calls."""
    parts = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    return [section for section in parts if _BLOCK.search(section)]


def calls(block: str) -> list[Call]:
    """Return the calls of the inside of a block; one whose line ends in a backslash goes on."""
    found = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command = re.match(r"(?:.*\\\n)*.*", part)
        assert command is not None
        found.append(Call(command[0], part[command.end() :].strip("\n").splitlines()))
    return found


class Scene:
    """The directory in which the calls of a section are run."""

    def __init__(self, section: str, golden: Callable[[str], Path], directory: Path) -> None:
        self._directory = directory / "work"
        self._directory.mkdir()
        programs = directory / "bin"
        programs.mkdir()
        (programs / "eoctl").write_text(_PROGRAM)
        (programs / "eoctl").chmod(0o755)
        self._environment = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "EOCTL_PAGER": "cat",
        }
        for name, origin in _LOG_DIR.findall(section):
            archive, _, state = origin.partition("/")
            copy_log_dir(golden(archive) / state, self._directory / name)

    def run(self, command: str, *, has_colour: bool = False) -> list[str]:
        """Return the lines that a person sees, with the escapes of their colours if asked for."""
        plain = {} if has_colour else {"NO_COLOR": "1"}
        shown = on_terminal(
            command,
            program=("/bin/sh", "-c"), cwd=self._directory,
            environment={**self._environment, **plain},
        )  # fmt: skip
        text = shown.raw if has_colour else shown.text
        text = _PLAN_ID.sub(r"20261121T090000Z\g<1>1a2b", text)
        text = _ADDRESS.sub("127.0.0.1:9092", text)
        text = text.replace(f"{self._directory}/", "/var/lib/")
        return [line.rstrip() for line in text.splitlines()]


def matches(seen: list[str], shown: list[str]) -> bool:
    """Whether a page shows what is seen; `...` stands for any lines."""
    pattern = "\n".join(re.escape(line) if line != GAP else r"[\s\S]*?" for line in shown)
    return re.fullmatch(pattern, "\n".join(seen)) is not None


def with_gap(seen: list[str], shown: list[str]) -> list[str]:
    """Return what is seen, with `...` behind and before as many lines as the page shows."""
    if GAP not in shown:
        return seen
    head, tail = shown.index(GAP), shown[::-1].index(GAP)
    return [*seen[:head], GAP, *seen[len(seen) - tail :]]


def as_seen(section: str, scene: Scene) -> str:
    """Return a section with what is seen now, where it does not show that."""
    for block in _BLOCK.findall(section):
        lines: list[str] = []
        for call in calls(block):
            seen = scene.run(call.command)
            shown = call.shown if matches(seen, call.shown) else with_gap(seen, call.shown)
            lines += [f"$ {call.written}", *shown]
        section = section.replace(block, "\n".join(lines) + "\n")
    return section
