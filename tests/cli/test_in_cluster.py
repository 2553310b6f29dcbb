"""Leader, ISR and min.insync.replicas in `describe`, `check` and `replicas compare`.

As `metadata` has them, which real brokers' answers judge; nothing where nothing is known.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.changes import notes_of, rows_of
from tests.metadata_logs import broker, change, partition, setting, topic, write_log
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JSONL = ("--output", "jsonl")
FIELDS = ("leader", "isr", "min_insync_replicas", "min_insync_from")
METADATA = "__cluster_metadata-0"
SOURCE = "leader and ISR as of metadata record"
# Golden log dirs of several nodes, and how many copies of partitions they have.
CLUSTERS = [
    ("kafka-4.3.1-three-brokers", "diverged", ("broker-1", "broker-2", "broker-3"), 12),
    ("kafka-4.3.1-deaths", "elr/both-at-once", ("node-0", "node-1", "node-2"), 9),
    ("kafka-4.3.1-deaths", "no-elr/0-then-1", ("node-0", "node-1", "node-2"), 9),
    ("kafka-4.3.1", "clean", (".",), 23),
]


def known_of(rows: list[dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """Directory -> what is known of it."""
    return {
        each["path"]: (*(each[name] for name in FIELDS), each["standing"])
        for each in rows
        if each["topic"] != "__cluster_metadata"
    }


def row_of(outcome: Any) -> dict[str, Any]:
    return next(each for each in rows_of(outcome, "partition"))


@pytest.mark.share(2)
@pytest.mark.parametrize(("archive", "place", "nodes", "count"), CLUSTERS)
def test_all_say_what_the_metadata_say(
    golden: Callable[[str], Path],
    eoctl: Callable[..., Any],
    archive: str,
    place: str,
    nodes: tuple[str, ...],
    count: int,
) -> None:
    """Of every copy of every partition; and the copies stand where it says."""
    paths = [golden(archive) / place / each for each in nodes]
    state = eoctl("metadata", *paths, *JSONL)
    partitions = {
        (each["topic"], each["partition"]): each for each in rows_of(state, "cluster_partition")
    }
    expected = {
        each["path"]: (
            *(partitions[each["topic"], each["partition"]][name] for name in FIELDS),
            each["standing"],
        )
        for each in rows_of(state, "copy")
    }
    assert len(expected) == count
    for verb in ("describe", "check"):
        assert known_of(rows_of(eoctl(verb, *paths, *JSONL), "partition")) == expected
    if len(paths) > 1:
        compared = eoctl("replicas", "compare", *paths, *JSONL)
        found = rows_of(compared, "cluster_partition")
        assert found == [each for each in partitions.values() if each in found]
        assert len(found) == len(partitions)
        standings = {each["path"]: each["standing"] for each in rows_of(compared, "replica")}
        assert standings == {path: known[-1] for path, known in expected.items()}


def test_min_insync_replicas_that_a_topic_has(
    golden: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    path = golden("kafka-4.3.1-deaths") / "elr/both-at-once/node-0"
    rows = rows_of(eoctl("describe", path, *JSONL), "partition")
    found = {each["topic"]: (each["min_insync_replicas"], each["min_insync_from"]) for each in rows}
    assert found["two"] == (2, "topic")


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "call",
    [
        ("describe",), ("check",), ("replicas", "compare"),
    ],
)  # fmt: skip
def test_where_it_is_from_and_of_when(
    diverged: Path, eoctl: Callable[..., Any], call: tuple[str, ...]
) -> None:
    """The newest counts: broker 2's, whatever comes first."""
    found = eoctl(*call, "broker-3", "broker-1", "broker-2", *JSONL)
    notes = notes_of(found)
    reported = f"{SOURCE} 164, 2026-11-21 03:00:18.888 UTC, in broker-2/{METADATA}"
    assert [each for each in notes if each.startswith("leader and ISR")] == [reported]
    transactions = "__transaction_state-0, __transaction_state-1"
    assert f"no leader, though a replica's broker runs: {transactions}" in notes
    assert "min.insync.replicas: default is Kafka's; server.properties is unknown" in notes
    assert any(each.startswith("not in the ISR, may lack") for each in notes)


def test_a_note_and_no_finding(diverged: Path, eoctl: Callable[..., Any]) -> None:
    """A copy out of the ISR is as it should be: exit 0, and said."""
    shutil.copytree(f"broker-2/{METADATA}", f"broker-1/{METADATA}", dirs_exist_ok=True)
    for verb in ("describe", "check"):
        found = eoctl(verb, "broker-1/calm-0", *JSONL)
        assert found.status == 0
        assert rows_of(found, "finding") == []
        assert row_of(found)["standing"] == "out of sync"
        assert "not in the ISR, may lack what was acknowledged since: broker-1/calm-0" in notes_of(
            found
        )


