"""Every reason that Penstock gives: its code, its sentence and its meaning. The reference page is made from this table.

To add a reason, add a line here and use its code: `Reason(code="my-code", facts={...})`. The sentence is a clause
without a capital and without a full stop; it follows what was done («scale work from 2 to 4 tasks: …»). Each name in
braces is a fact that every such reason must have. The end of a fact's name tells its unit (`policies/wording.py`):
`left_s`, `rate_rps`, `needed_cores`. More facts than the sentence names may be given; they are kept, not told.
Tests fail on a code that is not here, on a fact that is missing, and on a line that nothing uses.
"""

from __future__ import annotations

from penstock.policies.reason_kind import ReasonKind, of_area

CATALOGUE: tuple[ReasonKind, ...] = (
    *of_area(
        "elasticity",
        (
            "tasks-need-machines",
            "{tasks} tasks need {machines} machines, there are {machines_now}",
            "The tasks that hold the bounds need more machines.",
        ),
        (
            "fewer-machines-suffice",
            "{tasks} tasks need {machines} machines, there are {machines_now}",
            "Fewer machines have sufficed for the tasks for a while.",
        ),
        (
            "rebalance",
            "that is the least with which records for {constraint} wait {predicted_wait_ms}, of the"
            " {allowed_wait_ms} they may",
            "The fewest tasks whose queues keep the constraint.",
        ),
        ("load-needs-tasks", "that is what the load needs", "The load alone decides, no constraint does."),
        (
            "fewer-tasks-suffice",
            "fewer tasks are enough for the load",
            "The constraints hold with fewer tasks.",
        ),
        (
            "drain",
            "{queued_records} wait, {wait_ms} each for {constraint}; they should be gone within {within_s}",
            "More tasks than the load needs, until the queues are gone.",
        ),
        (
            "foreseen-load",
            "the load should rise from {rate_rps} to {foreseen_rps} within {within_s}",
            "The forecast asks for tasks before the load does.",
        ),
        (
            "over-budget",
            "{tasks_needed} tasks are needed, the budget pays for {tasks_affordable}",
            "The constraints need more tasks than the budget or the limit on tasks allows.",
        ),
        (
            "bound-out-of-reach",
            "even at the maximum, records would wait {wait_at_maximum_ms}, of the {allowed_wait_ms} they may",
            "No number of tasks within the declared bounds holds the constraint.",
        ),
        (
            "tasks-slower-than-bound",
            "the tasks alone take {over_by_ms} longer than the bound",
            "The work on one record takes longer than the bound: more tasks cannot help.",
        ),
        (
            "room-for-batches",
            "{constraint} leaves room for larger batches",
            "Records may wait longer in batches, which saves work.",
        ),
        ("bound-at-risk", "{constraint} needs smaller batches", "Records wait too long in batches."),
        (
            "room-for-a-trial",
            "{constraint} is held with room to spare, so one node fewer is tried",
            "One node is given back to see whether the rest is enough.",
        ),
        (
            "fewer-nodes-suffice",
            "fewer nodes are enough at {rate_rps}: for {constraint}, {predicted_ms} of {bound_ms} is predicted",
            "The constraints hold with fewer nodes.",
        ),
        (
            "spare-nodes",
            "spare nodes are kept warm for a rise that nobody foresees, beyond what {constraint} needs at {rate_rps}",
            "Nodes beyond those needed, as many as `spare_nodes` says.",
        ),
        (
            "rise-foreseen",
            "the load should rise from {rate_rps} to {foreseen_rps}",
            "The forecast asks for nodes before the load does.",
        ),
        (
            "backlog",
            "{backlog_records} wait and must be worked off for {constraint}",
            "More nodes than the load needs, until the backlog is gone.",
        ),
        (
            "bound-needs-nodes",
            "{constraint} needs them at {rate_rps}; predicted is {predicted_ms}, the bound is {bound_ms}",
            "The constraint needs more nodes at this load.",
        ),
        (
            "room-for-longer-intervals",
            "{constraint} leaves room for batches further apart, which cost less: predicted is {predicted_ms} of"
            " {bound_ms}",
            "A longer trigger interval saves commits and task starts, and the bound is still held.",
        ),
        (
            "bound-needs-shorter-intervals",
            "{constraint} needs batches closer together: predicted is {predicted_ms}, the bound is {bound_ms}",
            "The trigger interval that was lengthened takes too much of the bound now.",
        ),
        (
            "batches-bounded",
            "a batch that reads more would take longer than {batch_s}, of the {bound_ms} of {constraint}",
            "A read limit keeps one batch from swallowing a backlog, so that latency stays predictable.",
        ),
        (
            "bound-needs-more-nodes",
            "with all {nodes} nodes that can be had, predicted is {predicted_ms}; {aim_ms} is aimed at, to hold the"
            " bound of {bound_ms} with a margin",
            "No number of nodes that can be had holds the constraint.",
        ),
    ),
    *of_area(
        "shedding",
        (
            "cpu-free",
            "there is room again: {sink} can count {accuracy} of the input instead of {current_accuracy}",
            "Less is shed because CPU is free.",
        ),
        (
            "cpu-short",
            "{node} needs {needed_cores} and has {available_cores}, so {sink} counts {accuracy} of the input",
            "More is shed because a node lacks CPU.",
        ),
        (
            "neighbour-warms-up",
            "a task that moved in beside {sink} warms up; until then {accuracy} of the input counts",
            "More is shed while a moved task warms up.",
        ),
        (
            "lag-without-cpu",
            "an application of this or a higher priority lags and its CPU is not known, so {sink} counts {accuracy} "
            "of the input",
            "More is shed because an application lags whose CPU could not be measured.",
        ),
        (
            "task-at-its-core",
            "a task of {sink} uses all of the one core it can have, so {accuracy} of the input counts",
            "More is shed because one task has reached one core.",
        ),
        (
            "held",
            "{sink} stays at {accuracy} of the input until there is more room than it needs",
            "Accuracy does not rise yet, so that it does not see-saw.",
        ),
        (
            "minima-exceed-node",
            "the minima on its node need {needed_cores}, {available_cores} are available",
            "A task moves because the minima of its node do not fit there.",
        ),
        (
            "relieve-shedding",
            "its node needs {needed_cores} and has {available_cores}; elsewhere less must be shed",
            "A task moves to where less must be shed.",
        ),
        (
            "minima-do-not-fit",
            "the minima on {node} need {needed_cores}, {available_cores} are available",
            "Even after all moves a node cannot keep the minimum accuracy.",
        ),
        (
            "minimum-exceeds-core",
            "one task of {operator} needs {needed_cores} for the minimum alone and can have one core",
            "A single task cannot keep the minimum accuracy.",
        ),
        (
            "minima-keep-backlog",
            "the minima leave too little CPU to work off a lag of {lag_s}; the goal is {bound_s}",
            "The minimum accuracy keeps the backlog from draining in time.",
        ),
        (
            "nothing-left-to-shed",
            "{operator} lags by {lag_s}, the goal is {bound_s}, and all that may be shed is shed",
            "A query lags although everything is shed that the minima allow.",
        ),
    ),
    *of_area(
        "placement",
        (
            "worth-it",
            "the traffic it saves is worth the moves",
            "A better placement saves more traffic than its moves cost.",
        ),
    ),
    *of_area(
        "provisioning",
        (
            "throughput-low",
            "the load needs {needs_cores} and has {capacity_cores}; then it needs {then_needs_cores}",
            "A cheaper alternate, because the nodes do not carry the load.",
        ),
        (
            "load-has-fallen",
            "there is room again: of {capacity_cores}, the better alternate needs {then_needs_cores}",
            "A better alternate, because the nodes carry it.",
        ),
        (
            "no-alternate-carries-the-load",
            "even the cheapest alternates need {needs_cores}, there are {capacity_cores}",
            "No choice of alternates carries the load on these nodes.",
        ),
        (
            "load-needs-machines",
            "{short_cores} are missing for {cost_per_hour}; more money would bring {more_money}, less {less_money}",
            "The load needs more machines.",
        ),
        (
            "machine-not-needed",
            "{spare_cores} are spare, and what is paid for it ends in {paid_for_s}; more money would bring "
            "{more_money}, less {less_money}",
            "A machine is given back shortly before its paid time ends.",
        ),
        (
            "beyond-the-budget",
            "the cheapest alternates cost {costs_per_hour}, the budget is {budget_per_hour}; it carries {share}",
            "No choice of alternates and machines carries the load within the budget.",
        ),
        (
            "machines-do-not-come",
            "{machines} were asked for and did not come in {waited_s}; nothing more is bought for {pause_s}",
            "What was bought does not come: buying pauses, longer each time.",
        ),
        (
            "capacity-does-not-follow",
            "cores grew by {power_gain} and what is processed by {served_gain}; nothing more is bought for {pause_s}",
            "More machines do not process more: buying pauses, longer each time.",
        ),
    ),
    *of_area(
        "interference",
        (
            "foreign-load",
            "other programs take CPU on its node; elsewhere it should be {gain} better off",
            "A task leaves a node that other programs load.",
        ),
        (
            "interference",
            "it gets in the way of its neighbours; elsewhere it should be {gain} better off",
            "A task leaves a node on which tasks disturb one another.",
        ),
        (
            "needs-more-nodes-or-shedding",
            "{node} uses {use} of its {resource}, {limit_share} is the limit, and nothing there can move",
            "A node stays over its limit and no move helps.",
        ),
        (
            "nowhere-to-move",
            "{node} is the only node, so there is nowhere to move state to",
            "Interference is on, and there is one node or executor.",
        ),
    ),
    *of_area(
        "control",
        (
            "already-planned",
            "{policy} asked for the same",
            "Two policies want the same action; one is enough.",
        ),
        (
            "contradicts",
            "it contradicts {with} of {policy} ({rule})",
            "A rule of arbitration forbids it beside an action already in the plan.",
        ),
        (
            "yields-to-cheaper",
            "the cheaper {to} of {policy} goes first",
            "A cheaper remedy for the same need is in the plan.",
        ),
        (
            "settling",
            "{of} of {policy} has another {left_s} to take effect",
            "A cheaper remedy for the same need has yet to take effect.",
        ),
        (
            "still-shedding",
            "only {keep} of the records at {subject} are kept, which comes first",
            "Capacity is not given back while records are shed.",
        ),
        ("cooling-down", "it still rests for {left_s} after the last change", "The cool-down is not over."),
        (
            "within-band",
            "a change of {change} is too little to act on",
            "The change lies within the dead band.",
        ),
        (
            "shrink-delayed",
            "a smaller size has only been enough for {waited_s} of {window_s}",
            "A size shrinks after it has been too large for a while.",
        ),
        (
            "shrink-softened",
            "{largest} were needed within the last {window_s}, so {target} would be too few",
            "A size shrinks no further than to the largest that was wanted lately.",
        ),
        (
            "out-of-bounds",
            "{target} lies outside the declared {minimum} to {maximum}",
            "The declaration does not allow this parallelism.",
        ),
        (
            "no-such-operator",
            "there is no operator {operator}",
            "The action names an operator that is not there.",
        ),
        (
            "no-such-alternate",
            "there is no alternate {alternate}",
            "The action names an alternate that is not declared.",
        ),
        (
            "no-such-node",
            "node {node} is not there or is leaving",
            "The action names a node that cannot be used.",
        ),
        (
            "made-things-worse",
            "{since_s} after the change a goal is worse off: {after} of its bound instead of {before}",
            "What did harm is taken back.",
        ),
        (
            "made-things-worse-before",
            "it did harm the last time; it is not tried again for {left_s}",
            "An action that was taken back is left alone for a while.",
        ),
        (
            "only-recommended",
            "{remedy} may only be recommended",
            "A guardrail keeps this remedy from acting.",
        ),
        (
            "quiet-hours",
            "the hours from {hours} (UTC) are quiet",
            "A guardrail forbids changes at this time.",
        ),
        (
            "too-many-changes",
            "{changes} changes were made within the last hour, {limit} are allowed",
            "A guardrail limits the number of changes.",
        ),
        (
            "over-the-budget",
            "{more_per_hour} more an hour would exceed {limit_per_hour}",
            "A guardrail limits what nodes may cost.",
        ),
        ("dry-run", "this is a dry run", "Decided and explained, not done."),
        (
            "recovering",
            "the state before the restart comes first",
            "Policies act once what had been asked for before the restart is so again.",
        ),
        ("recovered", "that is how it was before the restart", "What had been asked for is asserted again."),
        (
            "observe-failed",
            "measuring failed: {cause}; the last safe controls stay",
            "The runtime could not be observed in this cycle.",
        ),
        (
            "decide-failed",
            "a policy failed: {cause}; its memory stays as it was, the other policies go on",
            "A policy raised an error.",
        ),
        ("arbitrate-failed", "planning failed: {cause}; nothing is changed", "The plan could not be made."),
        ("apply-failed", "acting failed: {cause}; the next cycle asks again", "The runtime raised an error."),
        (
            "effects-failed",
            "comparing failed: {cause}; earlier actions are judged later",
            "Expectations could not be compared with what was measured.",
        ),
        (
            "journal-failed",
            "writing down failed: {cause}; the record of the cycle is missing",
            "The journal could not be written, for instance because the disk is full.",
        ),
        (
            "recover-failed",
            "recovery failed: {cause}; it starts afresh",
            "An earlier run could not be resumed.",
        ),
        (
            "subscriber-failed",
            "a listener failed: {cause}; nothing else is affected",
            "A page, a metric or a total that follows the run raised an error.",
        ),
    ),
    *of_area(
        "runtimes",
        ("already-so", "it is so already", "There is nothing to do."),
        ("superseded", "a newer wish has replaced it", "A later action wanted something else."),
        ("vanished", "{what} is gone", "What the action needs went away meanwhile."),
        ("tasks-changing", "tasks come or go: {tasks} of {target}", "The number of tasks is changing."),
        ("moving", "it is on its way to {node}", "The task is being moved."),
        ("node-starting", "nodes are starting: {nodes} to go", "New nodes are not ready yet."),
        ("draining", "nodes are being drained: {nodes} to go", "Tasks leave the nodes that are given back."),
        ("node-draining", "{node} is being drained", "Nothing is placed on a node that leaves."),
        ("no-such-task", "there is no task {task}", "The action names a task that is not there."),
        ("no-such-stream", "there is no stream {stream}", "The action names a stream that is not there."),
        ("no-such-source", "{operator} is not a source", "Only a source or a stream can shed."),
        (
            "no-such-class",
            "there is no machine class {machine}",
            "The action names an unknown machine class.",
        ),
        ("no-batches", "this runtime has no micro-batches to pace", "The runtime works record by record."),
        ("unknown-action", "this runtime cannot {kind}", "The runtime does not know this kind of action."),
        (
            "max-nodes",
            "{asked} more than the {nodes} there are would exceed {maximum} nodes",
            "The cluster may not grow further.",
        ),
        (
            "class-exhausted",
            "{available} of {class} can be had, {nodes} are there, {asked} more were asked for",
            "No more machines of this class.",
        ),
        ("last-node", "a query needs at least one node", "The last node is never given back."),
        ("no-more-nodes", "{cause}", "The cluster gives no more executors."),
        ("from-batch", "it holds from batch {batch}", "A control takes effect with this micro-batch."),
        ("interval", "batches are now {interval_ms} apart", "The pace that the query shows."),
        ("read-limit", "the query shows it", "The read limit that the source of the query shows."),
        ("no-such-query", "there is no query {query}", "The action names a query that is not there."),
        ("not-paced", "{cause}", "The query has a trigger or a source whose pace cannot be changed."),
        ("restarted", "the query was restarted from its checkpoint", "The change needs a restart."),
        ("under-way", "it is under way", "Spark has yet to show it."),
        ("confirmed", "Spark shows it", "What was asked for is so."),
        ("not-confirmed", "{cause}", "Spark did not show in time what was asked for."),
        ("spark-refused", "Spark refused: {cause}", "A call into Spark failed."),
        (
            "executors-not-there",
            "{came} of {asked} executors were there after {waited_s}; they are asked for again in {retry_s}",
            "The cluster manager did not give what was asked for; the request was taken back.",
        ),
        (
            "executors-not-ours",
            "{cause}",
            "Somebody else decides the number of executors; Penstock only observes.",
        ),
        ("executor-unusable", "executor {executor}: {cause}", "The executor is there but is no capacity."),
        (
            "another-pilot",
            "pilot {owner} has held the application until {age_s} ago; this one only observes",
            "Only one pilot may change an application.",
        ),
        ("not-on-spark", "{cause}", "Spark has no such lever."),
        ("not-declared", "{cause}", "The lever needs a dataflow that Penstock compiled."),
        ("no-such-state", "{cause}", "The task or operator holds no state on Spark."),
        ("lever-unavailable", "{lever}: {cause}", "This Spark does not offer the lever."),
        ("not-shared", "{cause}", "Several queries share what the action would change."),
        (
            "interference-on",
            "interference is on: state partitions leave executors that are slow or crowded",
            "The pilot was asked to move state, in the report from its start on.",
        ),
        (
            "no-task-figures",
            "{query} may shed or switch, so its tasks are not told by state partition and its state does not move",
            "Interference needs figures that an application with `penstock.shed` or `penstock.alternates` lacks.",
        ),
        ("as-told", "the test says so", "The answer of `penstock.testing.RecordingRuntime`."),
    ),
)
