"""`eoctl consume --group`: a group's committed offset says where to begin, and is moved on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from recovery.cluster.group_offsets import find_group_offsets
from storage.dirs.log_dir import read_log_dir
from storage.file_names import CLEAN_SHUTDOWN_NAME, GROUPS_TOPIC
from storage.producers.java_hash_map import coordinator_partition
from tests.changes import held, notes_of, rows_of
from tests.crash.trees import difference, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

CALL = ("consume", "kafka/plain-0", "--group", "new", "--output", "jsonl")


def offsets_of(outcome: Outcome) -> list[int]:
    assert outcome.status == 0, outcome.errors
    return [row["offset"] for row in map(json.loads, outcome.text.splitlines()) if "offset" in row]


def committed(log_dir: Path, group: str, topic: str, partition: int) -> int | None:
    found = find_group_offsets([read_log_dir(log_dir)], topic, partition)
    assert found is not None
    assert not found.problems
    return next((each.offset for each in found.offsets if each.group == group), None)


def test_the_group_goes_on_where_it_was(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """Without --apply nothing is changed; with it the next call goes on behind."""
    before = tree_of(kafka)
    outcome = eoctl(*CALL, "--max-messages", 3)
    first = offsets_of(outcome)
    note = "no offset was committed for group new: --apply commits the next offset"
    assert notes_of(outcome).count(note) == 1
    assert difference(before, tree_of(kafka)) == []
    assert committed(kafka, "new", "plain", 0) is None
    assert offsets_of(eoctl(*CALL, "--max-messages", 3, "--apply")) == first
    assert committed(kafka, "new", "plain", 0) == first[-1] + 1
    assert not (kafka / CLEAN_SHUTDOWN_NAME).exists()
    outcome = eoctl(*CALL, "--max-messages", 2, "--apply")
    assert note not in notes_of(outcome)
    assert f"going on at offset {first[-1] + 1}, as group new says" in notes_of(outcome)
    second = offsets_of(outcome)
    assert second[0] == first[-1] + 1
    rest = offsets_of(eoctl(*CALL, "--apply"))
    assert offsets_of(eoctl("consume", "kafka/plain-0", "--output", "jsonl")) == [
        *first, *second, *rest
    ]  # fmt: skip
    assert offsets_of(eoctl(*CALL, "--apply")) == []
    outcome = eoctl("check", "kafka", "--now", "dir", "--deep", "--output", "jsonl")
    errors = [each for each in rows_of(outcome, "finding") if each["severity"] == "error"]
    assert errors == []


def test_what_a_commit_costs_is_told(killed: Path, eoctl: Callable[..., Outcome]) -> None:
    """The offsets' partition is recovered first, and the clean-shutdown marker goes."""
    call = ("consume", "killed/plain-0", "--group", "new", "--output", "jsonl")
    assert not any("recover" in each for each in notes_of(eoctl(*call)))
    outcome = eoctl(*call, "--max-messages", 3, "--apply")
    assert len(offsets_of(outcome)) == 3
    reported = "\n".join(notes_of(outcome))
    assert f"/{GROUPS_TOPIC}-" in reported
    assert "it is recovered first, as a broker would" in reported
    assert "eoctl undo" in reported
    assert "the log dir is without its clean-shutdown marker afterwards" in reported


