"""The order of journals: above all in the place, below none that is later, read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.changes.journals import listing as journal_order
from recovery.changes.journals.journal import (
    JOURNAL_NAME,
    Status,
    encode_journal,
    note_status,
    read_journal,
)
from recovery.changes.journals.listing import later_applied, next_order
from storage.files.fsio import FileSystem
from tests.recovery.changes.journals.test_journal import made

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def put(place: Path, name: str, order: int, log_dir: str = "/d") -> None:
    """An applied plan."""
    (place / name).mkdir()
    journal = made(str(place / name), log_dir)._replace(order=order)
    data = encode_journal(journal)
    (place / name / JOURNAL_NAME).write_bytes(data)
    note_status(FileSystem(), journal._replace(valid_bytes=len(data)), Status.APPLIED)


def test_it_is_the_time_or_above_all_others(tmp_path: Path) -> None:
    assert next_order(str(tmp_path), 100) == 100
    put(tmp_path, "a", 100)
    put(tmp_path, "b", 300, "/other")
    assert next_order(str(tmp_path), 200) == 301
    assert next_order(str(tmp_path), 400) == 400


def test_only_applied_ones_of_the_same_log_dir_are_waited_for(tmp_path: Path) -> None:
    put(tmp_path, "z", 100)
    put(tmp_path, "other", 300, "/other")
    first = read_journal(tmp_path / "z")
    assert later_applied(first) == ""
    put(tmp_path, "a", 200)
    assert later_applied(first) == str(tmp_path / "a")
    assert later_applied(read_journal(tmp_path / "a")) == ""
    note_status(FileSystem(), read_journal(tmp_path / "a"), Status.UNDONE)
    assert later_applied(first) == ""


def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    put(tmp_path, "a", 100)
    (tmp_path / "file").touch()
    (tmp_path / "abandoned").mkdir()
    put(tmp_path, "damaged", 900)
    (tmp_path / "damaged" / JOURNAL_NAME).write_bytes(bytes(100))
    assert next_order(str(tmp_path), 1) == 101


def test_each_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of partitions each gets a journal, in one run."""
    read: list[str] = []

    def counted(path: str) -> object:
        read.append(path)
        return read_journal(path)

    monkeypatch.setattr(journal_order, "read_journal", counted)
    for number in range(9):
        put(tmp_path, f"{number}", next_order(str(tmp_path), 5))
    assert next_order(str(tmp_path), 5) == 14
    assert len(read) == 9
