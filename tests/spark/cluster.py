"""A real standalone cluster of Spark on the loopback, and a Python that lacks our packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
import venv
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.kernels.kernel_choice import NATIVE_MODULE
from tests.spark.left_over import MARK, wait_until_gone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

UP_SECONDS = 300.0
DOWN_SECONDS = 300.0


class Cluster(NamedTuple):
    """A running cluster; `environment` is what a driver of it needs."""

    master: str
    environment: dict[str, str]
    directory: Path
    mark: str


def bare_python(directory: Path) -> Path:
    """Make an environment with the libraries of this one, but without our packages and kernel."""
    venv.create(directory, with_pip=False, symlinks=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    # A path in a .pth file is no site directory: the .pth files in there, ours too, do not count.
    libraries = directory / "libraries"
    libraries.mkdir()
    for path in sys.path:
        if path.endswith(("site-packages", "dist-packages")):
            for each in Path(path).iterdir():
                if not each.name.startswith(NATIVE_MODULE):
                    (libraries / each.name).symlink_to(each)
    (packages / "libraries.pth").write_text(f"{libraries}\n")
    return directory / "bin" / "python"


@contextmanager
def running_cluster(directory: Path, workers_count: int = 2) -> Iterator[Cluster]:
    """Start a master and its workers; at the end all of their processes are gone.

    Raises:
        RuntimeError: it does not come up, or something is left of it.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    mark = uuid.uuid4().hex
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYSPARK", "SPARK", "PYTEST"))
    }
    environment |= {
        MARK: mark,
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",  # as Spark's own scripts do; only executors ask for it
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(bare_python(directory / "python")),
    }
    try:
        with ExitStack() as stack:

            def start(name: str, kind: str, *arguments: str) -> Path:
                arguments = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments)
                return start_daemon(
                    stack, directory / f"{name}.log", environment, f"{home}/jars/*",
                    f"org.apache.spark.deploy.{kind}", *arguments,
                )  # fmt: skip

            master = wait_for(start("master", "master.Master"), r"at (spark://127\.0\.0\.1:\d+)")
            logs = [
                start(
                    f"worker-{number}", "worker.Worker",
                    *("--cores", "1", "--memory", "1g"),
                    *("--work-dir", str(directory / f"work-{number}"), master),
                )
                for number in range(workers_count)
            ]  # fmt: skip
            for log in logs:
                wait_for(log, r"(Successfully registered) with master")
            yield Cluster(master, environment, directory, mark)
    finally:
        left = wait_until_gone(mark)
    if left:
        raise RuntimeError(f"processes that are left: {left}")


def start_daemon(
    stack: ExitStack,
    log: Path,
    environment: Mapping[str, str],
    class_path: str,
    main: str,
    *arguments: str,
    java: str = "java",
) -> Path:
    """Start a small JVM beside its log, and return that; what is in the stack ends it."""
    command = [
        *(java, "-cp", class_path, "-Xmx256m", "-XX:+UseSerialGC"),
        *("-XX:TieredStopAtLevel=1", main, *arguments),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=log.parent,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    stack.callback(stop, process)
    return log


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(DOWN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + UP_SECONDS
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[1]
        time.sleep(0.1)
    raise RuntimeError(f"no {pattern!r} in {log}:\n{log.read_text(errors='replace')}")
