"""What the settings of a topic claim to survive, and what they do survive.

A topic that is to survive any one failure has three replicas or more, 2 <= min.insync.replicas <=
replicas, no unclean elections, and eligible leader replicas (KIP-966). What it survives in truth,
with acks=all, and all replicas in sync before:

  writes  as many brokers may be away as there are more replicas than min.insync.replicas
  data    as many may lose their disks as min.insync.replicas is above one: an acknowledged record
          may be on no more brokers than these. They are to come back when another one leads: one
          with an empty disk that is in the ISR may be elected. With unclean elections the same
          number may be away, then anybody leads
  power   as many may lose what was not flushed, while the others run or were stopped cleanly: as
          data with an ELR, which keeps who stopped uncleanly from leading as long as there is
          another one; without one none, as the last one in the ISR leads whatever it has lost.
          Kafka flushes nothing by itself
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.elections.rules import ELR_FEATURE
from storage.dirs.topic_settings import MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION, topic_setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.dirs.cluster_image import ClusterImage

REPLICAS_CLAIM = 3
INSYNC_CLAIM = 2


class TopicClaims(NamedTuple):
    """A topic: what is set, what is wrong with it, and how many failures it survives.

    Attributes:
        replicas_count: of the partition with the fewest.
        min_insync_replicas: as it is set; a broker takes no more than there are replicas.
        settings_from: where min.insync.replicas and unclean.leader.election.enable come from.
        survives_for_writes, survives_for_data, survives_power: brokers, see above.
        under_min_isr_count: partitions that refuse acks=all now.
        faults: what is not as it should be, in words.
    """

    topic: str
    partitions_count: int
    replicas_count: int
    min_insync_replicas: int
    is_unclean: bool
    has_elr: bool
    settings_from: str
    survives_for_writes: int
    survives_for_data: int
    survives_power: int
    under_min_isr_count: int
    faults: tuple[str, ...]


def claims_of(image: ClusterImage, is_wanted: Callable[[str], bool]) -> Iterator[TopicClaims]:
    """Look at each topic."""
    for name in sorted(filter(is_wanted, image.topics)):
        if image.topics[name].partitions:
            yield _claims(image, name)


def _claims(image: ClusterImage, topic: str) -> TopicClaims:
    partitions = image.topics[topic].partitions.values()
    replicas_count = min(len({*each.replicas} - {*each.adding_replicas}) for each in partitions)
    insync = topic_setting(image, topic, MIN_INSYNC_REPLICAS)
    unclean = topic_setting(image, topic, UNCLEAN_LEADER_ELECTION)
    number = int(insync.value) if insync.value.strip().isdecimal() else 1
    needed = min(number, replicas_count)
    is_unclean = unclean.value.strip().lower() == "true"
    has_elr = bool(image.features.get(ELR_FEATURE))
    sources = dict.fromkeys(str(each.source) for each in (insync, unclean))
    return TopicClaims(
        topic=topic,
        partitions_count=len(partitions),
        replicas_count=replicas_count,
        min_insync_replicas=number,
        is_unclean=is_unclean,
        has_elr=has_elr,
        settings_from=", ".join(sources),
        survives_for_writes=replicas_count - needed,
        survives_for_data=needed - 1,
        survives_power=needed - 1 if has_elr and not is_unclean else 0,
        under_min_isr_count=sum(
            each.leader < 0 or len(each.isr) < min(number, len(each.replicas))
            for each in partitions
        ),
        faults=tuple(
            _faults(
                replicas_count,
                number,
                is_unclean=is_unclean,
                has_elr=has_elr,
            )
        ),
    )


def _faults(replicas_count: int, insync: int, *, is_unclean: bool, has_elr: bool) -> Iterator[str]:
    if replicas_count < REPLICAS_CLAIM:
        yield f"{replicas_count} replica{'s' * (replicas_count != 1)}"
    if insync < INSYNC_CLAIM:
        yield f"min.insync {insync}"
    elif insync > replicas_count:
        yield f"min.insync {insync} of {replicas_count}"
    if is_unclean:
        yield "unclean"
    if not has_elr:
        yield "no ELR"
