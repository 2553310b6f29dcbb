"""`eoctl serve`: dead brokers' directories, read-only, for every Kafka client."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl import options, output, progress
from eoctl.clients.log.log_walk import DamageError
from eoctl.console.columns import duration_text, printable, size_text
from eoctl.messages import first_of
from eoctl.options import OfferUntil, OnDamage
from eoctl.output import OutputFormat, Report, emit
from eoctl.parameters import argument, option, records_option, safety_option
from eoctl.progress import Progress
from eoctl.serve.server import Address, Server
from eoctl.serve.state.catalogue import Catalogue, ServeRules
from eoctl.serve.state.members import CommitFile, Members
from recovery.cluster.clusters import Clusters, find_metadata
from recovery.cluster.placement import not_understood_of
from recovery.records.read_options import has_schema_values
from recovery.transactions.isolation import Isolation
from storage.counts import agreeing, counted
from storage.dirs.discovery import discover, is_foreign
from storage.errors import (
    EXIT_ACCESS,
    EXIT_BUG,
    EXIT_OK,
    EXIT_SKIPPED,
    AccessError,
    EoctlError,
    RefusedError,
    UsageError,
    pasted,
)
from storage.file_names import METADATA_TOPIC, DirState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eoctl.clients.record_formats.schemas import Schemas
    from eoctl.serve.connection import Connection
    from eoctl.serve.state.catalogue import ServedPartition
    from storage.dirs.discovery import Discovery, Selected
    from storage.file_names import TopicPartition


def command(
    paths: Annotated[
        list[str] | None,
        argument(metavar="[DIR]...", help="Log dirs of one cluster, or partition directories."),
    ] = None,
    listen: Annotated[
        str, option(metavar="HOST:PORT", help="Address to listen on. Port 0 is a free port.")
    ] = "127.0.0.1:0",
    allow_remote: Annotated[
        bool,
        safety_option("--allow-remote", help="Listen on other addresses. Every client can read."),
    ] = False,
    until: Annotated[
        OfferUntil,
        records_option(help="Offer all of the log, or what is below the high watermark."),
    ] = OfferUntil.LOG_END,
    isolation_floor: Annotated[
        bool,
        records_option("--isolation-floor", help="Give every client only what is committed."),
    ] = False,
    on_damage: Annotated[
        OnDamage,
        records_option(help="Give clients an error at damage, or what follows it."),
    ] = OnDamage.STOP,
    topic: Annotated[
        list[str] | None,
        records_option(metavar="GLOB", help="Serve only these topics. Repeatable."),
    ] = None,
    internal: Annotated[
        bool, records_option("--internal", help="Serve the brokers' own topics, too.")
    ] = False,
    prefer: Annotated[
        str | None,
        records_option(metavar="DIR", help="Serve the replica in DIR."),
    ] = None,
    diverged: Annotated[
        str | None,
        records_option(
            metavar="DIR", help="If replicas diverge, serve the replica in DIR to its end."
        ),
    ] = None,
    follow: Annotated[
        bool,
        option("--follow", "-f", help="Serve what a broker appends, up to its high watermark."),
    ] = False,
    verify: Annotated[
        bool, option("--verify", help="Read everything before anything is served.")
    ] = False,
    decode: Annotated[
        bool, option("--decode", help="With --verify, count the values that a schema decodes.")
    ] = False,
    schema_dir: options.SchemaDir = None,
    for_seconds: Annotated[
        float | None, option(min=0, metavar="S", help="Stop after S seconds.")
    ] = None,
    offsets_to: Annotated[
        str | None,
        option(metavar="FILE", help="Write what groups commit to FILE, as JSON Lines."),
    ] = None,
    metadata_dir: options.MetadataDir = None,
    server_properties: options.ServerProperties = None,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Serve dead brokers' directories, read-only, to every Kafka client.

    Clients list topics, fetch, search by time, and read groups and transactions as they were.
    Commits are kept in memory. Every other write is refused.
    """
    from eoctl.serve.state.catalogue import Preferences, ServeRules

    given = options.given_paths(paths, server_properties)
    if not given:
        raise UsageError("no DIR given", next_step="eoctl serve LOG-DIR...")
    rules = ServeRules(
        is_until_hw=until is OfferUntil.HW or follow,
        skips_damage=on_damage is OnDamage.SKIP,
        is_committed_only=isolation_floor,
        has_internal=internal,
        topics=tuple(topic or ()),
        preferences=Preferences(prefer or "", diverged or ""),
    )
    schemas = None
    if decode or schema_dir:
        from eoctl.clients.record_formats.schemas import schemas_for

        if not verify:
            raise UsageError("--decode counts what --verify reads", next_step="--verify --decode")
        schemas = schemas_for(given, schema_dir)
        schemas.require_libraries()
    wanted = ServeOptions(
        rules=rules,
        listen=listen,
        allows_remote=allow_remote,
        for_seconds=for_seconds,
        follows=follow,
        verifies=verify,
        schemas=schemas,
        metadata_dir=metadata_dir,
        offsets_to=offsets_to,
    )
    return serve(given, wanted, output)


