// Notes and bookmarks of the reader: beside the events, never among them.

import { el, idOf, said } from "./dom.js";

export class Notes {
  constructor(app) {
    this.app = app;
    this.all = [];
  }

  of(event) {
    return this.all.find((note) => note.event === event);
  }

  // The field for a note beside an event, with the note that is there.
  editor(event) {
    const note = this.of(event);
    const name = event === null ? "Note on this run" : `Note on ${idOf(event)}`;
    const field = /** @type {HTMLTextAreaElement} */ (el("textarea", { rows: 2, "aria-label": name, placeholder: `${name}; empty is a bookmark` }));
    field.value = note?.text ?? "";
    const problem = el("p", { class: "problem", role: "alert" });
    const change = (text) => async (submitted) => {
      submitted.preventDefault();
      try {
        this.all = await this.app.source.changeNote(event, text === null ? null : field.value.trim());
        this.app.noted(event);
      } catch (error) {
        problem.textContent = `The note was not kept: ${error.message}`;
      }
    };
    return el("form", { class: "noting", onsubmit: change("") }, field,
      el("div", { class: "ways" }, el("button", {}, note ? "Change" : "Keep"), note ? el("button", { type: "button", onclick: change(null) }, "Remove") : null), problem);
  }

  // All notes, as ways to their events.
  list() {
    return this.all.map((note) => el("div", { class: "pair" }, note.event === null ? el("span", { class: "soft" }, "run") : this.app.way(note.event), said(note.text || "bookmarked")));
  }
}
