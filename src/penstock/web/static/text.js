// Elements and figures. Text only ever becomes a text node: names with markup in them are shown, never obeyed.
const byId = (id) => document.getElementById(id);

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${number(value / 1e6, digits)} M`;
  if (size >= 1e4) return `${number(value / 1e3, digits)} k`;
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}

function seconds(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${number(value * 1e6)} µs`;
  if (size < 1) return `${number(value * 1e3)} ms`;
  if (size < 90) return `${number(value)} s`;
  if (size < 5400) return `${number(value / 60)} min`;
  return `${number(value / 3600)} h`;
}

const rate = (value) => (value === null || value === undefined ? "–" : `${number(value)}/s`);
const share = (value) => (value === null || value === undefined ? "–" : `${number(100 * value)} %`);

function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (Math.abs(value) < 1000) return `${number(value)} ${unit}`;
    value /= 1000;
  }
  return `${number(value)} TB`;
}

// Times since 1970 are shown as a clock, times since a start (a simulation) as +minutes:seconds.
function moment(time, unix, withDay) {
  if (!unix) {
    const whole = Math.round(time);
    const hours = Math.floor(whole / 3600);
    const rest = String(Math.floor(whole / 60) % 60).padStart(2, "0") + ":" + String(whole % 60).padStart(2, "0");
    return hours ? `+${hours}:${rest}` : `+${rest}`;
  }
  const date = new Date(time * 1000);
  const clock = date.toLocaleTimeString("en-GB");
  return withDay ? `${date.toLocaleDateString("en-CA")} ${clock}` : clock;
}

function table(columns, rows, attributes) {
  const numeric = columns.map((_, i) => rows.some((row) => row[i] && row[i].n));
  const cell = (value, i) => {
    const inner = value && value.n !== undefined ? value.n : value;
    return el("td", { class: numeric[i] ? "n" : null }, inner === null || inner === undefined ? "–" : inner);
  };
  return el("table", attributes,
    el("thead", {}, el("tr", {}, ...columns.map((c, i) => el("th", { class: numeric[i] ? "n" : null }, c)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map(cell)))));
}
const num = (text) => ({ n: text });
