// Charts by uPlot. A chart is made once and given new data; it is made anew only when its lines change.
const charts = new Map();
const LEAST_SPAN_S = 60; // a chart of the first moments shows a minute
const cursors = uPlot.sync("penstock");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function column(state, scope, name, figure) {
  return state.columns.get(`${scope}\n${name}\n${figure}`) || null;
}

// One chart in `place`: `lines` are {label, values, colour, dash, fill, step}; those without values are left out.
function chart(place, id, title, format, lines, state) {
  const known = lines.filter((line) => line.values && line.values.some((value) => value !== null));
  let box = place.querySelector(`[data-chart="${CSS.escape(id)}"]`);
  if (!known.length) {
    if (box) { drop(id); box.remove(); }
    return;
  }
  if (!box) {
    box = el("div", { class: "chart", "data-chart": id }, el("h3", {}, title), el("div", { class: "plot" }));
    place.append(box);
  }
  const data = [state.times, ...known.map((line) => line.values)];
  const shape = JSON.stringify([known.map((l) => [l.label, l.colour, l.dash]), state.unix]);
  const old = charts.get(id);
  if (old && old.shape === shape && old.box === box) {
    old.state = state;
    old.plot.setData(data);
    newest(old.plot);
    return;
  }
  drop(id);
  const entry = { shape, box, state };
  const target = box.querySelector(".plot");
  entry.plot = new uPlot(options(target, format, known, entry), data, target);
  newest(entry.plot);
  entry.plot.over.addEventListener("mouseleave", () => newest(entry.plot));
  entry.observer = new ResizeObserver(() => entry.plot.setSize(sizeOf(target)));
  entry.observer.observe(target);
  charts.set(id, entry);
}

// The legend tells the newest values until somebody points at others.
function newest(plot) {
  requestAnimationFrame(() => {
    if (plot.status === 1 && plot.cursor.idx === null) plot.setLegend({ idx: plot.data[0].length - 1 });
  });
}

function drop(id) {
  const old = charts.get(id);
  if (!old) return;
  old.observer.disconnect();
  old.plot.destroy();
  charts.delete(id);
}

// Charts of things that are no longer shown go; `ids` are those that stay.
function keepOnly(place, ids) {
  for (const box of [...place.querySelectorAll("[data-chart]")]) {
    if (!ids.has(box.dataset.chart)) { drop(box.dataset.chart); box.remove(); }
  }
}

// Of a single moment uPlot would show years.
function span(plot, from, to) {
  const end = plot.data[0].length > 1 ? to : plot.data[0][0];
  return [Math.min(from, end - LEAST_SPAN_S), end];
}

const sizeOf = (target) => ({ width: Math.max(160, target.clientWidth), height: 150 });

function options(target, format, lines, entry) {
  const grid = { stroke: css("--faint"), width: 1 };
  const axis = { stroke: css("--muted"), grid, ticks: { ...grid, size: 4 }, font: "11px system-ui" };
  const clock = (_, splits) => splits.map((value) => axisTime(value, splits, entry.state.unix));
  return {
    ...sizeOf(target),
    cursor: { sync: { key: cursors.key }, drag: { x: true, y: false }, points: { size: 6 } },
    legend: { live: true },
    scales: { x: { time: entry.state.unix, range: span }, y: { range: (_, low, high) => [Math.min(0, low || 0), (high || 1) * 1.08] } },
    axes: [
      { ...axis, values: clock, space: 70, size: 30 },
      { ...axis, size: 58, space: 26, values: (_, splits) => splits.map((value) => format(value)) },
    ],
    series: [
      { label: "time", value: (_, value) => (value === null ? "–" : moment(value, entry.state.unix)) },
      ...lines.map((line) => ({
        label: line.label,
        stroke: css(line.colour),
        width: line.dash ? 1.2 : 1.6,
        dash: line.dash ? [6, 4] : undefined,
        fill: line.fill ? `${css(line.colour)}22` : undefined,
        points: { show: (plot) => plot.data[0].length < 3, size: 5 },
        spanGaps: Boolean(line.spans),
        paths: line.step ? uPlot.paths.stepped({ align: -1 }) : undefined,
        value: (_, value) => format(value),
      })),
    ],
    hooks: { draw: [(plot) => marks(plot, entry.state)] },
  };
}

// Hours and minutes; seconds where the marks are closer, the day where they are far apart.
function axisTime(value, splits, unix) {
  if (!unix) return moment(value, false);
  const gap = splits.length > 1 ? splits[1] - splits[0] : 3600;
  if (gap >= 43200) return new Date(value * 1000).toLocaleDateString("en-CA");
  return moment(value, true).slice(0, gap < 60 ? 8 : 5);
}

// A tick at the upper edge wherever something was decided.
function marks(plot, state) {
  const { ctx, bbox } = plot;
  const tick = 7 * devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = css("--accent");
  ctx.lineWidth = devicePixelRatio;
  for (const time of state.decided) {
    const x = plot.valToPos(time, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + tick);
    ctx.stroke();
  }
  ctx.restore();
}

// The colours are the theme's: when it changes, every chart is made anew.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const id of [...charts.keys()]) drop(id);
  show();
});
