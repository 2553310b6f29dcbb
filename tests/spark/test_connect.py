"""Spark Connect: a client without a JVM, and a server whose Python has none of our packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING, NamedTuple

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc_status")
pytest.importorskip("pandas")

from eoctl.spark.datasource import BatchesReader, RecordsReader
from tests.spark.cluster import bare_python
from tests.spark.left_over import MARK, wait_until_gone
from tests.spark.test_datasource import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark"), pytest.mark.slow]
UP_SECONDS = 120
WORDS = ("--report", "all", "--output", "jsonl")
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SETTINGS = (
    "spark.connect.grpc.binding.address=127.0.0.1",
    "spark.connect.grpc.binding.port=0",
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.ui.enabled=false",
    "spark.sql.shuffle.partitions=1",
    "spark.sql.codegen.wholeStage=false",
)


class Server(NamedTuple):
    """A running server, and what its clients have for an environment: no Java."""

    url: str
    environment: dict[str, str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    import pyspark

    directory, mark = tmp_path_factory.mktemp("connect"), uuid.uuid4().hex
    home = os.path.dirname(pyspark.__file__)  # noqa: PTH120
    left_out = ("PYTHON", "PYSPARK", "SPARK", "PYTEST")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    environment = {
        **clean, MARK: mark, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": "2.13",
        "PYSPARK_PYTHON": str(bare_python(directory / "python")),
    }  # fmt: skip
    conf = [word for each in SETTINGS for word in ("--conf", each)]
    command = [f"{home}/bin/spark-submit", "--master", "local[1]", *conf, "--class", SERVER]
    log = directory / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "spark-internal"], env=environment, cwd=directory,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        port = _port(log, process)
        no_java = {"PATH": "/nowhere", "HOME": str(directory), "JAVA_HOME": "/nowhere"}
        yield Server(f"sc://127.0.0.1:{port}", no_java)
    finally:
        process.terminate()
        process.wait(60)
        assert wait_until_gone(mark) == []


def _port(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + UP_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"[Ss]tarted at:? \S*?:(\d+)", log.read_text(errors="replace"))
        if found is not None:
            return found[1]
        time.sleep(0.1)
    raise RuntimeError(f"no server:\n{log.read_text(errors='replace')}")


def run(server: Server, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", *words], env=server.environment, cwd=cwd,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


SCRIPT = """
import sys
from pyspark.sql import SparkSession
from eoctl.spark.datasource import register

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
register(spark)
for name in ("kafka-log-batches", "kafka-log-records"):
    print(name, spark.read.format(name).load(sys.argv[2]).count())
"""


@pytest.mark.in_turn
def test_the_audit_and_the_sources(
    server: Server, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    logs = str(golden("kafka-4.3.1") / "clean")
    audit = ("-m", "eoctl", "spark-audit", logs, *WORDS)
    ours = run(server, *audit, "--master", server.url, cwd=tmp_path)
    local = run(server, *audit, "--engine", "local", "--jobs", "1", cwd=tmp_path)
    assert (ours.stdout, ours.returncode) == (local.stdout, local.returncode), ours.stderr
    assert "engine: spark" in ours.stderr
    assert len(local.stdout.splitlines()) > 100
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run(server, "script.py", server.url, logs, cwd=tmp_path)
    counts = [len(read(each, logs)) for each in (BatchesReader, RecordsReader)]
    told = [f"kafka-log-batches {counts[0]}", f"kafka-log-records {counts[1]}"]
    assert done.stdout.splitlines() == told, done.stderr
    refused = run(
        server, "-m", "eoctl", "export", logs, "--to", "out", "--master", server.url, cwd=tmp_path
    )
    assert refused.returncode == 3
    assert "Spark Connect takes no functions of ours" in refused.stderr


def test_cluster_mode_of_a_standalone_cluster(tmp_path: Path) -> None:
    """What docs/spark.md says of it: spark-submit refuses, before it looks for the cluster."""
    import pyspark

    (tmp_path / "run_eoctl.py").write_text("from eoctl.main import run\n\nrun()\n")
    submit = f"{os.path.dirname(pyspark.__file__)}/bin/spark-submit"  # noqa: PTH120
    done = subprocess.run(
        [submit, "--master", "spark://127.0.0.1:1", "--deploy-mode", "cluster", "run_eoctl.py"],
        env={**os.environ, "SPARK_SCALA_VERSION": "2.13"}, cwd=tmp_path,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    words = "not supported for python applications on standalone clusters"
    assert words in done.stderr + done.stdout


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    """Told at once and in one line; Java is not asked for."""
    nobody = Server("sc://127.0.0.1:1", {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"})
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"")
    call = ("-m", "eoctl", "spark-audit", str(tmp_path), "--master", nobody.url)
    done = run(nobody, *call, cwd=tmp_path)
    assert done.returncode == 3
    assert "Spark Connect does not answer at sc://127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
