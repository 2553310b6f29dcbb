"""The rows that programs read, as JSON Schema: `python -m tests.row_schemas` writes it anew.

Types come from the annotations of the row classes, the names and order from their fields. Where a
command has columns without a class, what a column holds is known by its name, as for tables.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.face.columns import Kind, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SAVED = Path(__file__).parents[1] / "docs" / "rows.schema.json"

# The rows of a command by their `kind`: where the class or the columns are. "*": each row says
# itself what it is.
ROWS: dict[str, dict[str, str]] = {
    "check": {
        "finding": "recovery.rules.findings:Finding",
        "partition": "eoctl.commands.check:PARTITION_COLUMNS",
        "start_change": "recovery.start.files:StartChange",
        "reclaimable": "recovery.checks.log_dirs.reclaim:Reclaimable",
    },
    "describe": {
        "partition": "recovery.look.describe:PartitionDescription",
        "segment": "recovery.look.describe:SegmentSummary",
    },
    "loss": {
        "*": "recovery.loss.rows:LossRow",
        "partition": "recovery.loss.rows:LossSummary",
    },
    "diff": {"partition": "recovery.loss.rows:ChangeSummary"},
    "duplicates": {"*": "recovery.duplicates.spill:Duplicate"},
    "txn-list": {"transaction": "eoctl.commands.txn.readers:LIST_COLUMNS"},
    "txn-hanging": {"hanging": "eoctl.commands.txn.readers:HANGING_COLUMNS"},
    "txn-stats": {
        "transaction_stats": "eoctl.commands.txn.reports:STATS_COLUMNS",
        "coordinator_stats": "eoctl.commands.txn.reports:COORDINATOR_COLUMNS",
    },
    "groups-list": {"group": "eoctl.commands.groups.look:GroupRow"},
    "groups-describe": {"committed_offset": "eoctl.commands.groups.look:OffsetRow"},
    "start-order": {
        "order": "eoctl.commands.start_order:OrderRow",
        "step": "eoctl.commands.start_order:StepRow",
        "partition": "eoctl.commands.start_order:AdvisedRow",
        "choice": "eoctl.commands.start_order:LeaderRow",
    },
    "replicas-compare": {
        "replica": "eoctl.commands.shared.copies:ReplicaRow",
        "comparison": "eoctl.commands.shared.copies:ComparisonRow",
        "recommendation": "eoctl.commands.shared.copies:RecommendationRow",
    },
    "metadata": {
        "cluster": "eoctl.commands.shared.cluster_rows:ClusterRow",
        "broker": "eoctl.commands.shared.cluster_rows:BrokerRow",
        "cluster_partition": "eoctl.commands.shared.cluster_rows:PartitionStateRow",
        "copy": "eoctl.commands.shared.cluster_rows:CopyRow",
        "controller": "eoctl.commands.shared.cluster_rows:ControllerRow",
        "setting": "eoctl.commands.shared.cluster_rows:SettingRow",
        "feature": "eoctl.commands.shared.cluster_rows:FeatureRow",
    },
    "export": {"export": "recovery.export.run:ExportSummary"},
    "locate": {"location": "recovery.look.locate:Location"},
    "recover-state": {"producer": "eoctl.commands.recover_state:ProducerRow"},
    "rebuild": {"derived_file": "eoctl.commands.rebuild:DerivedFileRow"},
    "truncate": {
        "truncation": "eoctl.commands.truncate:TruncationReport",
        "step": "eoctl.changing:STEP_COLUMNS",
    },
    "repair": {"repair": "eoctl.commands.repair:RepairReport"},
}

# What stands on standard error: other fields say where.
MESSAGE = {
    "type": "object",
    "properties": {
        "level": {"enum": ["answer", "note", "warning", "error"]},
        "message": {"type": "string"},
        "error": {"type": "string"},
        "exit_status": {"type": "integer"},
        "next_step": {"type": "string"},
    },
    "required": ["level", "message"],
}
PLAIN = {
    "bytes": "string",
    "int": "integer",
    "str": "string",
    "bool": "boolean",
    "float": "number",
    "None": "null",
}
BY_KIND = {
    Kind.FLAG: "boolean",
    **dict.fromkeys((Kind.COUNT, Kind.NUMBER, Kind.BYTES, Kind.TIME, Kind.DURATION), "integer"),
}

# Of columns without a class, whose names say less to a program than to a person.
NUMBERS = {"type": ["array", "null"], "items": {"type": "integer"}}
BY_NAME: dict[str, dict[str, Any]] = {
    "isr": NUMBERS,
    "leader": {"type": ["integer", "null"]},
    "min_insync_replicas": {"type": ["integer", "null"]},
    "partitions_read": NUMBERS,
    "transactional_id": {"type": ["string", "null"]},
}


def schemas() -> dict[str, Any]:
    """Return the whole document: a definition per kind of row, as `check.finding`."""
    made = {
        f"{command}.{name}": row
        for command, kinds in ROWS.items()
        for kind, place in kinds.items()
        for name, row in _rows(kind, place)
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rows of eoctl --output jsonl",
        "$defs": {**made, "message": MESSAGE},
    }


def of_kind(field: str) -> str:
    """Return the type of a column of this name."""
    return BY_KIND.get(facts_of(field).kind, "string")


def _rows(kind: str, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the schemas of a class or of columns, by kind."""
    module, name = place.split(":")
    found = getattr(importlib.import_module(module), name)
    if isinstance(found, type):
        texts = {field: getattr(each, "__forward_arg__", str(each))
                 for field, each in found.__annotations__.items()}  # fmt: skip
        fields = {field: _typed(text, found.__module__) for field, text in texts.items()}
    else:
        texts = dict.fromkeys(found, "")
        fields = {
            field: BY_NAME.get(field) or {"type": [of_kind(field), "null"]} for field in found
        }
    required = [field for field in texts if "bytes" not in texts[field] and field != "kind"]
    for field in [
        each for each in texts if "bytes" in texts[each]
    ]:  # what is not UTF-8 has another name
        fields[f"{field}_base64"] = {"type": "string"}
    for each in fields.pop("kind")["enum"] if kind == "*" else [kind]:
        yield (
            each,
            {
                "type": "object",
                "properties": {"kind": {"const": each}, **fields},
                "required": ["kind", *required],
                "additionalProperties": False,
            },
        )


