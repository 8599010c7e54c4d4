// The column at the side: the chosen event, what the model knew at the open version, what it did not know any more, and
// why.

import {
  count,
  el,
  eventsAndSummaries,
  grouped,
  idOf,
  moment,
  printable,
  refill,
  said,
  sentence,
  short,
  tokenCount,
} from "./dom.js";
import { highlighted, pretty } from "./texts.js";
import { calledWords, receipt } from "./why.js";

const MOST_NAMED = 12; // The maximum number of terms that are named.
const MOST_FOUND = 200; // The maximum number of hits that are shown.
// What each of ``GROUPS`` is, for people.
const WORDS = [
  "system prompt",
  "messages of the user",
  "summaries",
  "the agent: calls and texts",
  "results of tools",
  "errors of tools",
];
const UNUSUAL = {
  pending: "in the View, not sent yet: a call waits for its result",
  unsent: "in the View, not sent any more: another part of its call is gone",
  damaged: "its stored bytes cannot be read",
  "never shown": "bookkeeping, or the work of a sub-agent",
};
const GONE = {
  summarized: "a summary took its place",
  forgotten: "without a summary",
  "taken back": "by a retraction",
};

export class Knew {
  constructor(app) {
    this.app = app;
    this.event = null; // the event that the column shows
    this.node = el("aside", { class: "knew", tabindex: 0, "aria-label": "What the model knew" });
  }

  show() {
    const { app } = this;
    const rest = app.hits
      ? this.found()
      : [...this.knew(), ...this.gone(), ...this.why(), ...app.why.facts(), ...this.notes(), ...this.ask()];
    // For another event, scroll to the top and move the keyboard focus there.
    if (this.event !== app.event && !app.hits) {
      if (this.node.contains(document.activeElement)) this.node.focus({ preventScroll: true });
      this.node.scrollTop = 0;
    }
    this.event = app.event;
    refill(this.node, ...[app.notice, ...this.compared(), ...this.chosen(), ...rest].filter(Boolean));
  }

  // The events that a search found.
  found() {
    const { app } = this;
    const { hits, history, searched, version } = app;
    if (app.problem)
      return [el("h2", {}, "The search failed"), el("p", { class: "problem", role: "alert" }, app.problem)];
    if (!hits.length)
      return searched
        ? [el("h2", {}, "Nothing found"), el("p", { class: "soft" }, app.box.title)]
        : [el("h2", {}, "Searching …")];
    const sent = hits.filter(({ id }) => history.isSent(id, version)).length;
    const summaries = hits.filter(({ id }) => id < 0).length;
    return [
      el("h2", {}, `${eventsAndSummaries(hits.length - summaries, summaries)} found`),
      el(
        "p",
        { class: "soft" },
        `The search covers the whole history. At version ${grouped(version)}, the model is sent ${grouped(sent)} of the hits. Enter and Shift+Enter go through the hits. Escape ends the search.`,
      ),
      ...hits
        .slice(0, MOST_FOUND)
        .map(({ id, snippet }) =>
          el(
            "button",
            { class: `hit-of${app.event === id ? " chosen" : ""}`, onclick: () => app.choose(id) },
            el("span", { class: "soft" }, `${idOf(id)} ${history.kind(id)}`),
            el("bdi", {}, ...highlighted(snippet, app.words)),
          ),
        ),
      hits.length > MOST_FOUND
        ? el("p", { class: "soft" }, `The first ${grouped(MOST_FOUND)} of ${grouped(hits.length)}.`)
        : null,
    ];
  }

