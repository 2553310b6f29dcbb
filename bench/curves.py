"""Draw the pictures of docs/performance.md from the tables in bench/spark_growth.md.

    python -m bench.curves [PAGE]

For partitions, segments and producer ids: time and memory over size, on logarithmic axes with as
many decades in both directions. Linear growth runs along the dashed line, constant cost along the
bottom. The power is fitted, and printed as a sentence.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PAGE = Path(__file__).parent / "spark_growth.md"
PICTURES = Path(__file__).parent.parent / "docs"
WIDTH, HEIGHT, MARGIN = 360, 220, 44  # of a panel, in CSS pixels
LABEL_WIDTH = 48
LINEAR = 'stroke="#afb8c1" stroke-dasharray="4 4"'  # what is linear
COLORS = ("#0969da", "#bc4c00")  # time, memory: told apart by those who see no red, too
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
Row = dict[str, str]


class Shape(NamedTuple):
    """How a table becomes a curve.

    Attributes:
        name: of the file.
        of: what grows, as words.
        head: of the table's first column.
        size, seconds, mib: of a row.
        seconds_of, mib_of: whose these are.
    """

    name: str
    of: str
    head: str
    size: Callable[[Row], float]
    seconds: Callable[[Row], float]
    mib: Callable[[Row], float]
    seconds_of: str
    mib_of: str


class Curve(NamedTuple):
    """What a picture shows.

    Attributes:
        shape: what it is of.
        sizes: how large that is, ascending.
        seconds, mib: what it takes.
    """

    shape: Shape
    sizes: list[float]
    seconds: list[float]
    mib: list[float]


def number(text: str, unit: str = "") -> float:
    """Read the number before a unit; without one the first. Raises ValueError: there is none."""
    found = re.search(f"({NUMBER.pattern}) ?{re.escape(unit)}", text)
    if found is None:
        raise ValueError(f"{text!r}: no number {unit}")
    return float(found[1].replace(",", ""))


def _planned_s(row: Row) -> float:
    splits, sent = row["splits for 1,000 cores, peak"], row["sent to Spark"]
    return number(row["listing, CPU s"]) + number(splits, "s") + number(sent, "s")


SHAPES = (
    Shape(
        name="spark-partitions",
        of="partitions of 100 segments",
        head="partitions of 100 segments of 1 GiB",
        size=lambda row: number(row["partitions of 100 segments of 1 GiB"]),
        seconds=_planned_s,
        mib=lambda row: number(row["splits for 1,000 cores, peak"], "MiB"),
        seconds_of="planning on the driver, CPU s",
        mib_of="the driver's Python, MiB",
    ),
    Shape(
        name="spark-segments",
        of="segments of 1 GiB",
        head="on Spark, `local[2]`",
        size=lambda row: number(row["pieces"]),
        seconds=lambda row: number(row["CPU s"]),
        mib=lambda row: number(row["driver's Python, MiB"]) + number(row["JVM, MiB"]),
        seconds_of="the audit, CPU s",
        mib_of="the driver, Python and JVM, MiB",
    ),
    Shape(
        name="spark-producers",
        of="producer ids of a partition",
        head="producer ids of a segment",
        size=lambda row: number(row["producer ids of a segment"]),
        seconds=lambda row: number(row["joining 4, CPU s"]),
        mib=lambda row: number(row["then MiB"]),
        seconds_of="joining 4 segments in a task, CPU s",
        mib_of="the result for the driver, MiB",
    ),
)
TINY = "tiny"  # segments of another size are no points of a curve


def tables_of(page: str) -> list[list[Row]]:
    """Read the tables of a page of Markdown: rows by the heads of their columns."""
    found: list[list[Row]] = []
    heads: list[str] = []
    for line in page.splitlines():
        if not line.startswith("|"):
            heads = []
            continue
        cells = [each.strip() for each in line.strip("|").split("|")]
        if not heads:
            heads = cells
            found.append([])
        elif not all(set(each) <= set("-: ") for each in cells):
            found[-1].append(dict(zip(heads, cells, strict=True)))
    return found


def curves_of(page: str) -> list[Curve]:
    """Take the curves from the tables of the page. Raises ValueError: one is not there."""
    by_head = {next(iter(rows[0])): rows for rows in tables_of(page) if rows}
    found = []
    for shape in SHAPES:
        if shape.head not in by_head:
            raise ValueError(f"no table begins with {shape.head!r}")
        rows = [row for row in by_head[shape.head] if TINY not in row[shape.head]]
        found.append(
            Curve(
                shape=shape,
                sizes=[shape.size(row) for row in rows],
                seconds=[shape.seconds(row) for row in rows],
                mib=[shape.mib(row) for row in rows],
            )
        )
    return found


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Fit the power of the size that the values grow with: 1 is linear."""
    slope, _ = np.polyfit(np.log(sizes), np.log(values), 1)
    return float(slope)


