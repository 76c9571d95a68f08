// chart.js - line charts and histograms as SVG, drawn by hand. A chart can be read by pointer and arrow keys: its
// legend shows the values at the cursor, else the newest.
import { make, short } from "./api.js";

const NS = "http://www.w3.org/2000/svg";
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "1 4", "12 4", "5 2 1 2", "3 6"];
const H = 210, LEFT = 46, RIGHT = 10, TOP = 8, BOTTOM = 26;

function svg(name, attributes = {}, ...inside) {
  const e = document.createElementNS(NS, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...inside);
  return e;
}

// Round numbers that span lo to hi.
function ticks(lo, hi, n) {
  const rough = (hi - lo) / n || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((k) => k * power >= rough) * power, found = [];
  for (let i = Math.ceil(lo / step - 1e-9); i * step <= hi + 1e-9 * step; i++) found.push(+(i * step).toPrecision(12));
  return found;
}

function range(values) {
  let lo = Infinity, hi = -Infinity;
  for (const v of values) if (v != null) { lo = Math.min(lo, v); hi = Math.max(hi, v); }
  if (lo > hi) return [0, 1];
  if (lo === hi) return lo ? [Math.min(0, 2 * lo), Math.max(0, 2 * lo)] : [-1, 1];
  return [lo, hi];
}

// Means over a window, where there are many noisy points.
function smooth(y) {
  const n = y.length, half = Math.floor(n / 60);
  if (half < 1) return null;
  const sum = [0], count = [0];
  y.forEach((v, i) => { sum.push(sum[i] + (v ?? 0)); count.push(count[i] + (v != null)); });
  return y.map((_, i) => {
    const a = Math.max(0, i - half), b = Math.min(n, i + half + 1), k = count[b] - count[a];
    return k ? (sum[b] - sum[a]) / k : null;
  });
}

function path(x, y, sx, sy) {
  let d = "", pen = "M";
  for (let i = 0; i < y.length; i++) {
    if (y[i] == null || x[i] == null) continue;
    d += `${pen}${sx(x[i]).toFixed(1)} ${sy(y[i]).toFixed(1)}`;
    pen = "L";
  }
  return d;
}

function nearest(x, y, at) {
  let best = -1, distance = Infinity;
  for (let i = 0; i < x.length; i++)
    if (y[i] != null && x[i] != null && Math.abs(x[i] - at) < distance) { distance = Math.abs(x[i] - at); best = i; }
  return best;
}

// Draws again when the place for a drawing has another width; text keeps its size.
function follow_width(chart) {
  new ResizeObserver(() => {
    const now = Math.round(chart.drawing.clientWidth);
    if (!now || now === chart.w) return;
    chart.w = now;
    chart.again();
  }).observe(chart.drawing);
}

