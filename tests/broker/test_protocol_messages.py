"""The tables of the protocol are those of Kafka's own schemas, of the newest release that we know."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from tests.kafka import jars
from tests.kafka.protocol_messages import messages

pytestmark = [
    pytest.mark.broker,
    pytest.mark.exhaustive,
    pytest.mark.usefixtures("jars_of_4_4"),
]


def test_the_tables_are_those_of_the_jar() -> None:
    (jar,) = jars.KAFKA_LIBS.glob("kafka-clients-*.jar")
    text = resources.files("eoctl.serve.protocol").joinpath("messages.json").read_text()
    assert json.loads(text) == messages(str(jar))
