"""The picture of copies that differ: what they agree on, and where they fork."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from eoctl.report.drawing import BAR, LABEL, ROW, WIDTH, OffsetScale, bar
from eoctl.report.layout import PARTED
from eoctl.report.markup import escaped, paragraph, tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.report.model import Model, ReplicaMark

MAX_GROUPS = 30  # partitions whose copies are drawn
KEY = (
    "Each bar is a copy: what it shares with the others, and, behind the line where copies part,"
    " what it has of its own. A short line is its high watermark."
)
# Behind a fork lies a third of the picture at least: the last few of a million offsets are seen.
BEFORE_FORK = 2


class _Copies(NamedTuple):
    """Copies of a partition; `forks`: where each parts from another one, by path."""

    name: str
    replicas: Sequence[ReplicaMark]
    forks: dict[str, int]
    is_parted: bool


def forks_picture(model: Model) -> str:
    """Return a picture for each partition with copies that differ, and how many are left out.

    Those that contradict each other come before those where a copy only ends earlier, and users'
    topics before Kafka's own.
    """
    groups = sorted(
        _differing(model), key=lambda each: (not each.is_parted, each.name.startswith("__"))
    )
    if not groups:
        return ""
    drawn = [_drawn(each) for each in groups[:MAX_GROUPS]]
    left = len(groups) - len(drawn)
    more = paragraph(f"and {left:,} more partitions", "more") if left else ""
    return paragraph(KEY, "hint") + "".join(drawn) + more


def _differing(model: Model) -> Iterator[_Copies]:
    replicas: dict[tuple[str, int | None], list[ReplicaMark]] = defaultdict(list)
    for replica in model.replicas:
        replicas[replica.topic, replica.partition].append(replica)
    forks: dict[tuple[str, int | None], dict[str, int]] = defaultdict(dict)
    differing: dict[tuple[str, int | None], bool] = {}
    for each in model.comparisons:
        key = each.topic, each.partition
        if each.likeness == "equal":
            continue
        differing[key] = differing.get(key, False) or each.likeness in PARTED
        for path in (each.path, each.other_path):
            if each.likeness in PARTED and each.divergence_offset is not None:
                known = forks[key].get(path, each.divergence_offset)
                forks[key][path] = min(known, each.divergence_offset)
    for key, is_parted in differing.items():
        topic, partition = key
        name = topic if partition is None else f"{topic}-{partition}"
        yield _Copies(name=name, replicas=replicas[key], forks=forks[key], is_parted=is_parted)


def _drawn(copies: _Copies) -> str:
    end = max((each.log_end_offset for each in copies.replicas), default=1)
    first = min((each.log_start_offset for each in copies.replicas), default=0)
    fork = min(copies.forks.values(), default=None)
    if fork is not None:
        first = max(first, fork - BEFORE_FORK * max(end - fork, 1))
    scale = OffsetScale(first, end)
    rows = [
        tag("g", "".join(_copy(each, copies, scale, number * ROW)))
        for number, each in enumerate(copies.replicas)
    ]
    height = max(len(rows), 1) * ROW
    told = "a copy ends earlier" if fork is None else f"copies part at offset {fork:,}"
    if fork is None and copies.is_parted:
        told = "copies have no offset in common, or could not be compared"
    if fork is not None:
        rows.append(bar("fork", scale.x(fork) - 1, scale.x(fork) + 1, 0, height, told))
    title = f"{copies.name}: {told}"
    svg = tag(
        "svg",
        tag("title", escaped(title)) + "".join(rows),
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        class_="static",
    )
    about = f"{title}; drawn from offset {first:,} to {end:,}"
    return tag("figure", tag("figcaption", tag("bdi", escaped(about))) + svg, class_="forks")


def _copy(each: ReplicaMark, copies: _Copies, scale: OffsetScale, y: int) -> Iterator[str]:
    """What a copy shares with the others, what it has of its own, and its high watermark."""
    title = "broker unknown" if each.broker is None else f"broker {each.broker}"
    if each.should_lead:
        title += ": should lead"
    yield tag("text", escaped(title), x=4, y=y + 16)
    yield tag("text", escaped(f"{each.log_start_offset} to {each.log_end_offset}"), x=4, y=y + 29,
              class_="small")  # fmt: skip
    fork = min(copies.forks.get(each.path, each.log_end_offset), each.log_end_offset)
    if each.log_start_offset < fork:
        left = scale.x(each.log_start_offset)
        yield bar("volume", left, scale.x(fork), y + 4, BAR - 4, f"{title}: as in other copies")
    if fork < each.log_end_offset:
        text = f"{title}: offsets {fork} to {each.log_end_offset - 1} differ from another copy"
        yield bar("aborted", scale.x(fork), scale.x(each.log_end_offset), y + 4, BAR - 4, text)
    if each.high_watermark is not None:
        at = scale.x(each.high_watermark)
        yield bar("mark", at - 1, at + 1, y, BAR + 4, f"high watermark {each.high_watermark}")
    yield bar("base", LABEL, WIDTH - 10, y + BAR, 1)
