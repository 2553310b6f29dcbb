"""Old names of options: they work, are not shown, and say on stderr what they are called now."""

from __future__ import annotations

_EXPIRY = {"--producer-id-expiration-ms": "--producer-expiry-ms"}
_TARGET = {"--topic": "--to-topic"}
# Call -> its old names, and what to write instead.
OLD_NAMES: dict[str, dict[str, str]] = {
    "check": _EXPIRY,
    "copy": _TARGET,
    "export": {
        "--from-offset": "--offsets A..B",
        "--to-offset": "--offsets A..B (B included)",
        "--from-time": "--times A..B",
        "--to-time": "--times A..B (B included)",
    },
    "produce": _TARGET,
    "txn run": _TARGET,
}


def used_old_names(call: str, arguments: list[str]) -> dict[str, str]:
    """Return the old names among the arguments of a call, each with what it is called now."""
    old = OLD_NAMES.get(call)
    if not old:
        return {}
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    given = {each.partition("=")[0] for each in options}
    return {name: new for name, new in old.items() if name in given}
