"""`eoctl serve` and the files: none is written or locked; what goes while it serves is an error."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import os
import shutil
import subprocess
import sys
from array import array
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.commands.serve import ServeOptions, open_catalogue
from eoctl.serve.connection import answer
from eoctl.serve.logs import verified_batches
from eoctl.serve.logs.verified_batches import OpenFiles, SentBatches, SentBytes
from eoctl.serve.server import Server
from eoctl.serve.state.broker import Client, VirtualBroker
from eoctl.serve.state.catalogue import Catalogue, ServeRules
from eoctl.serve.state.members import Members
from storage.dirs.discovery import discover
from storage.errors import AccessError
from storage.files.positioned_file import BrokenOffError, PositionedFile
from storage.formats.legacy_message import MAGIC_V1, Message, encode_message, with_crc
from storage.formats.record import Record
from storage.kernels.kernel_choice import native_module
from tests import wire
from tests.batches import encoded_batch
from tests.kafka import client
from tests.serving import Served
from tests.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_S = 60
CORRUPT_MESSAGE, STORAGE_ERROR = 2, 56
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2  # of Linux


def listing(directory: Path) -> dict[str, tuple[object, ...]]:
    """All that a look at a directory tells, but for when it was last read."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted([directory, *directory.rglob("*")]):
        state = path.lstat()
        data = sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (
            data, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_mode, state.st_uid,
            state.st_ino,
        )  # fmt: skip
    return found


def ask_everything(bootstrap: str) -> None:
    """Ask for what needs files: batches, times, groups, transactions, sizes."""
    with Wire(bootstrap) as connection:
        topics = connection.ask("Metadata", 9, {"topics": None})["topics"]
        assert len(topics) > 5
        for topic in topics:
            for partition in topic["partitions"]:
                number = partition["partitionIndex"]
                wire.fetch_all(connection, topic["name"], number, is_committed=True)
                wire.list_offset(connection, topic["name"], number, 1)
                wire.list_offset(connection, topic["name"], number, -3)
        connection.ask("ListGroups", 4, {})
        connection.ask("OffsetFetch", 7, {"groupId": "group-a", "topics": None})
        connection.ask("ListTransactions", 1, {})
        connection.ask("DescribeLogDirs", 2, {"topics": None})
    client.join_group(bootstrap, "a-new-one", "txn")


def may_lock(log_dir: Path) -> bool:
    """Whether a broker could take its lock now."""
    with (log_dir / ".lock").open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


def give_up_rights() -> None:
    """Let modes of files count for root, too, in the program that is begun next."""
    if os.geteuid() == 0:
        for right in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, right, 0, 0, 0)


def is_writable(log_dir: Path) -> bool:
    """Whether a program that is begun like that could write a file there, or make one."""
    words = "import os, sys; print(*(os.access(each, os.W_OK) for each in sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", words, str(log_dir), str(log_dir / "plain-0" / f"{0:020d}.log")],
        capture_output=True, check=True, preexec_fn=give_up_rights,
    )  # fmt: skip
    return b"True" in done.stdout


@pytest.fixture(params=["writable", "modes of files", "read-only mount"])
def guarded(request: pytest.FixtureRequest, kafka: Path) -> Iterator[Path]:
    """A log dir that can, or cannot, be written."""
    (kafka / ".lock").touch()
    if request.param == "writable":
        yield kafka
    elif request.param == "modes of files":
        everything = [*kafka.rglob("*"), kafka]
        for each in everything:
            each.chmod(0o500 if each.is_dir() else 0o400)
        yield kafka
        for each in reversed(everything):
            each.chmod(0o700 if each.is_dir() else 0o600)
    else:
        mount = ["mount", "--bind", "-o", "ro", str(kafka), str(kafka)]
        if os.geteuid() != 0 or not shutil.which("mount"):
            pytest.skip("only root may mount")
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("nothing can be mounted here")
        yield kafka
        subprocess.run(["umount", "--lazy", str(kafka)], check=True)


@pytest.mark.exhaustive
def test_nothing_is_written_whoever_may(guarded: Path, request: pytest.FixtureRequest) -> None:
    """Files, listing, owners, modes and times are the same after everything was asked for."""
    may_write = "[writable]" in request.node.name
    if is_writable(guarded) is not may_write:
        pytest.skip("rights cannot be given up here")
    before = listing(guarded)
    options = ("--internal", "--verify", "--follow")
    with Served(guarded, *options, prepare=give_up_rights) as served:
        ask_everything(served.bootstrap)
        if may_write:
            assert may_lock(guarded)
        ended = served.stop()
    assert ended.status == 130
    assert "internal error" not in ended.stderr
    assert "denied" not in ended.stderr
    assert listing(guarded) == before


