// The View of a version, one line for each event, or the hits of a search. Only the lines in sight are elements.

import { Sight, count, el, eventsAndSummaries, grouped, idOf, narrow, phone, plus, printable, said, short, withMarks } from "./dom.js";

const ROW = 26;
const HIT = 46; // of a line of a search, which has its text below its name
const TALL = 58; // of such a line where the list is narrow: its text has two lines

export class List {
  constructor(app) {
    this.app = app;
    this.entries = [];
    this.lines = new Map();
    this.current = null;
    this.chosen = null;
    this.inner = el("div", { class: "lines", role: "presentation" });
    this.node = el("div", { class: "list", tabindex: 0, onkeydown: (event) => this.key(event) }, this.inner);
    this.inner.addEventListener("click", (event) => {
      const summary = event.target.dataset.summary;
      const line = event.target.closest("[data-place]");
      if (summary !== undefined) this.app.choose(Number(summary));
      else if (line) this.open(Number(line.dataset.place));
    });
    this.sight = new Sight(this.node, this.inner, () => this.draw());
  }

  show(entries, name, empty) {
    this.entries = entries;
    this.node.setAttribute("role", entries.length ? "listbox" : "group");
    this.node.setAttribute("aria-label", name);
    if (this.chosen !== this.app.event) {
      this.chosen = this.app.event;
      this.current = this.chosen === null ? this.current : nameOf({ id: this.chosen });
    }
    this.most = entries.reduce((most, entry) => Math.max(most, entry.id === undefined ? 0 : this.app.history.tokens(entry.id)), 1);
    this.node.style.setProperty("--digits", String(this.app.history.version).length + 1);
    this.inner.style.height = `${entries.length * this.row}px`;
    this.lines.forEach((line) => line.remove());
    this.lines.clear();
    this.node.querySelector(".empty")?.remove();
    if (!entries.length) this.node.append(el("p", { class: "empty" }, empty));
    this.draw();
  }

  get row() {
    return !this.app.hits ? ROW : narrow.matches ? TALL : HIT;
  }

  // Draw the lines in sight, and as many above and below them.
  draw() {
    const { top } = this.sight;
    const height = this.sight.height || 1;
    const first = Math.max(0, Math.floor((top - height) / this.row));
    const last = Math.min(this.entries.length, Math.ceil((top + 2 * height) / this.row));
    for (const [place, line] of this.lines) {
      if (place < first || place >= last) {
        line.remove();
        this.lines.delete(place);
      }
    }
    const added = [];
    for (let place = first; place < last; place += 1) {
      if (this.lines.has(place)) continue;
      const line = this.line(this.entries[place], place);
      this.lines.set(place, line);
      added.push(line);
    }
    this.inner.append(...added);
    const place = this.place();
    if (this.lines.has(place)) this.node.setAttribute("aria-activedescendant", `line-${place}`);
    else this.node.removeAttribute("aria-activedescendant");
  }

  // The place of the line at which the keyboard is.
  place() {
    return this.current === null ? -1 : this.entries.findIndex((entry) => nameOf(entry) === this.current);
  }

  line(entry, place) {
    const chosen = entry.id !== undefined && entry.id === this.app.event;
    const node = el("div", {
      class: nameOf(entry) === this.current ? "line current" : "line", role: "option", id: `line-${place}`, "data-place": place, "aria-selected": chosen,
      "aria-setsize": this.entries.length, "aria-posinset": place + 1,
    });
    node.style.transform = `translateY(${place * this.row}px)`;
    if (entry.border) this.fillBorder(node, entry.border);
    else if (entry.pieces) this.fillGap(node, entry);
    else this.fillEvent(node, entry);
    return node;
  }

  fillBorder(node, { parent, parent_version: version }) {
    node.classList.add("border");
    const href = this.app.source.address?.(parent, version);
    const name = said(parent, "span", { class: href ? "way" : "" });
    node.append(el("span", { class: "words" }, "Fork of ", name, ` at version ${grouped(version)}: the events before are shared`));
  }

  fillGap(node, { gap, events, summaries, tokens, by, kind, summary }) {
    const opened = this.app.opened.has(gap);
    const who = count(by.size, kind === "taken back" ? "retraction" : "condensation");
    const words = narrow.matches && events && summaries ? plus(events, summaries) : eventsAndSummaries(events, summaries);
    const how = summary === null ? `by ${who}` : "in";
    node.classList.add("gap", `k-${kind.replace(" ", "-")}`);
    node.append(
      el("span", { class: "arrow", "aria-hidden": true }, opened ? "▾" : "▸"),
      el("span", { class: "words" }, `${words} ${kind} ${how}`),
      summary === null ? "" : el("span", { class: "way", "data-summary": summary, title: `Summary ${idOf(summary)} replaces them` }, idOf(summary)),
      el("span", { class: "grow" }),
      el("span", { class: "number" }, short(tokens)),
    );
  }

