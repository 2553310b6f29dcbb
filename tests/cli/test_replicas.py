"""`eoctl replicas`: what it tells of copies that part, what rejoin makes of one, what it refuses."""

from __future__ import annotations

import os
import re
import shutil
import struct
from typing import TYPE_CHECKING, Any

import pytest

from recovery.changes import apply
from tests.changes import (
    held,
    in_80_columns,
    interrupt,
    journal_of,
    notes_of,
    rows_of,
    table,
    unpacked,
)
from tests.crash.trees import difference, leftovers, tree_of
from tests.damage.faults import read_batches
from tests.diverged_logs import (
    EPOCHS_NAME,
    batches_of,
    begin_epoch,
    copy_partition,
    log_of,
    write_epochs,
)
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COMPARE = ("replicas", "compare", "broker-1/div-0", "broker-2/div-0", "broker-3/div-0", "--now", 0)
ALL_LEADERS = (*COMPARE, "--all-leaders")
REJOIN = ("replicas", "rejoin", "broker-1/div-0", "--leader", "broker-2/div-0")
JSONL = ("--output", "jsonl")
LOG_NAME = "00000000000000000000.log"


@pytest.fixture
def after(golden: Callable[[str], Path]) -> Path:
    """The same three nodes as `diverged`, after the brokers had done it."""
    return golden("kafka-4.3.1-three-brokers") / "after"


@pytest.fixture
def rolled(
    golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path]:
    """Two copies of three segments (from 0, 25, 50); those of `a` are of epoch 5 from 30 on."""
    monkeypatch.chdir(tmp_path)
    source = golden("kafka-4.3.1") / "clean" / "rolled-0"
    one, other = (copy_partition(source, tmp_path / name / "rolled-0") for name in "ab")
    begin_epoch(one, 30, 5)
    return one, other


def only(outcome: Any, kind: str) -> dict[str, Any]:
    (row,) = rows_of(outcome, kind)
    return row


NEWEST = "2026-11-21 03:00:18.888 UTC"

# --- compare --------------------------------------------------------------------------------------

TEXT = "\n".join(
    [
        table(
            "path | broker | log_start_offset | log_end_offset | high_watermark | leader_epochs"
            " | sound_end_offset | standing",
            "broker-1/div-0 | 1 | 0 | 73 | 37 | 0@0 | 73 | out of sync",
            "broker-2/div-0 | 2 | 0 | 66 | 36 | 0@0 1@36 | 66 | leader",
            "broker-3/div-0 | 3 | 0 | 36 | 30 | 0@0 | 36 | out of sync",
        ),
        table(
            "one | other | likeness | divergence_offset | epochs_end_offset"
            " | compared_start_offset | compared_end_offset",
            "broker-1/div-0 | broker-2/div-0 | diverged | 36 | 36 | 0 | 66",
            "broker-1/div-0 | broker-3/div-0 | behind | 36 | 36 | 0 | 36",
            "broker-2/div-0 | broker-3/div-0 | behind | 36 | 36 | 0 | 36",
        ),
        table(
            "leader | follower | truncation_offset | log_end_offset | lost_records_count"
            " | lost_acknowledged_offsets_count | lost_transactions_count | lost_offsets_count"
            " | lost_acknowledged_records_count | reopened_transactions_count | lost_log_bytes"
            " | acknowledged_end_offset",
            "broker-1/div-0 | broker-2/div-0 | 36 | 66 | 30 | 0 | 0 | 30 | 0 | 0 | 3440 | 36",
            "broker-1/div-0 | broker-3/div-0 | 36 | 36 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 36",
            "broker-2/div-0 | broker-1/div-0 | 36 | 73 | 33 | 1 | 3 | 37 | 0 | 0 | 3979 | 37",
            "broker-2/div-0 | broker-3/div-0 | 36 | 36 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 36",
            "broker-3/div-0 | broker-1/div-0 | 36 | 73 | 33 | 1 | 3 | 37 | 0 | 0 | 3979 | 37",
            "broker-3/div-0 | broker-2/div-0 | 36 | 66 | 30 | 0 | 0 | 30 | 0 | 0 | 3440 | 36",
        ),
        table(
            "follower | truncation_offset | producer_id | first_offset | marker_offset | ended_by"
            " | outcome",
            "broker-1/div-0 | 36 | 2001 | 43 | 45 | abort | removed",
            "broker-1/div-0 | 36 | 2001 | 55 | 58 | commit | removed",
            "broker-1/div-0 | 36 | 2001 | 67 | 69 | abort | removed",
        ),
        table(
            "topic | partition | leader | isr | elr | replicas | is_under_min_isr"
            " | min_insync_replicas | min_insync_from | leader_epoch | high_watermark"
            " | log_end_offset | last_known_elr | adding_replicas | removing_replicas"
            " | partition_epoch | is_recovering | directories | topic_id",
            "div | 0 | 2 | 2 | - | 1,2,3 | no | 1 | default | 1 | 37 | 73 | - | - | - | 3 | yes"
            " | sLz81O07T3UIWxWlCNrBPA,3ffDjha9nKvaZkMBoFkBbw,N0oj5BBU89igVstgaM7Vcw"
            " | Qj3e7Wg3TCqw7DUWg9vGqQ",
        ),
        table(
            "topic | partition | leader | broker | leader_epoch | end_offset | lost_records_count"
            " | lost_acknowledged_records_count | lost_acknowledged_offsets_count | is_sound"
            " | reason | cheaper_leader | cheaper_acknowledged_records_count",
            "div | 0 | broker-2/div-0 | 2 | 1 | 66 | 33 | 0 | 1 | yes"
            " | leader epoch 1, the others have 0 at most | unknown | unknown",
        ),
    ]
)


