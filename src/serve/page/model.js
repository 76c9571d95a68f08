// model.js - a model to try: pictures, sliders, chains.
import { $, ask, make, percent, probability, Refused, short, show, stream } from "./api.js";
import { Chart, Density } from "./chart.js";

export class Model {
  constructor() {
    this.density = new Density($("density"));
    this.climb = new Chart($("draw-chart"), "Mean log p(x)", "step");
    this.frames = [];
    $("file").addEventListener("change", () => $("file").files[0] && this.take($("file").files[0]));
    const drop = $("drop");
    for (const type of ["dragenter", "dragover"])
      drop.addEventListener(type, (e) => { e.preventDefault(); drop.classList.add("over"); });
    for (const type of ["dragleave", "drop"]) drop.addEventListener(type, () => drop.classList.remove("over"));
    addEventListener("dragover", (e) => e.preventDefault());
    addEventListener("drop", (e) => { e.preventDefault(); this.given(e.dataTransfer); });
    addEventListener("paste", (e) => this.given(e.clipboardData));
    for (const id of ["noise", "rotate"]) $(id).addEventListener("input", () => this.predict());
    $("reset").addEventListener("click", () => { $("noise").value = $("rotate").value = 0; this.predict(); });
    $("draw-form").addEventListener("submit", (e) => { e.preventDefault(); this.draw(); });
    $("draw-stop").addEventListener("click", () => this.abort?.abort());
    $("draw-slider").addEventListener("input", () => { this.following = false; this.showFrame(+$("draw-slider").value); });
    $("model-select").addEventListener("change", () => { location.hash = `#/model/${encodeURIComponent($("model-select").value)}`; });
  }

  // runs: those that have a model to choose from; name: of the one that is shown, "" for the default
  async open(name, runs) {
    this.opened = true;
    $("model-pick").hidden = runs.length < 2;
    $("model-select").replaceChildren(...runs.map((r) => make("option", { value: r.name }, r.name)));
    const same = this.name === name && this.about;
    $("model-select").value = name || (same && this.about.name) || "";
    if (same) return;
    this.name = name;
    this.about = null;
    try {
      const about = await ask(`/api/model${this.query()}`);
      if (this.name !== name) return;                           // another one was chosen meanwhile
      this.about = about;
      this.introduce();
      show($("model-alert"), "");
      if (this.picture) this.predict();
    } catch (e) {
      if (this.name !== name) return;
      show($("model-alert"), e.message);
      $("model-body").hidden = $("draw").hidden = true;
    }
  }

  close() { this.opened = false; }

  // Of a folder, the newest model may be another one by now: what was introduced is what is asked.
  query(more = {}) {
    const q = new URLSearchParams(more), name = this.name || this.about?.name;
    if (name) q.set("model", name);
    return q.size ? `?${q}` : "";
  }

  introduce() {
    const m = this.about;
    $("model-title").textContent = $("model-pick").hidden ? m.name : "Model";
    $("model-facts").textContent = `${m.network}, ${(m.parameters / 1e6).toFixed(2)} million parameters, ${m.classes.length} classes` +
      `${m.data ? `, trained on ${m.data}` : ""}; ${m.device}`;
    $("model-body").hidden = false;
    $("draw").hidden = !m.samples;
    if (!this.name) $("model-select").value = m.name;
    $("draw-class").replaceChildren(make("option", { value: "" }, "any"), ...m.classes.map((c) => make("option", { value: c }, c)));
  }

  // ---- pictures

  given(data) {
    const file = this.opened && [...(data?.files || [])][0];
    if (file) this.take(file);
  }

  take(file) {
    this.picture = file;
    URL.revokeObjectURL($("preview").src);
    $("preview").src = URL.createObjectURL(file);
    $("noise").value = $("rotate").value = 0;
    $("file").value = "";
    this.predict();
  }

  // While one answer is awaited, the newest position of the sliders waits, and no other.
  async predict() {
    const noise = +$("noise").value, rotate = +$("rotate").value;
    $("noise-value").textContent = percent(noise, 0);
    $("rotate-value").textContent = `${rotate}°`;
    if (!this.picture || !this.about) return;
    if (this.asking) { this.newer = true; return; }
    this.asking = true;
    try {
      if (this.picture.size > this.about.max_upload)
        throw new Refused(`too large: at most ${this.about.max_upload >> 20} MiB are accepted`, 413);
      const answer = await ask(`/api/predict${this.query({ noise, rotate })}`, { method: "POST", body: this.picture });
      this.showAnswer(answer);
      show($("picture-alert"), "");
    } catch (e) {
      const fault = e.status === 422 || e.status === 413, why = e.message.replace(/^the picture: /, "");
      show($("picture-alert"), fault ? `This picture cannot be used: ${why}` : why);
      if (fault) $("result").hidden = $("sliders").hidden = $("previews").hidden = true;
    }
    this.asking = false;
    if (this.newer) { this.newer = false; this.predict(); }
  }

