"""`penstock place`: a task graph on nodes, by one policy or by all of them side by side."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock import extensions
from penstock.cli import options
from penstock.cli.output import complaints, print_json, print_table, results
from penstock.errors import InputError, did_you_mean
from penstock.extras import MissingExtraError

if TYPE_CHECKING:
    from penstock.policies.placement import PlacementProblem

ALL = "all"
SHOWN_TASKS = 40


def place(
    problem: Annotated[
        Path | None,
        typer.Argument(metavar="[PROBLEM]", help="A problem as JSON; see docs/guide/placement.md."),
    ] = None,
    policy: Annotated[str, typer.Option("--policy", "-p", help="How to place; 'all' compares.")] = "default",
    seconds: Annotated[float, typer.Option(help="Time the solver may take.", min=0)] = 1.0,
    benchmark: Annotated[
        str | None, typer.Option(help="A built-in instance: linear, diamond or star.")
    ] = None,
    tasks: Annotated[int, typer.Option(help="Tasks of the built-in instance.", min=1)] = 30,
    cluster: Annotated[str, typer.Option(help="Its nodes: homogeneous or heterogeneous.")] = "heterogeneous",
    json: options.Json = False,
) -> None:
    """Place a task graph on nodes so that little crosses the network."""
    from penstock.cli.placement_document import placement_document
    from penstock.policies.placement import SOLVERS, DoesNotFitError, compile_kernels
    from penstock.policies.placement import place as place_tasks

    solvers = {**SOLVERS, **{n: extensions.load(r) for n, r in extensions.installed().solvers.items()}}
    if policy not in (*solvers, ALL):
        raise InputError(f"no placement policy '{policy}'{did_you_mean(policy, [*solvers, ALL])}")
    found = _problem(problem, benchmark, tasks, cluster)
    with complaints.status("loading compiled kernels; the first time on a machine they are compiled …"):
        compile_kernels()
    documents = []
    for name in solvers if policy == ALL else (policy,):
        try:
            placement = place_tasks(
                found, clock=time.perf_counter, policy=name, seconds=seconds, solvers=solvers
            )
            documents.append(placement_document(found, placement))
        except (DoesNotFitError, MissingExtraError) as missing:
            if policy != ALL:
                raise
            # Some of the published rules give up where others find a way: that belongs into the comparison.
            documents.append({"policy": name, "error": str(missing)})
    if all("error" in document for document in documents):
        raise InputError(documents[0]["error"])
    if json:
        print_json({"placements": documents} if policy == ALL else documents[0])
        return
    print_table(
        "",
        ["policy", "cost", "bound", "proved", "nodes", "moves", "seconds"],
        [
            [d["policy"], None, None, d["error"], None, None, None]
            if "error" in d
            else [
                d[k] for k in ("policy", "cost", "lower_bound", "optimal", "nodes_used", "moves", "seconds")
            ]
            for d in documents
        ],
    )
    if policy != ALL:
        assignment = documents[0]["assignment"]
        by_node: dict[str, list[str]] = {}
        for task, node in assignment.items():
            by_node.setdefault(node, []).append(task)
        results.print()
        for node, mine in by_node.items():
            more = f" and {len(mine) - SHOWN_TASKS} more" if len(mine) > SHOWN_TASKS else ""
            results.print(f"{node}: {', '.join(mine[:SHOWN_TASKS])}{more}")


def _problem(path: Path | None, benchmark: str | None, tasks: int, cluster: str) -> PlacementProblem:
    from penstock.cli.placement_document import parse_problem

    if (path is None) == (benchmark is None):
        raise InputError("give either a PROBLEM file or --benchmark")
    if path is not None:
        try:
            return parse_problem(path.read_bytes())
        except OSError as problem:
            raise InputError(f"cannot read '{path}': {problem.strerror}") from problem
    assert benchmark is not None
    instances = extensions.installed().instances
    if benchmark not in instances:
        raise InputError(f"no benchmark '{benchmark}'{did_you_mean(benchmark, sorted(instances))}")
    try:
        made: PlacementProblem = extensions.load(instances[benchmark])(tasks, cluster)
    except ValueError as problem:
        raise InputError(str(problem)) from problem
    return made
