"""Every state that a crash of the machine may leave of a copy: the next run makes it whole."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.copying import contents, require_sequences, write
from tests.crash.faults import UnsyncedFileSystem
from tests.crash.scenario import Scenario, check_scenario
from tests.crash.states import RUN_NAME
from tests.read_log import read_log
from tests.writing import NEW_TOPIC, make_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.files.fsio import FileSystem
    from tests.crash.recording import RecordingFileSystem
    from tests.crash.states import CrashState
    from tests.running import Outcome

DONE = "done"
SMALL = ("--segment-bytes", 500, "--index-interval-bytes", 100, "--no-compare")
BATCHES_COUNT = 3


@pytest.mark.share(1)
@pytest.mark.parametrize("fsync", ["batch", "segment", "never"])
@pytest.mark.parametrize("is_first", [True, False])
def test_every_state_leads_on(
    fsync: str,
    *,
    is_first: bool,
    scratch: Path,
    eoctl: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An anchor before each batch but the first one, a roll among them, and the close."""
    repaired: list[object] = []
    monkeypatch.setattr("eoctl.clients.copying.copier.ANCHOR_BYTES", 1)
    monkeypatch.setattr("eoctl.clients.log.batch_reader.GATHERED_BYTES", 1)

    def call(fs: FileSystem, *arguments: object) -> Outcome:
        monkeypatch.setattr("storage.files.fsio.FileSystem", lambda: fs)
        return eoctl(*arguments)

    def copy(fs: FileSystem, root: Path) -> None:
        """If an earlier segment lost its end, as only never syncing leaves it, do what it says."""
        target = root / "target" / "t-0"
        arguments = ("copy", root / "source" / "t-0", target, "--apply", *NEW_TOPIC, *SMALL,
                     "--fsync", fsync)  # fmt: skip
        outcome = call(fs, *arguments)
        if outcome.status == 4 and fsync == "never":
            (step,) = re.findall(r"eoctl (truncate) \S+ (--to-offset) (\d+)", outcome.errors)
            cut = call(fs, step[0], target, *step[1:], "--apply", "--single-copy")
            assert cut.status == 0, cut.errors
            repaired.append(step)
            outcome = call(fs, *arguments)
        assert outcome.status == 0, outcome.errors

    def prepare(root: Path) -> None:
        source = make_log_dir(root / "source") / "t-0"
        (make_log_dir(root / "target") / ".lock").touch()
        write(source, *[None] * BATCHES_COUNT)
        if not is_first:
            copy(UnsyncedFileSystem(), root)
            write(source, *[None] * BATCHES_COUNT)

    def run(fs: RecordingFileSystem, root: Path) -> None:
        copy(fs, root)
        fs.mark(DONE)

    def check(root: Path, state: CrashState) -> None:
        wanted = contents(read_log(root / "source" / "t-0").records)
        target = root / "target" / "t-0"
        if DONE in state.marks and fsync != "never":
            assert contents(read_log(target).records) == wanted
        copy(UnsyncedFileSystem(), root)
        assert contents(read_log(target).records) == wanted
        require_sequences(target)

    report = check_scenario(Scenario(prepare, run, check), scratch, combinations_max=8, share=40)
    print(f"{fsync}, first: {is_first}: {report}")
    assert report.failures == []
    assert report.states_count > 20
    assert not repaired or fsync == "never"
    assert repaired or fsync != "never" or report.checked_count < report.states_count
    assert not (scratch / RUN_NAME).exists()
