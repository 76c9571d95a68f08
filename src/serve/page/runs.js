// runs.js - one run, or several side by side, followed while they train.
import { $, ask, make, percent, short, show, time } from "./api.js";
import { Chart } from "./chart.js";

const CHARTS = [
  { title: "Accuracy", percent: true, columns: [["accuracy", "training"], ["valid_accuracy", "validation"]],
    together: ["valid_accuracy", "Validation accuracy"] },
  { title: "Loss", columns: [["loss", "loss"], ["ce", "cross-entropy"]] },
  { title: "Log-density", columns: [["fx", "f(x)"], ["fxq", "f(x_q)"]], together: ["fx", "f(x)"] },
  { title: "Climb", columns: [["climb", "climb"]] },
  { title: "Learning rate", columns: [["lr", "learning rate"]] },
  { title: "FID", columns: [["fid", "FID of the replay buffer"]] },
];
const STATES = { training: "training", stopped: "stopped", finished: "finished", empty: "no steps yet" };
const address = (name) => `/api/run/${encodeURIComponent(name)}`;
const sparse = (column) => column === "valid_accuracy" || column === "fid";

function series(curves, [column, name], ink) {
  return { name, x: curves.epoch, y: curves[column], ink, raw: !sparse(column) && column !== "lr", marks: sparse(column) };
}

// ---- one run

class OneRun {
  constructor() {
    this.charts = CHARTS.map((c) => new Chart($("run-charts"), c.title, "epoch"));
    $("samples-slider").addEventListener("input", () => this.showSample(+$("samples-slider").value, true));
    $("samples-back").addEventListener("click", () => this.showSample(this.sample - 1, true));
    $("samples-next").addEventListener("click", () => this.showSample(this.sample + 1, true));
    $("settings-filter").addEventListener("input", () => this.showSettings());
    $("stop").addEventListener("click", () => {
      $("stop-question").textContent = `Stop ${this.run.name}? It saves a checkpoint first, so training can be resumed.`;
      $("stop-dialog").returnValue = "no";
      $("stop-dialog").showModal();
    });
    $("stop-dialog").addEventListener("close", () => $("stop-dialog").returnValue === "stop" && this.stop());
  }

  open(name) {
    if (this.name === name) return;
    this.name = name;
    this.run = null;
    this.sample = null;
    this.pinned = false;
    $("stop").disabled = false;
    $("run-title").textContent = name;
  }

  async update() {
    const name = this.name;
    try {
      const run = await ask(address(name));
      if (name === this.name) this.draw(run);
    } catch (e) {
      show($("run-alert"), e.message);
    }
  }

  async stop() {
    $("stop").disabled = true;
    try {
      await ask(`${address(this.name)}/stop`, { method: "POST" });
      $("run-state").textContent = "saving and stopping";
    } catch (e) {
      show($("run-alert"), e.message);
      $("stop").disabled = false;
    }
  }

  draw(run) {
    this.run = run;
    const training = run.state === "training";
    if (!training || !$("stop").disabled) $("run-state").textContent = STATES[run.state];
    $("run-state").className = `badge ${run.state}`;
    $("stop").hidden = !training;
    if (!training) $("stop").disabled = false;
    show($("run-alert"), run.error);
    const share = run.steps_total ? run.step / run.steps_total : run.seconds_left != null ? run.seconds / (run.seconds + run.seconds_left) : null;
    $("run-progress").hidden = share == null;
    if (share != null) $("run-progress").value = Math.min(1, share);
    this.showFacts(run);
    const marks = run.divergence_list.map((d) => d.epoch);
    const xRange = [0, run.epoch || 1];
    CHARTS.forEach((c, i) => this.charts[i].draw(c.columns.map((k, ink) => series(run.curves, k, ink)), marks, { ...c, xRange }));
    this.showSamples();
    this.showSettings();
    this.showMessages();
  }

