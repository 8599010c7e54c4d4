// Elements from plain values. Nothing here, and nothing anywhere in the page, makes markup out of a text.

// An element. An attribute whose value is a function is a listener, such as ``onclick``.
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("aria-")) node.setAttribute(name, String(value));
    else if (value === false) continue;
    else if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// A list of names, each with a description.
export const terms = (attributes, pairs) =>
  el("dl", attributes, ...pairs.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));

// A table with a row of headings.
export const table = (head, rows) =>
  el(
    "table",
    {},
    el("thead", {}, el("tr", {}, ...head)),
    el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells))),
  );

// Replace the children of a node. If one of them had the keyboard focus, the focus moves to the new child with the same
// label, or else to the child at the same place, or else to the node.
export function refill(node, ...children) {
  const before =
    node.contains(document.activeElement) && node !== document.activeElement ? document.activeElement : null;
  const place = before ? focusable(node).indexOf(before) : -1;
  node.replaceChildren(...children);
  if (!before) return;
  const after = focusable(node);
  const same = after.find((child) => labelOf(child) === labelOf(before));
  (same ?? after[Math.min(place, after.length - 1)] ?? node).focus({ preventScroll: true });
}

// Whether a pressed key belongs to an input field. Such a key is not a shortcut.
export const isTyped = ({ target }) =>
  target instanceof HTMLElement &&
  (target.isContentEditable || target.matches("textarea, select, input:not([type=range])"));

// The elements of a node that can have the keyboard focus, in order.
const focusable = (node) => Array.from(node.querySelectorAll("button, a[href], input, textarea, [tabindex]"));

// What a screen reader says of an element: the label, or else the text.
const labelOf = (node) => node.getAttribute("aria-label") ?? node.textContent;

// Whether the window is so narrow that the page scrolls as a whole, and not its parts.
export const phone = matchMedia("(max-width: 620px)");

// The visible part of a long list. The list scrolls by itself. On a phone, it scrolls with the page.
export class Sight {
  constructor(node, inner, draw) {
    this.node = node;
    this.inner = inner;
    node.addEventListener("scroll", draw, { passive: true });
    addEventListener("scroll", () => phone.matches && draw(), { passive: true });
    phone.addEventListener("change", draw);
    new ResizeObserver(draw).observe(node);
  }

  get top() {
    return phone.matches ? Math.max(0, -this.inner.getBoundingClientRect().top) : this.node.scrollTop;
  }

  get height() {
    return phone.matches ? innerHeight : this.node.clientHeight;
  }

  set top(top) {
    if (phone.matches) scrollTo(0, scrollY + this.inner.getBoundingClientRect().top + top - ABOVE);
    else this.node.scrollTop = top;
  }
}

const ABOVE = 48; // The height in pixels of the bar at the top of the page.

// Words that begin with a capital letter.
export const sentence = (words) => words.charAt(0).toUpperCase() + words.slice(1);

// A badge that says whether the page is connected to the server.
export class Live {
  constructor() {
    this.node = el("span", { class: "live", role: "status" });
    this.set(true);
  }

  set(connected, why = "The server does not answer. The page tries again.") {
    const words = connected ? "live" : "not live";
    this.node.classList.toggle("lost", !connected);
    this.node.title = connected ? "New events are shown as they come" : why;
    if (this.node.textContent !== words) this.node.textContent = words;
  }
}

// An element with a text of a history. The text has its own direction, and control characters are visible.
export function said(text, tag = "span", attributes = {}) {
  const node = el(tag, { dir: "auto", ...attributes });
  let start = 0;
  for (const found of text.matchAll(STEERING)) {
    node.append(text.slice(start, found.index), el("span", { class: "steering" }, escaped(found[0])));
    start = found.index + found[0].length;
  }
  node.append(text.slice(start));
  node.classList.add("said");
  return node;
}

// A text whose control characters are visible.
export const printable = (text) => text.replace(STEERING, escaped);

// The parts of a text, with marks around the given places. Of two places that overlap, only the first is marked.
export function withMarks(text, places, start = 0) {
  const parts = [];
  for (const [from, to] of places) {
    if (from < start) continue;
    parts.push(printable(text.slice(start, from)), el("mark", {}, printable(text.slice(from, to))));
    start = to;
  }
  return [...parts, printable(text.slice(start))];
}

