"""kafka-dump-log, Kafka's own words about its files.

One start of the JVM takes 0.2 s, so the calls take many files; `dump_each` takes the output apart
again, so that each file has the text and the status that it would have had in a call of its own.
"""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from .jars import java_command, quick_start

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

TIMEOUT_S = 120
# One call must stay below the limit of a command line's length.
FILES_PER_CALL = 400

# Of release 4.3.1; older ones word the third differently and name no path in it.
_PROBLEM_HEADING = re.compile(
    rb"(?:Mismatches in :|Found timestamp mismatch in :|Found out of order timestamp in :"
    rb"|The following indexed offsets are not found in :|Non-consecutive offsets in )(/.*)"
)

# What the internal topics' logs are printed with; every other log as text.
DECODERS = {
    "__cluster_metadata": "--cluster-metadata-decoder",
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__share_group_state": "--share-group-state-decoder",
}
DUMPED_SUFFIXES = {".log", ".checkpoint", ".index", ".timeindex", ".snapshot", ".txnindex"}


class DumpResult(NamedTuple):
    """What kafka-dump-log printed; bytes, since records hold any bytes."""

    stdout: bytes
    stderr: bytes
    returncode: int

    @property
    def text(self) -> bytes:
        """Both streams: the problems follow what was printed."""
        return self.stdout + self.stderr


def dump_log(files: Iterable[Path | str], *options: str) -> DumpResult:
    """kafka-dump-log over `files`, in this order, in one JVM."""
    names = [str(file) for file in files]
    if any("," in name for name in names):
        raise ValueError("kafka-dump-log separates files with commas: a name must not have one")
    done = subprocess.run(
        java_command(
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *quick_start(),
            # Whatever the locale; which of the two counts depends on Java's release.
            "-Dfile.encoding=UTF-8",
            "-Dstdout.encoding=UTF-8",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "org.apache.kafka.tools.DumpLogSegments",
            *options,
            "--files",
            ",".join(names),
        ),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=TIMEOUT_S,
    )
    return DumpResult(done.stdout, done.stderr, done.returncode)


def options_for(file: Path) -> tuple[str, ...]:
    """The options that print all of a file: of a log its records, with its topic's decoder."""
    if file.suffix not in {".log", ".checkpoint"}:
        return ()
    topic = file.parent.name.rpartition("-")[0]
    decoder = DECODERS.get(topic)
    if file.suffix == ".checkpoint":
        decoder = DECODERS["__cluster_metadata"]
    return ("--deep-iteration", "--print-data-log", *([decoder] if decoder else []))


def dumpable_files(root: Path) -> list[Path]:
    """Every file below `root` that kafka-dump-log knows by its suffix, sorted."""
    return sorted(
        path for path in root.rglob("*") if path.suffix in DUMPED_SUFFIXES and path.is_file()
    )


def dump_each(
    files: Iterable[Path], options: Sequence[str] | None = None
) -> dict[Path, DumpResult]:
    """kafka-dump-log's output for each of `files` as if it had been called for that file alone.

    `options` None: those of `options_for`. A file on which the tool dies ends its call; the files
    after it are given to the next call.
    """
    groups: dict[tuple[str, ...], list[Path]] = {}
    for file in files:
        chosen = options_for(file) if options is None else tuple(options)
        groups.setdefault(chosen, []).append(file)
    results: dict[Path, DumpResult] = {}
    for chosen, group in groups.items():
        left = group
        while left:
            part = _dump_until_death(left[:FILES_PER_CALL], chosen)
            results.update(part)
            left = left[len(part) :]
    return results


def _dump_until_death(files: list[Path], options: tuple[str, ...]) -> dict[Path, DumpResult]:
    """The results up to and with the file on which the tool died, if it died."""
    whole = dump_log(files, *options)
    texts: list[bytes] = []
    rest = whole.stdout
    for file, after in zip(files, [*files[1:], None], strict=True):
        if not rest.startswith(b"Dumping %s\n" % bytes(file)):
            raise RuntimeError(
                f"kafka-dump-log did not reach {file}: status {whole.returncode},"
                f" {whole.stderr.decode(errors='replace')[-2000:]}"
            )
        end_pos = -1 if after is None else rest.find(b"\nDumping %s\n" % bytes(after))
        if end_pos < 0:
            texts.append(rest)
            break
        texts.append(rest[: end_pos + 1])
        rest = rest[end_pos + 1 :]
    dumped = files[: len(texts)]
    if whole.returncode == 0 and len(dumped) < len(files):
        raise RuntimeError(f"kafka-dump-log left out {files[len(dumped) :]}")
    problems, unclaimed = _problems_by_path(whole.stderr)
    if whole.returncode != 0:
        # The problems are printed at the very end, so the files before the last one lost theirs.
        before = _dump_until_death(dumped[:-1], options) if dumped[1:] else {}
        return {**before, dumped[-1]: DumpResult(texts[-1], unclaimed, whole.returncode)}
    if unclaimed:
        # Some file printed a reason that names no path (a damaged snapshot): ask for each alone.
        return {file: dump_log([file], *options) for file in dumped}
    return {
        file: DumpResult(text, problems.get(bytes(file), b""), 0)
        for file, text in zip(dumped, texts, strict=True)
    }


def _problems_by_path(stderr: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """The reports that follow all files, by the path that their headings name; and the rest."""
    by_path: dict[bytes, bytes] = {}
    unclaimed = b""
    current: bytes | None = None
    for line in stderr.splitlines(keepends=True):
        heading = _PROBLEM_HEADING.fullmatch(line.rstrip(b"\n"))
        if heading:
            current = heading[1]
        elif not line.startswith((b"  ", b"Indexed offset: ")):
            current = None
        if current is None:
            unclaimed += line
        else:
            by_path[current] = by_path.get(current, b"") + line
    return by_path, unclaimed