def test_text(diverged: Path, eoctl: Callable) -> None:
    before = tree_of(diverged)
    found = eoctl(*ALL_LEADERS)
    assert found.status == 1
    assert found.text == TEXT
    assert found.errors.splitlines()[6:] == [
        "verified: headers and checksums of all batches; records were not decompressed",
        f"leader and ISR as of metadata record 164, {NEWEST}, in broker-2/__cluster_metadata-0",
        "min.insync.replicas: default is Kafka's; server.properties is unknown",
        "not in the ISR, may lack what was acknowledged since: broker-1/div-0, broker-3/div-0",
    ]
    assert difference(before, tree_of(diverged)) == []


def test_rows(diverged: Path, eoctl: Callable) -> None:
    rows = rows_of(eoctl(*ALL_LEADERS, *JSONL))
    assert rows == unpacked(eoctl(*ALL_LEADERS, "--output", "msgpack"))
    kinds = [each["kind"] for each in rows]
    assert [kinds.count(each) for each in dict.fromkeys(kinds)] == [3, 3, 6, 3, 1, 1]
    assert rows[3]["divergence_offset"] == 36


def test_other_leaders_are_left_out(diverged: Path, eoctl: Callable) -> None:
    """Without --all-leaders: only what the recommended leader, and the real one, cost."""
    few, whole = (eoctl(*each, *JSONL) for each in (COMPARE, ALL_LEADERS))
    (best,) = rows_of(few, "recommendation")
    (state,) = rows_of(few, "cluster_partition")
    leaders = {best["leader"], f"broker-{state['leader']}/div-0"}
    expected = [each for each in rows_of(whole, "choice") if each["leader"] in leaders]
    assert rows_of(few, "choice") == expected
    left = len(rows_of(whole, "choice")) - len(expected)
    assert f"{left} choices of other leaders not printed (--all-leaders)" in few.errors
    assert {each["leader"] for each in expected} == leaders
    assert eoctl("replicas", "rejoin", "broker-1/div-0", "--leader", "broker-2/div-0",
                 "--all-leaders").status == 2  # fmt: skip


def test_the_tails_are_those_of_the_dump(diverged: Path, golden: Callable, eoctl: Callable) -> None:
    """Counts of what each of the two alone has, against kafka-dump-log's words."""
    choices = rows_of(eoctl(*ALL_LEADERS, *JSONL), "choice")
    for leader, follower in ((2, 1), (1, 2)):
        dump = golden("kafka-4.3.1-three-brokers.dump") / "diverged" / f"broker-{follower}"
        lines = (dump / "div-0" / f"{LOG_NAME}.txt").read_text().splitlines()
        batches = [each for each in lines if each.startswith("baseOffset: ")]
        tail = [each for each in batches if int(each.split()[1]) >= 36]
        found = next(
            each
            for each in choices
            if each["leader"].startswith(f"broker-{leader}/")
            and each["follower"].startswith(f"broker-{follower}/")
        )
        records = [each for each in tail if "isControl: false" in each]
        assert found["lost_records_count"] == sum(
            int(each.split(" count: ")[1].split()[0]) for each in records
        )
        sizes = [int(each.split(" size: ")[1].split()[0]) for each in tail]
        assert found["lost_log_bytes"] == sum(sizes)


def test_equal_copies(after: Path, eoctl: Callable) -> None:
    """Their logs are the same, also where the leader knows an epoch without batches."""
    found = eoctl(
        "replicas", "compare", *(after / f"broker-{each}/div-0" for each in (1, 2, 3)), *JSONL
    )
    assert found.status == 0
    assert {each["likeness"] for each in rows_of(found, "comparison")} == {"equal"}
    assert {each["lost_offsets_count"] for each in rows_of(found, "choice")} == {0}
    assert rows_of(found, "transaction") == []


