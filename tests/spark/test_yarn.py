"""spark-submit in cluster mode: the driver runs in a container of a real YARN, as docs/spark.md says."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("pyspark")

from pyarrow import parquet

from eoctl.spark.bundle import write_bundle
from eoctl.spark.datasource import RecordsReader
from recovery.audit.reports import COLUMNS
from tests.spark.cluster import bare_python
from tests.spark.running import SPARK_MARKS
from tests.spark.test_datasource import read
from tests.spark.yarn import running_yarn
from tests.spark.yarn_libs import missing_yarn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.spark.yarn import Yarn

pytestmark = [
    *SPARK_MARKS,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_yarn()), reason=missing_yarn() or "they are there"),
]

# Small; and Spark's jars are where every host has them, else 300 MB were sent.
SETTINGS = (
    "spark.yarn.jars=local:{home}/jars/*",
    "spark.yarn.stagingDir=file://{directory}/staging",
    "spark.driver.memory=512m",
    "spark.executor.memory=512m",
    "spark.executor.instances=1",
    "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions=2",
    "spark.sql.codegen.wholeStage=false",
)
# As docs/spark.md has them.
PYTHON = "./libraries/bin/python"
OPTIONS = (
    "spark.yarn.maxAppAttempts=1",
    f"spark.yarn.appMasterEnv.PYSPARK_PYTHON={PYTHON}",
    f"spark.executorEnv.PYSPARK_PYTHON={PYTHON}",
)
STREAM = """
import os, sys
from pyspark.sql import SparkSession
from eoctl.spark.datasource import register
from eoctl.spark.session import is_in_cluster_mode

spark = SparkSession.builder.getOrCreate()
register(spark)
logs, place = sys.argv[1:]
stream = spark.readStream.format("kafka-log-records").option("schema", "kafka").load(logs)
sink = stream.writeStream.format("parquet").option("path", f"{place}/rows")
sink = sink.option("checkpointLocation", f"{place}/checkpoint")
sink.trigger(availableNow=True).start().awaitTermination()
print("driven in", os.getcwd(), "in cluster mode:", is_in_cluster_mode())
"""


class Ended(NamedTuple):
    """An application that has ended: what spark-submit said, and what each container printed."""

    status: int
    words: str
    driver: str
    executors: list[str]


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with running_yarn(tmp_path_factory.mktemp("yarn")) as found:
        yield found


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of an environment that has the libraries, and none of our packages."""
    directory = tmp_path_factory.mktemp("libraries")
    bare_python(directory / "python")
    archive = directory / "libraries.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(directory / "python", ".")
    return archive


def conf(yarn: Yarn, directory: Path) -> list[str]:
    home = yarn.environment["SPARK_HOME"]
    settings = [each.format(home=home, directory=directory) for each in SETTINGS]
    return [word for each in settings for word in ("--conf", each)]


def submit(yarn: Yarn, directory: Path, options: list[str], *call: str) -> Ended:
    """Call spark-submit, and wait until the application has ended."""
    before = {*yarn.containers.glob("*")}
    cluster = ["--master", "yarn", "--deploy-mode", "cluster", *conf(yarn, directory)]
    done = subprocess.run(
        [f"{yarn.environment['SPARK_HOME']}/bin/spark-submit", *cluster, *options, *call],
        env=yarn.environment, cwd=directory, check=False, timeout=600,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    (application,) = {*yarn.containers.glob("*")} - before
    # The first container is that of the driver; streams of its Python go to the JVM's output.
    driver, *executors = [
        "".join((container / name).read_text() for name in ("stdout", "stderr"))
        for container in sorted(application.iterdir())
    ]
    return Ended(done.returncode, done.stdout + done.stderr, driver, executors)


def as_documented(bundle: Path, libraries: Path) -> list[str]:
    more = [word for each in OPTIONS for word in ("--conf", each)]
    return ["--py-files", str(bundle), "--archives", f"{libraries}#libraries", *more]


@pytest.mark.exhaustive
def test_an_audit_in_cluster_mode(
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    yarn: Yarn,
    libraries: Path,
    tmp_path: Path,
) -> None:
    """Our command as a driver: the reports are those of the local engine, row by row.

    It has findings: YARN would start a driver that ended so once more, were it not told.
    """
    logs = golden("kafka-4.3.1") / "hard"
    (tmp_path / "run_eoctl.py").write_text("from eoctl.main import run\n\nrun()\n")
    audit = ("spark-audit", "--engine", "spark", "--to", f"{tmp_path}/reports", str(logs))
    options = as_documented(write_bundle(tmp_path), libraries)
    done = submit(yarn, tmp_path, options, "run_eoctl.py", *audit)
    assert done.status == 1, (done.words, done.driver)
    assert "User application exited with status 1\n" in done.words
    assert len(done.executors) == 1
    assert "engine: spark, as requested" in done.driver
    locally = eoctl("spark-audit", logs, "--engine", "local", "--to", tmp_path / "local")
    assert locally.status == 1
    for name in COLUMNS:
        ours, theirs = (
            parquet.read_table(tmp_path / place / f"{name}.parquet").to_pylist()
            for place in ("reports", "local")
        )
        assert ours == theirs, name


@pytest.mark.exhaustive
def test_an_audit_whose_driver_is_here(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], yarn: Yarn, tmp_path: Path
) -> None:
    """`--master yarn` without spark-submit: its executors are in containers."""
    logs, before = golden("kafka-4.3.1") / "clean", {*yarn.containers.glob("*")}
    python = str(bare_python(tmp_path / "python"))
    audit = ["spark-audit", "--report", "all", "--output", "jsonl", str(logs)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "eoctl", *audit, "--master", "yarn", *conf(yarn, tmp_path)],
        env=yarn.environment | {"PYSPARK_PYTHON": python}, cwd=tmp_path, check=False, timeout=600,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == eoctl(*audit, "--engine", "local").text
    (application,) = {*yarn.containers.glob("*")} - before
    assert len([*application.iterdir()]) == 2  # YARN's own for it, and an executor


@pytest.mark.exhaustive
def test_a_stream_in_cluster_mode(
    golden: Callable[[str], Path], yarn: Yarn, libraries: Path, tmp_path: Path
) -> None:
    """A script of a user: what it streams into Parquet is all that is there, once."""
    pytest.importorskip("pyspark.sql.streaming.datasource")
    logs = str(golden("kafka-4.3.1") / "clean" / "txn-*")
    (tmp_path / "my_job.py").write_text(STREAM)
    options = as_documented(write_bundle(tmp_path), libraries)
    done = submit(yarn, tmp_path, options, "my_job.py", logs, f"{tmp_path}/stream")
    assert done.status == 0, (done.words, done.driver)
    assert re.search(
        rf"^driven in {yarn.local}/\S+ in cluster mode: True$", done.driver, re.MULTILINE
    )
    rows = parquet.read_table(tmp_path / "stream" / "rows").to_pylist()
    expected = read(RecordsReader, logs, columns="topic,partition,offset")
    found, there = (
        sorted((row["topic"], row["partition"], row["offset"]) for row in each)
        for each in (rows, expected)
    )
    assert found == there
    assert len(found) > 400