  showAnswer(a) {
    $("result").hidden = $("sliders").hidden = $("previews").hidden = false;
    $("input").src = a.input;
    $("words").textContent = a.words;
    $("words").className = a.known == null || (a.known && a.p < 0.5) ? "" : a.known ? "known" : "unknown";
    const most = 12, order = a.probabilities.map((p, i) => [p, i]);
    if (order.length > most) order.sort((x, y) => y[0] - x[0]);
    const top = Math.max(...a.probabilities);
    $("bars").replaceChildren(...order.slice(0, most).map(([p, i]) => {
      const fill = make("div", { class: "fill" });
      fill.style.transform = `scaleX(${p})`;
      return make("div", { class: p === top ? "bar top" : "bar", role: "listitem" }, make("span", { class: "name" }, this.about.classes[i]),
        make("div", { class: "track", "aria-hidden": "true" }, fill), make("span", { class: "number" }, probability(p)));
    }));
    this.density.draw(this.about.percentiles, this.about.threshold, a.log_px);
  }

  // ---- chains

  async draw() {
    this.abort?.abort();
    const abort = this.abort = new AbortController();
    this.frames = [];
    this.following = true;
    show($("draw-alert"), "");
    $("draw-stop").hidden = false;
    $("draw-start").disabled = true;
    $("draw-status").textContent = "Waiting for other requests.";
    const ask_for = this.asked = { count: +$("draw-count").value, seed: Math.floor(Math.random() * 1e9) };
    if ($("draw-class").value) ask_for.class = $("draw-class").value;
    try {
      await stream(`/api/sample${this.query()}`, ask_for, abort.signal, (name, e) => this.event(name, e));
    } catch (e) {
      $("draw-status").textContent = e.name === "AbortError" ? "Stopped." : "";
      if (e.name !== "AbortError") show($("draw-alert"), e.message);
    }
    if (this.abort !== abort) return;
    $("draw-stop").hidden = true;
    $("draw-start").disabled = false;
  }

  event(name, e) {
    if (name === "queued") $("draw-status").textContent = e.ahead ? `Waiting for ${e.ahead} other request${e.ahead === 1 ? "" : "s"}.` : "Starting.";
    if (name === "fitting") {
      $("draw-status").textContent = `Fitting the length of steps to this model: step ${e.step + 1} of 40.`;
      $("draw-body").hidden = false;
      $("draw-image").src = e.image;
    }
    if (name === "error") { show($("draw-alert"), e.error); $("draw-status").textContent = ""; }
    if (name === "done") {
      const fewer = e.count < this.asked.count;
      $("draw-status").textContent = `${e.count} image${e.count === 1 ? "" : "s"} in ${e.steps} step${e.steps === 1 ? "" : "s"}.` + (!fewer ? "" :
        this.asked.class ? " A batch of this model has no more of one class." : " This model draws no more at a time.");
    }
    if (name === "frame") {
      this.frames.push(e);
      $("draw-body").hidden = false;
      $("draw-status").textContent = `Step ${e.step} of ${e.steps}.`;
      $("draw-slider").max = this.frames.length - 1;
      const mean = this.frames.map((f) => f.log_px.reduce((a, b) => a + b, 0) / f.log_px.length);
      this.climb.draw([{ name: "log p(x)", x: this.frames.map((f) => f.step), y: mean, ink: 0 }], [], { xRange: [0, e.steps || 1] });
      if (this.following) this.showFrame(this.frames.length - 1);
    }
  }

  showFrame(i) {
    const f = this.frames[i];
    if (!f) return;
    $("draw-slider").value = i;
    $("draw-step").textContent = `${f.step} of ${f.steps}`;
    $("draw-image").src = f.image;
    $("draw-image").alt = `${f.class.length} samples after step ${f.step}: ${[...new Set(f.class.filter(Boolean))].join(", ")}`;
  }
}
