"""Start and stop of Spark, quietly, on this machine or on a cluster.

eoctl keeps the output of the JVM in memory, and shows it if Spark does not start (EOCTL_DEBUG=1
prints it at once). All ports listen on the loopback only, except ports for a cluster's executors,
which `--conf` sets.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from eoctl.libraries import REQUIREMENTS, install_call
from eoctl.progress import Progress, is_drawn
from eoctl.spark import packages_root
from eoctl.spark.executors import (
    SparkJobError,
    SparkUnavailableError,
    first_line,
    hidden_output,
    is_local,
    make_ready,
)
from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession


# -- a Spark home whose Python processes import the pyspark that pip has installed.
#
# Spark puts `pyspark.zip` of its home first on their path. The zip has only sources, so each
# process compiles them. That takes 0.6 s of processor time until the first row, in four processes
# one after the other. Without this file in the home, the processes import the compiled pyspark.
#
# The home is a directory of links in the user's cache, one for each pyspark. A killed driver leaves
# only data that the next driver uses.


HOME = "SPARK_HOME"
CACHE_HOME = "XDG_CACHE_HOME"
NEEDED = ("bin", "jars")  # of a pyspark that is a whole Spark, from pip and not from a distribution
# The zip file, which has links back, and the files that Python writes at the first import.
LEFT_OUT = ("python", "__pycache__")


def home_environment() -> dict[str, str]:
    """Return the variable for Spark's home, empty if the user has set it."""
    if os.environ.get(HOME):
        return {}
    import pyspark

    home = _home_of(Path(pyspark.__file__).parent)
    return {} if home is None else {HOME: home}


@cache
def _home_of(installed: Path) -> str | None:
    """Find or make the home of a pyspark, None without room for it, which starts Spark slower."""
    if not all((installed / name).is_dir() for name in NEEDED):
        return None
    try:
        links = {each.name: str(each) for each in installed.iterdir() if each.name not in LEFT_OUT}
        digest = hashlib.sha256("\0".join(sorted(links.values())).encode()).hexdigest()
        home = _cache_dir() / f"spark-{digest[:16]}"
        if not _is_whole(home, links):
            _make(home, links)
        return str(home) if _is_whole(home, links) else None
    except (OSError, RuntimeError):  # also for a user without a home
        return None


