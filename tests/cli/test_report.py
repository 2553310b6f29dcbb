"""`eoctl report`: its rows are those of the commands, what it refuses, and what its page holds."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import shutil
import zlib
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from storage.formats.transaction_state import TransactionState, TransactionStatus
from tests.audit_logs import Batch, write_segments
from tests.batches import commit_marker
from tests.changes import rows_of
from tests.damage.faults import read_batches
from tests.doubled_logs import Said, Sent, write_log
from tests.drawn import times
from tests.hanging import replace_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

JSONL = ("--output", "jsonl", "--now", "dir")
STATES = [
    *("kafka-4.3.1/clean", "kafka-4.3.1/crash", "kafka-4.3.1/hard", "kafka-4.3.1/tv2"),
    *("kafka-4.3.1-tiered/crash", "kafka-4.3.1-two-dirs/one", "kafka-0.10.2-legacy"),
    "kafka-4.3.1-three-brokers/diverged/broker-1",
]
# A row of check is called a directory's path, one of the report a file's.
RENAMED = {"path": "file"}


@pytest.fixture
def state(golden: Callable[[str], Path], request: pytest.FixtureRequest) -> Path:
    name, _, rest = request.param.partition("/")
    return golden(name) / rest


def island_of(page: bytes) -> dict[str, Any]:
    """The data within a page, unpacked."""
    found = re.search(rb'id="data">([^<]*)<', page)
    assert found is not None
    return json.loads(zlib.decompress(base64.b64decode(found[1])))


def unpacked(page: bytes, kind: str) -> list[dict[str, Any]]:
    """The rows of a table within a page."""
    table = island_of(page)["tables"][kind]
    columns = {name: _column(each, table["count"]) for name, each in table["columns"].items()}
    return [
        dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
    ]  # fmt: skip


def _column(packed: Any, count: int) -> list[Any]:
    if packed is None:
        return [None] * count
    if isinstance(packed, list):
        return packed
    if "s" in packed:
        return [None if each is None else packed["s"][each] for each in packed["i"]]
    total, found = 0, []
    for each in packed["d"]:
        total += each or 0
        found.append(None if each is None else total)
    return found


def counted(rows: list[dict[str, Any]], names: list[str]) -> Counter[str]:
    return Counter(json.dumps([each[name] for name in names]) for each in rows)


# --- the numbers are those of the commands --------------------------------------------------------


def one_by_one(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert all(each["transactions"] == 1 for each in rows)
    return rows


@pytest.mark.parametrize("has_coordinators", [True, False])
def test_an_outcome_that_is_damaged_is_that_of_txn_list(
    has_coordinators: bool,
    golden: Callable[[str], Path],
    eoctl: Callable[..., Outcome],
    tmp_path: Path,
) -> None:
    """One bit in a COMMIT marker, and the next marker of the producer is an ABORT marker."""
    log_dir = tmp_path / "kafka"
    source = golden("kafka-4.3.1") / "tv2-clean"
    names = ["t2-0", "meta.properties", "recovery-point-offset-checkpoint"]
    names += [f"__transaction_state-{n}" for n in range(4)] if has_coordinators else []
    log_dir.mkdir()
    for name in names:
        copy = shutil.copytree if (source / name).is_dir() else shutil.copy2
        copy(source / name, log_dir / name)
    for path in log_dir.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for path in (log_dir / "t2-0").glob("*.txnindex"):
        path.unlink()

    def of_producer(outcome: Outcome) -> list[tuple[int, int | None, str]]:
        """Return ended transactions. Those that the next start leaves open are listed apart."""
        rows = [each for each in rows_of(outcome, "transaction") if each["producer_id"] == 1002]
        names = ("first_offset", "last_offset", "state")
        found = [tuple(each[name] for name in names) for each in rows]
        return sorted(each for each in found if each[2] != "open")

    whole = of_producer(eoctl("txn", "list", log_dir, "--all", *JSONL))
    at = next(
        each[1]
        for each, later in pairwise(whole)
        if (each[2], later[2]) == ("committed", "aborted")
    )
    log = log_dir / "t2-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    [marker] = [each for each in read_batches(bytes(data)) if each.base_offset == at]
    data[marker.end - 1] ^= 1
    log.write_bytes(data)

    listed = of_producer(eoctl("txn", "list", log_dir, "--all", *JSONL))
    done = eoctl("report", log_dir, *JSONL, "--to", tmp_path / "r.html")
    assert of_producer(done) == listed
    assert [state for *_, state in listed].count("unknown") == (0 if has_coordinators else 1)
    rows = rows_of(done, "transaction")
    [row] = [each for each in rows_of(done, "partition") if each["topic"] == "t2"]
    assert row["aborted_transactions"] == sum(each["state"] == "aborted" for each in rows)
    page = (tmp_path / "r.html").read_text()
    assert ("with unknown outcome" in page) is not has_coordinators


@pytest.mark.share(1)
@pytest.mark.parametrize("state", STATES, indirect=True)
def test_all_numbers_are_those_of_the_commands(
    state: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    done = eoctl("report", state, *JSONL, "--to", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_bytes()
    check = eoctl("check", state, *JSONL)
    assert done.status == check.status

    findings = [
        {RENAMED.get(name, name): value for name, value in each.items()}
        for each in rows_of(check, "finding")
    ]
    names = sorted(findings[0]) if findings else []
    assert counted(rows_of(done, "finding"), names) == counted(findings, names)

    own = {each["path"]: each for each in rows_of(done, "partition")}
    assert len(own) == len(rows_of(check, "partition"))
    shared = ("errors", "warnings", "notes", "batches", "log_bytes", "end_offset", "start",
              "start_end_offset", "unreadable")  # fmt: skip
    for each in rows_of(check, "partition"):
        assert {name: own[each["path"]][name] for name in shared} == {
            name: each[name] for name in shared
        }
    shared = ("log_start_offset", "local_log_start_offset", "high_watermark", "segments_count",
              "last_stable_offset")  # fmt: skip
    for each in rows_of(eoctl("describe", state, "--output", "jsonl"), "partition"):
        assert {name: own[each["path"]][name] for name in shared} == {
            name: each[name] for name in shared
        }

    listed = rows_of(eoctl("txn", "list", state, "--all", *JSONL), "transaction")
    names = ["topic", "partition", "producer_id", "producer_epoch", "transactional_id", "state",
             "first_offset", "last_offset", "last_timestamp_ms", "verdict", "path"]  # fmt: skip
    transactions = one_by_one(rows_of(done, "transaction"))
    assert counted(transactions, names) == counted(listed, names)
    by_place = Counter((each["path"], each["state"]) for each in listed)
    for path, row in own.items():
        for name in ("committed", "aborted", "open"):
            assert row[f"{name}_transactions"] == by_place[path, name]

    doubled = rows_of(
        eoctl("duplicates", state, "--kind", "proved", "--output", "jsonl"), "duplicate"
    )
    names = ["kind", "topic", "partition", "first_base_offset", "repeat_base_offset"]
    assert counted(rows_of(done, "duplicate"), names) == counted(doubled, names)

    # What the page holds are the same rows.
    for kind in ("finding", "transaction", "partition", "duplicate", "segment", "id_state"):
        rows = rows_of(done, kind)
        assert len(unpacked(page, kind)) == len(rows), kind
        if rows:
            names = [name for name in rows[0] if name not in {"command", "fix", "message"}]
            texts = json.loads(json.dumps(rows))
            assert counted(unpacked(page, kind), names[:4]) == counted(texts, names[:4])


@pytest.mark.share(4)
@pytest.mark.parametrize("seed", range(12))
def test_transactions_of_damaged_logs_are_those_of_txn_list(
    crash: Path, eoctl: Callable[..., Outcome], tmp_path: Path, seed: int
) -> None:
    """A timeline reads in the pass of the check, the command by itself.

    Behind damage the command knows which outcomes are unknown, the timeline does not.
    """
    rng = random.Random(seed)
    partition = tmp_path / "txn-0"
    shutil.copytree(crash / "txn-0", partition, copy_function=shutil.copyfile)
    partition.chmod(0o755)
    log = partition / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    places = [rng.randrange(20_000) for _ in range(rng.choice([1, 2]))]
    offset = max(each.base_offset for each in read_batches(bytes(data)) if each.pos <= min(places))
    for place in places:
        data[place] ^= 1 << rng.randrange(8)
    log.write_bytes(data)
    clock = ("--now", "1795229940000", "--output", "jsonl")
    listed = rows_of(eoctl("txn", "list", partition, "--all", *clock), "transaction")
    ours = rows_of(eoctl("report", partition, *clock), "transaction")
    names = ["producer_id", "producer_epoch", "first_offset", "last_offset", "state"]
    assert listed
    before = [
        [each for each in rows if each["last_offset"] < offset]
        for rows in (one_by_one(ours), listed)
    ]
    assert counted(before[0], names) == counted(before[1], names)


def test_groups_and_copies_are_those_of_the_commands(
    golden: Callable[[str], Path], eoctl: Callable[..., Outcome], crash: Path
) -> None:
    done = eoctl("report", crash, *JSONL)
    described = rows_of(eoctl("groups", "describe", crash, *JSONL), "committed_offset")
    names = ["group", "topic", "partition", "committed_offset", "lag_offsets", "place"]
    assert rows_of(done, "commit")
    assert counted(rows_of(done, "commit"), names) == counted(described, names)

    dirs = [golden("kafka-4.3.1-three-brokers") / f"diverged/broker-{n}" for n in (1, 2, 3)]
    done = eoctl("report", *dirs, *JSONL)
    compared = eoctl("replicas", "compare", *dirs, *JSONL)
    ours = [
        (each["path"], each["other_path"], each["likeness"], each["divergence_offset"])
        for each in rows_of(done, "comparison")
    ]
    theirs = [
        (each["one"], each["other"], each["likeness"], each["divergence_offset"])
        for each in rows_of(compared, "comparison")
    ]
    assert ours
    assert sorted(map(str, ours)) == sorted(map(str, theirs))
    assert any(each["is_unclean"] for each in rows_of(done, "change"))
    # Each directory by itself is in order: that they part is told all the same.
    reported = [each["text"] for each in rows_of(done, "verdict")]
    assert any("div-0: broker 1 and broker 2 diverge at offset 36" in each for each in reported)
    assert any("div-0: " in each and "unclean election" in each for each in reported)


@pytest.mark.exhaustive
def test_where_copies_fork_is_drawn(
    golden: Callable[[str], Path], eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    """Each partition with the copies of `replicas compare`; equal ones need no picture."""
    dirs = [golden("kafka-4.3.1-three-brokers") / f"diverged/broker-{n}" for n in (1, 2, 3)]
    to = tmp_path / "r.html"
    eoctl("report", *dirs, "--now", "dir", "--to", to)
    compared = rows_of(eoctl("replicas", "compare", *dirs, *JSONL), "comparison")
    figures = re.findall(r'<figure class="forks">.*?</figure>', to.read_text(), re.DOTALL)
    diverged = {
        f"{Path(each['one']).name}: copies diverge at offset {each['divergence_offset']}"
        for each in compared
        if each["likeness"] == "diverged"
    }
    reported = [re.search("<bdi>([^;]*);", each) for each in figures]
    assert diverged <= {each[1] for each in reported if each}
    differing = {Path(e["one"]).name for e in compared if e["likeness"] != "equal"}
    assert len(figures) == len(differing)
    (drawn,) = (each for each in figures if "div-0: copies diverge at offset 36" in each)
    assert drawn.count("differ from another copy") == 2  # the third one ends there
    assert all(f">broker {number}" in drawn for number in (1, 2, 3))


@pytest.mark.exhaustive
def test_states_of_an_id_are_its_records(crash: Path, eoctl: Callable[..., Outcome]) -> None:
    done = eoctl("report", crash, *JSONL)
    newest = {each["transactional_id"]: each for each in rows_of(done, "id_state")}
    for name, each in newest.items():
        call = ("txn", "describe", crash, "--transactional-id", name, *JSONL)
        (known,) = rows_of(eoctl(*call), "transactional_id")
        assert each["status"] == known["status"]
        assert each["record_offset"] == known["record_offset"]


def test_held_transactions_are_told_first(
    crash: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    done = eoctl("report", crash, *JSONL, "--to", tmp_path / "r.html")
    held = rows_of(done, "held")
    assert [(each["topic"], each["partition"], each["first_offset"]) for each in held] == [
        ("txn", 0, 311),
        ("txn", 1, 282),
    ]
    assert held[0]["transactional_id"] == "open-1"
    hanging = eoctl("txn", "list", crash, *JSONL)
    assert held[0]["producer_id"] == rows_of(hanging, "transaction")[0]["producer_id"]
    text = (tmp_path / "r.html").read_text()
    assert text.index("stop at offset 311") < text.index('id="timelines"')


def test_the_call_of_a_mark_gives_what_it_marks(crash: Path, eoctl: Callable[..., Outcome]) -> None:
    import shlex

    done = eoctl("report", crash, *JSONL)
    row = next(each for each in rows_of(done, "transaction") if each["state"] == "aborted")
    words = shlex.split(row["command"])
    assert words[0] == "eoctl"
    listed = rows_of(eoctl(*words[1:], "--output", "jsonl"), "transaction")
    assert any(each["first_offset"] == row["first_offset"] for each in listed)
    epoch = rows_of(done, "leader_epoch")[-1]
    found = eoctl(*shlex.split(epoch["command"])[1:], "--output", "jsonl")
    assert json.loads(found.stdout.splitlines()[0])["batch_pos"] == epoch["position"]


# --- what is asked for ----------------------------------------------------------------------------


def test_only_some_topics_ids_and_times(crash: Path, eoctl: Callable[..., Outcome]) -> None:
    done = eoctl("report", crash, *JSONL, "--topic", "txn", "--transactional-id", "open-1")
    assert {each["topic"] for each in rows_of(done, "partition")} == {"txn"}
    assert {each["transactional_id"] for each in rows_of(done, "transaction")} == {"open-1"}
    every = rows_of(eoctl("report", crash, *JSONL), "transaction")
    middle = sorted(each["last_timestamp_ms"] for each in every)[len(every) // 2]
    later = rows_of(eoctl("report", crash, *JSONL, "--from-time", str(middle)), "transaction")
    expected = [e for e in every if max(e["last_timestamp_ms"], e["first_timestamp_ms"]) >= middle]
    assert 0 < len(later) < len(every)
    assert len(later) == len(expected)


def test_lanes_that_are_too_many_are_said(
    crash: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    to = tmp_path / "r.html"
    eoctl("report", crash, "--now", "dir", "--to", to, "--max-lanes", "3")
    lanes = island_of(to.read_bytes())["lanes"]
    assert Counter(each["kind"] for each in lanes)["partition"] == 3
    # Those that are held come first.
    assert [each["title"] for each in lanes[:2]] == ["txn-0", "txn-1"]
    assert b"21 more partitions are not drawn" in to.read_bytes()


@pytest.mark.exhaustive
def test_volume_that_is_not_drawn_changes_nothing_on_the_page(
    crash: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    alone, beside = tmp_path / "alone.html", tmp_path / "beside.html"
    options = ("--now", "dir", "--max-lanes", "2", "--to")
    eoctl("report", crash, *options, alone)
    rows = rows_of(eoctl("report", crash, *options, beside, "--output", "jsonl"), "volume")
    assert len({each["path"] for each in rows}) > 2
    assert alone.read_bytes() == beside.read_bytes()


def test_equal_input_gives_equal_bytes(
    crash: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    pages = []
    for number, jobs in enumerate(("1", "2")):
        to = tmp_path / f"{number}.html"
        eoctl("report", crash, "--now", "dir", "--jobs", jobs, "--to", to)
        pages.append(to.read_bytes())
    assert pages[0] == pages[1]


# --- what must not be -----------------------------------------------------------------------------


def test_it_refuses_to_replace_a_file_or_to_write_into_a_log_dir(
    killed: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    to = tmp_path / "r.html"
    to.write_text("mine")
    done = eoctl("report", killed, "--to", to)
    assert done.status == 4
    assert b"--force" in done.errors.encode()
    assert to.read_text() == "mine"
    assert eoctl("report", killed, "--now", "dir", "--to", to, "--force").status == 0
    assert to.read_text().startswith("<!DOCTYPE html>")
    before = sorted(killed.rglob("*"))
    for place in (killed / "r.html", killed / "txn-0" / "r.html"):
        assert eoctl("report", killed, "--to", place, "--force").status == 4
    assert sorted(killed.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ((), 2),
        (("{}",), 2),
        (("{}", "--to", ""), 2),
        (("{}", "--to", "/"), 2),
        (("{}", "--to", "/no/such/place/r.html"), 3),
        (("{}/nothing", "--to", "r.html"), 3),
        (("{}", "--to", "r.html", "--topic", "none"), 2),
        (("{}", "--to", "r.html", "--from-time", "soon"), 2),
        (("{}", "--to", "r.html", "--from-time", "2", "--to-time", "1"), 2),
        (("{}", "--to", "r.html", "--key-file", "k"), 2),
        (("{}", "--to", "r.html", "--max-lanes", "0"), 2),
    ],
)
def test_wrong_calls(
    crash: Path,
    eoctl: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    status: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = eoctl("report", *(each.format(crash) for each in arguments))
    assert done.status == status, done.errors
    assert "Traceback" not in done.errors
    assert not [*tmp_path.iterdir()]


def test_no_payload_is_in_a_page(
    crash: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    to = tmp_path / "r.html"
    eoctl("report", crash, "--now", "dir", "--to", to, "--deep")
    text = to.read_bytes() + json.dumps(island_of(to.read_bytes())).encode()
    records = eoctl("consume", crash / "plain-0", "--output", "jsonl").stdout
    values = {json.loads(each)["value"] for each in records.splitlines()[:200]}
    long = [each for each in values if each and len(each) >= 12]
    assert long
    assert not [each for each in long if each.encode() in text]


def test_damage_is_at_the_top(killed: Path, eoctl: Callable[..., Outcome], tmp_path: Path) -> None:
    log = killed / "txn-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[5000] ^= 1
    log.write_bytes(data)
    to = tmp_path / "r.html"
    done = eoctl("report", killed, "--to", to, *JSONL)
    assert done.status == eoctl("check", killed, *JSONL).status == 1
    bad = next(each for each in rows_of(done, "finding") if each["severity"] == "error")
    assert bad["timestamp_ms"] is not None
    text = to.read_text()
    assert text.index("damaged") < text.index('id="timelines"')
    lanes = island_of(to.read_bytes())["lanes"]
    assert lanes[0]["title"] == "txn-0"


def test_what_could_not_be_read_is_at_the_top_and_nothing_is_fine(
    killed: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    shutil.rmtree(killed / "plain-0")
    (killed / "plain-0").mkdir()
    (killed / "plain-0" / "00000000000000000000.log").mkdir()
    to = tmp_path / "r.html"
    done = eoctl("report", killed, "--to", to, "--now", "dir")
    assert done.status == eoctl("check", killed, "--now", "dir").status
    assert done.status != 0
    text = to.read_text()
    assert 'class="badge">fine' not in text.partition('id="timelines"')[0]


HOSTILE = "</script><img src=x onerror=alert(1)>"


def test_names_are_escaped(killed: Path, eoctl: Callable[..., Outcome], tmp_path: Path) -> None:
    odd = killed.rename(tmp_path / "<b onclick='x'>\u202e\udcff")
    to = tmp_path / "r.html"
    eoctl("report", odd, "--now", "dir", "--to", to, "--title", HOSTILE)
    data = to.read_bytes()
    assert b"<img" not in data
    assert b"<b onclick" not in data
    assert "\u202e".encode() not in data
    assert data.count(b"</script>") == 2
    assert b"&lt;/script&gt;" in data
    text = json.dumps(island_of(data), ensure_ascii=False)
    assert "\u202e" not in text


@pytest.mark.exhaustive
def test_pseudonyms(crash: Path, eoctl: Callable[..., Outcome], tmp_path: Path) -> None:
    names = ["many-producers", "compacted", "open-1", "plain-group", "append-time", str(crash)]
    key, pages = tmp_path / "key", []
    for number in range(2):
        to = tmp_path / f"{number}.html"
        eoctl("report", crash, "--now", "dir", "--to", to, "--redact", "names", "--key-file", key)
        pages.append(to.read_bytes())
    assert pages[0] == pages[1]
    assert key.stat().st_mode & 0o077 == 0
    text = pages[0] + json.dumps(island_of(pages[0])).encode()
    assert [each for each in names if each.encode() in text] == []
    assert b"__transaction_state" in text  # of Kafka itself
    assert b"topic-" in text
    eoctl("report", crash, "--now", "dir", "--to", tmp_path / "o.html", "--redact", "names")
    assert (tmp_path / "o.html").read_bytes() != pages[0]


# --- what a check of each partition by itself cannot see ------------------------------------------

TORN = [
    *("why", "transactional_id", "producer_id", "producer_epoch", "topic", "partition", "offset"),
    *("committed_in", "aborted_in", "open_in", "without_marker", "not_here"),
]


def torn_twice(
    eoctl: Callable[..., Outcome], *paths: Any, now: str = "dir"
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """As a report has them, and as the command has them."""
    options = ("--output", "jsonl", "--now", now)
    reported, listed = eoctl("report", *paths, *options), eoctl("txn", "torn", *paths, *options)
    assert {reported.status, listed.status} <= {0, 1}, reported.errors + listed.errors
    return rows_of(reported, "torn_transaction"), rows_of(listed, "torn_transaction")


@pytest.mark.share(1)
@pytest.mark.parametrize("state", [*STATES, "kafka-4.3.1/hard-clean"], indirect=True)
def test_torn_transactions_are_those_of_txn_torn(
    state: Path, eoctl: Callable[..., Outcome]
) -> None:
    reported, listed = torn_twice(eoctl, state)
    assert counted(reported, TORN) == counted(listed, TORN)


@pytest.mark.exhaustive
def test_each_kind_of_torn_transaction_is_told(
    killed: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    replace_state(
        killed,
        "open-1",
        transaction_status=TransactionStatus.PREPARE_COMMIT,
        partitions=(("txn", 0), ("plain", 0), ("gone", 3)),
    )
    commit, abort = (Batch(40, 1, 0, 1, each) for each in ("commit", "abort"))
    write_segments(killed / "a-0", [Batch(40, 0, 0, 2, "txn"), commit])
    write_segments(killed / "b-0", [Batch(40, 0, 0, 2, "txn"), abort])
    write_segments(killed / "c-0", [Batch(40, 0, 0, 2, "txn")])
    late = [Batch(5, 0, 0, 1, "txn"), Batch(5, 1, 0, 1, "abort"), Batch(5, 0, 1, 1, "txn")]
    write_segments(killed / "late-0", late)
    reported, listed = torn_twice(eoctl, killed)
    assert counted(reported, TORN) == counted(listed, TORN)
    kinds = {"outcome-differs", "marker-missing", "data-after-marker", "prepare-not-completed"}
    assert {each["why"] for each in reported} >= kinds
    assert all(each["path"] for each in reported)
    # At the top, with a call that shows it; and with pseudonyms in the lists of partitions too.
    to = tmp_path / "r.html"
    eoctl("report", killed, "--now", "dir", "--to", to)
    top = to.read_text().partition('id="timelines"')[0]
    assert "outcome-differs: open-1: committed in a-0, aborted in b-0" in top
    eoctl("report", killed, "--now", "dir", "--to", to, "--force", "--redact", "names")
    text = to.read_text() + json.dumps(island_of(to.read_bytes()))
    assert re.findall(r"\b(?:open-1|late-0|gone-3|plain-0)\b", text) == []


@pytest.mark.exhaustive
def test_markers_of_older_coordinators_are_told(
    killed: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    log = write_segments(killed / "old-0", [Batch(5, 0, 0, 1, "txn")]) / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + commit_marker(1, 5, 7) + commit_marker(2, 5, 6))
    reported, listed = torn_twice(eoctl, killed)
    assert counted(reported, [*TORN, "detail"]) == counted(listed, [*TORN, "detail"])
    (older,) = (each for each in reported if each["why"] == "older-coordinator-epoch")
    assert (older["topic"], older["offset"]) == ("old", 2)
    assert older["detail"] == "coordinator epoch 6 behind one of 7"
    to = tmp_path / "r.html"
    eoctl("report", killed, "--now", "dir", "--to", to)
    top = to.read_text().partition('id="timelines"')[0]
    assert "older-coordinator-epoch: producer 5: old-0 coordinator epoch 6 behind one of 7" in top


@pytest.mark.parametrize("late", [[], [Batch(7, 0, 0, 1, "txn")]])
def test_a_marker_without_data_that_raises_the_epoch(
    eoctl: Callable[..., Outcome], tmp_path: Path, late: list[Batch]
) -> None:
    """By itself it contradicts nobody; data of the epoch before, behind it, does."""
    begin = [Batch(7, 0, 0, 2, "txn"), Batch(7, 1, 0, 1, "commit")]
    more = [Batch(7, 1, 0, 2, "txn"), Batch(7, 2, 0, 1, "commit")]
    write_segments(tmp_path / "kafka" / "a-0", [*begin, *more])
    write_segments(tmp_path / "kafka" / "b-0", [*begin, Batch(7, 2, 0, 1, "abort"), *late])
    reported, listed = torn_twice(eoctl, tmp_path / "kafka", now="1795229940000")
    assert counted(reported, [*TORN, "detail"]) == counted(listed, [*TORN, "detail"])
    assert ("data-after-marker" in {each["why"] for each in reported}) == bool(late)


@pytest.mark.parametrize("log_start", range(7))
def test_torn_transactions_of_before_the_log_start(
    eoctl: Callable[..., Outcome], tmp_path: Path, log_start: int
) -> None:
    """Their batches lie in the log until their segment goes: one place, one verdict."""
    more = [Batch(7, 1, 0, 2, "txn"), Batch(7, 2, 0, 1, "commit")]
    for name, kind in (("a-0", "commit"), ("b-0", "abort")):
        begin = [Batch(7, 0, 0, 2, "txn"), Batch(7, 1, 0, 1, kind)]
        write_segments(tmp_path / "kafka" / name, [*begin, *more])
    checkpoint = tmp_path / "kafka" / "log-start-offset-checkpoint"
    checkpoint.write_text(f"0\n1\nb 0 {log_start}\n")
    reported, listed = torn_twice(eoctl, tmp_path / "kafka", now="1795229940000")
    assert counted(reported, TORN) == counted(listed, TORN)
    assert [each["why"] for each in reported] == ["outcome-differs"]


def ended_at_random(rng: random.Random) -> list[Batch]:
    """What a partition has of two producers, each transaction with an epoch of its own, or not."""
    batches = []
    for producer_id in (7, 8):
        for epoch in range(3):
            kind, raised = rng.choice(["commit", "commit", "abort"]), rng.choice([1, 1, 0])
            batches += [Batch(producer_id, epoch, 0, 1, "txn")] * rng.choice([1, 1, 0])
            batches += [Batch(producer_id, epoch + raised, 0, 1, kind)] * rng.choice([1] * 5 + [0])
    return batches


@pytest.mark.parametrize("seed", range(times(40, 8)))
def test_torn_transactions_of_random_partitions(
    eoctl: Callable[..., Outcome], tmp_path: Path, seed: int
) -> None:
    rng = random.Random(f"{os.environ['EOCTL_SEED']} {seed}")
    for name in ("a-0", "b-0", "c-0")[: rng.randint(2, 3)]:
        write_segments(tmp_path / "kafka" / name, ended_at_random(rng))
    reported, listed = torn_twice(eoctl, tmp_path / "kafka", now="1795229940000")
    assert counted(reported, [*TORN, "detail"]) == counted(listed, [*TORN, "detail"])


@pytest.fixture
def no_second_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    from eoctl.commands.txn import reports

    def asked(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(reports, "run_audit", asked)


@pytest.mark.usefixtures("no_second_reading")
def test_partitions_that_were_aborted_alike_are_not_read_again(
    eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    """With transactions of version 2 each has an epoch of its own, by which that is seen."""
    batches = []
    for epoch, kind in enumerate(("commit", "abort", "abort", "commit")):
        batches += [Batch(7, epoch, 0, 1, "txn"), Batch(7, epoch + 1, 0, 1, kind)]
    for name in ("a-0", "b-0"):
        write_segments(tmp_path / "kafka" / name, batches)
    options = ("--output", "jsonl", "--now", "1795229940000")
    reported = eoctl("report", tmp_path / "kafka", *options)
    assert reported.status in {0, 1}, reported.errors
    assert rows_of(reported, "torn_transaction") == []


@pytest.mark.usefixtures("no_second_reading")
def test_partitions_in_which_all_was_committed_are_not_read_again(
    crash: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    plain = [crash / name for name in ("plain-0", "rolled-0", "idem-none-0", "compacted-0")]
    done = eoctl("report", *plain, "--now", "dir", "--to", tmp_path / "r.html")
    assert done.status in {0, 1}, done.errors


# --- coordinators and elections -------------------------------------------------------------------


def test_events_of_an_id(crash: Path, eoctl: Callable[..., Outcome]) -> None:
    """`fenced` was begun by one instance and aborted for the next one."""
    rows = rows_of(eoctl("report", crash, *JSONL), "id_state")
    events = [(each["status"], each["event"]) for each in rows
              if each["transactional_id"] == "fenced" and each["event"]]  # fmt: skip
    assert events == [
        ("PrepareAbort", "fenced: aborted"),
        ("Empty", "new epoch: older instances are fenced"),
    ]
    ongoing = [each for each in rows if each["status"] == "Ongoing"]
    assert ongoing
    assert all(each["due_at_ms"] == each["timestamp_ms"] + each["timeout_ms"]
               for each in ongoing if each["transactional_id"] == "open-1")  # fmt: skip
    assert {each["due_at_ms"] for each in rows if each["status"] != "Ongoing"} == {None}


def state_of(**changed: Any) -> TransactionState:
    plain = {
        "version": 1, "transactional_id": "t", "producer_id": 7, "previous_producer_id": -1, "next_producer_id": -1,
        "producer_epoch": 3, "next_producer_epoch": -1, "timeout_ms": 1000,
        "transaction_status": TransactionStatus.ONGOING, "partitions": (("a", 0),),
        "last_update_timestamp_ms": 5000, "start_timestamp_ms": 5000,
        "client_transaction_version": 0,
    }  # fmt: skip
    return TransactionState(**{**plain, **changed})


@pytest.mark.parametrize(
    ("before", "after", "event"),
    [
        ({}, {}, ""),
        ({}, {"transaction_status": 2}, ""),
        ({}, {"transaction_status": 3}, ""),
        ({}, {"transaction_status": 3, "producer_epoch": 4}, "fenced: aborted"),
        (
            {},
            {"transaction_status": 3, "producer_epoch": 4, "last_update_timestamp_ms": 6000},
            "timed out: aborted by the coordinator",
        ),
        # Each end raises the epoch with version 2: by itself that tells nothing.
        (
            {"client_transaction_version": 2},
            {"transaction_status": 3, "producer_epoch": 4, "client_transaction_version": 2},
            "",
        ),
        (
            {"client_transaction_version": 2},
            {"transaction_status": 2, "producer_epoch": 4, "client_transaction_version": 2},
            "",
        ),
        (
            {"transaction_status": 4},
            {"transaction_status": 0, "producer_epoch": 4},
            "new epoch: older instances are fenced",
        ),
        (
            {"transaction_status": 4},
            {"transaction_status": 0, "producer_id": 8},
            "another producer id",
        ),
    ],
)
def test_what_is_an_event(before: dict[str, Any], after: dict[str, Any], event: str) -> None:
    from eoctl.commands.reporting.cluster_data import StatesSeen
    from eoctl.commands.reporting.report_options import ReportRequest
    from recovery.cluster.coordinator_log import IdRecord

    seen = StatesSeen()
    for offset, each in enumerate((before, after)):
        seen.add(IdRecord(transactional_id="t", partition=0, offset=offset, state=state_of(**each)))
    first, second = seen.rows(ReportRequest(["x"]))
    assert (first.event, second.event) == ("", event)


def test_an_election_without_another_replica_has_lost_nothing(
    golden: Callable[[str], Path], eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    to = tmp_path / "r.html"
    done = eoctl("report", golden("kafka-4.3.1") / "tv2", *JSONL, "--to", to)
    elections = [each for each in rows_of(done, "verdict") if each["label"] == "Election"]
    assert [each["severity"] for each in elections] == ["ok"]
    unclean = [each for each in rows_of(done, "change") if each["is_unclean"]]
    names = {(each["topic"], each["partition"]) for each in unclean}
    assert {each["replicas"] for each in unclean} == {"1"}
    assert f"{len(names)} partitions without another replica" in elections[0]["text"]
    top = to.read_text().partition('id="timelines"')[0]
    assert 'class="badge">fine' in top
    assert "Nothing wrong was found" in top


def test_the_digest_is_of_the_contents(tmp_path: Path, eoctl: Callable[..., Outcome]) -> None:
    """Equal for a copy elsewhere; another one for another record of the same size."""

    def digest(name: str, value: bytes) -> str:
        said = (Said(1, b"k", value),)
        write_log(tmp_path / name / "t-0", [Sent(7, 0, 0, said)])
        rows = rows_of(eoctl("report", tmp_path / name, "-o", "jsonl"), "source")
        (found,) = [each["value"] for each in rows if each["what"] == "digest"]
        return found

    assert digest("one", b"a") == digest("copy", b"a") != digest("other", b"b")
