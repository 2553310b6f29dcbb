"""Controller of a simulated cluster: broker sessions, elections, ISR changes, a metadata log.

There is one controller, which never fails. Its decisions are real records in a real
`__cluster_metadata-0`, and follow `recovery.elections.rules`.

- REPL-8: the leader is the first replica in order that runs and is in the ISR. Each new leader, and
  the loss of a leader, raises the leader epoch. Every change raises the partition epoch. The
  controller refuses a leader's request from other epochs.
- REPL-9: an unclean election, if it is allowed or requested.
- REPL-11: with ELR, a broker without a clean stop is removed from ISR and ELR.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.lab.environment import metadata
from eoctl.lab.environment.leader import Leadership
from eoctl.lab.environment.metadata import Led, MetadataView
from eoctl.lab.environment.network import MS_US
from eoctl.lab.environment.settings import (
    CONTROLLER_ID,
    CONTROLLER_NAME,
    METADATA_DIRECTORY,
    START_MS,
)
from eoctl.lab.nodes.running_log import LogTerms, RunningLog
from recovery.elections import rules
from recovery.elections.rules import NO_LEADER, PartitionState, Terms
from storage.dirs.cluster_image import TOPIC_RESOURCE, load_cluster_image
from storage.dirs.partition import Partition
from storage.dirs.topic_settings import MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION, LogConfig
from storage.errors import RefusedError
from storage.file_names import TRANSACTION_STATE_TOPIC, TopicPartition
from storage.files.fsio import FileSystem
from storage.writing.partition_store import FlushPolicy
from storage.writing.record_builder import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eoctl.lab.environment.leader import IsrChange
    from eoctl.lab.environment.network import EventTrace, Network, Scheduler, SimulatedMember, Timer
    from eoctl.lab.environment.settings import PlaySettings


FENCED_LEADER_EPOCH = "FENCED_LEADER_EPOCH"
INVALID_UPDATE_VERSION = "INVALID_UPDATE_VERSION"
INELIGIBLE_REPLICA = "INELIGIBLE_REPLICA"
CONTROLLER_EPOCH = 1  # constant, as no other controller is elected


class _Registration:
    """Registration of a broker."""

    def __init__(self, broker: SimulatedMember, broker_epoch: int) -> None:
        self.broker = broker
        self.broker_epoch = broker_epoch
        self.incarnation = broker.incarnation
        self.is_fenced = True
        self.session: Timer | None = None


class Controller:
    """Controller that elects leaders and informs all brokers."""

    name = CONTROLLER_NAME
    incarnation = 0
    is_running = True

    def __init__(
        self,
        root: Path,
        cluster: str,
        settings: PlaySettings,
        scheduler: Scheduler,
        network: Network,
        trace: EventTrace,
    ) -> None:
        self._settings = settings
        self._scheduler = scheduler
        self._network = network
        self._trace = trace
        self._cluster = cluster
        self._log = open_metadata_log(root, lambda: START_MS + scheduler.now_us // MS_US)
        self._brokers: dict[int, _Registration] = {}
        self._states: dict[TopicPartition, PartitionState] = {}
        self._epochs: dict[TopicPartition, tuple[int, int]] = {}
        self._recovering: set[TopicPartition] = set()
        self._version = 0
        self._load(Path(root, CONTROLLER_NAME, METADATA_DIRECTORY))

    def _load(self, path: Path) -> None:
        image = load_cluster_image(Partition(self._log.directory))
        if not image.is_complete or self._settings.topic not in image.topics:
            problem = str(image.problems[0]) if image.problems else "records that are not known"
            raise RefusedError(f"{path}: the cluster's metadata cannot be read: {problem}")
        topic = image.topics[self._settings.topic]
        self._topic_id = topic.topic_id
        for number, each in topic.partitions.items():
            key = TopicPartition(topic.name, number)
            self._states[key] = PartitionState(
                replicas=each.replicas,
                isr=each.isr,
                leader=each.leader,
                elr=each.elr,
                last_known=each.last_known_elr,
            )
            self._epochs[key] = (each.leader_epoch, each.partition_epoch)
            if each.is_recovering:
                self._recovering.add(key)
        configs = image.configs.get((TOPIC_RESOURCE, topic.name), {})
        self.min_insync = int(configs.get(MIN_INSYNC_REPLICAS, "1"))
        self.is_unclean = configs.get(UNCLEAN_LEADER_ELECTION) == "true"
        self._known_before = {*image.brokers}
        self._has_transactions = TRANSACTION_STATE_TOPIC in image.topics

    @property
    def terms(self) -> Terms:
        """Settings for elections."""
        least = min(self.min_insync, self._settings.replication_factor)
        return Terms(least, self.is_unclean, self._settings.has_elr)

    @property
    def _running(self) -> set[int]:
        return {number for number, each in self._brokers.items() if not each.is_fenced}

    def leader(self, key: TopicPartition) -> int:
        """Return the leader of a partition, or NO_LEADER."""
        return self._states[key].leader

    def led(self, key: TopicPartition) -> Led:
        """Return the current state of a partition."""
        state = self._states[key]
        leader_epoch, partition_epoch = self._epochs[key]
        leadership = Leadership(
            replicas=state.replicas,
            isr=state.isr,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
        )
        return Led(
            leader=state.leader,
            leadership=leadership,
            elr=state.elr,
            last_known=state.last_known,
            is_recovering=key in self._recovering,
        )

    @property
    def view(self) -> MetadataView:
        """The current metadata."""
        return MetadataView(
            version=self._version,
            partitions={key: self.led(key) for key in self._states},
            fenced=frozenset(range(self._settings.nodes)) - self._running,
            min_insync=self.min_insync,
            incarnations={number: each.incarnation for number, each in self._brokers.items()},
        )

    def make_transaction_topic(self) -> None:
        """Create `__transaction_state` for a coordinator, unless it exists.

        It is next to the metadata log, and brokers do not need to know it. Raises AccessError.
        """
        if self._has_transactions:
            return
        values = metadata.transaction_topic(self._cluster, CONTROLLER_ID)
        append_metadata(self._log, values, START_MS + self._scheduler.now_us // MS_US)
        self._has_transactions = True

    # -- brokers

    def register(
        self, broker: SimulatedMember, *, is_clean: bool, previous_epoch: int | None
    ) -> None:
        """Register a started broker (BrokerRegistrationRequest)."""
        number = broker.number
        known = self._brokers.get(number)
        if known is not None and known.incarnation == broker.incarnation:  # the answer was lost
            self._network.send(self, broker, broker.registered, known.broker_epoch, self.view)
            return
        if known is not None and known.session is not None:
            known.session.call_off()
        broker_epoch = self._log.end_offset
        # Its report of a clean stop counts only for the known registration.
        is_clean = is_clean and (known is None or previous_epoch == known.broker_epoch)
        self._brokers[number] = _Registration(broker, broker_epoch)
        identity = metadata.derived_id(self._cluster, number, broker_epoch)
        log_dir = metadata.derived_id(self._cluster, "directory", number)
        values = [metadata.register_record(number, identity, broker_epoch, log_dir)]
        # Partitions are created once all brokers exist, so the first start of a broker removes
        # nothing.
        if known is not None or number in self._known_before:
            values += self._changed(
                lambda state: rules.registered(
                    state, self.terms, number, self._running, is_clean=is_clean
                )
            )
        self._write(values)
        self._network.send(self, broker, broker.registered, broker_epoch, self.view)

    def heartbeat(self, broker: SimulatedMember, broker_epoch: int) -> None:
        """Take a heartbeat of a broker. The first heartbeat unfences the broker."""
        found = self._brokers.get(broker.number)
        if found is None or found.broker_epoch != broker_epoch:
            return
        if found.session is not None:
            found.session.call_off()
        found.session = self._scheduler.after(
            self._settings.session_timeout_ms * MS_US, self._expired, broker.number, broker_epoch
        )
        if found.is_fenced:
            found.is_fenced = False
            values = [metadata.fencing_record(broker.number, broker_epoch, is_fenced=False)]
            running = self._running - {broker.number}
            values += self._changed(
                lambda state: rules.unfenced(state, self.terms, broker.number, running)
            )
            self._write(values)
        else:
            self._network.send(self, broker, broker.learn, self.view)

    def _expired(self, number: int, broker_epoch: int) -> None:
        found = self._brokers[number]
        if found.broker_epoch == broker_epoch and not found.is_fenced:
            self._trace.report(
                "session", f"the controller has not heard of broker {number}", number
            )
            self._fence(number)

    def _fence(self, number: int) -> None:
        found = self._brokers[number]
        found.is_fenced = True
        values = [metadata.fencing_record(number, found.broker_epoch, is_fenced=True)]
        values += self._changed(
            lambda state: rules.fenced(state, self.terms, number, self._running)
        )
        self._write(values)

    def leave(self, broker: SimulatedMember, broker_epoch: int) -> None:
        """Give a broker's partitions to other leaders, and let it stop (controlled shutdown)."""
        found = self._brokers.get(broker.number)
        if found is None or found.broker_epoch != broker_epoch:
            return
        if found.session is not None:
            found.session.call_off()
        self._fence(broker.number)
        self._network.send(self, broker, broker.may_stop)

    # -- partitions

    def alter(self, broker: SimulatedMember, key: TopicPartition, change: IsrChange) -> None:
        """Take a leader's ISR change (AlterPartition), and always answer it."""
        state = self._states[key]
        error = ""
        if state.leader != broker.number or change.leader_epoch != self._epochs[key][0]:
            error = FENCED_LEADER_EPOCH
        elif change.partition_epoch != self._epochs[key][1]:
            error = INVALID_UPDATE_VERSION
        elif not {*change.isr} <= self._running:
            error = INELIGIBLE_REPLICA
        else:
            running = self._running
            self._write(
                self._changed(
                    lambda each: rules.altered(each, self.terms, change.isr, running), only=key
                )
            )
        self._network.send(self, broker, broker.altered, key, change, error, self.led(key))

    def set_min_insync(self, value: int) -> None:
        """Set min.insync.replicas."""
        self.min_insync = value
        self._write(
            [metadata.setting_record(self._settings.topic, MIN_INSYNC_REPLICAS, str(value))]
        )

    def set_unclean(self, *, is_allowed: bool) -> None:
        """Set unclean.leader.election.enable, and elect missing leaders if it is allowed."""
        self.is_unclean = is_allowed
        text = str(is_allowed).lower()
        values = [metadata.setting_record(self._settings.topic, UNCLEAN_LEADER_ELECTION, text)]
        if is_allowed:
            values += self._elections()
        self._write(values)

    def elect_uncleanly(self) -> None:
        """Elect leaders for partitions without a leader, as kafka-leader-election does."""
        self._write([*self._elections()])

    def _elections(self) -> Iterable[bytes]:
        running = self._running
        return self._changed(lambda state: rules.elected_uncleanly(state, self.terms, running))

    def _changed(
        self,
        change: Callable[[PartitionState], PartitionState],
        *,
        only: TopicPartition | None = None,
    ) -> list[bytes]:
        """Change partitions, and return the records of the changes."""
        values = []
        for key in [*self._states] if only is None else [only]:
            before, old = self._states[key], self.led(key)
            after = change(before)
            if (after.isr, after.leader, after.elr, after.last_known) == (
                (before.isr, before.leader, before.elr, before.last_known)
            ):
                continue
            leader_epoch, partition_epoch = self._epochs[key]
            has_new_leader = after.leader != before.leader
            self._epochs[key] = self.next_epochs(
                leader_epoch, partition_epoch, has_new_leader=has_new_leader
            )
            self._states[key] = after
            if has_new_leader and after.is_unclean:
                self._recovering.add(key)
            elif only is not None:  # the leader makes a request, so it has recovered
                self._recovering.discard(key)
            values.append(metadata.change_record(old, self.led(key), key.partition, self._topic_id))
            self._report(key, before, after)
        return values

    @staticmethod
    def next_epochs(
        leader_epoch: int, partition_epoch: int, *, has_new_leader: bool
    ) -> tuple[int, int]:
        """Return leader epoch and partition epoch after a change."""
        return leader_epoch + has_new_leader, partition_epoch + 1

    def _report(self, key: TopicPartition, before: PartitionState, after: PartitionState) -> None:
        name = f"{key.topic}-{key.partition}"
        epoch = self._epochs[key][0]
        if after.leader != before.leader:
            if after.leader == NO_LEADER:
                words = f"{name} has no leader any more (epoch {epoch}), ISR {_listed(after.isr)}"
            else:
                how = " in an unclean election" if after.is_unclean else ""
                words = (
                    f"broker {after.leader} is elected leader of {name}{how} (epoch {epoch}), ISR"
                    f" {_listed(after.isr)}"
                )
            self._trace.report("election", words, after.leader, key=key)
        elif after.isr != before.isr:
            words = f"the ISR of {name} is {_listed(after.isr)}, was {_listed(before.isr)}"
            self._trace.report("isr", words, after.leader, key=key)

    def _write(self, values: Iterable[bytes]) -> None:
        """Write the records of decisions, then inform all brokers."""
        append_metadata(self._log, values, START_MS + self._scheduler.now_us // MS_US)
        self._version += 1
        view = self.view
        for _, each in sorted(self._brokers.items()):
            self._network.send(self, each.broker, each.broker.learn, view)

    def beginning(self) -> list[bytes]:
        """Return the records with which another controller can continue."""
        return [
            *metadata.beginning(
                self._settings,
                self._cluster,
                {key.partition: self.led(key) for key in self._states},
                min_insync=self.min_insync,
                is_unclean=self.is_unclean,
            )
        ]

    def close(self) -> None:
        """Close the metadata log."""
        self._log.close()


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers)) or "empty"


def open_metadata_log(root: Path, now_ms: Callable[[], int]) -> RunningLog:
    """Open `__cluster_metadata-0` of the controller. Raises as `RunningLog`."""
    terms = LogTerms(fs=FileSystem(), config=LogConfig(), now_ms=now_ms, flush=FlushPolicy.SEGMENT)
    log = RunningLog(str(Path(root, CONTROLLER_NAME, METADATA_DIRECTORY)), terms)
    log.begin_epoch(CONTROLLER_EPOCH)
    return log


def append_metadata(log: RunningLog, values: Iterable[bytes], timestamp_ms: int) -> None:
    """Append records of the controller as one batch."""
    builder = BatchBuilder()
    for each in values:
        builder.add(None, each, timestamp_ms)
    if len(builder):
        log.append(builder.build())
