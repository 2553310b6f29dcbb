"""Start Spark quietly, on this machine or on a cluster, and stop it again.

What the JVM prints goes to neither stream of ours: it is kept in memory and shown if Spark does
not start (EOCTL_DEBUG=1 lets it through). Nothing listens on anything but the loopback, except
what a cluster's executors need, which `--conf` names.
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


# -- have the Python processes of a local Spark import pyspark as pip has installed it
#
# Spark puts `pyspark.zip` of its home before everything else on their path. It has sources only,
# so that each process compiles them: 0.6 s of processor time, of four of them one after the
# other, until a first row is there. A home without that file has them take what is installed,
# compiled.
#
# That home is a directory of links in the user's cache, one for each pyspark: a driver that is
# killed leaves nothing that the next one does not use.


HOME = "SPARK_HOME"
CACHE_HOME = "XDG_CACHE_HOME"
NEEDED = ("bin", "jars")  # of a pyspark that is a whole Spark: of pip, not of a distribution
# The zip file, with links back; what Python writes when it is first imported.
LEFT_OUT = ("python", "__pycache__")


def home_environment() -> dict[str, str]:
    """Return the variable that has Spark start so; none where somebody has said where Spark is."""
    if os.environ.get(HOME):
        return {}
    import pyspark

    home = _home_of(Path(pyspark.__file__).parent)
    return {} if home is None else {HOME: home}


@cache
def _home_of(installed: Path) -> str | None:
    """Find or make the home for what is installed; without room for it Spark starts slower."""
    if not all((installed / name).is_dir() for name in NEEDED):
        return None
    try:
        links = {each.name: str(each) for each in installed.iterdir() if each.name not in LEFT_OUT}
        digest = hashlib.sha256("\0".join(sorted(links.values())).encode()).hexdigest()
        home = _cache_dir() / f"spark-{digest[:16]}"
        if not _is_whole(home, links):
            _make(home, links)
        return str(home) if _is_whole(home, links) else None
    except (OSError, RuntimeError):  # of a user who has no home, too
        return None


def _cache_dir() -> Path:
    named = Path(os.environ.get(CACHE_HOME, ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "eoctl"


def _is_whole(home: Path, links: Mapping[str, str]) -> bool:
    """Is it ours, and does it lead to all that is installed, and nowhere else?"""
    if not home.is_dir() or home.stat().st_uid != os.geteuid():
        return False
    return links == {
        each.name: str(each.readlink()) for each in home.iterdir() if each.is_symlink()
    } and len(links) == len([*home.iterdir()])


def _make(home: Path, links: Mapping[str, str]) -> None:
    """Make it under another name: who starts meanwhile sees all of it, or nothing."""
    home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    try:
        for name, target in links.items():
            (made / name).symlink_to(target)
        with suppress(OSError):  # another process was first
            made.rename(home)
    finally:
        shutil.rmtree(made, ignore_errors=True)


# -- progress of Spark's jobs: their stages and tasks, for whoever waits at a terminal


ASK_SECONDS = 0.3


@contextmanager
def stages_told(context: Any) -> Iterator[None]:
    """Tell of the stages of the jobs that run meanwhile; nothing is asked where nobody waits.

    Args:
        context: a SparkContext; None where there is none to ask.
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
            progress.tell(stages_text(tracker))
        except Exception:  # noqa: BLE001 - whatever py4j raises: the job itself tells what is wrong
            return


def stages_text(tracker: Any) -> str:
    """Tell of the stages that are at work: `stage 2: 37 of 120 tasks`.

    Args:
        tracker: a StatusTracker.
    """
    infos = (tracker.getStageInfo(each) for each in tracker.getActiveStageIds())
    told = [
        f"stage {each.stageId}: {each.numCompletedTasks} of {each.numTasks} tasks"
        for each in sorted((each for each in infos if each is not None), key=_stage_id)
    ]
    return ", ".join(told) or "waiting for a stage"


def _stage_id(info: Any) -> int:
    number: int = info.stageId
    return number


# -- session


MASTER = re.compile(r"local(\[(\*|\d+)(, *\d+)?\])?|local-cluster\[.+\]|yarn|(spark|k8s|sc)://\S+")
DEFAULT_MASTER = "local[*,4]"  # a task whose worker dies is tried again, as on a cluster
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
    """Is it the address of a server of Spark Connect?"""
    return master.startswith("sc://")


