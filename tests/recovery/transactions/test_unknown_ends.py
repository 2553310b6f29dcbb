"""Outcomes of transactions whose end marker may be damaged or absent: all readers, one answer.

Logs are made at random, and damaged. The judge knows what was written. A reader may say of a batch
what became of it, or that this is unknown, the second only if a stretch lies behind the batch.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from recovery.audit.reports import Audited
from recovery.duplicates.search import OutcomeReader, outcome_sorter
from recovery.duplicates.spill import OUTCOMES, SpillSpace
from recovery.records.columns import RecordReader
from recovery.records.read_options import ReadOptions
from recovery.summaries.codec import LoadedSummary
from recovery.summaries.partition import ReadPiece, join_partition
from recovery.summaries.producer_summary import pending
from recovery.summaries.segment import read_split
from recovery.transactions.outcomes import find_stability
from recovery.transactions.view import TransactionView
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.kernels.numpy_kernel import scan_tables
from storage.log.segment import open_segment
from storage.places.list_places import list_places
from storage.places.splits import split_places
from tests.drawn import times
from tests.transaction_logs import Log, Written, damaged, example, flipped, index_of, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from recovery.transactions.unknown_ends import UnknownTransaction
    from storage.kernels.protocol import HeaderTable
    from storage.places.listing import Listing

# --- what readers say -----------------------------------------------------------------------------


class Answers(NamedTuple):
    """Of each data batch of a transaction that is readable, by offset."""

    outcomes: dict[int, str]
    unknown: tuple[UnknownTransaction, ...]
    view: TransactionView


def tables_of(partition: Partition) -> Iterator[HeaderTable]:
    for files in partition.segments:
        with open_segment(files.log.path) as segment:
            for table in scan_tables(segment):
                is_data = table.crc_ok & (table.attributes == 16)
                yield table._make(column[is_data] for column in table)


def answers(directory: Path) -> Answers:
    """Ask all readers, which must agree."""
    listing = list_places([str(directory)])
    places = listing.places
    outcomes: dict[int, str] = {}
    for split_bytes in (1 << 20, 200):
        found: dict[int, str] = {}
        for split in split_places(places, split_bytes):
            options = ReadOptions(("batch_base_offset", "outcome", "is_transactional"))
            for rows in RecordReader(split, options):
                for row in rows.to_pylist():
                    if row["is_transactional"]:
                        found[row["batch_base_offset"]] = row["outcome"]
        assert not outcomes or found == outcomes
        outcomes = found
    partition = Partition.of(select_partition(str(directory)))
    view = TransactionView(partition)
    view.update()
    stability = find_stability(places)
    assert stability.unknown == view.unknown
    assert stability.stable_offset == view.last_stable_offset
    with outcome_sorter(partition, SpillSpace(1 << 20, str(directory.parent))) as sorter:
        reader = OutcomeReader(sorter)
        for table in tables_of(partition):
            offsets = table.base_offset
            codes = reader.outcomes(offsets)
            names = [OUTCOMES[code] for code in codes.tolist()]
            assert dict(zip(offsets.tolist(), names, strict=True)).items() <= outcomes.items()
            is_hidden = view.is_hidden(table) | (offsets >= view.last_stable_offset)
            is_committed = np.array(
                [outcomes[each] == "committed" for each in offsets.tolist()], bool
            )
            below = offsets < view.last_stable_offset
            assert (is_hidden == ~is_committed)[below].all()
    counted = audited_records(listing)
    sizes = {
        int(offset): int(count)
        for table in tables_of(partition)
        for offset, count in zip(table.base_offset, table.records_count, strict=True)
    }
    # An audit counts transactions. A transaction that may be open is open to a broker.
    may_be_open = sum(each.records_count for each in view.unknown if each.may_be_open)
    for name, count in counted.items():
        expected = [sizes[offset] for offset, each in outcomes.items() if each == name]
        expected += [may_be_open] if name == "open" else []
        assert count == sum(expected), name
    for offset, outcome in outcomes.items():
        is_named = any(each.first_offset <= offset <= each.last_offset for each in view.unknown)
        assert is_named or outcome != "unknown"
    return Answers(outcomes, view.unknown, view)


def audited_records(listing: Listing) -> dict[str, int]:
    """What an audit counts."""
    pieces = [ReadPiece(split, read_split(split)) for split in split_places(listing.places, 200)]
    (place,) = listing.directories
    found = Audited.of(
        place,
        listing.places,
        LoadedSummary(join_partition(pieces)),
        listing.acknowledged_of(place.directory),
    )
    rows = found.summary().producers
    return {
        "committed": int(rows["committed_records"].sum()),
        "aborted": int(rows["aborted_records"].sum()),
        "open": int(pending(rows)["records"].sum()),
    }


def require_true(log: Log, left: Sequence[Written], found: Answers) -> int:
    """Hold what readers say against what was written; returns how many batches are unknown."""
    unknown = 0
    by_offset = {each.offset: each for each in left}
    gaps = [
        before.end for before, behind in pairwise(left)
        if before.end < behind.offset
    ]  # fmt: skip
    for offset, outcome in found.outcomes.items():
        each = by_offset[offset]
        truth = log.outcomes[each.transaction]
        if outcome == truth:
            continue
        ends = [
            other.offset for other in left
            if other.offset > offset and other.producer_id == each.producer_id
            and other.kind in {"commit", "abort"}
        ]  # fmt: skip
        end = min(ends, default=1 << 60)
        assert outcome == "unknown", (offset, outcome, truth)
        assert any(offset < gap < end for gap in gaps), offset
        unknown += 1
    return unknown


# --- by hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("how", ["flip", "cut"])
@pytest.mark.parametrize("first", ["commit", "abort"])
@pytest.mark.parametrize("index", ["intact", "rebuilt", "none"])
def test_a_marker_is_gone(tmp_path: Path, version: int, how: str, first: str, index: str) -> None:
    """The first marker of producer 21: its .txnindex shows what it was, or nothing does."""
    log = example(version, first, "abort" if first == "commit" else "commit")
    batches, left = damaged(log, 3, how)
    entries = {"intact": index_of(log.batches), "rebuilt": index_of(left), "none": []}[index]
    if how == "flip":  # a rebuild ends there
        entries = [each for each in entries if index == "intact" or each[2] < 17]
    found = answers(write(tmp_path / "made", log, batches, entries))
    is_shown = index == "intact"
    assert found.outcomes[10] == (log.outcomes[0] if is_shown else "unknown")
    assert (found.outcomes[15], found.outcomes[18]) == ("committed", log.outcomes[2])
    assert require_true(log, left, found) == (not is_shown)
    if not is_shown:
        (unknown,) = found.unknown
        assert unknown[:6] == (21, 0, 10, 14, 1, 5)
        assert (unknown.stretch_offset, unknown.stretch_last_offset) == (17, 17)
        assert not unknown.may_be_open


def test_what_follows_a_decided_transaction_is_not_drawn_into_it(tmp_path: Path) -> None:
    """Behind its marker the producer has a whole transaction, and another stretch follows."""
    log = Log()
    log.send(23, 2)
    log.finish(23, "abort", 2)
    log.send(23, 3)
    log.finish(23, "commit", 2)
    log.send(23)
    log.finish(23, "commit", 2)
    log.send(21)
    log.finish(21, "commit")
    log.send(23)
    log.plain(2)
    batches = [flipped(each) if each.offset in {2, 10} else each for each in log.batches]
    left = [each for each in log.batches if each.offset not in {2, 10}]
    found = answers(write(tmp_path / "made", log, batches, index_of(log.batches)))
    require_true(log, left, found)
    assert [found.outcomes[each] for each in (0, 3, 7, 11)] == [
        *("aborted", "committed", "committed", "open")
    ]


# --- at random ------------------------------------------------------------------------------------


def drawn_log(rng: random.Random) -> Log:
    """Draw a log of up to three segments; its last batches are plain ones, and stay."""
    log = Log()
    producers = {21: 0, 22: 2, 23: rng.choice([0, 2])}  # and their transaction versions
    for _ in range(rng.randint(10, 40)):
        kind = rng.choice(["plain", "send", "send", "send", "end", "end", "roll"])
        producer_id = rng.choice(sorted(producers))
        if kind == "plain":
            log.plain(rng.randint(1, 3))
        elif kind == "send":
            log.send(producer_id, rng.randint(1, 3))
        elif kind == "end" and log.is_open(producer_id):
            is_fenced = producers[producer_id] == 0 and rng.random() < 0.2
            ending = "abort" if is_fenced else rng.choice(["commit", "commit", "abort"])
            log.finish(producer_id, ending, producers[producer_id], fenced=is_fenced)
        elif kind == "roll" and len(log.bases) < 3 and rng.random() < 0.5:
            log.roll()
    log.plain()
    log.plain()
    return log


def drawn_damage(rng: random.Random, log: Log) -> tuple[list[Written], list[Written]]:
    """Damage some batches, markers above all; returns what is written, and what is readable."""
    written: list[Written | None] = [*log.batches]
    markers = [place for place, each in enumerate(log.batches) if each.kind in {"commit", "abort"}]
    readable = set(range(len(written)))
    for _ in range(rng.randint(1, 2)):
        place = rng.randrange(len(written) - 2)
        if markers and rng.random() < 0.7:
            place = rng.choice(markers)
        last = min(place + rng.choice([1, 1, 1, 2, 4]), len(written) - 2)
        how = rng.choice(["flip", "cut"])
        for each in range(place, last):
            if each in readable:
                readable.remove(each)
                written[each] = None if how == "cut" else flipped(log.batches[each])
    left = [log.batches[place] for place in sorted(readable)]
    return [each for each in written if each is not None], left


@pytest.mark.parametrize("seed", range(times(2000, 16)))
def test_any_log(tmp_path: Path, seed: int) -> None:
    rng = random.Random(f"{seed}")
    log = drawn_log(rng)
    is_clean = rng.random() < 0.1
    batches, left = (log.batches, log.batches) if is_clean else drawn_damage(rng, log)
    entries = index_of(log.batches)
    kind = rng.choice(["intact", "intact", "rebuilt", "none"])
    without = -1
    if kind == "none":
        entries = []
    elif kind == "rebuilt" and len(batches) == len(left):  # nothing is left of what is damaged
        entries = index_of(left)
    elif not is_clean and len(log.bases) > 2 and rng.random() < 0.3:
        without = log.bases[1]
        left = [each for each in left if not without <= each.offset < log.bases[2]]
    found = answers(write(tmp_path / "made", log, batches, entries, without=without))
    unknown = require_true(log, left, found)
    assert not (is_clean and unknown)
