// What a reader looks for in a run: errors, condensations, waits, and what was needed again after it was forgotten.

import { remembered } from "./history.js";

const WAIT = 30_000; // Milliseconds from which on a time without an event is a wait.

// The places of a run, each an id of the event that ends it or is it.
export class Marks {
  first; last; // the times of the first and the last event

  constructor(history) {
    this.history = history;
    this.errors = [];
    this.waits = []; // for a model or a tool
    this.pauses = []; // until the user, or another program, said something
    this.needed = new Map(); // of each condensation, what of it was needed again
    this.again = new Map(); // of each event, the terms in it that had been dropped
    let before = null;
    for (let id = 0; id < history.version; id += 1) {
      const kind = history.kind(id);
      if (kind === "error" || kind === "damaged") this.errors.push(id);
      const time = history.time(id);
      if (time === null || history.changes.has(id)) continue;
      if (before !== null && time - before >= WAIT) {
        const wait = { id, from: before, to: time, who: WAITED_FOR[kind] ?? (kind === "user" ? "the user" : "the next event") };
        (kind in WAITED_FOR ? this.waits : this.pauses).push(wait);
      }
      before = before === null ? time : Math.max(before, time);
      this.first ??= time;
    }
    this.last = before;
    this.setTimes();
    this.condensations = history.made.map((change) => change.id);
  }

  // The time of each version, never falling.
  setTimes() {
    this.times = new Float64Array(this.history.version + 2).fill(this.last);
    let at = this.first;
    for (let version = 0; version <= this.history.version; version += 1) {
      if (version) at = Math.max(at, this.history.time(version - 1) ?? at);
      this.times[version] = at;
    }
  }

  // Milliseconds from the first event to the last one; null without times.
  get took() {
    return this.first === undefined ? null : this.last - this.first;
  }

  // The longest wait.
  get longest() {
    return this.waits.reduce((longest, wait) => (wait.to - wait.from > longest.to - longest.from ? wait : longest));
  }

  // Take what the server or the file says of terms that were needed again.
  take(condensations) {
    this.needed = new Map(condensations.map((each) => [each.condensation, each]));
    this.again = new Map();
    for (const { condensation, terms } of condensations) {
      for (const { term, event, needed_in: id } of terms) {
        remembered(this.again, id, Infinity, () => []).push({ term, event, condensation });
      }
    }
  }

  // The ids of a kind of marks.
  ids(kind) {
    return kind === "waits" ? this.waits.map((wait) => wait.id) : this[kind];
  }

  // What a reader would call the things that were needed again: files first, by their names, then other terms.
  static names(terms) {
    const names = terms.map(({ term }) => term);
    const files = names.filter((name) => name.includes("/") || FILE.test(name));
    const others = names.filter((name) => !files.includes(name));
    return [...new Set([...files.map((name) => name.split("/").at(-1)), ...others])];
  }
}

const FILE = /\.(?:c|cc|cfg|cpp|cs|css|csv|go|h|html|ini|java|js|jsonl?|jsx|lock|md|php|py|rb|rs|sh|sql|toml|tsx?|txt|xml|ya?ml)$/; // not ``cache.load``
const WAITED_FOR = { agent: "the model", action: "the model", observation: "a tool", error: "a tool" };
