"""What is installed: exactly our packages and man pages, with the versions that are pinned."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
)
REQUIREMENTS = [
    *PROJECT["build-system"]["requires"],
    *PROJECT["project"]["dependencies"],
    *(one for extra in PROJECT["project"]["optional-dependencies"].values() for one in extra),
]


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names in a wheel of a copy of the sources: building writes beside them."""
    source = tmp_path_factory.mktemp("source")
    for name in ("eoctl", "recovery", "storage", "man", "tests"):
        skipped = shutil.ignore_patterns("__pycache__", "golden")
        shutil.copytree(ROOT / name, source / name, ignore=skipped)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--no-index", "--disable-pip-version-check", "--wheel-dir", target, source],
        check=True, timeout=300, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    (wheel,) = target.glob("*.whl")
    assert re.fullmatch(r"eoctl-[\d.]+-py3-none-any\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


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
    # The extra `fuzz` is there only after `make fuzz`.
    fuzz_extra = PROJECT["project"]["optional-dependencies"]["fuzz"]
    absent = {re.split(r"[<>=!~\[; ]", requirement)[0] for requirement in fuzz_extra}
    pins = {name: pin for name, pin in PINS.items() if name not in absent}
    assert {name: version(name) for name in pins} == pins