@pytest.mark.exhaustive
def test_for_people(diverged: Path) -> None:
    shown = on_terminal("check", "broker-2/div-0", "--now", "0", cwd=diverged)
    assert (
        "cluster leader 2, ISR 2, min.insync.replicas 1 (default); this copy: leader" in shown.lines
    )
    shown = on_terminal("check", "broker-2", "--now", "0", cwd=diverged)
    assert "cluster 4 replicas: leader 2, out of sync 2" in shown.lines
    shown = on_terminal("describe", "broker-2/__transaction_state-0", cwd=diverged)
    assert "leader: none" in shown.text
    assert "standing: out of sync" in shown.text


def test_who_should_lead_and_may_not(diverged: Path) -> None:
    """The best copy of the transaction state is broker 1's; of calm, here, one out of the ISR."""
    call = ("replicas", "compare", "broker-1/calm-0", "broker-2/calm-0", "--now", "0")
    shown = on_terminal(*call, cwd=diverged)
    assert "  cluster: leader 2, ISR 2, min.insync.replicas 1 (default)" in shown.lines
    assert "  not in the ISR: broker 1, broker 3" in shown.lines
    assert "  broker 1 leads by an unclean election only. See eoctl start-order" in shown.lines


def test_text_has_words(diverged: Path, eoctl: Callable[..., Any]) -> None:
    for verb in ("describe", "check"):
        text = eoctl(verb, "broker-2/__transaction_state-0").text
        lines = [each.split("\t") for each in text.splitlines()]
        heading = next(each for each in lines if "leader" in each)
        row = dict(zip(heading, lines[lines.index(heading) + 1], strict=True))
        assert [row[each] for each in (*FIELDS, "standing")] == [
            "none", "1", "1", "topic", "out of sync",
        ]  # fmt: skip


# --- what is not known ----------------------------------------------------------------------------


def is_unknown(row: dict[str, Any], standing: str | None = None) -> bool:
    return [row[each] for each in FIELDS] == [None] * 4 and row["standing"] == standing


@pytest.mark.share(4)
@pytest.mark.parametrize("verb", ["describe", "check"])
@pytest.mark.parametrize("kind", ["alone", "disk", "no metadata", "empty", "other topic"])
def test_nothing_is_invented(
    diverged: Path, tmp_path: Path, eoctl: Callable[..., Any], verb: str, kind: str
) -> None:
    """A partition directory alone, a log dir without metadata, or with an empty log of them."""
    source = diverged / "broker-2"
    place = tmp_path / "other"
    standing = None
    if kind == "alone":
        place.mkdir()
        shutil.copytree(source / "div-0", place / "div-0")
    else:
        shutil.copytree(source, place)
    if kind in {"disk", "no metadata"}:
        shutil.rmtree(place / METADATA)
    if kind == "empty":
        for each in (place / METADATA).iterdir():
            each.unlink()
        (place / METADATA / f"{0:020}.log").touch()
    if kind == "other topic":
        shutil.copy(place / "calm-0/partition.metadata", place / "div-0/partition.metadata")
        standing = "another topic of that name"
    path = place if kind == "disk" else place / "div-0"
    found = eoctl(verb, path, *JSONL)
    rows = [each for each in rows_of(found, "partition") if each["topic"] == "div"]
    assert [is_unknown(each, standing) for each in rows] == [True]
    assert found.status in {0, 1}
    assert not [each for each in notes_of(found) if "leader" in each or "ISR" in each]


def test_metadata_of_another_place(diverged: Path, tmp_path: Path, eoctl: Callable) -> None:
    """The copies alone, and a controller's metadata: whose copy it is, is not known."""
    for number in (1, 2):
        shutil.copytree(f"broker-{number}/div-0", tmp_path / str(number) / "div-0")
    paths = [tmp_path / "1/div-0", tmp_path / "2/div-0"]
    found = eoctl("replicas", "compare", *paths, *JSONL)
    assert rows_of(found, "cluster_partition") == []
    found = eoctl("replicas", "compare", *paths, "--metadata-dir", "broker-2", *JSONL)
    (row,) = rows_of(found, "cluster_partition")
    assert (row["leader"], row["isr"], row["log_end_offset"]) == (2, [2], 73)
    assert {each["standing"] for each in rows_of(found, "replica")} == {None}
    refused = eoctl("replicas", "compare", *paths, "--metadata-dir", tmp_path / "1", *JSONL)
    assert refused.status == 2


def test_another_log_dir_of_the_broker_has_the_replica(
    diverged: Path, eoctl: Callable[..., Any]
) -> None:
    path = diverged / "broker-2/meta.properties"
    text = path.read_text()
    other = "".join(reversed(text.split("directory.id=")[1].split()[0]))
    known = text.split("directory.id=")[1].split()[0]
    path.write_text(text.replace(known, other))
    row = row_of(eoctl("describe", "broker-2/div-0", *JSONL))
    assert (row["leader"], row["standing"]) == (2, "in another log dir")


# --- metadata that cannot be read as a whole ------------------------------------------------------


