"""`rebuild --apply`: a broker starts on what a crash at any point leaves."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from storage.file_names import CLEAN_SHUTDOWN_NAME
from tests.crash.scenario import Scenario, record
from tests.crash.states import crash_states
from tests.kafka.broker import Broker, copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.recording import RecordingFileSystem
    from tests.crash.states import CrashState
    from tests.running import Outcome

PARTITION = "txn-0"
BROKEN = "00000000000000000000.timeindex"
MISSING = "00000000000000000329.snapshot"


def small_log_dir(source: Path, target: Path) -> None:
    """One partition of a cleanly stopped node: an index cut short, a snapshot gone."""
    shutil.copytree(source / PARTITION, target / PARTITION)
    for name in ("meta.properties", "recovery-point-offset-checkpoint", CLEAN_SHUTDOWN_NAME):
        shutil.copy2(source / name, target / name)
    (target / ".lock").touch()
    for path in [target / PARTITION, *target.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    index = target / PARTITION / BROKEN
    index.write_bytes(index.read_bytes()[:-24])
    (target / PARTITION / MISSING).unlink()


@pytest.mark.exhaustive
@pytest.mark.broker
def test_a_broker_starts_on_what_a_crash_leaves(
    golden: Callable[[str], Path],
    tmp_path: Path,
    eoctl: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First state, last state, and some in between, put into a whole log dir."""
    clean = golden("kafka-4.3.1") / "clean"

    def prepare(root: Path) -> None:
        root.mkdir()
        small_log_dir(clean, root / "log-dir")

    def run(fs: RecordingFileSystem, root: Path) -> None:
        with monkeypatch.context() as patched:
            patched.setattr("storage.files.fsio.FileSystem", lambda: fs)
            partition = root / "log-dir" / PARTITION
            outcome = eoctl("rebuild", "--apply", "--index-interval-bytes", 512, partition)
        assert outcome.status == 0, outcome.errors

    states = list(crash_states(record(Scenario(prepare, run, lambda *_: None), tmp_path)))
    chosen = [states[place * (len(states) - 1) // 3] for place in range(4)]
    failures: list[str] = []

    def start(number: int, state: CrashState) -> None:
        log_dir = copy_log_dir(clean, tmp_path / f"broker-{number}")
        state.write_to(tmp_path / f"left-{number}")
        left = tmp_path / f"left-{number}" / "log-dir"
        shutil.rmtree(log_dir / PARTITION)
        shutil.copytree(left, log_dir, dirs_exist_ok=True)
        if not (left / CLEAN_SHUTDOWN_NAME).exists():
            (log_dir / CLEAN_SHUTDOWN_NAME).unlink()
        with Broker(log_dir) as broker:
            text = "\n".join(broker.log_lines(PARTITION))
            if "Completed load" not in text:
                failures.append(f"{state}: {broker.log_tail()}")

    threads = [
        threading.Thread(target=start, args=(number, state)) for number, state in enumerate(chosen)
    ]
    for first in range(0, len(threads), 2):
        for thread in threads[first : first + 2]:
            thread.start()
        for thread in threads[first : first + 2]:
            thread.join()
    assert failures == []
