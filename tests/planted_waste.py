"""A log dir with everything that `eoctl reclaim` removes without a loss, for its tests."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.kafka.broker import CLEAN_MARKER, copy_log_dir

if TYPE_CHECKING:
    from pathlib import Path

HEX = "0123456789abcdef0123456789abcdef"
LOG = f"{0:020d}.log"
ZEROS_BYTES = 64 << 10


def plant(clean: Path, log_dir: Path, *, is_clean: bool) -> Path:
    """Copy a cleanly stopped log dir, and put in what dead brokers leave. Zeros after a crash."""
    copy_log_dir(clean, log_dir)
    (log_dir / "plain-0" / f"{LOG}.deleted").write_bytes(b"x" * 9000)
    (log_dir / "plain-0" / "leader-epoch-checkpoint.tmp").write_bytes(b"0\n1\n")
    (log_dir / "plain-1" / f"{9:020d}.index").write_bytes(bytes(8))
    (log_dir / "plain-1" / f"{9:020d}.timeindex").write_bytes(bytes(12))
    # A split of the last segment that died: both parts would be swapped in without the `.cleaned`.
    split = log_dir / "compacted-0"
    last = max(split.glob("*.log"))
    number = int(last.stem)
    for name in (f"{number:020d}.log.swap", f"{number + 1:020d}.log.swap"):
        shutil.copy2(last, split / name)
    shutil.copy2(last, split / f"{number:020d}.log.cleaned")
    (split / f"{number:020d}.index.cleaned").write_bytes(b"")
    shutil.copytree(log_dir / "ctp-out-0", log_dir / f"gone-0.{HEX}-delete")
    (log_dir / "log-start-offset-checkpoint").write_text("0\n2\nrolled 0 35\ntrimmed 0 100\n")
    snapshot = next((log_dir / "trimmed-0").glob("*.snapshot"))
    shutil.copy2(snapshot, log_dir / "trimmed-0" / f"{50:020d}.snapshot")
    (log_dir / "recovery-point-offset-checkpoint.tmp").write_bytes(b"0\n")
    (log_dir / "remote-log-index-cache").mkdir()
    (log_dir / "remote-log-index-cache" / "0_abc.index").write_bytes(b"x" * 5000)
    if not is_clean:
        (log_dir / CLEAN_MARKER).unlink()
        for name in (LOG, f"{0:020d}.index", f"{0:020d}.timeindex"):
            with (log_dir / "idem-none-0" / name).open("ab") as file:
                file.write(bytes(ZEROS_BYTES // 12 * 12))
    return log_dir
