"""The text of `eoctl --version`, which has enough details to reproduce a report."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from eoctl import __version__
from eoctl.output import line

LIBRARIES = ("typer", "rich", "crc32c", "msgpack", "numpy", "lz4", "zstandard", "cramjam")


def print_version() -> None:
    """Print the lines of `--version`."""
    for each in version_lines():
        line(each)


def version_lines() -> list[str]:
    """Return the versions of eoctl, the kernel, Python and the libraries that process data."""
    from storage.kernels.kernel_choice import select_kernel

    parts = []
    for name in LIBRARIES:
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            parts.append(f"{name} missing")
    return [
        f"eoctl {__version__}",
        f"kernel {select_kernel()}, Python {platform.python_version()}",
        ", ".join(parts),
    ]
