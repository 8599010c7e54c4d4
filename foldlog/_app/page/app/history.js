// A history, made from the lifetimes of its events: what the View of each version shows, and the state of each event.

import { count } from "./dom.js";

// The groups of kinds that have a colour.
export const GROUPS = ["system", "user", "summary", "agent", "observation", "error", "other"];

// The place in ``GROUPS`` of each kind that has a group.
const GROUP_OF = {
  system: 0,
  user: 1,
  summary: 2,
  agent: 3,
  action: 3,
  observation: 4,
  refused: 4,
  environment: 4,
  error: 5,
  damaged: 5,
};

export class History {
  // These fields are copied from the document.
  title;
  format;
  unshown;
  limit;
  window;
  window_of;
  zone;
  masks;
  order;
  summaries;
  borders;
  tokens_are;
  counted_as;
  redactions;
  attributes;
  models;

  constructor(document) {
    this.conversation = document.conversation;
    this.kinds = document.kinds;
    this.version = 0;
    this.columns = { kind: [], tokens: [], time: [], left: [], by: [], sent: [], answers: [] };
    this.spans = new Map();
    this.prompts = [];
    this.add(document);
  }

  // Add the events of a document: all events, or the events since the present version.
  add(document) {
    const start = document.since;
    if (start === 0) this.spans.clear();
    const given = document.events;
    let at = 0;
    const times = given.time.map((step) => (step === null ? null : (at += step)));
    for (const [name, column] of Object.entries(this.columns)) {
      const values = name === "time" ? times : given[name];
      column.length = start;
      for (const value of values) column.push(value);
    }
    this.prompts = [...this.prompts.filter(([id]) => id < start), ...document.prompts];
    for (const [id, spans] of document.spans) this.spans.set(id, spans.map(asSpan));
    for (const name of [
      "title",
      "format",
      "limit",
      "window",
      "window_of",
      "zone",
      "masks",
      "order",
      "summaries",
      "borders",
      "tokens_are",
      "counted_as",
      "redactions",
      "attributes",
      "models",
    ]) {
      this[name] = document[name];
    }
    if (this.window && (!this.window_of || !this.limit)) this.limit = this.window;
    this.unshown =
      this.format !== "foldlog"
        ? `it was not shown to the agent in the ${this.format} history from which it was imported`
        : "its writer marked it as not shown";
    this.version = document.version;
    this.counted = document.events_counted;
    this.changes = new Map(document.changes.map((change) => [change.id, change]));
    this.taking = document.changes.filter((change) => change.kind !== "request"); // they remove events from the View
    this.condensations = document.changes.filter((change) => change.kind === "condensation");
    // without those that an import took back
    this.standing = this.condensations.filter((change) => "tokens_saved" in change);
    this.made = this.standing.filter((change) => change.outcome !== "declined");
    this.summaryOf = new Map();
    for (const summary of this.summaries) {
      this.spans.set(summary.id, summary.spans.map(asSpan));
      this.summaryOf.set(summary.id, summary);
    }
    this.answered = new Map();
    this.columns.answers.forEach((action, id) => action >= 0 && this.answered.set(action, id));
    this.views = new Map();
    this.tallies = new Map();
    this.estimated = new Set(document.tokens_estimated);
    this.setFates();
    this.setOrder();
    this.setMasks();
    this.setDepartures();
    this.setSizes();
  }

  // The last call without a result.
  get openCall() {
    let id = this.version - 1;
    while (id >= 0 && (this.kind(id) !== "action" || this.answered.has(id))) id -= 1;
    return id < 0 ? undefined : id;
  }

  // The sign before a number of tokens. It is empty if a tokenizer counted the tokens.
  get about() {
    return this.tokens_are === "counted" ? "" : "≈\u00a0";
  }

  aboutOf(id) {
    return this.estimated.has(id) ? "≈\u00a0" : this.about;
  }

  // The id under which an event or a summary was appended. For a summary, it is the id of its condensation.
  came(id) {
    return id >= 0 ? id : -id - 2;
  }

  // Whether no View ever shows an event, such as the work of a sub-agent.
  isUnshown(id) {
    return id >= 0 && this.columns.left[id] === -1 && !this.spans.has(id);
  }

  kind(id) {
    return id < 0 ? "summary" : this.kinds[this.columns.kind[id]];
  }

