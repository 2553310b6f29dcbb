"""Each rule of the checker: sound histories break none, a planted violation breaks its own."""

from __future__ import annotations

import io
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.lab.checker import values
from eoctl.lab.checker.findings import judge
from eoctl.lab.checker.histories import HistorySource
from eoctl.lab.checker.rules import RULES, Family
from eoctl.lab.checker.values import Edges, components, shortest_circle, unique_edges
from tests.drawn import examples
from tests.lab.histories import BESIDE, COMMITTED, ENDED, PLANTED, Story, judged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eoctl.lab.checker.rules import HistoryFinding


SEEDS = st.integers(0, 2**32)


def with_invokes(lines: list[dict[str, Any]], wanted: Iterable[int]) -> list[dict[str, Any]]:
    """Some lines, and what the answers among them answer."""
    kept = {number - 2 for number in wanted}
    asked = {(each["process"], each["id"]) for each in (lines[place] for place in kept)}
    return [
        each
        for place, each in enumerate(lines)
        if place in kept or (each["type"] == "invoke" and (each["process"], each["id"]) in asked)
    ]


@settings(deadline=None, max_examples=examples(150))
@given(SEEDS)
def test_what_is_sound_is_never_condemned(seed: int) -> None:
    story = Story(random.Random(seed))
    story.steps(60)
    story.finish()
    verdict = judged(story.data())
    assert verdict.problems == ()
    assert not verdict.has_findings, verdict.findings
    assert {*verdict.counts} <= {"G0"}  # transactions of Kafka do write between each other
    assert verdict.is_whole
    assert verdict.is_healed


@pytest.mark.share(10)
@pytest.mark.parametrize("kind", PLANTED)
@settings(deadline=None, max_examples=examples(25))
@given(seed=SEEDS)
def test_what_is_planted_is_condemned(kind: str, seed: int) -> None:
    story = Story(random.Random(seed))
    story.steps()
    PLANTED[kind](story)
    if kind not in ENDED:
        story.steps()
        story.finish()
    verdict = judged(story.data())
    assert verdict.problems == ()
    # One circle of both is not told where all of its transactions are in circles of writes, too.
    assert verdict.counts.get(kind) or (kind, "G0") in {
        ("G1c-mixed", each) for each in verdict.counts
    }
    assert {*verdict.counts} - {"G0"} <= {kind} | BESIDE.get(kind, set())
    assert verdict.has_findings is any(RULES[each].is_finding for each in verdict.counts)
    for each in verdict.findings:
        assert each.words
        assert_is_a_witness(story, each)


def assert_is_a_witness(story: Story, finding: HistoryFinding) -> None:
    """The lines that are named are enough, and few."""
    assert finding.witness
    assert len(finding.witness) <= 6 or RULES[finding.kind].family is Family.TRANSACTIONS
    alone = judged(with_invokes(story.lines, [each.line for each in finding.witness]))
    assert alone.problems == ()
    assert finding.kind in alone.counts, (finding, alone.counts)


@pytest.mark.parametrize("kind", PLANTED)
def test_a_witness_has_no_line_too_many(kind: str) -> None:
    """Without one of its lines it condemns no longer; those asked for, and the heal, go with it."""
    story = Story(random.Random(7))
    PLANTED[kind](story)
    if kind not in ENDED:
        story.finish()
    verdict = judged(story.data())
    finding = next(each for each in verdict.findings if each.kind == kind)
    needed = [
        each.line
        for each in finding.witness
        if story.lines[each.line - 2]["type"] != "invoke"
        and story.lines[each.line - 2]["op"] != "heal"
    ]
    every = [each.line for each in finding.witness]
    for line in needed:
        left = with_invokes(story.lines, [each for each in every if each != line])
        without = [each for each in left if each is not story.lines[line - 2]]
        assert kind not in judged(without).counts, line


def test_each_rule_of_a_history_is_planted() -> None:
    of_histories = {each.name for each in RULES.values() if each.family is not Family.DIRECTORIES}
    assert {*PLANTED} == of_histories


