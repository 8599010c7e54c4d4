// All conversations of a store, and the figures over all of them.

import { ask, bytes, costWords, count, el, eventsAndSummaries, grouped, idOf, isTyped, keep, kept, Live, moment, money, phone, plus, printable, refill, said, savingMeans, short, Sight, wanted, withMarks } from "./dom.js";
import { themeButton, watchTheme } from "./theme.js";
import { distinguished } from "./titles.js";

/** @type {[string, string, (one: any) => any, string][]} */
const COLUMNS = [
  ["title", "Conversation", (one) => (one.title ?? one.conversation).toLowerCase(), "By title"],
  ["events", "Events", (one) => one.events ?? one.version, "Events, without copies and those that imports took back"],
  ["sent", "Sent", (one) => (one.sent_events == null ? null : one.sent_events + one.sent_summaries), "Events + summaries that the model is sent now. Pending events are not sent."],
  ["tokens", "Tokens", (one) => one.tokens ?? null, "Tokens that the model is sent now. ≈ are estimated."],
  ["condensations", "Condensations", (one) => one.condensations ?? null, "Condensations"],
  ["tokens_saved", "Saved", (one) => one.tokens_saved ?? null, "Tokens that condensations saved. ≈ are estimated."],
  ["errors", "Errors", (one) => one.errors ?? null, "Results of calls that their source marks as errors"],
  ["cost", "Cost", (one) => one.spent?.cost ?? null, "What all calls of models cost: ≈ at the prices of a table"],
  ["updated_at", "Last event", (one) => timeOf(one), "Time of the last event. Conversations without times come last."],
];

const SORT = "updated_at"; // falling, unless the reader chooses another order

export class Overview {
  constructor(root) {
    this.root = root;
    this.sort = SORT;
    this.falling = true;
    this.words = "";
    this.rows = [];
    this.found = null; // the conversations of the events found, once the search was answered
    this.reply = null;
    this.names = new Map();
    this.nodes = new Map();
  }

  async start() {
    this.build();
    this.readAddress();
    watchTheme(() => {});
    addEventListener("hashchange", () => this.readAddress());
    await this.refresh();
    if (this.words) this.search(this.box.value.trim());
    const stream = new EventSource("api/follow");
    stream.addEventListener("version", () => this.follow());
    stream.addEventListener("error", () => this.live.set(false));
    stream.addEventListener("open", () => this.live.set(true));
    addEventListener("keydown", (event) => {
      if (event.key === "/" && !isTyped(event)) {
        event.preventDefault();
        this.box.focus();
      }
    });
  }

  // Ask again, and once more while figures are still counted or were not answered.
  async refresh() {
    if (this.asking) return;
    this.asking = true;
    let isFinal = false;
    try {
      const [list, fleet] = await Promise.all([ask("conversations"), ask("fleet")]);
      this.all = list.conversations;
      this.names = distinguished(this.all);
      this.showFleet(fleet);
      if (this.reply) this.showHits();
      this.choose();
      this.counted = Math.min(list.counted, fleet.counted); // either may be the older one
      isFinal = this.counted >= list.total;
    } finally {
      this.asking = false;
      clearTimeout(this.again);
      if (!isFinal) this.again = setTimeout(() => this.follow(), 700);
    }
  }

  // Refresh what is shown already. Where that fails it stays, and the reader sees that it is not live.
  async follow() {
    try {
      await this.refresh();
      this.live.set(true);
    } catch (error) {
      this.live.set(false, error.message);
    }
  }

