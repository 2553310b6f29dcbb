"""python -m tests.fuzz.guided TARGET [libFuzzer's options]: one target under atheris."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["storage", "recovery", "eoctl"]):
    from .engine import MEASURE_EVERY, check_memory, run_quietly
    from .mutations import Mutator
    from .targets import TARGETS


def main() -> None:
    """Fuzz until the time is over (libFuzzer ends the process) or something fails."""
    name, *options = sys.argv[1:]
    target = TARGETS[name]
    others = [b"", *(path.read_bytes() for path in sorted(Path(options[-1]).iterdir()))]
    rng = random.Random()
    mutator = Mutator(rng, target.words, target.repair)
    runs_count = 0

    def run(data: bytes) -> None:
        nonlocal runs_count
        runs_count += 1
        run_quietly(target, data)
        if runs_count % MEASURE_EVERY == 0:
            check_memory(target, data)

    def mutate(data: bytes, max_bytes: int, seed: int) -> bytes:
        rng.seed(seed)
        if rng.random() < 0.5:
            return mutator.repaired(atheris.Mutate(data, max_bytes))[:max_bytes]
        return mutator.mutate(data, rng.choice(others), max_bytes)[:max_bytes]

    atheris.Setup([sys.argv[0], *options], run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
