"""The kernel of this process: `pure` (plain Python, always available), `numpy` or `native`.

`native` is the module eoctl_native, compiled from the folder native/ if cargo is present when eoctl
is installed. The fastest available kernel is used. `EOCTL_KERNEL=pure|numpy|native` requires a
kernel. Below a certain size every reader uses plain Python anyway, because a small file must not
pay for an import.
"""

from __future__ import annotations

import os
import sys
from functools import cache, partial
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from storage.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    import numpy as np
    from numpy.typing import NDArray

    Column = NDArray[np.int64] | NDArray[np.uint8]

KERNEL_VARIABLE = "EOCTL_KERNEL"
NATIVE_MODULE = "eoctl_native"
NATIVE_INTERFACE = 4  # of its functions; a module with another number is not ours
# The file name of the kernel when it is sent to a Python without it, in a directory of its path.
SENT_KERNEL = "eoctl-kernel.so"

KernelName = Literal["pure", "numpy", "native"]

# Position, last offset, leader epoch.
Place = tuple[int, int, int]
# Rows, end of the walk, last offset, leader epoch, columns.
Walked = tuple[int, int, int, int, tuple[bytes, ...]]
ReadHeaders = tuple[Walked, bytes]  # with the control batches
# Base offset, leader epoch, producer id, producer epoch, base sequence.
Stamp = tuple[int, int, int, int, int]


class Printed(Protocol):
    """The progress of the native kernel in printing a log.

    Attributes:
        place: behind the last printed batch.
        sure: a place so far before it that no batch before that can be doubted any more.
        last_record_offset: of the last printed record, or -1 before the first.
        non_consecutive: pairs of successive offsets that are not neighbours.
    """

    place: Place
    sure: Place
    last_record_offset: int
    non_consecutive: list[tuple[int, int]]


class Native(Protocol):
    """The functions of the native kernel, as described in native/src/lib.rs."""

    __version__: str

    def scan_window(
        self,
        buf: memoryview,
        file_pos: int,
        neighbours: tuple[int, int, int, int],
        *,
        verify_crc: bool,
    ) -> Walked:
        """Walk healthy batches in a buffer."""

    def read_headers(
        self,
        path: str,
        *,
        start: Place,
        walk_to_pos: int,
        end_pos: int,
        limits: tuple[int, int],
        verify_crc: bool,
        threads: int,
        piece_bytes: int,
    ) -> ReadHeaders:
        """Walk healthy batches of a log, without their bodies."""

    def print_log(
        self,
        path: str,
        *,
        start: Place,
        last_record_offset: int,
        end_pos: int,
        limits: tuple[int, int],
        records: tuple[bool, bool] | None,
        max_batch_bytes: int,
        threads: int,
        piece_bytes: int,
        write: Callable[[bytes], object] | None = None,
        tick: Callable[[int], object] | None = None,
    ) -> Printed:
        """Print the healthy start of a log."""

    def decode_records(
        self,
        buf: memoryview,
        buf_pos: int,
        starts: Column,
        *,
        is_compressed: bool,
        max_batch_bytes: int,
        max_source_bytes: int,
    ) -> tuple[bytes, tuple[bytes, ...], bytes | None]:
        """Decode the records of batches in a buffer."""

    def json_lines(
        self,
        source: Column,
        columns: Sequence[Column],
        timestamp_type: str,
        *,
        is_base64: bool,
    ) -> bytes:
        """Print records as JSON Lines."""

    def object_lines(
        self, columns: Sequence[tuple[Any, ...]], row_count: int, *, is_text: bool
    ) -> bytes:
        """Print rows of columns as JSON Lines."""

    def kafka_text(self, data: bytes) -> bytes:
        """Decode bytes as Java does and encode the text."""

    def cut_values(
        self,
        values: list[bytes],
        bounds: tuple[int, int],
        limit: int,
        *,
        batch_bytes: int,
        batch_records: int,
    ) -> tuple[list[int], list[int]]:
        """Split values into full batches. Returns their bytes and their records."""

    def encode_values(
        self,
        values: list[bytes],
        start: int,
        batches: Sequence[tuple[int, int]],
        stamp: Stamp,
        *,
        timestamp_ms: int,
        is_transactional: bool,
    ) -> bytes:
        """Encode batches of values."""

    def stamp_batches(self, data: memoryview, batch_bytes: Column, stamp: Stamp) -> bytes:
        """Stamp batches that lie back to back."""


def select_kernel() -> KernelName:
    """Return the kernel to use.

    Raises KernelError for a required kernel that is missing or unknown.
    """
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
    if demanded == "native":
        if native_module() is None:
            raise KernelError(
                f"{KERNEL_VARIABLE}=native: eoctl was installed without its native kernel",
                next_step=f"install cargo, then eoctl again, or unset {KERNEL_VARIABLE}",
            )
        return "native"
    if demanded:
        raise KernelError(
            f"{KERNEL_VARIABLE}={demanded}: no such kernel",
            next_step=f"set {KERNEL_VARIABLE} to pure, numpy or native, or unset it",
        )
    if native_module() is not None:
        return "native"
    return "pure" if find_spec("numpy") is None else "numpy"


def load_native() -> Native | None:
    """Return the native kernel if it is to be used. Raises KernelError as `select_kernel`."""
    return native_module() if select_kernel() == "native" else None


@cache
def native_module() -> Native | None:
    """Return the native kernel for this version, installed or sent, or None."""
    for load in (partial(import_module, NATIVE_MODULE), _sent_module):
        try:
            module = load()
        except ImportError:  # missing, or not for this machine
            continue
        if getattr(module, "INTERFACE", 0) == NATIVE_INTERFACE:
            return cast("Native", module)
    return None


def native_file() -> str | None:
    """Return the file of the native kernel, for a copy elsewhere.

    None if another kernel is used.
    """
    return getattr(load_native(), "__file__", None)


def _sent_module() -> ModuleType:
    # Only a Python of Spark gets the file, in a directory of its own, which has a full path.
    is_sparks = "pyspark" in sys.modules
    for directory in filter(os.path.isabs, sys.path if is_sparks else ()):
        path = os.path.join(directory, SENT_KERNEL)  # noqa: PTH118
        if os.path.isfile(path):  # noqa: PTH113
            loader = ExtensionFileLoader(NATIVE_MODULE, path)
            spec = spec_from_file_location(NATIVE_MODULE, path, loader=loader)
            assert spec is not None
            module = module_from_spec(spec)
            loader.exec_module(module)
            return module
    raise ImportError(SENT_KERNEL)
