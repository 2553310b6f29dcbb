"""Producer ids that eoctl takes by itself: none that anything in the log dir knows, or a broker gives."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.clients.partitions import identity
from eoctl.clients.partitions.identity import COPY_IDS, OWN_IDS, SESSION_IDS, OwnIds, run_ids
from recovery.checks.context.kraft_release import BrokerVersion
from recovery.new_log_dir.records import NodeIdentity, TopicStart, encode_bootstrap, first_values
from storage.errors import EXIT_REFUSED
from storage.formats.producer_id_record import FIRST_ID
from storage.formats.producer_snapshot import blank_entry, encode_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

FAR_IDS = (FIRST_ID + 1000, OWN_IDS.start, 2**53)


@pytest.fixture
def log_dir(eoctl: Cli, tmp_path: Path) -> Path:
    found = tmp_path / "kafka"
    done = eoctl("init", found, "--topic", "t:3", "--topic", "other", "--apply")
    assert done.status == 0, done.errors
    return found


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines"
    file.write_bytes(b"one\ntwo\n")
    return file


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    assert outcome.status == 0, outcome.errors
    return [json.loads(each) for each in outcome.text.splitlines()]


def id_of(outcome: Outcome) -> int:
    (found,) = {each["producer_id"] for each in rows(outcome) if "producer_id" in each}
    assert isinstance(found, int)
    return found


def know(directory: Path, *ids: int, name: str = "00000000000000000009.snapshot") -> None:
    """Let a partition know of producers as it does that a broker has closed."""
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(encode_snapshot([blank_entry(each) for each in ids]))


def draw(monkeypatch: pytest.MonkeyPatch, *ids: int) -> None:
    """Let these ids come by chance, one after the other."""
    drawn = iter(ids)
    monkeypatch.setattr(identity.secrets, "choice", lambda _: next(drawn))


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "place", ["other-0", "t-1", f"other-0.{'0' * 32}-delete", f"t-2.{'0' * 32}-stray"]
)
def test_an_id_that_another_partition_knows_is_not_taken(
    place: str, eoctl: Cli, log_dir: Path, lines: Path
) -> None:
    first, second, third = (each for each, _ in zip(run_ids(["t-0"], 0), range(3), strict=False))
    know(log_dir / place, first, second)
    call = ("produce", log_dir / "t-0", lines, "--output", "jsonl")
    assert id_of(eoctl(*call)) == third
    assert id_of(eoctl(*call, "--apply")) == third


def test_a_session_takes_what_no_partition_knows(
    eoctl: Cli, log_dir: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, free = SESSION_IDS[7], SESSION_IDS[9]
    know(log_dir / "other-0", known)
    draw(monkeypatch, known, known, free)
    done = eoctl(
        "produce", log_dir / "t-0", lines, "--producer-session", tmp_path / "session", "--apply",
        "--output", "jsonl",
    )  # fmt: skip
    assert id_of(done) == free


def test_a_transactional_id_takes_what_neither_records_nor_partitions_know(
    eoctl: Cli, log_dir: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one has no snapshot any more, but a record of the coordinator."""
    call = ("produce", log_dir / "t-0", lines, "--apply", "--output", "jsonl")
    taken, known, free = SESSION_IDS[1], SESSION_IDS[2], SESSION_IDS[3]
    draw(monkeypatch, taken)
    assert id_of(eoctl(*call, "--transactional-id", "a")) == taken
    for each in log_dir.glob("t-0/*.snapshot"):
        each.unlink()
    know(log_dir / "other-0", known)
    draw(monkeypatch, taken, known, free)
    done = eoctl("produce", log_dir / "t-1", lines, "--transactional-id", "b", *call[3:])
    assert id_of(done) == free


def test_a_copy_takes_the_next_id_and_finds_it_again(
    eoctl: Cli, log_dir: Path, lines: Path
) -> None:
    assert eoctl("produce", log_dir / "t-0", lines, "--apply").status == 0
    call = ("copy", log_dir / "t-0", log_dir / "t-1", "--output", "jsonl")
    first = id_of(eoctl(*call))
    know(log_dir / "other-0", first)
    second = id_of(eoctl(*call))
    place = COPY_IDS.index(first) + 1
    assert second == COPY_IDS[place % len(COPY_IDS)]
    assert id_of(eoctl(*call, "--apply")) == second
    for each in log_dir.parent.glob("kafka.eoctl/copies/*"):
        each.unlink()
    # The session is lost: what the copy had written is found by its id.
    assert eoctl("produce", log_dir / "t-0", lines, "--apply").status == 0
    (again,) = (each for each in rows(eoctl(*call, "--apply")) if each["kind"] == "copy")
    assert (again["producer_id"], again["verified_records"], again["records"]) == (second, 2, 2)


