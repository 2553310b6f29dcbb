"""`eoctl dump-segment`: print any file of a log directory, as kafka-dump-log does or as rows."""

from __future__ import annotations

from typing import Annotated

from eoctl.options import Jobs, KafkaOutput, MaxBatchBytes, Offsets, Raw, Times, process_count
from eoctl.output import OutputFormat, pass_escapes
from eoctl.parameters import advanced_option, argument, option, output_option, records_option
from storage.errors import UsageError


def command(
    paths: Annotated[
        list[str] | None,
        argument(metavar="[FILE]...", help="Files, partition directories or log dirs."),
    ] = None,
    files: Annotated[
        list[str] | None,
        option("--files", metavar="FILE,...", help="Files, separated by commas."),
    ] = None,
    deep_iteration: Annotated[
        bool, output_option("--deep-iteration", help="One line per record, not only per batch.")
    ] = False,
    print_data_log: Annotated[
        bool, output_option("--print-data-log", help="Print keys and payloads of records too.")
    ] = False,
    skip_record_metadata: Annotated[
        bool,
        output_option("--skip-record-metadata", help="Record lines hold only key and payload."),
    ] = False,
    verify_index_only: Annotated[
        bool, option("--verify-index-only", help="Check indexes, print no entries.")
    ] = False,
    index_sanity_check: Annotated[
        bool, option("--index-sanity-check", help="Only the broker's own check of an index.")
    ] = False,
    max_bytes: Annotated[
        int | None, records_option(metavar="BYTES", help="Read at most this much of each log.")
    ] = None,
    max_message_size: Annotated[
        int | None,
        advanced_option(metavar="BYTES", help="Largest message to look for behind an index entry."),
    ] = None,
    max_batch_bytes: MaxBatchBytes = None,
    key_decoder_class: Annotated[
        str | None, advanced_option(metavar="CLASS", help="One of Kafka's own decoder classes.")
    ] = None,
    value_decoder_class: Annotated[
        str | None, advanced_option(metavar="CLASS", help="One of Kafka's own decoder classes.")
    ] = None,
    offsets_decoder: Annotated[
        bool, option("--offsets-decoder", help="Decode records of __consumer_offsets.")
    ] = False,
    transaction_log_decoder: Annotated[
        bool,
        option("--transaction-log-decoder", help="Decode records of __transaction_state."),
    ] = False,
    cluster_metadata_decoder: Annotated[
        bool, option("--cluster-metadata-decoder", help="Decode cluster metadata records.")
    ] = False,
    remote_log_metadata_decoder: Annotated[
        bool,
        option("--remote-log-metadata-decoder", help="Decode tiered-storage metadata."),
    ] = False,
    share_group_state_decoder: Annotated[
        bool,
        option("--share-group-state-decoder", help="Decode records of __share_group_state."),
    ] = False,
    show_secrets: Annotated[
        bool, output_option("--show-secrets", help="Do not hide SCRAM keys in cluster metadata.")
    ] = False,
    kafka_release: Annotated[
        str | None,
        output_option(metavar="X.Y", help="Print the words of this release: 4.3, or 4.4."),
    ] = None,
    offsets: Offsets = None,
    times: Times = None,
    producer_id: Annotated[
        int | None, records_option(metavar="ID", help="Only batches of this producer.")
    ] = None,
    producer_epoch: Annotated[
        int | None, records_option(metavar="EPOCH", help="Only batches of this epoch.")
    ] = None,
    key: Annotated[
        str | None, records_option(metavar="TEXT", help="Only records with this key (UTF-8).")
    ] = None,
    only_control: Annotated[
        bool, records_option("--only-control", help="Only control batches.")
    ] = False,
    only_aborted: Annotated[
        bool, records_option("--only-aborted", help="Only batches of aborted transactions.")
    ] = False,
    follow: Annotated[
        bool, option("--follow", "-f", help="Wait for new batches, also in new segments.")
    ] = False,
    raw: Raw = False,
    jobs: Jobs = None,
    output: KafkaOutput = OutputFormat.TEXT,
) -> int:
    """Print the files of a log directory, each as its name says.

    The text is kafka-dump-log's, line for line, and so are its options. jsonl and msgpack contain
    every field. eoctl writes no file.
    """
    from eoctl.dump.selection import (
        KAFKA_MAX_MESSAGE_BYTES,
        NAMES_STATUS,
        Decoder,
        DumpOptions,
        Selection,
        parse_decoder_class,
        tool_release,
    )
    from eoctl.options import parse_offsets, parse_times
    from storage.formats.compression import DEFAULT_MAX_BATCH_BYTES

    if raw:
        pass_escapes()
    release = tool_release(kafka_release)
    selection = Selection(
        offsets=parse_offsets(offsets),
        times_ms=parse_times(times),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        key=None if key is None else key.encode("utf-8", "surrogateescape"),
        only_control=only_control,
        only_aborted=only_aborted,
    )
    # The first given option counts, in the order of the tool's own precedence.
    wanted = {
        Decoder.OFFSETS: offsets_decoder,
        Decoder.TRANSACTION_LOG: transaction_log_decoder,
        Decoder.CLUSTER_METADATA: cluster_metadata_decoder,
        Decoder.REMOTE_LOG_METADATA: remote_log_metadata_decoder,
        Decoder.SHARE_GROUP_STATE: share_group_state_decoder,
    }
    decoder = next((each for each, is_given in wanted.items() if is_given), None)
    has_class = key_decoder_class is not None or value_decoder_class is not None
    if has_class and decoder is None:
        decoder = Decoder.BYTES
    print_data_log = print_data_log or decoder is not None
    options = DumpOptions(
        output=output,
        deep_iteration=deep_iteration or print_data_log or selection.needs_records,
        print_data_log=print_data_log,
        skip_record_metadata=skip_record_metadata,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
        max_bytes=None if max_bytes is None else _positive("--max-bytes", max_bytes, 1),
        max_message_bytes=_positive(
            "--max-message-size", max_message_size, KAFKA_MAX_MESSAGE_BYTES
        ),
        max_batch_bytes=_positive("--max-batch-bytes", max_batch_bytes, DEFAULT_MAX_BATCH_BYTES),
        decoder=decoder,
        key_decoder=parse_decoder_class(key_decoder_class or "StringDecoder"),
        value_decoder=parse_decoder_class(value_decoder_class or "StringDecoder"),
        selection=selection,
        show_secrets=show_secrets,
        names_status=release >= NAMES_STATUS,
        jobs=process_count(jobs),
    )
    all_paths = [*(paths or []), *_listed(files or [])]
    if not all_paths:
        raise UsageError("no file given", next_step="eoctl dump-segment FILE...")
    if follow:
        from eoctl.dump.follow import follow_log

        return follow_log(all_paths, options)
    from eoctl.dump.run import dump_paths

    return dump_paths(all_paths, options)


def _listed(lists: list[str]) -> list[str]:
    """Split lists at their commas. Empty names are skipped, as the tool does."""
    return [each for given in lists for each in given.split(",") if each]


def _positive(option: str, value: int | None, default: int) -> int:
    if value is None:
        return default
    if value <= 0:
        raise UsageError(f"{option}: {value} is not above 0")
    return value
