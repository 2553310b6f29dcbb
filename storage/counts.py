"""Counts in sentences: the noun and the verb agree with the number."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: `1 record`, `1,200 records`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def agreeing(count: int, singular: str, plural: str) -> str:
    """Return the verb for a count: `ends` of one marker, `end` of several."""
    return singular if count == 1 else plural
