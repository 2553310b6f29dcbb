"""Python processes of a local Spark import pyspark as pip has installed it, compiled."""

from __future__ import annotations

import importlib
import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pyspark

from eoctl.spark.session import CACHE_HOME, HOME, LEFT_OUT, NEEDED, _home_of, home_environment
from tests.kafka.jars import REPOSITORY_DIR
from tests.spark.left_over import MARK, processes_with, wait_until_gone
from tests.spark.running import spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

__all__ = ["spark"]

INSTALLED = Path(pyspark.__file__).parent
WAIT_SECONDS = 300.0


@pytest.fixture
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of a user who has none yet."""
    monkeypatch.delenv(HOME, raising=False)
    monkeypatch.setenv(CACHE_HOME, str(tmp_path / "cache"))
    return tmp_path / "cache"


def home_of(installed: Path) -> str | None:
    """As another process would find it."""
    return _home_of.__wrapped__(installed)


def test_a_home_has_all_but_the_zip_file(cache_home: Path) -> None:
    """The next process takes the same one."""
    home = Path(home_of(INSTALLED) or "")
    assert {each.name for each in home.iterdir()} == {
        each.name for each in INSTALLED.iterdir() if each.name not in LEFT_OUT
    }
    assert all((home / name).samefile(INSTALLED / name) for name in NEEDED)
    number = home.stat().st_ino
    assert home_of(INSTALLED) == str(home)
    assert home.stat().st_ino == number
    assert [*(cache_home / "eoctl").iterdir()] == [home]


def test_another_release_has_a_home_of_its_own(cache_home: Path, tmp_path: Path) -> None:
    installed = tmp_path / "pyspark"
    for name in (*NEEDED, *LEFT_OUT):
        (installed / name).mkdir(parents=True)
    first = home_of(installed)
    (installed / "new").mkdir()
    second = home_of(installed)
    assert first != second
    assert {each.name for each in Path(second or "").iterdir()} == {*NEEDED, "new"}
    assert len([*(cache_home / "eoctl").iterdir()]) == 2


@pytest.mark.usefixtures("cache_home")
def test_a_home_that_was_changed_is_not_taken() -> None:
    """Spark starts without it, and slower."""
    home = Path(home_of(INSTALLED) or "")
    (home / "jars").unlink()
    (home / "jars").symlink_to("/tmp")
    assert home_of(INSTALLED) is None
    (home / "jars").unlink()
    (home / "jars").symlink_to(INSTALLED / "jars")
    assert home_of(INSTALLED) == str(home)
    (home / "more").touch()
    assert home_of(INSTALLED) is None


def test_a_cache_that_cannot_be_written(cache_home: Path) -> None:
    cache_home.write_text("a file")
    assert home_of(INSTALLED) is None


def test_a_home_that_was_named_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME, "/opt/spark")
    assert home_environment() == {}


@pytest.mark.parametrize("missing", NEEDED)
@pytest.mark.usefixtures("cache_home")
def test_a_pyspark_that_is_no_whole_spark_has_none(tmp_path: Path, missing: str) -> None:
    for name in NEEDED:
        if name != missing:
            (tmp_path / name).mkdir()
    assert home_of(tmp_path) is None


@pytest.mark.java
@pytest.mark.xdist_group("spark")
def test_workers_import_what_is_installed(spark: SparkSession) -> None:
    names = spark.sparkContext.parallelize(["pyspark"], 1)
    # Two maps are one task, and functions of the standard library go by their names.
    assert names.map(importlib.import_module).map(inspect.getfile).collect() == [pyspark.__file__]


SCRIPT = """
import sys, time
from eoctl.spark.datasource import register
from eoctl.spark.executors import packages_for
from eoctl.spark.session import spark_session

with spark_session("local[2]") as session:
    register(session)
    packages_for(session.sparkContext)
    print("rows", session.read.format("kafka-log-batches").load(sys.argv[1]).count(), flush=True)
    time.sleep(600)
"""


@pytest.mark.java
@pytest.mark.xdist_group("spark")
@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.usefixtures("cache_home")
def test_drivers_that_are_ended_leave_nothing(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """No directory in TMPDIR, no process; the home of links is that of the driver before."""
    logs = str(golden("kafka-4.3.1") / "clean" / "txn-0")
    places = tmp_path / "tmp"
    places.mkdir()
    for number in (signal.SIGTERM, signal.SIGKILL):
        mark = f"ended-{number}-{tmp_path.name}"
        environment = {**os.environ, MARK: mark, "TMPDIR": str(places)}
        environment["PYTHONPATH"] = str(REPOSITORY_DIR)
        driver = subprocess.Popen(
            [sys.executable, "-P", "-c", SCRIPT, logs], cwd=tmp_path, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline().startswith("rows ")
            driver.send_signal(number)
            driver.wait(WAIT_SECONDS)
            assert wait_until_gone(mark) == []
        finally:
            driver.kill()
            driver.communicate()
            for pid, _ in processes_with(mark):
                os.kill(pid, signal.SIGKILL)
        assert [*places.rglob("*eoctl*")] == []
        assert len([*(tmp_path / "cache" / "eoctl").iterdir()]) == 1
