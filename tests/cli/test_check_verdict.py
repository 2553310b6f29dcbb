"""What `eoctl check` tells a person first: the answer, true, in six lines of 80 columns."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.commands.shared.check_run import CheckRequest, CheckRun, prepared
from eoctl.commands.shared.check_verdict import lines, top, verdict_of_run
from eoctl.messages import said_line
from recovery.fsck.verdict import Answer
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from tests.changes import held
from tests.kafka.broker import copy_log_dir
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from recovery.fsck.verdict import DirectoryVerdict

LOG = "00000000000000000000.log"
ONE_LINE = 80


def verdict(*paths: object, **options: Any) -> DirectoryVerdict:
    request = CheckRequest(tuple(map(str, paths)), jobs=1, **options)
    run, _ = prepared(request, CheckRun)
    for _ in run.findings():
        pass
    return verdict_of_run(run, request)


def rows_of(outcome: Any, kind: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    return [row for row in rows if row["kind"] == kind]


def flip(path: Path, pos: int) -> None:
    data = bytearray(path.read_bytes())
    data[pos] ^= 0x10
    path.write_bytes(data)


def cut(path: Path, count_bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:-count_bytes])


def top_of(found: DirectoryVerdict) -> list[str]:
    shown = [said_line(each).text for each in top(found, ONE_LINE)]
    assert 3 <= len(shown) <= 7, shown
    # A command is there to be pasted, and is never broken; nothing is cut.
    drawn = [each.text for each in takewhile(lambda each: each.text, lines(found, ONE_LINE))]
    assert all(len(each) <= ONE_LINE or each.startswith(("Next", "Other")) for each in drawn), drawn
    assert " ".join(drawn).split() == " ".join(shown).split()
    return shown


def call_of(found: DirectoryVerdict) -> tuple[str, ...]:
    assert found.call is not None
    return found.call.words


# --- will it start --------------------------------------------------------------------------------


def test_a_clean_node_starts_and_loses_nothing(kafka: Path) -> None:
    found = verdict(kafka, now="dir")
    assert found.answer is Answer.YES
    assert not found.cuts
    assert not found.missing
    shown = top_of(found)
    assert shown[0] == (
        "Start   Kafka 4.4.0 will start, as far as its files show, and removes no record"
    )
    assert shown[1] == "Lost    nothing: no damaged batch, none missing below the high watermarks"
    assert shown[2].startswith("Blocked txn-0 stops at 311 of 329 since 2026-11-2")
    assert shown[2].endswith(", 1 more; not late")
    assert len(shown) == 5


def test_a_deleted_replica_goes_and_no_record_of_another(golden: Callable[[str], Path]) -> None:
    """The rows say that these directories go, so the answer does not say that nothing does."""
    both = golden("kafka-2.8.2")
    found = verdict(both / "one", both / "two", now="dir", broker_version="2.8.2")
    assert top_of(found)[0] == (
        "Start   Kafka 2.8.2 will start, and removes only 2 -delete directories"
    )


@pytest.mark.parametrize(
    ("options", "path", "why"),
    [
        ({}, "kafka/plain-0", "only some of its partitions were checked"),
        ({"is_fast": True}, "kafka", "--fast"),
        ({"topics": ("plain",)}, "kafka", "partitions were left out"),
    ],
)
def test_what_was_not_looked_at_is_no_yes(
    kafka: Path, options: dict[str, Any], path: str, why: str
) -> None:
    found = verdict(kafka.parent / path, now="dir", **options)
    assert found.answer is Answer.UNKNOWN
    start = next(each for each in top_of(found) if each.startswith("Start"))
    assert start.startswith("Start   unknown: ")
    assert any(why in each.what for each in found.starts[0].obstacles)


def test_another_log_dir_of_the_node_is_missed(golden: Callable[[str], Path]) -> None:
    both = golden("kafka-4.3.1-two-dirs")
    assert verdict(both / "one").answer is Answer.UNKNOWN
    assert verdict(both / "one", both / "two").answer is Answer.YES


def test_a_log_dir_of_an_old_release_is_no_yes(golden: Callable[[str], Path]) -> None:
    """Nobody said which release starts, and the newest one cannot read it."""
    old = golden("kafka-1.1.1")
    found = verdict(old / "one", old / "two")
    assert found.answer is not Answer.YES
    asked = verdict(old / "one", old / "two", broker_version="4.3")
    assert asked.answer is not Answer.YES


def test_a_running_broker_is_no_yes(kafka: Path) -> None:
    with held(kafka):
        assert verdict(kafka).answer is Answer.UNKNOWN


def test_what_it_dies_of_comes_first(kafka: Path) -> None:
    (kafka / "plain-0" / "abc.log").write_bytes(b"")
    found = verdict(kafka)
    assert found.answer is Answer.NO
    first = top_of(found)[0]
    assert first.startswith("Start   Kafka 4.4.0 will NOT start: ")
    assert "abc.log" in first
    assert call_of(found)[:2] == ("eoctl", "repair")


def test_what_it_dies_of_is_not_cut_off_by_names(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    log_dirs = [
        copy_log_dir(golden("kafka-4.3.1-two-dirs") / each, tmp_path / each)
        for each in ("one", "two")
    ]
    names = [each / "__cluster_metadata-0" for each in log_dirs]
    has_it = next(each for each in names if each.exists())
    shutil.copytree(has_it, next(each for each in names if each != has_it))
    first = top_of(verdict(*log_dirs, now="dir"))[0]
    assert first.endswith("will NOT start: __cluster_metadata-0 is live in another directory too")


# File of a log dir -> what is written to it. Each was judged by a broker of 4.3.1, which died.
DEADLY = {
    "bootstrap.checkpoint": b"",
    "plain-0/abc.snapshot": b"",
    "plain-0/abc.index": b"",
    "plain-0/abc.log.swap": b"",
    "plain-0/abc.log.cleaned": b"",
    "__cluster_metadata-0/abc.checkpoint.part": b"",
    "meta.properties": b"version=1\nnode.id=-1\ncluster.id=a\n",
}


@pytest.mark.share(3)
@pytest.mark.parametrize("name", DEADLY)
def test_what_a_broker_dies_of_is_a_no(kafka: Path, name: str) -> None:
    (kafka / name).write_bytes(DEADLY[name])
    found = verdict(kafka, now="dir")
    assert found.answer is Answer.NO
    assert name.rpartition("/")[2] in top_of(found)[0]
    assert found.call is not None
    step = next(each for each in top_of(found) if each.startswith("Next"))
    assert re.match("Next    [a-z]", step)  # a command or an imperative
    assert not step.endswith(".")


def test_what_a_broker_passes_over_is_no_no(kafka: Path) -> None:
    """Judged by a broker of 4.3.1, too: it started."""
    path = kafka / "bootstrap.checkpoint"
    data = path.read_bytes()
    path.write_bytes(data[:-75])  # the footer
    (kafka / "plain-0/abc.log.deleted").write_bytes(b"")
    (kafka / "plain-0/5.snapshot").write_bytes(b"")
    assert verdict(kafka, now="dir").answer is Answer.YES


@pytest.mark.parametrize("is_whole_log", [False, True])
def test_metadata_that_are_cut_are_no_yes(kafka: Path, *, is_whole_log: bool) -> None:
    """A broker sets aside what its metadata do not know any more; no call puts these right."""
    log = min((kafka / "__cluster_metadata-0").glob("*.log"))
    if is_whole_log:
        log.unlink()
    else:
        flip(log, 70)
    found = verdict(kafka, now="dir")
    assert found.answer is Answer.UNKNOWN
    assert any("not whole: may set replicas aside" in each for each in top_of(found))
    assert call_of(found) == ()
    assert found.call is not None
    assert "from another controller" in found.call.sentence
    assert not any("eoctl repair" in each.finding.fix for each in found.listed)


def test_several_nodes(diverged: Path) -> None:
    brokers = [diverged / f"broker-{each}" for each in (1, 2, 3)]
    assert verdict(*brokers).answer is Answer.YES
    (brokers[1] / "meta.properties").write_text("version=1\nnode.id=x\ncluster.id=c\n")
    found = verdict(*brokers)
    assert found.answer is not Answer.YES
    # Nobody knows any more whether that is another node's, or of one of the others.
    assert "a node" in top_of(found)[0]
    assert "will NOT start" in top_of(found)[0]


# --- what goes, what is lost ----------------------------------------------------------------------


def test_what_a_start_cuts(killed: Path, eoctl: Callable[..., Any]) -> None:
    flip(killed / "plain-0" / LOG, 2000)  # in the first batch
    found = verdict(killed)
    [gone] = found.cuts
    rows = rows_of(eoctl("check", "--output", "jsonl", killed), "partition")
    row = next(each for each in rows if each["path"].endswith("plain-0"))
    # All records that are on disk, but for the damaged batch. Its offsets go too.
    records = [
        record.offset
        for placed in Partition.of(select_partition(killed / "plain-0")).read(0)
        if placed.batch.crc_ok
        for record in placed.segment.records(placed.batch)
    ]
    assert gone.records_count == len(records)
    assert gone.last_offset == records[-1] == row["end_offset"] - 1
    assert gone.first_offset == row["start_end_offset"] == 0 < records[0]
    assert gone.acknowledged_count == len(records)  # the high watermark is the end
    assert gone.is_least
    shown = top_of(found)
    assert shown[0] == "Start   Kafka 4.4.0 will start, and removes what follows"
    assert shown[1].startswith(
        f"Removes at least {len(records)} records of plain, all acknowledged"
    )
    assert call_of(found) == ("eoctl", "repair", str(killed / "plain-0"))


def test_one_place_has_one_range(killed: Path) -> None:
    """The damaged batch, the lost offsets and the start name the same first offset."""
    flip(killed / "txn-0" / LOG, 4550)
    found = verdict(killed, now="dir")
    [gone], [damaged] = found.cuts, found.damaged
    assert (damaged.base_offset, damaged.last_offset) == (48, 50)
    assert (gone.first_offset, gone.last_offset) == (48, 328)
    assert any(
        "txn-0: truncates offsets 48..328, at least 246 records" in e.text
        for e in lines(found, 120)
    )


def test_a_damaged_last_batch_is_no_torn_write(killed: Path) -> None:
    """It had whole records, though none of them can be read."""
    log = killed / "plain-0" / LOG
    flip(log, log.stat().st_size - 10)
    found = verdict(killed, now="dir")
    [gone] = found.cuts
    assert (gone.first_offset, gone.last_offset, gone.is_least) == (160, None, True)
    shown = top_of(found)
    assert shown[1] == "Removes 3.52 KiB of plain-0, which cannot be read"
    (row,) = [each for each in lines(found, 120) if each.text.startswith("start")]
    assert row.text == "start   plain-0: truncates 3.52 KiB that cannot be read, from offset 160 on"


def test_what_a_crash_tore_costs_nothing(killed: Path) -> None:
    """The broker cuts an unfinished write by itself: there is nothing to repair."""
    point = (killed / "plain-0" / LOG).stat().st_size
    with (killed / "plain-0" / LOG).open("ab") as log:
        log.write((killed / "plain-0" / LOG).read_bytes()[:100])
    found = verdict(killed, now="dir")
    [gone] = found.cuts
    assert (gone.records_count, gone.log_bytes, gone.is_least) == (0, 100, False)
    assert point
    assert found.call is None or found.call.words[1] != "repair"
    assert "100 B of plain-0, which hold no whole record" in "\n".join(top_of(found))


def test_what_is_missing_and_what_follows_from_it(kafka: Path, eoctl: Callable[..., Any]) -> None:
    cut(kafka / "txn-0" / LOG, 500)
    found = verdict(kafka, now="dir")
    rows = rows_of(eoctl("check", "--now", "dir", "--output", "jsonl", kafka), "finding")
    everything = [each.finding for each in found.listed]
    everything += [one for each in found.listed for one in each.consequences]
    assert sorted(each.check_id for each in everything) == sorted(r["check_id"] for r in rows)
    torn = next(each for each in found.listed if each.finding.check_id == "SEG-6")
    assert {each.check_id for each in torn.consequences} >= {"EPC-2", "OFS-2", "SNP-3"}
    assert not {each.check_id for each in torn.consequences} & {"OFS-3", "TXO-1"}
    [missing] = found.missing
    assert (missing.base_offset, missing.last_offset) == (318, 328)
    assert "11 acknowledged offsets missing" in "\n".join(top_of(found)[1:3])


def test_where_nothing_tells_what_was_acknowledged(kafka: Path) -> None:
    (kafka / "replication-offset-checkpoint").unlink()
    found = verdict(kafka, now="dir")
    lost = next(each for each in top_of(found) if each.startswith("Lost"))
    assert lost == "Lost    nothing: no damaged batch; 23 of 24 without high watermark"


def test_gaps_between_batches_are_lost_offsets(golden: Callable[[str], Path]) -> None:
    found = verdict(golden("kafka-4.3.1") / "hard", now="dir")
    lost = next(each for each in top_of(found) if each.startswith("Lost"))
    assert lost == "Lost    36 acknowledged offsets missing"


def test_an_index_of_a_sound_log_is_a_finding_of_its_own(kafka: Path) -> None:
    flip(kafka / "idem-none-0" / LOG.replace(".log", ".index"), 7)
    flip(kafka / "plain-0" / LOG, 2000)
    roots = [each.finding for each in verdict(kafka).listed]
    families = {each.check_id.partition("-")[0] for each in roots if each.topic == "idem-none"}
    assert "IDX" in families


# --- on a terminal --------------------------------------------------------------------------------


def test_on_terminal_and_in_a_pipe(killed: Path, eoctl: Callable[..., Any]) -> None:
    flip(killed / "plain-0" / LOG, 2000)
    screen = on_terminal("check", "-q", "killed")
    assert screen.status == 1
    assert screen.lines[0].startswith("Start   Kafka 4.4.0 will start, and removes")
    end = next(n for n, each in enumerate(screen.lines) if each.startswith("not shown"))
    assert all(len(each) <= ONE_LINE for each in screen.lines[:end])
    assert "clean   21 partitions without a finding" in screen.text
    assert "does not match; broker truncates the file at byte 0" in " ".join(screen.text.split())
    assert "not shown: rows of 24 partitions; -v or --output jsonl" in screen.text
    whole = on_terminal("check", "-q", "-v", "killed").text
    assert re.search(r"^check id +BAT-1", whole, re.MULTILINE)
    piped = eoctl("check", "--now", "dir", "killed")
    assert piped.text.startswith("check_id\tseverity\tpath")
    assert eoctl("check", "--now", "dir", "-v", "killed").stdout == piped.stdout


def test_the_next_call_works_as_it_stands(
    killed: Path, eoctl: Callable[..., Any], tmp_path: Path
) -> None:
    spaced = tmp_path / "a log dir"
    shutil.move(killed, spaced)
    flip(spaced / "plain-0" / LOG, 2000)
    line = next(each for each in on_terminal("check", "-q", "a log dir").lines if "Next" in each)
    words = shlex.split(line.removeprefix("Next"), comments=True)
    assert words == ["eoctl", "repair", "a log dir/plain-0"]
    assert eoctl(*words[1:]).status in {0, 5}


def test_a_log_dir_that_names_no_node_belongs_to_the_only_one(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    both = [
        copy_log_dir(golden("kafka-4.3.1-two-dirs") / each, tmp_path / each)
        for each in ("one", "two")
    ]
    meta = both[1] / "meta.properties"
    text = meta.read_text()
    meta.write_bytes(b"")
    assert [each.answer for each in verdict(*both).starts] == [Answer.NO]
    # A start writes the id of a directory that has none.
    meta.write_text("".join(each for each in text.splitlines(True) if "directory" not in each))
    assert [each.answer for each in verdict(*both).starts] == [Answer.YES]
    # The broker goes on without a directory that is not that of the metadata log.
    meta.write_text(text.replace("version=1", "version=2"))
    (start,) = verdict(*both).starts
    assert start.answer is Answer.YES
    assert [each.path for each in start.offline] == [str(meta)]
