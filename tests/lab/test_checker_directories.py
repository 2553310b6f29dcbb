"""Directories held against histories, and against each other: each rule by what breaks it alone."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from eoctl.lab.checker.directories import read_contents
from eoctl.lab.checker.findings import judge
from eoctl.lab.checker.histories import HistorySource
from storage.file_names import HIGH_WATERMARK_NAME
from storage.formats.checkpoint import OffsetCheckpointEntry, encode_offset_checkpoint
from storage.formats.record import Record
from tests.batches import encoded_batch
from tests.lab.histories import Story

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from eoctl.lab.checker.rules import HistoryVerdict


class Replicas:
    """Makes replicas of t-0, and judges a story with them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.paths: list[tuple[str, str]] = []

    def add(self, *values: str | None, high_watermark: int | None = None) -> Path:
        name = f"node-{len(self.paths)}"
        path = self._root / name / "t-0"
        path.mkdir(parents=True)
        log = b"".join(
            encoded_batch(
                offset, [Record(0, 0, 0, None, None if each is None else each.encode(), ())]
            )
            for offset, each in enumerate(values)
        )
        (path / f"{0:020d}.log").write_bytes(log)
        if high_watermark is not None:
            entries = [OffsetCheckpointEntry("t", 0, high_watermark)]
            (path.parent / HIGH_WATERMARK_NAME).write_bytes(encode_offset_checkpoint(entries))
        self.paths.append((name, str(path)))
        return path

    def judged(self, story: Story) -> HistoryVerdict:
        from io import BytesIO

        data = story.data()
        source = HistorySource("history", lambda: BytesIO(data))
        return judge([source], lambda _: read_contents(self.paths))


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    return Replicas(tmp_path)


@pytest.fixture
def story() -> Story:
    """Two values were acknowledged, one failed, of one nobody knows."""
    made = Story(random.Random(1), partitions=1)
    for value, kind in (("a", "ok"), ("b", "ok"), ("c", "info"), ("d", "fail")):
        sent = made.invoke(0, value=value)
        made.answer(sent, kind, {"a": 0, "b": 1}.get(value, -1))
    return made


def test_what_is_right_is_right(story: Story, replicas: Replicas) -> None:
    for values in (("a", "b", "c"), ("a", "b", "c"), ("a", "b")):
        replicas.add(*values)
    story.note("info", "n", 0, "heal")
    verdict = replicas.judged(story)
    assert (verdict.counts, verdict.problems) == ({}, ())
    assert verdict.is_whole
    assert verdict.replicas_count == 3


def a_reader(story: Story) -> None:
    number = story.number()
    story.note("invoke", "c", number, "poll", seek={"t-0": 0})
    story.note("ok", "c", number, "poll", records={"t-0": [[0, "a"], [1, "b"], [2, "c"]]})


@pytest.mark.parametrize(
    ("kinds", "copies", "before"),
    [
        ({"lost-write"}, [("a",)], None),
        ({"lost-write"}, [("a",), ("a",)], None),
        ({"precommitted-read"}, [("a", "b")], a_reader),
        ({"lost-write", "precommitted-read"}, [("a",)], a_reader),
        ({"duplicate"}, [("a", "b", "a")], None),
        ({"duplicate"}, [("a", "b", "c", "c")], None),
        ({"inconsistent-offsets"}, [("b", "a")], None),
        ({"G1a"}, [("a", "b", "d")], None),
        ({"replicas-differ"}, [("a", "b", "c"), ("a", "b", None)], None),
    ],
)
def test_what_is_wrong_is_found(
    story: Story,
    replicas: Replicas,
    kinds: set[str],
    copies: Sequence[tuple[str, ...]],
    before: Callable[[Story], None] | None,
) -> None:
    for values in copies:
        replicas.add(*values)
    if before:
        before(story)
    story.note("info", "n", 0, "heal")
    verdict = replicas.judged(story)
    assert {*verdict.counts} == kinds
    assert all(each.words and "a value" not in each.words for each in verdict.findings)
    assert all(each.value for each in verdict.findings if each.kind != "replicas-differ")


