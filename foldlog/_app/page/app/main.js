// The page of one run. ``App`` knows the open version and the chosen event, and calls the parts that draw them.

import { Agents } from "./agents.js";
import { Chart, ROOMY } from "./chart.js";
import {
  Live,
  count,
  duration,
  el,
  eventsAndSummaries,
  grouped,
  idOf,
  isTyped,
  keep,
  kept,
  moment,
  money,
  numberIn,
  phone,
  plus,
  printable,
  refill,
  said,
  sentence,
  short,
  terms,
  tokenCount,
  wanted,
} from "./dom.js";
import { History, remembered } from "./history.js";
import { Comparison } from "./compare.js";
import { Runs, homeAddress } from "./runs.js";
import { Knew } from "./knew.js";
import { Marks } from "./marks.js";
import { Notes } from "./notes.js";
import { Opening } from "./opening.js";
import { Strip } from "./strip.js";
import { Transcript } from "./transcript.js";
import { Embedded, Server } from "./sources.js";
import { lineOf } from "./texts.js";
import { Why } from "./why.js";

const MODELS_NAMED = 2; // The line of facts names this number of models.

class App {
  constructor(source, root) {
    this.source = source;
    this.root = root;
    this.version = 0;
    this.from = null; // the version that is compared with the open version
    this.onlyChanges = true; // in a comparison, whether only the events that differ are shown
    this.event = null;
    this.words = [];
    this.hits = null;
    this.tab = kept("sessionStorage", TAB) === "memory" ? "memory" : "transcript";
    this.waiting = new Set(); // What the next frame shows: see ``changed``.
    this.removals = new Map(); // For each condensation and retraction, what it removed.
    this.loads = 0; // The number of times that the page loaded what stands beside the events.
    this.loadOfPart = new Map(); // For each part beside the events, the load from which the page shows it.
    this.strip = new Strip(this);
    this.chart = new Chart(this);
    this.why = new Why(this);
    this.agents = new Agents(this);
    this.transcript = new Transcript(this);
    this.knew = new Knew(this);
    this.notes = new Notes(this);
  }

