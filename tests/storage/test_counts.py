"""Numbers agree with their nouns and verbs, by one function for all sentences."""

from __future__ import annotations

import re
from pathlib import Path

from storage.counts import agreeing, counted

ROOT = Path(__file__).parents[2]
# A plural that is put together by hand.
BY_HAND = re.compile(r"""["']s["'] ?\* ?\(|["']s["'] if |["']{2} if \w+ == 1 else ["']s""")


def test_noun_and_verb() -> None:
    assert counted(1, "record") == "1 record"
    assert counted(0, "record") == "0 records"
    assert counted(1200, "batch", "batches") == "1,200 batches"
    assert [agreeing(each, "ends", "end") for each in (0, 1, 2)] == ["end", "ends", "end"]


def test_no_plural_is_made_by_hand() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for room in ("eoctl", "recovery", "storage")
        for path in sorted((ROOT / room).rglob("*.py"))
        for line in path.read_text().splitlines()
        if BY_HAND.search(line)
    ]
    assert found == []
