"""The history of a cluster's clients: what they asked for, and what they were told (eoctl-history).

JSON Lines. The first line is the header, each other one the beginning of an operation (`invoke`) or
its end: `ok` it was done, `fail` it surely was not, `info` nobody knows, or something that happened
to the cluster. Times are microseconds since the start of the run.
"""

from __future__ import annotations

import hashlib
import json
from json.encoder import encode_basestring_ascii as _encode_text
from typing import TYPE_CHECKING, Any

from eoctl.cluster.checker.reader import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_encode = json.JSONEncoder(separators=(",", ":")).encode


class HistoryWriter:
    """Writes lines through `write`, and keeps a digest of them.

    Attributes:
        digest: SHA-256 of all lines but the header.
        on_commit: called once it is written that a commit is asked for, before it is.
    """

    def __init__(self, write: Callable[[bytes], object], settings: Mapping[str, Any]) -> None:
        self._write = write
        self._digest = hashlib.sha256()
        self.counts: dict[tuple[str, str], int] = {}
        self.on_commit: Callable[[], object] = lambda: None
        header = {"history": "eoctl", "version": VERSION, "clock": "virtual", "settings": settings}
        write(_line(header))

    @property
    def digest(self) -> str:
        """Of what has been written so far."""
        return self._digest.hexdigest()

    def note(
        self, kind: str, process: str, number: int, time_us: int, operation: str, **fields: object
    ) -> None:
        """Write one line."""
        text = (
            f'{{"type":"{kind}","process":{_encode_text(process)},"id":{number},"time_us":{time_us}'
            f',"op":"{operation}"'
        )
        for name, value in fields.items():
            # Two lines are written for each record: what the encoder does with a number or a text
            # is done here, and only the rest is given to it.
            if type(value) is str:
                text += f',"{name}":{_encode_text(value)}'
            else:
                text += f',"{name}":{value if type(value) is int else _encode(value)}'
        line = f"{text}}}\n".encode()
        self.counts[operation, kind] = self.counts.get((operation, kind), 0) + 1
        self._digest.update(line)
        self._write(line)
        if operation == "commit" and kind == "invoke":
            self.on_commit()


def _line(value: Mapping[str, Any]) -> bytes:
    return _encode(value).encode() + b"\n"
