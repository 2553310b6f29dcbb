"""Log dirs that are made: what a crash at any point leaves, and that the same call, or undo, mends it.

Until all of it is there no broker starts on it: `meta.properties` comes last, and goes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.file_names import BEGINNING_NAME, META_PROPERTIES_NAME
from storage.formats.partition_metadata import format_uuid
from tests.crash.commands import CHANGES
from tests.crash.faults import UnsyncedFileSystem
from tests.crash.scenario import Scenario, check_scenario, drawn_syncs, surviving_mutants
from tests.crash.states import RUN_NAME
from tests.crash.test_commands_crash import (
    MUTANT_COMBINATIONS_MAX,
    STATES_SHARE,
    SYNCS_SHARE,
    Crashes,
)
from tests.crash.trees import leftovers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.commands import Cli
    from tests.crash.states import CrashState

TOPIC_ID = format_uuid(bytes(range(1, 17)))
NOW_MS = 1_795_000_000_000


class Begun(Crashes):
    """A log dir of two topics, with the same ids each time."""

    def prepare(self, root: Path) -> None:
        (root / "log-dir").mkdir(parents=True, mode=0o700)
        (root / "log-dir/.lock").touch()

    def apply_arguments(self, root: Path) -> tuple[object, ...]:
        return (
            "init", root / "log-dir", "--topic", "a:2", "--topic", "b", "--config",
            "a:retention.ms=-1", "--cluster-id", "c", "--directory-id", TOPIC_ID,
            "--no-internal-topics", "--apply",
        )  # fmt: skip

    def require_a_log(self, root: Path) -> None:
        now = self.contents(root)
        if META_PROPERTIES_NAME in now:
            assert now.keys() >= self.after.keys()
        if any(name.endswith("partition.metadata") for name in now):
            assert f"__cluster_metadata-0/{BEGINNING_NAME}" in now

    def completed(self) -> Scenario:
        """As for all changes; what is whole before the command could say so is refused, as it is."""
        whole = super().completed()

        def check(root: Path, state: CrashState) -> None:
            if self.contents(root) != self.after or leftovers(root / "log-dir"):
                whole.check(root, state)
                return
            assert self.try_call(UnsyncedFileSystem(), *self.apply_arguments(root)).status != 0
            self.require_after(root)

        return whole._replace(check=check)


@pytest.fixture
def begun(
    golden: Callable[[str], Path], eoctl: Cli, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> Begun:
    monkeypatch.setattr("eoctl.commands.init.new_topic_id", lambda: TOPIC_ID)
    monkeypatch.setattr("eoctl.commands.init.wall_ms", lambda: NOW_MS)
    clean = golden("kafka-4.3.1") / "clean"
    return Begun(CHANGES["rebuild"], clean, eoctl, monkeypatch, scratch / RUN_NAME)


def test_every_state_leads_back_and_on(begun: Begun, scratch: Path) -> None:
    for scenario in (begun.undone(), begun.completed(), begun.undo_crashed()):
        report = check_scenario(scenario, scratch, share=STATES_SHARE)
        assert report.failures == []
        assert report.states_count > 20


@pytest.mark.slow
def test_each_fsync_is_needed(begun: Begun, scratch: Path) -> None:
    def survivors(scenario: object, among: object) -> object:
        return surviving_mutants(
            scenario, work_dir=scratch, combinations_max=MUTANT_COMBINATIONS_MAX, among=among
        )

    chosen = drawn_syncs(begun.undone(), scratch, SYNCS_SHARE)
    assert survivors(begun.completed(), survivors(begun.undone(), chosen)) == []
