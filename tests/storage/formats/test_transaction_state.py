"""Records of __transaction_state: the worked examples, real ones, round trips, damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import FormatError, UnsupportedError, UsageError
from storage.formats.transaction_state import (
    TransactionState,
    TransactionStatus,
    describe_record,
    encode_key,
    encode_value,
    parse_key,
    parse_record,
)
from tests.storage.formats.message_samples import golden_records, line_text, mutated, randoms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

T = 1_700_000_000_000
# The worked examples.
KEY = bytes.fromhex("00 00 00 05 6d 79 2d 74 78")
ONGOING = TransactionState(
    transactional_id="my-tx",
    version=0,
    producer_id=1000,
    previous_producer_id=-1,
    next_producer_id=-1,
    producer_epoch=5,
    next_producer_epoch=-1,
    timeout_ms=60_000,
    transaction_status=1,
    partitions=(("t", 0), ("t", 3)),
    last_update_timestamp_ms=T + 1,
    start_timestamp_ms=T,
    client_transaction_version=0,
)
EXAMPLES = [
    (
        (
            "00 00 00 00 00 00 00 00 03 e8 00 05 00 00 ea 60 01 00 00 00 01 00 01 74 00 00 00 02 00 00 00 00"
            "00 00 00 03 00 00 01 8b cf e5 68 01 00 00 01 8b cf e5 68 00"
        ),
        ONGOING,
        (
            '{"version":"0","data":{"producerId":1000,"producerEpoch":5,"transactionTimeoutMs":60000,'
            '"transactionStatus":1,"transactionPartitions":[{"topic":"t","partitionIds":[0,3]}],'
            '"transactionLastUpdateTimestampMs":1700000000001,'
            '"transactionStartTimestampMs":1700000000000}}'
        ),
    ),
    (
        (
            "00 00 00 00 00 00 00 00 03 e8 00 05 00 00 ea 60 00 ff ff ff ff 00 00 01 8b cf e5 68 00 ff ff ff"
            "ff ff ff ff ff"
        ),
        ONGOING._replace(
            transaction_status=0, partitions=None, last_update_timestamp_ms=T, start_timestamp_ms=-1
        ),
        (
            '{"version":"0","data":{"producerId":1000,"producerEpoch":5,"transactionTimeoutMs":60000,'
            '"transactionStatus":0,"transactionPartitions":null,'
            '"transactionLastUpdateTimestampMs":1700000000000,"transactionStartTimestampMs":-1}}'
        ),
    ),
    (
        (
            "00 01 00 00 00 00 00 00 03 e8 00 06 00 00 ea 60 02 02 02 74 02 00 00 00 00 00 00 00 01 8b cf e5"
            "68 02 00 00 01 8b cf e5 68 00 01 02 02 00 02"
        ),
        ONGOING._replace(
            version=1,
            producer_epoch=6,
            transaction_status=2,
            partitions=(("t", 0),),
            last_update_timestamp_ms=T + 2,
            client_transaction_version=2,
        ),
        (
            '{"version":"1","data":{"producerId":1000,"producerEpoch":6,"transactionTimeoutMs":60000,'
            '"transactionStatus":2,"transactionPartitions":[{"topic":"t","partitionIds":[0]}],'
            '"transactionLastUpdateTimestampMs":1700000000002,'
            '"transactionStartTimestampMs":1700000000000,"clientTransactionVersion":2}}'
        ),
    ),
]

int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int16 = st.integers(-(2**15), 2**15 - 1)
# As Kafka groups them: the partitions of a topic stand together.
partitions = st.dictionaries(
    st.text(max_size=5), st.lists(int32, min_size=1, max_size=3), max_size=3
).map(lambda topics: tuple((topic, one) for topic, ids in topics.items() for one in ids))
states = st.builds(
    TransactionState,
    transactional_id=st.text(max_size=20),
    version=st.just(1),
    producer_id=int64,
    previous_producer_id=int64,
    next_producer_id=int64,
    producer_epoch=int16,
    next_producer_epoch=int16,
    timeout_ms=int32,
    transaction_status=st.integers(-128, 127),
    partitions=st.none() | partitions,
    last_update_timestamp_ms=int64,
    start_timestamp_ms=int64,
    client_transaction_version=int16,
)
old_states = states.map(
    lambda state: state._replace(
        version=0,
        previous_producer_id=-1,
        next_producer_id=-1,
        next_producer_epoch=-1,
        client_transaction_version=0,
    )
)


@pytest.mark.parametrize(("encoded", "state", "payload"), EXAMPLES)
def test_examples(encoded: str, state: TransactionState, payload: str) -> None:
    value = bytes.fromhex(encoded)
    assert parse_record(KEY, value) == ("my-tx", state)
    assert encode_value(state) == value
    key_text = '{"type":"0","data":{"transactionalId":"my-tx"}}'
    assert describe_record(7, KEY, value, names_status=False) == (key_text, payload)
    name = f'"transactionStatus":"{state.status.label}"'
    named = payload.replace(f'"transactionStatus":{int(state.status)}', name)
    assert describe_record(7, KEY, value) == (key_text, named)


def test_a_status_that_is_not_known_is_a_number_in_quotes() -> None:
    """As kafka-dump-log 4.4.0 has it."""
    value = encode_value(ONGOING._replace(transaction_status=77))
    assert '"transactionStatus":"77",' in (describe_record(7, KEY, value)[1] or "")


def test_key() -> None:
    assert parse_key(KEY) == "my-tx"
    assert encode_key("my-tx") == KEY
    assert parse_record(KEY, None) == ("my-tx", None)
    with pytest.raises(UsageError):
        encode_key("x" * 32768)


def test_statuses() -> None:
    assert [status.label for status in TransactionStatus] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
        "Dead", "PrepareEpochFence",
    ]  # fmt: skip
    assert ONGOING.status is TransactionStatus.ONGOING
    with pytest.raises(UnsupportedError) as caught:
        ONGOING._replace(transaction_status=8).status  # noqa: B018 - a property that raises
    assert caught.value.check_id == "COO-4"


def test_none_and_no_partitions_are_not_the_same() -> None:
    none, empty = ONGOING._replace(partitions=None), ONGOING._replace(partitions=())
    assert encode_value(none) != encode_value(empty)
    assert parse_record(KEY, encode_value(empty)) == ("my-tx", empty)


@given(states | old_states)
def test_round_trip(state: TransactionState) -> None:
    key, value = encode_key(state.transactional_id), encode_value(state)
    assert parse_record(key, value) == (state.transactional_id, state)


@given(states | old_states, randoms)
def test_damage_is_a_value_or_a_format_error(state: TransactionState, rnd: Random) -> None:
    key, value = encode_key(state.transactional_id), encode_value(state)
    if rnd.random() < 0.3:
        key = mutated(key, rnd)
    else:
        value = mutated(value, rnd)
    key_text, _ = describe_record(0, key, value)
    assert key_text is not None
    try:
        parse_record(key, value)
    except FormatError:
        assert "skipping" in key_text
    else:
        assert key_text.startswith('{"type":"0","data":{"transactionalId":')


def test_golden(golden: Callable[[str], Path]) -> None:
    versions = set()
    for record in golden_records(golden, "__transaction_state-*/*.log"):
        if record.is_control:
            continue
        where = f"{record.name} offset {record.offset}"
        described = describe_record(record.offset, record.key, record.value, names_status=False)
        assert line_text(described) == record.text, where
        transactional_id, state = parse_record(record.key, record.value)
        assert encode_key(transactional_id) == record.key, where
        if state is not None:
            assert encode_value(state) == record.value, where
            versions.add((state.version, state.client_transaction_version, state.status))
    assert {version for version, _, _ in versions} == {1}
    assert {client for _, client, _ in versions} == {0, 2}
    assert {status for _, _, status in versions} == set(TransactionStatus) - {
        TransactionStatus.DEAD, TransactionStatus.PREPARE_EPOCH_FENCE,
    }  # fmt: skip
