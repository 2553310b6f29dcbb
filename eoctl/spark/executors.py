"""Preparation of a session's executors: send eoctl's packages, and check the libraries.

This happens once per session, before its first job. The commands do it, and `register` does it for
a script with its own session.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.spark import OWN_PACKAGES
from storage.errors import EXIT_ACCESS, AccessError, EoctlError
from storage.files import fsio
from storage.files.fsio import own_attributes
from storage.kernels.kernel_choice import SENT_KERNEL, native_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


# -- one-line reasons why a Spark job cannot run, or failed


# The last line of a traceback: a class, with its module or without, and its message.
PYTHON_ERROR = re.compile(r"(?:[a-z_]+\.)*[A-Z][A-Za-z]*(?:Error|Exception|Interrupt)\b")


def first_line(exc: Exception) -> str:
    """Return the line that helps a user: the end of a Python traceback, if there is one."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    ours = [line for line in lines if PYTHON_ERROR.match(line)]
    return next(iter(ours[-1:] or lines), type(exc).__name__)


class SparkUnavailableError(EoctlError):
    """Error: Spark cannot run here, because a part is not installed or does not start."""

    exit_status = EXIT_ACCESS


class SparkJobError(EoctlError):
    """Error: Spark gave a job up."""

    exit_status = EXIT_ACCESS


# -- hidden output of the JVM (EOCTL_DEBUG=1 shows it)


MAX_REPORTED_BYTES = 4096


@contextmanager
def hidden_output() -> Iterator[Callable[[], str]]:
    """Capture the output of this process and its new children.

    Yields a function that returns the end of the output.

    The JVM inherits the descriptors, and keeps them while it lives.
    """
    if os.environ.get("EOCTL_DEBUG") or not hasattr(os, "memfd_create"):
        yield str
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.memfd_create("eoctl-spark")
    saved = [os.dup(each) for each in (1, 2)]
    os.dup2(kept, 1)
    os.dup2(kept, 2)

    def heard() -> str:
        size = os.fstat(kept).st_size
        data = os.pread(kept, MAX_REPORTED_BYTES, max(size - MAX_REPORTED_BYTES, 0))
        return data.decode("utf-8", "replace")

    try:
        yield heard
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for target, each in zip((1, 2), saved, strict=True):
            os.dup2(each, target)
            os.close(each)
        os.close(kept)


# -- a quick check of the executors before a job, which reports missing modules early.
#
# Without it a job would fail late, task by task, several times each, with the message of the first
# failed import. The function for the executors is sent by its code, because eoctl's packages may be
# missing there.


# Host, Python, missing modules, and missing directories.
Seen = tuple[str, str, tuple[str, ...], tuple[str, ...]]

BUNDLED = "spark.submit.pyFiles must have what python -m eoctl.spark.bundle writes, or be unset"
LIBRARIES = "install it on every host, or set PYSPARK_PYTHON to a Python that has it"
MOUNT = "mount it on every host under the same path, or give a URI"
PYTHON = "PYSPARK_PYTHON must be, on every host, a Python of the driver's minor version"
_FAILURE = re.compile(r"most recent failure: .*?\((?P<host>[^() ]+) executor [^()]*\): ")


