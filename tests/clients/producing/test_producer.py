"""A producer of one partition: many values at once are what one by one they would be."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eoctl.clients.partitions.identity import Identities
from eoctl.clients.producing.producer import PartitionProducer, Sending
from storage.dirs.topic_settings import LogConfig
from storage.formats.compression import Codec
from storage.formats.record_batch import MAX_SEQUENCE
from storage.producers.producer_state import AppendError
from storage.writing import batch_run
from storage.writing.partition_store import FlushPolicy
from storage.writing.record_builder import BatchBuilder, ProducerIdentity
from tests.bulk_kernels import BULK_KERNELS, demanded
from tests.drawn import examples
from tests.writing import NOW_MS, NoSyncFileSystem, content, make_log_dir, open_writer

if TYPE_CHECKING:
    from pathlib import Path

    from storage.kernels.kernel_choice import KernelName
    from storage.writing.writer import PartitionWriter

FIRST = ProducerIdentity(7, 0, 0)
LARGE = LogConfig(segment_bytes=1 << 30, index_interval_bytes=4096)


def producer_of(
    writer: PartitionWriter,
    first: ProducerIdentity = FIRST,
    *,
    batch_bytes: int = 500,
    batch_records: int = 2**31 - 1,
    codec: Codec = Codec.NONE,
    **options: Any,
) -> PartitionProducer:
    identities = Identities(first, is_per_transaction=options.pop("is_per_transaction", False))
    return PartitionProducer(
        writer,
        BatchBuilder(codec=codec, batch_bytes=batch_bytes, batch_records=batch_records),
        identities,
        now_ms=lambda: NOW_MS,
        **options,
    )


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches each run has that is written."""
    from storage.writing.writer import PartitionWriter

    found = []
    append_run = PartitionWriter.append_run

    def counted(self: PartitionWriter, run: Any) -> None:
        found.append(len(run.columns.batch_bytes))
        append_run(self, run)

    monkeypatch.setattr(PartitionWriter, "append_run", counted)
    return found


def send(
    producer: PartitionProducer,
    values: list[bytes],
    cuts: list[int],
    *,
    is_fast: bool,
    transactions: int | None = None,
) -> None:
    """Send values, in pieces; with `transactions` (version) each is one."""
    start = 0
    for number, cut in enumerate(cycle(cuts)):
        end = min(len(values), start + cut)
        if is_fast:
            producer.add_values(values, start, end)
        else:
            for value in values[start:end]:
                producer.add(None, value)
        if transactions is not None:
            producer.flush()
            producer.end_transaction(
                is_commit=bool(number % 3), transaction_version=transactions, coordinator_epoch=0
            )
            producer.next_transaction()
        start = end
        if start == len(values):
            break
    producer.flush()
    producer.writer.close()


@given(
    sizes=st.lists(st.sampled_from([0, 1, 30, 57, 58, 59, 63, 64, 300]), min_size=1, max_size=60),
    repeat=st.sampled_from([1, 8, 25]),
    cuts=st.lists(st.integers(1, 2000), min_size=1, max_size=4),
    batch_bytes=st.sampled_from([1, 100, 500, 3000, 16_384]),
    batch_records=st.sampled_from([1, 3, 64, 65, 10**6]),
    base_sequence=st.sampled_from([0, MAX_SEQUENCE - 700]),
    transactions=st.sampled_from([None, 1, 2]),
    config=st.sampled_from(
        [
            LARGE,
            LARGE._replace(segment_bytes=20_000, index_interval_bytes=0),
            LARGE._replace(index_max_bytes=120, index_interval_bytes=100),
            LARGE._replace(segment_bytes=1800),
        ]
    ),
)
@settings(max_examples=examples(100), deadline=None)
@example([30] * 60, 40, [2000], 500, 10**6, 0, None, LARGE)
@example([1] * 60, 40, [2000], 1000, 10**6, 0, None, LARGE)  # more than 64 records in a batch
@example([1] * 60, 40, [2000], 1000, 10**6, 0, 2, LARGE)
@example([8191, 1, 8192] * 10, 25, [200], 30_000, 10**6, 0, None, LARGE)
@example([1] * 60, 40, [2000], 3000, 1, 0, None, LARGE)
@example([1] * 60, 40, [2000], 3000, 65, 0, 2, LARGE)
@example([30, 300] * 30, 10, [300], 100, 10**6, 0, None, LARGE)  # larger than a batch
def test_values_are_sent_at_once_as_one_by_one(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    repeat: int,
    cuts: list[int],
    batch_bytes: int,
    batch_records: int,
    base_sequence: int,
    transactions: int | None,
    config: LogConfig,
) -> None:
    values = [b"%d" % n + b"x" * size for n, size in enumerate(sizes * repeat)]
    found = []
    for kernel, is_fast in [*((kernel, True) for kernel in BULK_KERNELS), ("numpy", False)]:
        directory = make_log_dir(tmp_path_factory.mktemp("run") / "log-dir") / "t-0"
        writer = open_writer(directory, config, fs=NoSyncFileSystem())
        first = ProducerIdentity(7, 0, 0 if transactions == 2 else base_sequence)
        producer = producer_of(
            writer,
            first,
            batch_bytes=batch_bytes,
            batch_records=batch_records,
            is_transactional=transactions is not None,
            is_per_transaction=transactions == 2,
        )
        kafka_error = None
        try:
            with demanded(kernel):
                send(producer, values, cuts, is_fast=is_fast, transactions=transactions)
        except AppendError as exc:
            kafka_error = exc.kafka_error
        files = content(directory) if directory.exists() else {}
        found.append((files, producer.outcome, kafka_error))
    assert all(each == found[-1] for each in found)


