"""Reports as tables: those of Delta Lake and Iceberg, and what is said where Spark has neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyarrow import parquet

from recovery.audit.reports import COLUMNS
from tests.spark.lake_libs import SPARK_PATH, jars_of, missing_libs
from tests.spark.running import spark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["spark"]

LOCAL = (
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.sql.shuffle.partitions=1",
    "spark.databricks.delta.snapshotPartitions=1",
    "spark.ui.enabled=false",
    "spark.sql.codegen.wholeStage=false",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
)
READ = """
import json, sys
from pyspark.sql import SparkSession

kind, to, names, *settings = sys.argv[1:]
builder = SparkSession.builder.master("local[1]")
for each in settings:
    builder = builder.config(*each.split("=", 1))
spark = builder.getOrCreate()
for name in names.split(","):
    table = name.replace("-", "_")
    if kind == "delta":
        frame = spark.read.format("delta").load(f"{to}/{table}")
        versions = spark.sql(f"DESCRIBE HISTORY delta.`{to}/{table}`").count()
        places = spark.sql(f"DESCRIBE DETAIL delta.`{to}/{table}`").first().partitionColumns
    else:
        frame = spark.table(f"{to}.{table}")
        versions = spark.table(f"{to}.{table}.snapshots").count()
        places = [each for each in ["topic"] if "topic" in frame.columns]
        if places:
            parts = spark.table(f"{to}.{table}.partitions")
            assert "topic" in parts.schema["partition"].dataType.names
    rows = sorted(json.dumps(each.asDict(recursive=True)) for each in frame.collect())
    print("TABLE", json.dumps([name, versions, places, rows]))
"""


@pytest.mark.parametrize(
    ("call", "words", "next_step"),
    [
        (["--to-format", "delta"], "--to is missing", "--to PLACE"),
        (["--to", "relative", "--to-format", "delta"], "other working directories", "in full"),
        (["--to", "/tmp/x", "--to-format", "iceberg"], "a catalog", "--to CATALOG.DATABASE"),
        (["--to", "/tmp/x", "--to-format", "delta"], "the engine is local", "io.delta:delta-spark"),
        (
            ["--to", "lake.audit", "--to-format", "iceberg"],
            "the engine is local",
            "spark.sql.catalog.lake.warehouse=DIR",
        ),
    ],
)
def test_a_place_that_cannot_be(
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    call: list[str],
    words: str,
    next_step: str,
) -> None:
    outcome = eoctl("spark-audit", golden("kafka-4.3.1") / "clean", *call)
    assert (outcome.status, outcome.stdout) == (2, b"")
    assert words in outcome.errors
    assert next_step in outcome.errors


def test_a_table_in_a_log_dir(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    logs = golden("kafka-4.3.1") / "clean"
    outcome = eoctl("spark-audit", logs, "--to", logs / "tables", "--to-format", "delta")
    assert outcome.status == 4
    assert "name a directory elsewhere" in outcome.errors


@pytest.mark.java
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize(
    ("kind", "to", "package"),
    [
        ("delta", "/tmp/tables", "io.delta:delta-spark_{}_2.13:VERSION"),
        ("iceberg", "lake.audit", "org.apache.iceberg:iceberg-spark-runtime-{}_2.13:VERSION"),
    ],
)
def test_without_jars_it_is_refused_before_the_work(
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    spark: SparkSession,
    kind: str,
    to: str,
    package: str,
) -> None:
    call = ("spark-audit", golden("kafka-4.3.1") / "clean", "--engine", "spark", "--to", to)
    outcome = eoctl(*call, "--to-format", kind)
    assert (outcome.status, outcome.stdout) == (3, b"")
    assert f"--to-format {kind}: this Spark has no {kind}" in outcome.errors
    release = ".".join(spark.version.split(".")[:2])
    assert f"--conf spark.jars.packages={package.format(release)}" in outcome.errors


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.skipif(bool(missing_libs()), reason=missing_libs() or "they are there")
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_have_the_rows_of_the_files(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path, kind: str
) -> None:
    """Written twice: the rows are there once, and the version before is kept."""
    logs, files = golden("kafka-4.3.1") / "clean", tmp_path / "files"
    eoctl("spark-audit", logs, "--engine", "local", "--to", files)
    to = str(tmp_path / "tables")
    settings = [*LOCAL, f"spark.jars={jars_of(kind)}"]
    if kind == "delta":
        catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        extension = "io.delta.sql.DeltaSparkSessionExtension"
        settings += [f"spark.sql.catalog.spark_catalog={catalog}"]
        settings += [f"spark.sql.extensions={extension}"]
    else:
        settings += [
            "spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type=hadoop",
            f"spark.sql.catalog.lake.warehouse={to}",
        ]
        to = "lake.audit"
    environment = {**os.environ, "PYTHONPATH": str(SPARK_PATH)}
    environment.pop("SPARK_HOME", None)

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], env=environment, cwd=tmp_path,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    conf = [word for each in settings for word in ("--conf", each)]
    audit = ["-m", "eoctl", "spark-audit", "--master", "local[1]", *conf, str(logs)]
    for _ in range(2):
        run(*audit, "--to", to, "--to-format", kind)
    (tmp_path / "read.py").write_text(READ)
    reported = run("read.py", kind, to, ",".join(COLUMNS), *settings)
    tables = [json.loads(each[6:]) for each in reported.splitlines() if each.startswith("TABLE ")]
    assert [each[0] for each in tables] == [*COLUMNS]
    for name, versions, places, rows in tables:
        expected = parquet.read_table(files / f"{name}.parquet").to_pylist()
        assert rows == sorted(json.dumps(each) for each in expected), name
        # Delta writes no version that is as empty as the one before.
        assert versions == 2 or not rows, name
        assert places == (["topic"] if "topic" in COLUMNS[name] else []), name
    assert sum(len(each[3]) for each in tables) > 100
