"""The journal: what is read is what was written, torn ends are cut, damage is never passed over."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.changes.journals.journal import (
    JOURNAL_NAME,
    BackupKind,
    DirectoryFacts,
    Journal,
    JournalStep,
    Status,
    encode_journal,
    note_status,
    parse_journal,
    read_journal,
)
from recovery.changes.journals.listing import (
    UNFINISHED_NAME,
    clear_unfinished,
    require_finished,
    set_unfinished,
    unfinished_path,
)
from recovery.changes.plans.file_facts import FileFacts
from recovery.changes.plans.plan import Action
from storage.errors import AccessError, CorruptError, RefusedError
from storage.files.fsio import FileSystem

if TYPE_CHECKING:
    from pathlib import Path

FACTS = FileFacts(40, 1_700_000_000_123_456_789, 0o640, 7, 8, 0, 40, "ab" * 32)


def made(directory: str = "/j/x", log_dir: str = "/d") -> Journal:
    path = log_dir + os.fsdecode(b"/\xff-0/00000000000000000000.log")
    steps = (
        JournalStep(Action.TRUNCATE, path, FACTS, 4, 2, "", "00000-x", BackupKind.CUT, "cd" * 32),
        JournalStep(
            Action.REPLACE,
            path.replace(".log", ".index"),
            None,
            3,
            2,
            "ef" * 32,
            "",
            BackupKind.NONE,
            "",
        ),
        JournalStep(
            Action.REMOVE,
            path.replace(".log", ".timeindex"),
            FACTS,
            0,
            2,
            "",
            "00002-y",
            BackupKind.LINK,
            "",
        ),
    )
    journal = Journal(
        path=directory,
        plan_id="x",
        command="truncate",
        arguments={"to": "offset", "value": 4},
        log_dirs=(log_dir,),
        has_backup=True,
        applied_at_ms=1_700_000_000_123,
        order=1_700_000_000_124,
        directories={log_dir: DirectoryFacts(5, {"a": (1, 2), "b": (3, 4)})},
        neighbours={"/d/t-0": "00"},
        steps=steps,
        status=Status.UNFINISHED,
        valid_bytes=0,
    )
    return journal._replace(valid_bytes=len(encode_journal(journal)))


def test_it_is_what_was_written() -> None:
    assert parse_journal(encode_journal(made()), "/j/x") == made()


def written(tmp_path: Path) -> Journal:
    directory = tmp_path / "j" / "x"
    directory.mkdir(parents=True)
    (tmp_path / "d").mkdir()
    journal = made(str(directory), str(tmp_path / "d"))
    (directory / JOURNAL_NAME).write_bytes(encode_journal(journal))
    return journal


def test_each_status_is_added(tmp_path: Path) -> None:
    journal = written(tmp_path)
    for status in (Status.APPLIED, Status.UNDOING, Status.UNDONE):
        journal = note_status(FileSystem(), journal, status)
        assert read_journal(journal.path) == journal
        assert read_journal(f"{journal.path}/{JOURNAL_NAME}") == journal
        assert journal.status is status


def test_a_torn_status_is_none_and_is_cut_off(tmp_path: Path) -> None:
    journal = written(tmp_path)
    applied = note_status(FileSystem(), journal, Status.APPLIED)
    file = tmp_path / "j/x" / JOURNAL_NAME
    whole = file.read_bytes()
    for count in range(journal.valid_bytes, applied.valid_bytes):
        for tail in (b"", bytes(applied.valid_bytes - count)):
            file.write_bytes(whole[:count] + tail)
            found = read_journal(journal.path)
            assert found == journal
            note_status(FileSystem(), found, Status.APPLIED)
            assert file.read_bytes() == whole


def test_a_damaged_step_is_an_error() -> None:
    """Whichever byte it is: a journal that lacks a step would leave it undone."""
    data = encode_journal(made())
    for pos in range(len(data)):
        for bad in (data[:pos] + bytes([data[pos] ^ 1]) + data[pos + 1 :], data[:pos]):
            with pytest.raises(CorruptError) as caught:
                parse_journal(bad, "/j/x")
            assert caught.value.path == f"/j/x/{JOURNAL_NAME}"
            assert 0 <= caught.value.pos <= pos


@given(st.binary(max_size=300))
def test_any_bytes_are_a_journal_or_an_error(data: bytes) -> None:
    with pytest.raises(CorruptError):
        parse_journal(data, "/j/x")


def test_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(AccessError):
        read_journal(tmp_path / "missing" / "x")
    with pytest.raises(AccessError) as caught:
        read_journal(tmp_path)
    assert "eoctl journal list" in caught.value.next_step
    abandoned = tmp_path / "20261121T000000.000Z-test-0001"
    abandoned.mkdir()
    with pytest.raises(AccessError) as caught:
        read_journal(abandoned)
    assert "before anything was changed" in caught.value.next_step


def test_what_is_unfinished_is_noted_and_refused(tmp_path: Path) -> None:
    journal = written(tmp_path)
    log_dir = str(tmp_path / "d")
    assert unfinished_path(log_dir) is None
    require_finished([log_dir])
    set_unfinished(FileSystem(), journal)
    assert unfinished_path(log_dir) == journal.path
    with pytest.raises(RefusedError) as caught:
        require_finished([log_dir])
    assert f"eoctl apply {journal.path}" in caught.value.next_step
    assert f"eoctl undo {journal.path}" in caught.value.next_step
    other = journal._replace(path="/elsewhere")
    clear_unfinished(FileSystem(), other)  # another plan's is left alone
    assert (tmp_path / "d" / UNFINISHED_NAME).exists()
    clear_unfinished(FileSystem(), journal)
    clear_unfinished(FileSystem(), journal)
    assert list((tmp_path / "d").iterdir()) == []
