"""Tables that fit: what answers comes first, and numbers are written for people."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from eoctl.console.columns import Kind, facts_of, find_column, printable, readable
from eoctl.console.style import Color, Inspection
from eoctl.console.table import draw
from recovery.audit.reports import COLUMNS as AUDIT_COLUMNS
from tests.terminal import COLORS

PLAIN = Inspection(color=Color.NEVER, is_utc=True)
COLUMNS = ("offset", "records_count", "log_bytes", "timestamp_ms", "age_ms", "is_last", "path")
ROW = (1234567, 1234567, 1234567, 1_795_235_941_198, 273_600_000, True, "kafka/txn-0")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("log_end_offset", Kind.NUMBER), ("producer_id", Kind.NUMBER), ("batch_pos", Kind.NUMBER),
        ("records_count", Kind.COUNT), ("lost_offsets", Kind.COUNT), ("missing_sequences", Kind.COUNT),
        ("log_bytes", Kind.BYTES),
        ("max_timestamp_ms", Kind.TIME), ("expires_at_ms", Kind.TIME), ("age_ms", Kind.DURATION),
        ("is_equal", Kind.FLAG), ("crc_ok", Kind.FLAG), ("severity", Kind.SEVERITY),
        ("coordinator_status", Kind.STATE), ("other_path", Kind.PATH), ("reason", Kind.TEXT),
    ],
)  # fmt: skip
def test_a_name_says_what_a_column_holds(name: str, kind: Kind) -> None:
    assert facts_of(name).kind is kind


def test_a_table_for_people() -> None:
    """Ids and offsets are digits that can be pasted, counts have separators, the rest its unit."""
    shown = draw(COLUMNS, [ROW, ROW], answers=(), width=120, inspect=PLAIN).text
    assert shown.splitlines()[-1] == (
        "1234567  1,234,567  1.18 MiB  2026-11-21T04:39:01.198Z  3 d 4 h  yes   kafka/txn-0"
    )


def test_what_does_not_answer_goes_first() -> None:
    drawn = draw(COLUMNS, [ROW, ROW], answers=("path", "offset"), width=40, inspect=PLAIN)
    assert drawn.text.splitlines()[-1] == "kafka/txn-0  1234567  1,234,567  3 d 4 h"
    assert drawn.left_out == ("log_bytes", "timestamp_ms", "is_last")


def test_of_what_answers_the_first_columns_are_shown() -> None:
    drawn = draw(COLUMNS, [ROW, ROW], answers=COLUMNS[:5], width=40, inspect=PLAIN)
    assert drawn.text.splitlines()[-1] == "1234567  1,234,567  1.18 MiB  3 d 4 h"
    assert drawn.left_out == ("timestamp_ms", "is_last", "path")


def test_a_row_without_room_is_one_field_a_line() -> None:
    one = (
        "offset     1234567\nrecords    1,234,567\nlog size   1.18 MiB\n"
        "timestamp  2026-11-21T04:39:01.198Z\nage        3 d 4 h\nis last    yes\n"
        "path       kafka/txn-0\n"
    )
    alone = draw(COLUMNS, [ROW], answers=COLUMNS[:2], width=40, inspect=PLAIN)
    assert alone == (one, (), False)
    whole = draw(COLUMNS, [ROW, ROW], answers=(), width=40, inspect=PLAIN, is_whole=True)
    assert whole == (f"{one}\n{one}", (), False)


def test_topic_and_partition_are_one_word() -> None:
    rows = [("txn", 0, 5), ("a-b", None, 6)]
    shown = draw(("topic", "partition", "offset"), rows, answers=(), width=80, inspect=PLAIN).text
    assert [each.split() for each in shown.splitlines()] == [
        ["partition", "offset"], ["txn-0", "5"], ["a-b", "6"],
    ]  # fmt: skip


def test_a_price_has_the_kinds_that_its_names_say() -> None:
    rows = [("lost_records_count", 1234567), ("log.cut_bytes", 2048), ("reason", "none")]
    shown = draw(("price", "value"), rows, answers=(), width=80, inspect=PLAIN).text
    assert "1,234,567" in shown
    assert "2.00 KiB" in shown


def test_colours_by_severity() -> None:
    inspect = PLAIN._replace(color=Color.ALWAYS)
    drawn = draw(
        ("severity", "n"), [("error", 1), ("note", 2)], answers=(), width=80, inspect=inspect
    )
    assert "\x1b[1;31merror" in drawn.text
    plain = draw(
        ("severity", "n"), [("error", 1), ("note", 2)], answers=(), width=80, inspect=PLAIN
    )
    assert COLORS.sub("", drawn.text).split() == plain.text.split()
    assert "\x1b" not in plain.text


NAMES = sorted({*COLUMNS, "message", "fix"}.union(*AUDIT_COLUMNS.values()))
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 2**63 - 1),
    st.text(st.characters(codec="utf-8"), max_size=60),
    st.lists(st.integers(0, 9), max_size=3),
)


@given(data=st.data(), width=st.integers(40, 220), has_colors=st.booleans())
def test_what_answers_comes_first(data: Any, width: int, has_colors: bool) -> None:
    """At any width: headings and values of what is not left out are there, and a table fits."""
    columns = tuple(data.draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True)))
    rows = data.draw(st.lists(st.tuples(*(VALUES for _ in columns)), max_size=4))
    answers = columns[: data.draw(st.integers(0, len(columns)))]
    inspect = PLAIN._replace(color=Color.ALWAYS if has_colors else Color.NEVER)
    drawn = draw(columns, rows, answers=answers, width=width, inspect=inspect)
    shown = COLORS.sub("", drawn.text)
    first = "partition" if {"topic", "partition"} <= {*columns} else (answers or columns)[0]
    assert first not in drawn.left_out or first == "partition"
    if drawn.is_table and rows:
        assert all(cell_len(each) <= width for each in shown.split("\n"))
    one_word = {"topic", "partition"} <= {*columns}
    for place, name in enumerate(columns):
        if name in drawn.left_out or (one_word and name in ("topic", "partition")):
            continue
        facts = facts_of(name)
        for row in rows:
            cell = printable(readable(facts.kind, row[place], is_utc=True))
            if not drawn.is_table:
                assert "".join(cell.split()) in "".join(shown.split())
            elif facts.kind not in (Kind.TEXT, Kind.KEY):
                assert cell in shown
        if drawn.is_table and (rows or name in answers):
            words = "".join(shown.split())
            assert name not in answers or all(each in words for each in facts.heading.split())


def test_columns_are_found_by_name_and_heading() -> None:
    columns = ("last_stable_offset", "age_ms", "open_transactions_count")
    for wanted in ("last_stable_offset", "LSO", "last-stable-offset"):
        assert find_column(wanted, columns) == "last_stable_offset"
    assert find_column("age", columns) == "age_ms"
    assert find_column("open txns", columns) == "open_transactions_count"
    assert find_column("nothing", columns) is None
