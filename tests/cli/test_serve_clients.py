"""`eoctl serve` and clients that are none, go, are silent, slow, or too many: others are served on."""

from __future__ import annotations

import asyncio
import re
import resource
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.serve import connection as serving
from eoctl.serve.connection import MAX_PLAIN_REQUEST_BYTES, Connection, Response
from eoctl.serve.server import Limits
from tests import wire
from tests.drawn import IS_ALL
from tests.serving import Served
from tests.wire import Wire

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Awaitable, Callable, Iterator

    Talking = Callable[[StreamReader, StreamWriter, asyncio.Event], Awaitable[None]]

DEADLINE_S = 60
SILENT_S = 2.0
TLS_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(100)


@pytest.fixture(scope="module")
def clean(golden: Callable[[str], Path]) -> Path:
    return golden("kafka-4.3.1") / "clean"


@pytest.fixture(scope="module")
def served(clean: Path) -> Iterator[Served]:
    with Served(clean) as found:
        yield found


def await_that(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def connections_of(*talking: Talking) -> list[Connection]:
    """The connections of clients that talk to a server at the same time, each once it has ended.

    A client is given an event that is set once the server has done with it.
    """
    found: dict[int, Connection] = {}

    async def run() -> list[int]:
        over: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)

        async def take(reader: StreamReader, writer: StreamWriter) -> None:
            port = writer.get_extra_info("peername")[1]
            found[port] = Connection(None, reader, writer)  # type: ignore[arg-type]
            await found[port].serve()
            over[port].set()

        async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()[:2]

            async def meet(talk: Talking) -> int:
                reader, writer = await asyncio.open_connection(host, port)
                own: int = writer.get_extra_info("sockname")[1]
                await talk(reader, writer, over[own])
                await over[own].wait()
                writer.close()
                return own

            return await asyncio.gather(*map(meet, talking))

    ports = asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    return [found[port] for port in ports]


def sending(data: bytes, *, goes: bool = True) -> Talking:
    """A client that sends this, goes or stays, and reads until it is cut off."""

    async def talk(reader: StreamReader, writer: StreamWriter, _: asyncio.Event) -> None:
        writer.write(data)
        if goes:
            writer.write_eof()
        assert await reader.read() == b""

    return talk


def framed(api: str, version: int, body: dict[str, Any] | None = None) -> bytes:
    found = wire.api_named(api)
    data = bytearray(wire.encoded(found, min(version, found.last_version), body or {}))
    data[2:4] = version.to_bytes(2, "big")
    return wire.SIZE.pack(len(data)) + data


# --- what is no request


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (TLS_HELLO, "it speaks TLS, and only plain text is served: security.protocol=PLAINTEXT"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "it speaks HTTP"),
        (b"\x7f\xff\xff\xff" + b"x" * 100, "a request of 2147483647 bytes"),
        (b"\xff\xff\xff\xff", "a request of -1 bytes"),
        (b"\x80\0\0\0", "a request of -2147483648 bytes"),
        (wire.SIZE.pack(MAX_PLAIN_REQUEST_BYTES + 1) + b"\0\x03", "without records"),
        (wire.SIZE.pack(0), "not a request"),
        (wire.SIZE.pack(9) + b"\0\x03half-", None),
        (wire.SIZE.pack(10) + b"\0\x03\0\x09\0\0\0\7\0\x09", "not a request"),
        (wire.SIZE.pack(10) + b"\x7f\x03\0\x09\0\0\0\7\xff\xff", "API 32515 is unknown"),
        (wire.SIZE.pack(10) + b"\0\x1b\0\x63\0\0\0\7\xff\xff", "no version 99"),
        (wire.SIZE.pack(14) + b"\0\x03\0\x01\0\0\0\7\xff\xff\x7f\xff\xff\xff", "Metadata version 1"),
        (framed("Produce", 9, {"acks": 0, "timeoutMs": 1, "topicData": [
            {"name": "t", "partitionData": [{"index": 0, "records": b"x"}]}]}), "wants no answer"),
        (framed("Produce", 9, {"acks": 0, "timeoutMs": 1, "topicData": []}), None),
    ],
)  # fmt: skip
def test_what_is_no_request_is_cut_off_with_words(sent: bytes, words: str | None) -> None:
    (found,) = connections_of(sending(sent))
    assert not found.is_our_bug
    assert (words or "") in found.problem
    assert bool(found.problem) == (words is not None)


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\x09half"])
def test_a_client_that_goes_is_no_problem(sent: bytes) -> None:
    (found,) = connections_of(sending(sent))
    assert (found.problem, found.is_our_bug) == ("", False)


