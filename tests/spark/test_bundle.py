"""The bundle for executors without our packages: what is in it, and that it is enough."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl.spark import OWN_PACKAGES, bundle
from eoctl.spark.bundle import BUNDLE_NAME, bundle_bytes, write_bundle
from storage.errors import AccessError, RefusedError
from storage.files import fsio

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


def test_it_holds_our_packages_and_nothing_else(tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "dist")
    assert path == tmp_path / "dist" / BUNDLE_NAME
    sources = {
        str(file.relative_to(ROOT)): file.read_bytes()
        for package in OWN_PACKAGES
        for file in (ROOT / package).rglob("*")
        if file.suffix in {".py", ".typed"}
    }
    with zipfile.ZipFile(path) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == sources


def test_the_same_sources_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bundle_bytes()
    copy = tmp_path / "copy"
    for package in OWN_PACKAGES:
        shutil.copytree(ROOT / package, copy / package, copy_function=shutil.copyfile)
    for number, path in enumerate(sorted(copy.rglob("*.py"))):
        os.utime(path, (number, number))
        path.chmod(0o700)
    monkeypatch.setattr(bundle, "packages_root", lambda: copy)
    assert bundle_bytes() == first
    (copy / "storage" / "segment.py.orig").write_text("")
    assert bundle_bytes() == first
    (copy / "storage" / "more.py").write_text("")
    assert bundle_bytes() != first


def test_it_goes_into_a_directory_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsio, "can_give", lambda _: False)
    assert write_bundle(tmp_path).stat().st_uid == os.geteuid()


def test_a_bundle_in_use_gives_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_bundle(tmp_path)
    monkeypatch.setattr(bundle, "packages_root", lambda: path)
    path.write_bytes(path.read_bytes() + b"#")
    assert bundle_bytes().endswith(b"#")


def test_where_it_may_not_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AccessError):
        write_bundle(tmp_path / "file" / "dist")
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(RefusedError, match="lies in a log dir"):
        write_bundle(tmp_path / "dist")


def python(*arguments: object, path: str | None = None, cwd: Path) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = path
    return subprocess.run(
        [sys.executable, "-P", *map(str, arguments)],
        env=environment, cwd=cwd, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_the_command_and_what_it_makes(golden: Callable[[str], Path], tmp_path: Path) -> None:
    made = python("-m", "eoctl.spark.bundle", cwd=tmp_path)
    assert (made.returncode, made.stdout) == (0, f"dist/{BUNDLE_NAME}\n")
    path = tmp_path / "dist" / BUNDLE_NAME
    root = golden("kafka-4.3.1") / "crash" / "txn-0"
    done = python(
        "-m", "eoctl", "describe", "--output", "jsonl", root, path=str(path), cwd=tmp_path
    )
    assert (
        done.stdout == python("-m", "eoctl", "describe", "--output", "jsonl", root, cwd=ROOT).stdout
    )
    assert done.stdout
    reported = python("-c", "import storage; print(storage.__file__)", path=str(path), cwd=tmp_path)
    assert reported.stdout.startswith(f"{path}/storage/")
    again = python("-m", "eoctl.spark.bundle", "again", path=str(path), cwd=tmp_path)
    assert again.stdout == f"again/{BUNDLE_NAME}\n"
    assert (tmp_path / "again" / BUNDLE_NAME).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("arguments", [["--help"], ["a", "b"]])
def test_wrong_calls(arguments: list[str], tmp_path: Path) -> None:
    done = python("-m", "eoctl.spark.bundle", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: python -m eoctl.spark.bundle [DIR]" in done.stderr
