"""See that this Python process can run our tasks, before anything of them is imported.

`storage` and `recovery` are common names. Where a cluster's Python has a module of that name first
in its path, or lacks a library, the import would fail with words that help nobody.
"""

from __future__ import annotations

import importlib.util
import socket
import sys
from pathlib import PurePath

OWN = ("eoctl", "recovery", "storage")
NEEDED = ("numpy", "pyarrow", "crc32c", "msgpack", "lz4", "zstandard", "cramjam")
BUNDLE = "make spark-bundle, and spark-submit --py-files eoctl-spark.zip"


def check_packages() -> None:
    """See that our packages are one, and that the libraries are there.

    Raises:
        ImportError: with the host, the Python and the module.
    """
    here = PurePath(__file__).parents[2]
    where = f"{socket.gethostname()}: {sys.executable}"
    for name in OWN:
        root = _root_of(name)
        if root is None:
            raise ImportError(f"{where}: the package {name} of eoctl is missing; try: {BUNDLE}")
        if root != here:
            raise ImportError(
                f"{where}: the module {name} is a foreign one, from {root}, and hides that of "
                f"eoctl in {here}; take it off PYTHONPATH, or put ours first; try: {BUNDLE}"
            )
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"{where}: this Python has no module {', '.join(missing)}; install it on every host, "
            f"or set PYSPARK_PYTHON to a Python that has it"
        )


def _root_of(name: str) -> PurePath | None:
    """Return the directory, or the zip, that a module is imported from."""
    module = sys.modules.get(name)
    if module is not None and getattr(module, "__file__", None):
        return _root(str(module.__file__))
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.origin is None:  # a namespace package: a directory of that name without __init__
        places = [*(spec.submodule_search_locations or [])]
        return PurePath(places[0]).parent if places else None
    return _root(spec.origin)


def _root(file: str) -> PurePath:
    path = PurePath(file)
    return path.parents[1] if path.name == "__init__.py" else path.parent


check_packages()
