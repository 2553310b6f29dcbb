"""The calls of pages are run, and print what stands below them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.console_pages import PAGES, ROOT, Scene, as_seen, sections
from tests.picture import PICTURE, picture

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IS_WRITING = os.environ.get("EOCTL_SNAPSHOTS") == "write"
SECTIONS = [
    pytest.param(page, section, id=f"{page}-{section.partition(chr(10))[0].strip('# ')}")
    for page in PAGES
    for section in sections((ROOT / page).read_text())
]


@pytest.mark.share(1)
@pytest.mark.parametrize(("page", "section"), SECTIONS)
def test_a_reader_sees_what_the_page_shows(
    page: str, section: str, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    seen = as_seen(section, Scene(section, golden, tmp_path))
    if IS_WRITING:
        text = (ROOT / page).read_text()
        (ROOT / page).write_text(text.replace(section, seen))
        return
    assert seen == section


def test_the_picture_is_of_a_real_run(golden: Callable[[str], Path], tmp_path: Path) -> None:
    drawn = picture(golden, tmp_path)
    if IS_WRITING:
        (ROOT / PICTURE).write_text(drawn)
    assert "http" not in drawn.replace("http://www.w3.org/", "")
    assert (ROOT / PICTURE).read_text() == drawn