  group(id) {
    return GROUP_OF[this.kind(id)] ?? GROUPS.length - 1;
  }

  // Whether the agent wrote an event: a text or a call.
  isOfAgent(id) {
    return this.group(id) === AGENT;
  }

  tokens(id) {
    return id < 0 ? (this.summaryOf.get(id)?.tokens ?? 0) : this.columns.tokens[id];
  }

  time(id) {
    return this.columns.time[this.came(id)] ?? null;
  }

  // The time of the last event up to a version that has a time.
  timeAt(version) {
    let id = version - 1;
    while (id > 0 && this.time(id) === null) id -= 1;
    return this.time(Math.max(0, id));
  }

  spansOf(id) {
    const known = this.spans.get(id);
    if (known) return known;
    const left = this.columns.left[id];
    if (left === undefined || left < 0) return NONE;
    const sent = this.columns.sent[id];
    return [
      { start: id + 1, stop: left, by: this.columns.by[id], sent: sent ? [sent] : NONE, place: null, index: null },
    ];
  }

  isShown(id, version) {
    if (id < 0 || this.spans.has(id)) return this.spanAt(id, version) !== undefined;
    const left = this.columns.left[id];
    return id < version && (left === 0 || version < left);
  }

  spanAt(id, version) {
    return this.spansOf(id).find((span) => span.start <= version && (span.stop === 0 || version < span.stop));
  }

  // One of: not yet, never shown, damaged, pending, unsent, masked, sent, summarized, forgotten, taken back.
  state(id, version) {
    if (version <= this.came(id)) return "not yet";
    if (this.kind(id) === "damaged") return "damaged";
    const span = this.spanAt(id, version);
    if (span) {
      // At each change, the event begins or ceases to be sent.
      const changes = span.sent.filter((change) => change <= version).length;
      if (changes % 2 === 0) return changes ? "unsent" : "pending";
      return (this.maskedAt.get(id) ?? Infinity) <= version ? "masked" : "sent";
    }
    const past = this.lastSpan(id, version);
    return past ? this.departure(past.by, version) : "never shown";
  }

  // The last span of an event that ended at or before a version.
  lastSpan(id, version) {
    return this.spansOf(id).findLast((span) => span.stop !== 0 && span.stop <= version);
  }

  // How many events are in each state at a version.
  tally(version) {
    return remembered(this.tallies, version, REMEMBERED, () => this.countStates(version));
  }

  countStates(version) {
    const states = new Map();
    let rest = version;
    const add = (state, events) => {
      states.set(state, (states.get(state) ?? 0) + events);
      rest -= events;
    };
    const fates = new Map();
    for (const id of this.ordered) {
      if (id >= version) break;
      if (id < 0) continue;
      const by = this.spans.has(id) || this.isShown(id, version) ? null : this.columns.by[id];
      add(
        by === null ? this.state(id, version) : remembered(fates, by, Infinity, () => this.departure(by, version)),
        1,
      );
    }
    if (rest) add("never shown", rest);
    return states;
  }

  // The state at a version of the events that the change ``by`` removed. It is "summarized" while a summary replaces
  // them.
  departure(by, version) {
    return this.fatesOf(by).findLast(([at]) => at <= version)?.[1] ?? "forgotten";
  }

  fatesOf(by) {
    return this.fates.get(by) ?? NONE;
  }

  // For each change, list pairs of a version and the state that the removed events have from this version on. Their
  // summary may be summarized again. If it is forgotten without a new summary, no summary replaces the events any more.
  setFates() {
    this.fates = new Map();
    const changes = Array.from(this.changes.values()).sort((a, b) => b.id - a.id);
    for (const { id, kind, summary } of changes) {
      const fates = [];
      const add = (version, state) => fates.at(-1)?.[1] !== state && fates.push([version, state]);
      const spans = summary == null ? NONE : this.spansOf(summary);
      if (!spans.length) add(id + 1, kind === "retraction" ? "taken back" : "forgotten");
      spans.forEach((span, place) => {
        add(span.start, "summarized");
        const until = spans[place + 1]?.start ?? Infinity;
        if (span.stop === 0 || span.stop >= until) return;
        const after = this.fatesOf(span.by);
        add(span.stop, this.departure(span.by, span.stop));
        for (const [version, state] of after) if (version > span.stop && version < until) add(version, state);
      });
      this.fates.set(id, fates);
    }
  }