  showFacts(run) {
    const facts = [
      ["Epoch", run.epochs ? `${short(+run.epoch?.toPrecision(3))} of ${short(run.epochs)}` : short(run.epoch)],
      ["Step", run.step == null ? "–" : run.step.toLocaleString("en")],
      ["Time left", run.state === "training" ? time(run.seconds_left) : null],
      ["Time so far", time(run.seconds)],
      ["Speed", run.steps_per_second && run.state === "training" ? `${short(+run.steps_per_second.toPrecision(3))} steps/s` : null],
      ["Validation", percent(run.valid_accuracy)],
      ["Best validation", percent(run.best_valid_accuracy)],
      ["Test accuracy", run.test_accuracy == null ? null : percent(run.test_accuracy, 2)],
      ["Calibration error", run.test_ece == null ? null : percent(run.test_ece, 2)],
      ["Divergences", String(run.divergences)],
    ];
    $("run-facts").replaceChildren(...facts.filter(([, v]) => v != null)
      .map(([k, v]) => make("div", {}, make("dt", {}, k), make("dd", {}, v))));
  }

  showSamples() {
    const n = this.run.samples.length;
    $("samples").hidden = !n;
    if (!n) return;
    $("samples-slider").max = n - 1;
    this.showSample(this.pinned ? this.sample : n - 1);
  }

  // Follows the newest until someone chooses another.
  showSample(i, chosen) {
    const steps = this.run.samples, last = steps.length - 1;
    this.sample = Math.min(last, Math.max(0, i));
    if (chosen) this.pinned = this.sample < last;
    const step = steps[this.sample], epoch = this.epochOf(step), image = $("samples-image");
    $("samples-slider").value = this.sample;
    $("samples-slider").setAttribute("aria-valuetext", `epoch ${epoch}`);
    $("samples-label").textContent = `epoch ${epoch}`;
    $("samples-back").disabled = this.sample === 0;
    $("samples-next").disabled = this.sample === last;
    const src = `${address(this.name)}/sample/${step}`;
    if (image.getAttribute("src") !== src) image.src = src;
    image.alt = `Samples of the replay buffer after epoch ${epoch}, step ${step}`;
  }

  epochOf(step) {
    const { epoch, step: at } = this.run.curves, last = at.length - 1;
    if (last < 0 || !(at[last] + 1)) return step;
    return short(+(epoch[last] * step / (at[last] + 1)).toPrecision(3));
  }

  showSettings() {
    const word = $("settings-filter").value.toLowerCase(), record = this.run.record || {};
    const all = [...Object.entries(record), ...Object.entries(this.run.options || {})]
      .filter(([k, v]) => `${k} ${v}`.toLowerCase().includes(word) && v !== "");
    const text = JSON.stringify(all);
    if (text === this.settings) return;
    this.settings = text;
    $("settings").querySelector("tbody").replaceChildren(...all.map(([k, v]) =>
      make("tr", {}, make("th", { scope: "row" }, k), make("td", {}, String(v)))));
  }

  showMessages() {
    const list = $("messages"), all = this.run.messages, key = `${this.name} ${all.length} ${all.at(-1)?.time}`;
    if (key === this.messages) return;
    this.messages = key;
    const atEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - 8;
    list.replaceChildren(...(all.length ? all : [{ message: "none" }]).map((m) => {
      const clock = m.time ? [make("time", { datetime: m.time }, new Date(m.time).toLocaleTimeString())] : [];
      return make("li", { class: m.message.startsWith("diverged") && "divergence" }, ...clock, m.message);
    }));
    if (atEnd) list.scrollTop = list.scrollHeight;
  }
}

// ---- several runs

class AllRuns {
  constructor() {
    this.charts = CHARTS.map((c) => new Chart($("runs-charts"), c.title, "epoch"));
    this.known = new Map();                         // name -> { ink, shown, version, curves, its row and cells }
    this.next = 0;
  }

  // Rows stay, and only their texts change: a control keeps the focus, and a click meets what it was aimed at.
  list(runs) {
    $("no-runs").hidden = runs.length > 0;
    $("runs-box").hidden = !runs.length;
    for (const r of runs)
      if (!this.known.has(r.name)) this.known.set(r.name, this.row(r.name, this.next++));
    for (const [name, k] of this.known)
      if (!runs.some((r) => r.name === name)) { k.row.remove(); this.known.delete(name); }
    const body = $("runs-table").querySelector("tbody");
    runs.forEach((r, i) => {
      const k = this.known.get(r.name);
      if (body.children[i] !== k.row) body.insertBefore(k.row, body.children[i] || null);
      this.fill(k, r);
    });
  }

