"""The cells of the guarantee matrix: what is set, and what befalls the cluster.

Some settings are the same by construction, and are tried once (`canonical`):
  - with acks 0 or 1 a producer is not idempotent
  - with one replica min.insync.replicas counts as 1, and nobody follows, so nobody cuts
  - nothing is forgotten where only processes end or links are cut: with `fsync never` and `batch`
    the same happens, to the last message
Others no release has together, and they are no cells: cutting at the high watermark ended with
Kafka 0.11, which brought idempotent producers; ELR is of 4.0.
Each cluster has as many brokers as replicas, and its producer one batch in flight.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.cluster.guarantees.explore import faults_of_seed
from eoctl.cluster.world.settings import PlaySettings, RunSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

# What befalls the cluster -> the classes of faults that are drawn from.
FAULTS = {
    "kill-one": ("kill-one",),
    "kill-in-turn": ("kill-in-turn", "rejoin", "first-back"),
    "partition-leader": ("partition-leader",),
    "kill-then-power": ("kill-then-power",),
    "stop-then-power": ("stop-then-power",),
    "power-all": ("power-all",),
}
_WITH_POWER = frozenset({"kill-then-power", "stop-then-power", "power-all"})
# So that no course waits for an hour for brokers that nobody starts.
ENDING = "start all at 50s, heal at 50s"
SPARSE = RunSettings(records=60, rate=2, in_flight=1)
# Every other seed sends them in bursts: something is under way whenever a fault comes.
BURST_RECORDS = 6
# One death is enough, if it comes while a follower's next fetch is on its way: in a burst.
DENSE = RunSettings(records=300, rate=1000, in_flight=1)


class GuaranteeCell(NamedTuple):
    """One cell; the names are those of the options."""

    acks: str
    idempotence: bool
    min_insync_replicas: int
    replication_factor: int
    unclean: bool
    truncation: str
    elr: bool
    fsync: str
    faults: str

    @property
    def canonical(self) -> GuaranteeCell:
        """The cell that is tried for it."""
        cell = self
        if cell.replication_factor == 1:
            cell = cell._replace(min_insync_replicas=1, truncation="epoch")
        if cell.faults not in _WITH_POWER:
            cell = cell._replace(fsync="never")
        return cell

    @property
    def settings(self) -> PlaySettings:
        """Of the cluster."""
        return PlaySettings(
            nodes=self.replication_factor,
            replication_factor=self.replication_factor,
            min_insync=self.min_insync_replicas,
            is_unclean=self.unclean,
            has_elr=self.elr,
            truncation=self.truncation,
            fsync=self.fsync,
        )

    @property
    def run(self) -> RunSettings:
        """Without seed and faults."""
        acks = -1 if self.acks == "all" else int(self.acks)
        run = DENSE if self.faults == "kill-one" else SPARSE
        return run._replace(acks=acks, is_idempotent=self.idempotence)

    def run_of_seed(self, seed: int) -> RunSettings:
        """The run of a seed, which draws the faults."""
        faults = faults_of_seed(seed, FAULTS[self.faults], self.settings)
        burst = BURST_RECORDS if seed % 2 else 1
        return self.run._replace(seed=seed, faults=f"{faults}, {ENDING}", burst=burst)


# Each dimension, and its values in their order.
DIMENSIONS: dict[str, tuple[Any, ...]] = {
    "acks": ("0", "1", "all"),
    "idempotence": (False, True),
    "min_insync_replicas": (1, 2),
    "replication_factor": (1, 2, 3),
    "unclean": (False, True),
    "truncation": ("epoch", "hw"),
    "elr": (False, True),
    "fsync": ("never", "batch"),
    "faults": tuple(FAULTS),
}
# What the rest is where nothing is said of it: Kafka's own defaults, three replicas.
DEFAULTS: dict[str, Any] = {
    "acks": "all",
    "idempotence": True,
    "min_insync_replicas": 1,
    "replication_factor": 3,
    "unclean": False,
    "truncation": "epoch",
    "elr": True,
    "fsync": "never",
}


def all_cells() -> Iterator[GuaranteeCell]:
    """Every cell that there is."""
    for values in product(*DIMENSIONS.values()):
        cell = GuaranteeCell(**dict(zip(DIMENSIONS, values, strict=True)))
        is_old = cell.truncation == "hw" and (cell.idempotence or cell.elr)
        if (cell.acks == "all" or not cell.idempotence) and not is_old:
            yield cell


def tried_cells() -> list[GuaranteeCell]:
    """Those that differ."""
    return [*dict.fromkeys(each.canonical for each in all_cells())]