def test_many_batches_are_one_write(tmp_path: Path, runs: list[int]) -> None:
    producer = producer_of(open_writer(make_log_dir(tmp_path / "log-dir") / "t-0", LARGE))
    values = [b"%05d" % n + b"x" * 45 for n in range(900)]
    send(producer, values, [300], is_fast=True)
    assert producer.outcome.batches == 129
    # The first batch of all is sent alone; of each piece the end waits for the next one.
    assert len(runs) == 3
    assert sum(runs) > 120


class CountedValues(list[bytes]):
    """Values that count how often they are looked at."""

    inspections = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.inspections += len(found) if isinstance(place, slice) else 1
        return found


@pytest.mark.share(7)
@pytest.mark.parametrize(
    ("config", "flush", "options"),
    [
        (LARGE, FlushPolicy.NEVER, {"batch_records": 1}),
        (LARGE, FlushPolicy.NEVER, {"batch_records": 10}),
        (LARGE, FlushPolicy.NEVER, {"batch_bytes": 1}),
        (LARGE, FlushPolicy.NEVER, {"batch_bytes": 200}),
        (LARGE, FlushPolicy.BATCH, {"batch_records": 1}),
        (LARGE, FlushPolicy.NEVER, {"batch_records": 1, "codec": Codec.GZIP}),
        (LARGE._replace(is_log_append_time=True), FlushPolicy.NEVER, {"batch_records": 1}),
        (LARGE._replace(segment_bytes=800), FlushPolicy.NEVER, {"batch_records": 1}),
    ],
)
@pytest.mark.parametrize("kernel", BULK_KERNELS)
def test_no_value_is_looked_at_for_each_batch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kernel: KernelName,
    config: LogConfig,
    flush: FlushPolicy,
    options: dict,
) -> None:
    """Whatever bounds a batch: what is before and behind it costs nothing."""
    cut_count = 0
    cut = batch_run._NativeBatches._cut

    def counting(self: Any, limit: int) -> tuple[list[int], list[int]]:
        nonlocal cut_count
        found = cut(self, limit)
        cut_count += sum(found[1])
        return found

    monkeypatch.setattr(batch_run._NativeBatches, "_cut", counting)
    directory = make_log_dir(tmp_path / "log-dir") / "t-0"
    writer = open_writer(directory, config, flush=flush, fs=NoSyncFileSystem())
    producer = producer_of(writer, **{"batch_bytes": 16_384, **options})
    values = CountedValues(b"%050d" % each for each in range(2000))
    with demanded(kernel):
        producer.add_values(values, 0, len(values))
    producer.flush()
    assert producer.outcome.records == 2000
    assert producer.outcome.batches >= 200
    assert values.inspections <= 10 * len(values)
    assert cut_count <= 10 * len(values)


@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("a codec", {"codec": Codec.GZIP}),
        ("acknowledgements", {"sending": Sending(on_ack=lambda *_: None)}),
        ("no idempotence", {"first": ProducerIdentity()}),
    ],
)
def test_what_is_done_for_each_batch_is_done(
    tmp_path: Path, runs: list[int], case: str, options: dict
) -> None:
    directory = make_log_dir(tmp_path / "log-dir") / "t-0"
    producer = producer_of(open_writer(directory, LARGE), **options)
    send(producer, [b"x" * 50] * 900, [900], is_fast=True)
    assert producer.outcome.records == 900
    assert runs == [], case


@pytest.mark.parametrize(
    ("config", "flush"),
    [(LARGE, FlushPolicy.BATCH), (LARGE._replace(is_log_append_time=True), FlushPolicy.NEVER)],
)
def test_what_the_log_does_for_each_batch_is_done(
    tmp_path: Path, runs: list[int], config: LogConfig, flush: FlushPolicy
) -> None:
    directory = make_log_dir(tmp_path / "log-dir") / "t-0"
    producer = producer_of(open_writer(directory, config, flush=flush))
    send(producer, [b"x" * 50] * 900, [900], is_fast=True)
    assert producer.outcome.records == 900
    assert runs == []


def test_values_that_the_log_has_already_are_duplicates(tmp_path: Path, runs: list[int]) -> None:
    directory = make_log_dir(tmp_path / "log-dir") / "t-0"
    writer = open_writer(directory, LARGE)
    values = [b"x" * 50] * 640
    producer = producer_of(writer, batch_bytes=1000)
    producer.add_values(values, 0, 64)
    producer.flush()
    assert producer.outcome.batches == 4
    again = producer_of(writer, batch_bytes=1000)
    again.add_values(values, 0, 640)
    again.flush()
    assert (again.outcome.duplicates, again.outcome.records) == (64, 576)
    assert sum(runs) > 30
