"""Targets: what `eoctl` itself makes of files, names and words that it is given."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import TYPE_CHECKING, Any

import msgpack

from eoctl import clock, output
from eoctl.dump import index_text, run
from eoctl.dump.selection import Decoder, DumpOptions, Selection, ValueDecoder
from eoctl.options import parse_range
from eoctl.output import OutputFormat
from storage.errors import UsageError
from storage.file_names import FileKind, classify, parse_partition_name
from storage.log.segment import parse_base_offset
from storage.producers.java_hash_map import hash_map_order, string_hash

from .engine import Target
from .mutations import TEXTS, repair_log, repair_snapshot
from .promises import never_raises
from .segment_targets import chance, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from .corpus import Corpus

TOPICS = (
    "topic", "__consumer_offsets", "__transaction_state", "__share_group_state",
    "__cluster_metadata", "__remote_log_metadata",
)  # fmt: skip
PROPERTY_NAMES = {
    FileKind.OFFSET_CHECKPOINT: "recovery-point-offset-checkpoint",
    FileKind.LEADER_EPOCHS: "leader-epoch-checkpoint",
    FileKind.PARTITION_METADATA: "partition.metadata",
    FileKind.META_PROPERTIES: "meta.properties",
    FileKind.QUORUM_STATE: "quorum-state",
    FileKind.CLEAN_SHUTDOWN: ".kafka_cleanshutdown",
}
# Nothing found, findings, a part skipped: all that a dump of a file that is there may end with.
EXPECTED_STATUSES = (0, 1, 5)


@contextlib.contextmanager
def captured() -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """Take what is written to stdout and stderr."""
    old = sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdout, sys.stderr = io.TextIOWrapper(out), io.TextIOWrapper(err)
    try:
        yield out, err
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        new = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = old
        for stream in new:
            stream.detach()
        output.use_format(OutputFormat.TEXT)


def _dump(name: str, data: bytes, options: DumpOptions) -> None:
    """Dump one file as the command does, and read what it wrote."""
    path = write_file(name, data)
    with captured() as (out, err):
        status = run.dump_paths([str(path)], options)
    assert status in EXPECTED_STATUSES, err.getvalue()
    if options.output is OutputFormat.TEXT:
        out.getvalue().decode("utf-8", "surrogateescape")
    elif options.output is OutputFormat.JSONL:
        rows = [json.loads(line) for line in out.getvalue().split(b"\n")[:-1]]
        assert rows
    else:
        unpacker = msgpack.Unpacker(
            io.BytesIO(out.getvalue()), strict_map_key=False, unicode_errors="surrogateescape"
        )
        assert list(unpacker)


def _options(rnd: Random) -> DumpOptions:
    selections = (
        Selection(),
        Selection(),
        Selection(key=b"k"),
        Selection(producer_id=0),
        Selection(only_control=True),
        Selection(only_aborted=True),
        Selection(offsets=parse_range("1..5", int, "--offsets")),
    )
    return DumpOptions(
        output=rnd.choice(tuple(OutputFormat)),
        deep_iteration=True,
        print_data_log=rnd.random() < 0.8,
        skip_record_metadata=rnd.random() < 0.2,
        max_bytes=rnd.choice((None, 2**31 - 1, 100, 1000)),
        max_batch_bytes=2**20,
        decoder=rnd.choice((None, None, *Decoder)),
        key_decoder=rnd.choice(tuple(ValueDecoder)),
        value_decoder=rnd.choice(tuple(ValueDecoder)),
        selection=rnd.choice(selections),
        show_secrets=rnd.random() < 0.5,
        jobs=1,
    )


def _dump_log(data: bytes) -> None:
    rnd = chance(data)
    directory = f"dump/{rnd.choice(TOPICS)}-0"
    name = rnd.choice(("00000000000000000000.log", "00000000000000000000.log", "x.checkpoint"))
    _dump(f"{directory}/{name}", data, _options(rnd))


def _dump_index(data: bytes) -> None:
    """Indexes and snapshots, beside a log that is some of the same bytes."""
    rnd = chance(data)
    if rnd.random() < 0.5:
        write_file("index/topic-0/00000000000000000000.log", data[len(data) // 2 :])
    suffix = rnd.choice((".index", ".timeindex", ".txnindex", ".snapshot"))
    options = DumpOptions(
        output=rnd.choice(tuple(OutputFormat)),
        verify_index_only=rnd.random() < 0.2,
        index_sanity_check=rnd.random() < 0.3,
    )
    _dump(f"index/topic-0/00000000000000000000{suffix}", data, options)


def _dump_properties(data: bytes) -> None:
    rnd = chance(data)
    for kind, name in PROPERTY_NAMES.items():
        never_raises(index_text.property_problems, kind, data)
        for line in index_text.property_text(kind, data):
            assert isinstance(line, str)
        _dump(f"properties/{name}", data, DumpOptions(output=rnd.choice(tuple(OutputFormat))))


def _names(data: bytes) -> None:
    """Any name of a file or directory is one of a kind, or unknown."""
    text = data.decode("utf-8", "surrogateescape")
    for name in (text, text.split("/")[-1], text[:255], f"{text}-0", f"{text}.log"):
        found = never_raises(classify, name)
        assert found.name == name
        assert found.offset is None or 0 <= found.offset < 2**63
        _ = found.has_padded_offset
        partition = never_raises(parse_partition_name, name)
        if partition is not None:
            assert partition.topic
            assert 0 <= partition.partition < 2**31
        base_offset = never_raises(parse_base_offset, name)
        assert base_offset is None or 0 <= base_offset < 2**63
        never_raises(hash_map_order, [name, text, name[:1]], string_hash)


def _words(data: bytes) -> None:
    """Times and ranges of the command line."""
    text = data.decode("utf-8", "surrogateescape")
    refusals: list[UsageError] = []
    try:
        time_ms = clock.parse_time_ms(text)
        clock.format_time_ms(time_ms).encode()
    except UsageError as error:
        refusals.append(error)
    for parse in (int, clock.parse_time_ms):
        try:
            found: Any = parse_range(text, parse, "--option")
        except UsageError as error:
            refusals.append(error)
            continue
        assert found.first is not None or found.last is not None
        assert found.holds(found.last if found.first is None else found.first)
    if len(refusals) == 3:
        raise refusals[0]


def _property_seeds(corpus: Corpus) -> list[bytes]:
    return [seed for name in PROPERTY_NAMES.values() for seed in corpus.starts(name)[:8]]


TARGETS = [
    Target("dump_log", _dump_log, lambda corpus: corpus.logs(), 400, repair_log),
    Target(
        "dump_index",
        _dump_index,
        lambda corpus: [
            seed
            for suffix in (".index", ".timeindex", ".txnindex", ".snapshot")
            for seed in corpus.starts(suffix, max_bytes=400)[:12]
        ],
        300,
        repair_snapshot,
    ),
    Target(
        "dump_properties",
        _dump_properties,
        _property_seeds,
        200,
        words=(*TEXTS, b"cluster.id=", b"kind=x", b"path=x"),
    ),
    Target(
        "names",
        _names,
        lambda corpus: [name.encode() for file in corpus.files[::9] for name in file.path.split("/")],
        600,
        words=(*TEXTS, b"-delete", b"-future", b"-stray", b".deleted", b".swap", b".log", b".index"),
    ),
    Target(
        "words",
        _words,
        lambda _: [
            b"0", b"1..5", b"..7", b"9..", b"2026-11-21T04:38:00Z", b"2026-11-21", b"1700000000000",
            b"0001-01-01T00:00:00+23:59", b"9999-12-31T23:59:59.999999-23:59", b"20261121T0438..",
        ],
        1500,
        words=(*TEXTS, b"..", b"T", b"+14:00", b"Z", b"W01", b"--"),
        allowed=(UsageError,),
    ),
]  # fmt: skip