# -- the notes on each served partition


VERIFIED = "verified: headers and checksums of all batches that are offered"
READ_BYTES = 8 << 20


class ServedRow(NamedTuple):
    """A served partition. Values that need a full read are None.

    Attributes:
        high_watermark: as checkpointed.
        last_stable_offset: where a read_committed consumer stops.
        end_offset: the end of the offered records.
        damaged_places: the number met so far.
        notes: missing data, not a column.
    """

    topic: str
    partition: int
    log_start_offset: int
    high_watermark: int | None
    last_stable_offset: int | None
    end_offset: int
    damaged_places: int | None
    path: str
    notes: tuple[str, ...] = ()
    is_lacking: bool = False

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Return the names of the shown columns."""
        return cls._fields[:-2]

    def values(self) -> tuple[Any, ...]:
        """Return the shown values."""
        return tuple(self)[:-2]


def partition_row(served: ServedPartition) -> ServedRow:
    """Read the ends of a partition."""
    topic, number = served.key
    try:
        log = served.log
        bounds = log.bounds()
    except AccessError as exc:
        return ServedRow(
            topic=topic,
            partition=number,
            log_start_offset=-1,
            high_watermark=None,
            last_stable_offset=None,
            end_offset=-1,
            damaged_places=None,
            path=served.copies[0].partition.path,
            notes=(str(exc),),
            is_lacking=True,
        )
    remote = log.partition.remote_range
    # As in `consume` and `export`, remote segments are not part of the log dir, and are no damage.
    notes = [] if remote is None else [f"{remote}: they are not served"]
    lacking = [*map(str, log.missing), *map(str, log.partition.problems)]
    try:
        stable = log.known_stable_offset()
    except AccessError as exc:
        stable = -1
        lacking.append(str(exc))
    lacking += map(str, log.unknown)
    return ServedRow(
        topic=topic,
        partition=number,
        log_start_offset=bounds.start_offset,
        high_watermark=bounds.high_watermark,
        last_stable_offset=None if stable < 0 else stable,
        end_offset=bounds.end_offset,
        damaged_places=log.damaged_count if log.is_verified else None,
        path=log.partition.path,
        notes=(*notes, *lacking),
        is_lacking=bool(lacking or log.damaged_count or served.is_lacking),
    )


def verify(catalogue: Catalogue) -> None:
    """Read all offered records and their transactions before serving."""
    selected = [copy for each in catalogue.partitions() for copy in each.copies[:1]]
    total = sum(each.log_bytes() for each in selected)
    with Progress("verifying", total):
        for each in catalogue.partitions():
            try:
                each.log.verify()
            except (AccessError, DamageError) as exc:
                catalogue.report_once(str(exc))


def decode_all(catalogue: Catalogue, schemas: Schemas) -> None:
    """Decode the values that clients receive, except in the brokers' own topics."""
    from eoctl.clients.log.consumer import ConsumeOptions, Consumer, End, EndKind

    rules = catalogue.rules
    for each in catalogue.partitions():
        if not has_schema_values(each.key[0]):
            continue
        try:
            offered = each.log.bounds()
            wanted = ConsumeOptions(
                end=End(EndKind.OFFSET, offered.end_offset),
                isolation=Isolation.READ_COMMITTED
                if rules.is_committed_only
                else Isolation.READ_UNCOMMITTED,
                skip_corrupt=rules.skips_damage,
            )
            consumer = Consumer(each.log.partition.path, wanted, lambda _: None)
            consumer.start()
            for given in consumer.records():
                if given is not None:
                    schemas.count(given.lists().values)
        except (AccessError, DamageError) as exc:  # clients meet it at the same offset
            catalogue.report_once(str(exc))


