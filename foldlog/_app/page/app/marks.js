// Finds the marks of a run: errors, condensations, long waits, and terms that were needed again after they were
// forgotten.

import { remembered } from "./history.js";

const WAIT = 30_000; // A pause of at least this many milliseconds between two events is a wait.

// The marks of a run. A mark is the id of an event. For a wait, it is the event that ended the wait.
export class Marks {
  first;
  last; // the times of the first and the last event

  constructor(history) {
    this.history = history;
    this.errors = [];
    this.waits = []; // for a model or a tool
    this.pauses = []; // waits for the user or for another program
    this.needed = new Map(); // maps a condensation to the terms that it dropped and that were needed again
    this.again = new Map(); // maps an event to the terms in it that had been dropped before
    let before = null;
    for (let id = 0; id < history.version; id += 1) {
      const kind = history.kind(id);
      if (kind === "error" || kind === "damaged") this.errors.push(id);
      const time = history.time(id);
      if (time === null || history.changes.has(id)) continue;
      if (before !== null && time - before >= WAIT) {
        const wait = {
          id,
          from: before,
          to: time,
          who: WAITED_FOR[kind] ?? (kind === "user" ? "the user" : "the next event"),
        };
        if (kind in WAITED_FOR) this.waits.push(wait);
        else this.pauses.push(wait);
      }
      before = before === null ? time : Math.max(before, time);
      this.first ??= time;
    }
    this.last = before;
    this.setTimes();
    this.condensations = history.made.map((change) => change.id);
  }

  // Set the time of each version. A time is never less than the time before it.
  setTimes() {
    this.times = new Float64Array(this.history.version + 2).fill(this.last);
    let at = this.first;
    for (let version = 0; version <= this.history.version; version += 1) {
      if (version) at = Math.max(at, this.history.time(version - 1) ?? at);
      this.times[version] = at;
    }
  }

  // The milliseconds from the first to the last event, or null if no event has a time.
  get took() {
    return this.first === undefined ? null : this.last - this.first;
  }

  // The longest wait.
  get longest() {
    return this.waits.reduce((longest, wait) => (wait.to - wait.from > longest.to - longest.from ? wait : longest));
  }

  // Store the terms that were needed again, which the server or the file has found.
  take(condensations) {
    this.needed = new Map(condensations.map((dropped) => [dropped.condensation, dropped]));
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

  // Short names of terms, without repetitions. Names of files come first, without their folders.
  static names(terms) {
    const names = terms.map(({ term }) => term);
    const files = names.filter((name) => name.includes("/") || FILE.test(name));
    const others = names.filter((name) => !files.includes(name));
    return [...new Set([...files.map((name) => name.split("/").at(-1)), ...others])];
  }
}

const FILE =
  /\.(?:c|cc|cfg|cpp|cs|css|csv|go|h|html|ini|java|js|jsonl?|jsx|lock|md|php|py|rb|rs|sh|sql|toml|tsx?|txt|xml|ya?ml)$/; // not ``cache.load``
// For each kind of event that ends a wait, who made the run wait.
const WAITED_FOR = { agent: "the model", action: "the model", observation: "a tool", error: "a tool" };