def test_ids_of_one_run_differ(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = OwnIds([str(log_dir)], None, [])
    draw(monkeypatch, *SESSION_IDS[:1], *SESSION_IDS[:2])
    assert [ids.random_id(), ids.random_id()] == [*SESSION_IDS[:2]]
    assert ids.id_of_run((), ["t-0"], 0) != ids.id_of_run((), ["t-0"], 0)
    copies = {ids.id_of_copy("a", COPY_IDS, (), f"{log_dir}/t-{number}") for number in range(3)}
    assert len(copies) == 3


def test_the_last_id_of_a_range_is_followed_by_its_first(log_dir: Path) -> None:
    """Not by one of the next range."""
    of, ids = "x", range(OWN_IDS.start, OWN_IDS.start + 5)
    found = list(identity.derived_ids(of, ids))
    assert sorted(found) == list(ids)
    know(log_dir / "other-0", *found[:4])
    assert OwnIds([str(log_dir)], None, []).id_of_copy(of, ids, (), "elsewhere") == found[4]


@pytest.mark.share(2)
@pytest.mark.parametrize("damage", ["empty", "version", "tail"])
def test_a_damaged_snapshot_tells_what_it_can(
    damage: str, eoctl: Cli, log_dir: Path, lines: Path
) -> None:
    first = next(run_ids(["t-0"], 0))
    know(log_dir / "other-0", first)
    (path,) = log_dir.glob("other-0/*.snapshot")
    data = path.read_bytes()
    path.write_bytes(
        {"empty": b"", "version": b"\x00\x07" + data[2:], "tail": data + b"\x01"}[damage]
    )
    done = eoctl("produce", log_dir / "t-0", lines, "--output", "jsonl")
    note = f"{path}: "
    if damage == "tail":  # all that can be taken for an entry counts
        assert id_of(done) == first + 1
        assert note not in done.errors
    else:
        assert id_of(done) == first
        assert note in done.errors
        assert "with a chance" in done.errors


def test_what_cannot_be_read_is_named(
    eoctl: Cli, log_dir: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(log_dir / "other-0", OWN_IDS[5])
    (bad,) = log_dir.glob("other-0/*.snapshot")
    read = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path == bad:
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    done = eoctl("produce", log_dir / "t-0", lines)
    assert done.status == 0, done.errors
    assert f"{bad}: Input/output error: its producers are unknown" in done.errors


# --- what brokers hand out ------------------------------------------------------------------------


def let_brokers_come_to(log_dir: Path, next_id: int) -> None:
    """Write metadata by which brokers have handed out all ids below one."""
    node = NodeIdentity(cluster_id="c", node_id=1, directory_id=bytes(15) + b"\x09")
    values = first_values(
        node, BrokerVersion(4, 3), [TopicStart("t", bytes(15) + b"\x01", {0: 0, 1: 0}, {})],
        next_producer_id=next_id,
    )  # fmt: skip
    (log_dir / "bootstrap.checkpoint").write_bytes(encode_bootstrap(values, 0))
    for each in log_dir.glob("t-*"):
        for file in each.iterdir():
            file.unlink()
        each.rmdir()


@pytest.mark.share(2)
@pytest.mark.parametrize("next_id", FAR_IDS)
def test_where_brokers_may_come_nothing_is_taken(
    next_id: int, eoctl: Cli, log_dir: Path, lines: Path, tmp_path: Path
) -> None:
    let_brokers_come_to(log_dir, next_id)
    target = log_dir / "t-0"
    assert eoctl("produce", target, lines, "--producer-id", "5", "--apply").status == 0
    for call in (
        ("produce", target, lines),
        ("produce", target, lines, "--producer-session", tmp_path / "session"),
        ("copy", target, log_dir / "t-1"),
        ("lease-pid", "acquire", log_dir, "--app-id", "a", "--expiry-ms", "1000"),
    ):
        refused = eoctl(*call)
        assert refused.status == EXIT_REFUSED, (call, refused.errors)
        assert f"up to {next_id - 1}" in refused.errors
    assert eoctl("copy", target, log_dir / "t-1", "--producer-id", "6").status == 0


@pytest.mark.parametrize("next_id", [1000, FIRST_ID])
def test_a_cluster_that_has_not_come_so_far_changes_nothing(
    next_id: int, eoctl: Cli, log_dir: Path, lines: Path
) -> None:
    let_brokers_come_to(log_dir, next_id)
    assert id_of(eoctl("produce", log_dir / "t-0", lines, "--output", "jsonl")) in OWN_IDS
