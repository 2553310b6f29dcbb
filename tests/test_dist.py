"""What `make dist` makes of the last commit, installed in every way that README names, and run.

It takes minutes, so that it runs in make test-all alone. EOCTL_DIST names a directory with what
`make dist` has made before.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / ".cache/dist-tools/bin"
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
SUITE = "bookworm"  # the oldest Debian that the package is for

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.slow,
    pytest.mark.native,  # cargo is here
    pytest.mark.timeout(3600),
]


def _run(*words: object, **options: object) -> str:
    done = subprocess.run(
        [*map(str, words)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=3000,
        **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _make(target: Path, *steps: str, cache: Path | None = None) -> Path:
    environment = {**os.environ, "DIST": str(target)}
    if cache is not None:
        environment["DIST_TARGET"] = str(cache)
    _run(ROOT / "scripts/dist.sh", *steps, env=environment)
    return target


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("EOCTL_DIST"):
        return Path(given)
    return _make(tmp_path_factory.mktemp("dist"))


def _only(dist: Path, pattern: str) -> Path:
    (path,) = dist.glob(pattern)
    return path


@pytest.fixture
def clean(golden: Callable[[str], Path]) -> Path:
    return golden("kafka-4.3.1") / "clean"


def _check(
    program: list[str], clean: Path, home: Path, *, kernel: str = "native", path: str = ""
) -> None:
    """See that this eoctl names its kernel, checks a broker's directory and completes words."""
    environment = {"PATH": f"{path}{SYSTEM_PATH}", "HOME": str(home), "PEX_ROOT": str(home / "pex")}
    version = _run(*program, "--version", env=environment).splitlines()
    assert version[0] == f"eoctl {__version__}"
    assert version[1].startswith(f"kernel {kernel}, Python 3.")
    _run(*program, "check", clean, "--now", "0", env=environment)
    script = _run(*program, "--show-completion", "bash", env=environment)
    assert "_EOCTL_COMPLETE" in script
    words = {"_EOCTL_COMPLETE": "complete_bash", "COMP_WORDS": "eoctl dupl", "COMP_CWORD": "1"}
    assert _run(*program, env=environment | words).split() == ["duplicates"]


def _has_page(home: Path) -> None:
    text = _run("man", "-M", home, "eoctl-check", env={"PATH": SYSTEM_PATH, "MANPAGER": "cat"})
    assert "eoctl-check" in text.replace("\b", "")


# --- what is made -----------------------------------------------------------------------------------


def test_sums_name_each_file(dist: Path) -> None:
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split() for line in lines)}
    files = {path.name for path in dist.iterdir()} - {"SHA256SUMS"}
    assert {*sums} == files
    for name, digest in sums.items():
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest


