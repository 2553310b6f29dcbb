"""What is installed: exactly our packages and man pages, with the versions that are pinned."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from eoctl import __version__
from eoctl.libraries import REQUIREMENTS as REQUIREMENTS_REPORTED
from eoctl.libraries import install_call, kernel_call

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
EXTRAS = PROJECT["project"]["optional-dependencies"]
NATIVE = tomllib.loads((ROOT / "native/Cargo.toml").read_text())
PINNED = ["constraints.txt", "native/constraints.txt", "scripts/dist-tools.txt"]
# What is packed of the sources, by MANIFEST.in and by setuptools.
PACKED = [
    *("eoctl", "recovery", "storage", "native", "man", "pyproject.toml", "constraints.txt"),
    *("README.md", "LICENSE", "MANIFEST.in"),
]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source archive of a copy of the sources: building writes beside them."""
    source = tmp_path_factory.mktemp("source")
    skipped = shutil.ignore_patterns("__pycache__", "target", "Cargo.lock", "*.so")
    for name in PACKED:
        copy = shutil.copy if (ROOT / name).is_file() else partial(shutil.copytree, ignore=skipped)
        copy(ROOT / name, source / name)
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "import setuptools; setuptools.setup()", "--quiet",
         "sdist", "--dist-dir", source / "dist"],
        cwd=source, check=True, timeout=300, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    (archive,) = (source / "dist").iterdir()
    return archive


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the source archive, built without cargo."""
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--no-index", "--disable-pip-version-check", "--wheel-dir", target, sdist],
        check=True, timeout=300, stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": "/usr/bin:/bin", "CARGO": "/nonexistent", "RUSTC": "/nonexistent"},
    )  # fmt: skip
    (wheel,) = target.glob("*.whl")
    assert re.fullmatch(r"eoctl-[\d.]+-cp311-abi3-\w+\.whl", wheel.name)
    return wheel


@pytest.fixture(scope="module")
def wheel_names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_source_archive_holds_the_kernel_and_no_tests(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    rust = {str(path.relative_to(ROOT)) for path in (ROOT / "native/src").glob("*.rs")}
    assert {*rust, "native/Cargo.toml", "pyproject.toml", "LICENSE"} <= names
    assert not [name for name in names if name.startswith(("tests/", "bench/", "native/target"))]


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


@pytest.mark.parametrize("file", PINNED)
def test_pins_are_names_and_versions_only(file: str) -> None:
    lines = (ROOT / file).read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+]*", pin) for pin in pins)
    assert pins == sorted(pins, key=str.lower)


def test_the_crates_of_the_kernel_are_pinned() -> None:
    pins = dict(
        line.split("==")
        for line in (ROOT / "native/constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    )
    for name, wanted in NATIVE["dependencies"].items():
        given = wanted if isinstance(wanted, str) else wanted["version"]
        assert given == f"={pins[name]}"


def test_one_version_and_one_rust() -> None:
    """The version is that of the package, its commands and its kernel; so is the Rust it needs."""
    assert PROJECT["project"]["version"] == __version__ == NATIVE["package"]["version"]
    (kernel,) = PROJECT["tool"]["setuptools-rust"]["ext-modules"]
    assert kernel["target"] == NATIVE["lib"]["name"]
    assert kernel["rust-version"] == f">={NATIVE['package']['rust-version']}"


def test_the_environment_has_the_pinned_versions() -> None:
    # The extra `fuzz` is there only after `make fuzz`.
    absent = {re.split(r"[<>=!~\[; ]", requirement)[0] for requirement in EXTRAS["fuzz"]}
    pins = {name: pin for name, pin in PINS.items() if name not in absent}
    assert {name: version(name) for name in pins} == pins


def test_what_an_error_tells_to_install_is_what_the_extras_ask_for() -> None:
    asked = [*EXTRAS["spark"], *EXTRAS["parquet"], *EXTRAS["bench"], *EXTRAS["test"]]
    assert {*REQUIREMENTS_REPORTED.values()} <= {*asked}


@pytest.mark.parametrize("has_pip", [True, False])
def test_a_library_is_installed_where_this_program_looks_for_it(
    *, has_pip: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `pip` of the PATH belongs to another Python; an environment of uv has none."""
    monkeypatch.setattr("eoctl.libraries.find_spec", lambda _: has_pip or None)
    reported = shlex.split(install_call("a>=1,<2", "b[c]"))
    pip = [sys.executable, "-m", "pip", "install"]
    uv = ["uv", "pip", "install", "--python", sys.executable]
    assert reported == [*(pip if has_pip else uv), "a>=1,<2", "b[c]"]


KERNEL_CALLS = {
    "pipx_metadata.json": "UV_NO_CACHE=1 PIP_NO_CACHE_DIR=1 pipx reinstall eoctl",
    "uv-receipt.toml": "uv tool upgrade --reinstall-package eoctl --no-cache eoctl",
}


@pytest.mark.parametrize("has_cargo", [True, False])
@pytest.mark.parametrize("file", KERNEL_CALLS)
def test_the_kernel_is_installed_by_the_tool_that_installed_eoctl(
    file: str, *, has_cargo: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / file).touch()
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr("eoctl.libraries.which", lambda name: f"/{name}" if has_cargo else None)
    assert kernel_call() == ("" if has_cargo else "install cargo, then: ") + KERNEL_CALLS[file]


@pytest.mark.parametrize(
    ("origin", "reported"),
    [
        (None, ["eoctl"]),
        ({"url": "file:///src", "dir_info": {}}, ["file:///src"]),
        ({"url": "file:///src", "dir_info": {"editable": True}}, ["--editable", "file:///src"]),
        ({"url": "https://x/y.git", "vcs_info": {"vcs": "git"}}, ["git+https://x/y.git"]),
        ({"url": "file:///e.tar.gz", "archive_info": {}}, ["file:///e.tar.gz"]),
    ],
)
def test_pip_takes_the_kernel_from_where_eoctl_came_from(
    origin: dict[str, object] | None, reported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(
        "eoctl.libraries.distribution", lambda _: SimpleNamespace(read_text=lambda _: text)
    )
    monkeypatch.setattr("eoctl.libraries.which", lambda name: f"/{name}")
    again = ["--force-reinstall", "--no-deps", "--no-cache-dir"]
    assert shlex.split(kernel_call())[4:] == [*again, *reported]
