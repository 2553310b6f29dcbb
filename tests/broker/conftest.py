"""One fresh log directory for all broker tests of a run, and kafka-dump-log's words about it."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.kafka.dump import DumpResult, dump_each, dumpable_files
from tests.kafka.fresh import FreshLogDir, make_fresh_log_dir
from tests.kafka.older_releases import libs_of, missing_release
from tests.once import once_per_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def jars_of_4_4(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers and tools are those of 4.4.0."""
    if reason := missing_release("4.4"):
        pytest.skip(reason)
    monkeypatch.setattr("tests.kafka.jars.KAFKA_LIBS", libs_of("4.4"))


@pytest.fixture(scope="session")
def fresh_log_dir(tmp_path_factory: pytest.TempPathFactory) -> FreshLogDir:
    """What a broker and a client made of EOCTL_SEED in this very run; read it, do not change it."""
    make = partial(make_fresh_log_dir, seed=int(os.environ["EOCTL_SEED"]))
    return once_per_run(tmp_path_factory, "fresh-log-dir", make)


@pytest.fixture(scope="session")
def fresh_dumps(
    fresh_log_dir: FreshLogDir, tmp_path_factory: pytest.TempPathFactory
) -> dict[Path, DumpResult]:
    """Of every file of both states that kafka-dump-log knows: all that it prints of it."""
    files = _dumpable(fresh_log_dir)
    return once_per_run(tmp_path_factory, "fresh-dumps", lambda _: dump_each(files))


@pytest.fixture(scope="session")
def fresh_header_dumps(
    fresh_log_dir: FreshLogDir, tmp_path_factory: pytest.TempPathFactory
) -> dict[Path, DumpResult]:
    """Of every log of both states: what kafka-dump-log prints without any option."""
    logs = [path for path in _dumpable(fresh_log_dir) if path.suffix in {".log", ".checkpoint"}]
    return once_per_run(tmp_path_factory, "fresh-header-dumps", lambda _: dump_each(logs, ()))


def _dumpable(made: FreshLogDir) -> list[Path]:
    return [*dumpable_files(made.crash), *dumpable_files(made.clean)]
