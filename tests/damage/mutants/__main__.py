"""python -m tests.damage.mutants [--count N] [--seed S] [--jobs J]: run mutants, print the sums."""

from __future__ import annotations

import argparse
import random
import sys
import tarfile
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.damage.mutants.run import Result, run

GOLDEN_DIR = Path(__file__).parents[2] / "golden"
SHOWN = 40


def main() -> int:
    """Run; 1 when a reader did something wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", type=int, help="the number of one mutant")
    options = parser.parse_args()
    print(f"{options.count} mutants, --seed {options.seed}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="eoctl-mutants-") as name:
        scratch = Path(name)
        for archive in ("kafka-4.3.1", "kafka-0.10.2-legacy"):
            with tarfile.open(GOLDEN_DIR / f"{archive}.tar.xz") as golden:
                golden.extractall(scratch / archive, filter="data")
        if options.only is not None:
            results = [_part(scratch, options.seed, range(options.only, options.only + 1), 0)]
        else:
            parts = [range(start, options.count, options.jobs) for start in range(options.jobs)]
            with ProcessPoolExecutor(options.jobs) as pool:
                futures = [
                    pool.submit(_part, scratch, options.seed, part, number)
                    for number, part in enumerate(parts)
                ]
                results = [each.result() for each in futures]
    return _report(results, time.monotonic() - began)


def _part(scratch: Path, seed: int, numbers: range, part: int) -> Result:
    own = scratch / f"part-{part}"
    own.mkdir()
    return run(scratch / "kafka-4.3.1", scratch / "kafka-0.10.2-legacy", own, seed, numbers)


def _report(results: list[Result], seconds: float) -> int:
    found = [fault for each in results for fault in each.faults]
    refused = sum((each.refused for each in results), Counter[str]())
    print(
        f"{sum(each.mutants_count for each in results)} mutants,"
        f" {sum(each.damaged_count for each in results)} damaged,"
        f" {sum(each.good_count for each in results)} batches valid by checksum; {seconds:.0f} s"
    )
    print(f"good batches reported as lost: {dict(sorted(refused.items()))}")
    kinds = Counter((each.reader, each.problem.split(" at ")[0].split(" -")[0]) for each in found)
    print(f"wrong: {len(found)}")
    for (reader, kind), count in kinds.most_common():
        print(f"  {reader}: {kind}: {count}")
    for each in found[:SHOWN]:
        print(f"  --only {each.number} {each.reader}: {each.problem}: {each.words}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