  fillEvent(node, { id, mark, inside, snippet }) {
    const { history, source } = this.app;
    const version = this.app.hits ? this.app.version : (this.app.compared?.[1] ?? this.app.version);
    const group = history.group(id);
    const tokens = history.tokens(id);
    const state = history.state(id, version);
    node.classList.add(`g${group}`, `s-${state.replace(" ", "-")}`);
    if (inside) node.classList.add("inside");
    if (snippet !== undefined) node.classList.add("found");
    if (mark) node.classList.add(mark === "+" ? "entered" : "left");
    const bar = el("span", { class: "bar", "aria-hidden": true });
    bar.style.width = `${Math.max(1, Math.round((22 * tokens) / this.most))}px`;
    const kind = history.kind(id);
    const gist = el("bdi", { class: kind === "action" || kind === "observation" || kind === "error" ? "gist code" : "gist" });
    node.append(...[
      mark ? el("span", { class: "mark", role: "img", "aria-label": mark === "+" ? "entered" : "left" }, mark) : el("span", { class: "mark" }),
      el("span", { class: "id" }, idOf(id)),
      el("span", { class: "color", "aria-hidden": true }),
      el("span", { class: "kind" }, kind),
      gist,
      WORTH_SAYING.has(state) || (snippet !== undefined && state !== "sent") ? el("span", { class: "state" }, state) : null,
      el("span", { class: "number" }, bar, el("span", { class: "tokens" }, short(tokens))),
    ].filter(Boolean));
    if (snippet !== undefined) this.highlight(gist, snippet);
    else this.fillGist(gist, id);
    if (id >= 0 && source.gist(id) === undefined) source.loadGists(history.came(id)).then((loaded) => loaded && this.app.changed("gists"));
  }

  fillGist(gist, id) {
    const text = id < 0 ? this.app.history.summaryOf.get(id).gist : this.app.source.gist(id);
    if (text === undefined) gist.classList.add("waiting");
    if (text === "") gist.append(el("span", { class: "soft" }, "no text"));
    else gist.textContent = printable(text ?? "");
  }

  highlight(node, text) {
    const lower = text.toLowerCase();
    const spots = [];
    for (const word of this.app.words) {
      for (let at = lower.indexOf(word); at >= 0 && word; at = lower.indexOf(word, at + word.length)) spots.push([at, at + word.length]);
    }
    spots.sort((a, b) => a[0] - b[0]);
    node.append(...withMarks(text, spots));
  }

  open(place) {
    const entry = this.entries[place];
    if (!entry) return;
    this.current = nameOf(entry);
    if (entry.pieces) this.app.toggleGap(entry.gap);
    else if (entry.border) this.toParent(entry.border);
    else this.app.choose(entry.id);
  }

  // Bring an event into sight, and say if it has a line.
  reveal(id) {
    let place = this.entries.findIndex((entry) => entry.id === id);
    if (place < 0) {
      const gap = this.entries.find((entry) => entry.pieces && this.app.history.idsIn(entry).includes(id));
      if (gap && !this.app.opened.has(gap.gap)) {
        this.app.opened.add(gap.gap);
        this.app.showList();
        place = this.entries.findIndex((entry) => entry.id === id);
      }
    }
    if (place < 0) return false;
    this.scrollTo(place);
    return true;
  }

  scrollTo(place) {
    // On a phone the page stays where it is: its list may be hidden behind the details.
    if (phone.matches && document.activeElement !== this.node) return;
    const wanted = place * this.row;
    const { top, height } = this.sight;
    if (wanted < top || wanted + this.row > top + height) this.sight.top = Math.max(0, wanted - height / 3);
  }

  // Up and down go through all lines. Enter opens what is forgotten, follows a fork to its parent, and goes to the text
  // of an event.
  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const at = this.place();
    if (!step && (at < 0 || (event.key !== "Enter" && event.key !== " "))) return;
    event.preventDefault();
    event.stopPropagation();
    const entry = this.entries[at];
    if (step) this.moveTo(at < 0 ? (step > 0 ? 0 : this.entries.length - 1) : at + step);
    else if (entry.id !== undefined) this.app.read(entry.id);
    else this.open(at);
  }

  // Go to the page of the conversation that a fork shares its past with, where there is one.
  toParent({ parent, parent_version: version }) {
    const href = this.app.source.address?.(parent, version);
    if (href) location.assign(href);
    else this.app.showList();
  }

  moveTo(place) {
    const entry = this.entries[place];
    if (!entry) return;
    this.current = nameOf(entry);
    if (entry.id !== undefined) this.app.choose(entry.id);
    else this.app.showList();
    this.scrollTo(place);
  }
}

/** @param {{ id?: number, gap?: number, border?: any }} entry */
function nameOf({ id, gap, border }) {
  return id !== undefined ? `event ${id}` : border ? `border ${border.parent_version} ${border.parent}` : `gap ${gap}`;
}

const WORTH_SAYING = new Set(["damaged", "pending", "unsent", "masked", "taken back"]);
