"""`penstock repartition`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import options
from penstock.cli.output import complaints, print_json, results
from penstock.errors import InputError


def repartition(
    checkpoint: Annotated[Path, typer.Argument(metavar="FOLDER", help="The checkpoint of a stopped query.")],
    to: Annotated[int, typer.Option(min=1, help="How many state partitions it shall have.")],
    backup: Annotated[
        Path | None, typer.Option(help="Where the checkpoint is copied to first; default: beside it.")
    ] = None,
    after: Annotated[
        str, typer.Option(metavar="TIME", help="A query that planned a batch so lately counts as running.")
    ] = "1m",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look and tell, write nothing.")] = False,
    json: options.Json = False,
) -> None:
    """Give a stopped query another number of state partitions: with a backup, verified, or put back."""
    from penstock.api.durations import parse_duration
    from penstock.spark.supervised_repartition import examined, repartitioned

    quiet_s = 0.0 if after.strip() in ("0", "0s") else parse_duration(after)
    folder = checkpoint.absolute()
    found = examined(folder, now_unix=time.time(), quiet_s=quiet_s)
    if found.partitions == to:
        raise InputError(f"it has {to} state partitions already")
    kept = (backup or folder.with_name(f"{folder.name}.before-{to}")).absolute()
    document = {
        "checkpoint": str(folder),
        "batch": found.batch,
        "from": found.partitions,
        "to": to,
        "bytes": found.bytes,
        "backup": str(kept),
    }
    complaints.print(
        f"{folder.name}: {len(found.report.operators)} operators with {found.partitions} state partitions after batch "
        f"{found.batch}, {found.bytes / 1e6:.1f} MB",
        markup=False,
        soft_wrap=True,
    )
    if not dry_run:
        from penstock.spark.session import create_session

        spark = create_session("local[2]", "penstock-repartition")
        try:
            digest = repartitioned(
                spark,
                found,
                to,
                backup=kept,
                tell=lambda text: complaints.print(f"{text} …", markup=False, soft_wrap=True),
            )
        finally:
            spark.stop()
        document["rows"] = digest.rows
    if json:
        print_json(document)
        return
    if dry_run:
        would = f"would be copied to {kept}, then rewritten to {to} state partitions and verified; nothing was written"
        results.print(would, markup=False, soft_wrap=True)
        return
    results.print(
        f"{to} state partitions, with the same {document['rows']} rows; start the query as before: it takes the number "
        f"from its checkpoint. When it runs well, {kept} can go; to go back, put it in the place of {folder}.",
        markup=False,
        soft_wrap=True,
    )
