"""Libraries that only some commands need, and the call that installs one where eoctl looks for it.

eoctl is on no package index, so its extras have no name that pip could take; and behind pipx or
`uv tool` the `pip` of the PATH belongs to another Python.
"""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec

# Module -> what the extras in pyproject.toml ask for, in a release that will do.
REQUIREMENTS = {
    "confluent_kafka": "confluent-kafka>=2.6",
    "fastavro": "fastavro>=1.9",
    "grpc_tools": "grpcio-tools>=1.66",
    "pyarrow": "pyarrow>=15",
    "pyspark": "pyspark>=4.0,<5",
    "pyspark.sql.connect": "pyspark[connect]>=4.0,<5",
}


def install_call(*arguments: str) -> str:
    """Give the call, for a shell, that installs these into the Python that runs here.

    Args:
        arguments: of `pip install`.
    """
    pip = [sys.executable, "-m", "pip", "install"]
    if find_spec("pip") is None:  # uv made this environment
        pip = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*pip, *arguments])
