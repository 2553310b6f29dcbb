"""Runs commands that kill themselves: `python -m tests.crash.kill_server` on a pipe.

A line in, as JSON: {"arguments": [...], "operation": N, "moment": "before"|"middle"|"after"}, and
maybe "settings", values of modules' names ({"module": {"NAME": value}}), which are imported.
"everywhere" counts the calls of all file systems, also of classes that build on the plain one. The
command runs in a forked child, whose N-th call of the file system, counted from 0, is the last
thing it does: SIGKILL before it, after it, or, of a write, when half of it is written. A line out:
{"calls": names of the calls made, "killed": whether it was, "status": of a child that ended}.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from eoctl import main
from storage.files import fsio
from tests.crash.faults import CALLS

if TYPE_CHECKING:
    from storage.files.fsio import Bytes, OpenFile


class SuicidalFileSystem(fsio.FileSystem):
    """Tells each call through a descriptor, and ends the process at one of them."""

    threads_count = 1  # the calls have an order

    def __init__(self, operation: int, moment: str, reported: int) -> None:
        self._operation = operation
        self._moment = moment
        self._reported = reported
        self._count = 0

    def meets(self, name: str) -> bool:
        """Note a call; whether it is the last one. Before it, the process may end here."""
        os.write(self._reported, f"{name}\n".encode())
        is_last = self._count == self._operation
        self._count += 1
        if is_last and self._moment == "before":
            self.die()
        return is_last

    @staticmethod
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def write(self, file: OpenFile, data: Bytes) -> None:
        is_last = self.meets("write")
        if is_last and self._moment == "middle":
            super().write(file, memoryview(data)[: len(data) // 2])
            self.die()
        super().write(file, data)
        if is_last:
            self.die()


def _reported(name: str) -> Any:
    def call(self: SuicidalFileSystem, *args: Any, **options: Any) -> Any:
        is_last = self.meets(name)
        try:
            return getattr(super(SuicidalFileSystem, self), name)(*args, **options)
        finally:  # also when it raises: a file that is to be removed need not be there
            if is_last:
                self.die()

    return call


for _name in CALLS:
    if _name not in vars(SuicidalFileSystem):
        setattr(SuicidalFileSystem, _name, _reported(_name))


def _met(fs: SuicidalFileSystem, name: str) -> Any:
    plain = getattr(fsio.FileSystem, name)

    def call(self: fsio.FileSystem, *args: Any, **options: Any) -> Any:
        is_last = fs.meets(name)
        if is_last and name == "write":
            file, data = args
            plain(self, file, memoryview(data)[: len(data) // 2])
        else:
            try:
                return plain(self, *args, **options)
            finally:
                if is_last:
                    fs.die()
        return fs.die()

    return call


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run one command in a child."""
    for module in request.get("settings", {}):
        importlib.import_module(module)  # here, so that not each child does it again
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        os.close(readable)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        fs = SuicidalFileSystem(request["operation"], request["moment"], writable)
        if request.get("everywhere"):
            for name in CALLS:
                setattr(fsio.FileSystem, name, _met(fs, name))
        else:
            fsio.FileSystem = lambda: fs  # type: ignore[misc,assignment]
        for module, values in request.get("settings", {}).items():
            vars(sys.modules[module]).update(values)
        try:
            main.run(request["arguments"])
        except SystemExit as ended:
            os._exit(int(ended.code or 0))
        finally:
            os._exit(99)
    os.close(writable)
    with os.fdopen(readable) as reported:
        calls = reported.read().split()
    _, status = os.waitpid(child, 0)
    return {
        "calls": calls,
        "killed": os.WIFSIGNALED(status),
        "status": os.waitstatus_to_exitcode(status),
    }


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
