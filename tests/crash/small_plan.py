"""A log dir of a few bytes, and a plan for it with a step of each kind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from recovery.changes.apply import apply_plan
from recovery.changes.plans.plan import make_plan, remove_step, replace_step, truncate_step
from recovery.changes.undo import undo
from storage.file_names import CLEAN_SHUTDOWN_NAME
from storage.files.broker_lock import take

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.changes.plans.plan import Plan
    from storage.files.fsio import FileSystem

PLAN_ID = "20261121T000000.000Z-test-0001"
LOG = "t-0/00000000000000000000.log"
OLD_NS = 1_700_000_000_123_456_789
FILES = {
    "meta.properties": b"version=1\n",
    "recovery-point-offset-checkpoint": b"0\n1\nt 0 30\n",
    CLEAN_SHUTDOWN_NAME: b'{"version":0,"brokerEpoch":5}',
    LOG: b"first batch|second batch" + bytes(40),
    "t-0/00000000000000000000.index": bytes(range(1, 25)),
    "t-0/00000000000000000020.log": b"a later segment",
    "t-0/00000000000000000030.log": b"the last segment",
    "t-0/leader-epoch-checkpoint": b"0\n1\n0 0\n",
}
AFTER = {
    "recovery-point-offset-checkpoint": b"0\n1\nt 0 12\n",
    LOG: b"first batch|",
    "t-0/00000000000000000000.index": bytes(range(1, 9)),
    "t-0/00000000000000000012.snapshot": b"new",
}
GONE = {
    CLEAN_SHUTDOWN_NAME,
    "t-0/00000000000000000020.log",
    "t-0/00000000000000000030.log",
}


def prepare(root: Path) -> None:
    log_dir = root / "log-dir"
    (log_dir / "t-0").mkdir(parents=True, mode=0o750)
    log_dir.chmod(0o700)
    (log_dir / ".lock").touch()
    for number, (name, data) in enumerate(FILES.items()):
        path = log_dir / name
        path.write_bytes(data)
        path.chmod(0o640 if number % 2 else 0o600)
        os.utime(path, ns=(OLD_NS + number, OLD_NS + number))


def plan_of(root: Path) -> Plan:
    """A step of each kind, on each kind of file."""
    log_dir = root / "log-dir"
    steps = [
        replace_step(
            str(log_dir / "recovery-point-offset-checkpoint"),
            AFTER["recovery-point-offset-checkpoint"],
            "lower",
        ),
        remove_step(str(log_dir / "t-0/00000000000000000030.log"), "above the end"),
        remove_step(str(log_dir / "t-0/00000000000000000020.log"), "above the end"),
        truncate_step(str(log_dir / LOG), 12, "cut"),
        truncate_step(str(log_dir / "t-0/00000000000000000000.index"), 8, "cut"),
        replace_step(str(log_dir / "t-0/00000000000000000012.snapshot"), b"new", "at the end"),
    ]
    return make_plan("test", {}, steps, {})._replace(plan_id=PLAN_ID)


def apply(fs: FileSystem, plan: Plan, **options: object) -> None:
    with take(plan.log_dirs, fs=fs):
        apply_plan(fs, plan, **options)  # type: ignore[arg-type]


def revert(fs: FileSystem, root: Path, place: str = "log-dir.eoctl") -> None:
    with take([root / "log-dir"], fs=fs):
        undo(fs, str(root / place / PLAN_ID))
