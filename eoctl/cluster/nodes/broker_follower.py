"""A broker of a played cluster as a follower: it fetches, appends, and cuts where it parts.

  REPL-2   it fetches, in one loop for each leader, from its log ends on
  REPL-10  it is told where it parts from its leader, and cuts; with `truncation hw` it cuts at its
           high watermark as it begins to follow, as before Kafka 0.11

Source: AbstractFetcherThread of Kafka 4.3.1.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from eoctl.cluster.nodes.broker_life import BrokerLife
from eoctl.cluster.world.messages import FetchPart
from eoctl.cluster.world.scheduler import MS_US, SECOND_US
from eoctl.cluster.world.settings import SOCKET_TIMEOUT_MS
from recovery.elections.rules import NO_LEADER
from recovery.running.divergence import cut_offset
from storage.formats.record_batch import NO_LEADER_EPOCH
from storage.producers.producer_state import AppendError
from storage.replication.leader import follower_high_watermark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eoctl.cluster.world.messages import FetchAnswer
    from eoctl.cluster.world.metadata import Led
    from eoctl.cluster.world.scheduler import Timer
    from storage.file_names import TopicPartition

FETCH_BACKOFF_US = SECOND_US  # replica.fetch.backoff.ms
SOCKET_TIMEOUT_US = SOCKET_TIMEOUT_MS * MS_US


class _Fetcher:
    """The loop that follows one leader."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.request = 0
        self.timer: Timer | None = None


class BrokerFollower(BrokerLife):
    """What a node does for partitions that others lead; that it answers them is `Broker`'s.

    Attributes:
        following: the leader of each of these.
    """

    peers: Mapping[int, BrokerFollower]

    def _begin(self) -> None:
        super()._begin()
        self.following: dict[TopicPartition, Led] = {}
        self._fetchers: dict[int, _Fetcher] = {}

    @abstractmethod
    def fetched(
        self,
        follower: BrokerFollower,
        life: int,
        request: int,
        parts: Mapping[TopicPartition, FetchPart],
    ) -> None:
        """A follower asks for more (FetchRequest)."""

    def _begin_to_follow(self, key: TopicPartition, led: Led) -> None:
        self.following[key] = led
        if led.leader < 0:
            return
        if self._settings.truncation == "hw":
            self._cut(key, self.high_watermarks[key])
        fetcher = self._fetchers.get(led.leader)
        if fetcher is None:
            fetcher = self._fetchers[led.leader] = _Fetcher(led.leader)
        self._fetch(fetcher)

    def _cut(self, key: TopicPartition, offset: int) -> None:
        log = self.log(key)
        before = log.end_offset
        end_offset = log.cut(offset)
        self.high_watermarks[key] = min(self.high_watermarks[key], end_offset)
        if end_offset < before:
            words = f"{self.name} cuts its log of {key.topic}-{key.partition} from {before} to"
            self._trace.tell(
                "cut", f"{words} {end_offset}", self.number, key=key, offset=end_offset
            )

    def _fetch(self, fetcher: _Fetcher) -> None:
        """Ask a leader for more of all that it leads."""
        fetcher.request += 1
        if fetcher.timer is not None:
            fetcher.timer.call_off()
            fetcher.timer = None
        parts = {
            key: self._part(key, led)
            for key, led in self.following.items()
            if led.leader == fetcher.leader
        }
        if not parts:
            self._fetchers.pop(fetcher.leader, None)
            return
        leader = self.peers[fetcher.leader]
        delay_us = SOCKET_TIMEOUT_US if leader.is_running else FETCH_BACKOFF_US
        fetcher.timer = self._scheduler.after(
            delay_us, self._fetch_again, self.incarnation, fetcher, fetcher.request
        )
        self._network.send(
            self, leader, leader.fetched, self, self.incarnation, fetcher.request, parts
        )

    def _part(self, key: TopicPartition, led: Led) -> FetchPart:
        log = self.log(key)
        last_epoch: int | None = log.last_epoch
        if last_epoch == NO_LEADER_EPOCH or self._settings.truncation == "hw":
            last_epoch = None
        return FetchPart(log.end_offset, last_epoch, led.leadership.leader_epoch)

    def _fetch_again(self, life: int, fetcher: _Fetcher, request: int) -> None:
        is_present = self._fetchers.get(fetcher.leader) is fetcher and fetcher.request == request
        if self.is_running and self.incarnation == life and is_present:
            self._fetch(fetcher)

    def peer_ended(self, number: int) -> None:
        """The connection to a broker was reset."""
        fetcher = self._fetchers.get(number)
        if fetcher is not None:
            self._back_off(fetcher)

    def _back_off(self, fetcher: _Fetcher) -> None:
        """Ask again later, and not before."""
        if fetcher.timer is not None:
            fetcher.timer.call_off()
        fetcher.timer = self._scheduler.after(
            FETCH_BACKOFF_US, self._fetch_again, self.incarnation, fetcher, fetcher.request
        )

    def given(
        self, leader: int, request: int, answers: Mapping[TopicPartition, FetchAnswer]
    ) -> None:
        """A leader has answered a fetch."""
        fetcher = self._fetchers.get(leader)
        if fetcher is None or fetcher.request != request:
            return
        has_error = False
        for key, answer in answers.items():
            led = self.following.get(key)
            if led is None or led.leader != leader:
                continue
            if answer.error:
                has_error = True
                continue
            self._take(key, answer)
        if has_error:
            self._back_off(fetcher)
        else:
            self._fetch(fetcher)

    def _take(self, key: TopicPartition, answer: FetchAnswer) -> None:
        log = self.log(key)
        if answer.diverging is not None:
            offset = self.high_watermarks[key]
            if answer.diverging.end_offset >= 0:
                offset = cut_offset(log.epochs, log.end_offset, answer.diverging)
            self._cut(key, offset)
            return
        try:
            log.follow(answer.batches)
        except AppendError as problem:  # AbstractFetcherThread.markPartitionFailed
            self.following[key] = self.following[key]._replace(leader=NO_LEADER)
            words = f"{self.name} cannot follow {key.topic}-{key.partition} any more"
            self._trace.tell("failed", f"{words}: {problem.message}", self.number, key=key)
            return
        self.high_watermarks[key] = follower_high_watermark(answer.high_watermark, log.end_offset)
