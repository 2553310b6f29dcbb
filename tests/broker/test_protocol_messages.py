"""The tables of the protocol are those of Kafka's own schemas."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from tests.kafka.jars import KAFKA_LIBS
from tests.kafka.protocol_messages import messages

pytestmark = pytest.mark.broker


def test_the_tables_are_those_of_the_jar() -> None:
    (jar,) = KAFKA_LIBS.glob("kafka-clients-*.jar")
    text = resources.files("eoctl.serve.protocol").joinpath("messages.json").read_text()
    assert json.loads(text) == messages(str(jar))
