"""`make demo` runs through: each of its commands ends with the status that it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_demo_runs_through() -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [ROOT / "scripts/demo.sh"],
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    # It shows what it speaks of: the open transaction's id, and the batch that was damaged.
    assert '"transactionalId":"open-1"' in done.stdout
    assert "isvalid: false" in done.stdout
    assert "OptionalLong[311]" in done.stdout
    assert "payload: two" in done.stdout