export class Chart {
  // place: an element; title: text; x: name of the horizontal axis
  constructor(place, title, x) {
    this.title = title;
    this.x = x;
    this.legend = make("figcaption");
    this.drawing = svg("svg", { height: H, role: "img", tabindex: 0 });
    this.w = 360;
    this.figure = make("figure", { class: "chart card" }, this.legend, this.drawing);
    place.append(this.figure);
    follow_width(this);
    this.cursor = null;
    this.drawing.addEventListener("pointermove", (e) => {
      const box = this.drawing.getBoundingClientRect();
      this.point(((e.clientX - box.left) / box.width * this.w - LEFT) / (this.w - LEFT - RIGHT));
    });
    for (const leave of ["pointerleave", "blur"]) this.drawing.addEventListener(leave, () => this.point(null));
    this.drawing.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: -0.02, ArrowRight: 0.02, Home: -1, End: 1 }[e.key];
      if (!step) return;
      e.preventDefault();
      this.point(Math.min(1, Math.max(0, (this.cursor ?? 1) + step)));
    });
  }

  // series: { name, x, y, ink, raw: noisy, marks: points are drawn }; marks: x of vertical lines
  draw(series, marks = [], options = {}) {
    const W = this.w;
    this.again = () => this.draw(series, marks, options);
    this.drawing.setAttribute("viewBox", `0 0 ${W} ${H}`);
    this.series = series.filter((s) => s.y.some((v) => v != null));
    this.figure.hidden = !this.series.length;
    if (!this.series.length) return;
    for (const s of this.series) s.line = (s.raw && smooth(s.y)) || s.y;
    const [x0, x1] = options.xRange || range(this.series.flatMap((s) => s.x.filter((_, i) => s.y[i] != null)));
    let [y0, y1] = options.yRange || range(this.series.flatMap((s) => s.line));
    if (!options.yRange) { const pad = 0.06 * (y1 - y0); y0 -= pad; y1 += pad; }
    const sx = (v) => LEFT + (v - x0) / (x1 - x0 || 1) * (W - LEFT - RIGHT);
    const sy = (v) => TOP + (1 - (Math.min(Math.max(v, y0), y1) - y0) / (y1 - y0)) * (H - TOP - BOTTOM);
    this.scale = { x0, x1, sx, sy };
    const all = [];
    for (const t of ticks(y0, y1, 4)) {
      all.push(svg("line", { class: "axis", x1: LEFT, x2: W - RIGHT, y1: sy(t), y2: sy(t) }));
      all.push(svg("text", { x: LEFT - 6, y: sy(t) + 4, "text-anchor": "end" }, options.percent ? `${Math.round(100 * t)} %` : short(t)));
    }
    for (const t of ticks(x0, x1, 5)) if (sx(t) < W - RIGHT - 52) all.push(svg("text", { x: sx(t), y: H - 8, "text-anchor": "middle" }, short(t)));
    all.push(svg("text", { x: W - RIGHT, y: H - 8, "text-anchor": "end" }, this.x));
    for (const m of marks) if (m >= x0 && m <= x1)
      all.push(svg("line", { class: "mark", x1: sx(m), x2: sx(m), y1: TOP, y2: H - BOTTOM }));
    for (const s of this.series) {
      const look = { class: `ink${s.ink % 8}`, "stroke-dasharray": DASHES[s.ink % 8] };
      if (s.line !== s.y) all.push(svg("path", { class: `ink${s.ink % 8} raw`, d: path(s.x, s.y, sx, sy) }));
      all.push(svg("path", { ...look, d: path(s.x, s.line, sx, sy) }));
      if (s.marks || s.y.length === 1) s.y.forEach((v, i) => v != null && all.push(svg("circle", { class: look.class, cx: sx(s.x[i]), cy: sy(v), r: 2.5 })));
    }
    this.line = svg("line", { class: "cursor", y1: TOP, y2: H - BOTTOM, visibility: "hidden" });
    this.percent = options.percent;
    this.drawing.replaceChildren(...all, this.line);
    this.point(this.cursor);
  }

  again() {}

  value(v) { return this.percent ? (v == null ? "–" : `${(100 * v).toFixed(1)} %`) : short(v); }

  // The legend, for a place from 0 to 1 or for the end.
  point(share) {
    if (!this.series?.length) return;
    const { x0, x1, sx } = this.scale;
    this.cursor = share == null || share < 0 || share > 1 ? null : share;
    const at = this.cursor == null ? x1 : x0 + this.cursor * (x1 - x0), said = [];
    this.line.setAttribute("visibility", this.cursor == null ? "hidden" : "visible");
    this.line.setAttribute("x1", sx(at));
    this.line.setAttribute("x2", sx(at));
    const keys = this.series.map((s) => {
      const i = nearest(s.x, s.line, at), value = this.value(i < 0 ? null : s.line[i]);
      said.push(`${s.name} ${value}`);
      const sample = svg("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" },
        svg("path", { class: `ink${s.ink % 8}`, "stroke-dasharray": DASHES[s.ink % 8], d: "M0 4H22" }));
      return make("span", { class: "key" }, sample, `${s.name} ${value}`);
    });
    const where = this.cursor == null ? [] : [make("span", {}, `${this.x} ${short(+at.toPrecision(3))}`)];
    this.legend.replaceChildren(make("b", {}, this.title), ...keys, ...where);
    this.drawing.setAttribute("aria-label", `${this.title} at ${this.x} ${short(+at.toPrecision(3))}: ${said.join(", ")}`);
  }
}

