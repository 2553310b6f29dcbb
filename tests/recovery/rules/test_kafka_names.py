"""The classes and methods of Kafka that the book of rules names are in its jars."""

from __future__ import annotations

import re
import zipfile
from collections import defaultdict

import pytest

from recovery.rules.catalogue import RULES
from tests.kafka.jars import KAFKA_LIBS

pytestmark = pytest.mark.broker

_NAME = re.compile(r"\b([A-Z]\w+)(?:\.(\w+))?")


@pytest.fixture(scope="module")
def classes() -> dict[str, bytes]:
    """Simple name of a class -> its bytes and those of the classes in it: names stand in them."""
    found: dict[str, bytes] = defaultdict(bytes)
    for jar in sorted(KAFKA_LIBS.glob("kafka*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith(".class"):
                    content = archive.read(name)
                    parts = name.removesuffix(".class").rpartition("/")[2].split("$")
                    for simple in {parts[0], parts[-1]}:
                        found[simple] += content
    return found


def test_what_rules_name_is_in_kafka(classes: dict[str, bytes]) -> None:
    named = {
        (rule.check_id, match[1], match[2])
        for rule in RULES.values()
        for match in _NAME.finditer(rule.kafka)
    }
    assert len(named) > 150
    missing = [
        (check_id, name, member)
        for check_id, name, member in sorted(named, key=str)
        if name not in classes or (member and member.encode() not in classes[name])
    ]
    assert missing == []
