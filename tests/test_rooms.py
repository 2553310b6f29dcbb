"""The house: which room may import which, and what stands in each.

A room is a package; `docs/architecture.md` draws them. Imports for types and imports inside of
functions count as all others do.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.sources import tree_of

ROOT = Path(__file__).parents[1]
PACKAGES = ("storage", "recovery", "eoctl")
PATHS = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}

# Modules that stand beside packages and are a room of their own -> that room.
APART = {
    "storage": "storage (front)",
    "recovery.pool": "recovery.pool",
    "eoctl.__main__": "eoctl (program)",
    "eoctl.start": "eoctl (program)",
    "eoctl.main": "eoctl (program)",
    "eoctl.app": "eoctl (program)",
    "eoctl.fast_parser": "eoctl (program)",
    "eoctl.outcome": "eoctl (program)",
    "eoctl.command_table": "eoctl (program)",
}
STORAGE = {
    "storage", "storage.formats", "storage.files", "storage.kernels", "storage.log",
    "storage.producers", "storage.dirs", "storage.places", "storage.writing", "storage (front)",
}  # fmt: skip
# Room -> the rooms that it may import, from the ground up; those of storage are open to all above.
ROOMS: dict[str, set[str]] = {
    "storage": set(),
    "storage.formats": {"storage"},
    "storage.files": {"storage"},
    "storage.kernels": {"storage", "storage.files", "storage.formats"},
    "storage.log": {"storage", "storage.files", "storage.formats", "storage.kernels"},
    "storage.producers": {"storage", "storage.formats", "storage.kernels"},
    "storage.dirs": {
        "storage", "storage.files", "storage.formats", "storage.kernels", "storage.log",
    },
    "storage.places": {
        "storage", "storage.dirs", "storage.files", "storage.formats", "storage.kernels",
        "storage.log",
    },
    "storage.writing": {
        "storage", "storage.dirs", "storage.files", "storage.formats", "storage.kernels",
        "storage.log", "storage.producers",
    },
    "storage (front)": {"storage.dirs", "storage.log"},
    # They know storage only.
    "recovery": set(),
    "recovery.pool": set(),
    "recovery.changes.plans": set(),
    "recovery.changes.journals": {"recovery.changes.plans"},
    "recovery.changes": {"recovery.changes.journals", "recovery.changes.plans"},
    "recovery.cluster": set(),
    "recovery.groups": {"recovery.cluster"},
    "recovery.replay": set(),
    "recovery.rules": set(),
    # What is derived from a log, counted in it, or cut off it.
    "recovery.inspect": {"recovery.forecast", "recovery.replay", "recovery.transactions"},
    "recovery.rebuild": {"recovery.changes.plans", "recovery.pool", "recovery.replay"},
    "recovery.timeline": {"recovery.replay"},
    "recovery.summaries": {"recovery.replay", "recovery.timeline"},
    "recovery.truncate": {
        "recovery.changes.journals", "recovery.changes.plans", "recovery.cluster",
        "recovery.replay",
    },
    "recovery.trim": {
        "recovery.changes.journals", "recovery.changes.plans", "recovery.cluster",
        "recovery.replay", "recovery.truncate",
    },
    "recovery.reclaim": {
        "recovery.changes.journals", "recovery.changes.plans", "recovery.replay", "recovery.trim",
    },
    # What is wrong with it, and what became of its records.
    "recovery.checks.context": {"recovery.replay", "recovery.rules"},
    "recovery.checks.contents": {"recovery.checks.context", "recovery.replay", "recovery.rules"},
    "recovery.checks.log_dirs": {
        "recovery.changes.journals", "recovery.checks.context", "recovery.cluster",
        "recovery.rules",
    },
    "recovery.checks": {
        "recovery.checks.contents", "recovery.checks.context", "recovery.checks.log_dirs",
        "recovery.replay", "recovery.rules", "recovery.summaries",
    },
    "recovery.releases": {
        "recovery.checks.context", "recovery.rules",
    },
    "recovery.transactions": {
        "recovery.changes.plans", "recovery.cluster", "recovery.replay",
    },
    "recovery.duplicates": {"recovery.summaries", "recovery.transactions"},
    # What is made of all that: repairs, records, reports.
    "recovery.audit": {
        "recovery.pool", "recovery.summaries", "recovery.timeline", "recovery.transactions",
    },
    "recovery.records": {"recovery.transactions"},
    "recovery.repair": {
        "recovery.changes.journals", "recovery.changes.plans", "recovery.checks",
        "recovery.rebuild", "recovery.replay", "recovery.rules", "recovery.start",
        "recovery.transactions",
        "recovery.truncate", "recovery.pool",
    },
    "recovery.start": {
        "recovery.checks", "recovery.checks.context", "recovery.checks.log_dirs",
        "recovery.cluster", "recovery.rebuild", "recovery.replay", "recovery.rules",
    },
    "recovery.forecast": {
        "recovery.checks", "recovery.checks.context", "recovery.cluster", "recovery.duplicates",
        "recovery.groups", "recovery.rules", "recovery.start",
    },
    "recovery.export": {"recovery.cluster", "recovery.records", "recovery.transactions"},
    "recovery.fsck": {
        "recovery.changes.plans", "recovery.checks", "recovery.checks.context",
        "recovery.checks.log_dirs", "recovery.cluster", "recovery.forecast", "recovery.replay",
        "recovery.rules", "recovery.start", "recovery.timeline", "recovery.transactions", "recovery.truncate",
    },
    "recovery.new_log_dir": {
        "recovery.changes.journals", "recovery.changes.plans", "recovery.checks",
        "recovery.checks.context", "recovery.cluster", "recovery.fsck", "recovery.groups",
        "recovery.rebuild", "recovery.repair", "recovery.rules", "recovery.start",
        "recovery.transactions",
    },
    "recovery.replicas": {
        "recovery.audit", "recovery.changes.plans", "recovery.rebuild", "recovery.replay",
        "recovery.summaries", "recovery.truncate",
    },
    "recovery.elections": {
        "recovery.cluster", "recovery.replay", "recovery.replicas", "recovery.truncate"},
    "recovery.loss": {
        "recovery.changes.journals", "recovery.changes.plans", "recovery.duplicates",
        "recovery.export", "recovery.records", "recovery.summaries", "recovery.transactions",
    },
    # The face: what people and programs are told.
    "eoctl": {
        "eoctl.console", "recovery.changes", "recovery.changes.journals", "recovery.changes.plans",
        "recovery.rules",
    },
    "eoctl.console": set(),
    "eoctl.help": {
        "eoctl", "recovery.cluster", "recovery.groups", "recovery.changes.journals", "recovery.changes.plans", "recovery.rules",
    },
    "eoctl.report": {"eoctl.console"},
    "eoctl.dump": {"eoctl", "recovery.rebuild", "recovery.rules"},
    "eoctl.clients": set(),
    "eoctl.clients.log": {
        "eoctl", "recovery.cluster", "recovery.transactions",
    },
    "eoctl.clients.partitions": {
        "eoctl", "recovery.changes", "recovery.changes.journals", "recovery.changes.plans",
        "recovery.cluster", "recovery.repair", "recovery.replay",
    },
    "eoctl.clients.record_formats": {
        "eoctl", "eoctl.clients.log", "eoctl.clients.partitions", "recovery.records",
    },
    "eoctl.clients.coordinators": {
        "eoctl", "eoctl.clients.partitions", "recovery.changes.journals", "recovery.cluster",
        "recovery.replay",
    },
    "eoctl.clients.copying": {
        "eoctl.clients.log", "eoctl.clients.partitions", "recovery.changes",
        "recovery.changes.journals",
    },
    "eoctl.clients.producing": {
        "eoctl.clients.coordinators", "eoctl.clients.partitions", "eoctl.clients.record_formats",
        "recovery.changes",
    },
    "eoctl.serve.protocol": set(),
    "eoctl.serve.logs": {"eoctl.clients.log", "recovery.transactions", "recovery.truncate"},
    "eoctl.serve.state": {
        "eoctl.serve.logs", "eoctl.serve.protocol", "recovery.cluster", "recovery.elections",
        "recovery.groups", "recovery.replicas", "recovery.truncate",
    },
    "eoctl.serve.answers": {
        "eoctl.clients.log", "eoctl.serve.logs", "eoctl.serve.protocol", "eoctl.serve.state",
        "recovery.cluster", "recovery.groups", "recovery.replay",
    },
    "eoctl.serve": {
        "eoctl.serve.answers", "eoctl.serve.logs", "eoctl.serve.protocol", "eoctl.serve.state",
    },
    "eoctl.clients.user_programs": {"eoctl", "eoctl.clients.log", "eoctl.clients.record_formats"},
    # Only the bundle for other machines is a program, and asks for its exit status.
    "eoctl.spark": {
        "eoctl", "eoctl (program)", "eoctl.spark.rows", "eoctl.spark.streaming", "recovery.audit",
        "recovery.export", "recovery.summaries",
    },
    "eoctl.spark.streaming": {
        "eoctl.spark.rows", "recovery.audit", "recovery.export", "recovery.summaries",
        "recovery.transactions",
    },
    "eoctl.spark.rows": {"recovery.export", "recovery.records", "recovery.transactions"},
    "eoctl.commands": {
        "eoctl", "eoctl (program)", "eoctl.clients.*", "eoctl.dump", "eoctl.console",
        "eoctl.lab.bench", "eoctl.lab.sim", "eoctl.lab.environment", "eoctl.report", "eoctl.serve",
        "eoctl.serve.state", "eoctl.spark", "recovery.*", "recovery.changes.*", "recovery.checks.*",
    },
    # The laboratory.
    "eoctl.lab.checker": {
        "recovery.checks", "recovery.fsck", "recovery.replicas", "recovery.rules",
    },
    "eoctl.lab.bench": {
        "eoctl", "eoctl.lab.environment", "recovery.new_log_dir", "recovery.checks.context",
        "recovery.duplicates",
    },
    "eoctl.lab.nodes": {
        "eoctl.lab.environment", "recovery.changes.plans", "recovery.elections", "recovery.repair",
        "recovery.replay", "recovery.truncate",
    },
    "eoctl.lab.environment": {
        "eoctl.lab.checker", "recovery.checks.context", "recovery.elections", "recovery.truncate",
    },
    "eoctl.lab.clients": {"eoctl.lab.checker", "eoctl.lab.nodes", "eoctl.lab.environment"},
    "eoctl.lab.guarantees": {"eoctl.lab", "eoctl.lab.checker", "eoctl.lab.environment"},
    "eoctl.lab": {
        "eoctl.lab.checker", "eoctl.lab.clients", "eoctl.lab.nodes", "eoctl.lab.environment",
        "recovery.new_log_dir", "recovery.checks.context",
    },
    "eoctl.lab.sim": {
        "eoctl", "eoctl.clients.partitions", "eoctl.console", "eoctl.lab", "eoctl.lab.checker",
        "eoctl.lab.guarantees", "eoctl.lab.nodes", "eoctl.lab.environment",
    },
    "eoctl (program)": {"eoctl", "eoctl.help"},
}  # fmt: skip


def room_of(module: str) -> str:
    """Return the room that a module stands in."""
    if module in APART:
        return APART[module]
    if module.startswith("eoctl.commands."):
        return "eoctl.commands"
    is_package = PATHS[module].name == "__init__.py"
    return module if is_package else module.rpartition(".")[0]


@cache
def imports_of(module: str) -> frozenset[str]:
    """Modules of ours that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(tree_of(PATHS[module])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in PATHS else node.module for name in names}
    return frozenset(found & {*PATHS} - {module})


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of which each member leads to all others."""
    reached: dict[str, set[str]] = {}
    for start in edges:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = edges.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        reached[start] = seen
    found = {
        frozenset(other for other in reached[name] if name in reached.get(other, ()))
        for name in edges
    }
    return sorted(sorted(group) for group in found if group)


def may_import(room: str, other: str) -> bool:
    """Whether the table lets a room import another one."""
    allowed = ROOMS[room]
    if other in STORAGE and room not in STORAGE:
        return True
    return other in allowed or f"{other.rpartition('.')[0]}.*" in allowed


def test_modules_import_what_their_room_may() -> None:
    wrong = [
        f"{module} imports {other}: {room_of(module)} may not import {room_of(other)}"
        for module in PATHS
        for other in sorted(imports_of(module))
        if room_of(module) != room_of(other) and not may_import(room_of(module), room_of(other))
    ]
    assert wrong == []


def test_nothing_but_its_commands_imports_the_laboratory() -> None:
    entries = ("eoctl.commands.sim", "eoctl.commands.bench")
    importing = [
        module
        for module in PATHS
        if not module.startswith("eoctl.lab") and module not in entries
        and any(other.startswith("eoctl.lab") for other in imports_of(module))
    ]  # fmt: skip
    assert importing == []


def test_the_table_names_the_rooms_that_are_there() -> None:
    assert {*ROOMS} == {room_of(module) for module in PATHS}


def test_the_table_allows_what_is_used() -> None:
    used = {(room_of(module), room_of(other)) for module in PATHS for other in imports_of(module)}
    unused = [
        (room, other)
        for room, allowed in ROOMS.items()
        for other in sorted(allowed)
        if not other.endswith(".*") and (room, other) not in used
    ]
    assert unused == []


def test_no_circle_of_rooms() -> None:
    edges = {
        room: {other for other in ROOMS if other != room and may_import(room, other)}
        for room in ROOMS
        if room != "eoctl.spark"  # its one program, see the table
    }
    assert circles(edges) == []


def test_no_circle_of_modules() -> None:
    assert circles({module: {*imports_of(module)} for module in PATHS}) == []


def test_a_circle_is_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert circles(edges) == [["b", "c"]]


@pytest.mark.parametrize(
    "package", [name for name, path in PATHS.items() if path.stem == "__init__"]
)
def test_a_package_says_what_is_in_it(package: str) -> None:
    """All its modules, callers first; no others."""
    folder = PATHS[package].parent
    modules = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    said = ast.get_docstring(ast.parse(PATHS[package].read_text())) or ""
    match = re.search(r"^From the entry down: ([\w,\s]+)\.$", said, re.MULTILINE)
    names = re.split(r",\s+", match[1]) if match else []
    assert said
    assert sorted(names) == modules
    callers = {
        name: {each.rpartition(".")[2] for each in imports_of(f"{package}.{name}")
               if each.rpartition(".")[0] == package}
        for name in names
    }  # fmt: skip
    later = [
        f"{name} stands behind {below}, which it imports"
        for place, name in enumerate(names)
        for below in callers[name] & {*names[:place]}
    ]
    assert later == []
