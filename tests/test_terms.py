"""eoctl-terms(7) defines each term of ours that an output prints: labels of answers, and states."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.clients.copying.copier import ComparisonOutcome
from eoctl.clients.copying.resume import Exactness
from recovery.changes.journals.journal import BackupKind, Status
from recovery.changes.plans.plan import Action
from recovery.cluster.in_sync import AckStanding
from recovery.duplicates.spill import DuplicateCause, DuplicateKind
from recovery.groups.group_log import OffsetPlace
from recovery.groups.incoming import Taken
from recovery.loss.rows import ChangeKind, LossKind
from recovery.rebuild.diff import FileState
from recovery.repair.strategies import Strategy
from recovery.replay.recover_state import EntryState
from recovery.replicas.compare import Likeness
from recovery.rules.findings import Severity
from recovery.start.files import StartAction
from recovery.transactions.open_transactions import TransactionVerdict
from recovery.truncate.cost import CutOutcome
from storage.dirs.acknowledged_offsets import ReplicaStanding
from storage.dirs.log_dir import StoppedState
from storage.dirs.topic_settings import SettingSource
from storage.file_names import DirState
from storage.kernels.protocol import VerdictKind
from storage.log.decoded_records import BatchOutcome
from storage.writing.partition_store import FileAction

if TYPE_CHECKING:
    from enum import StrEnum

ROOT = Path(__file__).parents[1]
# Enumerations whose values are printed.
STATES: tuple[type[StrEnum], ...] = (
    AckStanding, Action, BackupKind, BatchOutcome, ChangeKind, ComparisonOutcome, ReplicaStanding, CutOutcome,
    DirState, DuplicateCause, DuplicateKind, EntryState, Exactness, FileAction, FileState, Likeness,
    LossKind, OffsetPlace, SettingSource, Severity, StartAction, Status, StoppedState, Strategy, Taken,
    TransactionVerdict, VerdictKind,
)  # fmt: skip


def defined_terms() -> set[str]:
    """Return the words in code of eoctl-terms(7): `.Cm` and the lists behind `Cm` in `.It`."""
    page = (ROOT / "man/eoctl-terms.7").read_text()
    lines = re.findall(r"^\.(?:It .*?)?Cm (.*)$", page, re.MULTILINE)
    return {each.strip(" .") for line in lines for each in line.split(" , ")}


def answer_labels() -> set[str]:
    """Return the labels of answers: what `Said` is called with."""
    texts = [path.read_text() for path in (ROOT / "eoctl").rglob("*.py")]
    return {label for text in texts for label in re.findall(r'\bSaid\(\s*"([^"]+)"', text)}


def test_terms_of_outputs_are_defined() -> None:
    labels = answer_labels()
    assert {"Start", "Lost", "Next", "Undo"} <= labels
    states = {value for each in STATES for value in each}
    assert sorted((labels | states) - defined_terms()) == []
