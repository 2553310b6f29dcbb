"""Measure what grows with a cluster on Spark: planning, summaries, joining, what the driver holds.

    python -m bench.spark_scale [--plan N...] [--sources N...] [--producers N...] [--shapes N]
        [--driver N...]

Processor seconds, and peaks of memory of processes that do one thing each, so that a busy machine
changes little. Partitions are sparse segments with one batch in front, or hard links of such: what
is measured is what each segment costs beside its bytes.

  plan       list and cut N partitions of 100 segments of 1 GiB, and make what Spark is given
  producers  a segment of N producer ids: its summary, and 4 such joined by one task
  sources    plan a query over N partitions of 10 segments that are cut into 4; its cuts proven in
             one process
  shapes     audits on Spark: by partitions, one large one among small ones, of tiny segments
  driver     an audit on Spark of N partitions of 20,000 producer ids each: the driver's memory
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from struct import pack_into
from typing import TYPE_CHECKING, Any

from storage.checksum import load_crc32c
from storage.formats.offset_index import OffsetIndexEntry, encode_entries
from tests.audit_logs import Batch, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from recovery.summaries.partition import JoinedRun

GIB, MIB = 1 << 30, 1 << 20
SEGMENTS = 100
RUNS = 4  # that one task joins here
BROKER = "version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n"
Parts = tuple[tuple[int, int, int], ...]  # partitions, segments of each, bytes of one
PARTITIONS = (100, 1000, 10_000)
SOURCE_PARTITIONS = (100, 1000, 10_000)
INDEXED_SEGMENTS, INDEXED_BATCHES, INDEXED_PARTS = 10, 64, 4
PRODUCERS = (10_000, 100_000, 1_000_000)
DRIVER_PARTITIONS, DRIVER_PRODUCERS = (5, 50, 200), 20_000
SMALL_COUNT = 1000
CORES = 1000  # of the cluster that 100 TB are planned for


def make_partitions(root: Path, count: int, segments: int, segment_bytes: int) -> None:
    """Make partitions of sparse segments: one good batch, and a hole behind it.

    All but the first partition are hard links, which take no place and no time.
    """
    root.mkdir(parents=True)
    (root / "meta.properties").write_text(BROKER)
    first = root / "t-0"
    first.mkdir()
    for number in range(segments):
        path = first / f"{number:020d}.log"
        path.write_bytes(encoded(Batch(), number))
        os.truncate(path, segment_bytes)
    for number in range(1, count):
        other = root / f"t-{number}"
        other.mkdir()
        for each in sorted(first.iterdir()):
            os.link(each, other / each.name)


def in_a_process(name: str, *arguments: object) -> dict[str, Any]:
    """Call a function of this module in a process of its own; its figures, and its peak."""
    words = json.dumps([name, *arguments])
    done = subprocess.run(
        [sys.executable, "-m", "bench.spark_scale", "--job", words],
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def job(words: str) -> None:
    """Be a process of `in_a_process`."""
    name, *arguments = json.loads(words)
    found = JOBS[name](*arguments)
    found["peak_mib"] = peak_mib()
    print(json.dumps(found))


def cpu_s() -> float:
    """Processor seconds of this process so far."""
    return time.process_time()


def plan(path: str, cores_count: int | None) -> dict[str, Any]:
    """List and cut, as the driver of an audit does, and make what Spark is given.

    `cores_count`: of the cluster; None: cut at 128 MiB.
    """
    from eoctl.spark.rows.source_options import splits_of, splits_text
    from recovery.export.plan import split_bytes_for
    from storage.places.list_places import list_places
    from storage.places.splits import plan_places

    found: dict[str, Any] = {}
    begun = cpu_s()
    places = list_places([path]).places
    found["list_s"] = cpu_s() - begun
    total = sum(each.file_bytes for each in places)
    found["tb"] = total / 1e12
    size = split_bytes_for(total, 20 * cores_count) if cores_count else 128 * MIB
    begun = cpu_s()
    splits = plan_places(places, size)
    found["cut_s"], found["pieces"] = cpu_s() - begun, len(splits)
    begun = cpu_s()
    text = splits_text(splits)
    found["text_s"], found["text_mib"] = cpu_s() - begun, len(text) / MIB
    begun = cpu_s()
    splits_of(text)
    found["text_read_s"] = cpu_s() - begun
    return found


def runs_of(path: str) -> Iterator[JoinedRun]:
    """Summarize the segments of a partition, one by one."""
    from recovery.summaries.partition import ReadPiece, join_pieces
    from recovery.summaries.segment import read_split
    from storage.places.list_places import list_places
    from storage.places.splits import plan_places

    for split in plan_places(list_places([path]).places, 1 << 40):
        yield join_pieces([ReadPiece(split, read_split(split))])


def producers(path: str) -> dict[str, Any]:
    """Summarize a segment of many producers, and pack that."""
    from recovery.summaries.codec import pack_run

    begun = cpu_s()
    run = next(runs_of(path))
    found: dict[str, Any] = {"summarize_s": cpu_s() - begun}
    found["packed_mib"] = len(pack_run(run)) / MIB
    return found


def tree(path: str) -> dict[str, Any]:
    """Join the segments of one partition, which have the same producers, as a task does."""
    from recovery.summaries.codec import pack_partition, pack_run, unpack_run
    from recovery.summaries.partition import join_runs, partition_of

    packed = [pack_run(run) for run in runs_of(path)]
    begun = cpu_s()
    joined = join_runs(map(unpack_run, packed))
    whole = pack_partition(partition_of(joined))
    return {"join_s": cpu_s() - begun, "whole_mib": len(whole) / MIB}


def audit(path: str) -> dict[str, Any]:
    """Audit on Spark, with two cores of this machine."""
    from eoctl.spark.audit import summarize_directories
    from eoctl.spark.session import spark_session
    from recovery.summaries.codec import Shelf
    from storage.places.list_places import list_places
    from storage.places.splits import plan_places

    places = list_places([path]).places
    total = sum(each.file_bytes for each in places)
    splits = plan_places(places, GIB)  # as of 100 TB
    with spark_session("local[2]") as session:
        gateway: Any = session.sparkContext._gateway  # noqa: SLF001
        jvm = gateway.proc.pid
        summarize_directories(session, splits[:1], Shelf())  # the start of workers
        before, begun = family_cpu_s(jvm), time.perf_counter()
        found = summarize_directories(session, splits, Shelf())
        wall_s, used_s = time.perf_counter() - begun, family_cpu_s(jvm) - before
        words = Path(f"/proc/{jvm}/status").read_text()
        peak = next(line for line in words.splitlines() if line.startswith("VmHWM"))
    if sum(each.unpacked().summary.counts.batches for each in found.values()) != len(places):
        raise RuntimeError("not all was read")
    return {
        "tb": total / 1e12, "pieces": len(splits), "wall_s": wall_s, "cpu_s": used_s,
        "jvm_mib": int(peak.split()[1]) / 1024,
    }  # fmt: skip


def driver(path: str) -> dict[str, Any]:
    """Audit on Spark as the command does, with what decides its exit status."""
    from eoctl.commands.shared.audit_run import AuditOptions, exit_status, run_audit
    from eoctl.commands.shared.engine import EngineOptions, EngineRun
    from eoctl.options import EngineName
    from recovery.rules.findings import Severity

    options = AuditOptions(EngineOptions(EngineName.SPARK, master="local[2]"))
    with EngineRun(options.engine) as engine:
        engine.session()
        started_mib = peak_mib()
        result = run_audit([path], options, engine)
        exit_status(result, Severity.WARNING)
    ids = sum(1 for _ in result.audit.rows("partitions")) * DRIVER_PRODUCERS
    return {"started_mib": started_mib, "ids": ids}


def peak_mib() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def family_cpu_s(pid: int) -> float:
    """Processor seconds of this process, of another one and of all below it."""
    ticks, known = 0, {pid}
    rows = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = each.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        rows.append((int(each.parent.name), int(words[1]), sum(map(int, words[11:15]))))
    for number, parent, used in sorted(rows):
        if number == pid or parent in known:
            known.add(number)
            ticks += used
    return ticks / os.sysconf("SC_CLK_TCK") + time.process_time()


def make_indexed(root: Path, count: int) -> None:
    """Make partitions of segments of 64 batches, each with an entry of the index; hard links."""
    root.mkdir(parents=True)
    (root / "meta.properties").write_text(BROKER)
    first = root / "t-0"
    first.mkdir()
    for number in range(INDEXED_SEGMENTS):
        base = number * INDEXED_BATCHES * 20
        data = b"".join(encoded(Batch(count=20), base + 20 * n) for n in range(INDEXED_BATCHES))
        size = len(data) // INDEXED_BATCHES
        path = first / f"{base:020d}.log"
        path.write_bytes(data)
        entries = [OffsetIndexEntry(20 * n + 19, size * n) for n in range(1, INDEXED_BATCHES)]
        path.with_suffix(".index").write_bytes(encode_entries(entries))
    for number in range(1, count):
        other = root / f"t-{number}"
        other.mkdir()
        for each in first.iterdir():
            os.link(each, other / each.name)


def sources(path: str, parts_count: int) -> dict[str, Any]:
    """Plan a query over batches, as Spark has it done."""
    from eoctl.spark.datasource import BatchesReader
    from storage.places.list_places import list_places

    begun = cpu_s()
    places = list_places([path]).places
    found: dict[str, Any] = {"list_s": cpu_s() - begun}
    size = -(-places[0].file_bytes // parts_count)
    begun = cpu_s()
    tasks = BatchesReader({"path": path, "split_bytes": str(size)}).partitions()
    found["plan_s"] = cpu_s() - begun - found["list_s"]
    found["pieces"] = sum(len(getattr(task, "splits", ())) for task in tasks)
    return found


def cut_before(path: str, parts_count: int) -> dict[str, Any]:
    """Prove all cuts in one process."""
    from storage.places.list_places import list_places
    from storage.places.splits import split_places

    places = list_places([path]).places
    begun = cpu_s()
    splits = split_places(places, -(-places[0].file_bytes // parts_count))
    return {"cut_s": cpu_s() - begun, "pieces": len(splits)}


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "plan": plan,
    "sources": sources,
    "cut_before": cut_before,
    "producers": producers,
    "tree": tree,
    "audit": audit,
    "driver": driver,
}


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(map(str, each)) + " |" for each in lines]


def plan_lines(work_dir: Path, counts: Sequence[int]) -> list[str]:
    """What planning takes, by partitions."""
    rows = []
    for count in counts:
        root = work_dir / f"plan-{count}"
        make_partitions(root, count, SEGMENTS, GIB)
        # Eight million pieces would take 10 GiB.
        small = in_a_process("plan", str(root), None) if count <= SMALL_COUNT else None
        found = in_a_process("plan", str(root), CORES)
        rows.append(
            [f"{count:,} ({found['tb']:.0f} TB)", f"{found['list_s']:.1f}",
             *("-" if each is None
               else f"{each['pieces']:,}: {each['cut_s']:.1f} s, {each['peak_mib']:.0f} MiB"
               for each in (small, found)),
             f"{found['text_s'] + found['text_read_s']:.1f} s, {found['text_mib']:.1f} MiB"]
        )  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
        shutil.rmtree(root)
    heads = ["partitions of 100 segments of 1 GiB", "listing, CPU s", "splits of 128 MiB, peak",
             "splits for 1,000 cores, peak", "sent to Spark"]  # fmt: skip
    return table(heads, rows)


def source_lines(work_dir: Path, counts: Sequence[int]) -> list[str]:
    """What planning a query of a source takes, by partitions."""
    rows = []
    for count in counts:
        root = work_dir / f"sources-{count}"
        make_indexed(root, count)
        found = in_a_process("sources", str(root), INDEXED_PARTS)
        before = in_a_process("cut_before", str(root), INDEXED_PARTS)
        rows.append(
            [f"{count:,}", f"{found['pieces']:,}", f"{found['list_s']:.1f}",
             f"{found['plan_s']:.1f}", f"{before['cut_s']:.1f}", f"{found['peak_mib']:.0f}"]
        )  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
        shutil.rmtree(root)
    heads = ["partitions of 10 segments", "pieces", "listing, CPU s", "cuts left to tasks, CPU s",
             "cuts proven, CPU s", "peak, MiB"]  # fmt: skip
    return table(heads, rows)


def write_producers(directory: Path, count: int, segments: int) -> None:
    """Write segments in each of which so many producers go on by one batch."""
    directory.mkdir()
    crc32c = load_crc32c()
    batch = bytearray(encoded(Batch(kind="txn"), 0))
    for segment in range(segments):
        with (directory / f"{segment * count:020d}.log").open("wb") as file:
            for number in range(count):
                pack_into(">q", batch, 0, segment * count + number)
                pack_into(">q", batch, 43, number)
                pack_into(">i", batch, 53, segment)
                pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
                file.write(batch)


def producer_lines(work_dir: Path, counts: Sequence[int]) -> list[str]:
    """What summaries take, by producer ids of a partition."""
    rows = []
    for count in counts:
        directory = work_dir / f"p{count}-0"
        write_producers(directory, count, RUNS)
        one = in_a_process("producers", str(directory))
        joined = in_a_process("tree", str(directory))
        rows.append(
            [f"{count:,}", f"{one['summarize_s']:.2f}", f"{one['packed_mib']:.2f}",
             f"{one['packed_mib'] * MIB / count:.0f}", f"{one['peak_mib']:.0f}",
             f"{joined['join_s']:.2f}", f"{joined['whole_mib']:.2f}", f"{joined['peak_mib']:.0f}"]
        )  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
        shutil.rmtree(directory)
    heads = ["producer ids", "summarized, CPU s", "packed, MiB", "bytes an id", "peak, MiB",
             f"joining {RUNS}, CPU s", "then MiB", "peak of that, MiB"]  # fmt: skip
    return table(heads, rows)


def driver_lines(work_dir: Path, counts: Sequence[int]) -> list[str]:
    """What the driver holds, by partitions of many producers."""
    rows = []
    for count in counts:
        root = work_dir / f"driver-{count}"
        root.mkdir()
        (root / "meta.properties").write_text(BROKER)
        write_producers(root / "t-0", DRIVER_PRODUCERS, 1)
        for number in range(1, count):
            shutil.copytree(root / "t-0", root / f"t-{number}", copy_function=os.link)
        found = in_a_process("driver", str(root))
        rows.append(
            [f"{count:,}", f"{found['ids']:,}", f"{found['started_mib']:.0f}",
             f"{found['peak_mib']:.0f}"]
        )  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
        shutil.rmtree(root)
    heads = [f"partitions of {DRIVER_PRODUCERS:,} producer ids", "ids in all",
             "driver's Python at the start, MiB", "at most, MiB"]  # fmt: skip
    return table(heads, rows)


def audit_lines(
    work_dir: Path, shapes: Sequence[tuple[str, Sequence[tuple[int, int, int]]]]
) -> list[str]:
    """What an audit on Spark takes, by shape."""
    rows = []
    for name, parts in shapes:
        root = work_dir / name.replace(" ", "-").replace(",", "")
        for number, (count, segments, size) in enumerate(parts):
            make_partitions(root / f"broker-{number}", count, segments, size)
        found = in_a_process("audit", f"{root}/*")
        segments_count = sum(count * segments for count, segments, _ in parts)
        rows.append(
            [name, f"{found['tb']:.2f}", f"{found['pieces']:,}", f"{found['wall_s']:.1f}",
             f"{found['cpu_s']:.1f}", f"{1000 * found['cpu_s'] / segments_count:.1f}",
             f"{found['peak_mib']:.0f}", f"{found['jvm_mib']:.0f}"]
        )  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
        shutil.rmtree(root)
    heads = ["on Spark, `local[2]`", "TB", "pieces", "s", "CPU s", "CPU ms a segment",
             "driver's Python, MiB", "JVM, MiB"]  # fmt: skip
    return table(heads, rows)


SHAPES: dict[str, Parts] = {
    "1 partition, 100 segments of 1 GiB": ((1, 100, GIB),),
    "10 partitions": ((10, 100, GIB),),
    "one of 1 TB among 200 small ones": ((1, 1024, GIB), (200, 1, MIB)),
    "100 partitions of 100 tiny segments": ((100, 100, 4096),),
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--plan", nargs="*", type=int, default=PARTITIONS, metavar="N")
    parser.add_argument("--sources", nargs="*", type=int, default=SOURCE_PARTITIONS, metavar="N")
    parser.add_argument("--producers", nargs="*", type=int, default=PRODUCERS, metavar="N")
    parser.add_argument("--driver", nargs="*", type=int, default=DRIVER_PARTITIONS, metavar="N")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), metavar="N", help="the first N")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.job:
        job(chosen.job)
        return
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        work_dir = Path(temporary)
        parts = (
            plan_lines(work_dir, chosen.plan) if chosen.plan else [],
            source_lines(work_dir, chosen.sources) if chosen.sources else [],
            producer_lines(work_dir, chosen.producers) if chosen.producers else [],
            driver_lines(work_dir, chosen.driver) if chosen.driver else [],
            audit_lines(work_dir, [*SHAPES.items()][: chosen.shapes]) if chosen.shapes else [],
        )
    print("\n\n".join("\n".join(each) for each in parts if each))


if __name__ == "__main__":
    main()