// The first place of an ordered list for which ``isPast`` is true. If there is none, the length of the list.
export function firstPlace(length, isPast) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isPast(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

// A value that the browser stores for this page. Return null if there is no value, or if the browser stores nothing.
/** @param {"sessionStorage" | "localStorage"} storage */
export function kept(storage, name) {
  try {
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}

// Let the browser store a value for this page. Return whether it did.
/** @param {"sessionStorage" | "localStorage"} storage */
export function keep(storage, name, value) {
  try {
    window[storage].setItem(name, value);
    return true;
  } catch {
    return false; // It stores nothing for this page, or too much.
  }
}

// What the server answers to a request, as JSON. An error has the ``status`` of the answer. The answer of a proxy
// before the server may be no JSON.
export async function ask(path, options = {}) {
  const reply = await fetch(`api/${path}`, { credentials: "same-origin", ...options });
  if (reply.ok) return reply.json();
  const { error } = await reply.json().catch(() => ({}));
  const words = error ?? `The server answered ${reply.status} ${reply.statusText}`;
  throw Object.assign(new Error(words), { status: reply.status });
}

// Characters that control a terminal, change the direction of text, or are not visible.
const STEERING =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff]|\p{Cs}|[\u{e0000}-\u{e007f}]/gu;

// A character as its escape in JavaScript.
function escaped(character) {
  const code = character.codePointAt(0);
  const digits = code.toString(16);
  if (code < 0x100) return `\\x${digits.padStart(2, "0")}`;
  return code > 0xffff ? `\\u{${digits}}` : `\\u${digits.padStart(4, "0")}`;
}

// A number with commas.
export const grouped = new Intl.NumberFormat("en-US").format;

// A number with its noun: "1 event", "12 events".
export const count = (number, one, many = `${one}s`) => `${grouped(number)} ${number === 1 ? one : many}`;

const UNITS = /** @type {[number, string][]} */ ([
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
]);

// 84, 1.6k, 27k, 1.2M: a number in few characters.
export function short(number) {
  const size = Math.abs(number);
  if (size < 1000) return String(Math.round(number));
  const [unit, sign] = UNITS.find(([unit]) => size >= unit - unit / 2000); // what is rounded up has the next unit
  const scaled = number / unit;
  return `${Math.abs(scaled) < 9.95 ? scaled.toFixed(1) : Math.round(scaled)}${sign}`;
}

// A number of tokens, rounded as ``short`` rounds it.
export const tokenCount = (number) => `${short(number)} ${number === 1 ? "token" : "tokens"}`;

// What "saved" means, for all places that show saved tokens.
export const savingMeans = (countedAs) =>
  `the tokens of the View before each condensation minus the tokens after it, ${countedAs === null ? "estimated event by event (≈)" : `counted as ${printable(countedAs)} does`}`;

// "19 events and 1 summary", or in a narrow place "19 + 1".
export const eventsAndSummaries = (events, summaries) =>
  [events || !summaries ? count(events, "event") : "", summaries ? count(summaries, "summary", "summaries") : ""]
    .filter(Boolean)
    .join(" and ");

export const plus = (events, summaries) => (summaries ? `${grouped(events)} + ${grouped(summaries)}` : grouped(events));

// The cost of model calls. It begins with ≈ if prices come from a table.
export function costWords(spent) {
  if (!spent || spent.cost === null) return "unknown";
  return `${spent.costs_estimated ? "≈ " : ""}${money(spent.cost)}`;
}

// A cost. A very small cost has two significant digits.
export function money(cost) {
  if (cost >= 1) return `$${cost.toFixed(2)}`;
  const isTiny = cost > 0 && cost < 0.0001;
  return `$${cost.toFixed(isTiny ? Math.min(12, 1 - Math.floor(Math.log10(cost))) : 4)}`;
}

// The id of an event, or ``S269`` for the summary of condensation 269.
export const idOf = (id) => (id < 0 ? `S${grouped(-id - 2)}` : grouped(id));

// A duration: 0.6 s, 42 s, 9 m 50 s, 1 h 04 m, 3 d 4 h.
export function duration(milliseconds) {
  const seconds = Math.round(milliseconds / 1000);
  const two = (number) => String(number).padStart(2, "0");
  if (milliseconds < 9950) return `${(milliseconds / 1000).toFixed(1)} s`;
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${two(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${two(Math.floor((seconds % 3600) / 60))} m`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

// The whole number in a text, with or without commas. If the text has no whole number, NaN.
export const numberIn = (text) => (/^\d[\d,]*$/.test(text.trim()) ? Number(text.replaceAll(",", "")) : NaN);

// The words of a search, and the phrases "in quotes", split as the server splits them. An event must contain all of
// them.
export const wanted = (text) =>
  Array.from(text.toLowerCase().matchAll(/"([^"]*)"|(\S+)/g), ([, quoted, word]) => quoted ?? word).filter((found) =>
    found.trim(),
  );

// The day and the time to the second: "2026-02-17 09:14:05 UTC". The text is empty for an unknown time.
export function moment(milliseconds, zone) {
  if (milliseconds === null || !Number.isFinite(milliseconds) || Math.abs(milliseconds) > 8.64e15) return "";
  const text = new Date(milliseconds).toISOString().replace(/^\+00/, "");
  return `${text.slice(0, 10)} ${text.slice(11, 19)}${zone === "UTC" ? " UTC" : ""}`;
}

export const DAY = 86_400_000; // milliseconds
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

// The day and the minute, short: ["17 Feb", "09:14"].
export function dayAndClock(milliseconds) {
  const text = moment(milliseconds, "");
  return [`${Number(text.slice(8, 10))} ${MONTHS[Number(text.slice(5, 7)) - 1]}`, text.slice(11, 16)];
}

// The same, with the year if it is not this year: ["17 Feb 2025", "09:14"].
export function dated(milliseconds) {
  const [day, clock] = dayAndClock(milliseconds);
  const year = moment(milliseconds, "").slice(0, 4);
  return [year && year !== String(new Date().getFullYear()) ? `${day} ${year}` : day, clock];
}
