// main.js - which part of the page is shown: #/runs, #/run/NAME, #/model, #/model/NAME.
import { $ } from "./api.js";
import { Model } from "./model.js";
import { Runs } from "./runs.js";

const model = new Model(), runs = new Runs(() => route());
let shown = "";

function view(name) {
  for (const id of ["runs", "run", "model", "lost"]) $(id).hidden = id !== name;
  for (const [tab, on] of [["tab-runs", name === "runs" || name === "run"], ["tab-model", name === "model"]]) {
    if (on) $(tab).setAttribute("aria-current", "page");
    else $(tab).removeAttribute("aria-current");
  }
}

// A server of one run or of a model alone begins with that.
function start() {
  if (!runs.runs.length && !runs.folder) return "#/model";
  return runs.runs.length === 1 ? `#/run/${encodeURIComponent(runs.runs[0].name)}` : "#/runs";
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function route() {
  if (!runs.known) return;
  const [, what = "", coded = ""] = location.hash.split("/"), name = decoded(coded);
  if (!what || (what === "runs" && runs.runs.length === 1 && shown !== "runs")) {
    location.replace(start());
    return;
  }
  const known = ["runs", "run", "model"].includes(what) && !(what === "run" && !runs.runs.some((r) => r.name === name));
  view(known ? what : "lost");
  $("tab-runs").hidden = !runs.runs.length && what === "model";
  document.title = `${name || { runs: "Runs", model: "Model" }[what] || ""} – jempp`;
  $("lost-text").textContent = what === "run" ? `There is no run “${name}”. It may have been removed.` : "";
  if (what === "model") model.open(name, runs.runs.filter((r) => r.model));
  else model.close();
  if (known && what !== "model") runs.open(what, what === "run" ? name : null);
  else runs.close();
  if (shown && shown !== location.hash) $("main").focus({ preventScroll: true });
  shown = location.hash;
}

addEventListener("hashchange", route);
