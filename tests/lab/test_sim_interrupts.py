"""eoctl sim interrupted (Ctrl-C): status 130, one line, nothing left behind, and it can go on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl.lab.guarantees.scenarios import MEMORY, PREFIX
from tests.lab.test_sim import checked_after_another_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.running import Outcome

    Run = Callable[..., Outcome]


pytestmark = pytest.mark.skipif(
    not (Path("/proc/self/fd").exists() and Path(MEMORY).is_dir()), reason="needs Linux"
)
LIMIT_S = 120
ATTEMPTS = 20
SAFE = ("--min-insync-replicas", "2", "--faults", "kill", "--in-flight", "1")


def _heed_interrupts() -> None:
    """As of a shell in the foreground; what is started in the background ignores them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def _started(*call: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "eoctl", "sim", *map(str, call)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_heed_interrupts,  # noqa: PLW1509 - it starts no thread
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _wait(process: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> bool:
    """Wait for something that the process does; False: it has ended."""
    begun = time.monotonic()
    while not is_so():
        if process.poll() is not None:
            return False
        assert time.monotonic() - begun < LIMIT_S
        time.sleep(0.001)
    return True


def _opened(process: subprocess.Popen[bytes]) -> list[str]:
    """The files that a process has open."""
    found = []
    with suppress(OSError):  # it ends
        for each in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(OSError):  # it is closed meanwhile
                found.append(str(each.readlink()))
    return found


def _scratch_of(process: subprocess.Popen[bytes]) -> list[str]:
    """The directory in memory that it plays in, by whatever it has open there."""
    opened = [Path(each) for each in _opened(process) if each.startswith(f"{MEMORY}/{PREFIX}")]
    count = len(Path(MEMORY).parts) + 1
    return sorted({str(Path(*each.parts[:count])) for each in opened})


def _interrupt_simulating(process: subprocess.Popen[bytes]) -> list[str]:
    """Interrupt it as it plays, which is looked at while it is held; [] it has ended before."""
    while _wait(process, lambda: bool(_scratch_of(process))):
        process.send_signal(signal.SIGSTOP)
        places = _scratch_of(process)
        if places:
            process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        if places:
            return places
    return []


def _interrupt(process: subprocess.Popen[bytes]) -> tuple[bytes, str]:
    process.send_signal(signal.SIGINT)
    return _ended(process)


def _ended(process: subprocess.Popen[bytes]) -> tuple[bytes, str]:
    """What one that was interrupted has written to both, of which one line says so."""
    written, errors = process.communicate(timeout=LIMIT_S)
    reported = errors.decode()
    assert process.returncode == 130, reported
    assert "Traceback" not in reported
    assert reported.strip().splitlines()[-1].startswith("eoctl: interrupted"), reported
    return written, reported


@pytest.fixture
def simulate(eoctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert eoctl("sim", "init", "play", "--min-insync-replicas", 2).status == 0
    return tmp_path / "play"


@pytest.mark.share(1)
@pytest.mark.parametrize("faults", ["", "kill leader at 1%, start all at 2%"])
def test_a_run_is_kept_as_far_as_it_went_and_the_next_one_goes_on(
    eoctl: Run, simulate: Path, faults: str
) -> None:
    history = simulate / "history-1.jsonl"
    call = ("run", simulate, "--records", "1000000", "--rate", "1000", "--faults", faults)
    with _started(*call) as process:
        assert _wait(process, lambda: history.exists() and history.stat().st_size > 100_000)
        written, _ = _interrupt(process)
    assert written == b""
    data = history.read_bytes()
    assert data.endswith(b"\n")
    acknowledged = sum(
        each["op"] == "send" and each["type"] == "ok"
        for each in map(json.loads, data.splitlines()[1:])
    )
    assert acknowledged > 100
    checked = eoctl("sim", "check", "play")
    assert checked.status in (0, 5), checked.errors
    checked = checked_after_another_run(eoctl, simulate)
    assert f"{acknowledged + 20:,} acknowledged records" in checked.errors
    assert history.read_bytes() == data
    assert not [*simulate.rglob("*.tmp")]


def test_an_exploration_leaves_nothing_and_can_be_called_again(eoctl: Run, tmp_path: Path) -> None:
    witness = tmp_path / "witness.json"
    with _started("explore", *SAFE, "--seeds", "1000000", "--witness", witness) as process:
        places = _interrupt_simulating(process)
        written, _ = _ended(process)
    assert written == b""
    assert len(places) == 1
    assert not Path(places[0]).exists()
    assert not [*tmp_path.iterdir()]
    assert eoctl("sim", "explore", *SAFE, "--seeds", 2).status == 0


def test_a_table_leaves_nothing(eoctl: Run, tmp_path: Path) -> None:
    """It plays for a moment only, which may be over before it is seen."""
    witness = tmp_path / "witness.json"
    call = ("table", "--acks", "all", "--min-insync-replicas", "1", "--witness", witness)
    for _ in range(ATTEMPTS):
        witness.unlink(missing_ok=True)
        with _started(*call) as process:
            places = _interrupt_simulating(process)
            if places:
                written, _ = _ended(process)
                break
    else:
        pytest.fail("it was never seen to play")
    assert written == b""
    assert not any(Path(each).exists() for each in places)
    assert not witness.exists()
    assert eoctl("sim", *map(str, call)).status == 0
    assert witness.exists()


def _state_of(root: Path) -> dict[Path, tuple[int, int]]:
    stats = {each: each.stat() for each in root.rglob("*")}
    return {path: (each.st_size, each.st_mtime_ns) for path, each in stats.items()}


@pytest.mark.exhaustive
def test_a_check_changes_nothing_and_can_be_called_again(
    eoctl: Run, simulate: Path, tmp_path: Path
) -> None:
    assert eoctl("sim", "run", "play", "--records", 20).status == 0
    path = tmp_path / "long.jsonl"
    lines = (simulate / "history-1.jsonl").read_bytes().splitlines(keepends=True)
    end_us = json.loads(lines[-1])["time_us"]
    with path.open("wb") as file:
        file.writelines(lines)
        for number in range(400_000):
            for kind in ("invoke", "ok"):
                line = {
                    "type": kind, "process": "more", "id": number, "time_us": end_us, "op": "poll",
                }  # fmt: skip
                file.write(json.dumps(line).encode() + b"\n")
    nodes = [word for each in sorted(simulate.glob("node-*")) for word in ("--directory", each)]
    before = _state_of(simulate)
    with _started("check", "--history", path, *nodes) as process:
        assert _wait(process, lambda: str(path) in _opened(process))
        written, _ = _interrupt(process)
    assert written == b""
    assert _state_of(simulate) == before
    assert eoctl("sim", "check", "play").status == 0