def check_requirements(master: str = DEFAULT_MASTER) -> None:
    """See that pyspark, pyarrow and Java are there, in releases that will do.

    A client of Spark Connect needs no Java, but other libraries.

    Raises:
        UsageError: there is no such master.
        SparkUnavailableError: with the command that installs what is missing.
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
        told = subprocess.run(
            [java, "-version"], capture_output=True, check=True, timeout=60, text=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as exc:
        raise SparkUnavailableError(f"{java} does not run: {exc}", next_step=next_step) from None
    match = re.search(r'version "(?:1\.)?([0-9]+)', told)
    if match is not None and int(match[1]) < JAVA_MIN:
        raise SparkUnavailableError(
            f"{java} is Java {match[1]}: Spark needs {needed}", next_step=next_step
        )


@contextmanager
def job_errors() -> Iterator[None]:
    """Turn what Spark raises into an error that a user can act on.

    Raises:
        SparkJobError: Spark gave the job up, when it planned or when it ran it.
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
    """Take `--conf NAME=VALUE` apart.

    Raises:
        UsageError: there is no `=`, or nothing before it.
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
    """Give the session that runs in this process, else a new one that is stopped at the end.

    A new one that is not local sends our packages to the executors, unless `spark.submit.pyFiles`
    says what they get. Below spark-submit the master and the settings are those of its call where
    nothing else is asked for. `paths` are local ones that every executor has to have.

    Raises:
        SparkUnavailableError: it does not start, or an executor cannot run our tasks.
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
        except Exception as exc:  # the JVM, py4j and pyspark all have their own
            words = (heard() or str(exc)).strip()
            raise SparkUnavailableError(
                f"Spark does not start with --master {master}:\n{words}",
                next_step="see the words above; EOCTL_DEBUG=1 shows all of them",
            ) from exc
    return session


def _quiet_py4j() -> None:
    """Have no stacks printed at Ctrl-C: pyspark then calls the JVM in the midst of a call."""
    from py4j import java_gateway  # type: ignore[import-untyped]

    if not os.environ.get("EOCTL_DEBUG"):
        java_gateway.logging.root.addHandler(java_gateway.null_handler)


@contextmanager
def _no_jvm_left() -> Iterator[None]:
    """End the JVM that pyspark starts meanwhile, if Ctrl-C comes before they are connected.

    Nobody else would: pyspark has then removed the directory that the JVM writes its port to, and
    the JVM stays with a thread that waits for a caller.
    """
    from pyspark import SparkContext, java_gateway

    gateway: Any = java_gateway  # whose `Popen` is no part of its interface
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
    """Open a session at a server of Spark Connect, whose settings are its own."""
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
    """See that somebody listens there: pyspark would try again for minutes.

    Raises:
        SparkUnavailableError: nobody does.
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
    """Return the settings of the spark-submit that this process runs below; none without one."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # noqa: SLF001
    return dict(SparkConf().getAll())


def is_in_cluster_mode() -> bool:
    """Is this the driver of a spark-submit in cluster mode, in a container that goes with it?"""
    return _submitted_settings().get("spark.submit.deployMode") == "cluster"


def defaults(master: str) -> dict[str, str]:
    """Return the settings that `--conf` may change."""
    chosen = {
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # YARN's containers have a temporary directory of their own, whose path is too long for one.
        "spark.python.unix.domain.socket.enabled": "false" if master == "yarn" else "true",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.python.filterPushdown.enabled": "true",
        # Each task would write Java for its few rows anew, a sixth of what it costs the JVM.
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # All groups of a task that joins would be in a hash table of the JVM at once.
        "spark.sql.execution.useObjectHashAggregateExec": "false",
    }
    if is_local(master):
        chosen["spark.executorEnv.PYTHONPATH"] = str(packages_root())
        chosen["spark.driver.host"] = chosen["spark.driver.bindAddress"] = "127.0.0.1"
        chosen["spark.sql.shuffle.partitions"] = str(max(os.cpu_count() or 1, 2))
        # The work is done in Python: a JVM that compiles little is up in half the time.
        chosen["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        chosen["spark.sql.codegen.wholeStage"] = "false"
    return chosen


def worker_environment(master: str) -> dict[str, str]:
    """Return the variables that the JVM and the Python processes it starts need."""
    known = os.environ.get("PYTHONPATH", "")
    wanted = {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(packages_root()), known))),
        # A module named `storage` in the working directory shall not hide ours.
        "PYTHONSAFEPATH": "1",
    }
    if is_local(master):
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
        wanted["PYSPARK_PYTHON"] = wanted["PYSPARK_DRIVER_PYTHON"] = sys.executable
    return wanted


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the processes that are started meanwhile."""
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
