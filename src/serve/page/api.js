// api.js - requests to the server, and small helpers for the document.

export class Refused extends Error {                // status: of the answer, undefined where there is none
  constructor(text, status) {
    super(text);
    this.status = status;
  }
}

const unless_aborted = (text) => (e) => { throw e.name === "AbortError" ? e : new Refused(text); };

// The answer; a refusal is an error with the server's own sentence.
async function request(path, options) {
  const answer = await fetch(path, options)
    .catch(unless_aborted("The server does not answer. Is jempp serve still running?"));
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  throw new Refused(body.error || `The server answered ${answer.status}.`, answer.status);
}

export async function ask(path, options = {}) {
  return (await request(path, options)).json().catch(unless_aborted("The connection was lost."));
}

// POST whose answer is a stream of events: calls seen(name, object) for each, of which the last is "done" or "error".
export async function stream(path, body, signal, seen) {
  const answer = await request(path, {
    method: "POST", body: JSON.stringify(body), signal, headers: { Accept: "text/event-stream" },
  });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "", last = "";
  for (;;) {
    const { value, done } = await reader.read().catch(unless_aborted("The connection was lost."));
    if (done && last !== "done" && last !== "error") throw new Refused("The connection was lost.");
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const part = text.slice(0, end).match(/^event: (.*)\ndata: (.*)$/s);
      if (part) seen(last = part[1], JSON.parse(part[2]));
    }
  }
}

export const $ = (id) => document.getElementById(id);

export function make(name, attributes = {}, ...inside) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) if (v != null && v !== false) e.setAttribute(k, v);
  e.append(...inside);
  return e;
}

export function show(element, text) {               // a sentence, or nothing
  element.textContent = text || "";
  element.hidden = !text;
}

// A probability, which is never shown as 0 or 100 % but where it is.
export const probability = (p) => (p < 1 && p >= 0.9995 ? "> 99.9 %" : p > 0 && p < 0.0005 ? "< 0.1 %" : percent(p));
export const percent = (v, digits = 1) => (v == null ? "–" : `${(100 * v).toFixed(digits)} %`);

export function time(seconds) {
  if (seconds == null) return "–";
  const s = Math.round(seconds), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  if (d) return `${d} d ${h % 24} h`;
  if (h) return `${h} h ${String(m % 60).padStart(2, "0")} min`;
  return m ? `${m} min ${String(s % 60).padStart(2, "0")} s` : `${s} s`;
}

export function short(v) {
  if (v == null) return "–";
  const a = Math.abs(v);
  if (a && (a < 1e-3 || a >= 1e5)) return v.toExponential(1);
  return String(+v.toPrecision(4));
}
