"""Calls to paste: each shows, or puts right, what a row of a report tells of."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from storage.errors import as_argument, call_text

if TYPE_CHECKING:
    from eoctl.runs.report.request import ReportRequest


def locate(path: str, offset: int) -> str:
    """Where an offset lies."""
    return call_text(["eoctl", "locate", as_argument(path), "--offset", str(offset)])


def check(path: str) -> str:
    """What is wrong there."""
    return call_text(["eoctl", "check", as_argument(path)])


def duplicates(path: str, kind: str) -> str:
    """What is there twice."""
    return call_text(["eoctl", "duplicates", as_argument(path), "--kind", kind])


def transaction(path: str, producer_id: int, request: ReportRequest) -> str:
    """The transactions of a producer in a partition, and what its coordinator knows."""
    return _transaction(path, producer_id, tuple(_cluster(request)))


@lru_cache(maxsize=4096)  # a producer has very many transactions
def _transaction(path: str, producer_id: int, cluster: tuple[str, ...]) -> str:
    words = ["eoctl", "txn", "describe", as_argument(path), "--producer-id", str(producer_id)]
    return call_text([*words, *cluster])


def transactions(path: str, request: ReportRequest) -> str:
    """All transactions of a partition."""
    return call_text(["eoctl", "txn", "list", as_argument(path), "--all", *_cluster(request)])


def torn(request: ReportRequest) -> str:
    """Transactions whose partitions contradict each other."""
    words = ["eoctl", "txn", "torn", *map(as_argument, request.paths), *_cluster(request)]
    return call_text([*words, *(() if request.now is None else ("--now", request.now))])


def transactional_id(name: str, request: ReportRequest) -> str:
    """What the coordinator knows of an id."""
    words = ["eoctl", "txn", "describe", *map(as_argument, request.paths)]
    return call_text([*words, "--transactional-id", name, *_cluster(request)])


def group(name: str, request: ReportRequest) -> str:
    """The committed offsets of a group."""
    words = ["eoctl", "groups", "describe", *map(as_argument, request.paths), "--group", name]
    metadata = () if request.metadata_dir is None else ("--metadata-dir", request.metadata_dir)
    return call_text([*words, *metadata])


def compare(paths: list[str]) -> str:
    """Where copies part."""
    return call_text(["eoctl", "replicas", "compare", *map(as_argument, paths)])


def _cluster(request: ReportRequest) -> list[str]:
    words = [word for each in request.coordinator_dirs for word in ("--coordinator-dir", each)]
    if request.metadata_dir is not None:
        words += ["--metadata-dir", request.metadata_dir]
    return words
