"""`eoctl serve`: dead brokers' directories, read-only, to every Kafka client."""

from __future__ import annotations

from typing import Annotated

from eoctl import options
from eoctl.declared import argument, option
from eoctl.options import OfferUntil, OnDamage
from eoctl.output import OutputFormat
from storage.errors import UsageError


def command(
    paths: Annotated[
        list[str] | None,
        argument(metavar="[DIR]...", help="Log dirs of one cluster, or partition directories."),
    ] = None,
    listen: Annotated[
        str, option(metavar="HOST:PORT", help="Where to listen; port 0: a free one.")
    ] = "127.0.0.1:0",
    allow_remote: Annotated[
        bool,
        option("--allow-remote", help="Listen where others can reach it; nobody is asked who."),
    ] = False,
    until: Annotated[
        OfferUntil, option(help="Offer all of the log, or what is below the high watermark.")
    ] = OfferUntil.LOG_END,
    isolation_floor: Annotated[
        bool,
        option("--isolation-floor", help="Give every client only what is committed."),
    ] = False,
    on_damage: Annotated[
        OnDamage,
        option(help="Give clients an error at damage, or what follows it."),
    ] = OnDamage.STOP,
    topic: Annotated[
        list[str] | None,
        option(metavar="GLOB", help="Serve only these topics; repeatable."),
    ] = None,
    internal: Annotated[
        bool, option("--internal", help="Serve the brokers' own topics, too.")
    ] = False,
    prefer: Annotated[
        str | None,
        option(metavar="DIR", help="Of several copies serve the one in DIR."),
    ] = None,
    diverged: Annotated[
        str | None,
        option(metavar="DIR", help="Where copies part, serve the one in DIR to its end."),
    ] = None,
    follow: Annotated[
        bool,
        option("--follow", "-f", help="Serve what a broker appends, up to its high watermark."),
    ] = False,
    verify: Annotated[
        bool, option("--verify", help="Read everything before anything is served.")
    ] = False,
    for_seconds: Annotated[
        float | None, option(min=0, metavar="S", help="Stop after so many seconds.")
    ] = None,
    offsets_to: Annotated[
        str | None,
        option(metavar="FILE", help="Write what groups commit to FILE, as JSON Lines."),
    ] = None,
    metadata_dir: options.MetadataDir = None,
    server_properties: options.ServerProperties = None,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Serve dead brokers' directories, read-only, to every Kafka client: no broker is needed.

    Clients list topics, fetch, search by time, and read groups and transactions as they were. What
    they commit is kept in memory; what else would write is refused.
    """
    from eoctl.runs.serving.serve import ServeOptions, serve
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
    wanted = ServeOptions(
        rules=rules,
        listen=listen,
        allows_remote=allow_remote,
        for_seconds=for_seconds,
        follows=follow,
        verifies=verify,
        metadata_dir=metadata_dir,
        offsets_to=offsets_to,
    )
    return serve(given, wanted, output)
