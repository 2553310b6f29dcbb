"""Measure `eoctl report` beside `eoctl check` of the same, in one run; and its page in Chromium.

    python -m bench.report [--mib 1024] [--runs 3] [--partitions 1000] [--transactions 1000000]

Both read with one process, a partition of 1 KiB batches, and a log dir of many partitions of 10 MiB
that are links to one file. The page of very many transactions, a tenth of them aborted, is
opened from its file: the time to its first paint, and of steps of zooming. Partitions that have
transactions of the same producers, each with an epoch of its own, are held against each other.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np
from crc32c import crc32c

from bench.make_log import HEADER, HEADER_DTYPE, MIB, make_segment
from bench.measure import alternate, busy_lines, peak_memory_mib, read_ahead
from bench.rebuild import EOCTL

if TYPE_CHECKING:
    from collections.abc import Iterator

RATIO_BAR = 1.3
MEMORY_BAR_MIB = 200
PAGE_BAR_MIB = 5
PAINT_BAR_MS, ZOOM_BAR_MS = 1500, 50
PARTITION_MIB = 10
ABORTED_EVERY = 10
FINDINGS = 1
SHARED_PARTITIONS = 32
ZOOM_STEPS, LOADS = 40, 5
IN_PAGE = """async (count) => {
  const painted = () => new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = done;
    channel.port2.postMessage(0);
  }));
  // Here, and not by Playwright: what that evaluates at each look the page's policy forbids.
  while (document.documentElement.dataset.ready !== "yes") await painted();
  const ready = [performance.now()], report = eoctlReport, steps = [];
  const first = () => performance.getEntriesByName("first-contentful-paint")[0];
  while (!first()) await painted();
  const paint = [first().startTime];
  for (let step = 0; step < count; step++) {
    const width = 1 / (1 + step), start = performance.now();
    report.zoomTo(0.5 - width / 2, 0.5 + width / 2);
    await painted();
    steps.push(performance.now() - start);
  }
  const marks = [report.lanes.reduce((sum, lane) => sum + lane.marks.count, 0)];
  return { paint, ready, steps, marks };
}"""
_MARKER_KEY, _MARKER_VALUE = Struct(">hh"), Struct(">hi")


def report_command(path: Path, to: Path) -> list[str]:
    """Write the page anew."""
    options = ["--now", "wall", "--jobs", "1", "--to", str(to), "--force"]
    return [*EOCTL, "report", *options, str(path)]


def check_command(path: Path) -> list[str]:
    """Check the same."""
    return [*EOCTL, "check", "--now", "wall", "--jobs", "1", str(path)]


def compared(name: str, path: Path, to: Path, runs: int) -> str:
    """A row of the table."""
    ours, theirs = alternate(
        [report_command(path, to), check_command(path)], runs, statuses=(0, FINDINGS)
    )
    cells = [
        name,
        f"{ours.best_s:.2f} ({ours.median_s:.2f})",
        f"{theirs.best_s:.2f} ({theirs.median_s:.2f})",
        (
            f"{ours.best_s / theirs.best_s:.2f}, of processor time"
            f" {ours.best_cpu_s / theirs.best_cpu_s:.2f}"
        ),
        f"{RATIO_BAR}",
        f"{peak_memory_mib(report_command(path, to)):.0f} (bar {MEMORY_BAR_MIB})",
        f"{to.stat().st_size / MIB:.2f} (bar {PAGE_BAR_MIB})",
    ]
    return f"| {' | '.join(cells)} |"


# --- logs -----------------------------------------------------------------------------------------


def make_many(log_dir: Path, count: int) -> None:
    """Partitions of 10 MiB that share their files."""
    first = log_dir / "many-0"
    make_segment(first, total_bytes=PARTITION_MIB * MIB)
    for number in range(1, count):
        directory = log_dir / f"many-{number}"
        directory.mkdir()
        for file in first.iterdir():
            os.link(file, directory / file.name)


def make_shared(log_dir: Path, count: int) -> None:
    """Partitions that share their files: producers that have written to all of them alike."""
    first = log_dir / "txn-0"
    make_transactions(first, count, has_epochs=True)
    for number in range(1, SHARED_PARTITIONS):
        (log_dir / f"txn-{number}").mkdir()
        for file in first.iterdir():
            os.link(file, log_dir / f"txn-{number}" / file.name)


def make_transactions(directory: Path, count: int, *, has_epochs: bool = False) -> None:
    """Transactions of a batch and a marker each, in turn of eight producers.

    `has_epochs`: each has one of its own, as with transactions of version 2.
    """
    directory.mkdir(parents=True)
    data = _batch(0x10, b"\x00\x00\x00\x01\x06abc\x00")
    markers = [_batch(0x30, b"\x00\x00\x00\x08" + _MARKER_KEY.pack(0, kind) + b"\x0c"
                      + _MARKER_VALUE.pack(0, 0) + b"\x00") for kind in (0, 1)]  # fmt: skip
    with (directory / f"{0:020d}.log").open("wb") as log:
        for chunk in _chunks(data, markers, count, has_epochs=has_epochs):
            log.write(chunk)


def _batch(attributes: int, record: bytes) -> bytes:
    body = bytes([len(record) << 1]) + record
    return HEADER.pack(0, 49 + len(body), 0, 2, 0, attributes, 0, 0, 0, 0, 0, 0, 1) + body


def _chunks(data: bytes, markers: list[bytes], count: int, *, has_epochs: bool) -> Iterator[bytes]:
    """Some thousand transactions at a time, the headers filled by columns."""
    step, done = 8000, 0
    pieces = [
        piece for number in range(step) for piece in (data, markers[number % ABORTED_EVERY != 0])
    ]
    sizes = np.array([len(each) for each in pieces])
    pos = np.cumsum(sizes) - sizes
    block = bytearray(b"".join(pieces))
    view = memoryview(block)
    headers = np.ndarray((len(block) - 60,), HEADER_DTYPE, block, 0, (1,))
    number = np.repeat(np.arange(step), 2)
    is_data = np.arange(2 * step) % 2 == 0
    while done < count:
        rows = headers[pos]
        rows["base_offset"] = 2 * done + np.arange(2 * step)
        rows["base_ts"] = rows["max_ts"] = 1_700_000_000_000 + 10 * (done + number)
        rows["pid"] = 1000 + number % 8
        rows["base_sequence"] = np.where(is_data, (done + number) // 8, -1)
        if has_epochs:
            rows["epoch"] = (done + number) // 8 + ~is_data
            rows["base_sequence"] = np.where(is_data, 0, -1)
        headers[pos] = rows
        ends = (pos + sizes).tolist()
        rows["crc"] = [
            crc32c(view[start + 21 : end]) for start, end in zip(pos.tolist(), ends, strict=True)
        ]
        headers[pos] = rows
        wanted = min(count - done, step)
        yield bytes(block[: ends[2 * wanted - 1]])
        done += wanted


# --- the page -------------------------------------------------------------------------------------


def in_chromium(page: Path, loads: int) -> dict[str, list[float]]:
    """First paint, all drawn, and steps of zooming of each load, in milliseconds.

    A step lasts from the call until its frame is painted: that has to wait for the screen's next
    one, too (16 ms of 60 Hz). The first steps after a load count like all others. What other work
    on the machine adds to a step is in one load, and not in each.
    """
    from playwright.sync_api import sync_playwright

    found: dict[str, list[float]] = {"paint": [], "ready": [], "steps": [], "marks": []}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for _ in range(loads):
            opened = browser.new_page(viewport={"width": 1440, "height": 1000})
            opened.goto(page.as_uri())
            timed: dict[str, Any] = opened.evaluate(IN_PAGE, ZOOM_STEPS)
            for name, values in found.items():
                values.extend(timed[name])
            opened.close()
        browser.close()
    return found


def chromium_line(name: str, page: Path, loads: int) -> str:
    """A row of the table of pages."""
    found = in_chromium(page, loads)
    steps = sorted(found["steps"])
    best = [min(found["steps"][each::ZOOM_STEPS]) for each in range(ZOOM_STEPS)]
    cells = [
        name,
        f"{found['marks'][0]:,.0f}",
        f"{max(found['paint']):.0f} (bar {PAINT_BAR_MS:,})",
        f"{max(found['ready']):.0f}",
        f"{steps[len(steps) // 2]:.0f}",
        f"{max(best):.0f} (bar {ZOOM_BAR_MS})",
        f"{steps[-1]:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def report_lines(chosen: argparse.Namespace) -> list[str]:
    """Markdown of the whole measurement."""
    heads = ["report", "eoctl report, s", "eoctl check, s", "ratio", "bar", "MiB", "page, MiB"]
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |"]
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        root = Path(temporary)
        to = root / "report.html"
        log = make_segment(root / "one" / "one-0", total_bytes=chosen.mib * MIB)
        read_ahead(log)
        name = f"{chosen.mib} MiB of 1 KiB batches"
        lines.append(compared(name, log.parent, to, chosen.runs))
        print(lines[-1], flush=True)
        pages = [chromium_line(name, to, LOADS)]
        shutil.rmtree(root / "one")
        make_many(root / "many", chosen.partitions)
        name = f"{chosen.partitions:,} partitions of {PARTITION_MIB} MiB"
        lines.append(compared(name, root / "many", to, chosen.runs))
        print(lines[-1], flush=True)
        pages.append(chromium_line(name, to, LOADS))
        shutil.rmtree(root / "many")
        make_transactions(root / "txn" / "txn-0", chosen.transactions)
        name = f"{chosen.transactions:,} transactions, a tenth aborted"
        lines.append(compared(name, root / "txn" / "txn-0", to, chosen.runs))
        print(lines[-1], flush=True)
        pages.append(chromium_line(name, to, LOADS))
        shutil.rmtree(root / "txn")
        make_shared(root / "shared", chosen.transactions // SHARED_PARTITIONS)
        name = f"{SHARED_PARTITIONS} partitions of the same {name}"
        lines.append(compared(name, root / "shared", to, chosen.runs))
        print(lines[-1], flush=True)
    heads = ["page", "marks", "first paint, ms", "drawn, ms", "step, ms"]
    heads += [f"slowest step, best of {LOADS}, ms", "slowest of all, ms"]
    lines += ["", f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |", *pages]
    return lines + busy_lines()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024, help="size of the one partition")
    parser.add_argument("--runs", type=int, default=3, help="of each program")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--transactions", type=int, default=1_000_000)
    print("\n".join(report_lines(parser.parse_args())))


if __name__ == "__main__":
    main()