def test_what_nobody_has_looked_at_is_unseen() -> None:
    story = Story(random.Random(1))
    story.send(0)
    verdict = judged(story.data())
    assert (verdict.counts, verdict.has_findings, verdict.is_whole) == ({"unseen": 1}, False, False)
    story.finish()
    assert judged(story.data()).counts == {}


def test_a_reader_who_was_not_the_last_shows_no_end() -> None:
    """What is not there yet, and above the high watermark of before, may still come."""
    story = Story(random.Random(1))
    sent = story.invoke(0)
    story.poll("c", 0)
    story.answer(sent, "ok", 0)
    assert judged(story.data()).counts == {"unseen": 1}
    story.poll("c", 0, final=True)  # it began before the answer
    assert judged(story.data()).counts == {"unseen": 1}
    story.poll("d", 0, final=True)
    assert judged(story.data()).counts == {"lost-write": 1}


def test_what_comes_after_the_last_reader_is_none_of_its_business() -> None:
    story = Story(random.Random(1))
    story.send(0)
    story.finish()
    story.send(0)
    assert judged(story.data()).counts == {"unseen": 1}
    story.poll("c", 0)
    assert judged(story.data()).counts == {}


def test_before_the_heal_no_reader_is_the_last() -> None:
    story = Story(random.Random(1))
    story.note("info", "n", 0, "fault", fault="kill")
    sent = story.invoke(0)
    story.answer(sent, "ok", 0)
    story.poll("d", 0, final=True)
    verdict = judged(story.data())
    assert (verdict.counts, verdict.is_healed) == ({"unseen": 1}, False)


def test_without_an_offset_a_whole_reading_shows_the_loss() -> None:
    story = Story(random.Random(1))
    story.send(0)
    sent = story.invoke(0)
    story.answer(sent, "ok", -1)
    story.poll("some", 0, seek=1, final=True)
    assert "lost-write" not in judged(story.data()).counts
    story.poll("whole", 0, seek=0, final=True)
    (finding,) = judged(story.data()).findings
    assert (finding.kind, finding.value) == ("lost-write", sent.value)


def test_a_consumer_that_is_given_partitions_by_its_group_is_not_condemned() -> None:
    story = Story(random.Random(1))
    for _ in range(3):
        story.send(0)
    story.poll("c", 0)
    story.positions["c", 0] = 0
    story.lines[-1]["seek"] = {"t-0": None}
    assert judged(story.data()).counts == {}
    story.poll("c", 0)
    assert {*judged(story.data()).counts} == {"nonmonotonic-poll"}
    story.lines[-2]["seek"] = {"t-0": None}
    assert judged(story.data()).counts == {}


def test_of_several_histories_lines_are_numbered_each_for_itself() -> None:
    story = Story(random.Random(1))
    story.send(0)
    first = story.data()
    story.lines.clear()
    sent = story.invoke(0, value="other")
    story.answer(sent, "ok", 0, leader=0)
    second = story.data()
    verdict = judge(
        [HistorySource(name, lambda data=data: io.BytesIO(data))  # type: ignore[misc]
         for name, data in (("one", first), ("two", second))]
    )  # fmt: skip
    (finding,) = [each for each in verdict.findings if each.kind == "inconsistent-offsets"]
    assert [(each.history, each.line) for each in finding.witness] == [("one", 3), ("two", 3)]
    assert finding.words == "offset 0 was v1, and is other"


def test_values_that_are_sent_twice_are_not_judged_and_said() -> None:
    story = Story(random.Random(1))
    for kind in ("fail", "ok"):
        sent = story.invoke(0, value="again")
        story.answer(sent, kind, story.append(sent) if kind == "ok" else -1)
    story.finish()
    verdict = judged(story.data())
    assert verdict.counts == {}
    assert not verdict.is_whole
    (problem,) = verdict.problems
    assert (problem.line, problem.why) == (
        5, "its value was sent before, in line 3: not judged",
    )  # fmt: skip