# -- one run of `eoctl serve`: the partitions, the address, the clients, and the damage they met


MAX_PORT = 65_535
SOME = 3  # the number of partitions that are named
GIVE_WAY_S = 2.0
DEFAULT_LISTEN = "127.0.0.1:0"


class ServeOptions(NamedTuple):
    """The command line options.

    Attributes:
        listen: HOST:PORT.
        for_seconds: None until it is interrupted.
        follows: records that brokers append meanwhile are served, too.
        verifies: everything is read before anything is served.
        schemas: values are decoded by these, and counted.
        offsets_to: a file that commits are written to.
    """

    rules: ServeRules
    listen: str = DEFAULT_LISTEN
    allows_remote: bool = False
    for_seconds: float | None = None
    follows: bool = False
    verifies: bool = False
    schemas: Schemas | None = None
    metadata_dir: str | None = None
    offsets_to: str | None = None


class PortError(EoctlError):
    """The address cannot be used for listening."""

    exit_status = EXIT_ACCESS


def serve(paths: Sequence[str], options: ServeOptions, form: OutputFormat) -> int:
    """Serve log dirs until the time is over or an interrupt. Return the exit status.

    Raises:
        UsageError, RefusedError: the options do not make sense.
        NotKafkaError, AccessError: a directory, or the port, cannot be used.
    """
    address = parse_address(options.listen)
    require_allowed(address, options)
    found = discover(paths)
    catalogue = open_catalogue(found, options)
    if not catalogue.topics:
        raise UsageError(
            "nothing to serve: no partition of a requested topic is there",
            next_step="--topic GLOB, or --internal for the brokers' own topics",
        )
    run = _Run(catalogue, options, form)
    problems = [str(each) for each in found.problems if not is_foreign(each)]
    problems += not_understood_of([catalogue.image])
    run.notes += first_of(problems, "problems")
    run.is_lacking = bool(problems)
    for each in found.log_dirs:
        if each.lock.is_held:
            how = "is followed" if options.follows else "is served as it is now; see --follow"
            run.notes.append(f"{each.path}: in use by {each.lock.holder}; it {how}")
    try:
        run.live(address)
    except KeyboardInterrupt as exc:
        exc.add_note(run.summary())
        raise
    output.message(run.summary())
    return run.status


