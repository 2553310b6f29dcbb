"""URIs of files, wildcards in PATHs, and the way from a URI to a neighbour's URI."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import quote, unquote

from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # Names in a directory; [] if there is no such directory. May raise for other reasons.
    ListNames = Callable[[str], list[str]]


# -- wildcards in PATHs: `*`, `?` and `[...]` in any component, over any kind of directory tree
#
# As in a shell, a wildcard never matches a `/`, nor a leading dot of a name. `**` is `*`. A path
# that exists exactly as written is taken as written, even with wildcards.


_WILDCARD = re.compile(r"[*?\[]")


class Match(NamedTuple):
    """A path that a pattern matches.

    `first` is the path up to the component that the first wildcard has matched.
    """

    path: str
    first: str


def has_wildcard(text: str) -> bool:
    """Return whether the text has a wildcard."""
    return _WILDCARD.search(text) is not None


def expand(pattern: str, list_names: ListNames) -> Iterator[Match]:
    """Yield the matches, by name within each component.

    Components without wildcards are not looked up, so a match may not exist.
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
    """Return the path of an entry of a directory. Relative paths start at ""."""
    return f"{parent}{name}" if not parent or parent.endswith("/") else f"{parent}/{name}"


# -- URIs of files: their parts, and the URI of a neighbour.
#
#     s3://bucket/logs/t-0/00000000000000000000.log?region=eu-west-1
#     scheme, authority (`bucket`), path (percent-encoded), query.
#
# A `?` begins the query if `name=` follows, and is a wildcard otherwise. `file:` URIs are another
# form of local paths. A local path that looks like a URI can be given as `./...`.


_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/?]*))?((?:/.*)?)", re.DOTALL)
_QUERY = re.compile(r"\?[A-Za-z0-9_.-]+=")
_KEPT = "=+,@:~"  # besides letters, digits and _.-~; wildcards must be encoded
LOCAL_SCHEME = "file"
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3"}  # names of S3 in Hadoop, by its client


class Uri(NamedTuple):
    """A URI in parts. `path` is percent-encoded and begins with a `/`, or is empty."""

    scheme: str
    authority: str
    path: str
    query: str  # with its `?`

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a URI.

        Raises:
            UsageError: the text is no URI.
        """
        found = _QUERY.search(text)
        query = text[found.start() :] if found else ""
        match = _URI.fullmatch(text.removesuffix(query))
        if match is None:
            raise UsageError(f"{text}: not a URI", next_step="write scheme://authority/path")
        scheme, authority, path = match.groups()
        scheme = _SAME_SCHEME.get(scheme.lower(), scheme.lower())
        return cls(scheme, authority or "", path.rstrip("/"), query)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path or '/'}{self.query}"

    @property
    def root(self) -> Self:
        """The URI of the file system, without a path."""
        return self._replace(path="")

    @property
    def name(self) -> str:
        """The last component, decoded."""
        return decode(self.path.rpartition("/")[2])

    @property
    def has_wildcard(self) -> bool:
        """Return whether a component of the path has a wildcard."""
        return has_wildcard(self.path)

    @property
    def pattern(self) -> str:
        """The decoded path, with brackets around encoded characters that are no wildcards."""
        return "/".join(
            decode(each) if has_wildcard(each) else _escape(decode(each))
            for each in self.path.split("/")
        )

    def at(self, path: str) -> Self:
        """Return the URI of another path, given decoded, in the same file system."""
        parts = [quote(each, safe=_KEPT) for each in path.split("/") if each]
        return self._replace(path="".join(f"/{each}" for each in parts))


def is_uri(path: str) -> bool:
    """Return whether the path is a URI and no local path. A scheme has at least two characters."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path) is not None


def local_path(uri: Uri) -> str | None:
    """Return the local path of a `file:` URI with its wildcards, or None for another scheme.

    Raises:
        UsageError: it is on another machine.
    """
    if uri.scheme != LOCAL_SCHEME:
        return None
    if uri.authority not in {"", "localhost"}:
        raise UsageError(
            f"{uri}: a file on another machine", next_step="mount it, or write file:///path"
        )
    return uri.pattern if uri.has_wildcard else decode(uri.path) or "/"


def decode(text: str) -> str:
    """Undo percent-encoding. Bytes that are not UTF-8 become lone surrogates, as in local paths."""
    return unquote(text, errors="surrogateescape")


def _escape(text: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", text)