  row(name, ink) {
    const box = make("input", { type: "checkbox", "aria-label": `Show the curves of ${name}` });
    const k = { ink, shown: ink < 8, state: make("span"), epoch: make("td"), valid: make("td", { class: "number" }),
      left: make("td", { class: "number" }) };
    box.checked = k.shown;
    box.addEventListener("change", () => { k.shown = box.checked; this.update(); });
    k.row = make("tr", {}, make("td", {}, box),
      make("th", { scope: "row" }, make("a", { href: `#/run/${encodeURIComponent(name)}` }, name)),
      make("td", {}, k.state), k.epoch, k.valid, k.left);
    return k;
  }

  fill(k, r) {
    k.state.className = `badge ${r.state}`;
    k.state.textContent = STATES[r.state];
    k.epoch.textContent = r.epoch == null ? "–" : r.epochs ? `${short(+r.epoch.toPrecision(3))} of ${short(r.epochs)}` : short(r.epoch);
    k.valid.textContent = percent(r.best_valid_accuracy);
    k.left.textContent = r.state === "training" ? time(r.seconds_left) : "–";
  }

  // versions: of the runs as they are now; curves that did not change are not asked for again.
  async update(runs) {
    if (runs) this.runs = runs;
    const shown = (this.runs || []).filter((r) => this.known.get(r.name)?.shown);
    await Promise.all(shown.map(async (r) => {
      const k = this.known.get(r.name);
      if (k.version === r.version) return;
      try {
        k.curves = (await ask(address(r.name))).curves;
        k.version = r.version;
      } catch { /* the list says what is wrong with it */ }
    }));
    const ready = shown.map((r) => [r.name, this.known.get(r.name)]).filter(([, k]) => k?.curves);
    const xRange = [0, Math.max(...shown.map((r) => r.epoch || 0)) || 1];
    CHARTS.forEach((c, i) => {
      this.charts[i].title = c.together?.[1] || c.title;
      this.charts[i].draw(ready.map(([name, k]) => series(k.curves, [c.together?.[0] || c.columns[0][0], name], k.ink)), [], { ...c, xRange });
    });
  }
}

// ---- what the events say

export class Runs {
  constructor(changed) {
    this.one = new OneRun();
    this.all = new AllRuns();
    this.runs = [];
    this.known = false;
    this.changed = changed;                         // called when the list of runs is known, or differs
    this.listen();
    document.addEventListener("visibilitychange", () => document.hidden || this.refresh());
  }

  listen() {
    const events = new EventSource("/api/events");
    events.onopen = () => { $("link").textContent = "live"; };
    events.onerror = () => { $("link").textContent = "not connected; trying again"; };
    events.addEventListener("runs", (e) => {
      const all = JSON.parse(e.data);
      this.runs = all.runs;
      this.folder = all.kind === "folder";
      show($("left-out"), all.left_out && `Older runs that are not shown: ${all.left_out}.`);
      this.known = true;
      this.changed();
      this.refresh();
    });
    events.addEventListener("run", (e) => {
      const run = JSON.parse(e.data), i = this.runs.findIndex((r) => r.name === run.name);
      const model = i < 0 || this.runs[i].model !== run.model;
      if (i < 0) this.runs.push(run);
      else this.runs[i] = run;
      if (model) this.changed();
      if (this.view === "runs" || this.view === run.name) this.refresh();
    });
  }

  // view: "runs", or the name of a run in `name`
  open(view, name) {
    this.view = name ?? view;
    this.single = name != null;
    if (this.single) this.one.open(name);
    this.refresh();
  }

  close() { this.view = null; }

  // At most one request at a time; nothing while nobody looks.
  async refresh() {
    if (this.view == null || document.hidden) return;
    if (this.busy) { this.again = true; return; }
    this.busy = true;
    if (this.single) await this.one.update();
    else { this.all.list(this.runs); await this.all.update(this.runs); }
    this.busy = false;
    if (this.again) { this.again = false; setTimeout(() => this.refresh(), 250); }
  }
}
