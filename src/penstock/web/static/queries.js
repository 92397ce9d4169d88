// Goals at a glance, and the charts of one query at a time.
let chosenQuery = null;

function tile(name, value, note, kind, button) {
  return el("div", { class: `tile ${kind || ""}` }, el("div", { class: "name" }, el("span", {}, name), button || null),
    el("div", { class: "value" }, value), el("div", { class: "note" }, note));
}

function showGoals(page) {
  const verdicts = { true: ["held", "✓ held now"], false: ["missed", "✕ missed now"], null: ["", "not measured now"] };
  const tiles = page.goals.map((goal) => {
    const [kind, word] = verdicts[goal.held];
    const change = page.may_change
      ? el("button", { type: "button", "aria-label": `change goal ${goal.name}`, onclick: () => askGoal(goal) }, "change")
      : null;
    const kept = goal.share === null ? "" : `, ${share(goal.share)} of the time so far`;
    return tile(`latency of ${goal.name}`, seconds(goal.latency_s), `goal ${seconds(goal.bound_s)}, ${word}${kept}`, kind, change);
  });
  const app = page.app;
  if (app) {
    const produced = sum(page.queries.map((q) => q.produced_rps));
    tiles.push(tile("input", rate(produced), `${number(sum(page.queries.map((q) => q.backlog_records)))} records waiting`));
    tiles.push(tile("executors", number(app.nodes), `${number(app.own_cpu, 2)} of ${number(app.cores)} cores busy`));
    if (app.per_hour || app.cost) tiles.push(tile("cost", `${number(app.per_hour)} an hour`, `${number(app.cost)} spent`));
  }
  const counted = (kind, status) => page.counts
    .filter((c) => c.kind !== "pace" && (kind === "effect") === (c.kind === "effect") && c.status === status)
    .reduce((n, c) => n + c.n, 0);
  const judged = [["worked", "worked"], ["did-not", "did not work"], ["unknown", "cannot be judged"]]
    .map(([status, words]) => [counted("effect", status), words]).filter(([n]) => n).map(([n, words]) => `${number(n)} ${words}`);
  const failed = counted("action", "failed") + counted("action", "blocked");
  const notes = [...(page.dry_run ? ["now only told, not done"] : []), ...judged, ...(failed ? [`${number(failed)} could not be done`] : [])];
  if (page.first_s !== null) {
    const done = counted("action", "applied") + counted("action", "deferred");
    tiles.push(tile("actions", number(done), notes.join(", ") || (done ? "not judged yet" : "none so far")));
  }
  byId("goals").replaceChildren(...tiles);
}

// Why there is nothing to show yet, and what has to happen first.
function waiting(page) {
  if (!page.live) return "This run has seen no query.";
  if (page.first_s === null) return "Penstock is attached. It looks for the first time after one interval.";
  return `Waiting: ${page.nothing.join("; ") || "no query is running"}. A query appears here when its first micro-batch has ended.`;
}

function sum(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length ? known.reduce((a, b) => a + b, 0) : null;
}

function showQueries(page, state) {
  const names = page.queries.map((query) => query.name);
  if (!names.includes(chosenQuery)) {
    const late = page.goals.find((goal) => goal.held === false);
    chosenQuery = late && names.includes(late.query) ? late.query : names[0] || null;
  }
  const tabs = names.length > 1 ? names.map((name) => el("button", {
    type: "button", role: "tab", "aria-selected": String(name === chosenQuery), onclick: () => { chosenQuery = name; show(); },
  }, name)) : [el("span", { class: "muted" }, names[0] || "")];
  byId("query-tabs").replaceChildren(...tabs);
  const query = page.queries.find((q) => q.name === chosenQuery);
  const place = byId("query-charts");
  byId("marks").hidden = !state.decided.length;
  if (!query) {
    keepOnly(place, new Set());
    place.replaceChildren(el("p", { class: "empty" }, waiting(page)));
    return;
  }
  for (const note of place.querySelectorAll(".empty")) note.remove();
  const of = (figure) => column(state, "query", query.name, figure);
  const ids = ["rate", "lag", "latency", "batch"].map((what) => `${what} ${query.name}`);
  keepOnly(place, new Set(ids));
  chart(place, ids[0], "Rate", rate, [
    { label: "produced", values: of("produced_rps"), colour: "--c0" },
    { label: "read", values: of("read_rps"), colour: "--c1" },
  ], state);
  chart(place, ids[1], "Lag, records waiting", number, [
    { label: "waiting", values: of("backlog_records"), colour: "--c3", fill: true },
  ], state);
  const colours = ["--c0", "--c2", "--c3", "--c4"];
  chart(place, ids[2], "Latency against its goal", seconds, [
    ...query.goals.flatMap((name, i) => [
      { label: name, values: column(state, "goal", name, "latency_s"), colour: colours[i % 4], spans: true },
      { label: `goal of ${name}`, values: column(state, "goal", name, "bound_s"), colour: "--bad", dash: true },
    ]),
    ...query.sinks.slice(0, 3).map((id) => ({
      label: `p95 at ${id}`, values: column(state, "sink", id, "p95_s"), colour: "--c5", spans: true,
    })),
  ], state);
  chart(place, ids[3], "Micro-batches", seconds, batchPhases(of), state);
}

// Phases are stacked: each line is drawn on top of the ones before it.
function batchPhases(of) {
  const length = of("duration_s");
  const lines = [{ label: "whole batch", values: length, colour: "--c0", spans: true, fill: true }];
  lines.push({ label: "of that planning, offsets, commit", values: of("fixed_s"), colour: "--c1", spans: true, fill: true });
  return lines;
}
