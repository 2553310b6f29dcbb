"""Files that a run keeps for the next one, damaged: read again or refused, never taken for whole.

Each kind is damaged at random, as bytes and (below its checksum) as values, and given to its command.
"""

from __future__ import annotations

import json
import os
import random
import zlib
from typing import TYPE_CHECKING, Any

import msgpack
from crc32c import crc32c

from tests.changes import journal_of
from tests.cli.test_consume_exec import Keeper
from tests.cli.test_produce_session import Run
from tests.copying import Copy
from tests.crash.trees import difference, tree_of
from tests.drawn import IS_ALL
from tests.writing import NEW_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]
    Damage = Callable[[bytes, random.Random], bytes]

CASES = 200 if IS_ALL else 8


def variants(whole: bytes, *damages: Damage) -> Iterator[bytes]:
    """Damaged contents, others in every run."""
    chance = random.Random(f"{os.environ['EOCTL_SEED']} {os.environ.get('PYTEST_CURRENT_TEST')}")
    for _ in range(CASES):
        for damage in damages:
            if (content := damage(whole, chance)) != whole:
                yield content


def _damaged(data: bytes, chance: random.Random) -> bytes:
    """Cut, flip a bit, remove or add some bytes, or write the content anew with a value changed."""
    kind = chance.randrange(5)
    pos = chance.randrange(len(data))
    if kind == 0:
        return data[:pos]
    if kind == 1:
        return data[:pos] + bytes([data[pos] ^ 1 << chance.randrange(8)]) + data[pos + 1 :]
    if kind == 2:
        return data[:pos] + data[pos + chance.randrange(1, 9) :]
    if kind == 3:
        return data[:pos] + chance.randbytes(chance.randrange(1, 9)) + data[pos:]
    return data[:pos] + bytes(chance.randrange(1, 200)) + data[pos + 100 :]


def _changed(value: Any, chance: random.Random) -> Any:
    """Drop, add or replace one value somewhere in it, as a program of other fields would."""
    if isinstance(value, list) and value and chance.random() < 0.9:
        place = chance.randrange(len(value))
        kind = chance.randrange(8)
        if kind == 0:
            return value[:place] + value[place + 1 :]
        if kind == 1:
            return [*value[:place], None, *value[place:]]
        return [*value[:place], _changed(value[place], chance), *value[place + 1 :]]
    if isinstance(value, dict) and value and chance.random() < 0.9:
        name = chance.choice(sorted(value, key=str))
        rest = {each: value[each] for each in value if each != name}
        kind = chance.randrange(8)
        if kind == 0:
            return rest
        if kind == 1:
            return {**value, "another": 1}
        return {**value, name: _changed(value[name], chance)}
    return chance.choice([None, [], {}, "", "x" * 9, b"", 1.5, [[[]]], {"a": 1}])


def _repacked(data: bytes, chance: random.Random) -> bytes:
    """A state of a check or audit, whole, with one value changed below its head."""
    *head, rows = msgpack.unpackb(zlib.decompress(data))
    return zlib.compress(msgpack.packb([*head, _changed(rows, chance)]))


def _session_changed(data: bytes, chance: random.Random) -> bytes:
    """A session with a right checksum, and one value changed."""
    body, _ = msgpack.unpackb(data)
    fields = msgpack.unpackb(body)
    body = msgpack.packb(_changed(fields, chance))
    return bytes(msgpack.packb([body, crc32c(body)]))


def _json_changed(data: bytes, chance: random.Random) -> bytes:
    found = _changed(json.loads(data), chance)
    return json.dumps(found, default=lambda value: value.decode()).encode()


def is_explained(outcome: Outcome, path: Path) -> bool:
    """Refused, with the file and what to do; never by chance."""
    return (
        outcome.status in {1, 2, 3, 4}
        and str(path) in outcome.errors
        and "Traceback" not in outcome.errors
    )


def test_a_state_of_a_check(kafka: Path, tmp_path: Path, eoctl: Eoctl) -> None:
    state = tmp_path / "check.state"
    call = ("check", "--now", "dir", "--output", "jsonl", "--resume", state, kafka / "idem-none-0")
    first = eoctl(*call)
    whole = state.read_bytes()
    for content in variants(whole, _damaged):
        state.write_bytes(content)
        found = eoctl(*call)
        if found.status == 2:
            assert is_explained(found, state)
            assert state.read_bytes() == content
        else:
            assert (found.status, found.text) == (first.status, first.text)
    for content in variants(whole, _repacked):
        state.write_bytes(content)
        assert eoctl(*call).status in {first.status, 1, 5}  # 5: taken, and not read again


def test_a_state_of_an_audit(kafka: Path, tmp_path: Path, eoctl: Eoctl) -> None:
    state = tmp_path / "audit.state"
    call = ("spark-audit", kafka / "idem-none-0", "--output", "jsonl", "--state", state)
    first = eoctl(*call)
    assert first.status == 0
    whole = state.read_bytes()
    for content in variants(whole, _damaged):
        state.write_bytes(content)
        found = eoctl(*call)
        if found.status == 2:
            assert is_explained(found, state)
            assert state.read_bytes() == content
        else:
            assert (found.status, found.text) == (first.status, first.text)
    for content in variants(whole, _repacked):
        state.write_bytes(content)
        found = eoctl(*call)
        assert found.status == first.status, found.errors