  // List all ids that any View showed, in the order in which Views show them.
  setOrder() {
    const behind = new Map();
    const placed = new Set();
    for (const [summary, , event] of this.order) {
      if (placed.has(summary)) continue;
      placed.add(summary);
      behind.set(event, [...(behind.get(event) ?? []), summary]);
    }
    this.drifting = [];
    for (const { id } of this.summaries) {
      if (this.spans.get(id).some((span) => span.index !== null)) this.drifting.push(id);
      if (placed.has(id)) continue;
      const event = this.came(id);
      behind.set(event, [...(behind.get(event) ?? []), id]);
    }
    const ids = [...(behind.get(-1) ?? [])];
    for (let id = 0; id < this.version; id += 1) {
      if (this.columns.left[id] !== -1 || this.spans.has(id)) ids.push(id);
      if (behind.size && behind.has(id)) ids.push(...behind.get(id));
    }
    this.ordered = ids;
    // The rows of the chart are the same ids, in the order in which they were appended.
    this.byCame = ids.some((id) => id < 0) ? [...ids].sort((a, b) => this.came(a) - this.came(b)) : ids;
  }

  // The ids of a View, in its order.
  view(version) {
    return remembered(this.views, version, REMEMBERED, () => {
      const ids = this.ordered.filter((id) => this.isShown(id, version));
      for (const id of this.drifting) this.drift(ids, id, version);
      return ids;
    });
  }

  // The numbers of events and summaries that a model is sent at a version.
  sentAt(version) {
    const sent = this.view(version).filter((id) => this.isSent(id, version));
    const summaries = sent.filter((id) => id < 0).length;
    return { events: sent.length - summaries, summaries };
  }

  // What the condensations up to a version saved and cost. A figure is null if it is unknown for all of them.
  savingsAt(version) {
    const made = this.made.filter(({ id }) => id < version);
    const sum = (values) => (values.length ? values.reduce((one, other) => one + other) : null);
    const costs = this.standing
      .filter(({ id, cost }) => id < version && typeof cost === "number")
      .map(({ cost }) => cost);
    const saved = made.map((change) => change.tokens_saved).filter((tokens) => tokens !== null);
    return { made: made.length, saved: sum(saved), cost: sum(costs), priced: costs.length };
  }

  // The numbers of changes up to a version, such as "2 condensations, 1 retraction".
  changesAt(version) {
    const before = (changes) => changes.filter(({ id }) => id < version).length;
    const made = before(this.made);
    const undone = before(this.condensations) - before(this.standing);
    const retractions = before(this.taking) - before(this.condensations);
    const numbers = [
      made && count(made, "condensation"),
      undone && `${count(undone, "condensation")} that an import took back`,
      retractions && count(retractions, "retraction"),
    ];
    return numbers.filter(Boolean).join(", ") || "no condensation";
  }

  // Move a summary to its place in the View of a version. The place depends on the size of this View.
  drift(ids, id, version) {
    const span = this.spanAt(id, version);
    if (!span || span.index === null) return;
    ids.splice(ids.indexOf(id), 1);
    const place = span.index < 0 ? Math.max(0, ids.length + span.index) : Math.min(span.index, ids.length);
    ids.splice(place, 0, id);
  }

  // Find the version from which each observation is masked. The log has only the rule: an observation is masked when
  // ``attention_window`` events of the View follow it.
  setMasks() {
    this.maskedAt = new Map();
    const windows = new Set();
    for (const mask of this.masks) {
      const window = mask.rule?.attention_window;
      if (!Number.isInteger(window) || mask.by !== "observation_masking" || windows.has(window)) continue;
      windows.add(window); // The log has the same rule many times.
      let ids = [];
      let from = -1;
      for (let version = mask.at; version <= this.version; version += 1) {
        if (from < 0 || this.changes.has(version - 1)) {
          ids = [...this.view(version)];
          from = 0;
        } else if (this.isShown(version - 1, version)) ids.push(version - 1);
        for (; from < ids.length - window; from += 1) {
          const id = ids[from];
          if (RESULTS.has(this.kind(id)) && !this.maskedAt.has(id)) this.maskedAt.set(id, version);
        }
      }
    }
  }