  // The tokens of the View at the open version, compared with the limit, and its parts by kind.
  knew() {
    const { history, version } = this.app;
    const states = history.tally(version);
    const { events, summaries } = history.sentAt(version);
    const tokens = history.total[version] ?? 0;
    const masked = states.get("masked") ?? 0;
    const facts = [
      history.limit && `${Math.round((100 * tokens) / history.limit)} % of its limit of ${short(history.limit)}`,
      `${eventsAndSummaries(events, summaries)} sent`,
      masked && `${grouped(masked)} masked, which leaves ${history.about}${short(tokens - history.masked[version])}`,
    ];
    const groups = history.sizes.map((sizes, group) => [group, sizes[version]]).filter(([, size]) => size > 0);
    return [
      el("h2", {}, `At version ${grouped(version)} the model ${version === history.version ? "knows" : "knew"}`),
      el("p", { class: "big" }, `${history.about}${tokenCount(tokens)}`),
      el("p", { class: "soft sent" }, facts.filter(Boolean).join(" · ")),
      ...this.recorded(),
      tokens ? this.shares(groups) : null,
      ...groups
        .sort((one, other) => other[1] - one[1])
        .map(([group, size]) => pair(`g${group}`, WORDS[group], tokenCount(size))),
      ...this.counts(UNUSUAL, states),
      this.app.compared
        ? null
        : el("div", { class: "ways" }, el("button", { onclick: () => this.app.compare(version) }, "Compare from here")),
    ];
  }

  // A bar that is divided by the sizes of the kinds.
  shares(groups) {
    const parts = groups.map(([group, size]) => {
      const part = el("span", { class: `g${group}` });
      part.style.flexGrow = String(size);
      return part;
    });
    return el("div", { class: "shares", "aria-hidden": true }, ...parts);
  }

  // The number of events in each of these states at the open version.
  counts(meanings, states) {
    const there = Object.entries(meanings).filter(([state]) => states.get(state));
    return there.map(([state, meaning]) =>
      pair(`k-${state.replace(" ", "-")}`, state, count(states.get(state), "event"), meaning),
    );
  }

  // The tokens that the source recorded for the prompt of the next model call, in addition to the estimate.
  recorded() {
    const { history, version } = this.app;
    const prompt = history.promptAt(version);
    if (!prompt) return [];
    const [id, tokens] = prompt;
    const window = history.window ? ` of a window of ${short(history.window)}` : "";
    const call = id < version ? "the last call, in " : "the next call, in ";
    return [
      el(
        "p",
        { class: "recorded" },
        `Recorded: ${tokenCount(tokens)}${window}, for the prompt of ${call}`,
        this.app.way(id),
        ". This number includes the descriptions of tools, but not the texts that the program cut.",
      ),
    ];
  }

  // The two compared versions, and how many events entered and left the View between them.
  compared() {
    const { app } = this;
    if (!app.compared) return [];
    const { history } = app;
    const [from, to] = app.compared;
    const changes = history.ordered.map((id) => history.changeOf(id, from, to));
    const number = (wanted) => grouped(changes.filter((change) => change === wanted).length);
    const choice = (words, only) =>
      el("button", { "aria-pressed": app.onlyChanges === only, onclick: () => app.showChanges(only) }, words);
    return [
      el("h2", {}, `Version ${grouped(from)} → ${grouped(to)}`),
      el(
        "p",
        { class: "comparing" },
        el("b", { class: "added" }, `${number("entered")} entered`),
        ", ",
        el("b", { class: "removed" }, `${number("left")} left`),
        `: ${history.about}${short(history.total[from])} → ${tokenCount(history.total[to])}`,
      ),
      el(
        "div",
        { class: "ways" },
        el(
          "span",
          { class: "choices", role: "group", "aria-label": "Events to show" },
          choice("Changes", true),
          choice("All events", false),
        ),
        el("button", { onclick: () => app.compare(null) }, "Stop comparing"),
      ),
    ];
  }

  // The chosen event: why it is in the View or not, buttons that lead to related events, and its stored fields.
  chosen() {
    const { app } = this;
    const { event, history } = app;
    if (event === null) return [];
    const tokens = history.tokens(event);
    return [
      el(
        "div",
        { class: "heading" },
        el("h2", {}, `${sentence(history.kind(event))} ${idOf(event)}`),
        el("span", { class: "soft" }, tokens ? `${history.aboutOf(event)}${tokenCount(tokens)}` : ""),
        el(
          "button",
          { class: "close", title: "Close (Escape)", "aria-label": "Close", onclick: () => app.choose(null) },
          "×",
        ),
      ),
      ...app.why.about(event),
      ...this.stored(event),
    ];
  }

