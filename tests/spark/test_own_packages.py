"""A Python that cannot run our tasks says what is in the way."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import venv
from typing import TYPE_CHECKING

import pytest

from eoctl.spark import packages_root
from eoctl.spark.own_packages import NEEDED
from tests.kafka.jars import REPOSITORY_DIR

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROOT = str(packages_root())


def imported(first: Path | str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Import the module in a new process that has one more place at the front of its path."""
    path = os.pathsep.join([str(first), ROOT])
    return subprocess.run(
        [sys.executable, "-P", "-c", f"{before}\nimport eoctl.spark.own_packages"],
        env={**os.environ, "PYTHONPATH": path}, cwd=first,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_all_is_well(tmp_path: Path) -> None:
    done = imported(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["storage", "recovery"])
@pytest.mark.parametrize("file", ["{}/__init__.py", "{}.py"])
def test_a_foreign_module_is_named(tmp_path: Path, name: str, file: str) -> None:
    foreign = tmp_path / file.format(name)
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("raise RuntimeError('this is not run')\n")
    done = imported(tmp_path)
    words = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert words.startswith(f"ImportError: {socket.gethostname()}: {sys.executable}: the module")
    assert (
        f"the module {name} is foreign, {foreign}, and hides the module of eoctl in {ROOT}" in words
    )
    assert "off PYTHONPATH" in words
    assert "--py-files" in words
    assert "this is not run" not in done.stderr


def test_one_that_was_imported_before_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "storage.py").write_text("")
    done = imported(tmp_path, "import storage")
    assert f"is foreign, {tmp_path / 'storage.py'}," in done.stderr


def test_a_directory_of_that_name_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir()
    assert imported(tmp_path).returncode == 0


def test_a_part_of_ours_that_is_missing_is_named(tmp_path: Path) -> None:
    done = imported(tmp_path, "import sys; sys.modules['recovery'] = None")
    assert "the package recovery of eoctl is missing; try: python -m" in done.stderr


@pytest.mark.parametrize("name", NEEDED)
def test_a_library_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    done = imported(tmp_path, f"import sys; sys.modules['{name}'] = None")
    words = done.stderr.splitlines()[-1]
    assert words.startswith(f"ImportError: {socket.gethostname()}: {sys.executable}: ")
    assert f"this Python has no module {name}; install it on every host" in words
    assert "PYSPARK_PYTHON" in words


SCRIPT = """
import sys
from pyspark.sql import SparkSession
from eoctl.spark.datasource import register

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
print("rows", spark.read.format("kafka-log-batches").load(sys.argv[1]).count())
"""


@pytest.mark.java
@pytest.mark.xdist_group("spark")
@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("is_ours", [True, False])
def test_another_python_in_a_local_spark(
    golden: Callable[[str], Path], tmp_path: Path, *, is_ours: bool
) -> None:
    """The commands pass over it; a script with a session of its own is told what it lacks."""
    logs = str(golden("kafka-4.3.1") / "clean" / "txn-0")
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    other = str(tmp_path / "bare" / "bin" / "python")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-P", "script.py", logs]
    if is_ours:
        command = [sys.executable, "-P", "-m", "eoctl", "spark-audit", "--master", "local[2]"]
        command += ["--conf", f"spark.pyspark.python={other}", logs]
    environment = {**os.environ, "PYSPARK_PYTHON": other, "PYTHONPATH": str(REPOSITORY_DIR)}
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, check=False, timeout=300,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    if is_ours:
        assert done.returncode == 0, done.stderr
        assert f"\t{logs}\n" in done.stdout
        return
    assert done.returncode == 1
    assert f"{other}: this Python has no module numpy, pyarrow" in done.stderr
    assert "set PYSPARK_PYTHON to a Python that has it" in done.stderr
    assert "rows" not in done.stdout
