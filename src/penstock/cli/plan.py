"""`penstock plan`: alternates, cores, machines, Spark settings and cost for a dataflow or a recorded run at a rate."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock import extensions
from penstock.cli import options
from penstock.cli.output import nothing_printed, print_json, print_table, results
from penstock.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from penstock.dataflow import Dataflow
    from penstock.policies.provisioning import Demand, Provision

ALL = "all"
SHOWN_MACHINES = 200


def plan(
    flow: options.Flow,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            "--rate",
            metavar="N|SOURCE=N",
            help="Records/s of every source, or of one (repeat); default: the peak of declared loads.",
        ),
    ] = None,
    classes: options.Classes = "current",
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="best, ce, sh, ga or br; 'all' compares.")
    ] = "best",
    throughput: Annotated[
        float | None, typer.Option(help="Share of the input that must get through; default: the goal's.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Most that machines may cost per hour.")] = None,
    break_even: Annotated[
        float | None, typer.Option(help="Cost per hour that full value is worth; default: a little above it.")
    ] = None,
    least_break_even: Annotated[
        float | None, typer.Option(help="Cost per hour that the least value is worth; default: half.")
    ] = None,
    hours: Annotated[float, typer.Option(help="How long it will run.", min=0.01)] = 1.0,
    recorded: Annotated[
        bool,
        typer.Option(
            "--recorded", help="FLOW is a run: its id, 'last', an event log or a file of progress JSON."
        ),
    ] = False,
    journal: options.Journal = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Deployment plan only: alternates, cores, machines, settings for Spark, cost, and why."""
    if recorded:
        _plan_recorded(flow, rate or (), classes, budget, journal, json=json)
        return
    from penstock.api.choices import find_flow
    from penstock.api.machine_classes import machine_classes
    from penstock.policies.provisioning import DemandError, Worth, demand_of, deploy_best

    offered = {n: extensions.load(r) for n, r in extensions.installed().deciders.items()}
    deciders = {"best": deploy_best, **offered}
    if policy not in (*deciders, ALL):
        raise InputError(f"no decider '{policy}'{did_you_mean(policy, [*deciders, ALL])}")
    dataflow = find_flow(flow)
    if budget is not None:
        if not budget > 0:
            raise InputError(f"--budget must be positive: {budget:g}")
        dataflow = replace(dataflow, goals=replace(dataflow.goals, budget_per_hour=budget))
    worth = None
    if break_even is not None:
        least = break_even / 2 if least_break_even is None else least_break_even
        worth = Worth(full_per_hour=break_even, least_per_hour=least)
    demand = demand_of(
        dataflow,
        _rates(dataflow, rate or ()),
        machine_classes(classes),
        worth=worth,
        throughput=throughput,
        period_s=hours * 3600,
        seed=seed,
    )
    documents: list[dict[str, Any]] = []
    for name in deciders if policy == ALL else (policy,):
        began_s = time.process_time()
        try:
            with nothing_printed():
                found = deciders[name](demand)
        except DemandError as problem:
            if policy != ALL:
                raise
            documents.append({"policy": name, "error": str(problem)})
            continue
        documents.append(plan_document(demand, found, time.process_time() - began_s))
    for document in documents if policy == "best" else ():
        document["spark"] = _for_spark(dataflow, demand, classes)
    if all("error" in d for d in documents):
        raise InputError(documents[0]["error"])
    if json:
        print_json({"plans": documents} if policy == ALL else documents[0])
    else:
        _print(documents)


def _for_spark(dataflow: Dataflow, demand: Demand, classes: str) -> dict[str, Any]:
    """The sizing for Spark, or why there is none."""
    from penstock.api.machine_classes import provenance
    from penstock.api.spark_plan import declared_workload, spark_plan
    from penstock.policies.provisioning import DemandError

    budget = demand.budget_per_hour if math.isfinite(demand.budget_per_hour) else None
    try:
        found = spark_plan(declared_workload(dataflow, demand), demand.classes, budget)
    except DemandError as problem:
        return {"error": str(problem)}
    return {**found, "prices": provenance(classes)}


def _plan_recorded(
    run: str, rate: Sequence[str], classes: str, budget: float | None, journal: Path | None, *, json: bool
) -> None:
    from penstock.api.histories import find_history
    from penstock.api.machine_classes import machine_classes, provenance
    from penstock.api.spark_plan import recorded_workload, spark_plan
    from penstock.simulator.calibration.fit import calibrate

    try:
        rates = [float(text) for text in rate]
    except ValueError:
        raise InputError(f"--rate of a recorded run takes N, not '{' '.join(rate)}'") from None
    if len(rates) > 1 or not all(0 < r < math.inf for r in rates):
        raise InputError("--rate of a recorded run takes one positive number: all its sources together")
    work = recorded_workload(calibrate(find_history(run, journal)), rates[0] if rates else None)
    found = {**spark_plan(work, machine_classes(classes), budget), "prices": provenance(classes)}
    if json:
        print_json({"spark": found})
    else:
        _print_spark(found)


def _print_spark(found: dict[str, Any]) -> None:
    if "error" in found:
        results.print(f"Spark: {found['error']}", markup=False, highlight=False)
        return
    shown = [
        ("chosen", found),
        ("next cheaper", found["next_cheaper"]),
        ("next better", found["next_better"]),
    ]
    print_table(
        "On Spark",
        ["", "class", "executors", "cores", "memory MiB", "value", "cost/h", "latency ms", "carries/s"],
        [
            [name, d["class"], d["executors"], d["executor_cores"], d["executor_memory_mib"], d["value"],
             d["cost_per_hour"], d["latency_ms"], d["carries_rps"]]
            for name, d in shown
            if d is not None
        ],
    )  # fmt: skip
    for manager, settings in found["settings"].items():
        results.print(f"\n# {manager}", markup=False, highlight=False)
        for key, value in settings.items():
            results.print(f"--conf {key}={value}", markup=False, highlight=False, soft_wrap=True)
    for note in (*found["assumed"], f"prices: {found['prices']}"):
        results.print(note, style="dim", markup=False, highlight=False)