  // The stored fields of an event, which the reader can open, and the receipt of its redaction.
  stored(id) {
    const { app } = this;
    const document = app.transcript.text(app.history.came(id));
    if (!document) return [];
    const called = calledWords(document.meta);
    // If an event has no block in the transcript, this is the only place that shows its text.
    const isOpen = !app.transcript.hasBlock(id) && !document.redacted;
    const whole = el(
      "details",
      { class: "stored", "aria-label": "As it is stored", open: isOpen, ontoggle: () => fill() },
      el("summary", {}, "As it is stored"),
    );
    const fill = () => whole.children.length > 1 || whole.append(app.transcript.code(`${id} stored`, pretty(document)));
    if (isOpen) fill();
    return [
      ...(document.redacted ? receipt(document.redacted) : []),
      called ? el("p", { class: "called" }, said(called)) : null,
      whole,
    ];
  }

  // What left the View before the open version. The terms that the agent needed again later come first.
  gone() {
    const { app } = this;
    const counts = this.counts(GONE, app.history.tally(app.version));
    if (!counts.length) return [];
    const again = [...app.marks.needed.values()].filter(({ condensation }) => condensation < app.version).reverse();
    const named = new Map(); // A term that several condensations dropped has the place of the newest of them.
    for (const { terms } of again) {
      for (const term of terms) if (!named.has(term.term)) named.set(term.term, term);
    }
    // A term that was needed again before the open version has come back to the View.
    const later = [...named.values()].filter((term) => term.needed_in >= app.version);
    const rows = later
      .slice(0, MOST_NAMED)
      .map(({ term, event, needed_in: id }) =>
        el(
          "div",
          { class: "pair" },
          el(
            "span",
            {},
            said(term),
            " ",
            el(
              "button",
              { class: "link", title: "Choose the event, at this version", onclick: () => app.choose(event) },
              `(${idOf(event)})`,
            ),
          ),
          app.way(id, `needed again at ${idOf(id)}`, "needed"),
        ),
      );
    const more = later.length - rows.length;
    const before = named.size - later.length;
    return [
      el("h2", {}, "It did not know any more"),
      ...rows,
      more
        ? el(
            "p",
            { class: "soft" },
            `and ${count(more, "more term that was", "more terms that were")} needed again; see the condensations`,
          )
        : null,
      before
        ? el(
            "p",
            { class: "soft" },
            `${grouped(before)} ${before === 1 ? "term" : "terms"} that condensations dropped ${before === 1 ? "was" : "were"} needed again before this version, and came back then`,
          )
        : null,
      ...counts,
    ];
  }

  // The changes of the View before the open version, newest first, and the tokens that they saved.
  why() {
    const { app } = this;
    const change = app.history.taking.findLast(({ id }) => id < app.version);
    const ways =
      change &&
      el(
        "div",
        { class: "ways" },
        el("button", { onclick: () => app.goToEvent(change.id) }, `${sentence(change.kind)} ${idOf(change.id)}`),
        el("button", { onclick: () => app.compare(change.id, change.id + 1, change.id) }, "Before ⇄ after"),
      );
    return [
      el("h2", {}, "Why not more?"),
      change
        ? el("p", {}, app.removed(change.id).sentence, ` Reason: ${printable(change.reason || "none given")}.`)
        : el("p", {}, "Nothing was forgotten before this version."),
      ways,
      ...app.why.totals(),
      ...app.why.changes(),
    ];
  }

  // The notes of the run, and a form for the note of the chosen event.
  notes() {
    const { notes, event } = this.app;
    return [el("h2", {}, "Notes"), ...notes.list(), notes.editor(event !== null && event >= 0 ? event : null)];
  }

  // The command that shows the same View in a terminal.
  ask() {
    const { app } = this;
    const id = quoted(printable(app.history.conversation));
    const last = moment(app.history.timeAt(app.version), app.history.zone);
    return [
      el("h2", {}, "In a terminal"),
      el("pre", { class: "code" }, `foldlog view ${id} --at ${app.version}`),
      last ? el("p", { class: "soft when" }, `Last event before: ${last}`) : null,
    ];
  }
}

// A text as one word of a shell. Inside of quotes, only another quote ends the text.
const quoted = (text) => (/^[\w./@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

// A row with the colour of a kind in the pictures, the name of the kind, and a number.
const pair = (kind, name, value, title = null) =>
  el(
    "div",
    { class: "pair", title },
    el("span", {}, el("span", { class: `swatch ${kind}`, "aria-hidden": true }), name),
    el("span", { class: "number" }, value),
  );
