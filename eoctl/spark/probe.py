"""A cheap look at the executors before a job: what is missing there is named at once.

Without it a job would fail late, task by task and each of them several times, with the words of
whatever import came first. The function that is sent to the executors is sent by its code, for our
packages may be what is missing.
"""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from eoctl.spark.errors import SparkUnavailableError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Host, Python, modules that it lacks, and directories.
Seen = tuple[str, str, tuple[str, ...], tuple[str, ...]]

BUNDLED = "spark.submit.pyFiles must have what python -m eoctl.spark.bundle writes, or be unset"
LIBRARIES = "install it on every host, or set PYSPARK_PYTHON to a Python that has it"
MOUNT = "mount it on every host under the same path, or give a URI"
PYTHON = "PYSPARK_PYTHON must be, on every host, a Python of the driver's minor version"
_FAILURE = re.compile(r"most recent failure: .*?\((?P<host>[^() ]+) executor [^()]*\): ")


def require_executors(
    context: Any, own: Sequence[str], libraries: Sequence[str], paths: Sequence[str] = ()
) -> None:
    """See that the Python of the executors that are there can run our tasks.

    Args:
        context: the SparkContext.
        own: our packages.
        libraries: modules that our tasks import.
        paths: that are read, as they are written where Spark plans.

    Raises:
        SparkUnavailableError: with host, Python, modules or path, and what to do.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import cloudpickle
    from pyspark.errors import PySparkException

    count = max(context.defaultParallelism, 2)
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        look = partial(look_around, (*own, *libraries), tuple(paths))
        seen = context.parallelize(range(count), count).mapPartitions(look).collect()
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


def look_around(modules: Sequence[str], paths: Sequence[str], _: Iterable[int]) -> Iterator[Seen]:
    """Tell of the process that this runs in; nothing of ours is imported."""
    import importlib.util
    import os
    import socket
    import sys

    missing = tuple(name for name in modules if importlib.util.find_spec(name) is None)
    unseen = tuple(path for path in paths if not os.path.exists(path))  # noqa: PTH110
    yield socket.gethostname(), sys.executable, missing, unseen


def _failed(exc: Exception) -> SparkUnavailableError:
    """Say which executor's Python does not even run: it is missing, or another version."""
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