def test_a_difference_that_no_broker_sees(diverged: Path, eoctl: Callable) -> None:
    """A batch below the common epoch's end has other content with a right checksum."""
    path = diverged / "broker-2/div-0" / LOG_NAME
    data = bytearray(path.read_bytes())
    each = read_batches(bytes(data))[10]
    struct.pack_into(">i", data, each.pos + 12, 9)  # the leader epoch, under no checksum
    path.write_bytes(data)
    found = eoctl(*COMPARE, *JSONL)
    assert found.status == 1
    one, *_ = rows_of(found, "comparison")
    assert (one["divergence_offset"], one["epochs_end_offset"]) == (each.base_offset, 36)
    assert any("No broker will notice" in note for note in notes_of(found))
    refused = eoctl(*REJOIN, "--unclean")
    assert refused.status == 4
    assert f"their batches differ from offset {each.base_offset} on" in refused.errors


def test_damage_is_no_difference(diverged: Path, eoctl: Callable) -> None:
    """Behind it nothing is claimed; and it is neither followed nor joined on to."""
    path = diverged / "broker-3/div-0" / LOG_NAME
    data = bytearray(path.read_bytes())
    each = read_batches(bytes(data))[20]
    data[each.end - 1] ^= 1
    path.write_bytes(data)
    call = ("replicas", "compare", "broker-3/div-0", "broker-2/div-0", "--now", 0, *JSONL)
    found = eoctl(*call)
    assert found.status == 5
    row = only(found, "comparison")
    assert (row["likeness"], row["divergence_offset"]) == ("unknown", None)
    assert row["compared_end_offset"] == each.base_offset
    replica = rows_of(found, "replica")[0]
    assert replica["sound_end_offset"] == each.base_offset
    assert any("it is unknown whether they differ" in note for note in notes_of(found))
    for follower, leader in (("broker-3", "broker-2"), ("broker-2", "broker-3")):
        refused = eoctl(
            "replicas", "rejoin", f"{follower}/div-0", "--leader", f"{leader}/div-0", "--unclean"
        )
        assert refused.status == 4
        assert f"broker-3/div-0: is damaged behind offset {each.base_offset}" in refused.errors


def with_offset(path: Path, number: int, offset: int) -> int:
    """Give a batch another base offset, which no checksum covers; returns the one that it had."""
    data = bytearray(path.read_bytes())
    each = read_batches(bytes(data))[number]
    struct.pack_into(">q", data, each.pos, offset)
    path.write_bytes(data)
    return each.base_offset


@pytest.mark.parametrize("number", [0, 5])
def test_a_raised_offset_is_damage(
    after: Path, tmp_path: Path, eoctl: Callable, number: int
) -> None:
    """It hides what is behind it, whatever it says of itself."""
    shutil.copytree(after, tmp_path, dirs_exist_ok=True)
    one, other = (tmp_path / f"broker-{each}/div-0" for each in (1, 2))
    wrong_from = with_offset(one / LOG_NAME, number, 1 << 23)
    found = eoctl("replicas", "compare", one, other, *JSONL)
    assert found.status in {1, 5}
    assert rows_of(found, "replica")[0]["sound_end_offset"] == wrong_from
    assert only(found, "comparison")["likeness"] != "equal"
    for follower, leader in ((one, other), (other, one)):
        refused = eoctl("replicas", "rejoin", follower, "--leader", leader, "--unclean")
        assert refused.status == 4
        assert f"{one}: is damaged behind offset {wrong_from}" in refused.errors


def test_a_raised_offset_at_the_end_of_a_segment(
    rolled: tuple[Path, Path], eoctl: Callable
) -> None:
    """Only the name of the next segment contradicts it."""
    _, other = rolled
    one = copy_partition(other, other.parents[1] / "c" / "rolled-0")
    wrong_from = with_offset(one / LOG_NAME, -1, 1 << 23)
    found = eoctl("replicas", "compare", one, other, *JSONL)
    assert found.status in {1, 5}
    assert rows_of(found, "replica")[0]["sound_end_offset"] == wrong_from
    assert only(found, "comparison")["likeness"] != "equal"
    refused = eoctl("replicas", "rejoin", other, "--leader", one, "--unclean")
    assert refused.status == 4