def test_an_error_of_ours_cuts_off_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the program ends with 70, after it has served the others."""

    async def fail(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(serving, "answer", fail)
    (found,) = connections_of(sending(b"\0\0\0\x01x"))
    assert (found.problem, found.is_our_bug) == ("internal error: ValueError: a bug", True)


@pytest.mark.exhaustive
def test_who_is_silent_or_slow_is_cut_off_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is that has not come for a long time, in each case."""
    api = wire.api_named("ApiVersions")

    async def answer_much(*_: object) -> tuple[Response, str]:
        return Response(api, bytearray(64 << 20)), "slow"

    async def never_reads(_: StreamReader, writer: StreamWriter, over: asyncio.Event) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"\0\0\0\x01x")
        await over.wait()

    monkeypatch.setattr(serving, "IDLE_S", SILENT_S)
    monkeypatch.setattr(serving, "answer", answer_much)
    found = connections_of(
        sending(b"", goes=False), sending(b"\0\0\0\x09half", goes=False), never_reads
    )
    assert [each.problem for each in found] == [
        "it has requested nothing for 2 s",
        "it has sent a part of a request, and nothing more for 2 s",
        "it has hardly read of a response for 2 s",
    ]


def test_the_line_of_a_client_says_why_it_was_cut_off(clean: Path) -> None:
    with Served(clean) as served:
        for sent in (TLS_HELLO, b"GET / HTTP/1.0\r\n\r\n", b"\x7f\xff\xff\xff"):
            with Wire(served.bootstrap) as connection:
                connection.socket.sendall(sent)
                with pytest.raises((EOFError, ConnectionError)):
                    connection.receive()
        with Wire(served.bootstrap) as connection:
            assert connection.ask("ApiVersions", 0)["errorCode"] == 0
        ended = served.stop()
    lines = [each for each in ended.stderr.splitlines() if "disconnected" in each]
    assert ["TLS" in lines[0], "HTTP" in lines[1], "2147483647" in lines[2]] == [True] * 3
    assert len(lines) == 3
    assert ended.status == 130
    assert "(wire): 1 request," in ended.stderr


# --- large requests


@pytest.mark.exhaustive
def test_a_hundred_thousand_topics_in_one_request(served: Served) -> None:
    names = [f"topic-{each}" for each in range(100_000)]
    with Wire(served.bootstrap) as connection:
        named = [{"name": each} for each in [*names, "txn"]]
        topics = connection.ask("Metadata", 9, {"topics": named})["topics"]
        assert len(topics) == len(names) + 1
        assert sorted({each["errorCode"] for each in topics}) == [0, 3]
        asked = [{"topic": each, "partitions": [
            {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1000}]}
            for each in [*names[:10_000], "txn"]]  # fmt: skip
        topics = connection.ask("Fetch", 12, {"minBytes": 0, "topics": asked})["responses"]
        assert len(topics) == 10_001
        assert topics[-1]["partitions"][0]["records"]


def test_a_partition_that_is_named_twice(served: Served) -> None:
    where = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 20}
    with Wire(served.bootstrap) as connection:
        body = {"minBytes": 0, "topics": [{"topic": "txn", "partitions": [where, where]}] * 2}
        assert connection.ask("Fetch", 12, body)["responses"]
        asked = {"partitionIndex": 0, "timestamp": -1}
        body = {"topics": [{"name": "txn", "partitions": [asked, asked]}]}
        assert connection.ask("ListOffsets", 7, body)["topics"]
        assert wire.fetch(connection, "txn", 0, 0)["records"]


