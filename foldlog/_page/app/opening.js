// What is shown of a run until its history is there: its name, and how far the server is.

import { el, grouped, said } from "./dom.js";

const PATIENCE = 400; // Milliseconds between two questions.
const PLACES = 8; // Grey lines in the place of blocks.

export class Opening {
  constructor(source, root) {
    this.source = source;
    this.bar = el("progress", { "aria-label": "Events read" });
    this.words = el("p", { class: "soft", role: "status" }, "Reading …");
    const waiting = Array.from({ length: PLACES }, () => el("div", { class: "waiting" }));
    root.replaceChildren(el("header", {}, el("h1", {}, source.id ? said(source.id) : "foldlog")), el("main", { class: "starting" }, this.words, this.bar, ...waiting));
    if (source.progress) setTimeout(() => this.ask(), PATIENCE);
  }

  async ask() {
    const progress = this.ended ? null : await this.source.progress().catch(() => null); // the history's answer says why
    if (!progress) return;
    this.bar.max = progress.total;
    this.bar.value = progress.done;
    this.words.textContent = `${grouped(progress.done)} of ${grouped(progress.total)} events are ${progress.step}`;
    setTimeout(() => this.ask(), PATIENCE);
  }

  end() {
    this.ended = true;
  }
}
