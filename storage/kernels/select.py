"""Which kernel this process uses: `pure` (plain Python, always there) or `numpy`.

`EOCTL_KERNEL=pure|numpy` demands one. Without it the caller's preference counts, because small
files must not pay for importing numpy and large batches are as fast in plain Python.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Literal

from storage.errors import KernelError

KERNEL_VARIABLE = "EOCTL_KERNEL"

KernelName = Literal["pure", "numpy"]


def select_kernel(preferred: KernelName = "numpy") -> KernelName:
    """Name the kernel to use. A demanded one that is missing or unknown raises KernelError."""
    demanded = os.environ.get(KERNEL_VARIABLE, "")
    if demanded == "pure":
        return "pure"
    if demanded == "numpy":
        if find_spec("numpy") is None:
            raise KernelError(
                f"{KERNEL_VARIABLE}=numpy: numpy is not installed",
                next_step=f"install numpy or unset {KERNEL_VARIABLE}",
            )
        return "numpy"
    if demanded:
        raise KernelError(
            f"{KERNEL_VARIABLE}={demanded}: no such kernel",
            next_step=f"set {KERNEL_VARIABLE} to pure or numpy, or unset it",
        )
    if preferred == "numpy" and find_spec("numpy") is None:
        return "pure"
    return preferred
