"""A standalone cluster of two workers whose Python does not have our packages."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import venv
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from eoctl.spark.bundle import write_bundle
from eoctl.spark.datasource import RecordsReader
from eoctl.spark.executors import inspect_around
from storage.kernels.kernel_choice import KERNEL_VARIABLE, native_module
from tests.audit_context import Context
from tests.spark.cluster import running_cluster
from tests.spark.running import SPARK_MARKS
from tests.spark.test_datasource import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.spark.cluster import Cluster

pytestmark = [*SPARK_MARKS, pytest.mark.slow]

# Loopback only, and small: there are two cores for five JVMs.
SETTINGS = (
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.executor.memory=512m",
    "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions=2",
    "spark.sql.codegen.wholeStage=false",
)
CONF = [word for each in SETTINGS for word in ("--conf", each)]
AUDIT = ("spark-audit", "--report", "all", "--output", "jsonl")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """At its end the fixture fails if a process is left, of the cluster or of a driver."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def logs(golden: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Directories of a real broker, and what a generator has planted."""
    root = tmp_path_factory.mktemp("world")
    for log in Context(7).logs:
        log.write(root)
    return [str(golden("kafka-4.3.1") / "clean"), str(root)]


def run(cluster: Cluster, command: list[str], cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        command, env=cluster.environment, cwd=cwd,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def locally(logs: list[str], cwd: Path) -> str:
    command = [sys.executable, "-m", "eoctl", *AUDIT, "--engine", "local", "--jobs", "1", *logs]
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )
    assert len(done.stdout.splitlines()) > 100
    return done.stdout


@pytest.mark.exhaustive
def test_executors_have_none_of_our_packages(cluster: Cluster, tmp_path: Path) -> None:
    check = "import numpy, pyarrow, crc32c; import eoctl"
    done = run(cluster, [cluster.environment["PYSPARK_PYTHON"], "-c", check], tmp_path)
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'eoctl'"


def executors(cluster: Cluster) -> set[Path]:
    """What each executor that there has been writes to."""
    return {*cluster.directory.glob("work-*/app-*/*/stderr")}


def by_itself(cluster: Cluster, logs: list[str], tmp_path: Path) -> str:
    """The program sends what executors need: neither the call nor the cluster knows of it."""
    (tmp_path / "storage.py").write_text("a foreign module where the program is called")
    call = [sys.executable, "-P", "-m", "eoctl", *AUDIT, "--master", cluster.master]
    done = run(cluster, [*call, "--split-bytes", "20000", *CONF, *logs], tmp_path)
    words = [json.loads(each)["message"] for each in done.stderr.splitlines()]
    assert "engine: spark, as --master or --conf was given" in words
    assert {path.parts[-4] for path in executors(cluster)} == {"work-0", "work-1"}
    return done.stdout


def by_spark_submit(cluster: Cluster, logs: list[str], tmp_path: Path) -> str:
    """All that is ours comes from the bundle, in the driver too; its settings are those given."""
    bundle = write_bundle(tmp_path)
    script = tmp_path / "run_eoctl.py"
    script.write_text("from eoctl.main import run\n\nrun()\n")
    home = cluster.environment["SPARK_HOME"]
    call = [f"{home}/bin/spark-submit", "--py-files", str(bundle), "--master", cluster.master]
    done = run(cluster, [*call, *CONF, str(script), *AUDIT, "--engine", "spark", *logs], tmp_path)
    assert done.returncode in {0, 1}, done.stderr
    # spark-submit sends both streams of a driver to one.
    lines = [each for each in done.stdout.splitlines() if not each.startswith('{"level":"note",')]
    return "".join(f"{each}\n" for each in lines)


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize("way", [by_itself, by_spark_submit])
def test_the_same_answer(
    cluster: Cluster,
    logs: list[str],
    tmp_path: Path,
    way: Callable[[Cluster, list[str], Path], str],
) -> None:
    assert way(cluster, logs, tmp_path) == locally(logs, cluster.directory)