def test_before_the_heal_nothing_is_lost(story: Story, replicas: Replicas) -> None:
    story.note("info", "n", 0, "fault", fault="kill")
    replicas.add("x")
    verdict = replicas.judged(story)
    assert verdict.counts == {"unseen": 2}
    assert (verdict.has_findings, verdict.is_whole) == (False, False)


def test_below_the_high_watermark_of_both_replicas_agree_at_any_time(
    story: Story, replicas: Replicas
) -> None:
    replicas.add("a", "b", "c", high_watermark=2)
    replicas.add("a", "b", "x", high_watermark=2)
    assert replicas.judged(story).counts == {}
    story.note("info", "n", 0, "fault", fault="kill")
    assert replicas.judged(story).counts == {}
    replicas.add("a", "x", high_watermark=2)
    verdict = replicas.judged(story)
    assert verdict.counts == {"replicas-differ": 2}
    assert [each.words for each in verdict.findings] == [
        "node-0 and node-2 differ from offset 1 on", "node-1 and node-2 differ from offset 1 on",
    ]  # fmt: skip


@pytest.mark.parametrize("is_reported", [False, True])
def test_after_the_heal_each_replica_has_all_below_the_high_watermark(
    story: Story, replicas: Replicas, *, is_reported: bool
) -> None:
    noted = {} if is_reported else {"high_watermark": 2}
    replicas.add("a", "b", "c", **noted)
    replicas.add("a", "b", **noted)
    replicas.add("a")
    story.note("info", "n", 0, "fault", fault="kill")
    assert replicas.judged(story).counts == {}
    story.note("info", "n", 0, "heal")
    if is_reported:
        assert replicas.judged(story).counts == {}  # who knows what was committed
        number = story.number()
        story.note("invoke", "c", number, "poll", seek={"t-0": 0})
        story.note(
            "ok", "c", number, "poll", records={"t-0": [[0, "a"], [1, "b"]]},
            high_watermark={"t-0": 2}, final=True,
        )  # fmt: skip
    verdict = replicas.judged(story)
    assert verdict.counts == {"replica-lags": 1}
    (finding,) = verdict.findings
    assert finding.words == "node-2 ends at 1, below the high watermark 2"
    assert (finding.offset, len(finding.witness)) == (1, 2 if is_reported else 1)
    story.note("info", "n", 0, "fault", fault="kill")
    assert replicas.judged(story).counts == {}


def test_without_a_word_of_the_heal_a_replica_may_lag(story: Story, replicas: Replicas) -> None:
    replicas.add("a", "b", "c", high_watermark=3)
    replicas.add("a", "b")
    assert replicas.judged(story).counts == {}


def test_a_high_watermark_noted_beyond_the_end_of_a_log_is_none(
    story: Story, replicas: Replicas
) -> None:
    replicas.add("a", "b", high_watermark=9)
    replicas.add("a", "b", "c")
    story.note("info", "n", 0, "heal")
    assert "replica-lags" not in replicas.judged(story).counts


def test_damage_is_told_with_its_rule(story: Story, replicas: Replicas) -> None:
    path = replicas.add("a", "b", "c")
    replicas.add("a", "b", "c")
    log = next(path.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[-3] ^= 1
    log.write_bytes(data + replicas_tail())
    verdict = replicas.judged(story)
    assert {*verdict.counts} == {"damaged-replica"}
    assert any("BAT-1" in each.words and str(path) in each.words for each in verdict.findings)


def replicas_tail() -> bytes:
    """Something good behind the damage, so that it is no torn end."""
    return encoded_batch(3, [Record(0, 0, 0, None, b"after", ())])


def test_a_value_is_looked_up_where_no_line_has_it(story: Story, replicas: Replicas) -> None:
    replicas.add("a", "b", "z", "z")
    (finding,) = replicas.judged(story).findings
    assert (finding.kind, finding.value, finding.line) == ("duplicate", "z", 0)
    assert finding.words == "z is at offset 2 and at 3 in node-0"


def test_partitions_without_directories_are_judged_by_what_was_read(story: Story) -> None:
    data = story.data()
    from io import BytesIO

    verdict = judge([HistorySource("history", lambda: BytesIO(data))], lambda _: [])
    assert verdict.counts == {"unseen": 2}