def test_the_same_commit_gives_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    """Compiled anew, in another place."""
    again = _make(tmp_path / "again", cache=tmp_path / "cache")
    assert (again / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()


def test_the_wheel_runs_with_an_old_glibc(dist: Path) -> None:
    wheel = _only(dist, "*.whl")
    assert re.fullmatch(r"eoctl-[\d.]+-cp311-abi3-manylinux_2_28_\w+\.whl", wheel.name)
    said = _run(TOOLS / "auditwheel", "show", wheel).replace("\n", " ")
    assert 'platform tag: "manylinux_2_28_' in said


def test_the_bill_of_materials_names_what_is_inside(dist: Path) -> None:
    inside = {
        "python": {"numpy", "crc32c", "msgpack", "lz4", "zstandard", "cramjam", "rich", "typer"},
        "kernel": {"pyo3", "crc-fast", "lz4_flex", "zstd-sys", "snap", "flate2"},
    }
    for part, wanted in inside.items():
        bill = json.loads(_only(dist, f"*-{part}.cdx.json").read_text())
        assert bill["bomFormat"] == "CycloneDX"
        assert wanted <= {each["name"].lower() for each in bill["components"]}


# --- installed ---------------------------------------------------------------------------------------


def test_the_wheel_in_an_environment(dist: Path, clean: Path, tmp_path: Path) -> None:
    _run(sys.executable, "-m", "venv", tmp_path / "venv")
    pip = [tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet", "--no-input"]
    _run(*pip, "--constraint", ROOT / "constraints.txt", _only(dist, "*.whl"))
    _check([str(tmp_path / "venv/bin/eoctl")], clean, tmp_path)
    _has_page(tmp_path / "venv/share/man")


@pytest.mark.parametrize("has_cargo", [True, False])
@pytest.mark.parametrize("tool", ["pip", "pipx", "uv"])
def test_the_source_archive(
    tool: str, *, has_cargo: bool, dist: Path, clean: Path, tmp_path: Path
) -> None:
    """With the builders that each tool installs by itself."""
    cargo = f"{Path(shutil.which('cargo') or '').parent}:"
    kept = {name: text for name, text in os.environ.items() if name.startswith(("PIP_", "UV_"))}
    home = {name: os.environ[name] for name in ("CARGO_HOME", "RUSTUP_HOME") if name in os.environ}
    real = Path.home()
    environment = {
        "CARGO_HOME": str(real / ".cargo"), "RUSTUP_HOME": str(real / ".rustup"), **home, **kept,
        "PATH": f"{cargo if has_cargo else ''}{SYSTEM_PATH}", "HOME": str(tmp_path),
        "PIPX_HOME": str(tmp_path / "pipx"), "UV_TOOL_DIR": str(tmp_path / "uv"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "PIPX_MAN_DIR": str(tmp_path / "man"), "PIPX_DEFAULT_PYTHON": sys.executable,
        "UV_CACHE_DIR": str(tmp_path / "uv-cache"), "PIP_NO_CACHE_DIR": "1",
        # The certificates of this machine. pipx calls uv, if uv is there.
        "UV_PYTHON_DOWNLOADS": "never", "UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1",
    }  # fmt: skip
    archive = _only(dist, "*.tar.gz")
    if tool == "pip":
        _run(sys.executable, "-m", "venv", tmp_path)
        _run(tmp_path / "bin/python", "-m", "pip", "install", "-q", archive, env=environment)
        pages = tmp_path / "share/man"
    elif tool == "pipx":
        _run(TOOLS / "pipx", "install", "--quiet", archive, env=environment)
        pages = tmp_path / "man"
    else:
        python = ["--python", sys.executable]
        _run(TOOLS / "uv", "tool", "install", "--quiet", *python, archive, env=environment)
        pages = tmp_path / "uv/eoctl/share/man"
    kernel = "native" if has_cargo else "numpy"
    _check([str(tmp_path / "bin/eoctl")], clean, tmp_path, kernel=kernel)
    _has_page(pages)


@pytest.mark.parametrize("minor", [11, 12, 13])
def test_the_one_file(minor: int, dist: Path, clean: Path, tmp_path: Path) -> None:
    python = _python(minor)
    if python is None:
        pytest.skip(f"no Python 3.{minor} here")
    _check([python, str(dist / "eoctl.pyz")], clean, tmp_path)


def _python(minor: int) -> str | None:
    """Find a Python of that version that runs; a shim of pyenv runs only what is chosen."""
    shim = shutil.which(f"python3.{minor}")
    if shim is None:
        return None
    for each in (shim, *Path(shim).parents[1].glob(f"versions/3.{minor}.*/bin/python3")):
        call = [each, "-c", "import sys; print(sys.executable)"]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    return None


# --- the package of Debian ---------------------------------------------------------------------------


def test_the_package_has_no_errors(dist: Path) -> None:
    if shutil.which("lintian") is None:
        pytest.skip("no lintian here: apt-get install lintian")
    said = _run("lintian", "--allow-root", "--fail-on", "error", _only(dist, "*.deb"))
    assert "E: " not in said


@pytest.fixture
def chroot(tmp_path: Path) -> Path:
    """A new Debian with Python and man, and nothing else."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("needs root and debootstrap: apt-get install debootstrap")
    if given := os.environ.get("EOCTL_CHROOT"):
        return Path(given)
    root = tmp_path / "root"
    _run("debootstrap", "--variant=minbase", "--include=python3,man-db", SUITE, root)
    return root


def test_the_package_comes_and_goes(dist: Path, chroot: Path, clean: Path) -> None:
    package = _only(dist, "*.deb")
    shutil.copy(package, chroot / "tmp")
    shutil.copytree(clean, chroot / "tmp/clean", dirs_exist_ok=True)

    def inside(*words: str, user: str = "root") -> str:
        return _run(
            "chroot", f"--userspec={user}", chroot, *words, env={"PATH": SYSTEM_PATH, "HOME": "/"}
        )

    files = set(_names(chroot))
    inside("dpkg", "--install", f"/tmp/{package.name}")
    # As a user without a home directory, who may write nothing.
    version = inside("/usr/bin/eoctl", "--version", user="nobody")
    assert version.startswith(f"eoctl {__version__}\nkernel native, ")
    inside("/usr/bin/eoctl", "check", "/tmp/clean", "--now", "0", user="nobody")
    assert "eoctl" in inside("man", "-w", "eoctl-check")
    completion = inside("cat", "/usr/share/bash-completion/completions/eoctl")
    assert "_EOCTL_COMPLETE" in completion
    inside("dpkg", "--purge", "eoctl")
    assert {*_names(chroot)} - files == set()


def _names(root: Path) -> list[str]:
    folders = ("usr", "opt", "etc")
    return [str(path) for folder in folders for path in (root / folder).rglob("*")]


# --- the image ---------------------------------------------------------------------------------------


def test_the_image(dist: Path, tmp_path: Path) -> None:
    """It is there if buildah or podman made one; its parts are as small as README says."""
    images = [*dist.glob("*.oci.tar")]
    if not images:
        pytest.skip("no image: scripts/dist.sh image makes it with buildah or podman")
    with tarfile.open(images[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    blobs = tmp_path / "blobs/sha256"
    assert sum(path.stat().st_size for path in blobs.iterdir()) < 120_000_000
    index = json.loads((tmp_path / "index.json").read_text())
    manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_text())
    config = json.loads((blobs / manifest["config"]["digest"][7:]).read_text())["config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["eoctl"]
