"""Run the calls, compare their digests with the saved ones, or record them."""

from __future__ import annotations

import argparse
import datetime as dt
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl import clock, progress
from tests.digests.calls import changing, exporting, reading
from tests.digests.states import State, Unpacked, all_states
from tests.in_process import called, streams_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SAVED = Path(__file__).parent / "saved.txt"
KERNELS = ("native", "pure")
WORK = Path("/tmp/eoctl-digests")  # always the same: paths are among what is printed
NOW = dt.datetime(2026, 11, 21, 9, tzinfo=dt.UTC)
# What differs from run to run: ids of journals and of temporary files, and how long it took.
DRAWN = (
    (re.compile(rb"\d{8}T\d{6}(?:\.\d+)?Z?(-[a-z-]+-)[0-9a-f]{4}"), rb"TIME\1ID"),
    (re.compile(rb"kernel: \w+"), rb"kernel"),
    (re.compile(rb'"pid":\d+|process \d+'), b"PID"),
)


class Capture:
    """Runs calls of eoctl in this process, and keeps what went through its descriptors."""

    def __init__(self, work: Path) -> None:
        self._files = work / "stdout", work / "stderr"

    def call(self, words: list[str]) -> tuple[int, bytes, bytes]:
        with streams_in(*self._files):
            status = called(words)
        found = []
        for file in self._files:
            text = file.read_bytes()
            for pattern, put in DRAWN:
                text = pattern.sub(put, text)
            found.append(text)
        return status, found[0], found[1]


def digest_of(*parts: object) -> str:
    """Return a short digest of values."""
    data = b"\0".join(each if isinstance(each, bytes) else str(each).encode() for each in parts)
    return hashlib.sha256(data).hexdigest()[:10]


def tree_of(directory: Path) -> str:
    """Return a digest of all names and contents below a directory."""
    found: list[object] = []
    for path in sorted(directory.rglob("*")):
        found += [path.relative_to(directory), path.is_dir()]
        if path.is_file():
            found.append(path.read_bytes())
    return digest_of(*found)


def settled(state: State, out: Path) -> Path:
    """Write a directory, with times that are always the same."""
    out.mkdir(parents=True)
    made = state.make(out)
    for path in [*out.rglob("*")]:
        if not path.is_symlink():
            os.utime(path, (NOW.timestamp() - 86_400,) * 2)
    return made


class Result(NamedTuple):
    """What came of a call: `digest` is of all, `text` of what was printed and written."""

    words: list[str]
    status: int
    digest: str
    text: bytes

    @property
    def verb(self) -> str:
        return f"{self.words[0]} --apply" if self.words[-1] == "--apply" else self.words[0]


def results_of(state: State, work: Path, capture: Capture) -> Iterator[Result]:
    """Make all calls on a directory."""
    out = work / state.name
    log_dir = settled(state, out)
    os.chdir(out)
    place = str(log_dir.relative_to(out))
    for words in reading(log_dir, place):
        status, stdout, stderr = capture.call(words)
        yield Result(words, status, digest_of(status, stdout, stderr), stdout + stderr)
    for words in exporting(log_dir, place):
        target = out / "exported"
        status, *printed = capture.call([str(target) if each == "OUT" else each for each in words])
        text = b"".join(printed)
        yield Result(words, status, digest_of(status, text, tree_of(target)), text)
        shutil.rmtree(target, ignore_errors=True)
    changes = [*changing(log_dir, place)]
    os.chdir(work)
    shutil.rmtree(out)
    for number, words in enumerate(changes):
        yield from changed(state, words, work / f"{state.name}.{number}", capture)


def changed(state: State, words: list[str], out: Path, capture: Capture) -> Iterator[Result]:
    """Apply a change, and take it back."""
    log_dir = settled(state, out)
    os.chdir(out)
    place = str(log_dir.relative_to(out))
    for call in ([*words, "--apply"], ["undo", place]):
        if call[0] == "undo" and not [*log_dir.parent.glob(f"{log_dir.name}.eoctl/*")]:
            break  # nothing was changed
        status, stdout, stderr = capture.call([*call, "-o", "jsonl"])
        text, tree = stdout + stderr, tree_of(log_dir)
        yield Result(call, status, digest_of(status, text, tree), text + f"files {tree}".encode())
    os.chdir(out.parent)
    shutil.rmtree(out)


