"""The life of a broker: started on its log dir, heard of by the controller, killed or stopped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from eoctl.cluster.world.scheduler import MS_US, SECOND_US
from eoctl.cluster.world.settings import START_MS
from recovery.running.log_dir import RunningLogDir
from recovery.running.running_log import LogTerms
from storage.dirs.log_config import LogConfig
from storage.files.forgetting import ForgettingFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from eoctl.cluster.nodes.controller import Controller
    from eoctl.cluster.world.metadata import Led, MetadataView
    from eoctl.cluster.world.network import Network
    from eoctl.cluster.world.scheduler import Scheduler
    from eoctl.cluster.world.settings import PlaySettings
    from eoctl.cluster.world.trace import EventTrace
    from recovery.running.running_log import RunningLog
    from storage.file_names import TopicPartition
    from storage.replication.leader import IsrChange

HEARTBEAT_US = 2 * SECOND_US
HIGH_WATERMARK_CHECKPOINT_US = 5 * SECOND_US
RECOVERY_POINT_CHECKPOINT_US = 60 * SECOND_US
WRITEBACK_US = 30 * SECOND_US  # after which the operating system writes by itself


class BrokerLife(ABC):
    """A node as a process; what it does while it runs is `Broker`'s: the abstract methods here.

    Attributes:
        number: node.id.
        incarnation: counts its starts.
        peers: all brokers.
        clients: are told the number of a broker whose connections were reset.
        high_watermarks: of its partitions, those that it leads apart.
        view: what the controller has told it.
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
        """Know nothing: what is in memory ends with the process."""
        self._dir: RunningLogDir | None = None
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.view: MetadataView | None = None
        self._broker_epoch = -1

    # -- what `Broker` does

    @abstractmethod
    def learn(self, view: MetadataView) -> None:
        """Take over the cluster's metadata."""

    @abstractmethod
    def altered(self, key: TopicPartition, change: IsrChange, error: str, led: Led) -> None:
        """The controller has answered a change of the ISR."""

    @abstractmethod
    def peer_ended(self, number: int) -> None:
        """The connection to a broker was reset."""

    @abstractmethod
    def high_watermark(self, key: TopicPartition) -> int:
        """What it knows of the high watermark of a partition."""

    @abstractmethod
    def _shrink(self) -> None:
        """Take out of the ISR who does not keep up."""

    @abstractmethod
    def _call_off(self) -> None:
        """Nobody waits any more for what it would have done."""

    def log(self, key: TopicPartition) -> RunningLog:
        """The log of a partition, while it runs."""
        assert self._dir is not None
        return self._dir.replicas[key]

    # -- life

    def start(self) -> None:
        """Start on what is there.

        Raises:
            RefusedError, AccessError: no broker could.
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
                self._trace.tell("lost", f"{self.name}: {log.started}", self.number, key=key)
        how = "after a clean stop" if self._dir.was_clean else "and recovers its logs"
        self._trace.tell("start", f"{self.name} starts {how}", self.number)
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
        """Ask again until the controller answers: it may be out of reach."""
        if self.incarnation != life or not self.is_running or self._broker_epoch >= 0:
            return
        assert self.controller is not None
        self._network.send(self, self.controller, register)
        self._scheduler.after(HEARTBEAT_US, self._until_registered, life, register)

    def registered(self, broker_epoch: int, view: MetadataView) -> None:
        """The controller knows it; from now on it is heard of."""
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
        """End it at once; what was written stays, as the operating system has it."""
        if not self.is_running:
            return
        assert self._dir is not None
        self._dir.abandon()
        self._end()

    def _end(self) -> None:
        self.is_running = False
        self._call_off()
        self._begin()
        for tell in self.clients:
            tell(self.number)
        for _, peer in sorted(self.peers.items()):
            if peer is not self and peer.is_running:
                peer.peer_ended(self.number)

    def lose_power(self) -> None:
        """End it, and forget some of what was not synced."""
        self.kill()
        for each in self.fs.lose_power(self._scheduler.draw):
            name = each.path.removeprefix(self.path + "/")
            if name.endswith(".log"):
                words = f"the disk of {self.name} has lost {each.lost} of {name}"
                self._trace.tell("lost", words, self.number)

    def stop(self) -> None:
        """Stop cleanly: others lead first, if the controller can be asked."""
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
