"""Every state that a crash may leave of a consumer's checkpoint file; ids are made durable first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eoctl.clients.coordinators.producer_id_topic import inspect_ids
from eoctl.clients.user_programs.position_file import Position, PositionFile, PositionOf
from storage.errors import RefusedError
from storage.writing.producer_ids import DIRECTORY_NAME, ProducerIds
from tests.crash.recording import RecordingFileSystem, SyncFile
from tests.crash.scenario import Scenario, check_scenario, surviving_mutants
from tests.writing import NOW_MS, TOPIC_ID, NoSyncFileSystem, make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.states import CrashState

OWNER = PositionOf("orders", 0, None, "read_committed", "none")
OLD, NEW = Position(7, {"sum": 1}), Position(19, {"sum": 25})
DONE = "done"


def name_of(root: Path) -> str:
    return str(root / "position.json")


def prepare(root: Path) -> None:
    root.mkdir()
    with PositionFile(name_of(root), OWNER) as file:
        file.save(OLD)


def save(fs: RecordingFileSystem, root: Path) -> None:
    with PositionFile(name_of(root), OWNER, fs) as file:
        file.load()
        file.save(NEW)
        fs.mark(DONE)


def loaded(root: Path) -> Position | None:
    with PositionFile(name_of(root), OWNER) as file:
        try:
            return file.load()
        except RefusedError as error:
            raise AssertionError(str(error)) from error


def check(root: Path, state: CrashState) -> None:
    found = loaded(root)
    assert found == NEW or (found == OLD and DONE not in state.marks)


def prepare_none(root: Path) -> None:
    root.mkdir()


def check_first(root: Path, state: CrashState) -> None:
    found = loaded(root)
    assert found == NEW or (found is None and DONE not in state.marks)


SCENARIOS = {
    "replace": Scenario(prepare, save, check),
    "first": Scenario(prepare_none, save, check_first),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_position_is_the_old_one_or_the_new_one(name: str, tmp_path: Path) -> None:
    assert check_scenario(SCENARIOS[name], tmp_path).failures == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_sync_of_a_position_is_needed(name: str, tmp_path: Path) -> None:
    assert surviving_mutants(SCENARIOS[name], tmp_path) == []


def test_a_lease_that_is_acted_upon_is_durable(tmp_path: Path) -> None:
    root = tmp_path / "kafka"
    make_log_dir(root)
    ids = ProducerIds.at(root, NoSyncFileSystem(), now_ms=lambda: NOW_MS, topic_id=TOPIC_ID)
    ids.acquire("app", 10**9)
    ids.close()
    fs = RecordingFileSystem(root)
    inspect_ids(str(root), None, fs)
    synced = [each.text for each in fs.operations if isinstance(each, SyncFile)]
    assert any(f"{DIRECTORY_NAME}/{0:020d}.log" in each for each in synced)