  build() {
    this.live = new Live();
    this.progress = el("progress", { "aria-label": "Conversations counted" });
    this.counting = el("p", { class: "counting", hidden: true }, this.progress, el("span"));
    this.box = el("input", {
      type: "search", placeholder: "Search all conversations", "aria-label": "Search all conversations", autocomplete: "off", spellcheck: "false",
      oninput: () => {
        this.words = this.box.value.toLowerCase();
        this.choose();
        this.writeAddress();
        clearTimeout(this.typing);
        this.typing = setTimeout(() => this.search(this.box.value.trim()), 250);
      },
    });
    this.status = el("span", { class: "status", role: "status" });
    this.tiles = el("div", { class: "tiles" });
    this.panels = el("div", { class: "panels" });
    this.more = el("details", { class: "more", open: !phone.matches }, el("summary", {}, "Savings by reason"), this.panels);
    phone.addEventListener("change", () => (this.more.open = !phone.matches));
    this.fleet = el("section", { class: "fleet", "aria-label": "Figures over all conversations" }, this.counting, this.tiles, this.more);
    this.hits = el("section", { class: "hits", "aria-label": "Events that contain the words", hidden: true });
    this.buttons = new Map(COLUMNS.map(([name, , , title]) => [name, el("button", { class: "sort", title, onclick: () => this.sortBy(name) })]));
    this.head = el("div", { class: "row head", role: "group", "aria-label": "Order of the conversations" },
      ...COLUMNS.map(([name]) => el("span", { class: `cell c-${name}` }, this.buttons.get(name))));
    this.inner = el("div", { class: "lines", role: "presentation" });
    this.list = el("div", { class: "rows", "aria-label": "Conversations", onkeydown: (event) => this.key(event) }, this.inner);
    this.sight = new Sight(this.list, this.inner, () => this.draw());
    new ResizeObserver(() => this.stayInSight()).observe(this.list);
    phone.addEventListener("change", () => this.all && this.choose());
    this.root.replaceChildren(
      el("header", {}, el("h1", {}, "foldlog"), this.live.node, el("span", { class: "grow" }), el("div", { class: "search" }, this.status, this.box), themeButton()),
      el("main", { class: "overview" }, this.fleet, this.hits, el("section", { class: "conversations" }, this.head, this.list)),
    );
  }

  // The address keeps the words and the order, so that a reload and the way back show the same list.
  writeAddress() {
    const parts = new URLSearchParams();
    if (this.box.value) parts.set("words", this.box.value);
    if (this.sort !== SORT || !this.falling) parts.set("sort", `${this.falling ? "-" : ""}${this.sort}`);
    const hash = parts.size ? `#${parts}` : "";
    history.replaceState(null, "", `${location.pathname}${location.search}${hash}`);
    keep("sessionStorage", HOME, hash);
  }

  readAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    const sort = given.get("sort") ?? `-${SORT}`;
    const name = sort.replace(/^-/, "");
    if (COLUMNS.some(([column]) => column === name)) [this.sort, this.falling] = [name, name !== sort];
    this.box.value = given.get("words") ?? "";
    this.words = this.box.value.toLowerCase();
    keep("sessionStorage", HOME, location.hash);
    this.fleet.hidden = Boolean(this.words.trim());
    if (this.all) this.search(this.box.value.trim());
  }

  showFleet(fleet) {
    this.importing = fleet.import_command;
    this.about = fleet.tokens_are === "counted" ? "" : "≈ ";
    const tile = (name, value, title, partial = false) => el("div", { class: partial ? "tile partial" : "tile", title }, el("b", {}, value, partial ? el("small", {}, " so far") : ""), el("span", {}, name));
    const { condensations, conversations, counted, needs_key: locked, without_usage: silent, without_cost: unpriced } = fleet;
    const counting = counted < conversations;
    // A figure that reads conversations is not final while some are not counted.
    const soFar = (name, value, title) => tile(name, value, title, counting);
    const unknown = [silent && `${short(silent)} without usage`, unpriced && `${short(unpriced)} with calls that have no price`].filter(Boolean).join(", ");
    const most = Math.max(1, ...fleet.reasons.map((each) => each.tokens_saved ?? 0));
    const bar = (part) => {
      const node = el("span", { class: "meter", "aria-hidden": true });
      node.style.width = `${Math.max(0, Math.round(part * 100))}%`;
      return el("span", { class: "track" }, node);
    };
    const heading = (name) => el("h2", {}, name, counting ? el("span", { class: "soft" }, " so far") : "");
    const means = savingMeans(fleet.counted_as);
    refill(
      this.tiles,
      tile(`${conversations === 1 ? "conversation" : "conversations"}${locked ? `, ${short(locked)} without a key` : ""}`, short(conversations)),
      soFar(fleet.events === 1 ? "event" : "events", short(fleet.events), "Events of all conversations, without copies and those that imports took back"),
      tile("in the store", fleet.bytes === null ? "–" : bytes(fleet.bytes), "The store's file with its log (-wal)"),
      soFar("tokens sent now", `${this.about}${short(fleet.view_tokens)}`, "Tokens that the newest Views of all conversations send to a model"),
      soFar(condensations === 1 ? "condensation" : "condensations", short(condensations)),
      soFar("tokens saved", this.saved(fleet), `Tokens saved: ${means}`),
      soFar(`cost of ${tokensSpent(fleet.spent) ?? "all calls"}`, costWords(fleet.spent), `What all calls of models used and cost, a reply once, by its ids: ≈ at the prices of a table (foldlog serve --prices FILE)${unknown ? `; of ${count(conversations, "conversation")}, ${unknown}` : ""}`),
      ...(unknown ? [tile(`of ${count(conversations, "conversation")}`, unknown, "Their tokens or costs are not known, and in no sum")] : []),
      soFar("cost of condensing", !condensations || fleet.cost === null ? "–" : money(fleet.cost), "What the models of condensations cost, where they recorded it"),
    );
    refill(
      this.panels,
      el("div", { class: "panel" }, heading("Tokens saved by reason"),
        ...(fleet.reasons.length
          ? [el("dl", { class: "meters reasons" }, ...fleet.reasons.slice(0, 6).flatMap((each) => [el("dt", {}, said(each.reason), el("span", { class: "soft" }, ` · ${count(each.condensations, "condensation")}`)), el("dd", {}, bar((each.tokens_saved ?? 0) / most), el("span", { class: "figure" }, this.saved(each)))])), el("p", { class: "soft" }, `Tokens saved: ${means}.`)]
          : [el("p", { class: "soft" }, "No condensation yet.")])),
    );
    this.counting.hidden = !counting;
    this.progress.max = conversations;
    this.progress.value = counted;
    this.counting.lastChild.textContent = `Still counting: ${grouped(counted)} of ${count(conversations, "conversation")}. Figures marked “so far” change until all are counted.`;
  }

  // Tokens that condensations saved, in the one measure of the page.
  saved({ tokens_saved: tokens }) {
    return tokens === null ? "–" : `${this.about}${short(tokens)}`;
  }

  // The conversations that match, in the order that is chosen.
  choose() {
    const words = wanted(this.words);
    const matching = this.all.filter((one) => {
      const text = `${one.title ?? ""} ${one.conversation} ${one.format ?? ""}`.toLowerCase();
      return words.every((word) => text.includes(word)) || this.found?.has(one.conversation);
    });
    const key = COLUMNS.find(([name]) => name === this.sort)[2];
    const order = this.falling ? -1 : 1;
    const keys = new Map(matching.map((one) => [one, key(one)]));
    // What is not known comes last in either order.
    this.rows = matching.sort((one, other) => {
      const [a, b] = [keys.get(one), keys.get(other)];
      return a === null || b === null ? Number(a === null) - Number(b === null) : a < b ? -order : a > b ? order : 0;
    });
    for (const [name, title] of COLUMNS) {
      const button = this.buttons.get(name);
      const chosen = name === this.sort;
      button.setAttribute("aria-pressed", chosen);
      button.textContent = `${title}${chosen ? (this.falling ? " ↓" : " ↑") : ""}`;
      button.setAttribute("aria-label", chosen ? `${title}, ${this.falling ? "falling" : "rising"}` : title);
    }
    this.inner.style.height = `${this.rows.length * rowHeight()}px`;
    this.status.textContent = words.length ? count(this.rows.length, "conversation") : "";
    this.list.setAttribute("role", this.rows.length ? "list" : "group");
    this.list.querySelector(".empty")?.remove();
    if (!this.rows.length) this.list.append(this.all.length ? el("p", { class: "empty" }, "No conversation matches.") : el("div", { class: "empty" }, el("p", {}, "The store has no conversations yet. Import some:"), el("pre", { class: "code" }, this.importing)));
    this.stay();
    this.draw();
  }

  // Where the keyboard is in a row that has another place now, scroll with it.
  stay() {
    for (const [id, { node, place }] of this.nodes) {
      if (!node.contains(document.activeElement)) continue;
      const now = this.rows.findIndex((one) => one.conversation === id);
      if (now >= 0 && now !== place && !phone.matches) this.list.scrollTop += (now - place) * rowHeight();
    }
  }

  // A figure above the list may take a line of its height: keep the row of the keyboard in sight, if it was.
  stayInSight() {
    const place = this.focused()?.place;
    const was = this.sight.top + this.height;
    this.height = this.sight.height;
    if (place !== undefined && !phone.matches && (place + 1) * rowHeight() <= was + 1) this.bring(place);
  }

  // Scroll as little as brings a row into sight.
  bring(place) {
    const [top, bottom] = [place * rowHeight(), (place + 1) * rowHeight()];
    if (top < this.sight.top) this.sight.top = top;
    else if (bottom > this.sight.top + this.sight.height) this.sight.top = bottom - this.sight.height;
  }

  // The row that has the keyboard, if one has it.
  focused() {
    return Array.from(this.nodes.values()).find(({ node }) => node.contains(document.activeElement));
  }

  // The title of a conversation as elements, with what tells it from others that begin alike.
  nameOf({ conversation: id, title = undefined }) {
    const { name, start, tag } = this.names.get(id) ?? { name: title ?? id, start: "", tag: "" };
    return [tag && said(tag, "span", { class: "tag" }), tag && el("span", { class: "told" }, ": "), start && said(printable(`${start} `), "span", { class: "start" }), said(printable(name))].filter(Boolean);
  }

  sortBy(name) {
    this.falling = this.sort === name ? !this.falling : name !== "title";
    this.sort = name;
    this.choose();
    this.writeAddress();
    this.list.scrollTop = 0;
  }

  // Draw the rows in sight. That with the keyboard stays where it is, and the others move around it to where they are read.
  draw() {
    const height = rowHeight();
    const { top, height: seen } = this.sight;
    const first = Math.max(0, Math.floor(top / height) - 20);
    const last = Math.min(this.rows.length, Math.ceil((top + seen) / height) + 20);
    const before = this.nodes;
    this.nodes = new Map();
    for (let place = first; place < last; place += 1) {
      const one = this.rows[place];
      const told = JSON.stringify([one, this.names.get(one.conversation)]);
      const known = before.get(one.conversation);
      before.delete(one.conversation);
      const node = known?.told === told ? known.node : this.row(one);
      node.style.transform = `translateY(${place * height}px)`;
      node.setAttribute("aria-setsize", this.rows.length);
      node.setAttribute("aria-posinset", place + 1);
      if (known && known.node !== node) {
        const focused = known.node.contains(document.activeElement);
        known.node.replaceWith(node);
        if (focused) node.firstChild.focus({ preventScroll: true });
      } else if (!known) this.inner.append(node);
      this.nodes.set(one.conversation, { node, told, place });
    }
    for (const { node } of before.values()) node.remove();
    const nodes = Array.from(this.nodes.values(), ({ node }) => node);
    if (nodes.every((node, place) => node === this.inner.children[place])) return;
    const stays = Math.max(0, nodes.findIndex((node) => node.contains(document.activeElement)));
    this.inner.prepend(...nodes.slice(0, stays));
    this.inner.append(...nodes.slice(stays + 1));
  }

  // Up, down, Home and End go through the conversations.
  key(event) {
    const focused = this.focused();
    if (!focused) return;
    const last = this.rows.length - 1;
    const place = { ArrowDown: focused.place + 1, ArrowUp: focused.place - 1, Home: 0, End: last }[event.key];
    if (place === undefined) return;
    event.preventDefault();
    const wanted = Math.min(last, Math.max(0, place));
    this.bring(wanted);
    this.draw();
    this.nodes.get(this.rows[wanted].conversation).node.firstChild.focus({ preventScroll: true });
  }

  row(one) {
    const known = one.sent_events !== undefined;
    const figure = (value, text = short) => (!known ? "…" : value === null || value === undefined ? "–" : text(value));
    const fork = one.parent && `fork of ${one.parent} at version ${grouped(one.parent_version)}`;
    const time = moment(timeOf(one), "").slice(0, 16);
    const told = (words) => el("span", { class: "told" }, words);
    const cell = (name, text, unit, before = "") => el("span", { class: `cell c-${name}` }, told(before), text, el("span", { class: "told unit" }, ` ${unit}`), told(", "));
    const condensed = known && one.condensations;
    return el("div", { class: "item", role: "listitem" }, el("a", { class: "row", href: address(one.conversation) },
      el("span", { class: "cell c-title" },
        el("span", { class: "name", title: printable(one.title ?? one.conversation) }, ...this.nameOf(one), told(", ")),
        el("span", { class: "under" }, one.problem ? el("span", { class: "problem" }, said(one.problem)) : said([one.conversation, one.format === "foldlog" ? "" : one.format, fork, one.attributes?.incomplete].filter(Boolean).join(" · ")), told(", "))),
      cell("events", grouped(one.events ?? one.version), (one.events ?? one.version) === 1 ? "event" : "events"),
      el("span", { class: "cell c-sent" }, ...(known && one.sent_events !== null ? [el("span", { "aria-hidden": true }, plus(one.sent_events, one.sent_summaries)), told(eventsAndSummaries(one.sent_events, one.sent_summaries)), el("span", { class: "told unit" }, " sent"), told(", ")] : [known ? "–" : "…"])),
      cell("tokens", figure(one.tokens, (tokens) => `${this.about}${short(tokens)}`), "tokens"),
      cell("condensations", figure(one.condensations, grouped), one.condensations === 1 ? "condensation" : "condensations"),
      el("span", { class: "cell c-tokens_saved" }, ...(condensed ? [this.saved(one), el("span", { class: "told unit" }, " saved"), told(", ")] : known ? "" : ["…"])),
      cell("errors", figure(one.errors, grouped), one.errors === 1 ? "error" : "errors"),
      el("span", { class: "cell c-cost", title: tokensSpent(one.spent) ?? "Tokens spent are not known" }, el("span", { class: "told unit" }, "cost "), known && one.spent !== undefined ? costWords(one.spent) : "…", told(", ")),
      el("span", { class: "cell c-updated_at", title: hasNoZone(one) ? "Its source names no zone" : "" }, told("last event "), ...(time ? [el("span", {}, time.slice(0, 10)), el("span", { class: "hour" }, time.slice(10))] : [el("span", { class: "soft" }, known ? "no times" : "…")]))));
  }

  // Search the texts of all events, where the store has an index of them.
  async search(words) {
    this.found = this.reply = null;
    this.hits.hidden = true;
    this.fleet.hidden = Boolean(words);
    if (!words) return this.choose();
    try {
      const reply = await ask(`search?${new URLSearchParams({ words, limit: String(MOST_ASKED) })}`);
      if (words !== this.box.value.trim()) return;
      this.reply = reply;
      this.found = new Set(reply.hits.map((hit) => hit.conversation));
      this.showHits();
      this.choose();
    } catch (error) {
      this.hits.hidden = false;
      this.hits.replaceChildren(el("p", { class: "soft" }, said(`Titles and ids only: ${error.message}`)));
    }
  }

  showHits() {
    const { hits } = this.reply;
    this.hits.hidden = false;
    refill(
      this.hits,
      hits.length ? el("h2", {}, hits.length > MOST_HITS ? `The ${MOST_HITS} best of ${this.reply.more ? "more than " : ""}${grouped(hits.length)} events with whole words` : `${count(hits.length, "event")} with whole words`) : el("p", { class: "soft" }, "No event contains these words."),
      el("p", { class: "soft rule" }, "Events that contain all of the words, in any order and form. “In quotes”: side by side. begin*: words that begin so. A conversation’s own search finds parts of words too."),
      ...(hits.length < MOST_ASKED ? [] : [el("p", { class: "soft" }, `There are more than ${grouped(MOST_ASKED)}: below are the conversations of the best ${grouped(MOST_ASKED)} only.`)]),
      ...hits.slice(0, MOST_HITS).map((hit) =>
        el("a", { class: "hit", href: address(hit.conversation, hit.event) }, el("b", {}, ...this.nameOf({ conversation: hit.conversation })), el("span", { class: "soft" }, `${hit.kind} ${idOf(hit.event)}`), marked(hit.snippet, hit.highlights))),
    );
  }
}

