"""The kernels that take many batches at once; the native one where it is there.

Where something is required (`EOCTL_REQUIRE`), it is: see tests/conftest.py.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from unittest.mock import patch

from storage.kernels.kernel_choice import KERNEL_VARIABLE, KernelName, native_module
from storage.kernels.native_kernel import scan_window

if TYPE_CHECKING:
    from collections.abc import Iterator

_NATIVE = native_module()
BULK_KERNELS: tuple[KernelName, ...] = ("numpy",) if _NATIVE is None else ("numpy", "native")
NATIVE_SCANS = () if _NATIVE is None else (partial(scan_window, _NATIVE),)


@contextmanager
def demanded(kernel: KernelName) -> Iterator[None]:
    """Demand one."""
    with patch.dict(os.environ, {KERNEL_VARIABLE: kernel}):
        yield
