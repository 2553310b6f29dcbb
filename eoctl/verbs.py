"""The commands: where each is, and what the list of them says."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple


class Subcommands(Mapping[str, Callable[..., int | None]]):
    """Commands of a family by name; a module is imported when its command is asked for.

    `places`: name -> "module:function".
    """

    def __init__(self, places: dict[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> Callable[..., int | None]:
        module, _, function = self._places[name].partition(":")
        found: Callable[..., int | None] = getattr(importlib.import_module(module), function)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class CommandEntry(NamedTuple):
    """Where a command lives and what the list of commands says of it."""

    module: str
    summary: str


COMMANDS = {
    "init": CommandEntry(
        "eoctl.commands.init", "Make a log dir from nothing, with topics, ready for a broker."
    ),
    "adopt": CommandEntry(
        "eoctl.commands.adopt", "Bring up what dead brokers left, under a new cluster."
    ),
    "dump-segment": CommandEntry(
        "eoctl.commands.dump_segment", "Print any file of a log directory as kafka-dump-log does."
    ),
    "describe": CommandEntry(
        "eoctl.commands.describe", "Summarise partitions or whole log directories."
    ),
    "check": CommandEntry(
        "eoctl.commands.check", "Check directories against the rules a broker lives by."
    ),
    "report": CommandEntry(
        "eoctl.commands.report", "Make one HTML file with timelines, to attach to an incident."
    ),
    "rebuild": CommandEntry(
        "eoctl.commands.rebuild", "Rebuild indexes, snapshots and epochs from the .log files."
    ),
    "recover-state": CommandEntry(
        "eoctl.commands.recover_state", "Show the producer state a broker would recover."
    ),
    "locate": CommandEntry(
        "eoctl.commands.locate", "Find where an offset, a time, a key or a position lies."
    ),
    "produce": CommandEntry("eoctl.commands.produce", "Append lines to a partition directory."),
    "consume": CommandEntry(
        "eoctl.commands.consume", "Print the records of a partition as a consumer gets them."
    ),
    "serve": CommandEntry(
        "eoctl.commands.serve", "Serve dead brokers' directories to every Kafka client."
    ),
    "copy": CommandEntry(
        "eoctl.commands.copy", "Append one partition to another one, exactly once."
    ),
    "repair": CommandEntry(
        "eoctl.commands.repair", "Mend damaged partitions: as a broker would, or losing less."
    ),
    "truncate": CommandEntry(
        "eoctl.commands.truncate", "Cut a partition back to an offset, a time, an epoch."
    ),
    "txn": CommandEntry(
        "eoctl.commands.txn", "Find open, hanging and torn transactions, and abort them."
    ),
    "groups": CommandEntry(
        "eoctl.commands.groups", "Show consumer groups of dead brokers, and bring offsets over."
    ),
    "replicas": CommandEntry(
        "eoctl.commands.replicas", "Compare copies of a partition, or make one follow another."
    ),
    "cluster-state": CommandEntry(
        "eoctl.commands.cluster_state", "Say who leads and is in sync, by the metadata, over time."
    ),
    "advise": CommandEntry(
        "eoctl.commands.advise", "Say which dead broker to start first, and what is lost."
    ),
    "sim": CommandEntry(
        "eoctl.commands.sim", "Simulate a replica set over real log dirs, and judge what is lost."
    ),
    "bench": CommandEntry(
        "eoctl.commands.bench", "Measure real brokers, and audit what of it has landed."
    ),
    "apply": CommandEntry(
        "eoctl.commands.apply", "Apply a saved plan, or complete an interrupted one."
    ),
    "undo": CommandEntry("eoctl.commands.undo", "Put back what an applied plan has changed."),
    "journal": CommandEntry(
        "eoctl.commands.journal", "List, show and prune the journals of applied plans."
    ),
    "export": CommandEntry(
        "eoctl.commands.export", "Write the records of partitions as Parquet or JSON Lines."
    ),
    "producers": CommandEntry(
        "eoctl.commands.producers", "Count producer ids, and estimate the heap they take."
    ),
    "lease-pid": CommandEntry(
        "eoctl.commands.lease_pid", "Lease producer ids to applications; old holders are fenced."
    ),
    "duplicates": CommandEntry(
        "eoctl.commands.duplicates", "Find duplicate records: proved, or suspected."
    ),
    "loss": CommandEntry(
        "eoctl.commands.loss", "Show records lost, duplicated, aborted, or unlike another copy."
    ),
    "spark-audit": CommandEntry(
        "eoctl.commands.spark_audit", "Audit transactions, duplicates and replicas, at any scale."
    ),
}


def wanted_command(arguments: list[str], place: int = 0) -> str | None:
    """Return the first word that is not an option, the command to load; or a later one."""
    words = [each for each in arguments if not each.startswith("-")]
    return words[place] if place < len(words) else None
