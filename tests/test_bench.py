"""The benchmark measures what it says it does: its segments are whole and look like a broker's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from struct import iter_unpack
from typing import TYPE_CHECKING

import pytest

from bench.curves import PAGE, PICTURES, curves_of, exponent, number, picture, tables_of
from bench.landed import COUNT_NAME, audit, made, require_all
from bench.make_log import CODECS, CONTENTS, SIZES, make_segment
from bench.measure import family_pss_mib
from bench.metadata_history import make_metadata_log
from recovery.cluster.history import PartitionChange, Why, read_history
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.kernels.protocol import VerdictKind
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("size", sorted(SIZES))
@pytest.mark.parametrize("values", sorted(CONTENTS))
def test_a_made_segment_is_healthy(tmp_path: Path, size: str, values: str) -> None:
    path = make_segment(tmp_path, total_bytes=200_000, size=size, values=values, producers=3)
    sequences: dict[int, int] = {}
    by_pos = {}
    with open_segment(path) as segment:
        scan = segment.scan(is_active=False)
        for batch in scan:
            header = batch.header
            by_pos[batch.pos] = header
            assert header.base_sequence == sequences.get(header.producer_id, 0)
            sequences[header.producer_id] = header.last_sequence + 1
            assert len(list(segment.records(batch))) == header.records_count
        assert scan.verdict.kind is VerdictKind.OK
        assert abs(scan.valid_bytes - 200_000) < 70_000
    entries = list(iter_unpack(">ii", path.with_suffix(".index").read_bytes()))
    assert entries
    assert all(by_pos[pos].last_offset == offset for offset, pos in entries)
    gaps = [after[1] - before[1] for before, after in pairwise(entries)]
    assert all(gap > 4096 for gap in gaps)


def test_the_audit_that_is_measured_finds_every_record(tmp_path: Path) -> None:
    """And fails where one log has less: a measurement of what is not read would be none."""
    root = made(1, 4, tmp_path)
    count = json.loads((root / COUNT_NAME).read_text())
    assert count > 200
    before = (root / COUNT_NAME).stat().st_mtime_ns
    assert made(1, 4, tmp_path) == root
    assert (root / COUNT_NAME).stat().st_mtime_ns == before
    logs = sorted(root.glob("*/bench-*/*.log"))
    assert len(logs) == 48
    landed = audit(root)
    require_all(landed, count)
    assert landed.log_bytes == sum(each.stat().st_size for each in logs)
    os.truncate(logs[-1], logs[-1].stat().st_size // 2)
    with pytest.raises(RuntimeError, match=f"of {count} records"):
        require_all(audit(root), count)


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_compressed_segments_can_be_read(tmp_path: Path, codec: str) -> None:
    path = make_segment(tmp_path, total_bytes=20_000, codec=codec)
    with open_segment(path) as segment:
        counts = {len(list(segment.records(batch))) for batch in segment.scan()}
    assert 0 not in counts


@pytest.mark.exhaustive
def test_a_made_metadata_log_is_whole(tmp_path: Path) -> None:
    """Its offsets follow each other, its records are known, and each round ends as it began."""
    path = tmp_path / "__cluster_metadata-0"
    make_metadata_log(path, 1_200_000)
    (selected,) = discover([path]).selected
    history = read_history(Partition.of(selected))
    reasons = {
        why for change in history if isinstance(change, PartitionChange) for why in change.why
    }
    assert history.is_complete
    assert history.went_back_offset is None
    assert reasons >= {Why.CREATED, Why.ELECTION, Why.ISR_SHRINK, Why.ISR_EXPAND}
    assert Why.UNCLEAN_ELECTION not in reasons
    partitions = [
        each for topic in history.image.topics.values() for each in topic.partitions.values()
    ]
    assert len(partitions) == 5000
    assert all(each.leader in each.isr for each in partitions)


# --- what a process takes -------------------------------------------------------------------------

SLEEPS = "import sys; sys.stdin.read()"
STARTS_BY_A_THREAD = f"""
import subprocess, sys, threading
def start():
    with subprocess.Popen([sys.executable, "-c", {SLEEPS!r}], stdin=subprocess.PIPE) as child:
        print(child.pid, flush=True)
        sys.stdin.read()
        child.stdin.close()
thread = threading.Thread(target=start)
thread.start()
thread.join()
"""


def test_what_another_thread_has_started_is_of_the_family() -> None:
    """As a JVM starts Spark's Python workers: their memory had been told as none."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_BY_A_THREAD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        found = family_pss_mib(os.getpid())
        parent.stdin.close()
    assert {os.getpid(), parent.pid, child} <= found.keys()
    assert found[child] > 1
    assert parent.returncode == 0


# --- curves ---------------------------------------------------------------------------------------


def test_the_power_of_a_growth() -> None:
    sizes = [100, 1000, 10_000]
    for power in (0, 0.5, 1, 2):
        assert exponent(sizes, [3 * size**power for size in sizes]) == pytest.approx(power)


def test_tables_of_a_page_are_read_by_their_heads() -> None:
    page = "a\n\n| n | took |\n| --- | ---: |\n| 1,000 (x) | 2: 1.5 s, 30 MiB |\n\n| k |\n|---|\n"
    first, second = tables_of(page)
    assert second == []
    (row,) = first
    assert number(row["n"]) == 1000
    assert (number(row["took"], "s"), number(row["took"], "MiB")) == (1.5, 30)
    with pytest.raises(ValueError, match="no number GiB"):
        number(row["took"], "GiB")
    with pytest.raises(ValueError, match="no table begins with"):
        curves_of(page)


def test_the_curves_are_those_of_the_tables() -> None:
    """`python -m bench.curves` draws the pictures, and prints the powers of the table."""
    curves = curves_of(PAGE.read_text())
    page = (PICTURES / "performance.md").read_text()
    assert len(curves) == 3
    for curve in curves:
        assert len(curve.sizes) >= 3
        assert curve.sizes == sorted(curve.sizes)
        assert (PICTURES / f"{curve.shape.name}.svg").read_text() == picture(curve)
        assert f"]({curve.shape.name}.svg)" in page
        powers = [exponent(curve.sizes, each) for each in (curve.seconds, curve.mib)]
        (row,) = [each for each in page.splitlines() if f"]({curve.shape.name}.svg)" in each]
        assert row.endswith(f" | {powers[0]:.2f} | {powers[1]:.2f} |")
