"""The faults that are planted for `eoctl check`: each is what it says, and nothing of ours helps."""

from __future__ import annotations

import ast
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import crc32c
import pytest

from recovery.rules.catalogue import PAGES
from tests.damage import planted
from tests.damage.planted import FAULTS, NOT_PLANTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.damage.planted.shape import Fault

MODULES = sorted(Path(planted.__file__).parent.glob("*.py"))
# Rules that `check` reports. Those of the page `formats` are broken by the tests of each format.
RULES = {
    rule.check_id
    for page in PAGES
    if page.name != "formats"
    for rule in page.rules
    if rule.severity is not None
}
# A fault with one of these leaves a `.log` that cannot be walked, or a batch with a bad checksum.
SPOILED = {"BAT-1", "BAT-2", "KRF-2", "SEG-5", "SEG-6"}


def _contents(directory: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
    }


def _wrong_checksums(data: bytes) -> Iterator[int]:
    """Positions of the batches and messages whose checksum is wrong; all of the file is walked."""
    pos = 0
    while pos < len(data):
        length = int.from_bytes(data[pos + 8 : pos + 12])
        crc_pos, crc = (17, crc32c.crc32c) if data[pos + 16] == 2 else (12, zlib.crc32)
        stored = int.from_bytes(data[pos + crc_pos : pos + crc_pos + 4])
        if stored != crc(data[pos + crc_pos + 4 : pos + 12 + length]):
            yield pos
        pos += 12 + length
    assert pos == len(data)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_planting(fault: Fault, copied: Callable[[Fault], Path], tmp_path: Path) -> None:
    """It changes something, keeps the clock, and spoils only the checksums that it means to."""
    log_dir = copied(fault)
    before = _contents(tmp_path)
    clock = max(path.stat().st_mtime_ns for path in log_dir.glob("*-offset-checkpoint"))
    expected = fault.planted_in(log_dir)
    after = _contents(tmp_path)
    assert after != before
    assert clock == max(path.stat().st_mtime_ns for path in log_dir.glob("*-offset-checkpoint"))
    if SPOILED & {each.check_id for each in expected}:
        return
    for name, data in after.items():
        if name.endswith(".log") and data != before.get(name):
            assert data is not None
            assert list(_wrong_checksums(data)) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_faults_import_nothing_of_ours(path: Path) -> None:
    """A mistake that a fault had in common with the check would go unseen."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module or "")
    ours = {
        name for name in names if name.split(".")[0] in {"eoctl", "recovery", "storage", "tests"}
    }
    assert {name for name in ours if not name.startswith("tests.damage.planted")} == set()


def test_every_rule_has_a_fault() -> None:
    """Or a reason why it has none."""
    sources = "".join(path.read_text() for path in MODULES)
    broken = set(re.findall(r'Expected\(\s*"([A-Z]{3}-\d+b?)"', sources))
    assert RULES - broken - set(NOT_PLANTED) == set()
    assert set(NOT_PLANTED) <= RULES
    assert broken.isdisjoint(NOT_PLANTED)


def test_names_are_distinct() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
