"""Plans: what they carry, what makes them stale, what they may not reach; any bytes give an error."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.changes.plans.file_facts import (
    TAIL_BYTES,
    data_bytes_of,
    has_bytes_of,
    inspect,
    is_still,
    kept_bytes_of,
)
from recovery.changes.plans.plan import (
    Plan,
    encode_plan,
    make_plan,
    parse_plan,
    read_plan,
    remove_step,
    replace_step,
    require_fresh,
    truncate_step,
)
from storage.errors import AccessError, EoctlError, RefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOG = "00000000000000000000.log"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    path = tmp_path / "log-dir"
    (path / "t-0").mkdir(parents=True)
    (path / "t-0" / LOG).write_bytes(b"0123456789" + bytes(30))
    (path / "t-0/leader-epoch-checkpoint").write_bytes(b"0\n0\n")
    (path / "replication-offset-checkpoint").write_bytes(b"0\n1\nt 0 7\n")
    (path / ".kafka_cleanshutdown").write_bytes(b"{}")
    return path


@pytest.fixture
def plan(log_dir: Path) -> Plan:
    steps = [
        replace_step(str(log_dir / "replication-offset-checkpoint"), b"0\n0\n", "lower"),
        truncate_step(str(log_dir / "t-0" / LOG), 4, "cut"),
        replace_step(str(log_dir / "t-0/00000000000000000004.snapshot"), b"\0" * 99, "new"),
    ]
    return make_plan("truncate", {"partition": "t-0"}, steps, {"records_count": None})


# --- what a file was ------------------------------------------------------------------------------


def test_the_digest_covers_what_is_touched_and_the_last_mebibyte(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(os.urandom(3 * TAIL_BYTES))
    assert inspect(str(path), touched_from=None).digest_start == 2 * TAIL_BYTES  # type: ignore[union-attr]
    assert inspect(str(path), touched_from=10).digest_start == 10  # type: ignore[union-attr]
    last = inspect(str(path), touched_from=3 * TAIL_BYTES - 5)
    assert last is not None
    assert (last.digest_start, last.digest_end) == (2 * TAIL_BYTES, 3 * TAIL_BYTES)
    assert inspect(str(tmp_path / "missing")) is None


def test_any_change_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    facts = inspect(str(path))
    assert is_still(str(path), facts)
    assert not is_still(str(path), None)
    assert is_still(str(tmp_path / "missing"), None)
    found = path.stat()
    path.write_bytes(b"abd")
    os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))
    assert not is_still(str(path), facts)
    path.write_bytes(b"abc")
    os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns + 1))
    assert not is_still(str(path), facts)
    os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))
    assert is_still(str(path), facts)
    path.chmod(0o600 if found.st_mode & 0o777 != 0o600 else 0o640)
    assert not is_still(str(path), facts)
    path.unlink()
    path.symlink_to("elsewhere")
    assert not is_still(str(path), facts)
    with pytest.raises(RefusedError, match="no regular file"):
        inspect(str(path))


def test_the_bytes_alone(tmp_path: Path) -> None:
    """Mode and owner do not count; the time only where the digest is not of all bytes."""
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    facts = inspect(str(path))
    assert facts is not None
    path.chmod(0o604)
    os.utime(path, ns=(1, 1))
    assert has_bytes_of(str(path), facts)
    path.write_bytes(b"abd")
    assert not has_bytes_of(str(path), facts)
    assert not has_bytes_of(str(tmp_path / "missing"), facts)
    path.write_bytes(os.urandom(3 * TAIL_BYTES))
    tail = inspect(str(path), touched_from=None)
    assert tail is not None
    assert has_bytes_of(str(path), tail)
    os.utime(path, ns=(1, 1))
    assert not has_bytes_of(str(path), tail)
    path.unlink()
    path.symlink_to("elsewhere")
    assert not has_bytes_of(str(path), facts)


@pytest.mark.parametrize(
    ("data", "start", "count"),
    [
        (b"ab\0c\0\0", 0, 4),
        (b"ab\0\0\0", 2, 0),
        (b"", 0, 0),
        (b"\0" * (2 << 20) + b"x", 1, 2 << 20),
    ],
)
def test_zeros_at_the_end_need_no_copy(tmp_path: Path, data: bytes, start: int, count: int) -> None:
    (tmp_path / "f").write_bytes(data)
    assert data_bytes_of(str(tmp_path / "f"), start, len(data)) == count


@pytest.mark.parametrize(("zeros_count", "kept_bytes"), [(0, 2), (1, 3), (4095, 4097), (4096, 2)])
def test_a_backup_keeps_few_zeros(tmp_path: Path, zeros_count: int, kept_bytes: int) -> None:
    """A batch often ends with a zero byte: then the backup has all removed bytes."""
    (tmp_path / "f").write_bytes(b"abcd" + bytes(zeros_count))
    assert kept_bytes_of(str(tmp_path / "f"), 2, 4 + zeros_count) == kept_bytes


# --- making, staleness ----------------------------------------------------------------------------


def test_markers_come_first(plan: Plan, log_dir: Path) -> None:
    assert plan.steps[0].path == str(log_dir / ".kafka_cleanshutdown")
    assert plan.log_dirs == (str(log_dir),)
    assert plan.directories == [str(log_dir), str(log_dir / "t-0")]
    assert plan.steps[2].backup_bytes == 36
    require_fresh(plan)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "t-0" / LOG).write_bytes(b"0123456789"),
        lambda root: os.utime(root / "t-0" / LOG, ns=(1, 1)),
        lambda root: (root / "t-0/00000000000000000004.snapshot").touch(),
        lambda root: (root / ".kafka_cleanshutdown").unlink(),
        lambda root: (root / "replication-offset-checkpoint").unlink(),
        lambda root: (root / "t-0/00000000000000000009.log").touch(),
        lambda root: (root / "t-0/00000000000000000009.log.deleted").touch(),
        lambda root: (root / "t-0/leader-epoch-checkpoint").unlink(),
    ],
)
def test_a_stale_plan_is_refused(
    plan: Plan, log_dir: Path, change: Callable[[Path], object]
) -> None:
    change(log_dir)
    with pytest.raises(RefusedError, match="stale"):
        require_fresh(plan)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "t-0/notes").touch(),
        lambda root: (root / f"t-0/{LOG}.eoctl-tmp").touch(),
        lambda root: (root / "t-0/00000000000000000009.log").mkdir(),
        lambda root: (root / "log-start-offset-checkpoint").touch(),
        lambda root: (root / ".lock").touch(),
    ],
)
def test_what_is_none_of_its_business(
    plan: Plan, log_dir: Path, change: Callable[[Path], object]
) -> None:
    change(log_dir)
    require_fresh(plan)


def test_a_marker_that_appeared_makes_it_stale(log_dir: Path) -> None:
    (log_dir / ".kafka_cleanshutdown").unlink()
    made = make_plan("x", {}, [truncate_step(str(log_dir / "t-0" / LOG), 4, "")], {})
    (log_dir / ".kafka_cleanshutdown").touch()
    with pytest.raises(RefusedError, match="cleanshutdown: was not there"):
        require_fresh(made)


def test_steps_of_files_that_are_gone(log_dir: Path) -> None:
    for make in (lambda path: truncate_step(path, 0, ""), lambda path: remove_step(path, "")):
        with pytest.raises(AccessError):
            make(str(log_dir / "t-0" / "00000000000000000009.log"))


# --- JSON -----------------------------------------------------------------------------------------


def test_it_is_the_same_after_json(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(encode_plan(plan))
    assert read_plan(tmp_path / "plan.json") == plan
    value = json.loads(encode_plan(plan))
    assert value["steps"][2]["before"]["file_bytes"] == 40
    assert value["price"] == {"records_count": None}


def test_names_that_are_no_utf8_survive(log_dir: Path) -> None:
    partition = log_dir / os.fsdecode(b"\xff-0")
    partition.mkdir()
    (partition / LOG).write_bytes(b"x")
    made = make_plan("x", {}, [truncate_step(str(partition / LOG), 0, "")], {})
    assert parse_plan(encode_plan(made), "p") == made


def changed(plan: Plan, step: int, **fields: Any) -> bytes:
    value = json.loads(encode_plan(plan))
    value["steps"][step].update(fields)
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "path",
    [
        "{log_dir}/../elsewhere/t-0/00000000000000000000.log",
        "t-0/00000000000000000000.log",
        "{log_dir}/meta.properties",
        "{log_dir}/.lock",
        "{log_dir}/t-0/partition.metadata",
        "{log_dir}/t-0/00000000000000000000.log.deleted",
        "{log_dir}/t-0/sub/00000000000000000000.log",
        "/elsewhere/t-0/00000000000000000000.log",
        "{log_dir}/__cluster_metadata-0/00000000000000000000.log",
        "/elsewhere/replication-offset-checkpoint",
        "{log_dir}/t-0/replication-offset-checkpoint",
        "{log_dir}/t-0/nothing-of-kafka",
        "{log_dir}/t-0/00000000000000000000.log\0",
        "",
    ],
)
def test_a_plan_reaches_no_other_file(plan: Plan, log_dir: Path, path: str) -> None:
    with pytest.raises((RefusedError, UsageError)):
        parse_plan(changed(plan, 2, path=path.format(log_dir=log_dir)), "p")


def test_nor_may_its_id_lead_elsewhere(plan: Plan) -> None:
    for name in ("../x", "a/b", "", ".", "..", ".x"):
        with pytest.raises(RefusedError, match="its id"):
            parse_plan(encode_plan(plan._replace(plan_id=name)), "p")


def test_one_step_a_file(plan: Plan) -> None:
    twice = plan._replace(steps=(*plan.steps, plan.steps[2]))
    with pytest.raises(RefusedError, match="two steps"):
        parse_plan(encode_plan(twice), "p")


def test_the_metadata_log_is_never_planned_for(log_dir: Path) -> None:
    (log_dir / "__cluster_metadata-0").mkdir()
    path = log_dir / "__cluster_metadata-0" / LOG
    path.write_bytes(b"x")
    with pytest.raises(RefusedError, match="never changed"):
        make_plan("x", {}, [truncate_step(str(path), 0, "")], {})


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b"1", b'"eoctl-plan"', b'{"kind":"eoctl-plan"}',
        b"[" * 100_000, b"1" * 5000,
    ],
)  # fmt: skip
def test_what_is_no_plan(data: bytes) -> None:
    with pytest.raises(UsageError):
        parse_plan(data, "p")


@given(
    field=st.sampled_from(["action", "path", "before", "after_bytes", "content", "backup_bytes"]),
    value=st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=9), st.lists(st.integers()),
        st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    ),
    step=st.integers(0, 3),
)  # fmt: skip
def test_any_value_is_a_plan_or_refused(field: str, value: object, step: int) -> None:
    data = json.dumps(SAMPLE).encode()
    loaded = json.loads(data)
    loaded["steps"][step][field] = value
    status = 0
    try:
        parse_plan(json.dumps(loaded).encode(), "p")
    except EoctlError as error:
        status = error.exit_status
    assert status in (0, 2, 4)


_FACTS = {
    "file_bytes": 40, "mtime_ns": 1, "mode": 420, "uid": 0, "gid": 0, "digest_start": 0,
    "digest_end": 40, "sha256": "00",
}  # fmt: skip
SAMPLE = {
    "kind": "eoctl-plan",
    "schema_version": 1,
    "plan_id": "20261121T000000.000Z-test-0001",
    "command": "truncate",
    "arguments": {},
    "log_dirs": ["/d"],
    "price": {},
    "sources": [{"path": "/d/t-0/x", "before": _FACTS}],
    "listings": [{"path": "/d/t-0", "names": ["x"]}],
    "steps": [
        {
            "action": action, "path": f"/d/t-0/{number:020d}.log", "before": _FACTS,
            "after_bytes": 3, "backup_bytes": 0, "reason": "", "content": "eJxLTEoGAAJNASc=",
        }
        for number, action in enumerate(["truncate", "replace", "remove", "truncate"])
    ],
}  # fmt: skip


def test_the_sample_is_a_plan() -> None:
    assert [each.content for each in parse_plan(json.dumps(SAMPLE).encode(), "p").steps] == [
        None, b"abc", None, None,
    ]  # fmt: skip


PIECES = {
    "ranges": [{"path": "/e/t-0/00000000000000000007.log", "start_pos": 4, "end_pos": 7}],
    "sha256": "00",
}


def with_pieces(**changed: object) -> bytes:
    loaded = json.loads(json.dumps(SAMPLE))
    del loaded["steps"][1]["content"]
    loaded["steps"][1]["pieces"] = json.loads(json.dumps(PIECES))
    loaded["steps"][1]["pieces"]["ranges"][0].update(changed)
    return json.dumps(loaded).encode()


def test_pieces_in_the_place_of_content() -> None:
    plan = parse_plan(with_pieces(), "p")
    step = plan.steps[1]
    assert (step.content, step.after_sha256, step.after_bytes) == (None, "00", 3)
    assert step.pieces is not None
    assert step.pieces.to_json() == PIECES
    assert parse_plan(encode_plan(plan), "p").steps[1] == step


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"end_pos": 8}, "pieces of another size than after_bytes"),
        ({"start_pos": 7}, "an empty piece"),
        ({"start_pos": -1}, "is no plan of eoctl"),
        ({"path": 1}, "is no plan of eoctl"),
        ({"path": "/e/t-1/00000000000000000007.log"}, "no .log of the same partition"),
        ({"path": "/e/t-0/00000000000000000007.index"}, "no .log of the same partition"),
        ({"path": "e/t-0/00000000000000000007.log"}, "no .log of the same partition"),
        ({"path": "/e/../e/t-0/00000000000000000007.log"}, "no .log of the same partition"),
        ({"path": "/d/__cluster_metadata-0/00000000000000000007.log"}, "no .log of the same"),
    ],
)
def test_pieces_that_are_refused(changed: dict[str, object], words: str) -> None:
    with pytest.raises((UsageError, RefusedError), match=words):
        parse_plan(with_pieces(**changed), "p")


def test_only_files_of_segments_are_put_together() -> None:
    """Each from its like."""
    target, source = (f'"{path}"'.encode() for path in (
        "/d/t-0/00000000000000000001.log", PIECES["ranges"][0]["path"]
    ))  # fmt: skip
    index = target.replace(b".log", b".index")
    with pytest.raises(RefusedError, match=r"no \.index of the same partition"):
        parse_plan(with_pieces().replace(target, index), "p")
    like = source.replace(b".log", b".index")
    parse_plan(with_pieces().replace(target, index).replace(source, like), "p")
    epochs = b'"/d/t-0/leader-epoch-checkpoint"'
    with pytest.raises(RefusedError, match="only these are put together"):
        parse_plan(with_pieces().replace(target, epochs), "p")


def made_in(path: str, **changed: object) -> bytes:
    """A plan that makes a partition with a linked segment."""
    loaded = json.loads(json.dumps(SAMPLE))
    loaded["schema_version"] = 2
    loaded["listings"] = []
    linked = {
        "action": "link", "path": f"{path}/00000000000000000007.log", "before": None,
        "after_bytes": 3, "backup_bytes": 0, "reason": "", "pieces": PIECES,
    }  # fmt: skip
    make = {"action": "make", "path": path, "before": None, "backup_bytes": 0, "reason": ""}
    loaded["steps"] = [make | changed, linked]
    return json.dumps(loaded).encode()


def test_what_a_plan_makes() -> None:
    plan = parse_plan(made_in("/d/t-0"), "p")
    assert plan.made_directories == {"/d/t-0"}
    assert [each.log_dir for each in plan.steps] == ["/d", "/d"]
    assert parse_plan(encode_plan(plan), "p") == plan


@pytest.mark.parametrize(
    ("path", "changed", "words"),
    [
        ("/d/t", {}, "no name of a live partition"),
        ("/d/t-0.0123456789abcdef0123456789abcdef-delete", {}, "no name of a live partition"),
        ("/d/__cluster_metadata-0", {}, "is never changed"),
        ("/e/t-0", {}, "in no partition of its log dirs"),
        ("/d/t-0/../t-1", {}, "no plain path"),
        ("/d/t-0", {"before": _FACTS}, "of a file that exists"),
    ],
)
def test_what_a_plan_must_not_make(path: str, changed: dict[str, object], words: str) -> None:
    with pytest.raises((UsageError, RefusedError), match=words):
        parse_plan(made_in(path, **changed), "p")
