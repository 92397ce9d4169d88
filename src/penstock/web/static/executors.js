// Executors with what keeps them busy, and where the state partitions are.
const openExecutors = new Set();
const CELLS = 4000;

function showExecutors(page, state) {
  const app = page.app;
  const place = byId("executor-charts");
  chart(place, "nodes", "Executors and cores", number, [
    { label: "executors", values: column(state, "app", "", "nodes"), colour: "--c0", step: true },
    { label: "cores busy with our tasks", values: column(state, "app", "", "own_cpu"), colour: "--c2" },
    { label: "cores busy with others", values: column(state, "app", "", "foreign_cpu"), colour: "--c1" },
  ], state);
  const busiest = topExecutors(state);
  chart(place, "speed", "Speed of executors", (v) => (v === null ? "–" : `${number(v)} ×`),
    busiest.map((id, i) => ({ label: id, values: column(state, "executor", id, "speed"), colour: `--c${i % 6}` })), state);
  const detail = page.detail;
  byId("executor-sum").textContent = app
    ? `${number(app.nodes)} ready, ${number(app.cores)} cores, ${number(app.tasks)} tasks` : "";
  if (!detail) {
    byId("executor-table").replaceChildren();
    byId("placement").replaceChildren(el("p", { class: "empty" }, "Executors are shown with the first query."));
    return;
  }
  showTable(detail, state, page);
  showPlacement(detail, page);
}

// Up to six executors whose speed differs most from the reference; none as long as all are alike.
function topExecutors(state) {
  const found = [];
  for (const [key, values] of state.columns) {
    const [scope, id, figure] = key.split("\n");
    if (scope !== "executor" || figure !== "speed") continue;
    const last = values[values.length - 1];
    if (last !== null) found.push([id, Math.abs(last - 1)]);
  }
  if (!found.some(([, off]) => off > 0.02)) return [];
  return found.sort((a, b) => b[1] - a[1]).slice(0, 6).map(([id]) => id).sort();
}

function showTable(detail, state, page) {
  const rows = [];
  for (const one of detail.executors) {
    const open = openExecutors.has(one.id);
    const toggle = () => { if (open) openExecutors.delete(one.id); else openExecutors.add(one.id); show(); };
    rows.push(el("tr", { class: open ? "open" : null, "data-executor": one.id },
      el("td", {}, el("button", { type: "button", class: "plain", "aria-expanded": String(open), onclick: toggle },
        `${open ? "▾" : "▸"} ${one.id}`)),
      el("td", {}, one.host), el("td", { class: one.state === "ready" ? "" : "warn" }, one.state),
      el("td", { class: "n" }, `${number(one.speed)} ×`), el("td", {}, cpuBar(one)),
      el("td", { class: "n" }, one.own_cpu === null ? "–" : `${number(one.own_cpu, 2)} / ${number(one.cores)}`),
      el("td", { class: `n ${one.foreign_cpu > 0.5 ? "warn" : ""}` }, number(one.foreign_cpu, 2)),
      el("td", { class: "n" }, one.memory_bytes ? share(one.memory_used_bytes / one.memory_bytes) : "–"),
      el("td", { class: "n" }, number(one.partitions))));
    if (open) rows.push(el("tr", {}, el("td", { colspan: "9" }, opened(one, detail, page))));
  }
  const head = ["executor", "host", "state", "speed", "CPU", "cores busy", "foreign", "memory", "partitions"];
  byId("executor-table").replaceChildren(
    el("thead", {}, el("tr", {}, ...head.map((name, i) => el("th", { class: [3, 5, 6, 7, 8].includes(i) ? "n" : null }, name)))),
    el("tbody", {}, ...rows));
}

function cpuBar(one) {
  const bar = el("span", { class: "bar", role: "img", "aria-label": `own ${number(one.own_cpu)}, foreign ${number(one.foreign_cpu)} of ${number(one.cores)} cores` });
  for (const [name, value] of [["own", one.own_cpu], ["foreign", one.foreign_cpu]]) {
    const part = el("span", { class: name });
    part.style.width = `${Math.min(100, (100 * (value || 0)) / (one.cores || 1))}%`;
    bar.append(part);
  }
  return bar;
}

