// The page while the history of a run is loaded: the run's name, and the progress of the server.

import { el, grouped, said } from "./dom.js";

const PATIENCE = 400; // The milliseconds between two requests for the progress.
const PLACES = 8; // The number of grey lines that stand for blocks.

export class Opening {
  constructor(source, root) {
    this.source = source;
    this.bar = el("progress", { "aria-label": "Events read" });
    this.words = el("p", { class: "soft", role: "status" }, "Reading …");
    const waiting = Array.from({ length: PLACES }, () => el("div", { class: "waiting" }));
    root.replaceChildren(
      el("header", {}, el("h1", {}, source.id ? said(source.id) : "foldlog")),
      el("main", { class: "starting" }, this.words, this.bar, ...waiting),
    );
    if (source.progress) setTimeout(() => this.ask(), PATIENCE);
  }

  // Show how far the server is, again and again.
  async ask() {
    if (this.ended) return;
    // If this fails, the request for the history fails too, and reports the error.
    const progress = await this.source.progress().catch(() => null);
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
