"""Libraries that only some commands need, the native kernel, and the commands that install them.

They are installed where eoctl imports from. Under pipx or `uv tool`, the `pip` on the PATH belongs
to another Python.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from shutil import which

# Module -> the requirement of the extra in pyproject.toml, in a version that works.
REQUIREMENTS = {
    "confluent_kafka": "confluent-kafka>=2.6",
    "fastavro": "fastavro>=1.9",
    "grpc_tools": "grpcio-tools>=1.66",
    "pyarrow": "pyarrow>=15",
    "pyspark": "pyspark>=4.0,<5",
    "pyspark.sql.connect": "pyspark[connect]>=4.0,<5",
}


def install_call(*arguments: str) -> str:
    """Return the shell command that installs packages into the Python that is running.

    Args:
        arguments: the arguments of `pip install`.
    """
    pip = [sys.executable, "-m", "pip", "install"]
    if find_spec("pip") is None:  # uv made this environment
        pip = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*pip, *arguments])


def kernel_call() -> str:
    """Return the shell command that installs this eoctl again, with its native kernel."""
    if "PEX" in os.environ:
        call = "make zipapp"
    elif (Path(sys.prefix) / "pipx_metadata.json").exists():
        call = "UV_NO_CACHE=1 PIP_NO_CACHE_DIR=1 pipx reinstall eoctl"  # uses uv if it is installed
    elif (Path(sys.prefix) / "uv-receipt.toml").exists():
        call = "uv tool upgrade --reinstall-package eoctl --no-cache eoctl"
    else:
        # A cached wheel was built without cargo.
        again = ["--force-reinstall", "--no-deps", "--no-cache-dir"]
        call = install_call(*again, *_origin())
    return call if which("cargo") else f"install cargo, then: {call}"


def _origin() -> list[str]:
    """Return the source that eoctl was installed from, as arguments of `pip install`."""
    try:
        text = distribution("eoctl").read_text("direct_url.json")
    except PackageNotFoundError:
        text = None
    if text is None:
        return ["eoctl"]
    origin = json.loads(text)
    if "vcs_info" in origin:
        return [f"{origin['vcs_info']['vcs']}+{origin['url']}"]
    is_editable = origin.get("dir_info", {}).get("editable", False)
    return [*(["--editable"] if is_editable else []), origin["url"]]
