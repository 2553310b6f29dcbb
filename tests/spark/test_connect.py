"""Spark Connect: a client without a JVM, and a server whose Python has none of our packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc_status")
pytest.importorskip("pandas")

from eoctl.spark.bundle import write_bundle
from eoctl.spark.datasource import BatchesReader, RecordsReader
from tests.spark.cluster import bare_python
from tests.spark.left_over import MARK, wait_until_gone
from tests.spark.test_datasource import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark"), pytest.mark.slow]
UP_SECONDS = 300
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
    with running_server(tmp_path_factory.mktemp("connect")) as found:
        yield found


@contextmanager
def running_server(directory: Path, **variables: str) -> Iterator[Server]:
    """Start a server, with variables of its own, and end it."""
    import pyspark

    mark = uuid.uuid4().hex
    home = os.path.dirname(pyspark.__file__)  # noqa: PTH120
    left_out = ("PYTHON", "PYSPARK", "SPARK", "PYTEST")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    environment = {
        **clean, MARK: mark, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": "2.13",
        "PYSPARK_PYTHON": str(bare_python(directory / "python")), **variables,
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
        process.wait(300)
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


# Summaries come in several jobs, and the larger ones in slices.
LITTLE = """
import sys
from eoctl.main import run
from eoctl.spark import results

results.AT_ONCE_BYTES = 1000
run(sys.argv[1:])
"""
SCRIPT = """
import sys
from pyspark.sql import SparkSession
from eoctl.spark.bundle import write_bundle
from eoctl.spark.datasource import register

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
register(spark)
for name in ("kafka-log-batches", "kafka-log-records"):
    print(name, spark.read.format(name).load(sys.argv[2]).count())
"""


@pytest.mark.exhaustive
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
    little = run(server, "-c", LITTLE, *audit[2:], "--master", server.url, cwd=tmp_path)
    assert (little.stdout, little.returncode) == (local.stdout, local.returncode), little.stderr
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run(server, "script.py", server.url, logs, cwd=tmp_path)
    counts = [len(read(each, logs)) for each in (BatchesReader, RecordsReader)]
    reported = [f"kafka-log-batches {counts[0]}", f"kafka-log-records {counts[1]}"]
    assert done.stdout.splitlines() == reported, done.stderr
    refused = run(
        server, "-m", "eoctl", "export", logs, "--to", "out", "--master", server.url, cwd=tmp_path
    )
    assert refused.returncode == 3
    assert "Spark Connect takes no functions of ours" in refused.stderr


@pytest.mark.exhaustive
def test_audits_that_go_on(server: Server, golden: Callable[[str], Path], tmp_path: Path) -> None:
    """State and checkpoint are kept where the audit is called."""
    logs = str(golden("kafka-4.3.1") / "clean")
    audit = ("-m", "eoctl", "spark-audit", logs, *WORDS)
    local = run(server, *audit, "--engine", "local", "--jobs", "1", cwd=tmp_path)
    for kept in ("--state", "--checkpoint"):
        call = (*audit, "--master", server.url, kept, str(tmp_path / kept[2:]))
        first, second = (run(server, *call, cwd=tmp_path) for _ in range(2))
        assert (first.stdout, first.returncode) == (local.stdout, 0), first.stderr
        assert (second.stdout, second.returncode) == (local.stdout, 0), second.stderr
        assert "are unchanged, and taken from" in second.stderr


STREAMS = """
import sys
from pyspark.sql import SparkSession
from eoctl.spark.bundle import write_bundle
from eoctl.spark.datasource import register
from eoctl.spark.running_audit import start_audit
from storage.errors import UsageError

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
register(spark)
stream = spark.readStream.format("kafka-log-records").option("until", "log-end").load(sys.argv[2])
sink = stream.select("topic", "partition", "offset").writeStream.format("parquet")
sink = sink.option("checkpointLocation", sys.argv[3] + "/kept")
sink.trigger(availableNow=True).start(sys.argv[3] + "/rows").awaitTermination()
print("rows", spark.read.parquet(sys.argv[3] + "/rows").count())
try:
    start_audit(spark, sys.argv[2], sys.argv[3] + "/audit")
except UsageError as exc:
    print(exc.message)
"""


@pytest.mark.exhaustive
def test_streams(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """The sources go where the server has our packages; an audit as a stream does not, and says so.

    What a client sends along Spark does not hand to the process that plans a stream.
    """
    logs = str(golden("kafka-4.3.1") / "clean" / "txn-*")
    (tmp_path / "script.py").write_text(STREAMS)
    (tmp_path / "server").mkdir()
    with running_server(tmp_path / "server", PYTHONPATH=str(write_bundle(tmp_path))) as server:
        done = run(server, "script.py", server.url, logs, str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows, refused = done.stdout.splitlines()
    assert rows == f"rows {len(read(RecordsReader, logs))}", done.stderr
    assert "an audit that goes on keeps its state through the JVM" in refused


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--report-html", "{}/page.html"), "Spark Connect takes no functions of ours"),
        (("--to", "{}/tables", "--to-format", "delta"), "over Spark Connect nobody can see"),
        (("--to", "lake.audit", "--to-format", "iceberg"), "over Spark Connect nobody can see"),
    ],
)
def test_what_is_refused_before_the_work(
    server: Server,
    golden: Callable[[str], Path],
    tmp_path: Path,
    option: tuple[str, ...],
    words: str,
) -> None:
    logs = str(golden("kafka-4.3.1") / "clean")
    call = ("-m", "eoctl", "spark-audit", logs, "--master", server.url)
    done = run(server, *call, *(each.format(tmp_path) for each in option), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert words in done.stderr
    assert "--master spark://HOST:7077" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.exhaustive
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
