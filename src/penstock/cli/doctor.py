"""`penstock doctor`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import options
from penstock.cli.output import print_json, print_table, results

if TYPE_CHECKING:
    from penstock.simulator.calibration.history import History, QueryHistory
    from penstock.telemetry.fixed_cost import FixedCost


def doctor(
    source: Annotated[
        str,
        typer.Argument(metavar="[RUN]", help="An event log, a file of progress JSON, a run's id, or 'last'."),
    ] = "last",
    journal: options.Journal = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Where checkpoints are (file:…, hdfs:…, s3a:…): what is safe depends on it.",
        ),
    ] = None,
    python: Annotated[
        bool | None, typer.Option("--python/--no-python", help="Whether its tasks run Python.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Where the time of a micro-batch goes besides its records, and which settings would lower it."""
    from penstock.api.histories import find_history
    from penstock.telemetry.fixed_cost import advice, store_of, told

    history = find_history(source, journal)
    settings = history.settings or {}
    store = store_of(checkpoint or settings.get("spark.sql.streaming.checkpointLocation"))
    found = []
    for query in history.queries:
        cost = cost_of(query)
        slots = round(float(history.slots_at(query.began_s[-1:])[0])) if history.executors else None
        found.append((cost, advice(cost, settings, store=store, python=python, slots=slots)))
    unknown = _unknown(history, store)
    if json:
        print_json(
            {
                "source": history.source,
                "checkpoint_store": store,
                "queries": [
                    {
                        **dataclasses.asdict(cost),
                        "fixed_ms": cost.fixed_ms,
                        "advice": [dataclasses.asdict(one) for one in each],
                    }
                    for cost, each in found
                ],
                "unknown": unknown,
            }
        )
        return
    for cost, each in found:
        rows = [
            [part, ms, 100 * ms / cost.total_ms if cost.total_ms else None]
            for part, ms in cost.parts_ms.items()
        ]
        print_table(f"{cost.query}: a micro-batch", ["phase", "ms", "%"], rows)
        for line in told(cost, each):
            results.print(f"  {line}", markup=False, soft_wrap=True)
    for line in unknown:
        results.print(f"not known: {line}", markup=False, soft_wrap=True, style="dim")


def cost_of(query: QueryHistory) -> FixedCost:
    """The usual batch of a query; without Spark's phases what lies outside its tasks is `other`."""
    from penstock.telemetry.fixed_cost import fixed_cost

    phases = query.phases_ms or {"addBatch": 1e3 * query.work_s}
    return fixed_cost(
        query.name,
        {name: values.tolist() for name, values in phases.items()},
        (1e3 * query.duration_s).tolist(),
        stateful=query.stateful,
        partitions=query.partitions,
    )


def _unknown(history: History, store: str) -> list[str]:
    lines = []
    if any(not query.phases_ms for query in history.queries):
        lines.append(
            "the phases: a journal keeps the whole of them; an event log or progress JSON tells each"
        )
    if history.settings is None:
        lines.append("what is set: only an event log tells; check that a setting is not set already")
    if store == "unknown":
        lines.append("where checkpoints are: say it with --checkpoint file:…, hdfs:… or s3a:…")
    return lines
