"""Reading a history: what is not understood is passed over, and said."""

from __future__ import annotations

import gzip
import io
import shlex
from typing import TYPE_CHECKING

import pytest
import zstandard

from eoctl.lab.checker.histories import HistoryReader
from eoctl.lab.environment.network import HistoryWriter
from storage.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable


HEADER = b'{"history":"eoctl","version":1}\n'


def reader(data: bytes) -> HistoryReader:
    return HistoryReader(io.BytesIO(data), "history.jsonl")


def test_what_is_written_is_read() -> None:
    lines: list[bytes] = []
    writer = HistoryWriter(lines.append, {"acks": "all"})
    writer.note("invoke", "p", 1, 5, "send", topic="t", partition=0, value="a")
    writer.note("ok", "p", 1, 9, "send", topic="t", partition=0, value="a", offset=0)
    found = reader(b"".join(lines))
    assert found.header["settings"] == {"acks": "all"}
    first, second = found
    assert (first.type, first.process, first.id, first.time_us, first.line) == (
        "invoke", "p", 1, 5, 2,
    )  # fmt: skip
    assert second.fields["offset"] == 0
    assert (found.skipped, found.is_torn) == ([], False)
    assert writer.counts == {("send", "invoke"): 1, ("send", "ok"): 1}


@pytest.mark.parametrize(
    "data", [b"", b"[]\n", b"\xff\n", b'{"history":"other"}\n', b'{"version":1}']
)
def test_no_history_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedError, match=r"line 1|is empty"):
        reader(data)


def test_another_version_is_refused() -> None:
    with pytest.raises(RefusedError, match="version 2"):
        reader(b'{"history":"eoctl","version":2}\n')


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"nonsense", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[1]", "no JSON object"),
        (b"", "empty"),
        (b"[" * 100_000, "no JSON"),
        (b"9" * 5000, "no JSON"),
        (
            b'{"type":"ok","process":"p","id":1' + b"0" * 30 + b',"time_us":1,"op":"send"}',
            "64 bits",
        ),
        (
            b'{"type":"ok","process":"p","id":1,"time_us":1' + b"0" * 30 + b',"op":"send"}',
            "time 1000",
        ),
        (b'{"type":["ok"],"process":"p","id":1,"time_us":1,"op":"send"}', "no type and op"),
        (b'{"type":"ok","process":"p","id":1,"time_us":1,"op":"melt"}', "op 'melt'"),
        (b'{"type":"so","process":"p","id":1,"time_us":1,"op":"send"}', "type 'so'"),
        (b'{"type":"ok","process":7,"id":1,"time_us":1,"op":"send"}', "no process"),
        (b'{"type":"ok","process":"p","id":true,"time_us":1,"op":"send"}', "no process"),
        (b'{"type":"ok","process":"p","id":1,"time_us":-1,"op":"send"}', "time -1"),
        (b'{"type":"ok","process":"p","id":1,"time_us":"1","op":"send"}', "time 1"),
    ],
)
def test_a_line_that_is_not_understood_is_passed_over(line: bytes, why: str) -> None:
    good = b'{"type":"info","process":"n","id":1,"time_us":3,"op":"heal"}\n'
    found = reader(HEADER + line + b"\n" + good)
    assert [each.op for each in found] == ["heal"]
    (skipped,) = found.skipped
    assert skipped.line == 2
    assert why in skipped.why


def test_time_does_not_go_back() -> None:
    lines = [
        b'{"type":"info","process":"n","id":1,"time_us":%d,"op":"heal"}\n' % at for at in (5, 4)
    ]
    found = reader(HEADER + b"".join(lines))
    assert len([*found]) == 1
    assert found.skipped[0].why == "time 4 after 5"


def test_lines_may_end_as_on_windows() -> None:
    lines = HEADER + b'{"type":"info","process":"n","id":1,"time_us":3,"op":"heal"}\n'
    found = reader(lines.replace(b"\n", b"\r\n"))
    assert [each.op for each in found] == ["heal"]
    assert (found.skipped, found.is_torn) == ([], False)


def test_a_line_without_end_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eoctl.lab.checker.histories.MAX_LINE_BYTES", 100)
    good = b'{"type":"info","process":"n","id":1,"time_us":3,"op":"heal"}\n'
    found = reader(HEADER + b'"' + b"x" * 1000 + b'"\n' + good)
    assert [(each.op, each.line) for each in found] == [("heal", 3)]
    assert [each.line for each in found.skipped] == [2]


def test_a_torn_end_is_said() -> None:
    found = reader(HEADER + b'{"type":"in')
    assert [*found] == []
    assert (found.skipped, found.is_torn) == ([], True)


@pytest.mark.parametrize(
    ("compress", "step"),
    [(gzip.compress, "gunzip -k"), (zstandard.ZstdCompressor().compress, "unzstd")],
)
def test_one_that_is_compressed_is_to_be_unpacked_first(
    compress: Callable[[bytes], bytes], step: str
) -> None:
    with pytest.raises(RefusedError, match="is compressed") as caught:
        HistoryReader(io.BytesIO(compress(HEADER)), "my runs/it's one")
    assert caught.value.next_step is not None
    command = caught.value.next_step.partition(", then")[0]
    assert shlex.split(command) == [*step.split(), "my runs/it's one"]
