"""`eoctl serve` of several brokers: the copy and the end that other commands name, too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests import wire
from tests.changes import rows_of
from tests.diverged_logs import begin_epoch, copy_partition, log_of, write_epochs
from tests.serving import Served
from tests.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]
    Place = tuple[str, int]

JSONL = ("--output", "jsonl")
BROKERS = (1, 2, 3)


@pytest.fixture(scope="module", params=["diverged", "after"])
def brokers(request: pytest.FixtureRequest, golden: Callable[[str], Path]) -> list[Path]:
    """Three brokers after an unclean election, and after they had rejoined."""
    state = golden("kafka-4.3.1-three-brokers") / str(request.param)
    return [state / f"broker-{each}" for each in BROKERS]


class Known(NamedTuple):
    """What `replicas compare` says of a partition; `divergence_offset` None: its copies agree."""

    ends: dict[Path, int]
    high_watermarks: dict[Path, int]
    divergence_offset: int | None

    def end_offset(self, copy: Path) -> int:
        """Where it ends if that copy is served: what lies above the parting is not."""
        end = self.ends[copy]
        return end if self.divergence_offset is None else min(end, self.divergence_offset)


def compared(eoctl: Eoctl, brokers: list[Path]) -> dict[Place, Known]:
    done = eoctl("replicas", "compare", *brokers, "--now", 0, *JSONL)
    found: dict[Place, Known] = {}
    for row in rows_of(done, "replica"):
        path = Path(row["path"])
        known = found.setdefault(place_of(path), Known({}, {}, None))
        known.ends[path] = row["sound_end_offset"]
        known.high_watermarks[path] = row["high_watermark"]
    for row in rows_of(done, "comparison"):
        if row["likeness"] == "diverged":
            assert row["divergence_offset"] == row["epochs_end_offset"]
            place = place_of(Path(row["one"]))
            before = found[place].divergence_offset
            offset = row["divergence_offset"]
            offset = offset if before is None else min(before, offset)
            found[place] = found[place]._replace(divergence_offset=offset)
    assert found
    return found


def place_of(path: Path) -> Place:
    topic, _, number = path.name.rpartition("-")
    return topic, int(number)


def served(eoctl: Eoctl, brokers: list[Path], *options: object) -> tuple[Outcome, dict[Place, Any]]:
    done = eoctl("serve", *brokers, "--internal", *options, "--for-seconds", 0, *JSONL)
    rows = rows_of(done, "served_partition")
    return done, {(each["topic"], each["partition"]): each for each in rows}


def reported(errors: str) -> set[Place]:
    """The partitions of which it is said that copies part."""
    lines = [each for each in errors.splitlines() if " diverge at offset " in each]
    paths = [each.partition(" and ")[0].rpartition('"')[2] for each in lines]
    return {place_of(Path(each)) for each in paths}


def test_the_end_is_the_one_that_all_copies_agree_on(eoctl: Eoctl, brokers: list[Path]) -> None:
    known = compared(eoctl, brokers)
    done, rows = served(eoctl, brokers)
    assert rows.keys() == known.keys()
    for place, row in rows.items():
        path = Path(row["path"])
        assert row["end_offset"] == known[place].end_offset(path)
        assert row["high_watermark"] == known[place].high_watermarks[path]
    diverged = {place for place, each in known.items() if each.divergence_offset is not None}
    assert reported(done.errors) == diverged
    # Something that is there is not given: that is no success.
    assert done.status == (5 if diverged else 0)


def test_the_copy_is_that_of_the_leader(eoctl: Eoctl, brokers: list[Path]) -> None:
    """Of the last one, as the metadata tell, and the one that an election would choose."""
    _, rows = served(eoctl, brokers)
    state = eoctl("metadata", *brokers, *JSONL)
    for row in rows_of(state, "cluster_partition"):
        own = rows[row["topic"], row["partition"]]
        copies = {
            each["path"]: each
            for each in rows_of(state, "copy")
            if (each["topic"], each["partition"]) == (row["topic"], row["partition"])
        }
        copy = copies[own["path"]]
        assert copy["standing"] == ("in sync" if row["leader"] < 0 else "leader")
        assert copy["broker"] == row["leader"] or row["leader"] < 0
        assert copy["high_watermark"] == own["high_watermark"]
        assert copy["log_end_offset"] >= own["end_offset"]
    advised = rows_of(eoctl("start-order", *brokers, *JSONL), "partition")
    assert {(each["topic"], each["partition"]) for each in advised} == rows.keys()
    for row in advised:
        path = Path(rows[row["topic"], row["partition"]]["path"])
        assert path.parent.name == f"broker-{row['leads']}"


def test_clients_are_given_that_copy_up_to_there(eoctl: Eoctl, brokers: list[Path]) -> None:
    known = compared(eoctl, brokers)
    _, rows = served(eoctl, brokers)
    with Served(*brokers, "--internal") as serving, Wire(serving.bootstrap) as connection:
        for (topic, number), row in rows.items():
            path = Path(row["path"])
            end_offset = known[topic, number].end_offset(path)
            batches, _, last = wire.fetch_all(connection, topic, number)
            assert last["highWatermark"] == end_offset
            assert wire.list_offset(connection, topic, number, -1)["offset"] == end_offset
            given = b"".join(each.data for each in batches)
            assert given == log_of(path)[: len(given)]
            assert batches[-1].header.last_offset + 1 == end_offset
            beyond = wire.fetch(connection, topic, number, end_offset + 1)
            assert beyond["errorCode"] == 1


@pytest.mark.share(3)
@pytest.mark.parametrize("number", BROKERS)
def test_a_preferred_copy_ends_where_all_agree(
    eoctl: Eoctl, brokers: list[Path], number: int
) -> None:
    known = compared(eoctl, brokers)
    preferred = brokers[number - 1]
    done, rows = served(eoctl, brokers, "--prefer", preferred)
    for (topic, partition), row in rows.items():
        path = preferred / f"{topic}-{partition}"
        assert Path(row["path"]) == path
        assert row["end_offset"] == known[topic, partition].end_offset(path)
    is_diverged = any(each.divergence_offset is not None for each in known.values())
    assert done.status == (5 if is_diverged else 0)


@pytest.mark.share(2)
@pytest.mark.parametrize("number", BROKERS)
def test_a_diverged_copy_is_served_to_its_end(
    eoctl: Eoctl, brokers: list[Path], number: int
) -> None:
    """Whoever names one has decided: that others have something else is said, and no failure."""
    known = compared(eoctl, brokers)
    wanted = brokers[number - 1]
    done, rows = served(eoctl, brokers, "--diverged", wanted)
    for (topic, partition), row in rows.items():
        path = wanted / f"{topic}-{partition}"
        assert Path(row["path"]) == path
        assert row["end_offset"] == known[topic, partition].ends[path]
    assert reported(done.errors) == {
        place for place, each in known.items() if each.divergence_offset is not None
    }
    assert done.status == 0


# --- logs that have nothing, or no leader epoch, in common


@pytest.fixture
def rolled(golden: Callable[[str], Path], tmp_path: Path) -> tuple[Path, Path]:
    """Two copies of three segments, from 0, 25 and 50 on."""
    source = golden("kafka-4.3.1") / "clean" / "rolled-0"
    one, other = (copy_partition(source, tmp_path / name / "rolled-0") for name in ("a", "b"))
    for node_id, each in enumerate((one, other)):
        meta = f"version=1\nnode.id={node_id}\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n"
        (each.parent / "meta.properties").write_text(meta)
    return one, other


def keep_segments(partition: Path, *base_offsets: int) -> None:
    for path in partition.iterdir():
        if path.stem.isdigit() and int(path.stem) not in base_offsets:
            path.unlink()


def one_comparison(eoctl: Eoctl, rolled: tuple[Path, Path]) -> dict[str, Any]:
    (row,) = rows_of(eoctl("replicas", "compare", *rolled, "--now", 0, *JSONL), "comparison")
    return row


def test_a_copy_that_was_left_behind_parts_from_nothing(
    eoctl: Eoctl, rolled: tuple[Path, Path]
) -> None:
    """Its broker was long dead: what it ends with, retention has removed from the others.

    There are no metadata, so that the log is looked at for the topic's id.
    """
    one, other = rolled
    keep_segments(one, 0)
    keep_segments(other, 50)
    begin_epoch(other, 50, 5)
    write_epochs(other, ["5 50"])
    assert one_comparison(eoctl, rolled)["likeness"] == "disjoint"
    done, rows = served(eoctl, [one.parent, other.parent])
    row = rows["rolled", 0]
    assert Path(row["path"]) == other
    assert row["log_start_offset"] == 50 < row["end_offset"]
    assert reported(done.errors) == set()
    assert "no offset in common" in done.errors
    assert done.status == 5  # what the other one has is not given


def test_without_a_common_epoch_they_part_where_both_begin(
    eoctl: Eoctl, rolled: tuple[Path, Path]
) -> None:
    one, other = rolled
    keep_segments(one, 0, 25)
    keep_segments(other, 25, 50)
    begin_epoch(other, 25, 5)
    write_epochs(other, ["5 25"])
    compared = one_comparison(eoctl, rolled)
    assert (compared["likeness"], compared["divergence_offset"]) == ("diverged", 25)
    for preferred, begin, end in ((one, 0, 25), (other, 25, 25)):
        done, rows = served(eoctl, [one.parent, other.parent], "--prefer", preferred.parent)
        row = rows["rolled", 0]
        assert (row["log_start_offset"], row["end_offset"]) == (begin, end)
        assert "diverge at offset 25" in done.errors
        assert done.status == 5
