// What the model knew at the step that is open, what it knew no more, and why.

import { count, el, eventsAndSummaries, grouped, idOf, money, moment, printable, refill, said, sentence, short, tokenCount } from "./dom.js";

const MOST_NAMED = 12;
const WORDS = ["system prompt", "messages of the user", "summaries", "the agent: calls and texts", "results of tools", "errors of tools"];

export class Knew {
  constructor(app) {
    this.app = app;
    this.node = el("aside", { class: "knew", tabindex: 0, "aria-label": "What the model knew" });
  }

  show() {
    const { app } = this;
    const parts = app.hits ? this.found() : [...this.knew(), ...this.chosen(), ...this.gone(), ...this.why(), ...this.notes(), ...this.ask()];
    refill(this.node, ...parts.filter(Boolean));
  }

  // The events that a search found.
  found() {
    const { app } = this;
    const shown = app.hits.slice(0, 200);
    return [
      el("h2", {}, app.searched ? `${count(app.hits.length, "event")} found` : "Searching …"),
      el("p", { class: "soft" }, "Enter and Shift+Enter go through them, Escape ends the search."),
      ...shown.map(({ id, snippet }) => {
        const node = el("button", { class: `hit-of${app.event === id ? " chosen" : ""}`, onclick: () => app.goToEvent(id) }, el("span", { class: "soft" }, `${idOf(id)} ${app.history.kind(id)}`), el("bdi"));
        app.list.highlight(node.lastChild, snippet);
        return node;
      }),
      app.hits.length > shown.length ? el("p", { class: "soft" }, `The first ${grouped(shown.length)} of ${grouped(app.hits.length)}.`) : null,
    ];
  }

  knew() {
    const { history, version } = this.app;
    const { events, summaries } = history.sentAt(version);
    const tokens = history.total[version] ?? 0;
    const limit = history.limit ? `${Math.round((100 * tokens) / history.limit)} % of its limit of ${short(history.limit)} · ` : "";
    const groups = history.sizes.map((sizes, group) => [group, sizes[version]]).filter(([, size]) => size > 0);
    const bar = el("div", { class: "shares", "aria-hidden": true }, ...groups.map(([group, size]) => {
      const part = el("span", { class: `g${group}` });
      part.style.flexGrow = String(size);
      return part;
    }));
    return [
      el("h2", {}, `At version ${grouped(version)} the model ${version === history.version ? "knows" : "knew"}`),
      el("p", { class: "big" }, `${history.about}${tokenCount(tokens)}`),
      el("p", { class: "soft" }, `${limit}${eventsAndSummaries(events, summaries)}`),
      tokens ? bar : null,
      ...groups.sort((one, other) => other[1] - one[1]).map(([group, size]) => el("div", { class: "pair" }, el("span", {}, el("span", { class: `swatch g${group}`, "aria-hidden": true }), WORDS[group]), el("span", { class: "number" }, tokenCount(size)))),
    ];
  }

  // The chosen event in a sentence, and the ways on from it.
  chosen() {
    const { app } = this;
    if (app.event === null || app.history.changes.has(app.event)) return [];
    return [el("h2", {}, `${sentence(app.history.kind(app.event))} ${idOf(app.event)}`), ...app.detail.aboutEvent(app.event)];
  }

  // What left the View up to this version: first what was needed again later.
  gone() {
    const { app } = this;
    const { history, marks, version } = app;
    const again = [...marks.needed.values()].filter(({ condensation }) => condensation < version).reverse()
      .flatMap(({ terms }) => terms);
    const rows = [];
    const named = new Set();
    for (const { term: name, event, needed_in: id } of again) {
      if (named.has(name)) continue;
      named.add(name);
      if (named.size > MOST_NAMED) continue;
      rows.push(el("div", { class: "pair" }, el("span", {}, said(name), " ", this.way(event, `(${idOf(event)})`)), this.way(id, `needed again at ${idOf(id)}`, "needed")));
    }
    const more = named.size - rows.length;
    if (more) rows.push(el("p", { class: "soft" }, `and ${grouped(more)} more that were needed again; the condensations name them`));
    const { states } = history.tally(version);
    const left = ["summarized", "forgotten", "taken back"].filter((state) => states.get(state));
    if (!left.length) return [];
    return [
      el("h2", {}, "It did not know any more"), ...rows,
      ...left.map((state) => el("div", { class: "pair" }, el("span", {}, count(states.get(state), "event")), el("span", {}, state))),
      el("button", { class: "link", onclick: () => app.showPage("memory") }, "Show in Memory"),
    ];
  }

  // The last condensation before this version.
  why() {
    const { app } = this;
    const change = app.history.taking.findLast(({ id }) => id < app.version);
    if (!change) return [el("h2", {}, "Why"), el("p", {}, "Nothing was forgotten before: no condensation came.")];
    return [
      el("h2", {}, "Why"), el("p", {}, app.removed(change.id).sentence, " ", `Reason: ${printable(change.reason || "none given")}.`, typeof change.cost === "number" ? ` It cost ${money(change.cost)}.` : ""),
      el("div", { class: "ways" }, el("button", { onclick: () => app.goToEvent(change.id) }, `${sentence(change.kind)} ${idOf(change.id)}`), el("button", { onclick: () => app.compare(change.id, change.id + 1, change.id) }, "Before ⇄ after")),
    ];
  }

  notes() {
    const { notes, event } = this.app;
    return [el("h2", {}, "Notes"), ...notes.list(), notes.editor(event !== null && event >= 0 ? event : null)];
  }

  ask() {
    const { app } = this;
    const id = printable(app.history.conversation);
    const last = moment(app.history.timeAt(app.version), app.history.zone);
    return [
      el("h2", {}, "Ask here"), el("pre", { class: "code" }, `foldlog view ${/^[\w./@-]+$/.test(id) ? id : `'${id}'`} --at ${app.version}`),
      last ? el("p", { class: "soft" }, `Last event before: ${last}`) : null,
    ];
  }

  way(id, words, kind = "") {
    return el("button", { class: `link ${kind}`, onclick: () => this.app.goToEvent(id) }, words);
  }
}
