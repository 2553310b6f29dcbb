"""The test files of what differs from the branch main, one a line: `python -m tests.changed`.

A changed module has the test file that mirrors its place or bears its name, and every test file that
imports it. A changed helper of the tests has those that import it; a changed test file is one itself.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
BRANCH = "main"
# What the sources look like is always looked at.
ALWAYS = "tests/test_tidy.py"


def changed_files(root: Path = ROOT) -> list[str]:
    """Python files that differ from the branch, committed or not, and new ones; none that is gone."""

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(
            ["git", "-C", root, *arguments, "--", "*.py"],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        return done.stdout.splitlines()

    # From where the branches parted: what main got since is not ours.
    names = {*git("diff", "--name-only", "--merge-base", BRANCH)}
    names |= {*git("ls-files", "--others", "--exclude-standard")}
    return sorted(name for name in names if (root / name).exists())


def files_to_run(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """The test files of these files, with paths relative to the root."""
    tests = {
        str(path.relative_to(root)): _imported_modules(path)
        for path in (root / "tests").rglob("test_*.py")
    }
    found = {ALWAYS} & {*tests}
    for name in changed:
        path = Path(name)
        if name in tests:
            found.add(name)
            continue
        parts = path.with_suffix("").parts
        module = ".".join(parts[:-1] if path.name == "__init__.py" else parts)
        own = f"test_{path.stem}.py"
        found |= {
            test for test, modules in tests.items() if Path(test).name == own or module in modules
        }
    return sorted(found)


def _imported_modules(path: Path) -> set[str]:
    """The modules that a file imports, and `package.name` of every name, which may be one."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module)
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


if __name__ == "__main__":
    sys.stdout.writelines(f"{name}\n" for name in files_to_run(changed_files()))
