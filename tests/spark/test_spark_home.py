"""Python processes of a local Spark import pyspark as pip has installed it, compiled."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pyspark

from eoctl.spark.spark_home import HOME, LEFT_OUT, NEEDED, _home_of, home_environment
from tests.spark.running import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]


def test_a_home_has_all_but_the_zip_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOME, raising=False)
    home = Path(home_environment()[HOME])
    installed = Path(pyspark.__file__).parent
    assert {each.name for each in home.iterdir()} == {
        each.name for each in installed.iterdir() if each.name != LEFT_OUT
    }
    assert all((home / name).samefile(installed / name) for name in NEEDED)
    assert home_environment()[HOME] == str(home)


def test_a_home_that_was_named_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME, "/opt/spark")
    assert home_environment() == {}


@pytest.mark.parametrize("missing", NEEDED)
def test_a_pyspark_that_is_no_whole_spark_has_none(tmp_path: Path, missing: str) -> None:
    for name in NEEDED:
        if name != missing:
            (tmp_path / name).mkdir()
    assert _home_of(tmp_path) is None


@pytest.mark.java
@pytest.mark.xdist_group("spark")
def test_workers_import_what_is_installed(spark: SparkSession) -> None:
    names = spark.sparkContext.parallelize(["pyspark"], 1)
    # Two maps are one task, and functions of the standard library go by their names.
    assert names.map(importlib.import_module).map(inspect.getfile).collect() == [pyspark.__file__]
