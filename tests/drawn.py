"""What `make test` leaves to `make test-all`.

`make test` runs the same tests each time. Its random data have a fixed seed, and so have the samples
of what is enumerated (crash states, damaged places, combinations). `make test-all` (EOCTL_TESTS=all)
runs all of it, with a new seed in each run, which the end of the run prints. EOCTL_SEED repeats a run.

`@pytest.mark.exhaustive` marks a test for `make test-all` alone. `@pytest.mark.share(2)` runs two
cases of a parametrised test. A test that is named on the command line, with `::`, runs whole.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest


T = TypeVar("T")

IS_ALL = os.environ.get("EOCTL_TESTS", "") == "all"
FIXED_SEED = 1


def seed_of_this_run() -> int:
    """Return the seed of all that is random in this run."""
    return random.SystemRandom().randrange(2**32) if IS_ALL else FIXED_SEED


def drawn(choices: Iterable[T], count: int, *what_for: object) -> list[T]:
    """Return `count` of the choices, in their order; all of them in `make test-all`.

    What for and the running test are part of the seed, so tests draw different places.
    """
    every = list(choices)
    if IS_ALL or len(every) <= count:
        return every
    rng = random.Random(
        f"{os.environ['EOCTL_SEED']} {what_for} {os.environ.get('PYTEST_CURRENT_TEST')}"
    )
    return [every[place] for place in sorted(rng.sample(range(len(every)), count))]


def outside_share(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests and cases that only `make test-all` runs."""
    if IS_ALL:
        return []
    left: list[pytest.Item] = []
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("exhaustive"):
            left.append(item)
        elif item.get_closest_marker("share"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for test, found in cases.items():
        mark = found[0].get_closest_marker("share")
        assert mark is not None
        chosen = {each.nodeid for each in drawn(found, *mark.args, test)}
        left += [each for each in found if each.nodeid not in chosen]
    return left


def examples(whole: int) -> int:
    """Return how many examples a property test draws."""
    return whole if IS_ALL else max(whole // 6, 5)


def times(whole: int, share: int) -> int:
    """Return how often something random is tried."""
    return whole if IS_ALL else share
