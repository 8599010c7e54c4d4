// Notes and bookmarks of the reader. They are stored beside the events, never as events.

import { el, idOf, said } from "./dom.js";

export class Notes {
  constructor(app) {
    this.app = app;
    this.all = [];
  }

  // The note of an event, or of the run if ``event`` is null.
  of(event) {
    return this.all.find((note) => note.event === event);
  }

  // A form to write, change or remove the note of an event. If ``event`` is null, the note of the run.
  editor(event) {
    const note = this.of(event);
    const name = event === null ? "Note on this run" : `Note on ${idOf(event)}`;
    const field = /** @type {HTMLTextAreaElement} */ (
      el("textarea", { rows: 2, "aria-label": name, placeholder: `${name}, or leave it empty for a bookmark` })
    );
    field.value = note?.text ?? "";
    const problem = el("p", { class: "problem", role: "alert" });
    const change = (newText) => async (submitted) => {
      submitted.preventDefault();
      try {
        this.all = await this.app.source.changeNote(event, newText());
        this.app.noted(event);
      } catch (error) {
        problem.textContent = `The note was not saved: ${error.message}`;
      }
    };
    return el(
      "form",
      { class: "noting", onsubmit: change(() => field.value.trim()) },
      field,
      el(
        "div",
        { class: "ways" },
        el("button", {}, note ? "Change" : "Keep"),
        note ? el("button", { type: "button", onclick: change(() => null) }, "Remove") : null,
      ),
      problem,
    );
  }

  // All notes, each with a link to its event.
  list() {
    return this.all.map((note) =>
      el(
        "div",
        { class: "pair" },
        note.event === null ? el("span", { class: "soft" }, "run") : this.app.way(note.event),
        said(note.text || "bookmarked"),
      ),
    );
  }
}
