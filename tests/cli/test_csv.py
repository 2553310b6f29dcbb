"""`--output csv`: one table, as csv readers take it; the same values as `--output jsonl`."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.csv_table import HELD_ROWS, CsvTable
from storage.errors import UsageError

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
        return value or ""  # the reader gives both as ""
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
    ("metadata", "crash", "broker"),
    ("consume", "crash/plain-0", ""),
    ("loss", "crash", "partition"),
)


WITHOUT_NOW = {"describe", "dump-segment", "consume", "metadata", "groups", "loss"}


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


def test_a_change_is_told_by_its_own_status(kafka: Path, eoctl: Run) -> None:
    """The rows of the first kind are written, and what is not is said."""
    options = ("--to-offset", 100, "--single-copy", "--apply", "-o", "csv")
    outcome = eoctl("truncate", kafka / "plain-0", *options)
    assert outcome.status == 0, outcome.errors
    assert len(rows_of(outcome.stdout)) == 1
    assert "truncation, step" in outcome.errors
    options = ("--to-offset", 50, "--single-copy", "--apply", "-o", "csv", "--table", "nosuch")
    outcome = eoctl("truncate", kafka / "plain-0", *options)
    assert (outcome.status, outcome.stdout) == (0, b"")
    assert "--table nosuch: not among truncation" in outcome.errors


def test_null_and_empty_are_two_things(log_dir: Path, eoctl: Run) -> None:
    write(log_dir / "a-0", eoctl, "")
    outcome = eoctl("consume", log_dir / "a-0", "-o", "csv")
    assert outcome.stdout.endswith(b',CreateTime,,"",[]\r\n')


def lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in rows)


def test_parts_of_lines_and_late_columns() -> None:
    table = CsvTable(None, line_end="\n")
    data = lines({"a": 1}, {"a": None, "b": [1, True]}, {"a_base64": "/w==", "b": False})
    made = b"".join(table.turned(data[at : at + 3]) for at in range(0, len(data), 3))
    assert made + table.end() == b'a,b\n1,\n,"[1,true]"\nbase64:/w==,false\n'


def test_a_text_that_looks_like_bytes_is_given_as_bytes() -> None:
    table = CsvTable(None, line_end="\n")
    assert table.turned(lines({"a": "base64:x"})) + table.end() == b"a\nbase64:YmFzZTY0Ong=\n"


def test_a_column_behind_the_header_ends_the_call() -> None:
    table = CsvTable(None, line_end="\n")
    assert table.turned(lines(*[{"a": 1}] * HELD_ROWS)) == b"a\n" + b"1\n" * HELD_ROWS
    with pytest.raises(UsageError, match="no column b"):
        table.turned(lines({"a": 2, "b": 3}))
    assert table.end() == b""


def test_of_a_change_a_late_column_is_told() -> None:
    table = CsvTable(None, is_change=True, line_end="\n")
    table.turned(lines(*[{"a": 1}] * HELD_ROWS))
    assert table.turned(lines({"a": 2, "b": 3})) == b"2\n"
    assert "no column b" in table.notes[0]


def test_what_waits_is_written_when_nothing_comes() -> None:
    """A follower shows each row as it comes."""
    table = CsvTable(None, line_end="\n")
    assert table.turned(lines({"a": 1})) == b""
    assert table.flushed() == b"a\n1\n"
    assert table.turned(lines({"a": 2})) == b"2\n"


def test_the_table_that_is_named_first_has_rows() -> None:
    table = CsvTable(None)
    table.declare("empty", ["x"])
    with pytest.raises(UsageError, match="several: empty, full") as caught:
        table.turned(lines({"kind": "full", "a": 1}))
    assert caught.value.next_step == "--table full"
