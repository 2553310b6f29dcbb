"""CRC-32C (Castagnoli) and CRC-32 (IEEE) as used on disk.

`import crc32c` costs about 28 ms. Nearly all of it is importlib.metadata looking up the version of
the package. To spare small files that cost, its extension module is loaded directly if it can be
found. The ordinary import is the fallback.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer


@cache
def load_crc32c() -> Callable[..., int]:
    """Return the CRC-32C function, from any contiguous buffer to an unsigned 32-bit int.

    Its second argument is the checksum of the bytes before the buffer.

    It frees the GIL for buffers of at least 32 KiB.
    """
    module = sys.modules.get("crc32c") or _load_extension()
    if module is None:
        import crc32c as module
    function: Callable[..., int] = module.crc32c
    return function


def _load_extension() -> Any:
    from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
    from importlib.util import module_from_spec, spec_from_file_location

    for entry in sys.path:
        for suffix in EXTENSION_SUFFIXES:
            path = Path(entry or ".") / "crc32c" / f"_crc32c{suffix}"
            if path.is_file():
                loader = ExtensionFileLoader("crc32c._crc32c", str(path))
                spec = spec_from_file_location("crc32c._crc32c", path, loader=loader)
                if spec is None:
                    return None
                try:
                    module = module_from_spec(spec)
                    loader.exec_module(module)
                except ImportError:
                    return None
                return module if hasattr(module, "crc32c") else None
    return None


def crc32c(data: Buffer, before: int = 0) -> int:
    """Return the unsigned CRC-32C of the whole buffer. For b"123456789" it is 0xE3069283.

    Args:
        data: the buffer.
        before: checksum of the bytes before it.
    """
    return load_crc32c()(data, before)
