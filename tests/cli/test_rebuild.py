"""`eoctl rebuild`: what it shows, what it writes, what it refuses."""

from __future__ import annotations

import errno
import fcntl
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from storage.file_names import FileKind, classify
from storage.files.fsio import FileSystem
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable

DERIVED = {FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX, FileKind.SNAPSHOT}


@pytest.fixture
def crash(golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A writable copy of a crashed log dir, mtimes kept, as the working directory."""
    target = tmp_path / "crash"
    shutil.copytree(golden("kafka-4.3.1") / "crash", target)
    for path in [target, *target.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    monkeypatch.chdir(target)
    return target


@pytest.fixture
def clean(golden: Callable[[str], Path]) -> Path:
    return golden("kafka-4.3.1") / "clean"


def rows_of(outcome: Any) -> dict[tuple[str, str], dict[str, Any]]:
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    return {(row["partition"], row["file"]): row for row in rows}


def now_of(target: Path) -> int:
    return (target / "recovery-point-offset-checkpoint").stat().st_mtime_ns // 1_000_000


def tree(root: Path) -> dict[str, tuple[bytes, int, int]]:
    """Everything below a directory: content, mode, mtime."""
    return {
        str(path.relative_to(root)): (
            path.read_bytes(),
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in root.rglob("*")
        if path.is_file()
    }


def test_a_look_changes_nothing(crash: Path, eoctl: Callable) -> None:
    """Status 1 where something differs, the interval from the cluster's own metadata."""
    before = tree(crash)
    outcome = eoctl("rebuild", "txn-0", "rolled-0", "--output", "jsonl")
    assert outcome.status == 1
    rows = rows_of(outcome)
    assert rows["txn-0", "00000000000000000000.index"]["state"] == "equal"
    assert rows["txn-0", "00000000000000000000.index"]["reason"] == "untrimmed"
    assert rows["txn-0", "00000000000000000329.snapshot"]["state"] == "missing"
    assert not any(row["written"] for row in rows.values())
    assert tree(crash) == before


def test_what_the_index_interval_rests_on_is_told(crash: Path, eoctl: Callable) -> None:
    """Without metadata, or with damaged ones, unless the call itself says it."""
    metadata = crash / "__cluster_metadata-0"
    log = metadata / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    damaged = eoctl("rebuild", "txn-0").errors
    assert "txn-0: the cluster metadata cannot be read in full, so index.interval.bytes" in damaged
    shutil.rmtree(metadata)
    alone = eoctl("rebuild", "txn-0").errors
    assert "txn-0: no cluster metadata: index.interval.bytes taken as 4096" in alone
    said = eoctl("rebuild", "txn-0", "--index-interval-bytes", 4096)
    assert said.status == 1
    assert "index.interval.bytes" not in said.errors


def test_apply_gives_what_the_broker_made(crash: Path, clean: Path, eoctl: Callable) -> None:
    """All derived files removed, then written again: those of the broker's own recovery."""
    removed = 0
    for path in crash.rglob("*"):
        if classify(path.name).kind in DERIVED and "__cluster" not in str(path):
            path.unlink()
            removed += 1
    assert removed > 50
    partitions = [
        path.name for path in crash.iterdir() if path.is_dir() and "__cluster" not in path.name
    ]
    outcome = eoctl("rebuild", "--apply", "--now", now_of(clean), *sorted(partitions))
    assert outcome.status == 0, outcome.errors
    counts = {".index": 0, ".timeindex": 0, ".txnindex": 0, ".snapshot": 0}
    for name in partitions:
        for path in (clean / name).iterdir():
            if path.suffix in counts:
                assert (crash / name / path.name).read_bytes() == path.read_bytes(), path
                counts[path.suffix] += 1
    assert counts == {".index": 26, ".timeindex": 26, ".txnindex": 5, ".snapshot": 24}
    again = eoctl(
        "rebuild", "--apply", "--now", now_of(clean), *sorted(partitions), "--output", "jsonl"
    )
    assert again.status == 0
    assert not any(row["written"] for row in rows_of(again).values())


def test_what_a_clean_start_would_take_at_its_word(
    clean: Path, tmp_path: Path, eoctl: Callable
) -> None:
    """Zeros behind the entries of an index (IDX-5), a leader epoch from below 0 on (EPC-1)."""
    log_dir = copy_log_dir(clean, tmp_path / "copy")
    partition = log_dir / "plain-0"
    index, epochs = partition / f"{0:020d}.index", partition / "leader-epoch-checkpoint"
    index.write_bytes(index.read_bytes() + bytes(800))
    epochs.write_text("0\n1\n0 -5\n")
    outcome = eoctl("rebuild", partition, "--apply", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    written = {name for (_, name), row in rows_of(outcome).items() if row["written"]}
    assert written == {index.name, epochs.name}
    assert index.read_bytes() == (clean / "plain-0" / index.name).read_bytes()
    assert epochs.read_text() == "0\n1\n0 0\n"


def test_apply_takes_the_marker_away_first_and_only_when_it_writes(
    golden: Callable[[str], Path], crash: Path, tmp_path: Path, eoctl: Callable
) -> None:
    """Owner and mode are the directory's; a directory that needs nothing keeps its marker."""
    target = tmp_path / "clean"
    shutil.copytree(golden("kafka-4.3.1") / "clean", target)
    for path in [target, *target.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    assert eoctl("rebuild", "--apply", target / "txn-0").status == 0
    assert (target / ".kafka_cleanshutdown").exists()
    index = target / "txn-0" / "00000000000000000000.index"
    wanted = index.read_bytes()
    index.write_bytes(wanted[:-8])
    (target / "txn-0").chmod(0o750)
    outcome = eoctl("rebuild", "--apply", target / "txn-0", "--output", "jsonl")
    assert outcome.status == 0
    written = [file for (_, file), row in rows_of(outcome).items() if row["written"]]
    assert written == [index.name]
    assert index.read_bytes() == wanted
    assert index.stat().st_mode & 0o777 == 0o640
    assert not (target / ".kafka_cleanshutdown").exists()


def test_to_writes_elsewhere(crash: Path, clean: Path, tmp_path: Path, eoctl: Callable) -> None:
    """Every rebuilt file, nothing in the log dir."""
    before = tree(crash)
    outcome = eoctl("rebuild", "txn-0", "--to", tmp_path / "out", "--now", now_of(clean))
    assert outcome.status == 1  # the directory itself still differs
    assert tree(crash) == before
    for name in ("00000000000000000000.timeindex", "00000000000000000329.snapshot"):
        assert (tmp_path / "out" / "txn-0" / name).read_bytes() == (
            clean / "txn-0" / name
        ).read_bytes()


def test_to_never_writes_into_a_log_dir(crash: Path, eoctl: Callable) -> None:
    """It takes no lock and leaves the marker: only outside is it harmless."""
    before = tree(crash)
    for place in (".", crash, "txn-0", "new"):
        assert eoctl("rebuild", "txn-0", "--to", place).status == 4
    snapshot = "txn-0/00000000000000000329.snapshot"
    for place in (snapshot, "recovered.snapshot"):
        assert eoctl("recover-state", "txn-0", "--to", place).status == 4
    assert tree(crash) == before


def test_preallocate_extends_the_active_indexes(
    crash: Path, tmp_path: Path, eoctl: Callable
) -> None:
    """To the full size, a multiple of the entry; closed segments stay trimmed."""
    for path in (crash / "rolled-0").glob("*.*index"):
        path.unlink()
    assert eoctl(
        "rebuild", "rolled-0", "--to", tmp_path / "out", "--preallocate", "--index-max-bytes", 16390
    ).status
    sizes = {
        path.name: path.stat().st_size for path in (tmp_path / "out" / "rolled-0").glob("*.*index")
    }
    last = max(name.partition(".")[0] for name in sizes)
    assert sizes[f"{last}.index"] == 16384
    assert sizes[f"{last}.timeindex"] == 16380
    assert max(size for name, size in sizes.items() if not name.startswith(last)) < 16000


def test_an_index_that_does_not_fit_is_reported(crash: Path, eoctl: Callable) -> None:
    """A broker with that setting dies when it recovers the segment."""
    outcome = eoctl("rebuild", "txn-0", "--index-max-bytes", 100)
    assert "does not start" in outcome.errors or "do not fit" in outcome.errors


HOLDER = """
import fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("command", ["rebuild", "recover-state"])
def test_a_held_lock_refuses(command: str, crash: Path, eoctl: Callable) -> None:
    """Status 4, the holder's process id, nothing touched."""
    assert fcntl.LOCK_EX
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(crash / ".lock")], stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        before = tree(crash)
        outcome = eoctl(command, "--apply", "--now", "wall", "txn-0")
        assert outcome.status == 4
        assert str(holder.pid) in outcome.errors
        assert tree(crash) == before
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_a_damaged_log_is_not_papered_over(crash: Path, eoctl: Callable) -> None:
    """Apply refuses; the look tells where recovery would cut."""
    path = crash / "txn-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    before = tree(crash)
    inspect = eoctl("rebuild", "txn-0")
    assert inspect.status == 1
    assert "recovery would truncate" in inspect.errors
    refused = eoctl("rebuild", "--apply", "txn-0")
    assert refused.status == 4
    after = tree(crash)
    assert {name: each for name, each in after.items() if name != ".lock"} == {
        name: each for name, each in before.items() if name != ".lock"
    }


def test_the_metadata_log_is_never_changed(crash: Path, eoctl: Callable) -> None:
    """Shown like any other, refused with --apply."""
    assert eoctl("rebuild", "__cluster_metadata-0").status in (0, 1)
    assert eoctl("rebuild", "--apply", "__cluster_metadata-0").status == 4


def test_a_whole_log_dir_is_applied_without_its_metadata_log(crash: Path, eoctl: Callable) -> None:
    """Passed over with a note; all the others are written."""
    outcome = eoctl("rebuild", "--apply", crash)
    assert outcome.status == 0
    assert "__cluster_metadata-0: skipped, it is never changed" in outcome.errors
    assert eoctl("rebuild", "--apply", "txn-0").status == 0
    assert not list((crash / "__cluster_metadata-0").glob("*.eoctl-tmp"))


def test_what_cannot_be_replaced_refuses_before_the_marker_goes(
    crash: Path, eoctl: Callable
) -> None:
    """A directory or a link in the place of a derived file."""
    marker = crash / ".kafka_cleanshutdown"
    marker.write_text("{}")
    index = crash / "txn-0" / "00000000000000000000.index"
    index.unlink()
    index.mkdir()
    assert eoctl("rebuild", "--apply", "txn-0").status == 4
    index.rmdir()
    index.symlink_to("00000000000000000000.timeindex")
    assert eoctl("rebuild", "--apply", "txn-0").status == 4
    assert marker.exists()


def test_a_disk_that_fills_midway_is_told_with_what_was_written_before(
    crash: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition before it stays rebuilt; that with the error is unfinished; both go back."""
    for name in ("txn-0", "txn-1"):
        (crash / name / "00000000000000000000.index").write_bytes(b"")
    before = tree(crash)
    rename = FileSystem.rename

    def full_at_one(fs: FileSystem, old: str, new: str) -> None:
        if str(new).endswith("txn-1/00000000000000000000.index"):
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(fs, old, new)

    with monkeypatch.context() as patched:
        patched.setattr(FileSystem, "rename", full_at_one)
        outcome = eoctl("rebuild", "--apply", "txn-0", "txn-1")
    assert outcome.status == 3
    assert "txn-1/00000000000000000000.index: No space left on device" in outcome.errors
    assert "the change is unfinished" in outcome.errors
    assert "partitions rebuilt before it, which stay: 1" in outcome.errors
    changed = {name for name, found in tree(crash).items() if before.get(name) != found}
    assert "txn-0/00000000000000000000.timeindex" in changed
    assert "txn-1/00000000000000000000.index" not in changed
    journals = sorted(Path(f"{crash}.eoctl").iterdir())
    assert len(journals) == 2
    assert f"eoctl undo --with-later {journals[0]} undoes all of it" in outcome.errors
    assert eoctl("undo", "--with-later", journals[0]).status == 0
    after = {name: found for name, found in tree(crash).items() if name != ".lock"}
    assert after == {name: found for name, found in before.items() if name != ".lock"}


def test_without_a_log_nothing_is_derived(crash: Path, eoctl: Callable) -> None:
    """Not even in a directory that only looks like a partition."""
    (crash / "unit-1").mkdir()
    outcome = eoctl("rebuild", "--apply", "unit-1", "--output", "jsonl")
    assert outcome.status == 0
    assert not outcome.stdout
    assert not list((crash / "unit-1").iterdir())


def test_a_log_that_cannot_be_read_is_no_missing_one(crash: Path, eoctl: Callable) -> None:
    """State that lacks its producers is shown with status 5, and never written in place."""
    path = crash / "rolled-0" / "00000000000000000025.log"
    path.unlink()
    path.symlink_to("nowhere")
    before = tree(crash)
    assert eoctl("rebuild", "rolled-0").status == 5
    refused = eoctl("rebuild", "--apply", "rolled-0")
    assert refused.status == 4
    assert "leads nowhere" in refused.errors
    assert {name for name in tree(crash) if name != ".lock"} == before.keys()


def test_wrong_calls(crash: Path, eoctl: Callable) -> None:
    """Both places at once, no partition, a clock that is none."""
    assert eoctl("rebuild", "txn-0", "--apply", "--to", "x").status == 2
    assert eoctl("rebuild", "nowhere").status == 3
    assert eoctl("rebuild", "txn-0", "--now", "noon").status == 2
    assert eoctl("rebuild", "txn-0", "--now", str(2**63)).status == 2


def test_one_bad_partition_does_not_keep_the_others_back(crash: Path, eoctl: Callable) -> None:
    """A producer without a transaction inside its own: a broker cannot load it (PROD-6)."""
    path = crash / "txn-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    # The second batch of producer 21 loses its transactional bit; the checksum is made right.
    pos, seen = 0, 0
    while pos < len(data):
        size = 12 + int.from_bytes(data[pos + 8 : pos + 12], "big")
        if int.from_bytes(data[pos + 43 : pos + 51], "big") == 21:
            seen += 1
            if seen == 2:
                break
        pos += size
    from crc32c import crc32c

    data[pos + 22] &= ~0x10 & 0xFF
    data[pos + 17 : pos + 21] = crc32c(bytes(data[pos + 21 : pos + size])).to_bytes(4, "big")
    path.write_bytes(data)
    outcome = eoctl("rebuild", "txn-0", "txn-1", "--output", "jsonl")
    assert outcome.status == 5
    assert "INVALID_TXN_STATE" in outcome.errors
    assert {partition for partition, _ in rows_of(outcome)} == {"txn-1"}


@pytest.mark.parametrize("command", ["rebuild", "recover-state"])
def test_a_saved_plan_is_stale_when_the_log_has_changed(
    crash: Path, eoctl: Callable, tmp_path: Path, command: str
) -> None:
    """What was derived from another log is not written, even if the derived file is the same."""
    (crash / "txn-0" / "00000000000000000000.timeindex").write_bytes(b"")
    assert eoctl(command, "txn-0", "--save-plan", tmp_path / "plan").status in (0, 1)
    log = crash / "txn-0" / "00000000000000000000.log"
    data = log.read_bytes()
    log.write_bytes(data[:-100])
    before = tree(crash)
    outcome = eoctl("apply", tmp_path / "plan")
    assert outcome.status == 4
    assert (
        "00000000000000000000.log: is not what it was when the plan was derived" in outcome.errors
    )
    assert {name: each for name, each in tree(crash).items() if name != ".lock"} == before


def test_what_the_next_start_recovers_is_told(crash: Path, eoctl: Callable) -> None:
    (crash / "txn-0" / "00000000000000000000.index").write_bytes(b"")
    outcome = eoctl("rebuild", "txn-0", "--apply")
    assert outcome.status == 0
    assert re.search(r"[Tt]he next start of the broker recovers \d+ partitions", outcome.errors)


def test_what_cannot_be_read_is_named_once(crash: Path, eoctl: Callable) -> None:
    index = crash / "txn-0" / "00000000000000000000.index"
    index.unlink()
    index.mkdir()
    outcome = eoctl("rebuild", "txn-0")
    assert "txn-0/00000000000000000000.index: Is a directory" in outcome.errors.splitlines()
