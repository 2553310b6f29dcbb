"""The options of `eoctl report`, and the commands in its rows."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import as_argument, call_text
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Sequence


class ReportRequest(NamedTuple):
    """The options as given.

    Attributes:
        from_ms, to_ms: the time range, both included. None is open.
        transactional_ids: only transactions of these, empty for all.
        max_lanes: the limit for each kind of lane on the page.
        is_picture: for a terminal: only partitions and their transactions, in the one pass.
        draws_only: skip rows of volume that the page does not draw.
        redacts: names become pseudonyms, made with `key_file`.
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
        """Return whether two times overlap the wanted range. Data without a time always does."""
        if first_ms is None or first_ms < 0:
            first_ms = last_ms
        if last_ms is None or last_ms < 0:
            last_ms = first_ms
        if first_ms is None or last_ms is None or last_ms < 0:
            return True
        is_early = self.from_ms is not None and max(first_ms, last_ms) < self.from_ms
        is_late = self.to_ms is not None and min(first_ms, last_ms) > self.to_ms
        return not (is_early or is_late)


# -- commands to paste: each shows, or corrects, the subject of a row


def locate(path: str, offset: int) -> str:
    """Return the command that locates an offset."""
    return call_text(["eoctl", "locate", as_argument(path), "--offset", str(offset)])


def check(path: str) -> str:
    """Return the command that checks a path."""
    return call_text(["eoctl", "check", as_argument(path)])


def duplicates(path: str, kind: str) -> str:
    """Return the command that finds duplicate records."""
    return call_text(["eoctl", "duplicates", as_argument(path), "--kind", kind])


def transaction(path: str, producer_id: int, request: ReportRequest) -> str:
    """Return the command for a producer's transactions in a partition and its coordinator."""
    return _transaction(path, producer_id, tuple(_cluster(request)))


@lru_cache(maxsize=4096)  # a producer may have very many transactions
def _transaction(path: str, producer_id: int, cluster: tuple[str, ...]) -> str:
    words = ["eoctl", "txn", "describe", as_argument(path), "--producer-id", str(producer_id)]
    return call_text([*words, *cluster])


def transactions(path: str, request: ReportRequest) -> str:
    """Return the command for all transactions of a partition."""
    return call_text(["eoctl", "txn", "list", as_argument(path), "--all", *_cluster(request)])


def torn(request: ReportRequest) -> str:
    """Return the command for transactions whose partitions contradict each other."""
    words = ["eoctl", "txn", "torn", *map(as_argument, request.paths), *_cluster(request)]
    return call_text([*words, *(() if request.now is None else ("--now", request.now))])


def transactional_id(name: str, request: ReportRequest) -> str:
    """Return the command for the coordinator's state of an id."""
    words = ["eoctl", "txn", "describe", *map(as_argument, request.paths)]
    return call_text([*words, "--transactional-id", name, *_cluster(request)])


def group(name: str, request: ReportRequest) -> str:
    """Return the command for the committed offsets of a group."""
    words = ["eoctl", "groups", "describe", *map(as_argument, request.paths), "--group", name]
    metadata = () if request.metadata_dir is None else ("--metadata-dir", request.metadata_dir)
    return call_text([*words, *metadata])


def compare(paths: list[str]) -> str:
    """Return the command that compares replicas."""
    return call_text(["eoctl", "replicas", "compare", *map(as_argument, paths)])


def _cluster(request: ReportRequest) -> list[str]:
    words = [word for each in request.coordinator_dirs for word in ("--coordinator-dir", each)]
    if request.metadata_dir is not None:
        words += ["--metadata-dir", request.metadata_dir]
    return words
