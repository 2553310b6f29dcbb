"""The pages of `eoctl.help.saved_pages`: `python -m tests.saved_help` writes them."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from eoctl.app import run_app
from eoctl.help.examples import EXAMPLES
from eoctl.help.saved_pages import FULL_COLUMNS, PAGES, page_of

CALLS = [call.split() for call in EXAMPLES]  # all there are


def help_of_typer(call: list[str]) -> str:
    """Return the help of a call as Typer writes it at its full width."""
    text, words = StringIO(), [*call, "--help"]
    with patch.dict("os.environ", COLUMNS=str(FULL_COLUMNS)), redirect_stdout(text):
        try:
            run_app(words, words)
        except SystemExit:
            return text.getvalue()


def main() -> None:
    """Write the pages, and no others."""
    folder = Path(PAGES)
    folder.mkdir(exist_ok=True)
    for page in folder.iterdir():
        page.unlink()
    for call in CALLS:
        Path(page_of(call)).write_text(help_of_typer(call), encoding="utf-8")


if __name__ == "__main__":
    main()