const BEFORE = 32; // characters of a snippet before the first word found
const MOST_HITS = 50; // of those that are shown
const MOST_ASKED = 1000; // of those whose conversations are listed: the most that the server gives

// A snippet with what was found in it, which is near its beginning so that a narrow line shows it.
function marked(text, highlights) {
  const node = el("bdi", { class: "snippet" });
  let start = 0;
  const [first] = highlights[0] ?? [0];
  if (first > BEFORE) {
    start = text.indexOf(" ", first - BEFORE) + 1;
    if (start < 1 || start > first) start = first - BEFORE;
    node.append("…");
  }
  node.append(...withMarks(text, highlights, start));
  return node;
}

// The tokens of calls, in and out, as far as they are told.
const tokensSpent = (spent) => typeof spent?.prompt_tokens === "number" ? `${short(spent.prompt_tokens + (spent.completion_tokens ?? 0))} tokens spent` : null;

const HOME = "foldlog-home";

// The way back from a conversation to the list, with its words and its order.
export const homeAddress = () => `./${kept("sessionStorage", HOME) ?? ""}`;

const address = (id, event) => `./?${new URLSearchParams({ id })}${event === undefined ? "" : `#e=${event}`}`;

// The time of the last event in milliseconds; null where the source names no times, or they are not read yet.
function timeOf(one) {
  if (!one.last_event_at) return null;
  const at = Date.parse(hasNoZone(one) ? `${one.last_event_at}Z` : one.last_event_at);
  return Number.isNaN(at) ? null : at;
}

const hasNoZone = (one) => Boolean(one.last_event_at) && !/[zZ]|[+-]\d\d:?\d\d$/.test(one.last_event_at);
const rowHeight = () => phone.matches ? 100 : 44;
