"""python -m tests.fuzz [--seconds N] [TARGET...]: fuzz by coverage, and keep what fails.

Each target has a process of its own, under atheris where it is installed, else under the slow
coverage of `engine`. What fails is kept in .cache/fuzz; `--input FILE TARGET` runs it again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from .corpus import Corpus, unpack_golden
from .engine import FuzzError, fuzz, run_quietly
from .segment_targets import memory_dir
from .targets import TARGETS

FAILURES_DIR = Path(".cache/fuzz")
INPUT_MAX_BYTES = 8192
INPUT_MAX_SECONDS = 10
MEMORY_MAX_MIB = 1024
GRACE_SECONDS = 120  # for the start of a process, and for an input that hangs
LAST_LINES = 25
LAST_CHARS = 300  # of each: an input may stand there in full


class Result(NamedTuple):
    """What came of one target: a line about it, and what went wrong, "" if nothing."""

    line: str
    failure: str


def main() -> int:
    """Fuzz each target for a while; 1 when one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="time for each target")
    parser.add_argument("--jobs", type=int, default=1, help="targets at the same time")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 2**31))
    parser.add_argument("--engine", choices=("atheris", "own"), help="default: atheris if present")
    parser.add_argument("--input", type=Path, help="only run this input, in one target")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="their names; default: all")
    options = parser.parse_args()
    names = options.targets or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"no such targets: {sorted(unknown)}; known: {', '.join(TARGETS)}")
    if options.input:
        for name in names:
            run_quietly(TARGETS[name], options.input.read_bytes())
        return 0
    engine = options.engine or ("atheris" if find_spec("atheris") else "own")
    print(f"{len(names)} targets, {options.seconds} s each, {engine}, --seed {options.seed}")
    run = _run_atheris if engine == "atheris" else _run_own
    FAILURES_DIR.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="eoctl-fuzz-") as directory:
        corpus = Corpus(unpack_golden(Path(directory, "golden")))
        calls = []
        for name in names:
            seeds_dir = Path(directory, "seeds", name)
            _write_seeds(seeds_dir, TARGETS[name].seeds(corpus))
            calls.append(partial(run, name, seeds_dir, options.seconds, options.seed))
        if engine == "own":  # it works in this process, whose main thread alone gets alarms
            failed = [_show(call()) for call in calls]
        else:
            with ThreadPoolExecutor(options.jobs) as pool:
                futures = [pool.submit(call) for call in calls]
                failed = [_show(future.result()) for future in futures]
    return int(any(failed))


def _show(result: Result) -> bool:
    print(result.line, flush=True)
    if result.failure:
        print(result.failure, file=sys.stderr, flush=True)
    return bool(result.failure)


def _write_seeds(directory: Path, seeds: list[bytes]) -> None:
    directory.mkdir(parents=True)
    for seed in seeds:
        _keep(directory, "", seed)


def _keep(directory: Path, name: str, data: bytes) -> Path:
    path = directory / f"{name}{hashlib.sha256(data).hexdigest()[:16]}"
    path.write_bytes(data)
    return path


def _run_atheris(name: str, seeds_dir: Path, seconds: int, seed: int) -> Result:
    command = [
        sys.executable, "-m", "tests.fuzz.guided", name,
        f"-max_total_time={seconds}", f"-timeout={INPUT_MAX_SECONDS}", f"-seed={seed}",
        f"-rss_limit_mb={MEMORY_MAX_MIB}", f"-max_len={INPUT_MAX_BYTES}", "-len_control=0",
        f"-artifact_prefix={FAILURES_DIR}/{name}-", "-print_final_stats=1", str(seeds_dir),
    ]  # fmt: skip
    # libFuzzer ends its process without a last word, so its files are removed from here.
    with tempfile.TemporaryDirectory(prefix="eoctl-fuzz-", dir=memory_dir()) as work_dir:
        try:
            done = subprocess.run(
                command, env={**os.environ, "TMPDIR": work_dir}, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                check=False, timeout=seconds + GRACE_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Result(f"{name}: FAILED", f"{name}: did not end by itself")
    lines = done.stdout.splitlines()
    stats = [line.split(":")[-1].strip() for line in lines if "number_of_executed_units" in line]
    status = [line.partition("cov:")[2].split() for line in lines if "cov:" in line]
    text = f"{name}: {stats[-1] if stats else '?'} inputs"
    if status:
        text += f", {status[-1][0]} edges, {status[-1][4].partition('/')[0]} kept"
    if done.returncode == 0:
        return Result(text, "")
    # A traceback is between the statistics; the last of what is left tells where the input is.
    words = [line for line in lines if not line.startswith(("stat::", "#", "INFO:"))]
    shown = (f"  {line[:LAST_CHARS]}" for line in words[-LAST_LINES:])
    return Result(f"{text}: FAILED", "\n".join(shown))


def _run_own(name: str, seeds_dir: Path, seconds: int, seed: int) -> Result:
    seeds = [path.read_bytes() for path in sorted(seeds_dir.iterdir())]
    rng = random.Random(f"{seed} {name}")
    try:
        report = fuzz(TARGETS[name], seeds, rng=rng, seconds=seconds, is_guided=True)
    except FuzzError as failure:
        path = _keep(FAILURES_DIR, f"{name}-", failure.data)
        return Result(f"{name}: FAILED", f"{failure}\n  kept in {path}")
    return Result(
        f"{name}: {report.runs_count} inputs, {report.edges_count} edges,"
        f" {report.corpus_count} kept",
        "",
    )


if __name__ == "__main__":
    sys.exit(main())