def parse_address(text: str) -> Address:
    """Read HOST:PORT. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        raise UsageError(f"--listen {text}: not HOST:PORT", next_step="--listen 127.0.0.1:9092")
    return Address(host, int(port))


def require_allowed(address: Address, options: ServeOptions) -> None:
    """Refuse an address that others can reach. Raises RefusedError."""
    if options.allows_remote or address.host == "localhost":
        return
    try:
        is_loopback = ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise RefusedError(
            f"--listen {address}: anyone who reaches that address could read everything that is "
            "served; no password is required",
            next_step=f"--listen {address} --allow-remote, or --listen 127.0.0.1:{address.port}",
        )


def open_catalogue(found: Discovery, options: ServeOptions) -> Catalogue:
    """Return the catalogue to serve. Raises UsageError if it is of several clusters."""
    ids = {each.meta.cluster_id for each in found.log_dirs if each.meta is not None} - {None}
    if len(ids) > 1:
        names = " and ".join(sorted(map(str, ids)))
        raise UsageError(
            f"log dirs of clusters {names}: one broker is of one cluster",
            next_step="a run for each cluster",
        )
    metadata = None if options.metadata_dir is None else find_metadata(options.metadata_dir)
    clusters = Clusters(found.log_dirs, metadata)
    image = clusters.image_for(found.log_dirs[0] if found.log_dirs else None)
    copies: dict[TopicPartition, tuple[Selected, ...]] = {}
    quorum = [] if metadata is None else [metadata]
    for each in found.selected:
        name = each.partition.name
        if name.topic == METADATA_TOPIC:
            quorum += [each] if metadata is None else []
        elif name.state is DirState.LIVE and name.partition >= 0:
            key = each.partition.topic_partition
            copies[key] = (*copies.get(key, ()), each)
    return Catalogue(
        copies,
        found.log_dirs,
        image,
        metadata=quorum,
        rules=options.rules,
        report=lambda _: None,
    )


def _names_of(rows: Sequence[ServedRow]) -> str:
    """Return a few partition names, and the number of the others."""
    names = ", ".join(f"{row.topic}-{row.partition}" for row in rows[:SOME])
    return names if len(rows) <= SOME else f"{names} and {len(rows) - SOME} more partitions"


class _Run:
    """The state of a run that serves."""

    def __init__(self, catalogue: Catalogue, options: ServeOptions, form: OutputFormat) -> None:
        self.notes: list[str] = []
        self.is_lacking = False
        self._catalogue = catalogue
        self._options = options
        self._form = form
        self._commits = None if options.offsets_to is None else CommitFile(options.offsets_to)
        self._members = Members(None if self._commits is None else self._commits.add)
        self._server: Server | None = None
        self._clients_count = 0
        self._has_failed = False
        self._gives_way = True
        self._sent_bytes = 0

    # --- life

    def live(self, address: Address) -> None:
        """Serve. Raises KeyboardInterrupt for every kind of request to end."""
        before = signal.getsignal(signal.SIGTERM)
        try:
            asyncio.run(self._main(address))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            signal.signal(signal.SIGTERM, before)

    @staticmethod
    def _end_when_asked(loop: asyncio.AbstractEventLoop) -> None:
        """End as on Ctrl-C after a service manager's signal or `kill`, at the first signal.

        The loop's own handlers would be removed before it has ended.
        """
        main = asyncio.current_task()
        assert main is not None

        def end(*_: object) -> None:
            if not main.done() and not main.cancelling():
                main.cancel()
                loop.call_soon_threadsafe(lambda: None)  # the loop may be waiting

        if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, end)

    async def _main(self, address: Address) -> None:
        """Listen, print the served partitions, and wait."""
        loop = asyncio.get_running_loop()
        self._end_when_asked(loop)
        self._catalogue.report = lambda words: self._report_from(loop, words)
        self._server = server = Server(self._catalogue, self._members, on_end=self._take_leave)
        try:
            if self._options.verifies:
                await server.broker.apart(verify, self._catalogue)
                if self._options.schemas is not None:
                    await server.broker.apart(decode_all, self._catalogue, self._options.schemas)
            progress.stop()
            await server.listen(address)
            if self._options.follows:
                server.follow()
            began_s = time.monotonic()
            await self._report_all(server)
            seconds = self._options.for_seconds
            left_s = None if seconds is None else began_s + seconds - time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await asyncio.Event().wait()
        finally:
            await server.close()
            if self._commits is not None:
                self._commits.close()

    async def _report_all(self, server: Server) -> None:
        """Print the address and all served partitions, even if an interrupt arrives."""
        self._report_where(server.address)
        reporting = asyncio.create_task(self._report_rows(server))
        try:
            await asyncio.shield(reporting)
        except asyncio.CancelledError:
            self._gives_way = False
            await reporting  # which a second Ctrl-C ends, too
            raise

    def _report_where(self, address: Address) -> None:
        if self._form is OutputFormat.TEXT:
            output.line(f"bootstrap {address}")
        else:
            output.row_writer(self._form)({"kind": "bootstrap", "bootstrap": str(address)})
        output.flush()
        topic = next(iter(self._catalogue.topics))
        output.message(f"read it: kcat -b {address} -C -e -t {pasted(topic)}")
        output.message(
            f"read it: kafka-console-consumer.sh --bootstrap-server {address} --from-beginning"
            f" --topic {pasted(topic)}"
        )

    async def _report_rows(self, server: Server) -> None:
        """Print the served partitions, while they are served already."""
        rows = []
        until_s = asyncio.get_running_loop().time() + GIVE_WAY_S
        for each in self._catalogue.partitions():
            if self._gives_way:
                await server.broker.give_way(until_s)  # to connected clients
            rows.append(await server.broker.apart(partition_row, each))
        self.is_lacking = self.is_lacking or any(each.is_lacking for each in rows)
        if self._options.verifies:
            self.notes.append(VERIFIED)
            if self._options.schemas is not None:
                self.notes += self._options.schemas.reported()
        emit(
            Report(
                kind="served_partition",
                columns=ServedRow.columns(),
                rows=[each.values() for each in rows],
                notes=[*self.notes, *self._notes_of(rows)],
            ),
            self._form,
        )
        output.flush()

    def _notes_of(self, rows: Sequence[ServedRow]) -> list[str]:
        notes = [f"{row.topic}-{row.partition}: {each}" for row in rows for each in row.notes]
        above = [
            row for row in rows
            if row.high_watermark is not None and row.end_offset > row.high_watermark
        ]  # fmt: skip
        unknown = [row for row in rows if row.high_watermark is None]
        found = first_of(notes, "notes")
        if above:
            count = sum(row.end_offset - (row.high_watermark or 0) for row in above)
            found.append(
                f"{counted(count, 'offset')} above the checkpointed high watermark"
                f" {agreeing(count, 'is', 'are')} offered, of"
                f" {_names_of(above)}; --until hw leaves them out"
            )
        if unknown:
            offered = "nothing" if self._options.rules.is_until_hw else "everything"
            found.append(
                f"no checkpoint names a high watermark of {_names_of(unknown)}: {offered} of it is"
                " offered"
            )
        return found

    # --- messages

    @staticmethod
    def _report_from(loop: asyncio.AbstractEventLoop, words: str) -> None:
        """Print a message from any thread."""
        if not loop.is_closed():
            loop.call_soon_threadsafe(lambda: output.message(words, level="warning"))

    def _take_leave(self, client: Connection) -> None:
        self._clients_count += 1
        self._has_failed |= client.is_our_bug
        self._sent_bytes += client.sent_bytes
        name = f" ({printable(client.name)})" if client.name else ""
        seconds = duration_text(round((time.monotonic() - client.began_s) * 1000))
        many = len(client.partitions)
        of_what = f" of {counted(many, 'partition')}" if many else ""
        end = f"; disconnected: {client.problem}" if client.problem else ""
        output.message(
            f"client {client.address}{name}: {counted(client.requests_count, 'request')},"
            f" {size_text(client.sent_bytes)}{of_what}, {seconds}{end}",
            address=client.address,
            client_id=client.name,
            requests_count=client.requests_count,
            sent_bytes=client.sent_bytes,
        )

    def summary(self) -> str:
        """Return a summary of the run."""
        damage = sum(
            each.log.damaged_count for each in self._catalogue.partitions() if each.is_open
        )
        met = f"; {counted(damage, 'damaged place')} met" if damage else ""
        away = 0 if self._server is None else self._server.turned_away_count
        more = f"; {counted(away, 'client')} turned away" if away else ""
        return (
            f"served {size_text(self._sent_bytes)} over"
            f" {counted(self._clients_count, 'connection')}{more}{met}"
        )

    @property
    def status(self) -> int:
        """The exit status: EXIT_BUG after a bug, 5 if data that was read is missing or damaged."""
        if self._has_failed:
            return EXIT_BUG
        logs = [each.log for each in self._catalogue.partitions() if each.is_open]
        is_damaged = any(each.skipped or each.met or each.missing or each.unknown for each in logs)
        is_lacking = self.is_lacking or self._catalogue.is_lacking
        return EXIT_SKIPPED if is_damaged or is_lacking else EXIT_OK
