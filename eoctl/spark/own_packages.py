"""Check that this Python process can run eoctl's tasks, before it imports their modules.

`storage` and `recovery` are common names. A cluster's Python may have another module of that name
first in its path, or may lack a library. Without this check the import would fail with a useless
message.
"""

from __future__ import annotations

import importlib.util
import socket
import sys
from pathlib import PurePath

from eoctl.spark import OWN_PACKAGES

NEEDED = ("numpy", "pyarrow", "crc32c", "msgpack", "lz4", "zstandard", "cramjam")
BUNDLE = "python -m eoctl.spark.bundle, and spark-submit --py-files with what it writes"


def check_packages() -> None:
    """Check that eoctl's packages have one origin, and that the libraries exist.

    Raises:
        ImportError: with the host, the Python and the module.
    """
    here = PurePath(__file__).parents[2]
    where = f"{socket.gethostname()}: {sys.executable}"
    for name in OWN_PACKAGES:
        file = _file_of(name)
        if file is None:
            raise ImportError(f"{where}: the package {name} of eoctl is missing; try: {BUNDLE}")
        if file.parent != here / name:
            raise ImportError(
                f"{where}: the module {name} is foreign, {file}, and hides the module of eoctl in "
                f"{here}; take its directory off PYTHONPATH, or put the directory of eoctl first; "
                f"try: {BUNDLE}"
            )
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"{where}: this Python has no module {', '.join(missing)}; install it on every host, "
            f"or set PYSPARK_PYTHON to a Python that has it"
        )


def _file_of(name: str) -> PurePath | None:
    """Return the file of a module, or the `__init__` file of a package."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file:
        return PurePath(file)
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.origin is not None:
        return PurePath(spec.origin)
    # A namespace package: a directory of that name without an `__init__`.
    places = [*(spec.submodule_search_locations or [])]
    return PurePath(places[0], "*") if places else None


check_packages()