def test_a_transaction_whose_commit_may_be_in_a_lost_line_was_not_aborted() -> None:
    story = Story(random.Random(1))
    story.begin("q")
    story.send(0, "q")
    story.end("q", "commit")
    story.finish()
    lines = [each for each in story.lines if each["op"] != "commit"]
    assert "G1a" in judged(lines).counts  # it was never asked for
    broken = Story(random.Random(1))
    broken.lines = lines
    assert judged(broken.data() + b"[]\n").counts == {}


@pytest.mark.parametrize("answer", ["ok", "info", None])
@pytest.mark.parametrize("end", ["told", "failed", "never"])
def test_whatever_was_told_of_a_record_its_transaction_was_aborted(
    answer: str | None, end: str
) -> None:
    """A producer that is killed is told nothing of what it has sent."""
    story = Story(random.Random(1))
    transaction = story.begin("q")
    sent = story.invoke(0, "q")
    offset = story.append(sent)
    if answer is not None:
        story.answer(sent, answer, offset)
    if end == "told":
        story.end("q", "abort", state="committed")
    elif end == "failed":
        story.end("q", "commit", "fail", state="committed")
    transaction.state = "committed"
    story.poll("c", 0, isolation=COMMITTED)
    (finding,) = judged(story.data()).findings
    assert (finding.kind, finding.value, finding.offset) == ("G1a", sent.value, offset)
    assert_is_a_witness(story, finding)


@pytest.mark.parametrize("answer", ["info", None])
def test_what_has_no_answer_is_not_read_before_its_commit_is_asked_for(answer: str | None) -> None:
    story = Story(random.Random(1))
    transaction = story.begin("q")
    sent = story.invoke(0, "q")
    story.append(sent)
    if answer is not None:
        story.answer(sent, answer)
    transaction.state = "committed"
    story.poll("c", 0, isolation=COMMITTED)
    story.end("q", "commit")
    (finding,) = judged(story.data()).findings
    assert (finding.kind, finding.value) == ("precommitted-read", sent.value)
    assert_is_a_witness(story, finding)


def test_the_transaction_of_a_record_is_that_of_what_was_asked() -> None:
    """An answer that does not say it once more."""
    story = Story(random.Random(1))
    transaction = story.begin("q")
    story.send(0, "q")
    del story.lines[-1]["transaction"]
    story.end("q", "abort")
    transaction.state = "committed"
    story.poll("c", 0, isolation=COMMITTED)
    assert {*judged(story.data()).counts} == {"G1a"}


def test_what_has_no_answer_and_was_aborted_is_read_uncommitted_only() -> None:
    story = Story(random.Random(1))
    story.begin("q")
    story.append(story.invoke(0, "q"))
    story.end("q", "abort")
    story.finish()
    assert judged(story.data()).counts == {}


@pytest.mark.parametrize("end", ["info", None])
def test_what_is_open_holds_back_what_was_committed_behind_it(end: str | None) -> None:
    """Nobody was told that it has ended: its producer may be dead, and its time not over."""
    story = Story(random.Random(1))
    transaction = story.begin("p")
    story.send(0, "p")
    if end is not None:
        story.end("p", "commit", end, state="open")
        story.logs[0].pop()  # there is no marker
    story.open.pop("p", None)
    story.begin("q")
    story.send(0, "q")
    story.end("q", "commit")
    story.send(0, "r")
    story.finish()
    transaction.state = "open"
    story.poll("at rest", 0, isolation=COMMITTED, seek=0, final=True)
    assert story.lines[-1]["ended"] is True
    assert judged(story.data()).counts == {}


def test_what_was_told_to_be_aborted_holds_back_nobody() -> None:
    story = Story(random.Random(1))
    transaction = story.begin("p")
    story.send(0, "p")
    story.end("p", "abort")
    story.begin("q")
    story.send(0, "q")
    story.end("q", "commit")
    plain = story.lines[-1]
    assert plain["type"] == "ok"
    transaction.state = "open"
    story.finish()
    (finding,) = judged(story.data()).findings
    assert (finding.kind, finding.offset) == ("lost-commit", 2)
    assert finding.words.endswith("and the last reader waits at 0")
    assert_is_a_witness(story, finding)


