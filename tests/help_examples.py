"""The examples of the help in the man pages: `python -m tests.help_examples` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from eoctl.command_table import COMMANDS
from eoctl.help.examples import EXAMPLES

MAN_DIR = Path(__file__).parent.parent / "man"
_BEGIN = '.\\" The examples of the help, written by `python -m tests.help_examples`.\n'
_END = '.\\" End of the examples of the help.\n'
_WORDS = re.compile(r"(?:--[\w-]+ (?!-))?(?:'[^']*'|\S)+")
_LINE_CHARS = 72


def with_examples(page: str, command: str) -> str:
    """Return the text of a page with the examples of a command and of its own commands."""
    if _BEGIN in page:
        head, _, rest = page.partition(_BEGIN)
        page = head + rest.partition(_END)[2]
    calls = [each for each in EXAMPLES if each.split()[:1] == command.split()]
    page = page.replace(".Sh EXAMPLES\n.Sh SEE ALSO\n", ".Sh SEE ALSO\n")
    made = _BEGIN + "".join(map(block_of, calls)) + _END
    if ".Sh EXAMPLES\n.Bd" in page:  # no paragraph begins before it
        made = made.removesuffix(f".Pp\n{_END}") + _END
    if ".Sh EXAMPLES\n" in page:
        return page.replace(".Sh EXAMPLES\n", f".Sh EXAMPLES\n{made}", 1)
    made = made.removesuffix(f".Pp\n{_END}") + _END
    return page.replace(".Sh SEE ALSO\n", f".Sh EXAMPLES\n{made}.Sh SEE ALSO\n", 1)


def block_of(call: str) -> str:
    """Return the examples of one call as the page has them."""
    return "".join(
        f"{each.what}:\n.Bd -literal\n{_lines(each.call)}\n.Ed\n.Pp\n" for each in EXAMPLES[call]
    )


def _lines(call: str) -> str:
    lines = [""]
    for word in _WORDS.findall(call):
        if lines[-1] and len(lines[-1]) + len(word) > _LINE_CHARS:
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return " \\e\n".join(each.replace("\\", "\\e") for each in lines)


def main() -> None:
    """Write the pages."""
    for command in ("", *COMMANDS):
        page = MAN_DIR / f"{'-'.join(['eoctl', *command.split()])}.1"
        page.write_text(with_examples(page.read_text(), command))


if __name__ == "__main__":
    main()
