"""The key of pseudonyms: drawn for one report, or kept in a file for several."""

from __future__ import annotations

import os
from pathlib import Path

from eoctl.report.redaction import KEY_BYTES
from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import AccessError, UsageError
from storage.files import fsio
from storage.files.fsio import FileAttributes


def read_key(path: str | None) -> bytes:
    """Return the key of a file, which is made if it is not there; without a file draw one.

    Raises:
        AccessError: it cannot be read, or written.
        UsageError: it is no such key.
        RefusedError: it would lie in a log dir.
    """
    if path is None:
        return os.urandom(KEY_BYTES)
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        require_outside_log_dirs(path, "name a file elsewhere")
        data = os.urandom(KEY_BYTES)
        private = FileAttributes(os.geteuid(), os.getegid(), 0o600)
        fsio.replace_file(fsio.FileSystem(), path, data.hex().encode() + b"\n", attributes=private)
        return data
    except OSError as exc:
        raise AccessError(exc, path) from exc
    try:
        key = bytes.fromhex(data.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise UsageError(f"--key-file {path}: no key of eoctl", next_step="name a file to be made")
    return key
