"""Options that several commands share, with one wording."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from recovery.findings import Severity


class EngineName(StrEnum):
    """What `--engine` takes."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


Apply = Annotated[bool, typer.Option("--apply", help="Do it; without, only the plan is shown.")]
SavePlan = Annotated[
    str | None, typer.Option(metavar="FILE", help="Write the plan to FILE, for eoctl apply.")
]
BackupDir = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="For journal and backups; default: LOG-DIR.eoctl."),
]
NoBackup = Annotated[
    bool, typer.Option("--no-backup", help="Keep no old bytes: there is no undo then.")
]
AcceptLoss = Annotated[bool, typer.Option("--i-accept-the-loss", help="Needed with --no-backup.")]
BrokerIsStopped = Annotated[
    bool, typer.Option("--broker-is-stopped", help="Go on where the file system has no locks.")
]
MetadataDir = Annotated[
    str | None, typer.Option(metavar="DIR", help="Where __cluster_metadata-0 is.")
]
Now = Annotated[
    str | None, typer.Option(metavar="TIME|wall|dir", help="The clock that expiry goes by.")
]
ProducerExpiryMs = Annotated[
    int | None, typer.Option(min=0, help="producer.id.expiration.ms (86400000).")
]
FailOn = Annotated[Severity, typer.Option(help="Exit with 1 for findings from this severity on.")]
EngineChoice = Annotated[EngineName, typer.Option("--engine", help="Processes here, or Spark.")]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Processes of the local engine.")
]
Master = Annotated[str | None, typer.Option(metavar="URL", help="Where Spark runs [local[*,4]].")]
Conf = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
