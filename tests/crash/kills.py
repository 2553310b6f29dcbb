"""The tests' end of `kill_server`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


class KillServer:
    """A process that forks commands which kill themselves."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.kill_server"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        *arguments: object,
        operation: int = 10**9,
        moment: str = "before",
        settings: dict[str, dict[str, Any]] | None = None,
        everywhere: bool = False,
    ) -> dict[str, Any]:
        """Run a command up to an operation (see `kill_server`), by default to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {
            "arguments": [*map(str, arguments)],
            "operation": operation,
            "moment": moment,
            "settings": settings or {},
            "everywhere": everywhere,
        }
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=60)
