"""A slow model of a transaction coordinator and of the partitions that its transactions are in.

Plain dicts, written from the rules; it shares no code with what it judges. An operation is a
generator that stops behind each write: who runs it for n steps has what a process leaves that died
behind its n-th write.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_EPOCH = 32767
LAST_EPOCH_OF_A_PRODUCER = 32766
FOREVER_MS = 2**31 - 1

Steps = "Generator[None, None, Any]"
Who = tuple[int, int]


class RefusedByModel(Exception):  # noqa: N818
    """What the coordinator or a partition has to answer."""


class Model:
    """Ids, and per partition what was written and how it ended.

    Attributes:
        version: of the cluster.
        ids: name -> fields of its newest record, and `last`, which is only remembered.
        committed: partition -> values in the order in which they were committed.
        open: partition -> producer id -> values of its open transaction.
        epochs: partition -> producer id -> the newest epoch.
        sequences: partition -> producer id -> how many records with that epoch.
    """

    def __init__(self, version: int, now_ms: int, expiration_ms: int) -> None:
        self.version = version
        self.now_ms = now_ms
        self.expiration_ms = expiration_ms
        self.next_id = 1000
        self.ids: dict[str, dict[str, Any]] = {}
        self.committed: dict[int, list[bytes]] = defaultdict(list)
        self.open: dict[int, dict[int, list[bytes]]] = defaultdict(dict)
        self.epochs: dict[int, dict[int, int]] = defaultdict(dict)
        self.sequences: dict[int, dict[int, int]] = defaultdict(dict)

    def _take_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def _record(self, name: str, **changed: Any) -> None:
        was = self.ids[name]
        self.ids[name] = {**was, "previous": was["id"], "updated": self.now_ms, **changed}

    # -- requests

    def init(self, name: str, timeout_ms: int, asked: Who | None) -> Steps:
        if name not in self.ids:
            is_new = True
            was: dict[str, Any] = {
                "status": "Empty", "id": self._take_id(), "epoch": -1, "last": -1, "next": -1,
                "client": 0, "partitions": None, "started": -1,
            }  # fmt: skip
        else:
            is_new, was = False, self.ids[name]
        if asked is not None and not is_new:
            is_older_id = asked[0] == was["previous"] and asked[1] >= LAST_EPOCH_OF_A_PRODUCER
            if asked[0] != was["id"] and not is_older_id:
                raise RefusedByModel("PRODUCER_FENCED")
        if was["status"].startswith("Prepare"):
            raise RefusedByModel("CONCURRENT_TRANSACTIONS")
        if was["status"] == "Ongoing":
            yield from self._fence(name)
            raise RefusedByModel("CONCURRENT_TRANSACTIONS")
        who, last = self._next_producer(was, asked)
        self.ids[name] = {
            **was, "previous": was["id"], "id": who[0], "epoch": who[1], "last": last,
            "timeout": timeout_ms, "status": "Empty", "partitions": None, "started": -1,
            "updated": self.now_ms,
        }  # fmt: skip
        yield
        return who

    def _next_producer(self, was: dict[str, Any], asked: Who | None) -> tuple[Who, int]:
        epoch = was["epoch"]
        if epoch >= LAST_EPOCH_OF_A_PRODUCER and (asked is None or asked[1] == epoch):
            return (self._take_id(), 0), -1 if asked is None else epoch
        if asked is None:
            return (was["id"], epoch + 1), -1
        if epoch in {-1, asked[1]}:
            return (was["id"], epoch + 1), epoch
        if asked[1] == was["last"]:
            return (was["id"], epoch), was["last"]
        raise RefusedByModel("PRODUCER_FENCED")

    def _mapped(self, name: str) -> dict[str, Any]:
        if name not in self.ids:
            raise RefusedByModel("INVALID_PRODUCER_ID_MAPPING")
        return self.ids[name]

    def _require_producer(self, was: dict[str, Any], who: Who) -> None:
        if who[0] != was["id"]:
            raise RefusedByModel("INVALID_PRODUCER_ID_MAPPING")
        if who[1] != was["epoch"]:
            raise RefusedByModel("PRODUCER_FENCED")

    def add(self, name: str, who: Who, partitions: Iterable[int], client: int) -> Steps:
        was = self._mapped(name)
        self._require_producer(was, who)
        if was["status"].startswith("Prepare"):
            raise RefusedByModel("CONCURRENT_TRANSACTIONS")
        is_going_on = was["status"] == "Ongoing"
        wanted = list(was["partitions"]) if is_going_on else []
        wanted += [each for each in dict.fromkeys(partitions) if each not in wanted]
        if is_going_on and wanted == was["partitions"]:
            return
        started = was["started"] if is_going_on else self.now_ms
        self._record(name, status="Ongoing", partitions=wanted, started=started, client=client)
        yield

    def send(self, who: Who, partition: int, values: list[bytes]) -> Steps:
        producer_id, epoch = who
        known = self.epochs[partition].get(producer_id, -1)
        if epoch < known:
            raise RefusedByModel("INVALID_PRODUCER_EPOCH")
        if epoch > known:
            self.sequences[partition][producer_id] = 0
        self.epochs[partition][producer_id] = epoch
        self.sequences[partition][producer_id] += len(values)
        self.open[partition].setdefault(producer_id, []).extend(values)
        yield

    def end(self, name: str, who: Who, *, is_commit: bool, client: int) -> Steps:
        was = self._mapped(name)
        status, verb = was["status"], "Commit" if is_commit else "Abort"
        if client < 2:
            self._require_producer(was, who)
            if status == f"Complete{verb}":
                return was["id"], was["epoch"]
        else:
            is_again = self._is_asked_again(was, who)
            if status == f"Complete{verb}" and is_again:
                return was["id"], was["epoch"]
            is_idle = status == "Empty" or status.startswith("Complete")
            if is_idle and not is_again and not is_commit:
                begun = {"partitions": [], "started": self.now_ms}
                yield from self._decide(name, "PrepareAbort", raises=True, **begun)
                return (yield from self._finish(name))
        if status == f"Prepare{verb}":
            raise RefusedByModel("CONCURRENT_TRANSACTIONS")
        if status != "Ongoing":
            raise RefusedByModel("INVALID_TXN_STATE")
        yield from self._decide(name, f"Prepare{verb}", raises=client == 2)
        return (yield from self._finish(name))

    def _is_asked_again(self, was: dict[str, Any], who: Who) -> bool:
        has_lost_id = (
            was["previous"] == who[0] and who[1] == LAST_EPOCH_OF_A_PRODUCER and was["epoch"] == 0
        )
        if who[0] != was["id"] and not has_lost_id:
            raise RefusedByModel("INVALID_PRODUCER_ID_MAPPING")
        behind = was["epoch"] - who[1]
        allowed = {
            "E": behind == 0,
            "O": behind == 0,
            "P": behind == 1,
            "C": behind in {0, 1} or has_lost_id,
        }
        if not allowed[was["status"][0]]:
            raise RefusedByModel("PRODUCER_FENCED")
        return behind == 1 or has_lost_id

    # -- by itself

    def _decide(self, name: str, status: str, *, raises: bool, **changed: Any) -> Steps:
        was = self.ids[name]
        changed |= {"status": status, "next": -1, "client": 2 if raises else 0}
        if raises:
            if was["epoch"] >= LAST_EPOCH_OF_A_PRODUCER:
                changed["next"] = self._take_id()
            changed["epoch"] = min(was["epoch"] + 1, MAX_EPOCH)
            changed["last"] = was["epoch"]
        self._record(name, **changed)
        yield

    def _fence(self, name: str) -> Steps:
        if self.version == 2:
            yield from self._decide(name, "PrepareAbort", raises=True)
        else:
            epoch = min(self.ids[name]["epoch"] + 1, MAX_EPOCH)
            yield from self._decide(name, "PrepareAbort", raises=False, epoch=epoch, last=-1)
        yield from self._finish(name)

    def _finish(self, name: str) -> Steps:
        was = self.ids[name]
        for partition in was["partitions"]:
            values = self.open[partition].pop(was["id"], [])
            if was["status"] == "PrepareCommit":
                self.committed[partition] += values
            if self.epochs[partition].get(was["id"]) != was["epoch"]:
                self.sequences[partition][was["id"]] = 0
            self.epochs[partition][was["id"]] = was["epoch"]
            yield
        who = (was["id"], was["epoch"])
        if was["client"] == 2 and was["next"] >= 0:
            who = (was["next"], 0)
        status = was["status"].replace("Prepare", "Complete")
        self._record(name, status=status, id=who[0], epoch=who[1], next=-1, partitions=[])
        yield
        return who

    def complete_prepared(self, order: list[str]) -> Steps:
        for name in order:
            if self.ids[name]["status"].startswith("Prepare"):
                yield from self._finish(name)

    def abort_late(self, order: list[str]) -> Steps:
        late = []
        for name in order:
            was = self.ids[name]
            is_late = was["started"] + was["timeout"] < self.now_ms
            if was["status"] == "Ongoing" and is_late and was["timeout"] != FOREVER_MS:
                late.append(name)
        for name in late:
            yield from self._fence(name)
        return late

    def expire(self, order: list[str]) -> Steps:
        late = []
        for name in order:
            was = self.ids[name]
            is_idle = was["status"] == "Empty" or was["status"].startswith("Complete")
            if is_idle and self.now_ms - was["updated"] >= self.expiration_ms:
                late.append(name)
        for name in late:
            del self.ids[name]
            yield
        return late

    def restart(self) -> None:
        """What is not in the records is forgotten; those of a cluster of version 0 have less."""
        forgotten = {"last": -1}
        if not self.version:
            forgotten |= {"previous": -1, "next": -1, "client": 0}
        self.ids = {name: {**was, **forgotten} for name, was in self.ids.items()}
