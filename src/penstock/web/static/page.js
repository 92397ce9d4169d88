// Loads the page's document: from this file, or from the server that sent it, again and again.
const RANGES = { "15 min": 900, "1 h": 3600, "6 h": 21600, all: null };
const embedded = JSON.parse(byId("data").textContent);
let page = embedded;
let range = embedded ? "all" : "15 min";
let token = sessionStorageGet("penstock-token");
let tag = null;

function sessionStorageGet(name) {
  try { return sessionStorage.getItem(name); } catch { return null; }
}

function takeToken() {
  const given = new URLSearchParams(location.search).get("token");
  if (!given) return;
  token = given;
  try { sessionStorage.setItem("penstock-token", given); } catch { /* it lives as long as the page, then */ }
  history.replaceState(null, "", location.pathname);
}

function show() {
  if (!page) return;
  const limit = RANGES[range];
  const since = limit === null ? -Infinity : page.now_s - limit;
  const first = embedded ? Math.max(0, page.series.times.findIndex((t) => t >= since)) : 0;
  const cut = (values) => (first ? values.slice(first) : values);
  const state = {
    times: cut(page.series.times),
    columns: new Map(page.series.columns.map((c) => [`${c.scope}\n${c.name}\n${c.figure}`, cut(c.values)])),
    unix: page.unix,
    decided: page.timeline.filter(FILTERS.actions).map((e) => e.from_s),
  };
  document.title = `Penstock: ${page.title}`;
  byId("title").textContent = page.title + (page.run ? `, ${page.run.id}` : "");
  byId("ranges").replaceChildren(...Object.keys(RANGES).map((name) => el("button", {
    type: "button", "aria-pressed": String(name === range), onclick: () => { range = name; tag = null; show(); load(); },
  }, name)));
  showMode();
  showGoals(page);
  showQueries(page, state);
  showExecutors(page, state);
  showQuality(page, state);
  showCost(page, state);
  showTimeline(page);
  const notes = page.detail ? page.detail.warnings : [];
  byId("footer").textContent = `Penstock ${page.version}.` + (notes.length ? ` Not measured: ${notes.join("; ")}.` : "")
    + (embedded ? " Everything on this page is inside this file." : "");
}

function showMode() {
  const box = byId("mode-box");
  box.hidden = !page.modes || !page.modes.length;
  const select = byId("mode");
  if (box.hidden || document.activeElement === select) return;
  select.replaceChildren(...page.modes.map((mode) => el("option", { value: mode, selected: mode === page.mode }, mode)));
  select.disabled = !page.may_change;
}

function status(text, kind) {
  const pill = byId("status");
  pill.textContent = text;
  pill.className = `pill ${kind || ""}`;
}

function trouble(text) {
  byId("trouble").textContent = text;
  byId("trouble").hidden = !text;
}

const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});

async function load() {
  if (embedded) return;
  const last = RANGES[range] === null ? "" : `&last_s=${RANGES[range]}`;
  try {
    const answer = await fetch(`api/state?points=600${last}`, { headers: { ...headers(), ...(tag ? { "If-None-Match": tag } : {}) }, cache: "no-store" });
    if (answer.status === 200) {
      tag = answer.headers.get("ETag");
      page = await answer.json();
      page.may_change = page.may_change && Boolean(token);
      show();
    } else if (answer.status !== 304) throw new Error(`the server answered ${answer.status}`);
    status(page && page.live ? "live" : "recorded", page && page.live ? "live" : "");
  } catch (problem) {
    status("no connection", "lost");
  }
}

async function change(what) {
  trouble("");
  try {
    const answer = await fetch("api/change", {
      method: "POST", headers: { ...headers(), "Content-Type": "application/json" }, body: JSON.stringify(what), cache: "no-store",
    });
    if (!answer.ok) trouble(`Not changed: ${(await answer.json()).error}`);
    tag = null;
    await load();
  } catch (problem) {
    trouble(`Not changed: ${problem.message}`);
  }
}

function askGoal(goal) {
  const dialog = byId("goal-dialog");
  byId("goal-text").textContent = `Latency of ${goal.name}, now ${seconds(goal.bound_s)}.`;
  byId("goal-value").value = String(Math.round(goal.bound_s * 1e6) / 1e3);
  byId("goal-cancel").onclick = () => dialog.close();
  byId("goal-form").onsubmit = () => change({ goal: goal.name, latency_ms: Number(byId("goal-value").value) });
  dialog.showModal();
}

byId("mode").addEventListener("change", (event) => { event.target.blur(); change({ mode: event.target.value }); });
takeToken();
if (embedded) {
  status("recorded");
  show();
} else {
  load();
  setInterval(load, 2000);
}