def test_a_reader_of_what_is_committed_that_still_reads_shows_nothing() -> None:
    """Without the word that it was given no more; or where it began before the commit."""
    story = Story(random.Random(1))
    transaction = story.begin("q")
    story.send(0, "q")
    number = story.number()
    story.poll("early", 0, isolation=COMMITTED, seek=0, final=True)
    story.note("invoke", "q", number, "commit", transaction=transaction.name)
    story.note("ok", "q", number, "commit", transaction=transaction.name)
    assert "lost-commit" not in judged(story.data()).counts
    story.poll("still", 0, isolation=COMMITTED, seek=0, final=True)
    assert {*judged(story.data()).counts} == {"lost-commit", "unseen"}
    del story.lines[-1]["ended"]
    assert judged(story.data()).counts == {"unseen": 1}


def test_before_the_heal_a_reader_may_wait_for_a_marker() -> None:
    story = Story(random.Random(1))
    story.note("info", "n", 0, "fault", fault="kill")
    _planted_open(story)
    story.poll("last", 0, isolation=COMMITTED, seek=0, final=True)
    assert "lost-commit" not in judged(story.data()).counts


def _planted_open(story: Story) -> None:
    transaction = story.begin("q")
    story.send(0, "q")
    story.end("q", "commit")
    transaction.state = "open"


def test_two_values_of_one_hash_condemn_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(random.Random(1))
    for _ in range(2):
        story.send(0)
    story.finish()
    for module in ("operations", "findings"):
        monkeypatch.setattr(f"eoctl.lab.checker.{module}.hash", lambda _: 5, raising=False)
    assert judged(story.data()).findings == ()


# -- circles in a directed graph, held against who reaches whom by walking


PAIRS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=30)


def edges_of(pairs: Sequence[tuple[int, int]], first_line: int = 1) -> Edges:
    columns = np.array(pairs, np.int64).reshape(-1, 2)
    lines = np.arange(first_line, first_line + len(pairs))
    return Edges(columns[:, 0], columns[:, 1], lines, lines + 1000)


def reached(pairs: Sequence[tuple[int, int]], start: int) -> set[int]:
    found: set[int] = set()
    waiting = [start]
    while waiting:
        node = waiting.pop()
        new = {target for source, target in pairs if source == node} - found
        found |= new
        waiting += new
    return found


@given(PAIRS)
def test_nodes_that_reach_each_other_are_found_together(pairs: list[tuple[int, int]]) -> None:
    after = {node: reached(pairs, node) for pair in pairs for node in pair}
    expected = {
        tuple(sorted(other for other in after[node] if node in after[other]))
        for node in after
        if node in after[node]
    }
    found = [*components(unique_edges([edges_of(pairs)]))]
    assert sorted(map(tuple, found)) == sorted(each for each in expected if len(each) > 1)


@given(PAIRS)
def test_a_circle_goes_round(pairs: list[tuple[int, int]]) -> None:
    edges = unique_edges([edges_of(pairs)])
    for nodes in components(edges):
        for start in nodes:
            rows = shortest_circle(edges, nodes, start)
            sources = [int(edges.source[row]) for row in rows]
            targets = [int(edges.target[row]) for row in rows]
            assert sources[0] == start
            assert targets == [*sources[1:], start]
            assert len({*sources}) == len(sources)


@pytest.mark.parametrize("merged", [0, 3, 1000])
@given(parts=st.lists(PAIRS, max_size=5))
def test_in_parts_the_first_of_each_edge_is_kept(
    merged: int, parts: list[list[tuple[int, int]]]
) -> None:
    made = [edges_of(each, 1 + 100 * place) for place, each in enumerate(parts)]
    expected: dict[tuple[int, int], int] = {}
    for each in made:
        for source, target, line in zip(each.source, each.target, each.source_line, strict=True):
            if source != target:
                expected.setdefault((int(source), int(target)), int(line))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "MERGED_ROWS", merged)
        edges = unique_edges(made)
    rows = zip(
        edges.source.tolist(), edges.target.tolist(), edges.source_line.tolist(), strict=True
    )
    assert {(source, target): line for source, target, line in rows} == expected
    assert len(edges.source) == len(expected)
    assert (edges.target_line - edges.source_line == 1000).all()