def _typed(text: str, module: str) -> dict[str, Any]:
    """Return the schema of an annotation: plain types, tuples and lists of them, unions, enums."""
    parts = [part.strip() for part in text.split("|")]
    if all(part in PLAIN for part in parts):
        types = [PLAIN[part] for part in parts]
        return {"type": types[0] if len(types) == 1 else types}
    array = re.fullmatch(r"(?:tuple|list|Sequence)\[(\w+)(?:, \.\.\.)?\]", parts[0])
    of = ({"type": "array", "items": _typed(array[1], module)} if array
          else _enumerated(parts[0], module))  # fmt: skip
    return of if parts[1:] != ["None"] else {"anyOf": [of, {"type": "null"}]}


def _enumerated(name: str, module: str) -> dict[str, Any]:
    """Return the words of an enum, which may be imported for the reader of types alone."""
    places = [module, *(each for each in sys.modules if each.startswith(("recovery.", "storage.")))]
    for place in places:
        found = getattr(sys.modules[place], name, None)
        if isinstance(found, type) and issubclass(found, Enum):
            return {"enum": [member.value for member in found]}
    message = f"no type or enum of this name: {name} in {module}"
    raise LookupError(message)


def text_of(document: dict[str, Any]) -> str:
    """Write it as JSON with a definition in each line."""
    rows = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(each)}" for name, each in document["$defs"].items()
    )
    head = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(each)}"
        for name, each in document.items()
        if name != "$defs"
    )
    return f'{{{head},\n"$defs": {{\n{rows}\n}}}}\n'


def main() -> None:
    """Write the document, a kind of row in each line."""
    SAVED.write_text(text_of(schemas()))


if __name__ == "__main__":
    main()