// The percentiles 0 to 100 of a score as a histogram, with the model's threshold and the score of one picture.
export class Density {
  constructor(place) {
    this.legend = make("figcaption");
    this.drawing = svg("svg", { height: 150, role: "img" });
    this.w = 360;
    this.figure = make("figure", { class: "chart" }, this.legend, this.drawing);
    place.append(this.figure);
    follow_width(this);
  }

  again() {}

  draw(percentiles, threshold, score) {
    const W = this.w, h = 150, floor = h - BOTTOM, bins = 36, known = percentiles.length > 1;
    this.again = () => this.draw(percentiles, threshold, score);
    this.drawing.setAttribute("viewBox", `0 0 ${W} ${h}`);
    const inner = known ? [percentiles[0], percentiles[percentiles.length - 1]] : [];
    let [lo, hi] = range([...inner, threshold, score]);
    const pad = 0.05 * (hi - lo);
    lo -= pad;
    hi += pad;
    const sx = (v) => RIGHT + (v - lo) / (hi - lo) * (W - 2 * RIGHT), all = [];
    if (threshold != null)
      all.push(svg("rect", { class: "outside", x: RIGHT, y: TOP, width: Math.max(0, sx(threshold) - RIGHT), height: floor - TOP }));
    if (known) {
      const count = new Array(bins).fill(0), width = (hi - lo) / bins;
      for (let k = 0; k + 1 < percentiles.length; k++) {         // each interval holds one percent
        const a = percentiles[k], b = percentiles[k + 1];
        const i = Math.floor((a - lo) / width), j = Math.min(bins - 1, Math.floor((b - lo) / width));
        for (let m = i; m <= j; m++) {
          const left = Math.max(a, lo + m * width), right = Math.min(b, lo + (m + 1) * width);
          count[m] += b > a ? Math.max(0, right - left) / (b - a) : m === i;
        }
      }
      const top = Math.max(...count);
      let d = `M${sx(lo)} ${floor}`;
      count.forEach((c, m) => {
        const y = (floor - c / top * (floor - TOP)).toFixed(1);
        d += `V${y}H${sx(lo + (m + 1) * width).toFixed(1)}`;
      });
      all.push(svg("path", { class: "ink0 hist", d: `${d}V${floor}Z` }));
    }
    all.push(svg("line", { class: "axis", x1: RIGHT, x2: W - RIGHT, y1: floor, y2: floor }));
    for (const t of ticks(lo, hi, 6)) all.push(svg("text", { x: sx(t), y: h - 8, "text-anchor": "middle" }, short(t)));
    if (threshold != null) all.push(svg("line", { class: "mark", x1: sx(threshold), x2: sx(threshold), y1: TOP, y2: floor }));
    if (score != null) {
      all.push(svg("line", { class: "ink1", x1: sx(score), x2: sx(score), y1: TOP + 8, y2: floor, "stroke-width": 3 }));
      all.push(svg("circle", { class: "ink1", cx: sx(score), cy: TOP + 6, r: 5 }));
    }
    this.drawing.replaceChildren(...all);
    this.legend.replaceChildren(make("b", {}, "log p(x)"), make("span", {}, `this picture ${short(score)}`),
      make("span", {}, known ? "compared with validation images" : "the model has no scores of validation images"),
      ...(threshold == null ? [] : [make("span", {}, `unfamiliar below ${short(threshold)}`)]));
    this.drawing.setAttribute("aria-label", `log p(x) of this picture is ${short(score)}; pictures below ${short(threshold)} are unfamiliar`);
  }
}
