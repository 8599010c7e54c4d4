// What is shown of a run until its history is there: its figures, its newest events, and how far the server is.

import { costWords, count, duration, el, grouped, moment, printable, said } from "./dom.js";
import { History } from "./history.js";
import { homeAddress, sparkline, timeIn } from "./runs.js";
import { Transcript } from "./transcript.js";

const PATIENCE = 200; // Milliseconds in which a short history is there.

export class Opening {
  constructor(source, root) {
    this.source = source;
    this.root = root;
    this.bar = el("progress", { "aria-label": "Events read" });
    this.words = el("p", { class: "soft", role: "status" }, "Reading …");
    root.replaceChildren(el("header", {}, el("h1", {}, source.id ? said(source.id) : "foldlog")), el("main", { class: "starting" }, this.words, this.bar, ...waiting(8)));
    if (source.opening) this.timer = setTimeout(() => this.begin(), PATIENCE);
  }

  async begin() {
    try {
      const opening = await this.source.opening();
      if (!this.ended) this.show(opening);
    } catch {
      return; // the answer that is waited for says why
    }
    this.next();
  }

  next() {
    this.timer = setTimeout(() => this.ask(), 400);
  }

  async ask() {
    try {
      const { step, done, total } = await this.source.progress();
      if (this.ended) return;
      this.bar.max = total;
      this.bar.value = done;
      this.words.textContent = `${grouped(done)} of ${grouped(total)} events are ${step}`;
    } catch {
      return;
    }
    this.next();
  }

  show({ row, history, newest }) {
    const name = row?.title || this.source.id;
    const strip = el("section", { class: "strip", "aria-label": "Tokens of the prompts, and how far the page is" }, sparkline(row?.context ?? []), el("div", { class: "reading" }, this.words, this.bar));
    const side = el("aside", { class: "knew", "aria-label": "What the model knew" }, el("h2", {}, "The newest events"), el("p", {}, "What the model knew at each step follows, once all events are read."), ...waiting(6));
    const transcript = this.transcriptOf(new History(history), newest);
    this.root.replaceChildren(
      el("header", { class: "of-run" }, el("a", { class: "back", href: homeAddress() }, "← Runs"), el("div", { class: "names" }, el("h1", {}, said(name)), el("p", { class: "facts" }, this.facts(row, history.events_counted))), this.marks(row)),
      el("main", { class: "run preview" }, strip, transcript.node, side));
    transcript.reveal(newest.length - 1);
  }

  facts(row, events) {
    const [first, last] = [row?.first_event_at, row?.last_event_at].map((time) => (time ? timeIn(time) : null));
    return [
      moment(first, "").slice(0, 10), first !== null && last !== null ? `took ${duration(last - first)}` : "", count(events, "event"), row?.title ? printable(this.source.id) : "",
    ].filter(Boolean).join(" · ");
  }

  marks(row) {
    const chip = (kind, number, word) => (number ? el("span", { class: `chip ${kind}` }, count(number, word)) : null);
    const cost = row?.spent?.cost > 0 ? el("span", { class: "chip" }, costWords(row.spent)) : null;
    return el("div", { class: "chips", "aria-label": "Marks of this run", role: "group" }, cost, chip("errors", row?.errors, "error"), chip("condensations", row?.condensations, "condensation"));
  }

  // The newest events as blocks that lead nowhere yet.
  transcriptOf(history, newest) {
    const nothing = new Map();
    const app = {
      history, event: null, version: history.version, from: null, compared: null, words: [], goToEvent() {}, changed() {},
      source: { events: async (start, stop) => newest.slice(start, stop) },
      marks: { again: nothing, needed: nothing },
    };
    const transcript = new Transcript(app);
    transcript.open(history);
    return transcript;
  }

  end() {
    this.ended = true;
    clearTimeout(this.timer);
  }
}

const waiting = (number) => Array.from({ length: number }, () => el("div", { class: "waiting" }));