def test_a_session_of_a_producer(eoctl: Eoctl, log_dir: Path) -> None:
    run = Run(eoctl, log_dir)
    run.write(b"a", b"b", b"c")
    run.report()
    whole, before = run.session.read_bytes(), run.values()
    for content in variants(whole, _damaged, _session_changed):
        run.session.write_bytes(content)
        found = run.call()
        if found.status:  # else another value that can be: the log decides
            assert is_explained(found, run.session), found.errors
            assert run.session.read_bytes() == content
        assert run.values() == before
    run.session.write_bytes(whole)
    assert run.report()["skipped"] == 3


def test_a_session_of_a_copy(eoctl: Eoctl, log_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"a\nb\n")
    made = ("produce", log_dir / "t-0", tmp_path / "input", "--apply", *NEW_TOPIC)
    assert eoctl(*made).status == 0
    (tmp_path / "other").mkdir()
    copy = Copy(eoctl, log_dir / "t-0", tmp_path / "other" / "t-0")
    copy.report()
    session = copy.session
    whole = session.read_bytes()
    for content in variants(whole, _damaged, _session_changed):
        session.write_bytes(content)
        found = copy.call()
        if found.status:  # else another value that can be: the log decides
            assert is_explained(found, session), found.errors
            assert session.read_bytes() == content
        copy.require_equal()


def test_a_checkpoint_of_a_consumer(kafka: Path, tmp_path: Path, eoctl: Eoctl) -> None:
    keeper = Keeper(tmp_path)
    path = keeper.checkpoint
    call = ("consume", kafka / "txn-0", *keeper.options)
    assert eoctl(*call).status == 0
    whole = path.read_bytes()
    for content in variants(whole, lambda data, chance: data[: chance.randrange(len(data) - 1)]):
        path.write_bytes(content)
        found = eoctl(*call)
        assert is_explained(found, path), found.errors
        assert path.read_bytes() == content
    for content in (b"[" * 100_000, whole.replace(b'"state"', b'"stat"')):
        path.write_bytes(content)
        found = eoctl(*call)
        assert is_explained(found, path), found.errors


def test_a_plan(kafka: Path, tmp_path: Path, eoctl: Eoctl) -> None:
    plan = tmp_path / "plan"
    made = eoctl("truncate", kafka / "txn-0", "--to-offset", 311, "--save-plan", plan)
    assert made.status == 0
    whole, before = plan.read_bytes(), tree_of(kafka)
    for content in variants(whole, _damaged, _json_changed):
        plan.write_bytes(content)
        found = eoctl("apply", plan)
        if found.status == 0:  # the change was in words: nothing is signed
            assert eoctl("undo", journal_of(kafka)).status == 0
        else:
            assert found.status in {2, 3, 4}, found.errors
            assert "Traceback" not in found.errors
        assert difference(tree_of(kafka), before) == []


def test_a_journal(kafka: Path, eoctl: Eoctl) -> None:
    before = tree_of(kafka)
    assert eoctl("truncate", kafka / "txn-0", "--to-offset", 311, "--apply").status == 0
    after = tree_of(kafka)
    journal = journal_of(kafka) / "journal"
    whole = journal.read_bytes()
    for content in variants(whole, _damaged):
        journal.write_bytes(content)
        found = eoctl("undo", journal.parent)
        if found.status == 0:  # the end of it was damaged, as a crash would leave it
            assert difference(tree_of(kafka), before) == []
            return
        assert is_explained(found, journal), found.errors
        assert difference(tree_of(kafka), after) == []


def test_a_journal_of_appends(eoctl: Eoctl, log_dir: Path) -> None:
    """A damaged entry with others behind it is no torn end: what it held would not be undone."""
    run = Run(eoctl, log_dir)
    run.write(b"a", b"b", b"c")
    run.report()
    journal = journal_of(log_dir) / "journal"
    whole, after = journal.read_bytes(), tree_of(log_dir)
    unpacker = msgpack.Unpacker()
    unpacker.feed(whole)
    unpacker.skip()
    second_pos = unpacker.tell()
    content = bytearray(whole)
    content[second_pos + 20] ^= 1
    journal.write_bytes(content)
    found = eoctl("undo", journal.parent)
    assert is_explained(found, journal), found.errors
    assert difference(tree_of(log_dir), after) == []
    journal.write_bytes(whole)
    assert eoctl("undo", journal.parent).status == 0


def test_a_manifest_of_an_export(kafka: Path, tmp_path: Path, eoctl: Eoctl) -> None:
    """What is damaged of it is exported again, or it is refused."""
    call = ("export", kafka / "idem-none-0", "--to", tmp_path / "out", "--jobs", "1")
    assert eoctl(*call).status == 0
    manifest = tmp_path / "out" / "_manifest.jsonl"
    whole = manifest.read_bytes()

    def changed(data: bytes, chance: random.Random) -> bytes:
        lines = data.splitlines()
        place = chance.randrange(len(lines))
        return b"\n".join(
            _json_changed(line, chance) if number == place else line
            for number, line in enumerate(lines)
        )

    for content in variants(whole, _damaged, changed):
        manifest.write_bytes(content)
        found = eoctl(*call, "--resume")
        assert found.status == 0 or is_explained(found, tmp_path / "out"), found.errors
