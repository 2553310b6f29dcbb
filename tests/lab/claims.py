"""Claims of docs/replication.md: each with its cell of the matrix, and the expected result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.lab.guarantees.matrix import DEFAULTS, GuaranteeCell

if TYPE_CHECKING:
    from collections.abc import Mapping


_TWO: dict[str, object] = {"min_insync_replicas": 2}
_OLD: dict[str, object] = {"truncation": "hw", "elr": False, "idempotence": False}
_LEADER_ALONE: dict[str, object] = {"acks": "1", "idempotence": False}


class Claim(NamedTuple):
    """A sentence, and what shows it.

    Attributes:
        settings: that differ from the defaults.
        effect: what is found; "": none of all, or none of `never`.
        never: effects that are not, in a cell that has others.
    """

    words: str
    faults: str
    settings: Mapping[str, object]
    effect: str
    never: tuple[str, ...] = ()

    @property
    def cell(self) -> GuaranteeCell:
        """Of the matrix."""
        values: dict[str, Any] = {**DEFAULTS, **self.settings, "faults": self.faults}
        return GuaranteeCell(**values)


CLAIMS = (
    Claim("acks=1 loses records if the leader dies before a follower fetched them", "kill-one",
          _LEADER_ALONE, "lose"),
    Claim("acks=1 loses records that an isolated leader accepted", "partition-leader",
          _LEADER_ALONE, "lose"),
    Claim("acks=all with min.insync.replicas=1 loses records if the ISR is only the leader, and its"
          " disk loses writes", "stop-then-power", {}, "lose"),
    Claim("acks=all with min.insync.replicas=2 loses nothing if one broker is killed", "kill-one",
          _TWO, ""),
    Claim("the same, if brokers are killed one after the other", "kill-in-turn", _TWO, ""),
    Claim("the same, if the leader is isolated", "partition-leader", _TWO, ""),
    Claim("the same settings lose records if all machines lose power at once, without sync", "power-all", _TWO,
          "lose"),
    Claim("they lose nothing then if each batch is synced", "power-all", {**_TWO, "fsync": "batch"}, ""),
    Claim("unclean.leader.election.enable=true loses records by kills alone", "kill-in-turn",
          {**_TWO, "unclean": True}, "lose"),
    Claim("without ELR, the last replica in the ISR loses records after the others were stopped cleanly",
          "stop-then-power", {**_TWO, "elr": False}, "lose"),
    Claim("with ELR (KIP-966) it loses nothing", "stop-then-power", {**_TWO, "elr": True}, ""),
    Claim("ELR does not help if the others were killed, since a log that was not closed cleanly is not"
          " eligible", "kill-then-power", {**_TWO, "elr": True}, "lose"),
    Claim("ELR does not protect records that only the leader acknowledged: the next leader has the"
          " committed records alone", "stop-then-power",
          {**_LEADER_ALONE, **_TWO, "fsync": "batch"}, "lose"),
    Claim("truncation at the high watermark loses records (KIP-101, first case)", "kill-in-turn",
          {**_TWO, **_OLD}, "lose"),
    Claim("truncation by leader epochs neither loses nor diverges in the same cell",
          "kill-in-turn", {**_TWO, **_OLD, "truncation": "epoch"}, "", ("lose", "diverge")),
    Claim("truncation at the high watermark leaves diverged replicas (KIP-101, second case)",
          "power-all", {**_OLD}, "diverge"),
    Claim("truncation by leader epochs does not diverge in the same cell, even if disks lose"
          " writes", "power-all", {**_OLD, "truncation": "epoch"}, "",
          ("diverge",)),
    Claim("a producer without idempotence writes duplicates if a leader dies", "kill-in-turn",
          {**_TWO, "idempotence": False}, "duplicate"),
    Claim("an idempotent producer writes each resent record once", "kill-in-turn", _TWO, ""),
)  # fmt: skip
