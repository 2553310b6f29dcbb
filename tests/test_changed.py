"""Which tests belong to what was changed, and that a share is drawn as it is said."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests import changed as changes
from tests import drawn as drawing
from tests.changed import changed_files, files_to_run
from tests.drawn import drawn

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small project in git."""
    files = {
        "storage/one.py": "",
        "storage/two.py": "",
        "tests/storage/test_one.py": "import pytest\n",
        "tests/cli/test_call.py": "def test() -> None:\n    from storage import two\n",
        "tests/cli/test_other.py": "from tests.helping import help_out\n",
        "tests/helping.py": "",
        "tests/test_tidy.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    who = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    for call in (("init", "-q", "-b", "main"), ("add", "."), (*who, "commit", "-qm", "all")):
        subprocess.run(["git", "-C", tmp_path, *call], check=True)
    return tmp_path


@pytest.mark.parametrize(
    "changed, expected",
    [
        ("storage/one.py", ["tests/storage/test_one.py"]),
        ("storage/two.py", ["tests/cli/test_call.py"]),
        ("tests/helping.py", ["tests/cli/test_other.py"]),
        ("tests/cli/test_call.py", ["tests/cli/test_call.py"]),
        ("storage/new.py", []),
    ],
)
def test_tests_of_a_change(root: Path, changed: str, expected: list[str]) -> None:
    assert changed_files(root) == []
    with (root / changed).open("a") as file:
        file.write("VALUE = 1\n")
    assert changed_files(root) == [changed]
    own, importing = files_to_run(changed_files(root), root)
    assert sorted([*own, *importing]) == [*expected, "tests/test_tidy.py"]


def test_of_many_files_that_import_it_some_are_chosen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own, importing = ["tests/test_own.py"], [f"tests/test_{number}.py" for number in range(10)]
    monkeypatch.setattr(changes, "changed_files", list)
    monkeypatch.setattr(changes, "files_to_run", lambda _: changes.Files(own, importing))
    chosen = set()
    for _ in range(40):
        changes.main()
        printed = capsys.readouterr()
        assert printed.err.startswith(f"{10 - changes.MOST_IMPORTING} more test files import")
        names = printed.out.splitlines()
        assert len(names) == 1 + changes.MOST_IMPORTING
        assert {*own} < {*names} <= {*own, *importing}
        chosen |= {*names}
    assert chosen == {*own, *importing}


def test_what_is_gone_has_no_tests(root: Path) -> None:
    (root / "storage/one.py").unlink()
    assert changed_files(root) == []


def test_a_share_is_that_of_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "IS_ALL", False)
    shares = set()
    for seed in range(40):
        monkeypatch.setenv("EOCTL_SEED", str(seed))
        share = drawn(range(20), 5, "here")
        assert share == drawn(range(20), 5, "here") == sorted(set(share))
        assert len(share) == 5
        shares.add(tuple(share))
    assert len(shares) > 30
    assert {number for share in shares for number in share} == {*range(20)}
    assert drawn("abc", 5) == ["a", "b", "c"]
    monkeypatch.setattr(drawing, "IS_ALL", True)
    assert drawn(range(20), 5) == [*range(20)]
