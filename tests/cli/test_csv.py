"""`--output csv`: one table, as csv readers take it; the same values as `--output jsonl`."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.csv_table import HELD_ROWS, CsvTable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Run = Callable[..., Outcome]


def rows_of(data: bytes) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True)]


def as_text(name: str, row: dict[str, Any]) -> str:
    value = row.get(name)
    if f"{name}_base64" in row:
        return f"base64:{row[f'{name}_base64']}"
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write(directory: Path, eoctl: Run, *values: str) -> None:
    """Make a partition of these values."""
    source = directory.parent / "values.jsonl"
    source.write_text("".join(json.dumps({"value": each}) + "\n" for each in values))
    options = ("--single-copy", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ", "--apply")
    outcome = eoctl("produce", directory, source, "--format", "jsonl", *options)
    assert outcome.status == 0, outcome.errors


# Call, where, and the kind of its rows.
CALLS = (
    ("check", "crash", "finding"),
    ("check", "crash", "partition"),
    ("describe", "crash/plain-0", "segment"),
    ("producers", "crash", "partition"),
    ("txn", "list", "crash", ""),
    ("dump-segment", "crash/txn-0", "batch"),
    ("groups", "list", "crash", ""),
    ("cluster-state", "crash", "broker"),
    ("consume", "crash/plain-0", ""),
    ("loss", "crash", "partition"),
)


WITHOUT_NOW = {"describe", "dump-segment", "consume", "cluster-state", "groups", "loss"}


@pytest.mark.parametrize("call", CALLS, ids=lambda each: "-".join(filter(None, each)))
def test_the_values_are_those_of_jsonl(call: tuple[str, ...], crash: Path, eoctl: Run) -> None:
    *words, place, kind = call
    words += [str(crash.parent / place)]
    words += [] if words[0] in WITHOUT_NOW else ["--now", "dir"]
    given = eoctl(*words, "-o", "jsonl")
    wanted = [json.loads(each) for each in given.text.splitlines()]
    wanted = [each for each in wanted if not kind or each.get("kind") == kind]
    assert wanted
    outcome = eoctl(*words, "-o", "csv", *(("--table", kind) if kind else ()))
    assert outcome.status == given.status, outcome.errors
    found = rows_of(outcome.stdout)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one == {name: as_text(name, other) for name in one}
        assert {each.removesuffix("_base64") for each in other} - {"kind"} <= {*one}


def test_the_form_is_that_of_rfc_4180(log_dir: Path, eoctl: Run) -> None:
    """A header, lines that end with CR LF, quotes that are doubled, and UTF-8."""
    write(log_dir / "a-0", eoctl, 'say "x", ä\r\nnext')
    outcome = eoctl("consume", log_dir / "a-0", "-o", "csv")
    header, row = outcome.stdout.split(b"\r\n", 1)
    assert header == b"offset,timestamp_ms,timestamp_type,key,value,headers"
    assert b'"say ""x"", \xc3\xa4\r\nnext",[]\r\n' in row
    assert rows_of(outcome.stdout)[0]["value"] == 'say "x", ä\r\nnext'


def test_several_tables_are_refused_before_a_row_is_written(crash: Path, eoctl: Run) -> None:
    outcome = eoctl("describe", crash / "plain-0", "-o", "csv")
    assert (outcome.status, outcome.stdout) == (2, b"")
    assert "partition, segment" in outcome.errors
    assert "--table partition" in outcome.errors
    assert eoctl("describe", crash / "plain-0", "-o", "csv", "--table", "partition").status == 0


def test_a_table_that_is_not_there_is_a_wrong_call(crash: Path, eoctl: Run) -> None:
    outcome = eoctl("describe", crash / "plain-0", "-o", "csv", "--table", "nosuch")
    assert (outcome.status, outcome.stdout) == (2, b"")
    assert "not among partition, segment" in outcome.errors
    outcome = eoctl("describe", crash / "plain-0", "-o", "jsonl", "--table", "partition")
    assert outcome.status == 2


def test_no_rows_have_a_header(log_dir: Path, eoctl: Run) -> None:
    write(log_dir / "a-0", eoctl, "x")
    outcome = eoctl("txn", "list", log_dir, "-o", "csv")
    assert outcome.status == 0
    assert outcome.stdout.startswith(b"topic,partition,producer_id,")
    assert rows_of(outcome.stdout) == []


def test_chosen_columns_are_those_of_the_table(crash: Path, eoctl: Run) -> None:
    outcome = eoctl("txn", "list", crash, "-o", "csv", "--columns", "state,topic", "--now", "dir")
    assert outcome.stdout.startswith(b"state,topic\r\n")


def lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in rows)


def test_parts_of_lines_and_late_columns() -> None:
    table = CsvTable(None, "\n")
    data = lines({"a": 1}, {"a": None, "b": [1, True]}, {"a_base64": "/w==", "b": False})
    made = b"".join(table.turned(data[at : at + 3]) for at in range(0, len(data), 3))
    assert made + table.end() == b'a,b\n1,\n,"[1,true]"\nbase64:/w==,false\n'


def test_a_column_behind_the_header_is_told_and_ends_the_table() -> None:
    table = CsvTable(None, "\n")
    made = table.turned(lines(*[{"a": 1}] * HELD_ROWS, {"a": 2, "b": 3}, {"a": 4}))
    assert made == b"a\n" + b"1\n" * HELD_ROWS
    assert table.end() == b""
    assert "no column b" in str(table.problem)
