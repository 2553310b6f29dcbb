"""What a directory held: Kafka's files only, none of ours, none that are no files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.changes.journals.listing import UNFINISHED_NAME
from recovery.changes.plans.file_facts import list_files, listing_digest
from storage.files.fsio import temp_path

if TYPE_CHECKING:
    from pathlib import Path

LOG = f"{0:020d}.log"


def test_kafkas_files_only(tmp_path: Path) -> None:
    for name in (LOG, f"{LOG}.deleted", "partition.metadata", ".kafka_cleanshutdown"):
        (tmp_path / name).write_bytes(b"abc")
    found = {path.name: (3, path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    for name in (UNFINISHED_NAME, temp_path(LOG), temp_path(".kafka_cleanshutdown"), ".lock", "x"):
        (tmp_path / name).touch()
    (tmp_path / f"{1:020d}.log").mkdir()
    (tmp_path / f"{2:020d}.log").symlink_to(LOG)
    assert list_files(str(tmp_path)) == found


def test_a_digest_of_all_of_them(tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(b"abc")
    first = listing_digest(str(tmp_path))
    (tmp_path / "notes").touch()
    assert listing_digest(str(tmp_path)) == first
    (tmp_path / f"{1:020d}.log").touch()
    assert listing_digest(str(tmp_path)) not in ("", first)
    assert listing_digest(str(tmp_path / "gone")) == ""
