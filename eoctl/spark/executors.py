"""Get the executors of a session ready for our tasks: our packages sent, libraries looked for.

That is done once for a session, before its first job: by the commands, and by `register` for a
script that has made the session itself.
"""

from __future__ import annotations

import socket
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from eoctl.spark import OWN_PACKAGES
from eoctl.spark.errors import SparkUnavailableError
from eoctl.spark.quiet import hidden_output

if TYPE_CHECKING:
    from collections.abc import Sequence

_ready: set[str] = set()  # ids of applications, and of sessions of Spark Connect


def make_ready(session: Any, paths: Sequence[str] = ()) -> None:
    """Send our packages to the executors, unless `spark.submit.pyFiles` says what they get.

    Nothing is to be done where everything runs on this machine.

    Args:
        session: a SparkSession; of Spark Connect it is its server that gets the packages.
        paths: local ones that every executor has to have.

    Raises:
        SparkUnavailableError: an executor cannot run our tasks, or has not a path.
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
    from eoctl.spark.probe import require_executors

    if not context.getConf().get("spark.submit.pyFiles"):
        context.addPyFile(packages_for(context))
    try:
        with hidden_output():
            require_executors(context, OWN_PACKAGES, NEEDED, paths)
    except BaseException:
        _ready.discard(context.applicationId)
        raise


def context_of(session: Any) -> Any:
    """Return the SparkContext of a session; None of Spark Connect, whose client has none."""
    return None if is_remote(session) else session.sparkContext


def cores_of(session: Any) -> int:
    """Return how many tasks Spark makes by default: one for each core that it has."""
    if not is_remote(session):
        return int(session.sparkContext.defaultParallelism)
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return int(session.range(1 << 16).select(F.spark_partition_id()).distinct().count())


def kernels_of(session: Any) -> dict[str, str]:
    """Ask the Pythons of the executors that are there which kernel they read with.

    Returns:
        The kernel (`storage.kernels.select`) by "HOST: PYTHON".

    Raises:
        SparkUnavailableError: the session is one of Spark Connect, or an executor cannot run tasks.
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
    """Tell of the process that this runs in. Raises KernelError: the one demanded is not there."""
    from storage.kernels.select import select_kernel

    return f"{socket.gethostname()}: {sys.executable}", select_kernel()


def is_local(master: str) -> bool:
    """Does everything run in this machine's one JVM?"""
    return master == "local" or master.startswith("local[")


def is_remote(session: Any) -> bool:
    """Is it a session of Spark Connect, whose process has no JVM?"""
    return "connect" in type(session).__module__.split(".")


def _is_first(name: str) -> bool:
    if name in _ready:
        return False
    _ready.add(name)
    return True


def packages_for(context: Any) -> str:
    """Write our packages where executors that start late still find them; return the path.

    That is a directory of Spark's own, which its JVM removes at its end, however this process ends.
    """
    from eoctl.spark.bundle import write_bundle

    return str(write_bundle(context._temp_dir))  # noqa: SLF001 - pyspark's own for what it sends