def sentence(curve: Curve) -> str:
    """Return what the page says of a curve."""
    time, memory = (exponent(curve.sizes, each) for each in (curve.seconds, curve.mib))
    shape, first, last = curve.shape, curve.sizes[0], curve.sizes[-1]
    memory_of = shape.mib_of[0].upper() + shape.mib_of[1:]
    return (
        f"From {first:,.0f} to {last:,.0f} {shape.of}, {shape.seconds_of}, grows with power"
        f" {time:.2f} of their number. {memory_of}, grows with power {memory:.2f}."
    )


def picture(curve: Curve) -> str:
    """Return the curve as SVG: a panel for the time, and one for the memory."""
    box = f'viewBox="0 0 {2 * WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        f"<title>{sentence(curve)}</title>",
        f'<rect width="{2 * WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    panels = (curve.shape.seconds_of, curve.seconds), (curve.shape.mib_of, curve.mib)
    for place, (about, values) in enumerate(panels):
        lines.append(f'<g transform="translate({place * WIDTH} 0)">')
        lines += _panel(curve, about, values, COLORS[place])
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _panel(curve: Curve, about: str, values: list[float], color: str) -> list[str]:
    growth = max(max(curve.sizes) / min(curve.sizes), max(values) / min(values))
    at_x = _scale(min(curve.sizes), growth, MARGIN, WIDTH - MARGIN)
    at_y = _scale(min(values), growth, HEIGHT - MARGIN, MARGIN)
    points = [(at_x(size), at_y(value)) for size, value in zip(curve.sizes, values, strict=True)]
    slope = exponent(curve.sizes, values)
    bottom, right = HEIGHT - MARGIN + 14, WIDTH - MARGIN + 14
    lines = [
        f'<text x="{MARGIN - 14}" y="18" font-weight="bold">{about} (power {slope:.2f})</text>',
        f'<path d="M{MARGIN - 14} {MARGIN - 14}V{bottom}H{right}" fill="none" stroke="#6e7781"/>',
        f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 4}" text-anchor="middle">{curve.shape.of}</text>',
        f'<path d="M{MARGIN} {HEIGHT - MARGIN}L{WIDTH - MARGIN} {MARGIN}" {LINEAR}/>',
        '<polyline points="'
        + " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        + f'" fill="none" stroke="{color}" stroke-width="2"/>',
    ]
    for place, (size, value) in enumerate(zip(curve.sizes, values, strict=True)):
        (x, y), anchor = points[place], _anchor(points, place)
        lines += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>',
            f'<text x="{x:.1f}" y="{y - 7:.1f}" text-anchor="{anchor}">{value:,g}</text>',
            f'<text x="{x:.1f}" y="{bottom + 12}" text-anchor="{anchor}">{size:,.0f}</text>',
        ]
    return lines


def _anchor(points: Sequence[tuple[float, float]], place: int) -> str:
    """Keep the words of neighbours apart."""
    x = points[place][0]
    if place + 1 < len(points) and points[place + 1][0] - x < LABEL_WIDTH:
        return "end"
    return "start" if place and x - points[place - 1][0] < LABEL_WIDTH else "middle"


def _scale(least: float, growth: float, start: float, end: float) -> Callable[[float], float]:
    """Return where a value lies; `growth` times the least one lies at the end."""
    return lambda value: float(start + (end - start) * np.log(value / least) / np.log(growth))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", nargs="?", type=Path, default=PAGE)
    page: Path = parser.parse_args().page
    for curve in curves_of(page.read_text()):
        (PICTURES / f"{curve.shape.name}.svg").write_text(picture(curve))
        print(sentence(curve))


if __name__ == "__main__":
    main()