def _cache_dir() -> Path:
    named = Path(os.environ.get(CACHE_HOME, ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "eoctl"


def _is_whole(home: Path, links: Mapping[str, str]) -> bool:
    """Return whether the home is the user's, with links to all of pyspark and nothing else."""
    if not home.is_dir() or home.stat().st_uid != os.geteuid():
        return False
    return links == {
        each.name: str(each.readlink()) for each in home.iterdir() if each.is_symlink()
    } and len(links) == len([*home.iterdir()])


def _make(home: Path, links: Mapping[str, str]) -> None:
    """Make the home under another name, so that other processes see all of it or nothing."""
    home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    try:
        for name, target in links.items():
            (made / name).symlink_to(target)
        with suppress(OSError):  # another process was first
            made.rename(home)
    finally:
        shutil.rmtree(made, ignore_errors=True)


# -- progress of Spark's jobs by stages and tasks, on a terminal


ASK_SECONDS = 0.3


@contextmanager
def stages_reported(context: Any) -> Iterator[None]:
    """Show the stages of running jobs, if the output is a terminal.

    Args:
        context: a SparkContext, None without one to query.
    """
    if context is None or not is_drawn():
        yield
        return
    is_over = Event()
    with Progress("Spark") as progress:
        asking = Thread(target=_ask, args=(context.statusTracker(), progress, is_over), daemon=True)
        asking.start()
        try:
            yield
        finally:
            is_over.set()
            asking.join()


def _ask(tracker: Any, progress: Progress, is_over: Event) -> None:
    while not is_over.wait(ASK_SECONDS):
        try:
            progress.report(stages_text(tracker))
        except Exception:  # noqa: BLE001 - whatever py4j raises: the job itself tells what is wrong
            return


def stages_text(tracker: Any) -> str:
    """Return the active stages as text: `stage 2: 37 of 120 tasks`.

    Args:
        tracker: a StatusTracker.
    """
    infos = (tracker.getStageInfo(each) for each in tracker.getActiveStageIds())
    reported = [
        f"stage {each.stageId}: {each.numCompletedTasks} of {each.numTasks} tasks"
        for each in sorted((each for each in infos if each is not None), key=_stage_id)
    ]
    return ", ".join(reported) or "waiting for a stage"


def _stage_id(info: Any) -> int:
    number: int = info.stageId
    return number


# -- session


MASTER = re.compile(r"local(\[(\*|\d+)(, *\d+)?\])?|local-cluster\[.+\]|yarn|(spark|k8s|sc)://\S+")
DEFAULT_MASTER = "local[*,4]"  # retries a task whose worker dies, as on a cluster
CONNECT_LIBRARIES = ("grpc", "grpc_status", "pandas")
CONNECT_PORT = 15002
CONNECT_SECONDS = 20.0
JAVA_MIN = 17
PYSPARK_MIN = 4
RESULT_SETTING = "spark.driver.maxResultSize"
MORE_MEMORY = (
    f"--conf {RESULT_SETTING}=8g --conf spark.driver.memory=12g: with --state a driver takes 100"
    " bytes for each producer id of each segment; or audit some topics at a time"
)
OTHERS_WORK = "every other command of eoctl works without Java and Spark"


def is_connect(master: str) -> bool:
    """Return whether this is the address of a Spark Connect server."""
    return master.startswith("sc://")


def check_requirements(master: str = DEFAULT_MASTER) -> None:
    """Check that pyspark, pyarrow and Java exist in suitable releases.

    A client of Spark Connect needs no Java, but other libraries.

    Raises:
        UsageError: the master is malformed.
        SparkUnavailableError: with the command that installs the missing parts.
    """
    if MASTER.fullmatch(master) is None:
        raise UsageError(
            f"--master {master}: no master of Spark",
            next_step="local[*], spark://HOST:7077, yarn, k8s://https://HOST:6443, or sc://HOST:15002",
        )
    for name in ("pyspark", "pyarrow"):
        if find_spec(name) is None:
            raise _unavailable(f"{name} is not installed")
    from importlib.metadata import PackageNotFoundError, version

    try:
        release = version("pyspark")
    except PackageNotFoundError:  # part of a Spark distribution, on PYTHONPATH
        release = str(PYSPARK_MIN)
    if int(release.split(".")[0]) < PYSPARK_MIN:
        raise _unavailable(
            f"pyspark {release} is too old: {PYSPARK_MIN}.0 or later is needed",
            "--upgrade",
        )
    if not is_connect(master):
        _check_java()
        return
    for name in CONNECT_LIBRARIES:
        if find_spec(name) is None:
            raise SparkUnavailableError(
                f"{name} is not installed, which Spark Connect needs here",
                next_step=install_call(REQUIREMENTS["pyspark.sql.connect"]),
            )


def _unavailable(what: str, *options: str) -> SparkUnavailableError:
    call = install_call(*options, REQUIREMENTS["pyspark"], REQUIREMENTS["pyarrow"])
    return SparkUnavailableError(what, next_step=f"{call}; {OTHERS_WORK}")


def _check_java() -> None:
    needed = f"Java {JAVA_MIN} or later"
    next_step = (
        f"apt-get install openjdk-{JAVA_MIN}-jre-headless, or set JAVA_HOME to {needed}; "
        + OTHERS_WORK
    )
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else which("java")
    if java is None:
        raise SparkUnavailableError(f"{needed} is not installed", next_step=next_step)
    try:
        reported = subprocess.run(
            [java, "-version"], capture_output=True, check=True, timeout=60, text=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as exc:
        raise SparkUnavailableError(f"{java} does not run: {exc}", next_step=next_step) from None
    match = re.search(r'version "(?:1\.)?([0-9]+)', reported)
    if match is not None and int(match[1]) < JAVA_MIN:
        raise SparkUnavailableError(
            f"{java} is Java {match[1]}: Spark needs {needed}", next_step=next_step
        )


@contextmanager
def job_errors() -> Iterator[None]:
    """Turn errors of Spark into errors that a user can act on.

    Raises:
        SparkJobError: Spark gave the job up, at its planning or its run.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as exc:
        is_large = RESULT_SETTING in str(exc)
        raise SparkJobError(
            f"Spark gave the job up: {first_line(exc)}",
            next_step=MORE_MEMORY if is_large else "EOCTL_DEBUG=1 shows all of Spark's words",
        ) from exc


class Setting(NamedTuple):
    """One `--conf`."""

    name: str
    value: str


def parse_settings(texts: Sequence[str]) -> list[Setting]:
    """Parse `--conf NAME=VALUE`.

    Raises:
        UsageError: there is no `=`, or no name before it.
    """
    settings = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name.strip() and equals):
            raise UsageError(
                f"--conf {text}: not NAME=VALUE", next_step="--conf spark.driver.memory=4g"
            )
        settings.append(Setting(name.strip(), value))
    return settings


@contextmanager
def spark_session(
    master: str = DEFAULT_MASTER, settings: Sequence[Setting] = (), paths: Sequence[str] = ()
) -> Iterator[SparkSession]:
    """Yield the session of this process, or a new session that is stopped at the end.

    A new session on a cluster sends eoctl's packages to the executors, unless
    `spark.submit.pyFiles` sets them. Under spark-submit, its master and settings are the defaults.
    `paths` are local paths that every executor needs.

    Raises:
        SparkUnavailableError: it does not start, or an executor cannot run the tasks.
    """
    check_requirements(master)
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    start = _connect if is_connect(master) else _start
    session = start(SparkSession, master, settings)
    known_paths = [*sys.path]
    try:
        make_ready(session, paths)
        yield session
    finally:
        with hidden_output():
            session.stop()
        sys.path[:] = [each for each in sys.path if each in known_paths]


def _start(
    session_class: type[SparkSession], master: str, settings: Sequence[Setting]
) -> SparkSession:
    submitted = _submitted_settings()
    submitted_master = submitted.pop("spark.master", master)
    if master == DEFAULT_MASTER:
        master = submitted_master
    chosen = {**defaults(master), **submitted, **dict(settings)}
    home = home_environment() if is_local(master) else {}
    with (
        _environment(worker_environment(master) | home),
        hidden_output() as heard,
        _no_jvm_left(),
    ):
        try:
            builder = session_class.builder.master(master).appName("eoctl")
            for name, value in chosen.items():
                builder = builder.config(name, value)
            session = builder.getOrCreate()
            _quiet_py4j()
            session.sparkContext.setLogLevel(chosen["spark.log.level"])
        except Exception as exc:  # the JVM, py4j and pyspark all have their own errors
            words = (heard() or str(exc)).strip()
            raise SparkUnavailableError(
                f"Spark does not start with --master {master}:\n{words}",
                next_step="see the words above; EOCTL_DEBUG=1 shows all of them",
            ) from exc
    return session


def _quiet_py4j() -> None:
    """Print no stacks at Ctrl-C, when pyspark calls the JVM in the middle of another call."""
    from py4j import java_gateway  # type: ignore[import-untyped]

    if not os.environ.get("EOCTL_DEBUG"):
        java_gateway.logging.root.addHandler(java_gateway.null_handler)


@contextmanager
def _no_jvm_left() -> Iterator[None]:
    """End the JVM that pyspark starts here if Ctrl-C comes before they are connected.

    No other process would end it. By then pyspark has removed the directory for the JVM's port, and
    the JVM stays with a thread that waits for a caller.
    """
    from pyspark import SparkContext, java_gateway

    gateway: Any = java_gateway  # its `Popen` is no part of its interface
    known = gateway.Popen
    started: list[subprocess.Popen[bytes]] = []

    def recorded(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = known(*arguments, **options)
        started.append(process)
        return process

    gateway.Popen = recorded
    try:
        yield
    except BaseException:
        if SparkContext._gateway is None:  # noqa: SLF001
            for process in started:
                process.kill()
                process.wait()
        raise
    finally:
        gateway.Popen = known


def _connect(
    session_class: type[SparkSession], master: str, settings: Sequence[Setting]
) -> SparkSession:
    """Open a session at a Spark Connect server, which has its own settings."""
    from pyspark.errors import PySparkException

    _require_answer(master)
    with hidden_output():
        try:
            builder = session_class.builder.remote(master)
            for name, value in settings:
                builder = builder.config(name, value)
            return builder.getOrCreate()
        except (PySparkException, OSError) as exc:
            raise _no_answer(master, first_line(exc)) from exc


def _require_answer(master: str) -> None:
    """Check that a server listens there, because pyspark would retry for minutes.

    Raises:
        SparkUnavailableError: no server does.
    """
    try:
        place = urlsplit(master)
        address = place.hostname or "", place.port or CONNECT_PORT
        socket.create_connection(address, CONNECT_SECONDS).close()
    except (OSError, ValueError) as exc:
        raise _no_answer(master, str(exc)) from exc


def _no_answer(master: str, why: str) -> SparkUnavailableError:
    return SparkUnavailableError(
        f"Spark Connect does not answer at {master}: {why}",
        next_step="is its server there, of the same release as pyspark here? sc://HOST:15002",
    )


def _submitted_settings() -> dict[str, str]:
    """Return the settings of the spark-submit above this process, {} without one."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # noqa: SLF001
    return dict(SparkConf().getAll())


def is_in_cluster_mode() -> bool:
    """Return whether this is the driver of a spark-submit in cluster mode, in a container.

    The container ends with the driver.
    """
    return _submitted_settings().get("spark.submit.deployMode") == "cluster"


def defaults(master: str) -> dict[str, str]:
    """Return the settings that `--conf` may change."""
    chosen = {
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # YARN's containers have their own temporary directory, whose path is too long for a socket.
        "spark.python.unix.domain.socket.enabled": "false" if master == "yarn" else "true",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.python.filterPushdown.enabled": "true",
        # Otherwise each task writes Java code for its few rows, a sixth of its cost in the JVM.
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Otherwise all groups of a joining task are in a hash table of the JVM at once.
        "spark.sql.execution.useObjectHashAggregateExec": "false",
    }
    if is_local(master):
        chosen["spark.executorEnv.PYTHONPATH"] = str(packages_root())
        chosen["spark.driver.host"] = chosen["spark.driver.bindAddress"] = "127.0.0.1"
        chosen["spark.sql.shuffle.partitions"] = str(max(os.cpu_count() or 1, 2))
        # The work is done in Python, and a JVM that compiles little starts in half the time.
        chosen["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        chosen["spark.sql.codegen.wholeStage"] = "false"
    return chosen


def worker_environment(master: str) -> dict[str, str]:
    """Return the variables for the JVM and the Python processes that it starts."""
    known = os.environ.get("PYTHONPATH", "")
    wanted = {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(packages_root()), known))),
        # Prevents a module named `storage` in the working directory from hiding eoctl's.
        "PYTHONSAFEPATH": "1",
    }
    if is_local(master):
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
        wanted["PYSPARK_PYTHON"] = wanted["PYSPARK_DRIVER_PYTHON"] = sys.executable
    return wanted


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set variables for processes that start within the context."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
