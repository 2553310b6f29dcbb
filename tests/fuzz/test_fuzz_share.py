"""A short share of `make fuzz`, other inputs in every run of `make test`, without atheris."""

from __future__ import annotations

import ast
import os
import random
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.drawn import IS_ALL, times

from .corpus import Corpus
from .engine import fuzz, run_quietly
from .targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

FORMATS_DIR = Path(__file__).parents[2] / "storage/formats"
BYTES_TYPE = re.compile(r"\b(Buf|BytesLike|bytes|bytearray|memoryview)\b")
WRITERS = ("compress", "encode_", "json_", "write_")
SEEDS_OF_EACH = 4


@pytest.fixture(scope="module")
def corpus(golden: Callable[[str], Path]) -> Corpus:
    return Corpus(golden)


@pytest.mark.share(20)
@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_give_a_value_or_a_format_error(name: str, corpus: Corpus) -> None:
    target = TARGETS[name]
    seeds = target.seeds(corpus)
    rng = random.Random(f"{'eoctl' if IS_ALL else os.environ['EOCTL_SEED']} {name}")
    runs_count = times(target.share_runs, len(seeds) + (target.share_runs - len(seeds)) // 3)
    report = fuzz(target, seeds, rng=rng, runs_count=runs_count)
    assert report.runs_count == runs_count > len(seeds)


@pytest.mark.share(8)
@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_good(name: str, corpus: Corpus) -> None:
    """What begins with an error hardly ever gets behind it."""
    target = TARGETS[name]
    accepted_count = 0
    seeds = target.seeds(corpus)
    for seed in seeds:
        try:
            target.run(seed)
        except target.allowed:
            continue
        accepted_count += 1
    assert accepted_count * 2 >= len(seeds) > 0


def _parsers() -> set[str]:
    """Public functions of storage/formats that are given bytes or parse text, as `module.name`."""
    found = set()
    for path in FORMATS_DIR.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith(("_", *WRITERS)):
                types = [ast.unparse(each.annotation) for each in node.args.args if each.annotation]
                if node.name.startswith("parse_") or any(map(BYTES_TYPE.search, types)):
                    found.add(f"{path.stem}.{node.name}")
    return found


def test_no_parser_is_forgotten(corpus: Corpus) -> None:
    """Every one of them is called when the seeds are run."""
    codes: set[CodeType] = set()

    def note_call(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    old_profile = sys.getprofile()
    sys.setprofile(note_call)
    try:
        for target in TARGETS.values():
            for seed in target.seeds(corpus)[:SEEDS_OF_EACH]:
                run_quietly(target, seed)
    finally:
        sys.setprofile(old_profile)
    paths = {code: Path(code.co_filename) for code in codes}
    called = {
        f"{path.stem}.{code.co_name}"
        for code, path in paths.items()
        if path.parent.name == FORMATS_DIR.name
    }
    assert _parsers() - called == set()
