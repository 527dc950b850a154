// The pictures: response time, machines, interference, and the strip of decisions.
import { $, make, percent, time } from "./dom.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const gutter = 64; // pixels left of every picture, so that their times stand below each other
let plots = [];
let range = [0, 1];

function chart(id, series, top, more = {}) {
  const element = $(id);
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule") } };
  const values = (_, all) => all.map((v) => new Date(v * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false,
    second: range[1] - range[0] < 600 ? "2-digit" : undefined }));
  const plot = new uPlot({
    width: element.clientWidth, height: element.clientHeight, legend: { show: false }, padding: [8, 12, 0, 0],
    scales: { x: { time: true, range: () => range }, y: { range: (u, low, high) => [0, top(u, high)] } },
    axes: [{ ...axis, space: 80, values }, { ...axis, size: gutter, ...more }],
    series: [{}, ...series.map((s) => ({ spanGaps: false, points: { show: false }, width: 2, ...s, stroke: colour(s.stroke) }))],
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
  }, [[], ...series.map(() => [])], element);
  plots.push({ plot, element });
  return plot;
}

let latency, machines, limit = 1;
const step = () => uPlot.paths.stepped({ align: -1 });

export function build() {
  for (const { plot } of plots) plot.destroy();
  plots = [];
  // Far above the objective the picture is cut, or a single slow moment would flatten all others.
  latency = chart("latency", [{ stroke: "--worst" }, { stroke: "--middle" }, { stroke: "--limit", dash: [6, 4], width: 1.5 }],
    (u, high) => Math.max(1.3 * limit, Math.min(1.1 * (high || 0), 5 * limit)));
  machines = chart("machines", [{ stroke: "--text", paths: step() }, { stroke: "--middle" }, { stroke: "--limit", dash: [6, 4] }],
    (u, high) => Math.max(1, 1.15 * (high || 0)), { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] });
}

export function resize() {
  for (const { plot, element } of plots) {
    if (element.clientWidth !== plot.width || element.clientHeight !== plot.height) {
      plot.setSize({ width: element.clientWidth, height: element.clientHeight });
    }
  }
}

export function draw(points, marks, minutes, onMark) {
  if (points.length === 0) return;
  const last = points[points.length - 1].at / 1000;
  const first = Math.max(points[0].at / 1000, minutes > 0 ? last - 60 * minutes : 0);
  range = [Math.min(first, last - 30), last];
  limit = points[points.length - 1].limit_ms;
  const seen = points.filter((p) => p.at / 1000 >= range[0] - 60);
  const column = (name) => seen.map((p) => p[name] ?? null);
  const at = seen.map((p) => p.at / 1000);
  latency.setData([at, column("worst_ms"), column("middle_ms"), column("limit_ms")]);
  machines.setData([at, column("machines"), column("capacity"), column("load")]);
  describe(seen);
  heat(seen);
  strip(marks, onMark);
}

// describe says in words what the pictures show, for those who cannot see them.
function describe(points) {
  const above = points.filter((p) => p.worst_ms > p.limit_ms).length;
  const last = points[points.length - 1];
  $("latency").setAttribute("aria-label", `Response time: the slowest instance was above the objective of ${last.limit_ms} ms in ` +
    `${above} of ${points.length} periods shown, and is now at ${last.worst_ms === undefined ? "an unknown time" :
      last.worst_ms.toFixed(1) + " ms"}`);
  const counts = points.map((p) => p.machines);
  $("machines").setAttribute("aria-label", `Machines: ${last.machines} now, from ${Math.min(...counts)} to ${Math.max(...counts)} shown`);
}

const mostRows = 24;

// heat draws a row for each instance and resource on which neighbours were felt, the strongest first.
function heat(points) {
  const rows = new Map();
  points.forEach((p, i) => {
    for (const s of p.shades ?? []) {
      const key = JSON.stringify([s.instance, s.resource]);
      if (!rows.has(key)) rows.set(key, { instance: s.instance, resource: s.resource, sum: 0, cells: [] });
      const row = rows.get(key);
      row.sum += s.share;
      row.cells.push([i, s.share]);
    }
  });
  const all = [...rows.values()].sort((a, b) => b.sum - a.sum).slice(0, mostRows);
  all.sort((a, b) => a.instance.localeCompare(b.instance, undefined, { numeric: true }) || a.resource.localeCompare(b.resource));
  $("calm").hidden = all.length > 0;
  $("heat").replaceChildren(...all.flatMap((row) => {
    const most = row.cells.reduce((m, [, v]) => Math.max(m, v), 0);
    const label = `Neighbours of ${row.instance} on ${row.resource}: at most ${percent(most)}`;
    return [make("span", row.instance + " " + row.resource), make("canvas", undefined, { role: "img", "aria-label": label, title: label })];
  }));
  const rgb = colour("--heat");
  document.querySelectorAll("#heat canvas").forEach((canvas, i) => paint(canvas, points, all[i].cells, rgb));
}

function paint(canvas, points, cells, rgb) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * scale));
  canvas.height = Math.max(1, Math.round(canvas.clientHeight * scale));
  const context = canvas.getContext("2d");
  const x = (i) => ((points[i].at / 1000 - range[0]) / (range[1] - range[0])) * canvas.width;
  const pixel = (i) => Math.round(x(i));
  for (const [i, value] of cells) {
    const end = pixel(i), begin = i > 0 ? pixel(i - 1) : 0;
    context.fillStyle = `rgba(${rgb}, ${Math.min(1, value)})`;
    context.fillRect(begin, 0, Math.max(1, end - begin), canvas.height);
  }
}

const mostMarks = 80;

// strip puts a mark below the response times for each decision. The journal below has the same for keyboards.
function strip(marks, onMark) {
  const element = $("strip");
  const width = element.clientWidth - gutter - 12;
  const seen = marks.filter((m) => m.at / 1000 >= range[0] && m.at / 1000 <= range[1] + 60).slice(-mostMarks);
  element.replaceChildren(...seen.map((m) => {
    const button = make("button", undefined, { class: m.kind, tabindex: "-1", title: time(m.at) + " " + m.text });
    button.style.left = gutter + Math.min(1, (m.at / 1000 - range[0]) / (range[1] - range[0])) * width + "px";
    button.addEventListener("click", () => onMark(m.id));
    return button;
  }));
}