def test_what_a_cleaner_may_have_changed(
    golden: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eoctl: Callable
) -> None:
    """One copy was cleaned, the other was not: no difference is claimed below that."""
    monkeypatch.chdir(tmp_path)
    root = golden("kafka-4.3.1")
    for name in ("crash", "clean"):
        copy_partition(root / name / "compacted-0", tmp_path / name / "compacted-0")
        for file in ("meta.properties", "cleaner-offset-checkpoint"):
            if (root / name / file).exists():
                shutil.copy(root / name / file, tmp_path / name / file)
    node = tmp_path / "crash" / "meta.properties"
    node.unlink()
    found = eoctl("replicas", "compare", "crash/compacted-0", "clean/compacted-0", *JSONL)
    row = only(found, "comparison")
    assert row["likeness"] in {"equal", "behind"}
    assert row["compared_start_offset"] == 35
    assert any("a cleaner was at work below 35" in note for note in notes_of(found))
    assert found.status == 0


def test_copies_without_a_common_offset(
    rolled: tuple[Path, Path], eoctl: Callable, tmp_path: Path
) -> None:
    """One begins where the other has ended long ago."""
    one, other = rolled
    for stem in (0, 25):
        for path in one.glob(f"{stem:020d}.*"):
            path.unlink()
    for stem in (25, 50):
        for path in other.glob(f"{stem:020d}.*"):
            path.unlink()
    found = eoctl("replicas", "compare", one, other, *JSONL)
    assert found.status == 5
    row = only(found, "comparison")
    assert (row["likeness"], row["divergence_offset"]) == ("disjoint", None)
    assert any("They have no offset in common" in note for note in notes_of(found))
    for choice in rows_of(found, "choice"):
        assert (choice["truncation_offset"], choice["lost_records_count"]) == (None, None)
    for follower, leader in ((one, other), (other, one)):
        refused = eoctl("replicas", "rejoin", follower, "--leader", leader, "--unclean")
        assert refused.status == 4
        assert "try: move the directory away" in refused.errors


@pytest.mark.parametrize("later", ["a", "b"])
def test_different_log_starts(rolled: tuple[Path, Path], eoctl: Callable, later: str) -> None:
    """What only one of them still has is no difference, and stays where it is."""
    one, other = rolled
    cut = one if later == "a" else other
    for path in cut.glob(f"{0:020d}.*"):
        path.unlink()
    if any(line.endswith(" 0") for line in (cut / EPOCHS_NAME).read_text().splitlines()[2:]):
        lines = (cut / EPOCHS_NAME).read_text().splitlines()
        first = lines[2].split()[0]  # retention cuts the epochs, too
        (cut / EPOCHS_NAME).write_text("\n".join([*lines[:2], f"{first} 25", *lines[3:], ""]))
    before = log_of(one)
    row = only(eoctl("replicas", "compare", one, other, *JSONL), "comparison")
    assert (row["likeness"], row["divergence_offset"]) == ("diverged", 30)
    assert (row["compared_start_offset"], row["compared_end_offset"]) == (25, 60)
    done = eoctl("replicas", "rejoin", one, "--leader", other, "--unclean", "--apply", *JSONL)
    assert done.status == 0, done.errors
    after = log_of(one)
    assert len(after) == len(before)
    assert after[:1000] == before[:1000]
    wanted = [each for each in batches_of(other) if each[0] >= 25]
    assert [each for each in batches_of(one) if each[0] >= 25] == wanted


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compare", "broker-1/div-0"), "1 directories, two are needed"),
        (("compare", "broker-1/div-0", "broker-1/div-0"), "is given twice"),
        (("compare", "broker-1/div-0", "broker-2/calm-0"), "is no replica of div-0"),
        (("compare", "broker-1/div-0", "broker-2/div-0", "--apply"), "compare changes nothing"),
        (("compare", "broker-1/div-0", "broker-2/div-0", "--rule", "hw"), "compare changes"),
        (("rejoin", "broker-1/div-0"), "one directory and one leader"),
        (("rejoin", "broker-1/div-0", "--leader", "broker-1/div-0"), "is given twice"),
        (
            ("rejoin", "broker-1/div-0", "--leader", "broker-2/div-0", "--rule", "hw", "--apply"),
            "only shown",
        ),
    ],
)
def test_wrong_calls(
    diverged: Path, eoctl: Callable, arguments: tuple[str, ...], words: str
) -> None:
    refused = eoctl("replicas", *arguments)
    assert refused.status == 2
    assert words in refused.errors.replace("TopicPartition(topic='div', partition=0)", "div-0")


def test_topics_of_one_name(diverged: Path, eoctl: Callable) -> None:
    (diverged / "broker-2/div-0/partition.metadata").write_text(
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    )
    for call in (COMPARE, REJOIN):
        refused = eoctl(*call)
        assert refused.status == 4
        assert "different topics of one name" in refused.errors


