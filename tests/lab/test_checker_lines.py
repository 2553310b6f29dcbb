"""Lines of a history that cannot be judged: each is named with its number, and the rest is judged."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.drawn import examples
from tests.lab.histories import Story, judged

SEND = {"topic": "t", "partition": 0, "value": "a"}


def line(kind: str, op: str, number: int = 1, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "process": "p", "id": number, "time_us": 1, "op": op, **fields}


@pytest.mark.parametrize(
    ("lines", "number", "why"),
    [
        ([line("ok", "send", **SEND, offset=0)], 2, "which no line before has begun"),
        ([line("ok", "poll", records={})], 2, "which no line before has begun"),
        ([line("invoke", "send", **SEND)] * 2, 3, "begun again"),
        ([line("invoke", "poll"), line("ok", "send", **SEND)], 3, "begun as another one"),
        ([line("invoke", "send", **SEND), line("ok", "poll")], 3, "begun as another one"),
        ([line("invoke", "send", **{**SEND, "topic": 7})], 2, "no topic"),
        ([line("invoke", "send", **{**SEND, "topic": [7]})], 2, "no topic"),
        ([line("invoke", "send", **{**SEND, "partition": "0"})], 2, "no partition"),
        ([line("invoke", "send", **{**SEND, "partition": -1})], 2, "no partition"),
        ([line("invoke", "send", **{**SEND, "partition": 2**31})], 2, "no partition"),
        ([line("invoke", "send", **{**SEND, "partition": True})], 2, "no partition"),
        ([line("invoke", "send", **{**SEND, "value": ["a"]})], 2, "a value that is a list"),
        (
            [line("invoke", "send", **SEND), line("ok", "send", **SEND, offset=2**70)],
            3, "an offset that is none",
        ),
        (
            [line("invoke", "send", **SEND), line("ok", "send", **SEND, offset=1.5)],
            3, "an offset that is none",
        ),
        (
            [line("invoke", "send", **SEND), line("ok", "send", **{**SEND, "value": "b"})],
            3, "another partition or value",
        ),
        ([line("invoke", "poll", seek={"t-0": "x"})], 2, "seek to x"),
        ([line("invoke", "poll", seek=[])], 2, "seek that is no object"),
        ([line("invoke", "poll", seek={"t": 1})], 2, "is no partition"),
        ([line("invoke", "poll", seek={"t-99999999999": 1})], 2, "is no partition"),
        ([line("invoke", "poll"), line("ok", "poll", records=5)], 3, "no object"),
        ([line("invoke", "poll"), line("ok", "poll", records={"t-0": 5})], 3, "no list"),
        ([line("invoke", "poll"), line("ok", "poll", records={"t-0": [5]})], 3, "[offset, value]"),
        ([line("invoke", "poll"), line("ok", "poll", records={"t-0": [[1]]})], 3, "[offset, value]"),
        (
            [line("invoke", "poll"), line("ok", "poll", records={"t-0": [[-1, "a"]]})],
            3, "whose offset is none",
        ),
        (
            [line("invoke", "poll"), line("ok", "poll", records={"t-0": [[0, {}]]})],
            3, "a value that is a dict",
        ),
        (
            [line("invoke", "poll"), line("ok", "poll", high_watermark={"t-0": -3})],
            3, "high watermark -3",
        ),
        ([line("invoke", "poll"), line("ok", "poll", position={"t-0": "x"})], 3, "position x"),
        ([line("invoke", "commit")], 2, "commit of no transaction"),
        ([line("invoke", "begin", transaction=5)], 2, "no name"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(lines: list[dict[str, Any]], number: int, why: str) -> None:
    verdict = judged(lines)
    assert [each.line for each in verdict.problems] == [number]
    assert why in verdict.problems[0].why
    assert not verdict.is_whole
    assert not verdict.has_findings


def test_what_no_line_has_begun_is_believed_all_the_same() -> None:
    answers = [
        line("ok", "send", place, **{**SEND, "value": value}, offset=0)
        for place, value in enumerate("ab")
    ]
    verdict = judged(answers)
    assert verdict.problems_count == 2
    assert "inconsistent-offsets" in verdict.counts


def test_nothing_and_a_header_alone_are_histories_of_nothing() -> None:
    verdict = judged([])
    assert (verdict.counts, verdict.problems, verdict.partitions) == ({}, (), ())
    assert verdict.is_whole


def test_values_may_be_numbers_and_records_may_have_none() -> None:
    lines = [
        line("invoke", "send", **{**SEND, "value": 12}),
        line("ok", "send", **{**SEND, "value": 12}, offset=0),
        line("invoke", "send", 2, **{**SEND, "value": None}),
        line("ok", "send", 2, **{**SEND, "value": None}, offset=1),
        line("invoke", "poll", 3, seek={"t-0": 0}),
        line("ok", "poll", 3, records={"t-0": [[0, 12], [1, None], [2, True]]}),
    ]
    verdict = judged(lines)
    assert (verdict.counts, verdict.problems, verdict.reads_count) == ({}, (), 3)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
NAMES = st.sampled_from(["t-0", "t-1", "x", ""])
FLAT = PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(NAMES, PLAIN, max_size=3)
JSON = FLAT | st.lists(FLAT, max_size=3) | st.dictionaries(NAMES, FLAT, max_size=3)
FIELDS = (
    "type", "process", "id", "time_us", "op", "topic", "partition", "value", "offset", "leader",
    "leader_epoch", "records", "seek", "position", "high_watermark", "transaction", "final",
    "isolation", "ended", "error", "nodes",
)  # fmt: skip


@settings(deadline=None, max_examples=examples(200))
@given(
    seed=st.integers(0, 2**32),
    changes=st.lists(st.tuples(st.integers(0), st.sampled_from(FIELDS), JSON)),
)
def test_whatever_a_line_holds_it_is_judged_or_named(
    seed: int, changes: list[tuple[int, str, Any]]
) -> None:
    """No field that is another one is a traceback."""
    story = Story(random.Random(seed))
    story.steps(20)
    story.finish()
    for place, name, value in changes:
        story.lines[place % len(story.lines)][name] = value
    verdict = judged(story.data())
    assert all(each.words for each in verdict.findings)


@settings(deadline=None, max_examples=examples(100))
@given(
    seed=st.integers(0, 2**32), place=st.integers(0), byte=st.integers(0, 255), cut=st.booleans()
)
def test_whatever_a_byte_is_it_is_judged_or_named(
    seed: int, place: int, byte: int, *, cut: bool
) -> None:
    story = Story(random.Random(seed))
    story.steps(20)
    story.finish()
    data = bytearray(story.data())
    begin = data.index(b"\n") + 1
    at = begin + place % (len(data) - begin)
    if cut:
        del data[at:]
    else:
        data[at] = byte
    judged(bytes(data))


def test_the_history_in_the_manual_is_one_that_loses() -> None:
    page = (Path(__file__).parents[2] / "man" / "eoctl-history.5").read_text()
    text = page[page.index(".Sh EXAMPLES") :].split(".Bd -literal\n")[1].split(".Ed")[0]
    verdict = judged(text.replace("\n ", "").encode())
    assert (verdict.counts, verdict.problems) == ({"lost-write": 1}, ())
