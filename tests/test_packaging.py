"""What is installed: exactly our packages and man pages, with the versions that are pinned."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl.libraries import REQUIREMENTS as REQUIREMENTS_TOLD
from eoctl.libraries import install_call

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
)
NATIVE_PROJECT = tomllib.loads((ROOT / "native/pyproject.toml").read_text())
NATIVE_BUILD = NATIVE_PROJECT["build-system"]["requires"]
REQUIREMENTS = [
    *NATIVE_BUILD,
    *PROJECT["build-system"]["requires"],
    *PROJECT["project"]["dependencies"],
    *(one for extra in PROJECT["project"]["optional-dependencies"].values() for one in extra),
]
EXTRAS = PROJECT["project"]["optional-dependencies"]
# What the image is built from, and no more is needed.
COPIED = [
    name
    for line in (ROOT / "Containerfile").read_text().splitlines()
    if line.startswith("COPY")
    for name in line.split()[1:-1]
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a copy of the sources: building writes beside them."""
    source = tmp_path_factory.mktemp("source")
    skipped = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        copy = shutil.copy if (ROOT / name).is_file() else partial(shutil.copytree, ignore=skipped)
        copy(ROOT / name, source / name)
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--no-index", "--disable-pip-version-check", "--wheel-dir", target, source],
        check=True, timeout=300, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    (wheel,) = target.glob("*.whl")
    assert re.fullmatch(r"eoctl-[\d.]+-py3-none-any\.whl", wheel.name)
    return wheel


@pytest.fixture(scope="module")
def wheel_names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_image_is_built_from_what_the_one_file_is() -> None:
    (line,) = re.findall(r"cp -R (.*) \"", (ROOT / "scripts/zipapp.sh").read_text())
    assert {*line.split()} == {*COPIED} - {"constraints.txt"}


def test_the_wheel_holds_our_packages_and_nothing_else(wheel_names: list[str]) -> None:
    sources = {
        str(path.relative_to(ROOT))
        for package in ("eoctl", "recovery", "storage")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    info = f"eoctl-{PROJECT['project']['version']}"
    packed = {name for name in wheel_names if not name.startswith(info)}
    assert packed == sources


def test_the_wheel_holds_the_man_pages_and_the_license(wheel_names: list[str]) -> None:
    info = f"eoctl-{PROJECT['project']['version']}"
    pages = {f"man{page.suffix[1:]}/{page.name}" for page in (ROOT / "man").glob("*.[1-9]")}
    prefix = f"{info}.data/data/share/man/"
    assert pages
    assert {name.removeprefix(prefix) for name in wheel_names if ".data/" in name} == pages
    assert f"{info}.dist-info/licenses/LICENSE" in wheel_names


# --- installed where nothing else is --------------------------------------------------------------


def _in_an_environment(wheel: Path, home: Path) -> list[str]:
    """Install the wheel with what it needs, and no more, into a new environment."""
    subprocess.run([sys.executable, "-m", "venv", home / "venv"], check=True, timeout=120)
    subprocess.run(
        [home / "venv/bin/python", "-m", "pip", "install", "--quiet", "--no-input",
         "--no-compile", "--disable-pip-version-check", "--constraint", ROOT / "constraints.txt", wheel],
        check=True, timeout=300, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return [str(home / "venv/bin/eoctl")]


def _as_one_file(_wheel: Path, home: Path) -> list[str]:
    environment = {**os.environ, "BIN": str(Path(sys.executable).parent), "PYTHONS": "here"}
    subprocess.run(
        [ROOT / "scripts/zipapp.sh", home / "eoctl.pyz"],
        env=environment, check=True, timeout=300, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return [getattr(sys, "_base_executable", sys.executable), str(home / "eoctl.pyz")]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("install", [_in_an_environment, _as_one_file])
def test_it_runs_where_nothing_else_is(
    install: Callable[[Path, Path], list[str]],
    wheel: Path,
    golden: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    program = install(wheel, tmp_path)

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [*program, *arguments],
            cwd=golden("kafka-4.3.1") / "clean", stdin=subprocess.DEVNULL,
            # PEX_ROOT: a start of the one file unpacks it.
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PEX_ROOT": str(tmp_path / "pex")},
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        return done.stdout

    assert run("--version").startswith(f"eoctl {PROJECT['project']['version']}\n")
    assert "producerId: 40 " in run("recover-state", "txn-0")
    assert run("consume", "txn-0", "--from", "309", "--max-messages", "1") == "successor\n"


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_every_requirement_is_pinned(requirement: str) -> None:
    name = re.split(r"[<>=!~\[; ]", requirement)[0]
    pinned = {pin.lower().replace("_", "-") for pin in PINS}
    assert name.lower().replace("_", "-") in pinned


def test_constraints_are_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", pin) for pin in pins)
    assert pins == sorted(pins, key=str.lower)


def test_the_environment_has_the_pinned_versions() -> None:
    # The extra `fuzz` is there only after `make fuzz`, what compiles only where cargo is.
    optional = [*PROJECT["project"]["optional-dependencies"]["fuzz"], *NATIVE_BUILD]
    absent = {re.split(r"[<>=!~\[; ]", requirement)[0] for requirement in optional}
    pins = {name: pin for name, pin in PINS.items() if name not in absent}
    assert {name: version(name) for name in pins} == pins


def test_what_an_error_tells_to_install_is_what_the_extras_ask_for() -> None:
    asked = [*EXTRAS["spark"], *EXTRAS["parquet"], *EXTRAS["bench"], *EXTRAS["test"]]
    assert {*REQUIREMENTS_TOLD.values()} <= {*asked}


@pytest.mark.parametrize("has_pip", [True, False])
def test_a_library_is_installed_where_this_program_looks_for_it(
    *, has_pip: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `pip` of the PATH belongs to another Python; an environment of uv has none."""
    monkeypatch.setattr("eoctl.libraries.find_spec", lambda _: has_pip or None)
    told = shlex.split(install_call("a>=1,<2", "b[c]"))
    pip = [sys.executable, "-m", "pip", "install"]
    uv = ["uv", "pip", "install", "--python", sys.executable]
    assert told == [*(pip if has_pip else uv), "a>=1,<2", "b[c]"]
