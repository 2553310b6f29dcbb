"""Which values a broker takes for the settings of a topic."""

from __future__ import annotations

import pytest

from storage.dirs.topic_settings import SETTING_VALUES, SETTINGS, require_topic_setting
from storage.errors import UsageError


def test_of_all_settings() -> None:
    assert SETTING_VALUES.keys() == SETTINGS.keys()


@pytest.mark.parametrize("name", [each for each in SETTINGS if SETTINGS[each].default])
def test_a_default_is_taken(name: str) -> None:
    require_topic_setting(name, SETTINGS[name].default)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "1.5"), ("segment.bytes", "1048575"), ("segment.bytes", "2147483648"),
        ("compression.zstd.level", "23"), ("cleanup.policy", "compact,deleted"), ("none", "1"),
        ("min.cleanable.dirty.ratio", "-0.1"), ("min.cleanable.dirty.ratio", "1.1"),
        ("min.insync.replicas", "0"), ("preallocate", "TRUE"), ("retention.ms", ""),
    ],
)  # fmt: skip
def test_others_are_refused(name: str, value: str) -> None:
    with pytest.raises(UsageError):
        require_topic_setting(name, value)
