"""Every next step that is printed works: each `Next`, `try` and `fix` call is run on a copy."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.cases.states import STATES
from tests.conftest import GOLDEN_DIR
from tests.damage.conftest import copied as copied  # noqa: PLC0414 - a fixture
from tests.damage.planted import FAULTS
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.damage.planted.shape import Fault
    from tests.running import Outcome

    Cli = Callable[..., Outcome]

# What prints next steps; % is the log dir, @ each partition.
CALLS = (
    "check %", "check --deep %", "repair %", "repair --strategy salvage %", "describe %",
    "txn hanging %", "txn list %", "groups list %", "producers %", "duplicates %", "loss %",
    "start-order %", "metadata --durability %", "journal list %", "undo %", "spark-audit --engine local %",
    "recover-state @", "rebuild @", "consume @", "truncate --to-hw @", "describe @",
)  # fmt: skip
STEP = re.compile(r"^ *(?:Next +|try: |[A-Z]\w* +)?(eoctl .*)$", re.MULTILINE)
# A word that a person has to replace.
PLACEHOLDER = re.compile(r"\.\.\.|[A-Z][A-Z-]+\b(?!=)")
# Wrong calls, calls that cannot read what was named, and errors of ours.
BAD_STATUSES = {2, 3, 70}


class Step(NamedTuple):
    """A call, the call that printed it, and the path of the finding that it is the fix of."""

    call: str
    source: str
    path: str


def said_by(done: Outcome) -> str:
    """Return both streams; records may be any bytes."""
    return (done.stdout + b"\n" + done.stderr).decode(errors="replace")


def steps_of(eoctl: Cli, log_dir: Path) -> Iterator[Step]:
    """Give each call once."""
    reported: set[str] = set()
    partitions = sorted(each for each in log_dir.rglob("*-*") if each.is_dir())
    for call in CALLS:
        for place in [log_dir] if "%" in call else partitions:
            words = [str(place) if each in {"%", "@"} else each for each in call.split()]
            done = eoctl(*words, "--output", "table", "--color", "never", "--no-pager")
            found = [(each, "") for each in STEP.findall(said_by(done))]
            if call == "check %":
                rows = eoctl(*words, "--output", "jsonl").text.splitlines()
                findings = [each for each in map(json.loads, rows) if each["kind"] == "finding"]
                found += [(each["fix"], place_of(log_dir, each)) for each in findings]
            for step, path in found:
                text = step.partition("   #")[0].strip()
                is_whole = text.startswith("eoctl ") and "\N{HORIZONTAL ELLIPSIS}" not in text
                is_call = is_whole and not PLACEHOLDER.search(text.replace(str(log_dir), ""))
                if is_call and text not in reported:
                    reported.add(text)
                    yield Step(text, " ".join(words), path)


def place_of(log_dir: Path, finding: dict[str, Any]) -> str:
    """Return the partition of a finding, else its file."""
    if not finding["topic"]:
        return str(finding["path"])
    return str(log_dir / f"{finding['topic']}-{finding['partition']}")


def wrong_with(step: Step, done: Outcome) -> Iterator[str]:
    """Tell why a call that was run is no next step."""
    said = said_by(done)
    if done.status in BAD_STATUSES or "Traceback" in said:
        yield f"status {done.status}"
    named = [each for each in shlex.split(step.call, comments=True) if "/" in each]
    for each in named:
        if re.search(rf"{re.escape(each)}: (skipped|\w+ is never changed)", said):
            yield f"{each} is skipped"
    if "there is nothing to repair" in said:
        yield "there is nothing to repair"
    is_its_place = any(each in step.path or step.path in each for each in named)
    if step.path and named and not is_its_place:
        yield f"it is about another place than {step.path}"


def faults_of(eoctl: Cli, log_dir: Path) -> Iterator[str]:
    """Run each next step on a fresh copy, and tell which do not work."""
    kept = log_dir.with_name(f"{log_dir.name}.kept")
    shutil.copytree(log_dir, kept, symlinks=True)
    for step in [*steps_of(eoctl, log_dir)]:
        done = eoctl(*shlex.split(step.call, comments=True)[1:], "--color", "never")
        for wrong in wrong_with(step, done):
            last = done.errors.strip().splitlines()[-2:]
            yield f"{step.source}\n    {step.call}\n    {wrong}: {last}"
        shutil.rmtree(log_dir)
        for journal in log_dir.parent.glob(f"{log_dir.name}.eoctl*"):
            shutil.rmtree(journal)
        shutil.copytree(kept, log_dir, symlinks=True)


@pytest.mark.share(2)
@pytest.mark.parametrize("name", STATES)
def test_of_cases(name: str, case: Callable[[str], Path], eoctl: Cli) -> None:
    faults = [*faults_of(eoctl, case(name))]
    assert not faults, "\n".join(faults)


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_of_damage(fault: Fault, copied: Callable[[Fault], Path], eoctl: Cli) -> None:
    log_dir = copied(fault)
    fault.planted_in(log_dir)
    faults = [*faults_of(eoctl, log_dir)]
    assert not faults, "\n".join(faults)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(each.name[:-7] for each in GOLDEN_DIR.glob("*.tar.xz")))
def test_of_golden_directories(
    name: str, golden_log_dirs: dict[str, list[Path]], eoctl: Cli, tmp_path: Path
) -> None:
    faults: list[str] = []
    for number, log_dir in enumerate(golden_log_dirs.get(name, ())):
        faults += faults_of(eoctl, copy_log_dir(log_dir, tmp_path / str(number) / "d"))
    assert not faults, "\n".join(faults)