// What an opened executor shows: its partitions one by one, and who came and went.
function opened(one, detail, page) {
  const row = detail.executors.indexOf(one);
  const parts = [];
  for (const placed of detail.placement) {
    const mine = placed.index.map((index, i) => [index, i]).filter(([, i]) => placed.executor[i] === row);
    if (!mine.length) continue;
    const size = mine.reduce((total, [, i]) => total + placed.state_bytes[i], 0);
    const names = mine.map(([index]) => index);
    parts.push(el("p", {}, el("strong", {}, placed.operator), ` ${mine.length} partitions`,
      size ? `, ${bytes(size)} of state` : "", ": ", ranges(names)));
  }
  const moves = page.moves.filter((m) => m.source === one.id || m.target === one.id).slice(-12).reverse();
  const told = moves.map((m) => el("li", {}, `${moment(m.time_s, page.unix)} ${m.operator}[${m.index}] ${m.source} → ${m.target}`));
  return el("div", { class: "opened" }, ...(parts.length ? parts : [el("p", { class: "muted" }, "no partitions here")]),
    told.length ? el("ul", {}, ...told) : el("p", { class: "muted" }, "nothing moved here or away"));
}

function ranges(numbers) {
  const found = [];
  for (const n of [...numbers].sort((a, b) => a - b)) {
    const last = found[found.length - 1];
    if (last && last[1] === n - 1) last[1] = n;
    else found.push([n, n]);
  }
  return found.map(([a, b]) => (a === b ? String(a) : `${a}–${b}`)).join(", ");
}

function showPlacement(detail, page) {
  const place = byId("placement");
  const count = detail.placement.reduce((n, p) => n + p.index.length, 0);
  if (!count || count > CELLS) {
    place.replaceChildren();
    return;
  }
  const recent = new Map();
  for (const move of page.moves.slice(-200)) recent.set(`${move.operator}[${move.index}]`, move);
  const names = detail.placement.map((p) => p.operator);
  const cells = new Map(detail.executors.map((one) => [one.id, []]));
  detail.placement.forEach((placed, o) => {
    placed.index.forEach((index, i) => {
      const one = detail.executors[placed.executor[i]];
      if (!one) return;
      const name = `${placed.operator}[${index}]`;
      const move = recent.get(name);
      const size = placed.state_bytes[i] ? `, ${bytes(placed.state_bytes[i])}` : "";
      const from = move ? `, from ${move.source} at ${moment(move.time_s, page.unix)}` : "";
      const moving = placed.moving.includes(i) ? " moving" : "";
      cells.get(one.id).push(el("span", { class: `cell o${o % 6}${move ? " moved" : ""}${moving}`, title: name + size + from }));
    });
  });
  const strips = [...cells].map(([id, mine]) => el("div", { class: "strip" },
    el("span", { class: "who" }, `${id} `, el("span", { class: "muted" }, `${mine.length}`)), el("div", { class: "cells" }, ...mine)));
  const key = names.map((name, o) => el("span", { class: "key" }, el("span", { class: `cell o${o % 6}` }), name));
  key.push(el("span", { class: "key" }, el("span", { class: "cell moved" }), "moved lately"));
  place.replaceChildren(el("h3", {}, "Where the partitions are"), el("p", {}, ...key), ...strips, lastMoves(page));
}

// Moves of one moment between the same two executors are told together.
function lastMoves(page) {
  const groups = new Map();
  for (const move of page.moves) {
    const key = [move.time_s, move.operator, move.source, move.target].join("\n");
    groups.set(key, [...(groups.get(key) || []), move]);
  }
  const told = [...groups.values()].slice(-8).reverse().map((moves) => el("li", {},
    `${moment(moves[0].time_s, page.unix)} partition${moves.length > 1 ? "s" : ""} ${ranges(moves.map((m) => m.index))} of ${moves[0].operator} moved from ${moves[0].source} to ${moves[0].target}`));
  return told.length ? el("ul", { class: "muted", id: "moves" }, ...told) : el("p", { class: "muted" }, "No partition has moved.");
}
