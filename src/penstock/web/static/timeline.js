// Decisions, newest first; each opens to what was seen, decided, expected, held back and why, and what came of it.
const FILTERS = {
  all: () => true,
  actions: (entry) => entry.lines.some((line) => line.topic === "decided"),
  late: (entry) => entry.kind === "late",
  faults: (entry) => entry.kind === "fault",
};
const openEpisodes = new Set();
let filter = "all";
let shown = 60;

function showTimeline(page) {
  const buttons = Object.keys(FILTERS).map((name) => el("button", {
    type: "button", "aria-pressed": String(name === filter), onclick: () => { filter = name; shown = 60; show(); },
  }, name, name === "all" ? null : el("small", {}, ` ${page.timeline.filter(FILTERS[name]).length}`)));
  byId("filters").replaceChildren(...buttons);
  const now = page.planned.length
    ? page.planned.map((p) => `${page.dry_run ? "would " : ""}${p.deed}: ${p.why}`).join("; ")
    : (page.nothing.length ? `nothing was done because ${page.nothing.join("; ")}` : "the first look comes after one interval");
  byId("now").replaceChildren(el("strong", {}, page.live ? "Now: " : "At the end: "), now);
  const wanted = page.timeline.filter(FILTERS[filter]).reverse();
  if (!wanted.length && page.timeline.length) byId("episodes").replaceChildren(el("li", { class: "empty" }, `none of this kind among ${number(page.timeline.length)}`));
  else byId("episodes").replaceChildren(...wanted.slice(0, shown).map((episode) => item(episode, page)));
  const more = byId("more");
  more.hidden = wanted.length <= shown;
  more.textContent = `${wanted.length - shown} earlier ones`;
  more.onclick = () => { shown += 120; show(); };
}

function item(episode, page) {
  const key = episode.from_s;
  const when = moment(episode.from_s, page.unix, page.unix && page.now_s - episode.from_s > 72000);
  const until = episode.to_s > episode.from_s ? ` – ${moment(episode.to_s, page.unix)}` : "";
  const box = el("details", { class: episode.kind, open: openEpisodes.has(key) },
    el("summary", {}, el("span", { class: "dot" }), el("span", { class: "when" }, when + until),
      el("span", { class: "what" }, episode.title)));
  const fill = () => { if (!box.querySelector("dl")) box.append(lines(episode)); };
  if (openEpisodes.has(key)) fill();
  box.addEventListener("toggle", () => {
    if (box.open) { openEpisodes.add(key); fill(); } else openEpisodes.delete(key);
  });
  return el("li", {}, box);
}

function lines(episode) {
  const parts = [];
  const topics = new Map();
  for (const line of episode.lines) topics.set(line.topic, [...(topics.get(line.topic) || []), line]);
  for (const [topic, told] of topics) {
    parts.push(el("dt", {}, topic === "why" ? "why nothing was done" : topic));
    for (const line of told) {
      parts.push(el("dd", {}, line.text, line.policy ? el("span", { class: "policy" }, ` [${line.policy}]`) : null));
    }
  }
  if (!parts.length) parts.push(el("dd", { class: "muted" }, `${episode.cycles} cycles, nothing to tell`));
  return el("dl", { class: "lines" }, ...parts);
}
