"""Targets: a plan and a journal, which may come from another hand or be damaged."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgpack
from crc32c import crc32c

from recovery.changes.journals.journal import (
    BackupKind,
    DirectoryFacts,
    Journal,
    JournalStep,
    Status,
    encode_journal,
    parse_journal,
)
from recovery.changes.plans.file_facts import FileFacts
from recovery.changes.plans.plan import Action, Plan, Step, encode_plan, parse_plan
from storage.errors import RefusedError, UsageError

from .engine import Target

if TYPE_CHECKING:
    from random import Random

    from .corpus import Corpus

PLAN_ID = "20261121T000000.000Z-test-0001"
FACTS = FileFacts(40, 1_700_000_000_123_456_789, 0o640, 7, 8, 0, 40, "ab" * 32)
LOG, INDEX = (f"/d/t-0/{0:020d}.{suffix}" for suffix in ("log", "index"))
WORDS = (b'"../x"', b'"/etc/x"', b"null", b"-1", b"1e999", b"[]", b"{}", b'"\\ud800"', b'"\\u0000"')


def _plan(data: bytes) -> None:
    """What is accepted names files of its own log dirs only, and is the same after a round trip."""
    plan = parse_plan(data, "plan.json")
    assert all(each.path.startswith(tuple(plan.log_dirs)) for each in plan.steps)
    assert parse_plan(encode_plan(plan), "plan.json") == plan


def _plans(corpus: Corpus) -> list[bytes]:
    del corpus
    steps = (
        Step(Action.TRUNCATE, LOG, FACTS, 4, None, 36, "cut"),
        Step(Action.REPLACE, INDEX, None, 3, b"abc", 0, "new"),
    )
    return [encode_plan(Plan(PLAN_ID, "test", {"to": 4}, ("/d",), steps, {"records": None}))]


def _journal(data: bytes) -> None:
    found = parse_journal(data, "/j")
    assert all(each.path.startswith(tuple(found.log_dirs)) for each in found.steps)


def _journals(corpus: Corpus) -> list[bytes]:
    del corpus
    steps = (
        JournalStep(Action.TRUNCATE, LOG, FACTS, 4, 2, "", "00000-x", BackupKind.CUT, "cd" * 32),
        JournalStep(Action.REPLACE, INDEX, None, 3, 2, "ef" * 32, "", BackupKind.NONE, ""),
    )
    directories = {"/d": DirectoryFacts(5, {"a": (1, 2)})}
    return [
        encode_journal(
            Journal(
                "/j", PLAN_ID, "test", {}, ("/d",), True, 1, 2, directories, {"/d/t-0": "00"}, steps,
                Status.UNFINISHED, 0,
            )
        )
    ]  # fmt: skip


def _repair_journal(data: bytearray, _: Random) -> None:
    """Give each entry that can be told apart its right checksum."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(data)
    try:
        while True:
            payload, _ = unpacker.unpack()
            end = unpacker.tell()
            struct.pack_into(">I", data, end - 4, crc32c(payload))
    except (msgpack.OutOfData, msgpack.UnpackException, ValueError, TypeError, struct.error):
        return


TARGETS = [
    Target("plan", _plan, _plans, 1500, words=WORDS, allowed=(UsageError, RefusedError)),
    Target("journal", _journal, _journals, 1500, _repair_journal),
]
