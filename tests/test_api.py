"""The examples of docs/api.md, run on a golden log; and what the two functions say of bad paths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage import open_partition, open_segment
from storage.errors import AccessError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs/api.md").read_text(), re.DOTALL)


@pytest.fixture
def partition(
    golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A partition of a real broker, below the working directory as in the examples."""
    (tmp_path / "orders-0").symlink_to(golden("kafka-4.3.1") / "clean" / "plain-0")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "orders-0"


def run(example: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    exec(compile(example, "docs/api.md", "exec"), {})
    return capsys.readouterr().out.splitlines()


def test_the_examples_run(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches, records, facts = (run(each, capsys) for each in EXAMPLES)
    with open_segment(partition / "00000000000000000000.log") as segment:
        found = list(segment.scan())
    assert [line.split()[0] for line in batches] == [str(each.header.base_offset) for each in found]
    assert all(line.endswith("True") for line in batches)
    log_end = open_partition(partition).log_end()
    assert log_end is not None
    offsets = [int(line.split()[0]) for line in records if line[0].isdigit()]
    assert offsets == list(range(log_end.offset))
    assert facts[0].startswith("0 ")


def test_what_is_no_partition_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        open_partition(tmp_path)
    with pytest.raises(AccessError):
        open_segment(tmp_path / "00000000000000000000.log")
