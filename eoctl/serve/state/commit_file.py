"""What groups commit while they are served, as JSON Lines: one object a commit, in its order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import os_errors
from storage.files.fsio import FileSystem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eoctl.serve.state.members import PlacedCommit


class CommitFile:
    """A file that is appended to, and made if it is not there."""

    def __init__(self, path: str) -> None:
        """Open it.

        Raises:
            RefusedError: it lies in a log dir.
            AccessError: it cannot be written.
        """
        require_outside_log_dirs(path, "name a file elsewhere")
        self._path = path
        self._fs = FileSystem()
        with os_errors(path):
            is_there = Path(path).exists()
            opened = self._fs.open_existing if is_there else self._fs.open_new
            self._file = opened(path)

    def add(self, group: str, commits: Sequence[PlacedCommit]) -> None:
        """Write what a group commits, in one piece. Raises AccessError."""
        rows = (
            {
                "group": group,
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.at.offset,
                "leader_epoch": each.at.leader_epoch,
                "metadata": each.at.metadata,
            }
            for each in commits
        )
        lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
        data = "".join(lines).encode("utf-8", "replace")
        with os_errors(self._path):
            self._fs.write(self._file, data)

    def close(self) -> None:
        """Make it durable, and close it. Raises AccessError."""
        with os_errors(self._path):
            self._fs.fsync(self._file)
            self._fs.close(self._file)
