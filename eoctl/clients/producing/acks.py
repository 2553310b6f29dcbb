"""Acknowledgements as JSON lines, one for each batch, as they come: what a producer was told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import AccessError, os_errors
from storage.formats.record_batch import parse_header

if TYPE_CHECKING:
    from eoctl.clients.producing.sender import SentBatch
    from storage.files.fsio import FileSystem
    from storage.writing.writer import Appended, PartitionWriter


class AckFile:
    """A file that grows by a line for each batch that was acknowledged. Not synced.

    Raises:
        RefusedError: it lies in a log dir.
        AccessError: it cannot be written.
    """

    def __init__(self, fs: FileSystem, path: str) -> None:
        require_outside_log_dirs(path, place=Path(path).absolute().parent)
        self._fs = fs
        try:
            try:
                self._file = fs.open_new(path, 0o644)
            except FileExistsError:
                self._file = fs.open_existing(path)
        except OSError as exc:
            raise AccessError(exc, path) from exc

    def write(self, writer: PartitionWriter, sent: SentBatch, appended: Appended) -> None:
        """Note a batch. Raises AccessError."""
        header = parse_header(sent.batch, 0)
        row = {
            "partition": Path(writer.store.directory).name,
            "base_offset": appended.base_offset,
            "last_offset": appended.last_offset,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "last_sequence": header.last_sequence,
            "records": sent.records_count,
            "duplicate": appended.is_duplicate,
        }
        with os_errors(self._file.path):
            self._fs.write(self._file, json.dumps(row).encode() + b"\n")

    def close(self) -> None:
        """Close it."""
        with os_errors(self._file.path):
            self._fs.close(self._file)