# --- rejoin ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 3])
def test_as_the_brokers_did_it(diverged: Path, after: Path, eoctl: Callable, number: int) -> None:
    """Log bytes and leader epochs of `after`; undone, every byte and time of `diverged`."""
    before = tree_of(diverged / f"broker-{number}")
    call = ("replicas", "rejoin", f"broker-{number}/div-0", "--leader", "broker-2/div-0")
    done = eoctl(*call, "--unclean", "--apply", *JSONL)
    assert done.status == 0, done.errors
    row = only(done, "rejoin")
    assert (row["truncation_offset"], row["end_after_rejoin"], row["applied"]) == (36, 66, True)
    ours, theirs = diverged / f"broker-{number}/div-0", after / f"broker-{number}/div-0"
    for name in (LOG_NAME, EPOCHS_NAME, "00000000000000000000.txnindex"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()
    newest = "00000000000000000066.snapshot"
    assert (ours / newest).read_bytes() == (theirs / newest).read_bytes()
    assert eoctl("rebuild", ours).status == 0  # nothing differs from what the .log says
    assert eoctl("check", ours).status == 0
    again = eoctl(*call, "--apply", *JSONL)
    assert again.status == 0
    assert "it has all that the leader has: nothing was changed" in notes_of(again)
    compared = eoctl("replicas", "compare", ours, "broker-2/div-0", *JSONL)
    assert only(compared, "comparison")["likeness"] == "equal"
    assert eoctl("undo", journal_of(diverged / f"broker-{number}")).status == 0
    assert difference(before, tree_of(diverged / f"broker-{number}")) == []


def test_what_is_shown(diverged: Path, eoctl: Callable) -> None:
    """The plan, its price, and nothing is changed."""
    before = tree_of(diverged)
    shown = eoctl(*REJOIN, "--unclean", *JSONL)
    assert shown.status == 0
    assert "this is a plan, nothing was changed: --apply runs it" in notes_of(shown)
    price = only(shown, "price")
    transactions = price.pop("transactions")
    assert [each["first_offset"] for each in transactions] == [43, 55, 67]
    assert price["transactions_count"] == {"reopened": 0, "removed": 3, "shortened": 0}
    assert [
        price[name]
        for name in (
            "cut_start_offset", "cut_end_offset", "batches_count", "records_count", "log_bytes",
            "acknowledged_end_offset", "appended_end_offset", "appended_log_bytes",
        )
    ] == [36, 73, 37, 33, 3979, 37, 66, 3440]  # fmt: skip
    assert [each["file"] for each in rows_of(shown, "step")] == [
        "replication-offset-checkpoint",
        f"div-0/{LOG_NAME}",
        "div-0/00000000000000000000.index",
        "div-0/00000000000000000000.timeindex",
        "div-0/00000000000000000000.txnindex",
        "div-0/leader-epoch-checkpoint",
        "div-0/00000000000000000066.snapshot",
    ]
    assert difference(before, tree_of(diverged)) == []


def test_acknowledged_offsets_need_a_word(diverged: Path, eoctl: Callable) -> None:
    """37 is the high watermark of broker 1: offset 36 is its own and acknowledged."""
    refused = eoctl(*REJOIN)
    assert refused.status == 4
    assert "would be truncated at 36: offsets below 37 were acknowledged" in refused.errors
    assert "--leader broker-2/div-0 --unclean\n" in refused.errors
    (diverged / "broker-1/replication-offset-checkpoint").unlink()
    unknown = eoctl(*REJOIN)
    assert unknown.status == 4
    assert "its high watermark is unknown" in unknown.errors
    other = eoctl("replicas", "rejoin", "broker-2/div-0", "--leader", "broker-1/div-0", *JSONL)
    assert other.status == 0, other.errors
    assert only(other, "rejoin")["end_after_rejoin"] == 73


def test_the_older_rule(diverged: Path, eoctl: Callable) -> None:
    """At 37 broker 1 would have kept an offset of its own; broker 3 would have dropped six."""
    kept = eoctl(*REJOIN, "--rule", "hw", *JSONL)
    row = only(kept, "rejoin")
    assert (row["truncation_offset"], row["kept_diverged_offsets_count"]) == (37, 1)
    assert row["dropped_common_offsets_count"] == 0
    assert any("two logs then differ, which no broker notices" in each for each in notes_of(kept))
    dropped = eoctl(
        "replicas", "rejoin", "broker-3/div-0", "--leader", "broker-2/div-0", "--rule", "hw", *JSONL
    )
    row = only(dropped, "rejoin")
    assert (row["truncation_offset"], row["dropped_common_offsets_count"]) == (30, 6)
    assert row["kept_diverged_offsets_count"] == 0
    assert rows_of(dropped, "step") == []


def test_over_segments(rolled: tuple[Path, Path], eoctl: Callable) -> None:
    """A segment begins a batch later than the leader's, since the name is that of one that goes."""
    one, other = rolled
    wanted = log_of(other)
    done = eoctl("replicas", "rejoin", one, "--leader", other, "--unclean", "--apply", *JSONL)
    assert done.status == 0, done.errors
    assert log_of(one) == wanted
    assert batches_of(one) == batches_of(other)
    bases = [int(path.stem) for path in sorted(one.glob("*.log"))]
    starts = [base for base, _, _ in batches_of(other)]
    assert bases == [0, 25, starts[starts.index(50) + 1]]
    assert (one / EPOCHS_NAME).read_text() == "0\n1\n0 0\n"
    assert eoctl("rebuild", one).status == 0
    assert leftovers(one.parent) == []


def test_a_segment_that_is_full(
    golden: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eoctl: Callable
) -> None:
    """With the topic's segment.bytes of 1 MiB the leader's larger piece begins a new one."""
    monkeypatch.chdir(tmp_path)
    clean = golden("kafka-4.3.1") / "clean"
    one, other = (copy_partition(clean / "rolled-0", tmp_path / each / "rolled-0") for each in "ab")
    begin_epoch(one, 48, 5)
    for path in other.glob("*000025.*"):  # the leader has rolled elsewhere
        path.unlink()
    first = other / LOG_NAME
    first.write_bytes(log_of(clean / "rolled-0"))
    (other / "00000000000000000050.log").unlink()
    for path in [*other.glob("*index"), *other.glob("*.snapshot")]:
        path.unlink()
    call = ("replicas", "rejoin", one, "--leader", other, "--unclean", "--metadata-dir", clean)
    done = eoctl(*call, "--apply", *JSONL)
    assert done.status == 0, done.errors
    assert log_of(one) == log_of(other)
    cut = only(done, "rejoin")["truncation_offset"]
    bases = [int(path.stem) for path in sorted(one.glob("*.log"))]
    assert bases == [0, 25, cut]


def test_after_a_step_in_between(
    diverged: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted, the same command completes it; the leader must still be what it was."""
    before = tree_of(diverged / "broker-1")
    with monkeypatch.context() as patch:
        interrupt(patch, "rename", name=f"{LOG_NAME}.eoctl-tmp")
        assert eoctl(*REJOIN, "--unclean", "--apply").status == 130
    assert eoctl("truncate", "broker-1/div-0", "--to-offset", 36, "--apply").status == 4
    leader = diverged / "broker-2/div-0" / LOG_NAME
    data = leader.read_bytes()
    leader.write_bytes(data[:-1] + b"?")
    refused = eoctl(*REJOIN, "--unclean", "--apply")
    assert refused.status == 4
    assert "not the bytes that the plan was made for" in refused.errors
    leader.write_bytes(data)
    done = eoctl(*REJOIN, "--unclean", "--apply", *JSONL)
    assert done.status == 0, done.errors
    assert any("completed what an earlier run began" in each for each in notes_of(done))
    assert log_of(diverged / "broker-1/div-0") == data
    assert eoctl("undo", journal_of(diverged / "broker-1")).status == 0
    assert difference(before, tree_of(diverged / "broker-1")) == []


def test_a_saved_plan(diverged: Path, eoctl: Callable) -> None:
    """It holds where the leader's bytes are; it is stale once these have changed."""
    assert eoctl(*REJOIN, "--unclean", "--save-plan", "plan.json").status == 0
    assert (diverged / "plan.json").stat().st_size < 10_000
    leader = diverged / "broker-2/div-0" / LOG_NAME
    before = leader.stat()
    os.utime(leader, ns=(0, 0))
    stale = eoctl("apply", "plan.json")
    assert stale.status == 4
    assert "is not what it was when the plan was derived from it" in stale.errors
    os.utime(leader, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert eoctl("apply", "plan.json").status == 0
    assert log_of(diverged / "broker-1/div-0") == leader.read_bytes()


def test_a_plan_from_another_hand(diverged: Path, eoctl: Callable) -> None:
    """Pieces lead to `.log` files of that partition only."""
    assert eoctl(*REJOIN, "--unclean", "--save-plan", "plan.json").status == 0
    plan = diverged / "plan.json"
    text = plan.read_text()
    own = str(diverged / "broker-2/div-0" / LOG_NAME)
    for path in (
        str(diverged / "broker-2/calm-0" / LOG_NAME), "/etc/passwd", f"div-0/{LOG_NAME}",
        str(diverged / "broker-2/../broker-2/div-0" / LOG_NAME),
    ):  # fmt: skip
        first = text.index('"ranges"')
        plan.write_text(text[:first] + text[first:].replace(own, path, 2))
        refused = eoctl("apply", plan)
        assert refused.status == 4
        assert "which is no .log of the same partition" in refused.errors


def test_a_held_lock(diverged: Path, eoctl: Callable) -> None:
    before = tree_of(diverged / "broker-1")
    with held(diverged / "broker-1"):
        assert eoctl(*REJOIN, "--unclean", "--apply").status == 4
    (diverged / "broker-1/.lock").unlink(missing_ok=True)
    assert difference(before, tree_of(diverged / "broker-1")) in ([], [".lock"])


def test_without_leader_epochs(diverged: Path, eoctl: Callable) -> None:
    for name in ("broker-1", "broker-2"):
        path = diverged / name / "div-0" / EPOCHS_NAME
        text = path.read_text()
        path.unlink()
        refused = eoctl(*REJOIN, "--unclean")
        assert refused.status == 4
        assert f"{name}/div-0: knows no leader epochs" in refused.errors
        compared = eoctl(*COMPARE, *JSONL)
        first = rows_of(compared, "comparison")[0]
        assert (first["divergence_offset"], first["epochs_end_offset"]) == (36, None)
        path.write_text(text)
    write_epochs(diverged / "broker-2/div-0", ["3 0", "1 36"])
    assert "[EPC-1]" in eoctl(*REJOIN, "--unclean").errors


def test_every_half_of_it_is_a_log(
    golden: Callable, tmp_path: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before any step: own batches up to some place, or the leader's; never both mixed.

    The leader's epochs are not noted before its batches are there: who notes them vouches for them.
    """
    source = golden("kafka-4.3.1") / "clean" / "compacted-0"
    one, other = (copy_partition(source, tmp_path / name / "compacted-0") for name in "ab")
    begin_epoch(one, 12, 5)
    write_epochs(other, ["0 0"])
    before, own, theirs = tree_of(one.parent), batches_of(one), batches_of(other)
    real = apply.do_step
    stopped_count = 0
    while True:
        calls: list[int] = []

        def step(*arguments: Any, left: list[int] = calls, last: int = stopped_count) -> None:
            left.append(1)
            if len(left) > last:
                raise KeyboardInterrupt
            real(*arguments)

        monkeypatch.setattr(apply, "do_step", step)
        status = eoctl(
            *("replicas", "rejoin", one, "--leader", other, "--unclean", "--apply")
        ).status
        monkeypatch.setattr(apply, "do_step", real)
        found = batches_of(one)
        assert found in (own[: len(found)], theirs[: len(found)])
        noted = (one / EPOCHS_NAME).read_text()
        assert noted == "0\n2\n0 0\n5 12\n" or found == theirs
        journal = journal_of(one.parent)
        assert eoctl("undo", journal).status == 0
        assert difference(before, tree_of(one.parent)) == []
        shutil.rmtree(journal)
        if status == 0:
            break
        assert status == 130
        stopped_count += 1
    assert stopped_count > 8


def test_80_columns(diverged: Path) -> None:
    call = ("replicas", "compare", "broker-2/div-0", "broker-3/div-0", "--now", 0)
    shown = in_80_columns(*call)
    assert re.search(r"^lost acknowledged records +0", shown, re.MULTILINE)


# --- which one should lead ------------------------------------------------------------------------


def test_the_recommended_leader_is_whom_the_brokers_elected(
    diverged: Path, eoctl: Callable
) -> None:
    """broker-2 led in the end; what the others lost is what its choice costs."""
    outcome = eoctl(*COMPARE, *JSONL)
    row = only(outcome, "recommendation")
    assert (row["leader"], row["broker"], row["leader_epoch"]) == ("broker-2/div-0", 2, 1)
    assert (row["end_offset"], row["is_sound"], row["cheaper_leader"]) == (66, True, None)
    own = [each for each in rows_of(outcome, "choice") if each["leader"] == "broker-2/div-0"]
    for name in ("lost_records_count", "lost_acknowledged_records_count"):
        assert row[name] == sum(each[name] for each in own)
    assert row["reason"] == "leader epoch 1, the others have 0 at most"
    assert rows_of(outcome)[-1]["kind"] == "recommendation"


def test_of_one_epoch_the_longest_log_leads(diverged: Path, eoctl: Callable) -> None:
    paths = ("broker-3/div-0", "broker-1/div-0")
    row = only(eoctl("replicas", "compare", *paths, *JSONL), "recommendation")
    assert row["leader"] == "broker-1/div-0"
    assert row["reason"] == "leader epoch 0, and the longest log of it: 73, not 36"
    assert (row["lost_records_count"], row["lost_acknowledged_records_count"]) == (0, 0)


def test_damage_counts_against_a_leader(diverged: Path, eoctl: Callable) -> None:
    """What lies behind it goes when its broker starts: of that end and epoch it is."""
    log = diverged / "broker-2" / "div-0" / LOG_NAME
    data = bytearray(log.read_bytes())
    batch = next(each for each in read_batches(bytes(data)) if each.leader_epoch == 1)
    data[batch.pos + 70] ^= 1
    log.write_bytes(data)
    row = only(eoctl(*COMPARE, *JSONL), "recommendation")
    assert (row["leader"], row["end_offset"], row["leader_epoch"]) == ("broker-1/div-0", 73, 0)
    assert (
        row["reason"] == f"leader epoch 0, and the longest log of it: 73, not {batch.base_offset}"
    )


def test_of_equal_copies_the_sound_one_leads(after: Path, eoctl: Callable, tmp_path: Path) -> None:
    one, other = (after / f"broker-{each}" / "div-0" for each in (1, 2))
    row = only(eoctl("replicas", "compare", one, other, *JSONL), "recommendation")
    assert row["reason"] == "leader epoch 1 up to 66, as the other copy: any of them may lead"
    assert (row["lost_records_count"], row["lost_acknowledged_records_count"]) == (0, 0)


def test_a_cheaper_leader_is_named(diverged: Path, eoctl: Callable) -> None:
    """One with an older epoch may cost fewer acknowledged records: the operator is told."""
    for path in (diverged / "broker-1").glob("replication-offset-checkpoint"):
        path.chmod(0o644)
        path.write_text(path.read_text().replace("div 0 37", "div 0 73"))
    outcome = eoctl(*COMPARE, *JSONL)
    row = only(outcome, "recommendation")
    assert row["leader"] == "broker-2/div-0"
    assert row["lost_acknowledged_records_count"] > row["cheaper_acknowledged_records_count"] == 0
    assert row["cheaper_leader"] == "broker-1/div-0"


def test_of_copies_without_a_good_batch_none_may_lead_at_once(
    diverged: Path, eoctl: Callable
) -> None:
    """An empty leader would cut away what can still be saved behind the damage."""
    empty, damaged = (diverged / each / "div-0" / LOG_NAME for each in ("broker-2", "broker-3"))
    empty.write_bytes(b"")
    data = bytearray(damaged.read_bytes())
    data[70] ^= 1
    damaged.write_bytes(data)
    paths = ("broker-2/div-0", "broker-3/div-0")
    row = only(eoctl("replicas", "compare", *paths, *JSONL), "recommendation")
    assert (row["end_offset"], row["leader_epoch"]) == (0, -1)
    assert row["reason"] == (
        "none of them has a good batch; salvage what is damaged before any of them leads"
    )


def test_log_dirs_are_compared_by_what_they_share(diverged: Path, eoctl: Callable) -> None:
    """As each partition by itself; one clock, told once."""
    outcome = eoctl("replicas", "compare", "broker-1", "broker-2", "broker-3", "--now", 0, *JSONL)
    found = {(row["topic"], row["partition"]): row for row in rows_of(outcome, "recommendation")}
    assert set(found) == {
        (each.name.rpartition("-")[0], int(each.name.rpartition("-")[2]))
        for each in (diverged / "broker-1").iterdir()
        if each.is_dir() and each.name != "__cluster_metadata-0"
    }
    for (topic, number), row in found.items():
        own = [f"broker-{each}/{topic}-{number}" for each in (1, 2, 3)]
        alone = eoctl("replicas", "compare", *own, "--now", 0, *JSONL)
        assert only(alone, "recommendation") == row
        for kind in ("replica", "comparison", "choice", "transaction"):
            key = {"replica": "path", "comparison": "one", "choice": "follower"}.get(
                kind, "follower"
            )
            assert rows_of(alone, kind) == [
                each for each in rows_of(outcome, kind) if each[key] in own
            ]
    assert outcome.status == 1
    assert outcome.errors.count("now is") == 1
    lone = eoctl("replicas", "compare", "broker-1", "broker-1/div-0")
    assert lone.status == 2


def test_a_partition_that_cannot_be_compared_does_not_stop_the_others(
    diverged: Path, eoctl: Callable
) -> None:
    path = diverged / "broker-2" / "calm-0" / "partition.metadata"
    path.chmod(0o644)
    path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    outcome = eoctl("replicas", "compare", "broker-2", "broker-3", *JSONL)
    assert "calm" not in {row["topic"] for row in rows_of(outcome, "recommendation")}
    assert "calm-0: not compared" in outcome.errors
    assert outcome.status == 5


def test_which_replica_leads(diverged: Path) -> None:
    shown = on_terminal(
        "replicas", "compare", "broker-1", "broker-2", "broker-3", streams=("stdout",)
    )
    status, lines = shown.status, shown.lines
    seen = "\n".join(lines[:10])
    assert status == 1
    assert "div-0: leader broker 2, broker-2/div-0" in seen
    assert "lost by the others: 33 records, 0 acknowledged" in seen
