"""The commands: their groups, their order, and their modules."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


class Subcommands(Mapping[str, Callable[..., int | None]]):
    """Subcommands by name. A module is imported when the command line names its command.

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


# Group -> command -> its summary in the list of commands.
GROUPS: dict[str, dict[str, str]] = {
    "Diagnose": {
        "check": "Check directories against the rules of a Kafka broker.",
        "forecast": "Forecast what a broker deletes and cleans after its start.",
        "describe": "Summarise partitions or whole log directories.",
        "loss": "Show lost, duplicate and aborted records.",
        "diff": "Compare records, topics, settings and groups of two copies.",
        "duplicates": "Find duplicate records, and say who wrote them.",
        "txn": "Find open, hanging and torn transactions, and end them.",
        "groups": "Show consumer groups, and export or import their offsets.",
        "report": "Write one HTML page with timelines for an incident.",
    },
    "Choose a broker": {
        "start-order": "Choose which stopped broker to start first.",
        "replicas": "Compare replicas, or make one follow another.",
        "metadata": "Show leaders, ISR, brokers and settings, now or earlier.",
    },
    "Get data out": {
        "export": "Export records as Parquet or JSON Lines.",
        "serve": "Serve stopped brokers' directories to Kafka clients.",
        "consume": "Print records as a consumer gets them.",
        "copy": "Append one partition to another, exactly once.",
    },
    "Repair": {
        "repair": "Repair partitions as a broker would, or with less loss.",
        "truncate": "Truncate a partition to an offset, a time or an epoch.",
        "reclaim": "Free a full disk, without loss first.",
        "trim": "Delete the oldest records of a partition, as DeleteRecords.",
        "rebuild": "Rebuild indexes, snapshots and epochs from .log files.",
        "adopt": "Start a new cluster with the data of lost brokers.",
    },
    "Apply and undo": {
        "apply": "Apply a saved plan, or complete an interrupted change.",
        "undo": "Restore what an applied plan changed.",
        "journal": "List, show and prune the journals of applied plans.",
    },
    "Inspect": {
        "dump-segment": "Print any file of a log directory as kafka-dump-log does.",
        "locate": "Find an offset, a time, a key or a position.",
        "recover-state": "Show the producer state that a broker would recover.",
        "producers": "Count producer ids, and estimate their heap.",
        "releases": "Show which releases of Kafka start here, and what they drop.",
    },
    "Write": {
        "init": "Create a log directory with topics, ready for a broker.",
        "produce": "Append lines to a partition directory.",
        "lease-pid": "Lease producer ids to applications, and fence old holders.",
    },
    "At scale": {
        "spark-audit": "Audit transactions, duplicates and replicas on Spark.",
    },
    "Lab": {
        "sim": "Simulate a cluster over real log directories.",
        "bench": "Measure real brokers, and audit what they acknowledged.",
    },
}
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}


def module_of(command: str) -> ModuleType:
    """Import and return the module of a command."""
    return importlib.import_module(f"eoctl.commands.{command.replace('-', '_')}")


def wanted_command(arguments: list[str], place: int = 0) -> str | None:
    """Return the first word that is not an option, which is the command, or a later word."""
    words = [each for each in arguments if not each.startswith("-")]
    return words[place] if place < len(words) else None
