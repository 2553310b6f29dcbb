"""`eoctl bench`: measure real brokers, and audit which of their records are in the logs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from eoctl import options
from eoctl.output import OutputFormat
from eoctl.parameters import advanced_option, option, output_option


class ClientChoice(StrEnum):
    """The producer that sends."""

    LIBRDKAFKA = "librdkafka"
    JAVA = "java"


def command(
    scenario: Annotated[
        list[int] | None, option(min=1, metavar="N", help="A scenario, 1 to 7. Repeatable.")
    ] = None,
    is_all: Annotated[bool, option("--all", help="All scenarios.")] = False,
    cell: Annotated[
        list[str] | None,
        option(metavar="NAME", help="Only these cells, by name or pattern. Repeatable."),
    ] = None,
    brokers: Annotated[
        int | None,
        option(min=1, max=16, metavar="N", help="Brokers that are started.", show_default="4"),
    ] = None,
    records: Annotated[
        int, option(min=100, max=100_000_000, metavar="N", help="Records of each run.")
    ] = 20_000,
    seconds: Annotated[
        float,
        option(
            min=0,
            max=86_400,
            metavar="S",
            help="Send as long as this in each run, not so many records.",
            show_default=False,
        ),
    ] = 0.0,
    repetitions: Annotated[
        int, option(min=3, max=1000, metavar="N", help="Runs of each cell.")
    ] = 3,
    is_cold: Annotated[
        bool, option("--no-warm-up", help="Leave out the runs that warm brokers and count nothing.")
    ] = False,
    in_flight: Annotated[
        int,
        option(min=1, max=100_000, metavar="N", help="Records that may be without an answer."),
    ] = 32,
    seed: Annotated[int, option(min=0, max=2**53, metavar="N", help="Of the values.")] = 0,
    to: Annotated[
        str | None,
        output_option(metavar="DIR", help="Write samples as Parquet to a new directory."),
    ] = None,
    kafka_home: Annotated[
        str | None,
        advanced_option(
            metavar="DIR",
            help="An installation of Kafka, or its jars.",
            show_default="those fetched by scripts/fetch-kafka-libs.sh",
        ),
    ] = None,
    work_dir: Annotated[
        str, advanced_option(metavar="DIR", help="Where the log dirs of the brokers are made.")
    ] = "eoctl-bench",
    first_port: Annotated[
        int | None,
        advanced_option(
            min=1024,
            max=65_000,
            metavar="PORT",
            help="First of a row of ports.",
            show_default="free ones",
        ),
    ] = None,
    java_option: Annotated[
        list[str] | None,
        advanced_option(
            metavar="OPTION", help="An option of the JVMs, instead of eoctl's. Repeatable."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        advanced_option(metavar="NAME=VALUE", help="A setting of the brokers. Repeatable."),
    ] = None,
    client: Annotated[
        ClientChoice, option(help="java repeats it with kafka-producer-perf-test, to compare.")
    ] = ClientChoice.LIBRDKAFKA,
    against: Annotated[
        str | None,
        option(metavar="HOST:PORT", help="Measure running brokers. Topics are created there."),
    ] = None,
    on_kill: Annotated[
        str | None,
        option(metavar="CMD", help="With --against. Ends the broker whose id is added."),
    ] = None,
    on_start: Annotated[
        str | None,
        option(metavar="CMD", help="With --against. Starts the broker whose id is added."),
    ] = None,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Measure real brokers, and audit which of their records are in the logs.

    eoctl starts brokers on the loopback interface and runs each cell of a scenario at least three
    times. After each run it reads all logs with its own readers, and counts acknowledged, missing
    and duplicate records. Results of a published study are shown for comparison.
    """
    from eoctl.lab.bench.run import BenchRequest, run_bench

    request = BenchRequest(
        scenarios=scenario or (),
        is_all=is_all,
        cells=cell or (),
        brokers=brokers,
        records=records,
        seconds=seconds,
        repetitions=repetitions,
        has_warmup=not is_cold,
        in_flight=in_flight,
        seed=seed,
        kafka_home=kafka_home,
        work_dir=work_dir,
        first_port=first_port,
        java_options=java_option or (),
        settings=setting or (),
        to=to,
        has_java_client=client is ClientChoice.JAVA,
        against=against,
        on_kill=on_kill,
        on_start=on_start,
    )
    return run_bench(request, output)