def test_it_serves_while_somebody_holds_the_lock(kafka: Path) -> None:
    """As a broker that runs does: nothing waits for it, and it is told."""
    with (kafka / ".lock").open("w+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with Served(kafka) as served, Wire(served.bootstrap) as connection:
            assert wire.fetch(connection, "plain", 0, 0)["records"]
        with Served(kafka, "--for-seconds", 0) as served:
            ended = served.wait()
    assert "is served as it is now; see --follow" in ended.stderr


# --- what changes under it


def first_log(partition: Path) -> Path:
    return min(partition.glob("*.log"))


def given(bootstrap: str, topic: str, offset: int) -> tuple[int, int]:
    """Error and size of what one client is given; (-1, 0): it was cut off."""
    with Wire(bootstrap) as connection:
        try:
            answer = wire.fetch(connection, topic, 0, offset, max_bytes=1)
        except (EOFError, ConnectionError):
            return -1, 0
        return answer["errorCode"], len(answer["records"] or b"")


@pytest.mark.share(2)
@pytest.mark.parametrize("is_read_before", [True, False])
@pytest.mark.parametrize(
    "change",
    ["truncated", "deleted", "emptied", "replaced by a directory", "flipped", "renumbered"],
)
def test_damage_that_appears_while_it_serves(
    kafka: Path, change: str, is_read_before: bool
) -> None:
    """Who asks for what is gone is told by an error, and nobody else; it is never passed over."""
    log = first_log(kafka / "plain-0")
    with Served(kafka) as served, Wire(served.bootstrap) as other:
        assert wire.fetch(other, "plain", 1, 0)["errorCode"] == 0
        end = wire.list_offset(other, "plain", 0, -1)["offset"]
        if is_read_before:  # else only the ends of the log were looked at
            batches, _, _ = wire.fetch_all(other, "plain", 0)
            assert batches[-1].header.last_offset == end - 1
        if change == "truncated":
            os.truncate(log, log.stat().st_size // 2)
        elif change == "emptied":
            os.truncate(log, 0)
        elif change in ("flipped", "renumbered"):
            last = wire.batches_in(log.read_bytes())[-1]
            first_pos = log.stat().st_size - len(last.data)
            flip(log, log.stat().st_size - 1 if change == "flipped" else first_pos)
        else:
            log.unlink()
        if change == "replaced by a directory":
            log.mkdir()
        met = [given(served.bootstrap, "plain", end - 1) for _ in range(3)]
        if change not in ("deleted", "emptied", "replaced by a directory"):
            assert given(served.bootstrap, "plain", 0)[0] == 0
        assert wire.fetch(other, "plain", 1, 0)["records"]
        assert wire.fetch(other, "txn", 0, 0)["records"]
        ended = served.stop()
    # What was verified is found to be gone when it is sent: that ends a connection, once.
    assert [each for each in met if each[0] != -1], met
    assert met[0][0] in (-1, CORRUPT_MESSAGE, STORAGE_ERROR)
    assert all(error in (CORRUPT_MESSAGE, STORAGE_ERROR) for error, _ in met[1:]), met
    assert "plain-0" in ended.stderr
    assert "internal error" not in ended.stderr


def flip(path: Path, pos: int) -> None:
    """Change a byte in place: it is the same file, of the same size."""
    with path.open("r+b") as file:
        file.seek(pos)
        (byte,) = file.read(1)
        file.seek(pos)
        file.write(bytes([byte ^ 0x40]))


@pytest.mark.share(2)
@pytest.mark.parametrize("kernel", ["native", "pure"])
@pytest.mark.parametrize("is_skipped", [False, True])
def test_what_was_verified_is_verified_again_when_it_is_sent(
    kafka: Path, kernel: str, is_skipped: bool
) -> None:
    """A batch that was changed in place is given to nobody, whatever its neighbours in a response."""
    if kernel == "native" and native_module() is None:
        pytest.skip("no native kernel")
    log = first_log(kafka / "rolled-0")
    batches = wire.batches_in(log.read_bytes())
    middle = len(batches) // 2
    offsets = [each.header.base_offset for each in batches]
    pos = sum(len(each.data) for each in batches[:middle])
    options = ("--on-damage", "skip") if is_skipped else ()
    with (
        Served(kafka, *options, environment={"EOCTL_KERNEL": kernel}) as served,
        Wire(served.bootstrap) as connection,
    ):
        whole, _, _ = wire.fetch_all(connection, "rolled", 0)
        flip(log, pos + 100)
        with pytest.raises((EOFError, ConnectionError)):  # nobody uses what is not whole
            wire.fetch_all(connection, "rolled", 0)
        with Wire(served.bootstrap) as other:
            found, _, last = wire.fetch_all(other, "rolled", 0)
            behind = wire.fetch(other, "rolled", 0, offsets[middle + 1])
        ended = served.stop()
    assert behind["errorCode"] == 0
    if is_skipped:
        assert [each.data for each in found] == [
            each.data for each in whole if each.header.base_offset != offsets[middle]
        ]
    else:
        assert last["errorCode"] == CORRUPT_MESSAGE
        assert [each.data for each in found] == [each.data for each in batches[:middle]]
    assert "was changed in place since it was verified" in ended.stderr
    assert "1 damaged place met" in ended.stderr


@pytest.mark.parametrize("magic", [2, 1])
@pytest.mark.parametrize("changed", [None, 3, 30, 700, -1])
def test_a_batch_that_is_sent_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, magic: int, changed: int | None
) -> None:
    """Its last part is not given if any of it was changed; whole batches before it are."""
    monkeypatch.setattr(verified_batches, "READ_BYTES", 256)
    small, large = made_batch(0, 10, magic), made_batch(1, 1000, magic)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(small + large)
    if changed is not None:
        flip(path, len(small) + changed if changed >= 0 else len(small + large) - 1)
    ends = [len(small), len(small + large)]
    columns = SentBatches(array("q", [0, ends[0]]), array("q", ends), array("q", [0, 1]))
    found: list[bytes] = []
    with closing(OpenFiles().hold(str(path), path.stat().st_ino)) as file:
        reader = SentBytes(file, columns)
        parts = iter(reader.read, b"")
        if changed is None:
            assert b"".join(parts) == small + large
            return
        with pytest.raises(AccessError, match="changed in place"):
            found.extend(parts)
    assert len(small) <= sum(map(len, found)) < len(small + large)


def made_batch(offset: int, value_bytes: int, magic: int) -> bytes:
    """A batch of one record."""
    value = bytes(value_bytes)
    if magic == MAGIC_V1:
        message = Message(offset, 0, MAGIC_V1, 0, 0, None, value, crc_ok=True)
        return encode_message(with_crc(message))
    return encoded_batch(offset, [Record(0, 0, 0, None, value, ())])


def test_a_whole_segment_that_goes_is_no_gap(kafka: Path) -> None:
    """A client is not led past it, as it would be where a log never had these offsets."""
    logs = sorted((kafka / "rolled-0").glob("*.log"))
    middle = int(logs[1].stem)
    with Served(kafka) as served, Wire(served.bootstrap) as connection:
        wire.list_offset(connection, "rolled", 0, -1)
        logs[1].unlink()
        assert wire.fetch(connection, "rolled", 0, 0)["records"]
        for _ in range(2):
            assert wire.fetch(connection, "rolled", 0, middle)["errorCode"] == STORAGE_ERROR
        after = wire.fetch(connection, "rolled", 0, int(logs[2].stem))
        assert after["records"]


def test_a_partition_that_goes_before_anybody_asks(kafka: Path) -> None:
    with Served(kafka, "--verify") as served, Wire(served.bootstrap) as connection:
        shutil.rmtree(kafka / "plain-0")
        assert wire.fetch(connection, "plain", 0, 0)["errorCode"] in (3, STORAGE_ERROR)
        assert wire.fetch(connection, "plain", 1, 0)["errorCode"] == 0
        names = {each["name"] for each in connection.ask("Metadata", 9, {"topics": None})["topics"]}
        assert "plain" in names
        ended = served.stop()
    assert ended.status == 130
    assert "internal error" not in ended.stderr


def test_a_log_dir_that_goes_is_told_to_all(kafka: Path) -> None:
    """Whoever asks what only its files could tell: no log ends early, and no group is unknown."""
    with Served(kafka) as served, Wire(served.bootstrap) as connection:
        asked = (("plain", False), ("rolled", True), ("txn", True))
        for topic, _ in asked:  # each is listed by then
            assert wire.list_offset(connection, topic, 0, -1)["offset"] > 0
        shutil.rmtree(kafka)
        for topic, is_committed in asked:
            code = wire.fetch(connection, topic, 0, 0, is_committed=is_committed)["errorCode"]
            assert code == STORAGE_ERROR, topic
        connection.ask("ListGroups", 4, {})
        connection.ask("ListTransactions", 0, {})
        ended = served.stop()
    for what in ("groups", "transactional ids"):
        assert f"what is known of {what} is not whole: {kafka}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_groups_that_cannot_be_read_decide_the_status(kafka: Path) -> None:
    """What clients are told of them is less than there was."""
    for each in kafka.glob("__consumer_offsets-*/*.log"):
        data = bytearray(each.read_bytes())
        if data:
            data[len(data) // 2] ^= 0x55
            each.write_bytes(data)
    options = ServeOptions(ServeRules())
    catalogue = open_catalogue(discover([str(kafka)]), options)
    reported: list[str] = []
    catalogue.report = reported.append
    assert not catalogue.is_lacking
    catalogue.groups()
    assert catalogue.is_lacking
    assert reported
    assert all(each.startswith("what is known of groups is not whole: ") for each in reported)


def test_a_file_that_is_replaced_is_verified_anew(kafka: Path) -> None:
    """As a broker's cleaner does it: the same name, another file."""
    log = first_log(kafka / "plain-0")
    with Served(kafka) as served, Wire(served.bootstrap) as connection:
        before, _, _ = wire.fetch_all(connection, "plain", 0)
        new = log.with_suffix(".new")
        data = bytearray(log.read_bytes())
        data[before[0].header.batch_bytes - 1] ^= 0x55
        new.write_bytes(data)
        new.rename(log)
        assert wire.fetch(connection, "plain", 0, 0)["errorCode"] == CORRUPT_MESSAGE
        later = before[1].header.base_offset
        assert wire.fetch(connection, "plain", 0, later)["errorCode"] == 0


@pytest.mark.parametrize("is_skipped", [False, True])
def test_a_sector_that_cannot_be_read(
    kafka: Path, monkeypatch: pytest.MonkeyPatch, is_skipped: bool
) -> None:
    """An error of storage to who asks for what is there; what is in front and behind is given."""
    log = first_log(kafka / "rolled-0")
    batches = wire.batches_in(log.read_bytes())
    pos = sum(len(each.data) for each in batches[:3])
    bad = range(pos + 512, pos + 1024)
    real, inode = os.preadv, log.stat().st_ino

    def failing(fd: int, views: list[memoryview], pos: int) -> int:
        is_there = os.fstat(fd).st_ino == inode
        if is_there and pos < bad.stop and pos + len(views[0]) > bad.start:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, views, pos)

    monkeypatch.setattr(os, "preadv", failing)
    rules = ServeRules(skips_damage=is_skipped)
    reported: list[str] = []
    catalogue = open_catalogue(discover([str(kafka)]), ServeOptions(rules))
    catalogue.report = reported.append
    before, damaged, behind = (each.header.base_offset for each in batches[2:5])
    codes = {}
    for offset in (before, damaged, behind):
        code, data = asyncio.run(fetched_from(catalogue, offset))
        codes[offset] = code
        if data:
            first = wire.batches_in(data)[0].header.base_offset
            assert first == (behind if offset == damaged else offset)
        else:
            assert code == STORAGE_ERROR
    assert codes == {before: 0, damaged: 0 if is_skipped else STORAGE_ERROR, behind: 0}
    assert any("Input/output error" in each for each in reported)


async def fetched_from(catalogue: Catalogue, offset: int) -> tuple[int, bytes]:
    """Error and batches of a Fetch of rolled-0, without a connection."""
    api = wire.api_named("Fetch")
    where = {"partition": 0, "fetchOffset": offset, "partitionMaxBytes": 1}
    body = {"minBytes": 0, "topics": [{"topic": "rolled", "partitions": [where]}]}
    with ThreadPoolExecutor(1) as executor:
        broker = VirtualBroker(catalogue, Members(), executor)
        client = Client(name="", address="", host="", port=0)
        found, _ = await answer(broker, wire.encoded(api, 11, body), client, lambda: False)
    assert found is not None
    assert found.fetched is not None
    data = b"".join(
        piece.data
        if piece.file is None or piece.batches is None
        else b"".join(iter(SentBytes(piece.file, piece.batches).read, b""))
        for _, piece in found.fetched.pieces()
    )
    found.fetched.close()
    ((partition,),) = (each["partitions"] for each in found.fetched.value["responses"])
    return int(partition["errorCode"]), data


def test_one_descriptor_for_all_who_are_given_a_file(tmp_path: Path) -> None:
    """Until the last one has closed his, or has dropped it."""
    path = tmp_path / "log"
    path.write_bytes(b"data")
    inode = path.stat().st_ino

    def is_open() -> bool:
        links = [*Path("/proc/self/fd").iterdir()]
        return path in {each.readlink() for each in links if each.is_symlink()}

    files = OpenFiles()
    holds = [files.hold(str(path), inode) for _ in range(3)]
    holds.pop().close()
    holds[0].close()
    holds[0].close()  # a second time
    assert holds[1].read_at(0, 4).data == b"data"
    assert is_open()
    del holds  # one of them was not closed
    other = tmp_path / "other"
    other.write_bytes(b"x")
    with pytest.raises(AccessError, match="replaced while it is served"):
        files.hold(str(other), inode)
    assert not is_open()
    files.hold(str(path), inode).close()
    assert not is_open()


# --- whose turn it is


def test_what_can_wait_gives_way_to_clients() -> None:
    """The rows of what is served, of which there may be thousands: for some time, not for ever."""
    may_end = Event()

    async def run() -> None:
        with ThreadPoolExecutor(1) as executor:
            catalogue = Catalogue({}, (), None, rules=ServeRules(), report=lambda _: None)
            broker = VirtualBroker(catalogue, Members(), executor)
            now_s = asyncio.get_running_loop().time()
            await broker.give_way(now_s + 10 * DEADLINE_S)  # nobody is there
            for _ in range(2):
                asking = asyncio.ensure_future(broker.apart(may_end.wait, DEADLINE_S))
                await asyncio.sleep(0)
                await broker.give_way(now_s)  # its time is over
                waiting = asyncio.ensure_future(broker.give_way(now_s + 10 * DEADLINE_S))
                await asyncio.wait([waiting], timeout=0.1)
                assert not waiting.done()
                may_end.set()
                await waiting
                assert await asking
                may_end.clear()

    asyncio.run(asyncio.wait_for(run(), 3 * DEADLINE_S))


def test_an_end_is_not_lost_when_a_turn_comes_at_the_same_time() -> None:
    """Once it was, with a timeout of asyncio's own (`wait_for`): it could be ended no more."""

    class ByHand(ThreadPoolExecutor):
        """Does nothing by itself."""

        def submit(self, *_: object, **__: object) -> Future[Any]:
            return work

    async def run() -> None:
        nonlocal work
        catalogue = Catalogue({}, (), None, rules=ServeRules(), report=lambda _: None)
        with ByHand(1) as executor:
            broker = VirtualBroker(catalogue, Members(), executor)
            for steps in range(10):
                work = Future()
                asking = asyncio.ensure_future(broker.apart(lambda: None))
                until_s = asyncio.get_running_loop().time() + 10 * DEADLINE_S
                await asyncio.sleep(0)
                waiting = asyncio.ensure_future(broker.give_way(until_s))
                await asyncio.sleep(0)
                work.set_result(None)
                for _ in range(steps):
                    await asyncio.sleep(0)
                is_asked = waiting.cancel()
                await asyncio.wait([waiting, asking])
                assert waiting.cancelled() is is_asked

    work: Future[Any] = Future()
    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


# --- its end


def test_an_interrupt_ends_readers_that_are_busy(tmp_path: Path) -> None:
    """A walk through a large log, or one on a slow disk, is not waited for."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    has_begun = Event()

    def read_for_ever() -> None:
        with PositionedFile(path) as file:
            while True:
                file.read_at(0, 1)
                has_begun.set()

    async def run() -> None:
        catalogue = Catalogue({}, (), None, rules=ServeRules(), report=lambda _: None)
        server = Server(catalogue, Members(), on_end=lambda _: None)
        reading = asyncio.ensure_future(server.broker.apart(read_for_ever))
        await asyncio.to_thread(has_begun.wait, DEADLINE_S)
        await server.close()
        await asyncio.wait([reading])
        assert isinstance(reading.exception(), BrokenOffError)

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    with PositionedFile(path) as file:  # others read on
        assert file.read_at(0, 1).data == b"x"
