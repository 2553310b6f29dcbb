"""How a damaged partition can be repaired. Imports nothing, since the command line names them."""

from __future__ import annotations

from enum import StrEnum


class Strategy(StrEnum):
    """How a partition is repaired."""

    AS_BROKER = "as-broker"  # cut where a start of the broker without the clean marker cuts
    SALVAGE = "salvage"  # keep every good batch, also behind damage
    MOVE_AWAY = "move-away"  # set all of it aside, for the broker to fetch it again
