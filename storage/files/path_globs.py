"""Wildcards in PATHs: `*`, `?` and `[...]` in any component, over any kind of directory tree.

As in a shell: a wildcard never matches a `/`, nor the dot that a name begins with. `**` is `*`.
A path that is there as it is written counts as written, wildcards or not.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # Names in a directory; none if there is no such directory. May raise for other reasons.
    ListNames = Callable[[str], list[str]]

_WILDCARD = re.compile(r"[*?\[]")


class Match(NamedTuple):
    """A path that a pattern leads to.

    `first` is the path up to the component that the first wildcard has matched.
    """

    path: str
    first: str


def has_wildcard(text: str) -> bool:
    """Is there anything to be matched?"""
    return _WILDCARD.search(text) is not None


def expand(pattern: str, list_names: ListNames) -> Iterator[Match]:
    """Give what matches, by name within each component.

    Components without wildcards are not looked up: what ends in some need not be there.
    """
    root = "/" if pattern.startswith("/") else ""
    components = [each for each in pattern.split("/") if each]
    return _expand(root, components, "", list_names)


def _expand(
    parent: str, components: list[str], first: str, list_names: ListNames
) -> Iterator[Match]:
    for index, component in enumerate(components):
        if has_wildcard(component):
            for name in sorted(list_names(parent)):
                is_hidden = name.startswith(".") and not component.startswith(".")
                if not is_hidden and fnmatchcase(name, component):
                    path = join(parent, name)
                    yield from _expand(path, components[index + 1 :], first or path, list_names)
            return
        parent = join(parent, component)
    yield Match(parent, first)


def join(parent: str, name: str) -> str:
    """Return the path of an entry of a directory, "" being where relative paths begin."""
    return f"{parent}{name}" if not parent or parent.endswith("/") else f"{parent}/{name}"