def _rates(flow: Dataflow, given: Sequence[str]) -> dict[str, float]:
    """Per source: as given (`500`, or `reports=500`), else the peak of its declared load."""
    rates: dict[str, float] = {}
    everywhere: float | None = None
    for text in given:
        name, equals, number = text.rpartition("=")
        try:
            rate = float(number)
        except ValueError:
            raise InputError(f"--rate takes N or SOURCE=N, not '{text}'") from None
        if not 0 <= rate < math.inf:
            raise InputError(f"--rate {text}: a rate must be finite and not negative")
        if equals:
            rates[name] = rate
        else:
            everywhere = rate
    for source in flow.sources:
        load = source.connector.load if source.connector is not None else None
        declared = None if load is None else load.peak_rps
        found = rates.get(source.id, everywhere if everywhere is not None else declared)
        if found is None:
            raise InputError(f"give --rate N: source '{source.id}' declares no load to plan for")
        rates[source.id] = found
    return rates


def plan_document(demand: Demand, found: Provision, seconds: float) -> dict[str, Any]:
    """A plan as one JSON document."""
    import numpy as np

    from penstock.policies.provisioning.problem import full_rates

    graph, deployment, assessed = demand.graph, found.deployment, found.assessment
    cost, selectivity = graph.of(deployment.alternates)
    rates = full_rates(graph, demand.input_rps, selectivity)
    kinds = np.bincount(deployment.machines, minlength=len(demand.classes))
    numbers = np.zeros(len(demand.classes), dtype=np.int64)
    mapping = []
    for row, cores in zip(deployment.machines[:SHOWN_MACHINES], deployment.cores, strict=False):
        mapping.append(
            {
                "machine": f"{demand.classes[row].name}-{numbers[row]}",
                "cores": {graph.operators[i]: int(cores[i]) for i in np.flatnonzero(cores)},
            }
        )
        numbers[row] += 1
    return {
        "policy": found.decider,
        "rate_rps": float(demand.input_rps.sum()),
        "throughput_asked": demand.throughput,
        "operators": [
            {
                "operator": name,
                "alternate": graph.names[i][deployment.alternates[i]],
                "value": float(graph.value[i, deployment.alternates[i]]),
                "cores": int(deployment.cores[:, i].sum()),
                "input_rps": float(rates[i]),
                "needs_reference_cores": float(rates[i] * cost[i]),
            }
            for i, name in enumerate(graph.operators)
        ],
        "machines": [
            {"class": c.name, "count": int(n), "price_per_hour": c.price_per_hour}
            for c, n in zip(demand.classes, kinds, strict=True)
            if n
        ],
        "mapping": mapping,
        "mapping_left_off": max(0, len(deployment.machines) - SHOWN_MACHINES),
        "cores": int(deployment.cores.sum()),
        "value": assessed.value,
        "throughput": assessed.throughput,
        "cost_per_hour": assessed.cost_per_hour,
        "break_even_per_hour": demand.break_even.full_per_hour,
        "profit": assessed.profit,
        "why": _why(demand, found),
        "decided_in_cpu_s": seconds,
    }


def _why(demand: Demand, found: Provision) -> list[str]:
    import numpy as np

    graph, alternates = demand.graph, found.deployment.alternates
    why = [*found.why]
    for i in np.flatnonzero(alternates != graph.best):
        best, mine = graph.best[i], alternates[i]
        why.append(
            f"{graph.operators[i]}: '{graph.names[i][mine]}' instead of '{graph.names[i][best]}' gives up "
            f"{graph.value[i, best] - graph.value[i, mine]:.0%} of its value and takes "
            f"{graph.cost_s[i, mine]:.4g} s a record instead of {graph.cost_s[i, best]:.4g}"
        )
    if found.assessment.profit < 0:
        why.append("costs more than break-even: what the results are worth does not pay for the machines")
    return why + list(demand.notes)


def _print(documents: list[dict[str, Any]]) -> None:
    print_table(
        "",
        ["policy", "profit", "value", "throughput", "cost/h", "machines", "cores", "CPU s"],
        [
            [d["policy"], None, None, None, None, None, None, None]
            if "error" in d
            else [
                d["policy"],
                d["profit"],
                d["value"],
                d["throughput"],
                d["cost_per_hour"],
                sum(m["count"] for m in d["machines"]),
                d["cores"],
                d["decided_in_cpu_s"],
            ]
            for d in documents
        ],
    )
    for d in documents:
        if "error" in d:
            results.print(f"{d['policy']}: {d['error']}", markup=False)
    if len(documents) > 1:
        return
    results.print()
    print_table(
        "",
        ["operator", "alternate", "value", "cores", "records/s in"],
        [
            [o["operator"], o["alternate"], o["value"], o["cores"], o["input_rps"]]
            for o in documents[0]["operators"]
        ],
    )
    results.print()
    for machine in documents[0]["machines"]:
        results.print(f"{machine['count']} × {machine['class']} at {machine['price_per_hour']:g} an hour")
    for reason in documents[0]["why"]:
        results.print(f"[dim]{reason}[/]")
    if "spark" in documents[0]:
        results.print()
        _print_spark(documents[0]["spark"])