@pytest.mark.exhaustive
def test_the_page_of_a_report(
    cluster: Cluster, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """Made of what both workers have read: that of `eoctl report`, byte for byte."""
    log_dir, before = str(golden("kafka-4.3.1") / "crash"), executors(cluster)
    ours, theirs = tmp_path / "spark.html", tmp_path / "report.html"
    program = [sys.executable, "-P", "-m", "eoctl"]
    audit = [*program, "spark-audit", "--master", cluster.master, "--split-bytes", "20000"]
    page = ["--report-html", str(ours), "--now", "dir", "--output", "jsonl"]
    done = run(cluster, [*audit, *CONF, *page, log_dir], tmp_path)
    assert done.returncode in {0, 1}, done.stderr
    assert "engine: spark, as --master or --conf was given" in done.stderr
    assert {path.parts[-4] for path in executors(cluster) - before} == {"work-0", "work-1"}
    report = [*program, "report", log_dir, "--to", str(theirs), "--now", "dir"]
    done = run(cluster, report, tmp_path)
    assert done.returncode in {0, 1}, done.stderr
    assert ours.read_bytes() == theirs.read_bytes()


SCRIPT = """
import sys
from pyspark.sql import SparkSession
from eoctl.spark.datasource import register

spark = SparkSession.builder.config(map=dict(each.split("=", 1) for each in sys.argv[3:]))
spark = spark.master(sys.argv[1]).getOrCreate()
register(spark)
tracker = spark.sparkContext.statusTracker()
stages = [each for job in tracker.getJobIdsForGroup() for each in tracker.getJobInfo(job).stageIds]
tasks = [tracker.getStageInfo(each).numTasks for each in stages]
print("looked", tasks, spark.sparkContext.defaultParallelism)
print("rows", spark.read.format("kafka-log-records").load(sys.argv[2]).count())
"""


KERNELS = """
import sys
from pyspark.sql import SparkSession
from eoctl.spark.executors import kernels_of

spark = SparkSession.builder.config(map=dict(each.split("=", 1) for each in sys.argv[2:]))
print("kernels", kernels_of(spark.master(sys.argv[1]).getOrCreate()))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("master", ["local[2]", "standalone"])
@pytest.mark.parametrize("demanded", ["", "numpy"])
def test_executors_say_which_kernel_they_use(
    cluster: Cluster, tmp_path: Path, master: str, demanded: str
) -> None:
    """The native one, which is sent to a Python without it."""
    (tmp_path / "script.py").write_text(KERNELS)
    environment, python = dict(cluster.environment), cluster.environment["PYSPARK_PYTHON"]
    settings = list(SETTINGS)
    if master == "local[2]":
        python = environment["PYSPARK_PYTHON"] = sys.executable
        environment |= {KERNEL_VARIABLE: demanded}
    else:
        settings.append(f"spark.executorEnv.{KERNEL_VARIABLE}={demanded}")
        master = cluster.master
    call = [sys.executable, "-P", "script.py", master, *settings]
    done = run(cluster._replace(environment=environment), call, tmp_path)
    assert done.returncode == 0, done.stderr
    expected = demanded or ("numpy" if native_module() is None else "native")
    found = {f"{socket.gethostname()}: {python}": expected}
    assert done.stdout.splitlines()[-1] == f"kernels {found}"


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize("is_bare", [False, True])
def test_a_plain_script(
    cluster: Cluster, logs: list[str], tmp_path: Path, *, is_bare: bool
) -> None:
    """`register` sends what the executors need, and says at once what they lack.

    At once: its look is the first job, of one task a core, before anything is planned.
    """
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = dict(cluster.environment)
    if is_bare:
        venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
        environment["PYSPARK_PYTHON"] = str(tmp_path / "bare" / "bin" / "python")
    call = [sys.executable, "-P", "script.py", cluster.master, logs[0], *SETTINGS]
    done = run(cluster._replace(environment=environment), call, tmp_path)
    if is_bare:
        assert done.returncode == 1
        words, next_step = done.stderr.splitlines()[-2:]
        assert "SparkUnavailableError: executors cannot run the job" in words
        assert "bare/bin/python has no module numpy, pyarrow" in words
        assert next_step.startswith("try: install it on every host")
        assert "looked" not in done.stdout
        assert "rows" not in done.stdout
        return
    assert done.returncode == 0, done.stderr
    assert "looked [2] 2\n" in done.stdout
    count = len(read(RecordsReader, logs[0], columns="offset"))
    assert done.stdout.splitlines()[-1] == f"rows {count}"


def test_a_directory_that_executors_have_not(tmp_path: Path) -> None:
    """The look itself, without executors: what is there is not told of."""
    (seen,) = inspect_around(("json",), (str(tmp_path), str(tmp_path / "nowhere")), ())
    assert seen == (socket.gethostname(), sys.executable, (), (str(tmp_path / "nowhere"),))


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize("what", ["library", "package", "python"])
def test_what_an_executor_lacks_is_named(
    cluster: Cluster, logs: list[str], tmp_path: Path, what: str
) -> None:
    """Before the job begins: with the host, the module and what to do."""
    environment, more = dict(cluster.environment), list[str]()
    if what == "library":
        venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
        environment["PYSPARK_PYTHON"] = str(tmp_path / "bare" / "bin" / "python")
    elif what == "package":
        (tmp_path / "other.py").write_text("")
        more = ["--conf", f"spark.submit.pyFiles={tmp_path / 'other.py'}"]
    else:
        environment["PYSPARK_PYTHON"] = str(tmp_path / "nowhere" / "python3")
    call = [sys.executable, "-P", "-m", "eoctl", "spark-audit", "--master", cluster.master]
    done = run(cluster._replace(environment=environment), [*call, *CONF, *more, *logs], tmp_path)
    assert done.returncode == 3
    words, next_step = done.stderr.splitlines()[-2:]
    expected = {
        "library": ("bare/bin/python has no module numpy, pyarrow", "install it on every host"),
        "package": ("has no module eoctl, recovery, storage", "python -m eoctl.spark.bundle"),
        "python": ('Cannot run program "' + environment["PYSPARK_PYTHON"], "PYSPARK_PYTHON"),
    }[what]
    assert expected[0] in words
    assert (socket.gethostname() if what != "python" else "127.0.0.1") in words
    assert expected[1] in next_step
