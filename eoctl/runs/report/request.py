"""What a call of `eoctl report` asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Sequence


class ReportRequest(NamedTuple):
    """The options of a call, as given.

    Attributes:
        from_ms, to_ms: only what was then, both included; None: from the beginning, to the end.
        transactional_ids: only transactions of these; empty: all.
        max_lanes: of each kind that the page draws.
        is_picture: for a terminal: only partitions and their transactions, in the one pass.
        draws_only: rows of volume that the page does not draw are not made: nobody sees them.
        redacts: names become pseudonyms; `key_file`: what they are made with.
    """

    paths: Sequence[str]
    to: str | None = None
    is_forced: bool = False
    metadata_dir: str | None = None
    coordinator_dirs: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    from_ms: int | None = None
    to_ms: int | None = None
    max_lanes: int = 200
    title: str = ""
    redacts: bool = False
    key_file: str | None = None
    is_deep: bool = False
    jobs: int = 1
    now: str | None = None
    expiration_ms: int | None = None
    max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS
    server_properties: str | None = None
    is_picture: bool = False
    draws_only: bool = False

    def is_within(self, first_ms: int | None, last_ms: int | None) -> bool:
        """Whether what happened between two times is asked for; what has no time is."""
        if first_ms is None or first_ms < 0:
            first_ms = last_ms
        if last_ms is None or last_ms < 0:
            last_ms = first_ms
        if first_ms is None or last_ms is None or last_ms < 0:
            return True
        is_early = self.from_ms is not None and max(first_ms, last_ms) < self.from_ms
        is_late = self.to_ms is not None and min(first_ms, last_ms) > self.to_ms
        return not (is_early or is_late)