def still(put: Callable[[object, str, object], None]) -> None:
    """Stop the clock, and say nothing of progress."""
    put(clock, "wall_ms", lambda: int(NOW.timestamp() * 1000))
    put(progress, "QUIET_SECONDS", 1e9)


def work_on(part: str) -> None:
    """Print the digests of a share of the states, `NUMBER/COUNT`."""
    number, count = map(int, part.split("/"))
    still(setattr)
    with tempfile.TemporaryDirectory() as name:
        own = Path(name)
        capture = Capture(own)
        states = all_states(Unpacked(own / "golden"))
        for state in states[number::count]:
            by_verb: dict[str, list[str]] = {}
            for each in results_of(state, WORK, capture):
                by_verb.setdefault(each.verb, []).append(each.digest)
            for verb, found in by_verb.items():
                print(f"{state.name}\t{verb}\t{len(found)}\t{digest_of(*found)}", flush=True)


def show(name: str, verb: str) -> None:
    """Print what the calls of a verb ("": of all) on a directory give."""
    still(setattr)
    with tempfile.TemporaryDirectory() as directory:
        own = Path(directory)
        (state,) = (each for each in all_states(Unpacked(own / "golden")) if each.name == name)
        for each in results_of(state, WORK, Capture(own)):
            if verb in {"", each.verb}:
                head = f"$ eoctl {' '.join(each.words)}   # status {each.status}, {each.digest}\n"
                sys.stdout.buffer.write(head.encode() + each.text + b"\n")
                sys.stdout.buffer.flush()


def digests_of(kernel: str, share: int, jobs: int) -> dict[str, str]:
    """Return the digests by directory and verb, with one kernel, of every `share`-th directory."""
    environment = {**os.environ, "EOCTL_KERNEL": kernel, "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    environment |= {"COLUMNS": "80", "NO_COLOR": "1", "EOCTL_PAGER": "cat"}
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.digests", "--part", f"{each * share}/{jobs * share}"],
            stdout=subprocess.PIPE, env=environment, text=True,
        )
        for each in range(jobs)
    ]  # fmt: skip
    found: dict[str, str] = {}
    for each in workers:
        text, _ = each.communicate()
        if each.returncode:
            raise SystemExit(f"a worker ended with {each.returncode}")
        for line in text.splitlines():
            name, verb, count, digest = line.split("\t")
            found[f"{name}\t{verb}"] = f"{count}\t{digest}"
    return found


@contextmanager
def one_run_at_a_time() -> Iterator[None]:
    with (WORK / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in WORK.iterdir():  # by a run that was killed
            if left.is_dir():
                shutil.rmtree(left)
        yield


def main() -> int:
    """Compare or record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--share", type=int, default=1, help="every N-th directory")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kernel", choices=KERNELS, help="one alone; else both, which must agree")
    parser.add_argument("--part")
    parser.add_argument("--show", nargs="+", metavar="NAME [VERB]")
    options = parser.parse_args()
    if options.part:
        work_on(options.part)
        return 0
    WORK.mkdir(exist_ok=True)
    if options.show:
        name, verb = [*options.show, ""][:2]
        with one_run_at_a_time():
            show(name, verb)
        return 0
    with one_run_at_a_time():
        kernels = [options.kernel] if options.kernel else KERNELS
        by_kernel = [digests_of(each, options.share, options.jobs) for each in kernels]
    found, *more = by_kernel
    others = [place for one in more for place, each in one.items() if found.get(place) != each]
    for place in others:
        print(f"the kernels differ: {place}")
    calls = len(by_kernel) * sum(int(each.partition("\t")[0]) for each in found.values())
    if options.record:
        SAVED.write_text("".join(f"{place}\t{each}\n" for place, each in sorted(found.items())))
        print(f"{calls} calls, recorded")
        return int(bool(others))
    if not SAVED.exists():
        print("nothing is recorded yet: make digests-record")
        return 1
    lines = [each.split("\t", 2) for each in SAVED.read_text().splitlines()]
    saved = {f"{name}\t{verb}": rest for name, verb, rest in lines}
    changed = [place for place, each in found.items() if saved.get(place) != each]
    if options.share == 1:
        changed += [place for place in saved if place not in found]
    for place in changed:
        print(f"changed: {place}")
    print(f"{calls} calls, {len(changed)} of {len(found)} groups changed")
    return int(bool(changed or others))


if __name__ == "__main__":
    sys.exit(main())
