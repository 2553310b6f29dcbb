"""Life of a broker: it starts on its log dir, sends heartbeats, and is killed or stopped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from eoctl.lab.environment.leader import follower_high_watermark
from eoctl.lab.environment.network import MS_US, SECOND_US, FetchPart
from eoctl.lab.environment.settings import SOCKET_TIMEOUT_MS, START_MS
from eoctl.lab.nodes.power_loss import ForgettingFileSystem
from eoctl.lab.nodes.running_log import LogTerms, RunningLogDir, cut_offset
from recovery.elections.rules import NO_LEADER
from storage.dirs.topic_settings import LogConfig
from storage.formats.record_batch import NO_LEADER_EPOCH
from storage.producers.producer_state import AppendError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from eoctl.lab.environment.leader import IsrChange
    from eoctl.lab.environment.metadata import Led, MetadataView
    from eoctl.lab.environment.network import EventTrace, FetchAnswer, Network, Scheduler, Timer
    from eoctl.lab.environment.settings import PlaySettings
    from eoctl.lab.nodes.controller import Controller
    from eoctl.lab.nodes.running_log import RunningLog
    from storage.file_names import TopicPartition


HEARTBEAT_US = 2 * SECOND_US
HIGH_WATERMARK_CHECKPOINT_US = 5 * SECOND_US
RECOVERY_POINT_CHECKPOINT_US = 60 * SECOND_US
WRITEBACK_US = 30 * SECOND_US  # after which the operating system writes by itself


class BrokerLife(ABC):
    """A node as a process. `Broker` implements the abstract methods.

    Attributes:
        number: node.id.
        incarnation: number of its starts.
        peers: all brokers.
        clients: callbacks that get the number of a broker whose connections were reset.
        high_watermarks: of its partitions, outdated for partitions that it leads.
        view: the latest metadata from the controller.
        fs: its disk.
    """

    def __init__(
        self,
        number: int,
        path: str,
        hosted: Iterable[TopicPartition],
        settings: PlaySettings,
        scheduler: Scheduler,
        network: Network,
        trace: EventTrace,
    ) -> None:
        self.number = number
        self.name = f"broker {number}"
        self.path = path
        self.is_running = False
        self.incarnation = 0
        self.peers: Mapping[int, BrokerLife] = {}
        self.controller: Controller | None = None
        self.clients: list[Callable[[int], None]] = []
        self._hosted = tuple(hosted)
        self._settings = settings
        self._scheduler = scheduler
        self._network = network
        self._trace = trace
        self.fs = ForgettingFileSystem(path, lambda: scheduler.now_us)
        self._begin()

    def _begin(self) -> None:
        """Clear the memory, which ends with the process."""
        self._dir: RunningLogDir | None = None
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.view: MetadataView | None = None
        self._broker_epoch = -1

    # -- methods of `Broker`

    @abstractmethod
    def learn(self, view: MetadataView) -> None:
        """Apply the cluster's metadata."""

    @abstractmethod
    def altered(self, key: TopicPartition, change: IsrChange, error: str, led: Led) -> None:
        """Handle the controller's answer to an ISR change."""

    @abstractmethod
    def peer_ended(self, number: int) -> None:
        """Handle the reset of the connection to a broker."""

    @abstractmethod
    def high_watermark(self, key: TopicPartition) -> int:
        """Return the high watermark of a partition, as far as it knows."""

    @abstractmethod
    def _shrink(self) -> None:
        """Remove followers that do not keep up from the ISR."""

    @abstractmethod
    def _call_off(self) -> None:
        """Cancel all timers and answers."""

    def log(self, key: TopicPartition) -> RunningLog:
        """Return the log of a partition, while the broker runs."""
        assert self._dir is not None
        return self._dir.replicas[key]

    # -- life

    def start(self) -> None:
        """Start on the current log dir.

        Raises:
            RefusedError, AccessError: no broker could start on it.
        """
        assert self.controller is not None
        config = LogConfig(segment_bytes=self._settings.segment_bytes)
        terms = LogTerms(fs=self.fs, config=config, now_ms=self._now_ms, flush=self._settings.flush)
        self._dir = RunningLogDir(self.path, self._hosted, terms)
        self.is_running = True
        self.incarnation += 1
        checkpointed = self._dir.high_watermarks
        for key in self._hosted:
            log = self.log(key)
            self.high_watermarks[key] = min(checkpointed.get(key, 0), log.end_offset)
            if log.started:
                self._trace.report("lost", f"{self.name}: {log.started}", self.number, key=key)
        how = "after a clean stop" if self._dir.was_clean else "and recovers its logs"
        self._trace.report("start", f"{self.name} starts {how}", self.number)
        # Timers of an earlier life end by themselves.
        life = self.incarnation
        self._repeat(life, HIGH_WATERMARK_CHECKPOINT_US, self._checkpoint)
        self._repeat(life, RECOVERY_POINT_CHECKPOINT_US, self._dir.checkpoint_recovery_points)
        self._repeat(life, self._settings.lag_time_max_ms * MS_US // 2, self._shrink)
        controller = self.controller
        was_clean, stopped_epoch = self._dir.was_clean, self._dir.stopped_epoch
        self._until_registered(
            life,
            lambda: controller.register(self, is_clean=was_clean, previous_epoch=stopped_epoch),
        )

    def _until_registered(self, life: int, register: Callable[[], None]) -> None:
        """Repeat the registration until the controller answers, which may be out of reach."""
        if self.incarnation != life or not self.is_running or self._broker_epoch >= 0:
            return
        assert self.controller is not None
        self._network.send(self, self.controller, register)
        self._scheduler.after(HEARTBEAT_US, self._until_registered, life, register)

    def registered(self, broker_epoch: int, view: MetadataView) -> None:
        """Take the broker epoch, and send heartbeats from now on."""
        self._broker_epoch = broker_epoch
        self.learn(view)
        self._repeat(self.incarnation, HEARTBEAT_US, self._heartbeat)
        self._heartbeat()

    def _heartbeat(self) -> None:
        assert self.controller is not None
        self._network.send(
            self, self.controller, self.controller.heartbeat, self, self._broker_epoch
        )

    def _repeat(self, life: int, period_us: int, action: Callable[[], None]) -> None:
        def again() -> None:
            if self.is_running and self.incarnation == life:
                action()
                self._scheduler.after(period_us, again)

        self._scheduler.after(period_us, again)

    def _now_ms(self) -> int:
        return START_MS + self._scheduler.now_us // MS_US

    def _checkpoint(self) -> None:
        assert self._dir is not None
        self._dir.checkpoint_high_watermarks(self._all_high_watermarks())
        self.fs.write_back(self._scheduler.now_us - WRITEBACK_US)

    def _all_high_watermarks(self) -> dict[TopicPartition, int]:
        return {key: self.high_watermark(key) for key in self._hosted}

    def kill(self) -> None:
        """End the process at once. Written data stays, as the operating system has it."""
        if not self.is_running:
            return
        assert self._dir is not None
        self._dir.abandon()
        self._end()

    def _end(self) -> None:
        self.is_running = False
        self._call_off()
        self._begin()
        for report in self.clients:
            report(self.number)
        for _, peer in sorted(self.peers.items()):
            if peer is not self and peer.is_running:
                peer.peer_ended(self.number)

    def lose_power(self) -> None:
        """End the process, and forget some of its unsynced changes."""
        self.kill()
        for each in self.fs.lose_power(self._scheduler.draw):
            name = each.path.removeprefix(self.path + "/")
            if name.endswith(".log"):
                words = f"the disk of {self.name} has lost {each.lost} of {name}"
                self._trace.report("lost", words, self.number)

    def stop(self) -> None:
        """Stop cleanly. If the controller answers, other brokers lead first."""
        if not self.is_running:
            return
        assert self.controller is not None
        self._network.send(self, self.controller, self.controller.leave, self, self._broker_epoch)
        self._scheduler.after(5 * SECOND_US, self._stop_anyway, self.incarnation)

    def _stop_anyway(self, life: int) -> None:
        if self.incarnation == life and self.is_running:
            self.may_stop()

    def may_stop(self) -> None:
        """Close the log dir."""
        assert self._dir is not None
        self._dir.close(self._all_high_watermarks(), self._broker_epoch)
        self._end()


# -- a broker as a follower: it fetches, appends, and truncates where it diverges.
#
#   REPL-2: it fetches from its log end offsets, in one loop for each leader.
#   REPL-10: its leader reports where it diverges, and it truncates there. With `truncation hw` it
#     truncates to its high watermark when it begins to follow, as before Kafka 0.11.
#
# Source: AbstractFetcherThread of Kafka 4.3.1.


FETCH_BACKOFF_US = SECOND_US  # replica.fetch.backoff.ms
SOCKET_TIMEOUT_US = SOCKET_TIMEOUT_MS * MS_US


class _Fetcher:
    """Loop that follows one leader."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.request = 0
        self.timer: Timer | None = None


class BrokerFollower(BrokerLife):
    """A node as a follower of partitions. `Broker` is the node as a leader.

    Attributes:
        following: state of each followed partition, with its leader.
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
        """Handle a follower's fetch (FetchRequest)."""

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
            self._trace.report(
                "cut", f"{words} {end_offset}", self.number, key=key, offset=end_offset
            )

    def _fetch(self, fetcher: _Fetcher) -> None:
        """Fetch all partitions that a leader leads."""
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
        """Handle the reset of the connection to a broker."""
        fetcher = self._fetchers.get(number)
        if fetcher is not None:
            self._back_off(fetcher)

    def _back_off(self, fetcher: _Fetcher) -> None:
        """Fetch again later, and not before."""
        if fetcher.timer is not None:
            fetcher.timer.call_off()
        fetcher.timer = self._scheduler.after(
            FETCH_BACKOFF_US, self._fetch_again, self.incarnation, fetcher, fetcher.request
        )

    def given(
        self, leader: int, request: int, answers: Mapping[TopicPartition, FetchAnswer]
    ) -> None:
        """Handle a leader's answer to a fetch."""
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
            self._trace.report("failed", f"{words}: {problem.message}", self.number, key=key)
            return
        self.high_watermarks[key] = follower_high_watermark(answer.high_watermark, log.end_offset)