def test_no_session_is_kept_for_a_client(served: Served) -> None:
    """Each request names all that it wants: who asks for a session is answered that there is none."""
    where = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1000}
    topics = [{"topic": each, "partitions": [where]} for each in ("txn", "plain")]
    with Wire(served.bootstrap) as connection:
        for _ in range(2):
            body = {"minBytes": 0, "sessionId": 0, "sessionEpoch": 0, "topics": topics}
            found = connection.ask("Fetch", 12, body)
            assert (found["errorCode"], found["sessionId"]) == (0, 0)
            assert [each["topic"] for each in found["responses"]] == ["txn", "plain"]
        body = {"minBytes": 0, "sessionId": 5, "sessionEpoch": 1, "topics": []}
        assert connection.ask("Fetch", 12, body)["errorCode"] == 70


# --- clients that go, and too many of them


def descriptors_of(pid: int) -> int:
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_who_goes_in_the_middle_of_a_response_leaves_nothing_open(clean: Path) -> None:
    api = wire.api_named("Fetch")
    with Served(clean) as served:
        with Wire(served.bootstrap) as connection:
            connection.ask("ApiVersions", 0)
        before = descriptors_of(served.pid)
        for size in range(40):
            with Wire(served.bootstrap) as connection:
                where = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 20}
                body = {"maxWaitMs": size * 10, "minBytes": 1,
                        "topics": [{"topic": "rolled", "partitions": [where]}]}  # fmt: skip
                connection.send(wire.encoded(api, 11, body))
                connection.socket.recv(size or 1)
        await_that(lambda: descriptors_of(served.pid) <= before)
        ended = served.stop()
    assert ended.status == 130
    assert "internal error" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_descriptors_are_left_to_files() -> None:
    for descriptors in (16, 64, 1024, 20_000, 65_536):
        limits = Limits.of(descriptors)
        assert limits.clients + limits.backlog < descriptors
        assert 0 < limits.backlog <= limits.clients


def test_too_many_clients_are_turned_away_and_the_others_served(clean: Path) -> None:
    def have_few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))

    with Served(clean, prepare=have_few) as served:
        held: list[Wire] = []
        refused = 0
        for _ in range(100):
            connection = Wire(served.bootstrap)
            try:
                connection.ask("ApiVersions", 0)
            except (EOFError, ConnectionError):
                refused += 1
                connection.socket.close()
            else:
                held.append(connection)
        assert refused >= 40
        assert len(held) == 100 - refused <= Limits.of(80).clients
        for connection in held:
            assert wire.fetch(connection, "plain", 0, 0)["records"]
        held.pop().socket.close()

        def is_taken_again() -> bool:
            connection = Wire(served.bootstrap)
            held.append(connection)
            try:
                return bool(connection.ask("ApiVersions", 0))
            except (EOFError, ConnectionError):
                return False

        await_that(is_taken_again)
        for connection in held:
            connection.socket.close()
        ended = served.stop()
    assert "60 clients at a time is what `ulimit -n` 80 leaves room for" in ended.stderr
    assert ended.stderr.count("turned away, beside") == 1
    assert re.search(r"served .* connections; \d+ clients turned away", ended.stderr)


@pytest.mark.exhaustive
def test_thousands_of_connections_hold(clean: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 10_000 if IS_ALL else 1_000
    if hard != resource.RLIM_INFINITY and hard < 2 * count:
        pytest.skip(f"`ulimit -n` allows {hard} descriptors")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 1000, hard))
    held: list[Wire] = []
    try:
        with Served(clean) as served:
            for _ in range(count):
                held.append(Wire(served.bootstrap))
                held[-1].ask("ApiVersions", 0)
            assert wire.fetch(held[0], "plain", 0, 0)["records"]
            assert wire.fetch(held[-1], "plain", 0, 0)["records"]
    finally:
        for each in held:
            each.socket.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
