"""The test files of what differs from the branch main, one a line: `python -m tests.changed`.

A changed module has the test files that bear its name, and those that import it. A changed helper of
the tests has those that import it; a changed test file is one itself. Of files that import something
which all of them import some are chosen, others in each call, and the number of the rest is told.
"""

from __future__ import annotations

import ast
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
BRANCH = "main"
# What the sources look like is always looked at.
ALWAYS = "tests/test_tidy.py"
# So many files of those that import what was changed are a matter of seconds.
MOST_IMPORTING = 6


class Files(NamedTuple):
    """Test files: those that are changed or have the name of what is, and those that import it."""

    own: list[str]
    importing: list[str]


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


def files_to_run(changed: Iterable[str], root: Path = ROOT) -> Files:
    """The test files of these files, with paths relative to the root."""
    tests = {
        str(path.relative_to(root)): _imported_modules(path)
        for path in (root / "tests").rglob("test_*.py")
    }
    own, importing = {ALWAYS} & {*tests}, set[str]()
    for name in changed:
        path = Path(name)
        if name in tests:
            own.add(name)
            continue
        parts = path.with_suffix("").parts
        module = ".".join(parts[:-1] if path.name == "__init__.py" else parts)
        own |= {test for test in tests if Path(test).name == f"test_{path.stem}.py"}
        importing |= {test for test, modules in tests.items() if module in modules}
    return Files(sorted(own), sorted(importing - own))


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


def main() -> None:
    """Print them, and on the other stream how many are left to `make test`."""
    own, importing = files_to_run(changed_files())
    chosen = random.sample(importing, min(MOST_IMPORTING, len(importing)))
    sys.stdout.writelines(f"{name}\n" for name in sorted([*own, *chosen]))
    if count := len(importing) - len(chosen):
        sys.stderr.write(f"{count} more test files import what was changed: make test runs them\n")


if __name__ == "__main__":
    main()
