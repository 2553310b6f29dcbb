"""The picture of the README: what `eoctl check` says on a terminal of a damaged log dir.

`python -m pytest tests/test_console_pages.py` with EOCTL_SNAPSHOTS=write draws it anew.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from tests.console_pages import Scene

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PICTURE = "docs/check.svg"
LOG_DIR = "<!-- kafka: kafka-4.3.1/crash -->"
DAMAGE = "printf x | dd of=kafka/txn-0/00000000000000000000.log bs=1 seek=4500 conv=notrunc"
COMMAND = "eoctl check kafka"
# Rich's own has fonts from elsewhere.
FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px monospace; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""


def picture(golden: Callable[[str], Path], directory: Path) -> str:
    """Return the picture as SVG, with no font or script from elsewhere."""
    scene = Scene(LOG_DIR, golden, directory)
    scene.run(DAMAGE)
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {COMMAND}", style="bold"))
    console.print(Text.from_ansi("\n".join(scene.run(COMMAND, has_colour=True))))
    return console.export_svg(title=COMMAND, code_format=FORMAT, unique_id="eoctl")