def damage(diverged: Path, brokers: str = "2") -> None:
    for each in brokers:
        log = diverged / f"broker-{each}" / METADATA / f"{0:020}.log"
        content = bytearray(log.read_bytes())
        content[len(content) // 2] ^= 1
        log.write_bytes(content)


@pytest.mark.parametrize("verb", ["describe", "check"])
def test_damaged_metadata_are_said(diverged: Path, eoctl: Callable[..., Any], verb: str) -> None:
    """Of a partition that is sound, and which alone is asked for: not all was read."""
    damage(diverged)
    found = eoctl(verb, "broker-2/calm-0", *JSONL)
    assert found.status == 5
    assert row_of(found)["leader"] is not None
    reported = f"broker-2/{METADATA}: not all of it could be read. This may be an older state"
    assert reported in notes_of(found)
    assert rows_of(found, "finding") == []
    whole = eoctl(verb, "broker-2", *JSONL)  # there it is found
    assert whole.status == 1
    assert reported in notes_of(whole)


def test_an_older_copy_that_is_whole_counts(diverged: Path, eoctl: Callable[..., Any]) -> None:
    """As for `start-order`; a copy that has parted is the graver of the two."""
    damage(diverged)
    for topic_name, status in (("calm", 5), ("div", 1)):
        paths = [f"broker-{each}/{topic_name}-0" for each in (1, 2)]
        found = eoctl("replicas", "compare", *paths, *JSONL)
        assert found.status == status
        notes = notes_of(found)
        assert f"broker-1/{METADATA} counts: older, and whole" in notes
        assert f"{SOURCE} 115, 2026-11-21 02:59:58.879 UTC, in broker-1/{METADATA}" in notes
        (row,) = rows_of(found, "cluster_partition")
        assert row["leader"] == 1


@pytest.mark.parametrize("verb", ["describe", "check"])
def test_the_same_copy_counts_for_each_command(
    diverged: Path, eoctl: Callable[..., Any], verb: str
) -> None:
    """Of which metadata leaders and ISR are told, and which were passed over."""
    damage(diverged)
    found = eoctl(verb, "broker-1/calm-0", "broker-2/calm-0", *JSONL)
    assert found.status == 5
    notes = notes_of(found)
    assert notes.count(f"broker-1/{METADATA} counts: older, and whole") == 1
    assert f"{SOURCE} 115, 2026-11-21 02:59:58.879 UTC, in broker-1/{METADATA}" in notes
    assert [row["leader"] for row in rows_of(found, "partition")] == [1, 1]


def test_what_may_have_been_newer_is_said(diverged: Path, eoctl: Callable[..., Any]) -> None:
    """Of the newest log nothing is left, so that another one is chosen: that is not known for sure."""
    log = diverged / "broker-2" / METADATA / f"{0:020}.log"
    log.write_bytes(b"\xb9" * log.stat().st_size)
    reported = f"broker-2/{METADATA}: damaged towards its end: what it had may be newer"
    paths = ("broker-1/calm-0", "broker-2/calm-0")
    for call in (("describe",), ("check",), ("replicas", "compare")):
        found = eoctl(*call, *paths, *JSONL)
        assert (found.status, notes_of(found).count(reported)) == (5, 1)


def test_a_log_that_is_being_written(diverged: Path, eoctl: Callable[..., Any]) -> None:
    """Half a batch at the end, as between two writes of a controller: nothing is amiss."""
    log = diverged / "broker-2" / METADATA / f"{0:020}.log"
    content = log.read_bytes()
    log.write_bytes(content[:-40])
    for call in (
        ("describe", "broker-2/calm-0"),
        ("check", "broker-2/calm-0"),
        ("replicas", "compare", "broker-2/calm-0", "broker-1/calm-0"),
    ):
        found = eoctl(*call, *JSONL)
        assert found.status == 0
        assert not [each for each in notes_of(found) if "could be read" in each]


def test_hostile_names_and_an_isr_that_is_too_small(
    tmp_path: Path, eoctl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, topic_id = "a\t\x1b[31mb", bytes(range(16))
    log_dir = tmp_path / "kafka"
    write_log(
        log_dir / METADATA,
        [
            (1_000, [broker(1, 5), broker(2, 6), broker(3, 7)]),
            (2_000, [topic(name, topic_id), partition(topic_id, [1, 2, 3])]),
            (3_000, [setting(2, name, "min.insync.replicas", "2"), change(topic_id, isr=[1])]),
        ],
    )
    write_log(log_dir / f"{name}-0", [])
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    found = eoctl("describe", "kafka", *JSONL)
    row = next(each for each in rows_of(found, "partition") if each["topic"] == name)
    assert [row[each] for each in (*FIELDS, "standing")] == [1, [1], 2, "topic", "leader"]
    assert f"ISR below min.insync.replicas, acks=all is refused: {name}-0" in notes_of(found)
    text = eoctl("describe", "kafka")
    assert "\x1b" not in text.text + text.errors