  async start() {
    const opening = new Opening(this.source, this.root);
    const loading = await this.source.history().finally(() => opening.end());
    this.history = new History(loading);
    this.marks = new Marks(this.history);
    this.version = this.history.version;
    const page = this.build();
    this.readAddress();
    this.transcript.open(this.history);
    const event = this.event ?? this.version - 1;
    await this.transcript.loadAround(event); // Then nothing moves after the page is shown.
    this.root.replaceChildren(...page);
    this.chart.open(this.history);
    this.chart.reveal(this.version);
    this.transcript.reveal(event);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.chart.readColors();
      this.changed("size");
    });
    addEventListener("keydown", (event) => this.key(event));
    addEventListener("hashchange", () => this.readAddress());
    this.changed("size", "moment", "chosen");
    this.draw();
    this.loadBeside();
    this.source.follow?.({
      changed: (present) => this.follow(present),
      connected: (yes, why) => this.live.set(yes, why),
      gone: (why) => this.root.replaceChildren(...failure(new Error(why))),
    });
  }

  // Load what the page shows without waiting: the notes, the task with its agents, the terms that were needed again,
  // and the models. Notes and task are drawn when they come. The names and marks below need the terms and the models,
  // so these are loaded one after the other.
  async loadBeside() {
    const { source, history } = this;
    const { redactions } = history;
    const number = (this.loads += 1);
    this.isIncomplete = false;
    const show = async (part, loading, take) => {
      let found;
      try {
        found = await loading;
      } catch (error) {
        this.isIncomplete = true; // ``follow`` loads all parts again.
        this.live.set(false, error.message);
        return;
      }
      // The answer to a later load may have come first. An answer from before a redaction may have the redacted text.
      if (number < (this.loadOfPart.get(part) ?? 0) || history.redactions !== redactions) return;
      this.loadOfPart.set(part, number);
      take(found);
      this.changed("beside", "chosen");
    };
    const notes = this.notes.all;
    show("notes", source.notes(), (found) => {
      if (this.notes.all === notes) this.notes.all = found; // or else the reader has changed a note meanwhile
    });
    if (source.task) {
      show("task", source.task(), (task) => {
        this.agents.take(task);
        this.transcript.again();
        this.showChild();
      });
    }
    await show("dropped", source.dropped(), (dropped) => this.marks.take(dropped));
    if (source.models) await show("models", source.models(), (models) => (history.models = models));
    this.nameIt();
    this.showMarks();
  }

  // -- what can happen ------------------------------------------------------------------------------------------------

  // Show one of two pictures above the transcript: the run over time, or what the model remembered.
  showPage(tab) {
    this.tab = tab;
    keep("sessionStorage", TAB, tab);
    this.main.dataset.tab = tab;
    for (const [name, button] of Object.entries(this.pages)) button.setAttribute("aria-pressed", name === tab);
    this.toRead = this.event ?? this.version - 1;
    this.changed("size", "moment", "chosen");
  }

  // A phone shows one of two parts below the picture: the transcript, or what the model knew.
  showPart(part) {
    this.main.dataset.part = part;
    for (const [name, button] of Object.entries(this.parts)) button.setAttribute("aria-pressed", name === part);
    if (phone.matches && part === "knew")
      scrollTo(0, Math.min(scrollY, this.main.offsetTop + this.partsNode.offsetTop));
    if (part === "text") this.toRead = this.event ?? this.version - 1;
    this.changed("size");
  }

  // Open a version, and choose an event.
  go(version, chosen = this.event) {
    this.notice.textContent = "";
    this.version = Math.max(0, Math.min(this.history.version, version));
    this.event = chosen;
    this.chart.reveal(this.version);
    this.changed("moment", "chosen");
  }

  // Open a version, and scroll to the event that made this version.
  goTo(version) {
    this.go(version, null);
    this.toRead = Math.max(0, version - 1);
  }

  // Open a version. In Memory the chosen event stays chosen. In the transcript, scroll to the event that made the
  // version.
  show(version) {
    if (this.tab === "memory") this.go(version);
    else this.goTo(version);
  }

  // Choose an event. If the agent wrote it, open the version that the agent saw then, or else the version that it made.
  goToEvent(id, reveals = true) {
    const { history } = this;
    const came = history.came(id);
    this.go(history.isOfAgent(id) && id >= 0 ? came : came + 1, id);
    if (reveals) this.read(id);
  }

  // Choose an event. By default, the open version stays open.
  choose(id, version = this.version) {
    this.go(version, id);
    if (id !== null) this.read(id);
  }

  // Scroll to an event.
  read(id) {
    this.toRead = id;
    if (phone.matches && !this.hits) this.showPart("text");
  }

  // Go to the next or the previous mark of a kind, such as an error, counted from the chosen event.
  nextMark(kind, step) {
    const ids = this.marks.ids(kind);
    if (!ids.length) return;
    const at = this.event ?? (step > 0 ? -1 : this.history.version);
    const next = step > 0 ? (ids.find((id) => id > at) ?? ids[0]) : (ids.findLast((id) => id < at) ?? ids.at(-1));
    this.goToEvent(next);
    this.say(`${ids.indexOf(next) + 1} of ${count(ids.length, MARKS[kind])}`);
  }

  // Show words at the edge of the page for a moment.
  say(words) {
    clearTimeout(this.saying);
    this.toast.textContent = words;
    this.saying = setTimeout(() => (this.toast.textContent = ""), 2500);
  }

  async copyLink() {
    clearTimeout(this.addressing);
    history.replaceState(null, "", this.address());
    try {
      await navigator.clipboard.writeText(location.href);
      this.say("The link is copied");
    } catch {
      this.say("The browser did not copy the link: copy it from the address bar");
    }
  }

  // A note was changed.
  noted(event) {
    this.transcript.refresh(event);
    this.changed("chosen", "beside");
  }

  // Let the reader write the note of the chosen event.
  note() {
    this.showPart("knew");
    requestAnimationFrame(() => this.knew.node.querySelector("textarea")?.focus());
  }

  // Compare the open version with the version ``from``. If ``from`` is null, stop comparing.
  compare(from, to = this.version, chosen = this.event) {
    this.from = from;
    this.onlyChanges = true;
    this.go(to, chosen);
    this.changed("blocks");
    if (from !== null) this.showPage("memory");
  }

  // During a comparison, show only the events that differ, or all events.
  showChanges(only) {
    this.onlyChanges = only;
    this.changed("blocks", "chosen");
  }

  // The two compared versions, the earlier version first.
  get compared() {
    return this.from === null ? null : [Math.min(this.from, this.version), Math.max(this.from, this.version)];
  }

  // Load events until the page has the version that the server has. The conversation may change again during the load.
  async follow(present) {
    this.present = present;
    if (this.following) return;
    this.following = true;
    try {
      while (this.isBehind()) {
        const { version, redactions, borders } = this.history;
        await this.grow();
        const { history } = this;
        if (
          history.version === version &&
          history.redactions === redactions &&
          history.borders.length === borders.length
        )
          break;
      }
      this.live.set(true);
      // The server answers again, so load what an earlier request did not get.
      this.transcript.loadMissing();
      if (this.isIncomplete) this.loadBeside();
    } catch (error) {
      // The page stays as it is. After the next message of the server, it tries again.
      this.live.set(false, error.message);
    } finally {
      this.following = false;
    }
  }

  isBehind() {
    const { version, redactions, borders } = this.history;
    return (
      this.present.version > version || this.present.redactions > redactions || this.present.borders < borders.length
    );
  }

  // Load the new events, and stay at the end if the reader is there. Load all events again if the content of an event
  // was erased. In a fork, this includes the events that it shares with its parent.
  async grow() {
    const { present, history } = this;
    const again = present.redactions !== history.redactions || present.borders !== history.borders.length;
    const news = await this.source.history(again ? 0 : history.version);
    const atEnd = this.version === history.version;
    const whole = this.chart.isWhole;
    const span = this.chart.window[1] - this.chart.window[0];
    const changed = again || news.redactions !== history.redactions;
    history.add(changed && !again ? await this.source.history() : news);
    if (changed) this.transcript.forget();
    this.marks = new Marks(history);
    const isRead = atEnd && this.event === null;
    this.transcript.open(history);
    if (isRead) this.toRead = history.version - 1;
    this.loadBeside();
    this.showMarks();
    this.removals.clear();
    if (whole && this.history.byCame.length <= ROOMY) this.chart.window = [0, this.history.version + 1];
    else if (atEnd) this.chart.window = [Math.max(0, this.history.version + 1 - span), this.history.version + 1];
    if (atEnd) this.version = this.history.version;
    this.chart.open(this.history);
    this.nameIt();
    this.changed("size", "moment", "chosen");
  }

  // Find the events with the words of a text, or with this id, and show them as they are found.
  async find(text) {
    this.search?.abort();
    this.words = wanted(text);
    this.main.classList.toggle("searching", this.words.length > 0);
    this.hits = this.words.length ? [] : null;
    this.searched = false;
    this.problem = null;
    this.changed("beside", "chosen");
    if (!this.words.length) return;
    const search = (this.search = new AbortController());
    const { hits } = this;
    // If the reader searches for an id, the event with this id is the first hit.
    const id = numberIn(text.trim().replace(/^#/, ""));
    const isThere = id < this.history.version;
    if (isThere) {
      const [event] = await this.source.events(id, id + 1).catch(() => []);
      if (search.signal.aborted) return;
      hits.push({ id, snippet: event ? lineOf(event) : "" });
    }
    const isId = isThere && text.trim().startsWith("#");
    let drawn = 0;
    const take = (found, snippet) => {
      if (found !== id) hits.push({ id: this.shownAs(found), snippet });
      if (performance.now() - drawn < 150) return;
      drawn = performance.now();
      this.changed("chosen");
    };
    let problem = null;
    try {
      if (!isId) await this.source.search(text, take, search.signal);
    } catch (error) {
      problem = error.message;
    }
    if (search.signal.aborted) return; // The reader has changed the words since.
    this.problem = problem;
    this.searched = true;
    this.changed("chosen");
  }

  // For a condensation with a summary, return the id of the summary, because models are shown the summary.
  shownAs(id) {
    return this.history.summaryOf.has(-id - 2) ? -id - 2 : id;
  }

  // Choose the next or the previous hit of the search.
  nextHit(step) {
    if (!this.hits?.length) return;
    const { length } = this.hits;
    const at = this.hits.findIndex(({ id }) => id === this.event);
    const before = at < 0 && step > 0 ? -1 : Math.max(0, at); // Without a chosen hit, the first or the last one is next.
    this.choose(this.hits[(before + step + length) % length].id);
  }

  // Describe which events a condensation or a retraction removed from the View.
  removed(id) {
    return remembered(this.removals, id, Infinity, () => this.removalOf(id));
  }

  // The same, computed: ``removed`` remembers it.
  removalOf(id) {
    const { history } = this;
    const ids = history.removedBy.get(id) ?? [];
    const events = ids.filter((each) => each >= 0).length;
    const summaries = ids.length - events;
    const words = eventsAndSummaries(events, summaries);
    const before = history.total[id] ?? 0;
    const after = history.total[id + 1] ?? 0;
    const change = history.changes.get(id);
    const verb = change.kind === "retraction" ? "took back" : "forgot";
    return {
      words,
      before,
      after,
      count: plus(events, summaries),
      sent: [id, id + 1].map((version) => history.sentAt(version)),
      sentence:
        change.outcome === "declined"
          ? `Condensation ${idOf(id)} was declined.`
          : `At version ${grouped(id + 1)}, ${change.kind} ${idOf(id)} ${verb} ${words}: ${history.about}${short(before)} → ${short(after)} tokens.`,
    };
  }

  // -- drawing --------------------------------------------------------------------------------------------------------

  // Draw the parts of the page that show this, before the browser shows its next frame.
  changed(...what) {
    if (!this.waiting.size) requestAnimationFrame(() => this.draw());
    for (const name of what) this.waiting.add(name);
  }

  draw() {
    const { waiting } = this;
    const has = (...names) => names.some((name) => waiting.has(name));
    this.waiting = new Set();
    if (!this.chart.history) return;
    if (has("size", "strip", "window", "moment", "beside")) this.strip.draw();
    if (this.tab === "memory") {
      if (has("size", "window", "beside")) this.chart.drawData();
      this.chart.drawOver();
    }
    if (has("blocks") || (has("moment") && this.from !== null)) this.transcript.change();
    else if (has("size", "beside")) this.transcript.again();
    else if (has("moment", "chosen")) this.transcript.showStates();
    if (has("moment", "chosen", "beside", "blocks")) this.knew.show();
    if (has("moment")) this.showVersion();
    if (this.toRead !== undefined) {
      this.transcript.reveal(this.toRead);
      this.toRead = undefined;
    }
    if (has("moment", "chosen")) this.writeAddress();
  }

  // Show the open version in the bar, and disable the buttons that lead nowhere.
  showVersion() {
    const { history, version } = this;
    if (document.activeElement !== this.number) this.number.value = grouped(version);
    this.steps.back.setAttribute("aria-disabled", version === 0);
    for (const button of [this.steps.on, this.steps.newest])
      button.setAttribute("aria-disabled", version === history.version);
    this.tell();
  }

  // Tell screen readers the version after it has been open for a moment.
  tell() {
    const { version, history } = this;
    clearTimeout(this.telling);
    this.telling = setTimeout(() => {
      const { events, summaries } = history.sentAt(version);
      const words = `Version ${grouped(version)} of ${grouped(history.version)}. The model is sent ${eventsAndSummaries(events, summaries)}, ${history.about}${tokenCount(history.total[version] ?? 0)}.`;
      if (this.told.textContent !== words) this.told.textContent = words;
    }, 200);
  }

  // A link that goes to an event.
  way(id, words = idOf(id), kind = "") {
    return el("button", { class: `link ${kind}`, onclick: () => this.goToEvent(id) }, words);
  }

  // -- building -------------------------------------------------------------------------------------------------------

  build() {
    this.heading = el("h1");
    this.facts = el("p", { class: "facts" });
    this.nameIt();
    this.live = new Live();
    this.box = el("input", {
      type: "search",
      placeholder: "Search",
      title: RULE,
      "aria-label": "Search all events, or an id",
      autocomplete: "off",
      spellcheck: "false",
      onkeydown: (event) => this.searchKey(event),
      oninput: () => {
        clearTimeout(this.typing);
        this.typing = setTimeout(() => this.find(this.box.value), 180);
      },
    });
    this.notice = el("p", { class: "notice", role: "status" });
    this.told = el("div", { class: "told", role: "status" });
    this.toast = el("div", { class: "toast", role: "status" });
    this.chips = el("div", { class: "chips", role: "group", "aria-label": "Marks of this run" });
    this.showMarks();
    const isServed = this.source instanceof Server;
    const page = (name, words) =>
      el("button", { "aria-pressed": name === this.tab, onclick: () => this.showPage(name) }, words);
    this.pages = { transcript: page("transcript", "Transcript"), memory: page("memory", "Memory") };
    const part = (name, words) =>
      el("button", { "aria-pressed": name === "text", onclick: () => this.showPart(name) }, words);
    this.parts = { text: part("text", "Transcript"), knew: part("knew", "What it knew") };
    this.partsNode = choices("Show below", "parts", ...Object.values(this.parts));
    this.main = el(
      "main",
      { class: "run", "data-tab": this.tab, "data-part": "text" },
      this.strip.node,
      el(
        "section",
        { class: "picture", "aria-label": "Lifetimes of events: versions across, events down" },
        this.chart.node,
      ),
      this.agents.node,
      this.buildBar(),
      this.knew.node,
      this.transcript.node,
    );
    return [
      el(
        "header",
        { class: "of-run" },
        isServed ? el("a", { class: "back", href: homeAddress() }, "← Runs") : null,
        el("div", { class: "names" }, this.heading, this.facts),
        isServed ? this.live.node : null,
        this.chips,
        choices("Show", "", this.pages.transcript, this.pages.memory),
        el("div", { class: "search" }, this.box),
        el(
          "button",
          { class: "round", title: "Help (?)", "aria-label": "Help", onclick: () => this.help.showModal() },
          "?",
        ),
      ),
      this.main,
      this.helpDialog(),
      this.told,
      this.toast,
    ];
  }

  // The buttons that choose a version, zoom the picture, and change how the transcript shows texts.
  buildBar() {
    const step = (target, sign, words) =>
      el("button", { title: words, "aria-label": words, onclick: () => this.go(target()) }, sign);
    this.steps = {
      back: step(() => this.version - 1, "←", "Previous version (←)"),
      on: step(() => this.version + 1, "→", "Next version (→)"),
      newest: step(() => this.history.version, "now", "Now, the newest version (End)"),
    };
    this.number = el("input", {
      class: "number",
      inputmode: "numeric",
      "aria-label": "Go to version",
      title: "Go to version",
      autocomplete: "off",
      onchange: () => this.goToNumber(),
      onfocus: () => this.number.select(),
      onkeydown: (event) => {
        if (event.key === "Enter") this.goToNumber();
        else if (event.key === "Escape") this.transcript.node.focus();
      },
    });
    this.number.style.width = `${String(this.history.version).length + 4}ch`;
    const { chart, transcript } = this;
    const turn = (button, option) => {
      transcript.change({ [option]: !transcript[option] });
      button.setAttribute("aria-pressed", transcript[option]);
      this.toRead = this.event ?? this.version - 1;
      this.changed("chosen");
    };
    const form = (words, title, option) =>
      el(
        "button",
        { "aria-pressed": false, title, onclick: ({ currentTarget }) => turn(currentTarget, option) },
        words,
      );
    const zoom = choices(
      "Zoom",
      "of-picture",
      el("button", { title: "Zoom out (−)", "aria-label": "Zoom out", onclick: () => chart.zoom(1.6) }, "−"),
      el("button", { title: "Zoom in (+)", "aria-label": "Zoom in", onclick: () => chart.zoom(1 / 1.6) }, "+"),
      el("button", { onclick: () => chart.setWindow(0, this.history.version + 1) }, "Whole history"),
    );
    return el(
      "div",
      { class: "bar" },
      choices("Go to another version", "", this.steps.back, this.number, this.steps.on, this.steps.newest),
      zoom,
      this.partsNode,
      el("span", { class: "grow" }),
      el("button", { onclick: () => this.copyLink() }, "Copy link"),
      this.source.file ? el("a", { class: "button", href: this.source.file, download: "" }, "Save as file") : null,
      form("Expand all", "Show all texts in full", "isWhole"),
      form("Plain text", "Show texts as they are, without Markdown", "isPlain"),
      form("All events", "Also show events that are never sent to a model, such as annotations and receipts", "isAll"),
    );
  }

  // Show the cost of all model calls, and the numbers of errors, condensations and waits, each with buttons for the
  // previous and the next one.
  showMarks() {
    const { history, marks } = this;
    const chip = (kind, words, hint) => {
      const number = marks.ids(kind).length;
      if (!number) return null;
      const step = (by, sign, which) =>
        el(
          "button",
          {
            "aria-label": `${which} ${words}`,
            title: `${which} ${words}${hint ? ` (${by > 0 ? hint : hint.toUpperCase()})` : ""}`,
            onclick: () => this.nextMark(kind, by),
          },
          sign,
        );
      return el(
        "span",
        { class: `chip ${kind}`, title: kind === "waits" ? "Waits of 30 s or more for a model or a tool" : null },
        el("span", {}, count(number, words)),
        kind === "waits" ? longest() : null,
        step(-1, "‹", "Previous"),
        step(1, "›", "Next"),
      );
    };
    const longest = () => {
      const { id, from, to } = marks.longest;
      return el(
        "button",
        {
          class: "link",
          title: "The longest wait",
          "aria-label": `${duration(to - from)}, the longest wait`,
          onclick: () => this.goToEvent(id),
        },
        duration(to - from),
      );
    };
    const costs = history.models.map((model) => model.cost).filter((cost) => typeof cost === "number");
    const cost = costs.reduce((sum, each) => sum + each, 0);
    const about = history.models.some((model) => model.costs_estimated) ? "≈ " : "";
    refill(
      this.chips,
      costs.length ? el("span", { class: "chip", title: "The cost of all model calls" }, `${about}${money(cost)}`) : "",
      chip("errors", "error", "e") ?? "",
      chip("condensations", "condensation", "c") ?? "",
      chip("waits", "wait", "w") ?? "",
    );
  }

  // Show the name of the run, its largest prompt and its other facts.
  nameIt() {
    this.heading.replaceChildren(said(this.name));
    this.heading.title = printable(this.name);
    this.facts.title = this.describe();
    refill(this.facts, this.peak(), ` · ${this.describe()}`);
    document.title = `${printable(this.name)} · foldlog`;
  }

  // The title of the run, or else its id.
  get name() {
    return this.history.title ?? this.history.conversation;
  }

  // A button with the size of the largest prompt, compared with the limit. It opens the version of this prompt.
  peak() {
    const { limit, window_of: model, window, peak } = this.history;
    const { words, version, tokens, about } = peak;
    const near = limit ? ` of ${short(limit)} (${Math.round((100 * tokens) / limit)} %)` : "";
    let of = "";
    if (!limit) of = ", no limit known";
    else if (model && limit === window) of = `, window of ${printable(model)}`;
    return el(
      "button",
      { class: "link", onclick: () => this.goTo(version) },
      `${words} ${about}${short(tokens)}${near}, at version ${grouped(version)}${of}`,
    );
  }

  // The facts of the run, whichever version is open, in one line.
  describe() {
    const { history, marks } = this;
    const models = history.models.map((model) => printable(model.model));
    const others = models.length - MODELS_NAMED;
    const first = moment(marks.first ?? null, "").slice(0, 10);
    const last = moment(marks.last ?? null, "").slice(0, 10);
    return `Whole history: ${[
      first && (first === last ? first : `${first} to ${last}`),
      marks.took ? `took ${duration(marks.took)}` : "",
      models.slice(0, MODELS_NAMED).join(", ") + (others > 0 ? ` and ${count(others, "other model")}` : ""),
      count(history.counted, "event"),
      history.counted < history.version && `${grouped(history.version)} with copies and events that imports took back`,
      history.changesAt(history.version),
      this.name === history.conversation ? "" : printable(history.conversation),
      history.borders.length &&
        `fork of ${printable(history.borders.at(-1).parent)} at version ${grouped(history.borders.at(-1).parent_version)}`,
      history.tokens_are === "counted"
        ? `tokens as ${printable(history.counted_as)} counts them${history.estimated.size ? `, ${grouped(history.estimated.size)} estimated` : ""}`
        : "tokens estimated (≈)",
    ]
      .filter(Boolean)
      .join(" · ")}`;
  }

  helpDialog() {
    const keys = [
      ["e, c, w", "next error, condensation or wait; with Shift, the previous one"],
      ["j, k", "next and previous block of the transcript"],
      ["n", "note"],
      ["m", "switch between Transcript and Memory"],
      ["← →", "one version"],
      ["Home, End", "first and last version"],
      ["Page Up, Page Down", "scroll the transcript"],
      ["Enter", "in Memory, start or stop comparing with this version"],
      ["+ −", "zoom the picture"],
      [
        "/",
        'search for an id, or for words in any order; words "in quotes" must stand side by side. Enter and Shift+Enter go through the hits',
      ],
      ["Escape", "back"],
    ];
    this.help = el(
      "dialog",
      { "aria-label": "Help" },
      el(
        "form",
        { method: "dialog" },
        el("h2", {}, "How to read this page"),
        el("button", { autofocus: true }, "Close"),
      ),
      el(
        "p",
        {},
        "At the top are the tokens of the View, by kind, and the dashed line of the limit. In Memory, each row below is an event. The row begins on the diagonal, at the version that the event made. The row ends at a thin line across rows: the condensation that forgot the event. A vertical line at a version crosses all events that the View showed at that version. After its end, the row is hatched: in the colour of summaries while a summary replaces the event, and in red if a retraction took the event back. A row is faint where the View shows the event, but its content is not sent to the model.",
      ),
      terms({ class: "keys" }, keys),
    );
    return this.help;
  }

  // -- keys and address -----------------------------------------------------------------------------------------------

  goToNumber() {
    const version = numberIn(this.number.value);
    if (Number.isInteger(version)) this.show(version);
    this.number.value = grouped(this.version);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.help.open || isTyped(event)) return;
    const isMemory = this.tab === "memory";
    const versions = { ArrowLeft: this.version - 1, ArrowRight: this.version + 1, Home: 0, End: this.history.version };
    const version = versions[event.key];
    const mark = { e: "errors", c: "condensations", w: "waits" }[event.key.toLowerCase()];
    const actions = {
      j: () => this.transcript.step(1),
      k: () => this.transcript.step(-1),
      n: () => this.note(),
      PageUp: () => this.transcript.scroll(-1),
      PageDown: () => this.transcript.scroll(1),
      m: () => this.showPage(isMemory ? "transcript" : "memory"),
      "/": () => this.box.focus(),
      "?": () => this.help.showModal(),
      Escape: () => this.escape(),
    };
    if (isMemory) Object.assign(actions, { "+": () => this.chart.zoom(1 / 1.6), "-": () => this.chart.zoom(1.6) });
    if (isMemory && !event.target.closest("button, a, summary, input"))
      actions.Enter = () => this.compare(this.from === null ? this.version : null);
    if (version === undefined && !mark && !actions[event.key]) return;
    if (event.key.startsWith("Page") && event.target.closest(".knew")) return;
    event.preventDefault();
    if (mark) this.nextMark(mark, event.shiftKey ? -1 : 1);
    else if (version === undefined) actions[event.key]();
    else this.show(version);
  }

  searchKey(event) {
    if (event.key === "Enter") this.nextHit(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      this.box.value = "";
      this.find("");
      this.transcript.node.focus();
    } else return;
    event.preventDefault();
  }

  escape() {
    if (this.event !== null) this.choose(null);
    else if (this.from !== null) this.compare(null);
    else if (this.hits) {
      this.box.value = "";
      this.find("");
    }
  }

  // Open the version, the comparison and the event that the address names, and say which of these do not exist.
  readAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    const { history } = this;
    const last = history.version;
    const unknown = [];
    const number = (name, what, isThere) => {
      if (!given.has(name)) return null;
      const value = given.get(name).trim() ? Number(given.get(name)) : NaN;
      if (Number.isInteger(value) && isThere(value)) return value;
      unknown.push(`${what} ${printable(given.get(name).slice(0, 20))}`);
      return null;
    };
    const isVersion = (value) => value >= 0 && value <= last;
    this.version = number("v", "version", isVersion) ?? this.version;
    this.from = number("from", "version", isVersion);
    this.event = number("e", "event", (id) => (id >= 0 && id < last) || history.summaryOf.has(id));
    const { errors, waits } = this.marks;
    const place = { error: errors[0], wait: waits.length ? this.marks.longest.id : undefined, open: history.openCall }[
      given.get("at")
    ];
    if (place !== undefined) {
      this.event = place;
      this.version = place + 1;
    }
    this.child = given.get("child");
    this.showChild();
    this.notice.textContent = unknown.length
      ? `This history has no ${unknown.join(" and no ")}: it has the versions 0 to ${grouped(last)}${last ? `, and the events 0 to ${grouped(last - 1)}` : ""}. Version ${grouped(this.version)} is shown.`
      : "";
    if (this.chart.history) this.chart.reveal(this.version);
    const tab = given.get("tab") ?? (this.from !== null ? "memory" : null);
    if (tab === "memory" || tab === "transcript") this.showPage(tab);
    this.toRead = this.event ?? this.version - 1;
    this.changed("blocks", "moment", "chosen");
  }

  // Go to the call that began the sub-agent that the address names, and open its run.
  showChild() {
    const call = this.child ? this.agents.callOf(this.child) : undefined;
    if (call === undefined) return;
    this.goToEvent(call);
    this.agents.open(this.child);
    this.child = null;
  }

  address() {
    const parts = { v: this.version, from: this.from, e: this.event, tab: this.tab === "memory" ? "memory" : null };
    const named = Object.entries(parts).filter(([, value]) => value !== null);
    return `#${named.map((part) => part.join("=")).join("&")}`;
  }

  writeAddress() {
    clearTimeout(this.addressing);
    this.addressing = setTimeout(() => history.replaceState(null, "", this.address()), 120);
  }
}

