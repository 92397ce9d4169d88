// What counts at each sink, what is shed, which alternates run, and what it all costs.
function showQuality(page, state) {
  const detail = page.detail;
  const sinks = detail ? detail.sinks : [];
  const shed = sinks.some((sink) => sink.min_accuracy > 0 || (sink.accuracy !== null && sink.accuracy < 1));
  const shedding = shed || (detail && detail.shedders.length > 0) || wasShed(state);
  const choice = detail ? detail.alternates : [];
  byId("quality").hidden = !(shedding || choice.length);
  if (byId("quality").hidden) return;
  const place = byId("quality-charts");
  if (shedding) {
    chart(place, "accuracy", "Accuracy per sink, and its minimum", share, sinks.slice(0, 5).flatMap((sink, i) => [
      { label: sink.id, values: column(state, "sink", sink.id, "accuracy"), colour: `--c${i % 5}` },
      ...(sink.min_accuracy ? [{ label: `least for ${sink.id}`, values: column(state, "sink", sink.id, "min_accuracy"), colour: `--c${i % 5}`, dash: true }] : []),
    ]), state);
    const keeps = [...state.columns].filter(([key, values]) => key.startsWith("keep\n") && values.some((v) => v !== null && v < 1));
    chart(place, "keep", "Share of records kept", share, keeps.slice(0, 6).map(([key, values], i) => (
      { label: key.split("\n")[1], values, colour: `--c${i % 6}`, step: true })), state);
  }
  const tables = [];
  if (shedding) {
    tables.push(el("h3", {}, "Sinks"), table(["sink", "query", "priority", "accuracy", "at least", "records", "latency", "p95"],
      sinks.map((s) => [s.id, s.query, num(number(s.priority)), num(share(s.accuracy)), num(share(s.min_accuracy)),
        num(rate(s.rps)), num(seconds(s.mean_s)), num(seconds(s.p95_s))])));
    if (detail.shedders.length) {
      tables.push(el("h3", {}, "Shed now"), table(["where", "kept"], detail.shedders.map((s) => [s.id, num(share(s.keep))])));
    }
  }
  if (choice.length) {
    tables.push(el("h3", {}, "Alternates"), table(["operator", "alternate", "", "value", "agrees with the best", "cost of a record"],
      choice.map((a) => [a.operator, a.alternate, a.active ? el("span", { class: "good" }, "● runs") : "",
        num(number(a.value)), num(share(a.agreement)), num(seconds(a.cost_s))])));
  }
  byId("quality-tables").replaceChildren(...tables);
}

function wasShed(state) {
  for (const [key, values] of state.columns) {
    if (key.startsWith("keep\n") && values.some((value) => value !== null && value < 1)) return true;
  }
  return false;
}

function showCost(page, state) {
  const app = page.app;
  const hidden = !app || !(app.per_hour || app.cost);
  byId("cost").hidden = hidden;
  if (hidden) return;
  byId("cost-sum").textContent = `${number(app.per_hour)} an hour now, ${number(app.cost)} since the start`;
  const place = byId("cost-charts");
  chart(place, "per-hour", "Price of what runs, an hour", number, [
    { label: "an hour", values: column(state, "app", "", "per_hour"), colour: "--c1", step: true },
  ], state);
  chart(place, "spent", "Spent", number, [{ label: "spent", values: column(state, "app", "", "cost"), colour: "--c0", fill: true }], state);
}