def require_executors(
    context: Any, own: Sequence[str], libraries: Sequence[str], paths: Sequence[str] = ()
) -> None:
    """Check that the Python of the current executors can run the tasks.

    Args:
        context: the SparkContext.
        own: eoctl's packages.
        libraries: modules that the tasks import.
        paths: input paths, as written at Spark's planning.

    Raises:
        SparkUnavailableError: with host, Python, modules or path, and the next step.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import cloudpickle
    from pyspark.errors import PySparkException

    count = max(context.defaultParallelism, 2)
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        inspect = partial(inspect_around, (*own, *libraries), tuple(paths))
        seen = context.parallelize(range(count), count).mapPartitions(inspect).collect()
    except (PySparkException, Py4JError) as exc:
        raise _failed(exc) from exc
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
    lacking = sorted({each for each in seen if each[2] or each[3]})
    if not lacking:
        return
    modules = [
        f"{host}: {python} has no module {', '.join(names)}"
        for host, python, names, _ in lacking
        if names
    ]
    if modules:
        is_ours = any(name in own for each in lacking for name in each[2])
        raise SparkUnavailableError(
            f"executors cannot run the job: {'; '.join(modules)}",
            next_step=BUNDLED if is_ours else LIBRARIES,
        )
    missing = [f"{host}: there is no {names[0]}" for host, _, _, names in lacking]
    raise SparkUnavailableError(
        f"executors cannot read what the job reads: {'; '.join(missing)}", next_step=MOUNT
    )


def inspect_around(
    modules: Sequence[str], paths: Sequence[str], _: Iterable[int]
) -> Iterator[Seen]:
    """Yield host, Python and missing parts of this process, without an import of eoctl."""
    import importlib.util
    import os
    import socket
    import sys

    missing = tuple(name for name in modules if importlib.util.find_spec(name) is None)
    unseen = tuple(path for path in paths if not os.path.exists(path))  # noqa: PTH110
    yield socket.gethostname(), sys.executable, missing, unseen


def _failed(exc: Exception) -> SparkUnavailableError:
    """Return the error of an executor whose Python does not run: missing, or another version."""
    text = str(exc)
    found = _FAILURE.search(text)
    if found is None:
        return SparkUnavailableError(f"executors do not run: {first_line(exc)}", next_step=PYTHON)
    rest = text[found.end() :].splitlines()
    tracebacks = [line for line in rest if "PYTHON_VERSION_MISMATCH" in line]
    words = (tracebacks or rest or [""])[0].strip()
    return SparkUnavailableError(
        f"{found['host']}: the executor there does not run Python: {words}", next_step=PYTHON
    )


# -- executors


_ready: set[str] = set()  # ids of applications, and of sessions of Spark Connect


def make_ready(session: Any, paths: Sequence[str] = ()) -> None:
    """Send eoctl's packages to the executors, unless `spark.submit.pyFiles` sets their packages.

    If this process reads with the native kernel, the kernel goes as a separate file, because Python
    loads no compiled module from a zip file. Spark Connect does not get the kernel. A session on
    this machine needs nothing.

    Args:
        session: a SparkSession. With Spark Connect, its server gets the packages.
        paths: local paths that every executor needs.

    Raises:
        SparkUnavailableError: an executor cannot run the tasks, or does not have a path.
    """
    if is_remote(session):
        if _is_first(session.session_id):
            from eoctl.spark.bundle import write_bundle

            with tempfile.TemporaryDirectory(prefix="eoctl-") as directory:
                session.addArtifacts(str(write_bundle(directory)), pyfile=True)
        return
    context = session.sparkContext
    if is_local(context.master or "") or not _is_first(context.applicationId):
        return
    from eoctl.spark.own_packages import NEEDED

    try:
        if not context.getConf().get("spark.submit.pyFiles"):
            context.addPyFile(packages_for(context))
        if (kernel := native_file()) is not None:
            context.addFile(_kept(context, SENT_KERNEL, Path(kernel)))
        with hidden_output():
            require_executors(context, OWN_PACKAGES, NEEDED, paths)
    except BaseException:
        _ready.discard(context.applicationId)
        raise


def context_of(session: Any) -> Any:
    """Return the SparkContext of a session, None for Spark Connect, whose client has none."""
    return None if is_remote(session) else session.sparkContext


def cores_of(session: Any) -> int:
    """Return Spark's default number of tasks: one for each of its cores."""
    if not is_remote(session):
        return int(session.sparkContext.defaultParallelism)
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return int(session.range(1 << 16).select(F.spark_partition_id()).distinct().count())


def kernels_of(session: Any) -> dict[str, str]:
    """Return the kernel that the Python of each current executor reads with.

    Returns:
        The kernel (`storage.kernels.kernel_choice`) by "HOST: PYTHON".

    Raises:
        SparkUnavailableError: the session is of Spark Connect, or an executor cannot run tasks.
    """
    if is_remote(session):
        raise SparkUnavailableError(
            "Spark Connect takes no functions of ours, so that its executors cannot be asked",
            next_step="--master spark://HOST:7077 or yarn",
        )
    make_ready(session)
    context = session.sparkContext
    count = max(context.defaultParallelism, 2)
    return dict(context.parallelize(range(count), count).map(kernel_here).collect())


def kernel_here(_: int) -> tuple[str, str]:
    """Return host, Python and kernel of this process. Raises KernelError without the set kernel."""
    from storage.kernels.kernel_choice import select_kernel

    return f"{socket.gethostname()}: {sys.executable}", select_kernel()


def is_local(master: str) -> bool:
    """Return whether everything runs in this machine's single JVM."""
    return master == "local" or master.startswith("local[")


def is_remote(session: Any) -> bool:
    """Return whether this is a session of Spark Connect, whose process has no JVM."""
    return "connect" in type(session).__module__.split(".")


def _is_first(name: str) -> bool:
    if name in _ready:
        return False
    _ready.add(name)
    return True


def _kept(context: Any, name: str, source: Path) -> str:
    """Copy a file to a path that later executors also find, and return the path."""
    target = Path(context._temp_dir, name)  # noqa: SLF001 - pyspark's own for what it sends
    try:
        data = source.read_bytes()
    except OSError as exc:
        raise AccessError(exc, str(source)) from exc
    fsio.replace_file(fsio.FileSystem(), target, data, attributes=own_attributes())
    return str(target)


def packages_for(context: Any) -> str:
    """Write eoctl's packages to a path that later executors also find, and return the path.

    The path is in a directory of Spark, which its JVM removes at its end, however this process
    ends.
    """
    from eoctl.spark.bundle import write_bundle

    return str(write_bundle(context._temp_dir))  # noqa: SLF001 - pyspark's own for what it sends