def test_where_its_offsets_were_is_not_here(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """Beginning at --from would give records again; nothing is printed, nothing is made anew."""
    assert offsets_of(eoctl(*CALL, "--max-messages", 3, "--apply"))
    found = {int(each.name.rpartition("-")[2]) for each in kafka.glob(f"{GROUPS_TOPIC}-*")}
    homes = [
        n
        for n in found
        for log in kafka.glob(f"{GROUPS_TOPIC}-{n}/*.log")  # a new one, if the last one is old
        if b"new" in log.read_bytes()
    ]
    (kafka / f"{GROUPS_TOPIC}-{homes[0]}").rename(kafka.parent / "gone")
    for more in ((), ("--apply",)):
        outcome = eoctl(*CALL, "--max-messages", 1, *more)
        assert (outcome.status, outcome.text) == (4, "")
        assert f"{GROUPS_TOPIC}-{homes[0]} is not here" in outcome.errors
    # Without the metadata, too, and how many partitions there are is not known with a gap.
    (kafka / "__cluster_metadata-0").rename(kafka.parent / "metadata")
    (kafka.parent / "gone").rename(kafka / f"{GROUPS_TOPIC}-{homes[0]}")
    assert offsets_of(eoctl(*CALL, "--max-messages", 1)) == [3]
    other = next(n for n in sorted(found)[1:-1] if n not in homes)
    (kafka / f"{GROUPS_TOPIC}-{other}").rename(kafka.parent / "other")
    outcome = eoctl(*CALL, "--max-messages", 1)
    assert (outcome.status, outcome.text) == (4, "")
    assert "The number of partitions is unknown" in outcome.errors


def test_a_group_that_seems_misplaced(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """Without the metadata a missing last partition shows by where the others' groups are."""
    last = max(int(each.name.rpartition("-")[2]) for each in kafka.glob(f"{GROUPS_TOPIC}-*"))
    counts = (last + 1, last)
    homes = {name: [coordinator_partition(name, n) for n in counts] for name in map(str, range(99))}
    group = next(name for name, (home, other) in homes.items() if home not in {last, other})
    call = ("consume", "kafka/plain-0", "--group", group, "--max-messages", 1, "--output", "jsonl")
    assert offsets_of(eoctl(*call, "--apply")) == [0]
    (kafka / "__cluster_metadata-0").rename(kafka.parent / "metadata")
    assert offsets_of(eoctl(*call)) == [1]
    (kafka / f"{GROUPS_TOPIC}-{last}").rename(kafka.parent / "last")
    for more in ((), ("--apply", "--single-copy")):
        outcome = eoctl(*call, *more)
        assert (outcome.status, outcome.text) == (4, "")
        assert f"offsets of group {group} are in {GROUPS_TOPIC}-{homes[group][0]}" in outcome.errors
        assert "--metadata-dir DIR" in outcome.errors


def test_a_groups_own_offsets(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """What a real group has committed, in a transaction, is where it begins."""
    offset = committed(kafka, "ctp", "txn", 1)
    assert offset is not None
    call = ("consume", "kafka/txn-1", "--group", "ctp", "--output", "jsonl", "--max-messages", 1)
    assert offsets_of(eoctl(*call))[0] >= offset


def test_a_program_of_a_group(kafka: Path, eoctl: Callable[..., Outcome], tmp_path: Path) -> None:
    """The committed offset stands for the checkpoint file; both moments, and what is refused."""
    answer = tmp_path / "answer.py"
    answer.write_text(
        "import sys\n"
        "for line in sys.stdin:\n"
        '    if line.startswith(\'{"kind":"commit"\'):\n'
        "        if len(sys.argv) > 1: sys.exit(1)\n"
        "        print(line, end='', flush=True)\n"
    )
    call = (*CALL[:4], "--max-messages", 4, "--exec")
    for commit, at in (("after", None), ("before", 4)):
        arguments = (*call, f"python3 {answer} fail", "--commit", commit, "--apply")
        assert eoctl(*arguments).status == 3
        assert committed(kafka, "new", "plain", 0) in {at, 0 if at is None else at}
    outcome = eoctl(*call, f"python3 {answer}", "--apply", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    assert committed(kafka, "new", "plain", 0) == 8
    wrong: list[tuple[Any, ...]] = [
        (*call, "cat"),
        (*call, "cat", "--apply", "--commit", "atomic"),
        (*call, "cat", "--apply", "--checkpoint", tmp_path / "c"),
        ("consume", "kafka/plain-0", "--apply"),
        ("consume", "kafka/plain-0", "--group", ""),
    ]
    for each in wrong:
        assert eoctl(*each).status == 2, each
    assert eoctl(*CALL, "--follow", "--apply").status == 4


def test_offsets_that_cannot_be_used(kafka: Path, eoctl: Callable[..., Outcome]) -> None:
    """A running broker, an offset outside of the log, a damaged topic."""
    with held(kafka):
        assert eoctl(*CALL, "--max-messages", 1).status == 0
        assert eoctl(*CALL, "--apply").status == 4
    assert eoctl(*CALL, "--apply").status == 0
    assert eoctl("truncate", "kafka/plain-0", "--to-offset", 2, "--apply").status == 0
    outcome = eoctl(*CALL)
    assert outcome.status == 4
    assert "and the log holds 0 to" in outcome.errors
    (log,) = (each for each in kafka.glob(f"{GROUPS_TOPIC}-*/*.log") if b"new" in each.read_bytes())
    data = bytearray(log.read_bytes())
    data[data.rindex(b"new")] ^= 1
    log.write_bytes(data)
    outcome = eoctl(*CALL)
    assert outcome.status == 4
    assert "cannot be read whole" in outcome.errors