const TAB = "foldlog-tab";
const MARKS = { errors: "error", condensations: "condensation", waits: "wait" };
const RULE =
  'Search for an id, or for words. The search finds an event that contains all of the words: in any order, also inside longer words. Words "in quotes" must stand side by side. #17 finds only the event with this id.';
const choices = (name, kind, ...buttons) =>
  el("span", { class: `choices ${kind}`, role: "group", "aria-label": name }, ...buttons);

// The page after an error: the reason, and buttons that lead on.
function failure(error, isServed = true) {
  const isHome = !location.search;
  let why = error.message;
  let remedy = null;
  if (!isServed) {
    remedy =
      "The file may be incomplete. Write it again with foldlog report, and open it in a browser of the last three years.";
  } else if (error instanceof TypeError) {
    // A browser raises a TypeError if no reply comes.
    why = "The server does not answer.";
    remedy = "Start it again with foldlog serve, and open the address that it prints.";
  }
  return [
    el("header", {}, el("span", { class: "brand" }, "foldlog")),
    el(
      "main",
      { class: "failure" },
      el(
        "div",
        { role: "alert" },
        el("h1", {}, "This page cannot be shown"),
        said(sentence(why).replace(/[^.]$/, "$&."), "p"),
      ),
      remedy && el("p", { class: "soft" }, remedy),
      el(
        "div",
        { class: "ways" },
        isServed && !isHome ? el("a", { class: "button", href: homeAddress() }, "All runs") : null,
        el("button", { onclick: () => location.reload() }, "Try again"),
      ),
    ),
  ];
}

// Show the page that the address or the file asks for.
async function start() {
  const root = document.getElementById("app");
  const page = new URLSearchParams(location.search);
  const embedded = document.querySelector("script.history");
  try {
    const source = embedded ? new Embedded() : new Server(page.get("id"));
    const compares = page.has("compare") ? new Comparison(root, page.get("compare"), page.get("with") ?? "") : null;
    const foldlog = compares ?? (embedded || page.has("id") ? new App(source, root) : new Runs(root));
    Object.assign(window, { foldlog });
    await foldlog.start();
  } catch (error) {
    root.replaceChildren(...failure(error, !embedded));
  }
  root.dataset.ready = "";
}

if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
else start();
