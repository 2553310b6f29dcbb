"""Make the tables of Kafka's protocol from the schemas inside of kafka-clients.jar.

    python -m tests.kafka.protocol_messages kafka-clients-4.4.0.jar > eoctl/serve/protocol/messages.json

One line of the result is one message: its name, the number of its API, the versions that there are,
from which one on it is flexible (-1: never), and its fields, each as the arguments of
`storage.formats.message.Field`. A field that may be null, or is tagged, in some versions
only is written once for each run of versions. `make test-all` compares it with the jar.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from typing import Any

FOLDER = "common/message/"
COMMENT = re.compile(r"^\s*//.*$|/\*(?s:.)*?\*/", re.MULTILINE)
LAST = 32767
NUMBERS = ("int", "uint")


def _span(text: str | None) -> tuple[int, int]:
    """First and last version; (0, -1): none."""
    if not text or text == "none":
        return 0, -1
    first, _, last = text.partition("-")
    if text.endswith("+"):
        return int(text[:-1]), LAST
    return int(first), int(last or first)


def _default(field: dict[str, Any], type_name: str, *, nullable: bool) -> list[Any]:
    """The default as the last argument: [] if it is the type's own."""
    if "default" not in field:
        return []
    text = field["default"]
    if text == "null":
        return [None] if nullable else []
    if type_name == "bool":
        return [text in {True, "true"}]
    if type_name.startswith(NUMBERS):
        return [int(str(text), 0)]
    return [text]


def _fields(
    fields: list[dict[str, Any]], structs: dict[str, Any], versions: tuple[int, int]
) -> list[Any]:
    found = []
    for field in fields:
        first, last = _span(field.get("versions") or field["taggedVersions"])
        first, last = max(first, versions[0]), min(last, versions[1])
        nullable, tagged = _span(field.get("nullableVersions")), _span(field.get("taggedVersions"))
        start = first
        for version in range(first, last + 1):
            facts = [
                (span[0] <= each <= span[1])
                for span in (nullable, tagged)
                for each in (version, version + 1)
            ]
            if version < last and facts[0] == facts[1] and facts[2] == facts[3]:
                continue
            found.append(_field(field, structs, (start, version), facts[0], facts[2]))
            start = version + 1
    return found


def _field(
    field: dict[str, Any],
    structs: dict[str, Any],
    versions: tuple[int, int],
    nullable: bool,
    tagged: bool,
) -> list[Any]:
    type_name = field["type"]
    bare = type_name.removeprefix("[]")
    inner: list[Any] = []
    if bare[0].isupper():
        inner = _fields(field.get("fields") or structs[bare], structs, versions)
        type_name = type_name.replace(bare, "struct")
    name = field["name"][0].lower() + field["name"][1:]
    default = _default(field, type_name, nullable=nullable)
    tag = field["tag"] if tagged else -1
    return [name, type_name + "?" * nullable, *versions, tag, inner, *default]


def message(text: str) -> list[Any] | None:
    """The table of one message; None if brokers have nothing to do with it."""
    found = json.loads(COMMENT.sub("", text))
    if found["type"] not in {"request", "response"} or found["validVersions"] == "none":
        return None
    versions = _span(found["validVersions"])
    structs = {each["name"]: each["fields"] for each in found.get("commonStructs", ())}
    flexible = _span(found["flexibleVersions"])
    flexible_since = flexible[0] if flexible[1] >= 0 else -1
    fields = _fields(found["fields"], structs, versions)
    return [found["name"], found["apiKey"], *versions, flexible_since, fields]


def messages(jar: str) -> list[list[Any]]:
    """All requests that clients send to brokers, and their responses, by API."""
    requests, responses = {}, {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if not (name.startswith(FOLDER) and name.endswith(".json")):
                continue
            text = archive.read(name).decode()
            table = message(text)
            if table is None:
                continue
            is_request = json.loads(COMMENT.sub("", text))["type"] == "request"
            if not is_request:
                responses[table[1]] = table
            elif "broker" in json.loads(COMMENT.sub("", text)).get("listeners", ()):
                requests[table[1]] = table
    return [each for key in sorted(requests) for each in (requests[key], responses[key])]


def main() -> None:
    """Print one message a line."""
    lines = [json.dumps(each, separators=(",", ":")) for each in messages(sys.argv[1])]
    sys.stdout.write("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
