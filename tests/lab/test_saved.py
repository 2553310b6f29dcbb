"""Courses of events in files: as they were, or refused in words; and the scripts that are shipped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.commands.sim import SUBCOMMANDS
from eoctl.lab.environment.settings import CHOICES, LIMITS, PlaySettings, RunSettings, problem_of
from eoctl.lab.guarantees.scenarios import (
    SavedCourse,
    encode_scenario,
    load_script,
    parse_scenario,
    script_names,
    simulate_scenario,
)
from eoctl.parameters import parameters_of
from storage.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable


SCENARIO = SavedCourse(
    "a title",
    PlaySettings(min_insync=2),
    RunSettings(records=12),
    ("kill 0 at quiet", "ask at quiet"),
    ("lost-write",),
    "abc",
)


def test_what_is_written_is_read() -> None:
    assert parse_scenario(encode_scenario(SCENARIO), "file") == SCENARIO
    assert SCENARIO.whole_run.faults == "kill 0 at quiet, ask at quiet"


def test_a_course_of_before_there_were_consumers_that_commit_is_read() -> None:
    value = json.loads(encode_scenario(SCENARIO))
    value["version"] = 2
    del value["run"]["consumer_commit"]
    del value["run"]["isolation"]
    assert parse_scenario(json.dumps(value).encode(), "file") == SCENARIO
    scenario = SCENARIO._replace(
        run=SCENARIO.run._replace(consumer_commit="after"), faults=("kill consumer at 20%",)
    )
    assert parse_scenario(encode_scenario(scenario), "file") == scenario


def test_a_course_of_before_there_were_transactions_is_read() -> None:
    value = json.loads(encode_scenario(SCENARIO))
    value["version"] = 3
    for each in ("transaction_records", "abort_every", "transaction_timeout_ms", "isolation"):
        del value["run"][each]
    assert parse_scenario(json.dumps(value).encode(), "file") == SCENARIO
    run = SCENARIO.run._replace(transaction_records=5, abort_every=2, isolation="read_uncommitted")
    scenario = SCENARIO._replace(run=run)
    assert parse_scenario(encode_scenario(scenario), "file") == scenario


def test_a_course_of_before_fetches_were_settings_is_read() -> None:
    value = json.loads(encode_scenario(SCENARIO))
    value["version"] = 4
    for each in ("fetch_min_bytes", "fetch_wait_max_ms"):
        del value["settings"][each]
    assert parse_scenario(json.dumps(value).encode(), "file") == SCENARIO
    settings = SCENARIO.settings._replace(fetch_min_bytes=500, fetch_wait_max_ms=20)
    scenario = SCENARIO._replace(settings=settings)
    assert parse_scenario(encode_scenario(scenario), "file") == scenario


def _without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda value: value.pop(name)


@pytest.mark.parametrize(
    "damage",
    [
        *map(_without, ("schema", "version", "settings", "faults", "digest")),
        lambda value: value.update(schema="another"),
        lambda value: value.update(version=value["version"] + 1),
        lambda value: value.update(more=1),
        lambda value: value.update(faults="kill 0 at quiet"),
        lambda value: value.update(faults=["melt 0 at quiet"]),
        lambda value: value.update(faults=["kill 7 at quiet"]),
        lambda value: value["settings"].update(nodes=10**9),
        lambda value: value["settings"].update(nodes=2),
        lambda value: value["settings"].update(topic="a/b"),
        lambda value: value["settings"].update(fsync="sometimes"),
        lambda value: value["run"].update(records="12"),
        lambda value: value["run"].update(acks=2),
        lambda value: value["run"].pop("seed"),
        lambda value: value["run"].pop("consumer_commit"),
        lambda value: value["run"].update(consumer_commit="often"),
        lambda value: value["run"].pop("abort_every"),
        lambda value: value["settings"].pop("fetch_min_bytes"),
        lambda value: value["settings"].update(fetch_wait_max_ms=30_000, lag_time_max_ms=1000),
        lambda value: value["run"].update(isolation="read_all"),
        lambda value: value["run"].update(transaction_records=5, acks=1),
        lambda value: value["run"].update(transaction_records=5, retries=0),
        lambda value: value["run"].update(in_flight=6, is_idempotent=True),
        lambda value: value["run"].update(transaction_records=5, is_idempotent=False),
        lambda value: value.update(faults=["kill consumer at 20%"]),
    ],
)
def test_what_is_none_is_refused(damage: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(encode_scenario(SCENARIO))
    damage(value)
    with pytest.raises(RefusedError, match=r"^file: "):
        parse_scenario(json.dumps(value).encode(), "file")


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff", b"[" * 100_000, b"{}"])
def test_bytes_that_are_none_are_refused(data: bytes) -> None:
    with pytest.raises(RefusedError):
        parse_scenario(data, "file")


def test_a_file_may_have_what_the_options_may() -> None:
    """The limits of files, and of the options of `init`, `run` and `explore`, are the same."""
    fields = {"replica_lag_max_messages": "lag_max_messages", "min_insync_replicas": "min_insync"}
    fields |= {"replica_lag_time_max_ms": "lag_time_max_ms", "buffer_records": "buffered_max"}
    fields |= {"replica_fetch_min_bytes": "fetch_min_bytes"}
    fields |= {"replica_fetch_wait_max_ms": "fetch_wait_max_ms"}
    seen = set()
    for call in ("init", "run", "explore"):
        for each in parameters_of(SUBCOMMANDS[call]):
            name = fields.get(each.name, each.name)
            declared = each.hint.__metadata__[0].settings
            if name in LIMITS and "min" in declared:
                seen.add(name)
                assert declared["min"] == LIMITS[name][0], name
                assert declared.get("max", LIMITS[name][1]) == LIMITS[name][1], name
            if name in CHOICES:
                seen.add(name)
                assert tuple(each.hint.__origin__) == CHOICES[name]
    assert seen == {*LIMITS, *CHOICES} - {"acks", "retries"}
    assert not problem_of(PlaySettings())
    assert not problem_of(RunSettings())


@pytest.mark.share(2)
@pytest.mark.parametrize("name", script_names())
def test_a_script_finds_what_it_says(name: str) -> None:
    script = load_script(name)
    scenario = simulate_scenario(script.settings, script.whole_run)
    assert tuple(sorted(scenario.kinds)) == script.kinds
    assert scenario.result.is_quiet
    assert scenario.result.servings


# After which actions: is it read, what is said to a write, who leads.
SERVES: dict[str, dict[str, tuple[bool, str, int | None]]] = {
    "1-one-dead": {
        "kill broker 2": (True, "", 0),
        "kill broker 0": (True, "NOT_ENOUGH_REPLICAS", 1),
        "start broker 0": (True, "", 1),
        "kill broker 2, set min.insync.replicas=1": (True, "", 1),
    },
    "2-both-dead": {
        "kill broker 0, kill broker 1": (False, "LEADER_NOT_AVAILABLE", None),
        "start broker 0": (False, "LEADER_NOT_AVAILABLE", None),
        "kill broker 0, start broker 1": (True, "NOT_ENOUGH_REPLICAS", 1),
        "kill broker 1, start broker 0, start broker 1": (True, "", 1),
        "start broker 1": (True, "", 1),
    },
    "3-last-dead-lost": {
        "start broker 0": (False, "LEADER_NOT_AVAILABLE", None),
        "set min.insync.replicas=1": (False, "LEADER_NOT_AVAILABLE", None),
        "set unclean.leader.election.enable=true": (True, "", 0),
    },
    "4-both-lost": {
        "start broker 2": (False, "LEADER_NOT_AVAILABLE", None),
        "set min.insync.replicas=1": (False, "LEADER_NOT_AVAILABLE", None),
        "set unclean.leader.election.enable=true": (True, "", 2),
    },
}


@pytest.mark.parametrize("name", SERVES)
def test_what_serves_after_each_action(name: str) -> None:
    """As real brokers do: the ISR's last one leads again, and writes wait for min.insync."""
    script = load_script(name)
    assert [*SERVES] == script_names()
    servings = simulate_scenario(script.settings, script.whole_run).result.servings
    found = {
        ", ".join(each.after): (each.is_read, each.write_error, each.leader) for each in servings
    }
    if name == "2-both-dead":  # once more as the ISR's last, then uncleanly
        assert found.pop("kill broker 1, set unclean.leader.election.enable=true")[0] is False
        assert found.pop("kill broker 0, kill broker 1, set min.insync.replicas=1")[0] is False
        found["start broker 0"] = (
            servings[2].is_read, servings[2].write_error, servings[2].leader
        )  # fmt: skip
        assert servings[-1].after == ("start broker 0",)
        assert servings[-1].is_read
    assert SERVES[name].items() <= found.items()
