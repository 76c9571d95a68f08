// api.js - requests to the server, and small helpers for the document.

export class Refused extends Error {}

// The JSON answer; a refusal is an error with the server's own sentence.
export async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Refused("The server does not answer. Is jempp serve still running?");
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(body.error || `The server answered ${answer.status}.`);
  return body;
}

// POST whose answer is a stream of events: calls seen(name, object) for each.
export async function stream(path, body, signal, seen) {
  const answer = await fetch(path, {
    method: "POST", body: JSON.stringify(body), signal, headers: { Accept: "text/event-stream" },
  });
  if (!answer.ok) throw new Refused((await answer.json()).error);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const part = text.slice(0, end).match(/^event: (.*)\ndata: (.*)$/s);
      if (part) seen(part[1], JSON.parse(part[2]));
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
