"""scripts/setup-env.sh with and without what compiles the native kernel; nothing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Makes environments that are itself, and notes what it is told to install.
PYTHON = """#!/bin/sh
case "$*" in
    *"-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    *"-m pip install"*--editable*)
        echo eoctl >>"$PIP_LOG"
        [ -n "${NO_KERNEL:-}" ] || ! command -v cargo >/dev/null || : >eoctl_native.abi3.so
        exit "${EOCTL_STATUS:-0}" ;;
    *"-m pip install"*) echo others >>"$PIP_LOG" ;;
    *sys.prefix*) echo "$PWD/.venv one version" ;;
    *sys.version_info*) echo "$FAKE_PYTHON" ;;
    *) echo "one version" ;;
esac
"""


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("scripts", "native"):
            shutil.copytree(
                ROOT / name, root / name, ignore=shutil.ignore_patterns("target", "Cargo.lock")
            )
        for name in ("pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, root)
        self.bin = root / "bin"
        self.bin.mkdir()
        # The programs of the script, and no cargo.
        for name in ("sh", "cat", "sha256sum", "mkdir", "cp", "rm", "dirname", "env"):
            (self.bin / name).symlink_to(shutil.which(name) or name)
        self.python = self._program("fake-python", PYTHON)

    def _program(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def add_cargo(self) -> None:
        self._program("cargo", "#!/bin/sh\n")

    def make(self, *, check: bool = True, **settings: str) -> tuple[str, list[str]]:
        """What it says, and what it installs, some of it at the same time."""
        log = self.root / "pip.log"
        log.write_text("")
        done = subprocess.run(
            [self.root / "scripts/setup-env.sh", "demo"],
            env={
                "PATH": str(self.bin),
                "PYTHON": str(self.python),
                "FAKE_PYTHON": str(self.python),
                "PIP_LOG": str(log),
                **settings,
            },
            capture_output=True, text=True, check=check, timeout=60, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return done.stderr, sorted(log.read_text().split())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "project")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("PIP_")]:
        monkeypatch.delenv(name)


def test_without_cargo_one_line_says_what_is_missing(place: Place) -> None:
    said, installed = place.make()
    assert installed == ["eoctl", "others", "others"]
    assert said.splitlines()[-1].startswith("no cargo here: eoctl runs without its native kernel")


def test_the_native_kernel_is_compiled_once_and_when_it_changes(place: Place) -> None:
    place.add_cargo()
    said, installed = place.make()
    assert installed == ["eoctl", "others", "others"]
    assert "compiling the native kernel" in said
    assert place.make() == ("", [])
    with (place.root / "native/src/batch.rs").open("a") as source:
        source.write("// changed\n")
    assert place.make()[1] == ["eoctl"]
    # An environment that was made without cargo gets it later.
    (place.root / ".venv/eoctl-kernel").unlink()
    assert place.make()[1] == ["eoctl"]
    assert place.make() == ("", [])


def test_a_kernel_that_cannot_be_compiled_is_no_failure(place: Place) -> None:
    place.add_cargo()
    place.make()
    (place.root / "native/src/batch.rs").write_text("wrong")
    said, installed = place.make(NO_KERNEL="yes")
    assert installed == ["eoctl"]
    assert said.splitlines()[-1] == (
        "it could not be compiled (.cache/native.log says why): eoctl runs without it"
    )
    assert not [*place.root.glob("eoctl_native*")]
    assert place.make()[1] == ["eoctl"]


def test_an_eoctl_that_cannot_be_installed_is_a_failure(place: Place) -> None:
    place.make(check=False, EOCTL_STATUS="1")
    assert not (place.root / ".venv/eoctl-demo").exists()
    place.make()
    assert (place.root / ".venv/eoctl-demo").exists()


def test_an_environment_with_two_distributions_is_made_anew(place: Place) -> None:
    place.make()
    (place.root / ".venv/eoctl-demo").unlink()
    (place.root / ".venv/eoctl-native").touch()
    assert "making the environment" in place.make()[0]
    assert not (place.root / ".venv/eoctl-native").exists()
