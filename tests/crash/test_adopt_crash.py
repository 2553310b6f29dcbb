"""`eoctl adopt`: what a crash at any point leaves; the sources are whole, but for --move."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from storage.file_names import BOOTSTRAP_NAME, META_PROPERTIES_NAME
from storage.formats.partition_metadata import format_uuid
from tests.crash.commands import CHANGES
from tests.crash.faults import UnsyncedFileSystem
from tests.crash.scenario import (
    Scenario,
    check_scenario,
    named_syncs,
    record,
    surviving_mutants,
    syncs_of,
)
from tests.crash.states import RUN_NAME
from tests.crash.test_commands_crash import (
    MUTANT_COMBINATIONS_MAX,
    STATES_SHARE,
    SYNCS_SHARE,
    Crashes,
)
from tests.crash.trees import difference, leftovers, tree_of
from tests.drawn import drawn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.commands import Cli
    from tests.crash.states import CrashState

DIRECTORY_ID = format_uuid(bytes(range(1, 17)))
NOW_MS = 1_795_000_000_000
PARTITIONS = ("compacted-0", "txn-0")


class Adopted(Crashes):
    """Two partitions, one with a compaction to be finished, and the checkpoints of their log dir."""

    way = "--copy"

    def prepare(self, root: Path) -> None:
        (root / "log-dir").mkdir(parents=True, mode=0o700)
        (root / "log-dir/.lock").touch()
        source = root / "source"
        source.mkdir(mode=0o700)
        (source / ".lock").touch()
        for path in self.clean.iterdir():
            if path.name in PARTITIONS:
                shutil.copytree(path, source / path.name)
            elif path.is_file() and path.name != BOOTSTRAP_NAME:
                shutil.copy2(path, source / path.name)
        compacted = source / "compacted-0"
        for path in [*compacted.glob("*.log"), *compacted.glob("*.*index")]:
            shutil.copy2(path, f"{path}.swap")  # a compaction that a broker goes on with
        for path in (source, *source.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
        self.source_before = tree_of(source)

    def apply_arguments(self, root: Path) -> tuple[object, ...]:
        return (
            "adopt", root / "source", "--to", root / "log-dir", self.way, "--cluster-id", "c",
            "--directory-id", DIRECTORY_ID, "--now", NOW_MS, "--jobs", "1", "--apply",
        )  # fmt: skip

    def require_a_log(self, root: Path) -> None:
        """With meta.properties all is there; whatever is cut short, each byte is in one place."""
        now = self.contents(root)
        if META_PROPERTIES_NAME in now:
            assert now.keys() >= self.after.keys()
        source = tree_of(root / "source")
        gone = [
            each for each in difference(self.source_before, source) if not each.endswith("mode")
        ]
        assert self.way == "--move" or gone == []
        if gone and not self.journals(root):
            raise AssertionError(gone)
        if any(each.data is not None for each in source.values()) and gone:
            assert META_PROPERTIES_NAME in now or all("clean" in each for each in gone)

    def require_before(self, root: Path) -> None:
        super().require_before(root)
        assert difference(self.source_before, tree_of(root / "source")) == []
        assert leftovers(root / "source") == []

    def completed(self) -> Scenario:
        """As of `init`: what is whole before the command could say so is refused, as it is."""
        whole = super().completed()

        def check(root: Path, state: CrashState) -> None:
            is_left = leftovers(root / "log-dir") or leftovers(root / "source")
            if self.contents(root) != self.after or is_left:
                whole.check(root, state)
                return
            assert self.try_call(UnsyncedFileSystem(), *self.apply_arguments(root)).status != 0
            self.require_after(root)

        return whole._replace(check=check)


class Linked(Adopted):
    way = "--link"


class Moved(Adopted):
    way = "--move"


WAYS = [Adopted, Linked, Moved]


@pytest.fixture
def adopted(
    golden: Callable[[str], Path], eoctl: Cli, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> Callable[[type[Adopted]], Adopted]:
    monkeypatch.setattr("eoctl.commands.adopt.wall_ms", lambda: NOW_MS)
    clean = golden("kafka-4.3.1") / "clean"
    return lambda way: way(CHANGES["rebuild"], clean, eoctl, monkeypatch, scratch / RUN_NAME)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS)
def test_every_state_leads_back_and_on(
    way: type[Adopted], adopted: Callable[[type[Adopted]], Adopted], scratch: Path
) -> None:
    made = adopted(way)
    for scenario in (made.undone(), made.completed(), made.undo_crashed()):
        report = check_scenario(scenario, scratch, share=STATES_SHARE)
        assert "compacted-0/00000000000000000000.log.swap" in made.after
        assert report.failures == []
        assert report.states_count > 20


def needed_syncs(scenario: Scenario, scratch: Path) -> list[str]:
    """The fsyncs that each must be there, as `surviving_mutants` names them.

    A directory that is synced once more makes up for the time before. What is taken out of a
    source is gone from it or, after a loss of power, there twice: nothing is lost by that.
    """
    syncs = syncs_of(record(scenario, scratch))
    return [
        named
        for number, (named, text) in enumerate(zip(named_syncs(syncs), syncs, strict=True))
        if not (text.endswith("/") and text in syncs[number + 1 :])
        and not text.startswith("fsync source/")
    ]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_each_fsync_is_needed(
    way: type[Adopted], adopted: Callable[[type[Adopted]], Adopted], scratch: Path
) -> None:
    made = adopted(way)

    def survivors(scenario: object, among: object) -> object:
        return surviving_mutants(
            scenario, work_dir=scratch, combinations_max=MUTANT_COMBINATIONS_MAX, among=among
        )

    chosen = drawn(needed_syncs(made.undone(), scratch), SYNCS_SHARE)
    assert survivors(made.completed(), survivors(made.undone(), chosen)) == []
