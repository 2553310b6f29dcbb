"""A share of what is to be tried, another one at each landing; all of it in `make test-all`.

A share is drawn with EOCTL_SEED, which the end of a test run prints: the same seed draws the same.
EOCTL_TESTS=all leaves nothing out.

`@pytest.mark.share(2)` runs two of the cases of a parametrised test. `@pytest.mark.in_turn` is for
tests that take long by themselves (most with a broker or Spark): half of all that have it run. A test
that is named on the command line, with `::`, runs whole.
"""

from __future__ import annotations

import os
import random
import subprocess
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest


T = TypeVar("T")

IS_ALL = os.environ.get("EOCTL_TESTS", "") == "all"


def seed_of_the_sources() -> int:
    """Return a seed that each committed state of the sources has of its own.

    So a landing draws other shares, and who tries a commit again sees what failed in it. Where
    sources have changes that are not committed, or without git, it is another one in every run.
    """
    git = ["git", "-C", str(Path(__file__).parents[1])]
    packages = ("storage", "recovery", "eoctl")
    try:
        changed = subprocess.run(
            [*git, "diff", "--quiet", "HEAD", "--", *packages],
            stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        trees = subprocess.run(
            [*git, "rev-parse", *(f"HEAD:{package}" for package in packages)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except OSError:
        return random.SystemRandom().randrange(2**32)
    if changed.returncode or trees.returncode:
        return random.SystemRandom().randrange(2**32)
    return zlib.crc32(trees.stdout)


def drawn(choices: Iterable[T], count: int, *what_for: object) -> list[T]:
    """`count` of the choices, in their order; all of them where nothing is left out.

    What for, and the test that runs, are in the seed: not all draw the same places.
    """
    every = list(choices)
    if IS_ALL or len(every) <= count:
        return every
    rng = random.Random(
        f"{os.environ['EOCTL_SEED']} {what_for} {os.environ.get('PYTEST_CURRENT_TEST')}"
    )
    return [every[place] for place in sorted(rng.sample(range(len(every)), count))]


def outside_share(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The cases of tests marked with `share` that this run leaves to the runs of all tests."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("share"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left: list[pytest.Item] = []
    for test, found in cases.items():
        mark = found[0].get_closest_marker("share")
        assert mark is not None
        chosen = {each.nodeid for each in drawn(found, *mark.args, test)}
        left += [each for each in found if each.nodeid not in chosen]
    return left


def not_their_turn(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The cases of tests marked with `in_turn` that this run leaves to others: half of the tests."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("in_turn"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen = drawn(cases, (len(cases) + 1) // 2, "in turn")
    return [item for test, found in cases.items() if test not in chosen for item in found]


def times(whole: int, share: int) -> int:
    """How often something random is tried."""
    return whole if IS_ALL else share
