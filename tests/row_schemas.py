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

from eoctl.console.columns import Kind, facts_of
from recovery.audit.reports import REPORTS

if TYPE_CHECKING:
    from collections.abc import Iterator

SAVED = Path(__file__).parents[1] / "docs" / "rows.schema.json"

# The rows of a command by their `kind`: where the class or the columns are. "*": each row says
# itself what it is.
APPENDED = {
    "step": "eoctl.plan_actions:STEP_COLUMNS",
    "file": "storage.writing.partition_store:FileChange",
}
ROWS: dict[str, dict[str, str]] = {
    "check": {
        "finding": "recovery.rules.findings:Finding",
        "partition": "eoctl.commands.check:PARTITION_COLUMNS",
        "start_change": "recovery.start.files:StartChange",
    },
    "forecast": {
        "taking": "recovery.forecast.retention:Taking",
        "cleaning": "recovery.forecast.cleaner:Cleaning",
    },
    "describe": {
        "partition": "recovery.inspect.describe:PartitionDescription",
        "segment": "recovery.inspect.describe:SegmentSummary",
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
    "groups-list": {"group": "eoctl.commands.groups.inspect_groups:GroupRow"},
    "groups-describe": {"committed_offset": "eoctl.commands.groups.inspect_groups:OffsetRow"},
    "start-order": {
        "order": "eoctl.commands.start_order:OrderRow",
        "step": "eoctl.commands.start_order:StepRow",
        "partition": "eoctl.commands.start_order:AdvisedRow",
        "choice": "eoctl.commands.start_order:LeaderRow",
    },
    "replicas-compare": {
        "replica": "eoctl.commands.shared.replica_rows:ReplicaRow",
        "comparison": "eoctl.commands.shared.replica_rows:ComparisonRow",
        "recommendation": "eoctl.commands.shared.replica_rows:RecommendationRow",
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
    "locate": {"location": "recovery.inspect.locate:Location"},
    "recover-state": {"producer": "eoctl.commands.recover_state:ProducerRow"},
    "rebuild": {"derived_file": "eoctl.commands.rebuild:DerivedFileRow"},
    "truncate": {
        "truncation": "eoctl.commands.truncate:TruncationReport",
        "step": "eoctl.plan_actions:STEP_COLUMNS",
    },
    "reclaim": {"reclaimable": "eoctl.commands.reclaim:COLUMNS"},
    "trim": {
        "trim": "recovery.trim.cost:TrimReport",
        "step": "eoctl.plan_actions:STEP_COLUMNS",
    },
    "repair": {
        "repair": "eoctl.commands.repair:RepairReport",
        "step": "eoctl.plan_actions:STEP_COLUMNS",
    },
    "metadata-history": {
        "span": "eoctl.commands.metadata:SpanRow",
        "history_sum": "eoctl.commands.metadata:SumRow",
    },
    "txn-torn": {"torn_transaction": "eoctl.commands.txn.reports:TORN_COLUMNS"},
    "txn-describe": {
        "transactional_id": "eoctl.commands.txn.reports:ID_COLUMNS",
        "transaction": "eoctl.commands.txn.readers:LIST_COLUMNS",
    },
    "txn-complete": {
        "complete": "eoctl.commands.txn.complete:CompleteReport",
        **APPENDED,
    },
    "txn-run": {"transform": "eoctl.commands.txn.run:TransformReport", **APPENDED},
    "copy": {"copy": "eoctl.commands.copy:CopyReport", **APPENDED},
    "produce": {"append": "eoctl.commands.produce:ProduceReport", **APPENDED},
    "groups-export": {"group_offset": "eoctl.commands.groups.export:ExportedOffset"},
    "init": {"topic": "eoctl.commands.init:TopicRow", "step": "eoctl.plan_actions:STEP_COLUMNS"},
    "adopt": {
        "adopted": "eoctl.commands.adopt:AdoptedRow",
        "step": "eoctl.plan_actions:STEP_COLUMNS",
    },
    "journal-list": {"journal": "eoctl.commands.journal:LIST_COLUMNS"},
    "sim-scripts": {"script": "eoctl.lab.sim.simulate:ScriptRow"},
    "sim-init": {"node": "eoctl.lab.sim.simulate:NodeRow"},
    "sim-run": {"event": "eoctl.lab.sim.simulate:EventRow"},
    "sim-table": {"guarantee": "eoctl.lab.sim.guarantees:GuaranteeRow"},
    "bench": {
        "cell": "eoctl.lab.bench.tables:CellRow",
        "latency": "eoctl.lab.bench.tables:LatencyRow",
        "landed": "eoctl.lab.bench.tables:LandedRow",
        "relation": "eoctl.lab.bench.tables:RelationRow",
    },
}

# Rows without a class, as `field: type`; `?` behind a name: not in every row.
PLACE_OF_RECORD = "offset:int timestamp_ms:int timestamp_type:str"
FIELDS: dict[str, str] = {
    "consume.record": f"kind?:str topic?:str partition?:int {PLACE_OF_RECORD} key?:any"
    " key_base64?:str value?:any value_base64?:str headers:list",
    "serve.bootstrap": "bootstrap:str",
    "serve.served_partition": "topic:str partition:int log_start_offset:int high_watermark:int|null"
    " last_stable_offset:int|null end_offset:int damaged_places:int|null path:str",
    "dump-segment.batch": "path:str pos:int batch_bytes:int magic:int base_offset:int|null"
    " last_offset:int|null records_count:int|null codec:str timestamp_type:str"
    " base_timestamp_ms:int|null max_timestamp_ms:int crc:int crc_ok:bool producer_id?:int"
    " producer_epoch?:int base_sequence?:int last_sequence?:int partition_leader_epoch?:int"
    " is_transactional?:bool is_control?:bool delete_horizon_ms?:int|null is_resynced?:bool",
    "dump-segment.record": "path:str pos:int offset:int timestamp_ms:int key_bytes:int"
    " value_bytes:int sequence?:int header_keys?:list crc?:int crc_ok?:bool control?:str|null"
    " key?:str|null key_base64?:str value?:str|null value_base64?:str headers?:list key_text?:str|null value_text?:str|null",
    "dump-segment.index_entry": "path:str pos:int offset:int segment_pos:int log_offset?:int|null",
    "dump-segment.time_index_entry": "path:str pos:int timestamp_ms:int offset:int"
    " log_offset?:int|null log_timestamp_ms?:int|null",
    "dump-segment.aborted_txn": "path:str pos:int version:int producer_id:int first_offset:int"
    " last_offset:int last_stable_offset:int",
    "dump-segment.producer": "path:str producer_id:int producer_epoch:int last_sequence:int"
    " last_offset:int offset_delta:int timestamp_ms:int coordinator_epoch:int"
    " current_txn_first_offset:int first_sequence:int crc_ok:bool",
    "dump-segment.leader-epoch-checkpoint": "path:str epoch:int start_offset:int",
    "dump-segment.offset-checkpoint": "path:str topic:str partition:int offset:int",
    "dump-segment.partition.metadata": "path:str version:int topic_id:str",
    "dump-segment.meta.properties": "path:str version:int cluster_id?:str|null node_id?:int|null"
    " broker_id?:int|null directory_id?:str|null",
    "dump-segment.clean-shutdown": "path:str version:int broker_epoch:int",
    "dump-segment.quorum-state": "path:str data_version:int leader_id:int leader_epoch:int"
    " voted_id:int voted_directory_id?:str|null current_voters?:list",
    "dump-segment.error": "path:str pos:int|null check_id:str|null message:str expected:any"
    " found:any",
    **{
        f"metadata-history.{kind}": f"timestamp_ms:int offset:int {fields}"
        for kind, fields in {
            "broker_change": "broker:int why:list is_fenced:bool|null broker_epoch:int|null",
            "feature_change": "feature:str before:int after:int",
            "partition_change": "topic:str partition:int leader:int|null isr:list|null elr:list|null"
            " leader_epoch:int|null partition_epoch:int|null replicas:list|null why:list"
            " is_unclean:bool min_insync_replicas:int is_under_min_isr:bool",
            "quorum_leader_change": "leader:int|null epoch:int voters:list",
            "unread": "end_offset:int|null reason:str",
            "setting_change": "resource_type:int resource_name:str setting:str before:str|null"
            " after:str|null",
        }.items()
    },
    "dump-segment.verdict": "path:str verdict:str start_pos:int end_pos:int check_id:str|null"
    " reason:str|null is_normal:bool verified?:list",
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
LIST = {"type": ["array", "null"]}
BY_NAME: dict[str, dict[str, Any]] = {
    "isr": NUMBERS,
    "leader": {"type": ["integer", "null"]},
    "min_insync_replicas": {"type": ["integer", "null"]},
    "partitions_read": NUMBERS,
    "transactional_id": {"type": ["string", "null"]},
    "partitions": {"type": ["array", "integer", "null"]},
    "broker": {"type": ["string", "integer", "null"]},
    "other_broker": {"type": ["string", "integer", "null"]},
    "check_id": {"type": ["string", "null"]},
    "expected": {"type": ["integer", "string", "null"]},
    "found": {"type": ["integer", "string", "null"]},
    "committed_in": LIST,
    "aborted_in": LIST,
    "open_in": LIST,
    "without_marker": LIST,
    "not_here": LIST,
    "producer_ids": LIST,
}


def schemas() -> dict[str, Any]:
    """Return the whole document: a definition per kind of row, as `check.finding`."""
    made = {
        f"{command}.{name}": row
        for command, kinds in ROWS.items()
        for kind, place in kinds.items()
        for name, row in _rows(kind, place)
    }
    made |= {name: _listed(name, text) for name, text in FIELDS.items()}
    made |= {
        f"spark-audit.{each.kind}": _of_columns(each.kind, each.columns)
        for each in REPORTS.values()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rows of eoctl --output jsonl",
        "$defs": {**made, "message": MESSAGE},
    }


def of_kind(field: str) -> str:
    """Return the type of a column of this name."""
    return BY_KIND.get(facts_of(field).kind, "string")


def _listed(name: str, text: str) -> dict[str, Any]:
    """Return the schema of a row in FIELDS."""
    kind = name.partition(".")[2]
    words = {field: word for field, _, word in (each.partition(":") for each in text.split())}
    fields = {field.removesuffix("?"): _type_of(word) for field, word in words.items()}
    needed = [field for field in words if not field.endswith("?")]
    if name != "consume.record":  # which says nothing of its kind
        fields, needed = {"kind": {"const": kind}, **fields}, ["kind", *needed]
    return {
        "type": "object",
        "properties": fields,
        "required": needed,
        "additionalProperties": False,
    }


def _type_of(word: str) -> dict[str, Any]:
    types = {**PLAIN, "null": "null", "list": "array"}
    found = [] if word == "any" else [types[each] for each in word.split("|")]
    return {"type": found[0] if len(found) == 1 else found} if found else {}


def _of_columns(kind: str, columns: tuple[str, ...]) -> dict[str, Any]:
    """Return the schema of columns without a class: their names say what is in them."""
    fields = {each: BY_NAME.get(each) or {"type": [of_kind(each), "null"]} for each in columns}
    return {
        "type": "object",
        "properties": {"kind": {"const": kind}, **fields},
        "required": ["kind", *columns],
        "additionalProperties": False,
    }


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
