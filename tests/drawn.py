"""A share of what is to be tried, another one in every run; all of it in `make test-all`.

A share is drawn with EOCTL_SEED, which the end of a test run prints: the same seed draws the same.
EOCTL_TESTS=all leaves nothing out.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

IS_ALL = os.environ.get("EOCTL_TESTS", "") == "all"


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


def times(whole: int, share: int) -> int:
    """How often something random is tried."""
    return whole if IS_ALL else share