  // List the ids that each condensation and each retraction removed from the View.
  setDepartures() {
    this.removedBy = new Map();
    for (const id of this.ordered) {
      for (const span of this.spansOf(id)) {
        if (span.by < 0) continue;
        remembered(this.removedBy, span.by, Infinity, () => []).push(id);
      }
    }
  }

  // The recorded prompt of the first model call at or after a version, as the id of the reply and the tokens. If there
  // is no such call, the last recorded prompt.
  promptAt(version) {
    return this.prompts.find(([id]) => id >= version) ?? this.prompts.at(-1);
  }

  // The largest recorded prompt and its version. If no prompt is recorded, the largest View.
  get peak() {
    const prompt = this.prompts.reduce((most, other) => (other[1] > most[1] ? other : most), [0, 0]);
    if (prompt[1]) return { words: "largest prompt", version: prompt[0], tokens: prompt[1], about: "" };
    const version = this.largest();
    return { words: "largest View", version, tokens: this.total[version], about: this.about };
  }

  isSent(id, version) {
    return SENT.has(this.state(id, version));
  }

  // Compute the tokens of the View of each version: for each group, in total, and the tokens that masks remove.
  setSizes() {
    const groups = GROUPS.length - 1;
    const away = new Float64Array(this.version + 2);
    const changes = Array.from({ length: groups }, () => new Float64Array(this.version + 2));
    for (const id of this.ordered) {
      const group = this.group(id);
      if (group >= groups) continue;
      const tokens = this.tokens(id);
      const masked = this.maskedAt.get(id);
      for (const span of this.spansOf(id)) {
        span.sent.forEach((version, place) => (changes[group][version] += place % 2 ? -tokens : tokens));
        if (span.sent.length % 2 && span.stop) changes[group][span.stop] -= tokens;
        if (masked && masked >= span.start && (!span.stop || masked < span.stop)) {
          const less = Math.max(0, tokens - MASK);
          away[masked] += less;
          if (span.stop) away[span.stop] -= less;
        }
      }
    }
    this.sizes = changes.map((column) => {
      for (let version = 1; version < column.length; version += 1) column[version] += column[version - 1];
      return column.subarray(0, this.version + 1);
    });
    this.total = new Float64Array(this.version + 1);
    for (const column of this.sizes) column.forEach((tokens, version) => (this.total[version] += tokens));
    for (let version = 1; version < away.length; version += 1) away[version] += away[version - 1];
    this.masked = away.subarray(0, this.version + 1);
  }

  // The first version from ``first`` to ``until`` at which the View has the most tokens.
  largest(first = 0, until = this.version) {
    let most = first;
    for (let version = first; version <= until; version += 1)
      if (this.total[version] > this.total[most]) most = version;
    return most;
  }

  // The summary that replaces a forgotten event at a version, and the changes that led to this summary.
  standsFor(id, version) {
    const path = [];
    let followed = id;
    for (;;) {
      const span = this.lastSpan(followed, version);
      if (!span) return { path, summary: null };
      path.push(span.by);
      const summary = this.changes.get(span.by)?.summary ?? null;
      if (summary === null || this.isShown(summary, version)) return { path, summary };
      followed = summary;
    }
  }

  // "entered" if only the View of ``to`` has the event, "left" if only the View of ``from`` has it, or else "".
  changeOf(id, from, to) {
    const isThere = this.isShown(id, to);
    if (isThere === this.isShown(id, from)) return "";
    return isThere ? "entered" : "left";
  }
}

// The value of a key in a map, which is made if it is missing. A map of ``most`` values first drops its oldest value.
export function remembered(known, key, most, make) {
  if (!known.has(key)) {
    if (known.size >= most) known.delete(known.keys().next().value);
    known.set(key, make());
  }
  return known.get(key);
}

const NONE = [];
const REMEMBERED = 40; // The number of versions whose Views and states are in memory.
const SENT = new Set(["sent", "masked"]);
export const RESULTS_OF_TOOLS = new Set(["observation", "error", "refused"]);
const RESULTS = new Set([...RESULTS_OF_TOOLS, "environment"]);
const MASK = 4; // The tokens of the line that a model is sent instead of a masked content.
const AGENT = GROUPS.indexOf("agent");

// A span of the document, which has its fields by their places.
function asSpan([start, stop, by, sent, place, index]) {
  return { start, stop, by, sent, place, index };
}
