// The page of one history: what is chosen, and who draws it.

import { Chart } from "./chart.js";
import { Detail } from "./detail.js";
import { Live, count, duration, el, eventsAndSummaries, grouped, idOf, isTyped, keep, kept, moment, money, numberIn, phone, plus, printable, refill, said, sentence, short, terms, tokenCount, wanted } from "./dom.js";
import { History, remembered, SENT } from "./history.js";
import { List } from "./list.js";
import { Comparison } from "./compare.js";
import { Runs, homeAddress } from "./runs.js";
import { Knew } from "./knew.js";
import { Marks } from "./marks.js";
import { Notes } from "./notes.js";
import { Opening } from "./opening.js";
import { Strip } from "./strip.js";
import { Transcript } from "./transcript.js";
import { Embedded, Server } from "./sources.js";
import { themeButton, watchTheme } from "./theme.js";

class App {
  constructor(source, root) {
    this.source = source;
    this.root = root;
    this.version = 0;
    this.from = null;
    this.event = null;
    this.only = "all";
    this.rowHeights = "equal";
    this.opened = new Set();
    this.words = [];
    this.hits = null;
    this.below = "list";
    this.tab = kept("sessionStorage", TAB) === "memory" ? "memory" : "transcript";
    this.waiting = new Set();
    this.takings = new Map();
    this.chart = new Chart(this);
    this.list = new List(this);
    this.detail = new Detail(this);
    this.transcript = new Transcript(this);
    this.strip = new Strip(this);
    this.knew = new Knew(this);
    this.notes = new Notes(this);
  }

  async start() {
    const opening = new Opening(this.source, this.root);
    const loading = await this.source.history().finally(() => opening.end());
    this.history = new History(loading);
    this.marks = new Marks(this.history);
    this.version = this.history.version;
    this.build();
    this.readAddress();
    this.chart.open(this.history);
    this.chart.reveal(this.version);
    this.transcript.open(this.history);
    this.transcript.reveal(this.event ?? this.history.version - 1);
    watchTheme(() => {
      this.chart.colors = null;
      this.changed("size");
    });
    addEventListener("keydown", (event) => this.key(event));
    addEventListener("hashchange", () => this.readAddress());
    this.changed("size", "moment", "chosen");
    this.loadBeside();
    this.source.loadAllGists(() => this.changed("gists"));
    if (this.source.gist(0) === undefined) this.loadLabels();
    this.source.follow({
      changed: (present) => this.follow(present),
      connected: (yes, why) => this.live.set(yes, why),
      gone: (why) => this.root.replaceChildren(...failure(new Error(why))),
    });
  }

  // What is beside the events: notes, and what was needed again. The page is whole without them.
  async loadBeside() {
    const { version } = this.history;
    const notes = this.notes.load().catch((error) => this.live.set(false, error.message));
    const needed = this.source.dropped().catch(() => []);
    await notes;
    this.changed("beside", "chosen");
    const dropped = await needed;
    if (this.history.version < version) return;
    this.marks.take(dropped);
    this.changed("beside", "window", "chosen");
    const models = await this.source.models?.().catch(() => []);
    if (!models || this.history.version < version) return;
    this.history.models = models;
    this.detail.shown = null;
    this.nameIt();
    this.showMarks();
    this.changed("chosen");
  }

  // The lines of the user's messages, which the chart shows.
  async loadLabels() {
    for (const id of this.history.byCame) {
      if (id >= 0 && this.history.kind(id) === "user" && this.source.gist(id) === undefined) {
        if (await this.source.loadGists(id).catch(() => false)) this.changed("gists", "window");
      }
    }
  }

  // -- what can happen ------------------------------------------------------------------------------------------------

  // Show the transcript, or the picture of what the model remembered.
  showPage(tab) {
    this.tab = tab;
    keep("sessionStorage", TAB, tab);
    this.main.hidden = tab !== "memory";
    this.reading.hidden = tab !== "transcript";
    for (const [name, button] of Object.entries(this.pages)) button.setAttribute("aria-pressed", name === tab);
    if (tab === "transcript") this.toRead = this.event ?? this.version - 1;
    this.changed("size", "window", "moment", "chosen", "strip", "beside");
  }

  // Go to an event: to the version in which the agent wrote it, or that it brought.
  goToEvent(id, reveals = true) {
    const { history } = this;
    const came = history.came(id);
    const before = this.event;
    this.go(history.group(id) === 3 && id >= 0 ? came : came + 1, id);
    if (reveals) this.toRead = id;
    this.toReveal = id;
    this.transcript.refresh(before, id);
  }

  // Go to a version, and to the event that brought it.
  goTo(version) {
    const before = this.event;
    this.go(version, null);
    this.toRead = Math.max(0, version - 1);
    this.transcript.refresh(before);
  }

  // The next one of a kind of marks after the event that is open, or the one before it.
  nextMark(kind, step) {
    const ids = this.marks.ids(kind);
    if (!ids.length) return;
    const at = this.event ?? (step > 0 ? -1 : this.history.version);
    const next = step > 0 ? (ids.find((id) => id > at) ?? ids[0]) : (ids.findLast((id) => id < at) ?? ids.at(-1));
    this.goToEvent(next);
    this.say(`${ids.indexOf(next) + 1} of ${count(ids.length, MARKS[kind])}`);
  }

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
      this.say("The browser does not copy: take the address of this page");
    }
  }

  // A note was changed.
  noted(event) {
    this.transcript.refresh(event);
    this.changed("chosen", "beside");
  }

  note() {
    this.showPage("transcript");
    requestAnimationFrame(() => this.knew.node.querySelector("textarea")?.focus());
  }

  // Show another version, or what is said there of another event.
  go(version, chosen = this.event) {
    this.notice.textContent = "";
    this.version = Math.max(0, Math.min(this.history.version, version));
    this.event = chosen;
    this.chart.reveal(this.version);
    this.changed("moment", "chosen");
  }

  choose(id, version = this.version) {
    this.go(version, id);
    if (id !== null) this.toReveal = id;
    if (id !== null) this.toRead = id;
    this.showTab(id === null ? "list" : "detail");
  }

  // On a phone either the View or the details are shown below the version. Come back to the list where it was left.
  showTab(tab) {
    if (tab === "detail" && this.below === "list") this.listAt = scrollY;
    this.toTab = this.below === tab && tab === "list" ? undefined : tab;
    this.below = this.main.dataset.tab = tab;
    for (const [name, button] of Object.entries(this.tabs)) button.setAttribute("aria-pressed", name === tab);
    this.changed("over");
  }

  // Once it is drawn, scroll to what a phone shows below the version, where it is not in sight.
  scrollToTab() {
    const tab = this.toTab;
    this.toTab = undefined;
    if (!phone.matches || tab === undefined || this.tab !== "memory") return;
    const below = scrollY + this.momentary.getBoundingClientRect().bottom;
    if (tab === "list") scrollTo(0, this.listAt ?? scrollY);
    else if (below < scrollY || below > scrollY + 0.6 * innerHeight) scrollTo(0, below);
  }

  // Choose an event, and go to its text with the keyboard.
  read(id) {
    this.choose(id);
    this.detail.node.focus();
  }

  compare(from, to = this.version, chosen = this.event) {
    this.from = from;
    this.only = "all";
    this.toChange = from !== null;
    if (from !== null) this.showPage("memory");
    this.go(to, chosen);
    this.showTab("list");
  }

  toggleGap(gap) {
    if (!this.opened.delete(gap)) this.opened.add(gap);
    this.showList();
  }

  // Follow what the server says of the conversation, which may change again while the page asks for what is new.
  async follow(present) {
    this.present = present;
    if (this.following) return;
    this.following = true;
    try {
      while (this.isBehind()) {
        const { version, redactions, borders } = this.history;
        await this.grow();
        const { history } = this;
        if (history.version === version && history.redactions === redactions && history.borders.length === borders.length) break;
      }
      this.live.set(true);
    } catch (error) {
      // What is shown stays; the next version that is told is asked for again.
      this.live.set(false, error.message);
    } finally {
      this.following = false;
    }
  }

  isBehind() {
    const { version, redactions, borders } = this.history;
    return this.present.version > version || this.present.redactions > redactions || this.present.borders < borders.length;
  }

  // Take the events that came since, and stay at the end if the reader is there. Where content was erased, of a fork
  // also in the past that it shares, take everything again.
  async grow() {
    const { present, history } = this;
    const again = present.redactions !== history.redactions || present.borders !== history.borders.length;
    const news = await this.source.history(again ? 0 : history.version);
    const atEnd = this.version === history.version;
    const whole = this.chart.isWhole;
    const span = this.chart.window[1] - this.chart.window[0];
    const changed = again || news.redactions !== history.redactions;
    if (changed) this.source.forget();
    history.add(changed && !again ? await this.source.history() : news);
    if (changed) this.detail.shown = null;
    if (changed) this.transcript.forget();
    this.marks = new Marks(history);
    const isRead = atEnd && this.event === null;
    this.transcript.open(history);
    if (isRead) this.toRead = history.version - 1;
    this.loadBeside();
    this.showMarks();
    this.takings.clear();
    if (whole && this.history.byCame.length <= 600) this.chart.window = [0, this.history.version + 1];
    else if (atEnd) this.chart.window = [Math.max(0, this.history.version + 1 - span), this.history.version + 1];
    if (atEnd) this.version = this.history.version;
    this.chart.open(this.history);
    this.nameIt();
    this.loadLabels();
    this.changed("size", "moment", "chosen", "strip");
  }

  async find(text) {
    this.search?.abort();
    this.words = wanted(text);
    this.main.classList.toggle("searching", this.words.length > 0);
    this.transcript.again();
    this.hits = null;
    this.searched = false;
    this.detail.shown = null;
    this.showTab("list");
    if (!this.words.length) {
      this.status.textContent = "";
      return this.changed("moment", "chosen");
    }
    const search = (this.search = new AbortController());
    const hits = [];
    this.hits = hits;
    const id = this.idIn(text);
    if (id !== null) {
      await this.source.loadGists(id).catch(() => false);
      if (search.signal.aborted) return;
      hits.push({ id, mark: "", snippet: this.source.gist(id) ?? "" });
      if (text.trim().startsWith("#")) {
        this.searched = true;
        return this.changed("moment", "chosen");
      }
    }
    this.status.textContent = "Searching …";
    let drawn = 0;
    try {
      await this.source.search(
        text,
        (found, snippet) => {
          const shown = this.shownAs(found);
          if (found !== id) hits.push({ id: shown, mark: "", snippet });
          if (performance.now() - drawn > 150) {
            drawn = performance.now();
            this.changed("moment");
          }
        },
        search.signal,
      );
    } catch (error) {
      if (search.signal.aborted) return;
      this.status.textContent = `The search failed: ${error.message}`;
      return;
    }
    if (search.signal.aborted) return;
    this.searched = true;
    this.changed("moment", "chosen");
  }

  // The summary of a condensation, which models were shown, in the place of the event that brought it.
  shownAs(id) {
    return this.history.summaryOf.has(-id - 2) ? -id - 2 : id;
  }

  sayHits() {
    const { history, version } = this;
    const sent = this.hits.filter(({ id }) => SENT.has(history.state(id, version))).length;
    const summaries = this.hits.filter(({ id }) => id < 0).length;
    this.status.textContent = this.hits.length ? `${this.hits.length > summaries ? count(this.hits.length, "event") : count(summaries, "summary", "summaries")} of the whole history, ${grouped(sent)} sent at version ${grouped(version)}` : "No event of the whole history contains these words";
  }

  // The event whose id is searched for, which is found first.
  idIn(text) {
    const id = numberIn(text.trim().replace(/^#/, ""));
    return id < this.history.version ? id : null;
  }

  nextHit(step) {
    if (!this.hits?.length) return;
    const at = this.hits.findIndex(({ id }) => id === this.event);
    const next = at < 0 ? (step > 0 ? 0 : this.hits.length - 1) : (at + step + this.hits.length) % this.hits.length;
    this.choose(this.hits[next].id);
  }

  // What a condensation or a retraction took out of the View.
  removed(id) {
    return remembered(this.takings, id, Infinity, () => this.taking(id));
  }

  taking(id) {
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
      words, before, after,
      count: plus(events, summaries),
      sent: [id, id + 1].map((version) => history.sentAt(version)),
      sentence: change.outcome === "declined" ? `Condensation ${idOf(id)} was declined.` : `At version ${grouped(id + 1)}, ${change.kind} ${idOf(id)} ${verb} ${words}: ${history.about}${short(before)} → ${short(after)} tokens.`,
    };
  }

  // -- drawing --------------------------------------------------------------------------------------------------------

  changed(...what) {
    if (!this.waiting.size) requestAnimationFrame(() => this.draw());
    for (const each of what) this.waiting.add(each);
  }

  draw() {
    const { waiting } = this;
    this.waiting = new Set();
    if (!this.chart.history) return;
    if (this.tab === "memory") this.drawMemory(waiting);
    else this.drawTranscript(waiting);
    if (waiting.has("moment") || waiting.has("chosen")) this.writeAddress();
    this.drawn = (this.drawn ?? 0) + 1;
  }

  drawTranscript(waiting) {
    if (waiting.has("size") || waiting.has("strip") || waiting.has("moment") || waiting.has("beside")) this.strip.draw();
    if (waiting.has("size") || waiting.has("beside")) this.transcript.again();
    if (waiting.has("moment") || waiting.has("chosen") || waiting.has("beside")) this.knew.show();
    if (this.searched && waiting.has("moment")) this.sayHits();
    if (waiting.has("moment")) this.tell();
    if (this.toRead !== undefined) {
      this.transcript.reveal(this.toRead);
      this.toRead = undefined;
    }
  }

  drawMemory(waiting) {
    if (waiting.has("size") || waiting.has("window")) this.chart.drawData();
    else if (waiting.has("gists") && !this.chart.labelled) {
      this.chart.labelled = this.source.gist(0) !== undefined;
      this.chart.drawData();
    }
    if (waiting.has("moment") || (waiting.has("gists") && !this.momentTold)) this.showMoment();
    if (waiting.has("moment") || waiting.has("gists")) this.showList();
    if (this.searched && waiting.has("moment")) this.sayHits();
    if (waiting.has("chosen") || waiting.has("moment")) this.detail.show();
    this.nameTabs();
    if (this.toChange) {
      const place = this.list.entries.findIndex((entry) => entry.mark);
      if (place >= 0) this.list.scrollTo(place);
      this.toChange = false;
    }
    if (this.toReveal !== undefined) {
      this.list.reveal(this.toReveal);
      this.toReveal = undefined;
    }
    this.scrollToTab();
    this.chart.drawOver();
  }

  showList() {
    if (this.hits) this.list.show(this.hits, "Events that contain the words", this.searched ? RULE : "");
    else if (this.from === null) {
      this.list.show(this.history.entries(this.version, null, "all", this.opened), "The View", "The View has no events at this version.");
    } else {
      const [from, to] = this.compared;
      this.list.show(this.history.entries(to, from, this.only, this.opened), "What changed between the versions", "Nothing changed between these versions.");
    }
  }

  showMoment() {
    const { history, version } = this;
    const { events, summaries } = history.sentAt(version);
    const { by, states } = history.tally(version);
    const tokens = history.total[version] ?? 0;
    const masked = history.masked[version] ?? 0;
    const rule = history.masks.findLast((mask) => mask.at < version && mask.by !== "observation_masking");
    this.title.replaceChildren(`Version ${grouped(version)}`, el("span", { class: "soft" }, version === history.version ? ", now" : ` of ${grouped(history.version)}`));
    const time = version ? moment(history.timeAt(version), history.zone) : "";
    this.sentence.replaceChildren(
      ...(version
        ? ["The model is sent ", el("b", {}, count(events, "event")), ...(summaries ? [" and ", el("b", {}, count(summaries, "summary", "summaries"))] : []), ", ", el("b", {}, `${history.about}${tokenCount(tokens)}`), history.limit ? ` of ${short(history.limit)}` : "", masked ? `; masks leave ${history.about}${short(tokens - masked)}` : "", rule ? `, less what the rule of ${rule.by} in event ${grouped(rule.at)} leaves out` : "", "."]
        : ["Before the first event the model is sent nothing."]),
    );
    this.sum.replaceChildren(...this.sumParts(states, by));
    const next = version < history.version ? version : null;
    const wrote = next !== null && history.group(next) === 3;
    refill(
      this.next,
      ...(next === null
        ? [time ? el("span", { class: "soft when" }, `Last event: ${time}.`) : ""]
        : [el("span", { class: "soft" }, wrote ? "With this it wrote " : "Next came "), el("button", { class: "link", onclick: () => this.choose(next) }, `${idOf(next)} ${history.kind(next)}`), el("span", { class: "soft gist" }, ` ${printable(this.source.gist(next) ?? "")}`)]),
    );
    this.momentTold = next === null || this.source.gist(next) !== undefined;
    for (const [name, target] of Object.entries(this.targets())) this.steps[name].setAttribute("aria-disabled", target === null);
    if (document.activeElement !== this.number) this.number.value = grouped(version);
    this.showComparison();
    this.tell();
    this.legend.replaceChildren(...this.legendParts());
    this.states.replaceChildren(...this.stateParts());
  }

  // What became of all events up to this version, in numbers that add up, and one line of help for those not sent.
  sumParts(states, by) {
    const { history, version } = this;
    const number = (...names) => names.reduce((sum, name) => sum + (states.get(name) ?? 0), 0);
    const masked = number("masked");
    const who = (state) => count([...by].filter((id) => history.departure(id, version) === state).length, "condensation");
    const never = version - [...states].reduce((sum, [state, some]) => sum + (state === "never shown" ? 0 : some), 0);
    const parts = [
      [number("sent", "masked"), (some) => `${some} sent${masked ? ` (${grouped(masked)} masked)` : ""}`],
      [number("pending"), (some) => `${some} pending`], [number("unsent"), (some) => `${some} unsent`],
      [number("damaged"), (some) => `${some} damaged`],
      ...["summarized", "forgotten"].map((state) => [number(state), (some) => `${some} ${state} by ${who(state)}`]),
      [number("taken back"), (some) => `${some} taken back`], [never, (some) => `${some} never shown`],
    ].filter(([some]) => some).map(([some, words]) => words(grouped(some)));
    const help = [
      number("pending") && (version === history.version ? "Pending: no observation came." : "Pending: waits for an observation."),
      number("unsent") && "Unsent: another part of its call is gone.",
      never && "Never shown: bookkeeping.",
    ].filter(Boolean).join(" ");
    return version ? [`${count(version, "event")}: ${parts.join(" + ")}.`, help ? el("span", { class: "hint", title: help }, ` ${help}`) : ""] : [];
  }

  // Say the version to those who do not see it, once it stays for a moment.
  tell() {
    const { version, history } = this;
    clearTimeout(this.telling);
    this.telling = setTimeout(() => {
      const words = this.tab === "memory" ? `Version ${grouped(version)} of ${grouped(history.version)}. ${this.sentence.textContent} ${this.sum.firstChild?.textContent ?? ""}` : `Version ${grouped(version)} of ${grouped(history.version)}. ${history.about}${tokenCount(history.total[version] ?? 0)}.`;
      if (this.told.textContent !== words) this.told.textContent = words;
    }, 200);
  }

  // The earlier and the later of the two versions that are compared: the pinned one may be either.
  get compared() {
    return this.from === null ? null : [Math.min(this.from, this.version), Math.max(this.from, this.version)];
  }

  showComparison() {
    const { history } = this;
    if (this.from === null) {
      refill(this.comparing, el("button", { onclick: () => this.compare(this.version) }, "Compare from here"));
      return;
    }
    const [from, to] = this.compared;
    const now = new Set(history.view(to));
    const before = new Set(history.view(from));
    const entered = [...now].filter((id) => !before.has(id)).length;
    const left = [...before].filter((id) => !now.has(id)).length;
    const choice = (name, words, kind) =>
      el("button", { class: kind, "aria-pressed": this.only === name, onclick: () => { this.only = name; this.changed("moment"); } }, words);
    refill(
      this.comparing,
      el("button", { class: "on", onclick: () => { this.from = null; this.changed("moment", "chosen"); } }, "Stop comparing"),
      el("span", {}, `${grouped(from)} → ${grouped(to)}`),
      el("span", { class: "choices", role: "group", "aria-label": "Show of the difference" }, choice("all", "All", ""), choice("entered", `+ ${grouped(entered)} entered`, "entered"), choice("left", `− ${grouped(left)} left`, "left")),
    );
  }

  legendParts() {
    const { history, version } = this;
    const words = ["system", "user", "summaries", "agent", "observations", "errors"];
    const parts = words.map((word, group) => this.legendPart(`g${group}`, word, short(history.sizes[group]?.[version] ?? 0)));
    return [el("span", { class: "part" }, `${history.about}tokens sent:`), ...parts, el("span", { class: "wide" }, "versions across, events down")];
  }

  // How many events are in each state at this version, but for those that are shown.
  stateParts() {
    const { history, version } = this;
    const { states } = history.tally(version);
    return LEGEND.filter((state) => states.has(state)).map((state) => this.legendPart(`k-${state.replace(" ", "-")}`, state, grouped(states.get(state))));
  }

  legendPart(kind, word, number) {
    return el("span", { class: "part" }, el("span", { class: `swatch ${kind}`, "aria-hidden": true }), `${word} `, el("b", {}, number));
  }

  // -- building -------------------------------------------------------------------------------------------------------

  build() {
    const step = (name, sign, words) => (this.steps[name] = el("button", { title: words, "aria-label": words, onclick: () => this.step(name) }, sign));
    this.steps = {};
    this.number = el("input", {
      class: "number", inputmode: "numeric", "aria-label": "Go to version", title: "Go to version", autocomplete: "off",
      onchange: () => this.goToNumber(), onfocus: () => this.number.select(),
      onkeydown: (event) => {
        if (event.key === "Enter") this.goToNumber();
        else if (event.key === "Escape") this.list.node.focus();
      },
    });
    this.number.style.width = `${String(this.history.version).length + 4}ch`;
    this.heading = el("h1");
    this.facts = el("p", { class: "facts" });
    this.nameIt();
    this.live = new Live();
    this.box = el("input", {
      type: "search", placeholder: "Search", title: RULE, "aria-label": "Search all events, or an id", autocomplete: "off", spellcheck: "false",
      oninput: () => { clearTimeout(this.typing); this.typing = setTimeout(() => this.find(this.box.value), 180); },
    });
    this.status = el("span", { class: "status", role: "status" });
    this.listName = el("span", { class: "soft" });
    this.notice = el("p", { class: "notice", role: "status" });
    this.legend = el("div", { class: "legend" });
    this.states = el("div", { class: "states" });
    this.title = el("h2");
    this.sentence = el("p", { class: "sentence" });
    this.sum = el("p", { class: "sum" });
    this.next = el("p", { class: "next" });
    this.comparing = el("div", { class: "comparing" });
    this.told = el("div", { class: "told", role: "status" });
    const heights = (name) => el("button", { "aria-pressed": this.rowHeights === name, onclick: (event) => {
      this.rowHeights = name;
      for (const button of event.target.parentNode.children) button.setAttribute("aria-pressed", button === event.target);
      this.chart.layOut();
      this.changed("window");
    } }, name);
    const tab = (name) => el("button", { "aria-pressed": name === this.below, onclick: () => this.showTab(name) });
    this.tabs = { list: tab("list"), detail: tab("detail") };
    const isServed = this.source instanceof Server;
    const back = isServed ? el("a", { class: "back", href: homeAddress() }, "← Runs") : null;
    const page = (name, words) => el("button", { "aria-pressed": name === this.tab, onclick: () => this.showPage(name) }, words);
    this.pages = { transcript: page("transcript", "Transcript"), memory: page("memory", "Memory") };
    this.toast = el("div", { class: "toast", role: "status" });
    this.chips = el("div", { class: "chips", role: "group", "aria-label": "Marks of this run" });
    this.showMarks();
    this.reading = el("main", { class: "run", hidden: this.tab !== "transcript" }, this.strip.node, this.transcript.node, this.knew.node);
    this.root.replaceChildren(
      el("header", { class: "of-run" }, back, el("div", { class: "names" }, this.heading, this.facts), isServed ? this.live.node : null, this.chips,
        el("span", { class: "choices", role: "group", "aria-label": "Show" }, this.pages.transcript, this.pages.memory), el("div", { class: "search" }, this.box), themeButton(), el("button", { class: "round", title: "Help (?)", "aria-label": "Help", onclick: () => this.help.showModal() }, "?")),
      this.reading,
      this.main = el("main", { class: "history", "data-tab": this.below, hidden: this.tab !== "memory" },
        el("section", { class: "picture", "aria-label": "Lifetimes of events: versions across, events down" },
          this.legend,
          this.chart.node,
          el("div", { class: "tools" },
            el("span", { class: "soft", "aria-hidden": true }, "Row height"), el("span", { class: "choices", role: "group", "aria-label": "Row height" }, heights("equal"), heights("tokens")),
            this.states, el("span", { class: "grow" }),
            el("span", { class: "choices", role: "group", "aria-label": "Zoom" },
              el("button", { title: "Zoom out (−)", "aria-label": "Zoom out", onclick: () => this.chart.zoom(1.6) }, "−"),
              el("button", { title: "Zoom in (+)", "aria-label": "Zoom in", onclick: () => this.chart.zoom(1 / 1.6) }, "+"),
              el("button", { onclick: () => this.chart.setWindow(0, this.history.version + 1) }, "Whole history")))),
        el("section", { class: "moment", "aria-label": "One version" },
          (this.momentary = el("div", { class: "momentary" },
            this.notice,
            el("div", { class: "row" }, this.title, el("span", { class: "choices steps", role: "group", "aria-label": "Go to another version" },
              step("before", "«", "Previous condensation (Page Up)"), step("back", "←", "Previous version (←)"), this.number, step("on", "→", "Next version (→)"), step("after", "»", "Next condensation (Page Down)"), step("newest", "now", "Now, the newest version (End)"))),
            this.sentence, this.sum, el("div", { class: "below" }, this.next, this.comparing))),
          el("div", { class: "tabs choices", role: "group", "aria-label": "Show below" }, this.tabs.list, this.tabs.detail),
          el("div", { class: "listhead" }, this.listName, this.status, el("span", { class: "grow" }), el("span", { class: "soft" }, `${this.history.about}tokens`)),
          this.list.node),
        this.detail.node),
      this.helpDialog(), this.told, this.toast);
    this.box.addEventListener("keydown", (event) => this.searchKey(event));
  }

  // What a reader looks for, counted: each leads to the next one and the one before.
  showMarks() {
    const { history, marks } = this;
    const chip = (kind, words, hint) => {
      const number = marks.ids(kind).length;
      if (!number) return null;
      const step = (by, sign, which) => el("button", { "aria-label": `${which} ${words}`, title: `${which} ${words}${hint ? ` (${by > 0 ? hint : hint.toUpperCase()})` : ""}`, onclick: () => this.nextMark(kind, by) }, sign);
      return el("span", { class: `chip ${kind}`, title: kind === "waits" ? "For a model or a tool, 30 s and more" : null }, el("span", {}, count(number, words)), kind === "waits" ? longest() : null, step(-1, "‹", "Previous"), step(1, "›", "Next"));
    };
    const longest = () => {
      const { id, from, to } = marks.longest;
      return el("button", { class: "link", title: "The longest wait", "aria-label": `${duration(to - from)}, the longest wait`, onclick: () => this.goToEvent(id) }, duration(to - from));
    };
    const costs = history.models.map((model) => model.cost).filter((cost) => typeof cost === "number");
    const cost = costs.reduce((sum, each) => sum + each, 0);
    const about = history.models.some((model) => model.costs_estimated) ? "≈ " : "";
    refill(this.chips,
      costs.length ? el("span", { class: "chip", title: "What all calls of models cost" }, `${about}${money(cost)}`) : "",
      chip("errors", "error", "e") ?? "", chip("condensations", "condensation", "c") ?? "", chip("waits", "wait", "w") ?? "",
      el("button", { onclick: () => this.copyLink() }, "Copy link"),
      this.source.file ? el("a", { class: "button", href: this.source.file, download: "" }, "Save as file") : "");
  }

  nameIt() {
    this.heading.replaceChildren(said(this.name));
    this.facts.textContent = this.facts.title = this.describe();
    document.title = `${printable(this.name)} · foldlog`;
  }

  nameTabs() {
    const { event, history } = this;
    const [from, to] = this.compared ?? [0, this.version];
    this.listName.textContent = this.hits ? "" : this.from === null ? `The View of version ${grouped(to)}, in its order` : `From version ${grouped(from)} to ${grouped(to)}: ${history.about}${short(history.total[from])} → ${tokenCount(history.total[to])}`;
    this.tabs.list.textContent = this.hits ? "Events found" : this.from === null ? "The View" : "What changed";
    this.tabs.detail.textContent = event === null ? "Why not more?" : `${sentence(history.kind(event))} ${idOf(event)}`;
  }

  // What people know it by.
  get name() {
    return this.history.title ?? this.history.conversation;
  }

  describe() {
    const { history, marks } = this;
    const first = moment(marks.first ?? null, "").slice(0, 10);
    const last = moment(marks.last ?? null, "").slice(0, 10);
    return `Whole history: ${[
      first && (first === last ? first : `${first} to ${last}`), marks.took ? `took ${duration(marks.took)}` : "", history.models.map((model) => printable(model.model)).slice(0, 2).join(", "),
      count(history.counted, "event"), history.counted < history.version && `${grouped(history.version)} with copies and those that imports took back`, count(history.made.length, "condensation"),
      this.name === history.conversation ? "" : printable(history.conversation),
      history.borders.length && `fork of ${printable(history.borders.at(-1).parent)} at version ${grouped(history.borders.at(-1).parent_version)}`,
      history.tokens_are === "counted" ? `tokens as ${printable(history.counted_as)} counts them${history.estimated.size ? `, ${grouped(history.estimated.size)} estimated` : ""}` : "tokens estimated (≈)",
    ].filter(Boolean).join(" · ")}`;
  }

  helpDialog() {
    const keys = [
      ["e, c, w", "next error, condensation, wait; with Shift the one before"], ["j, k", "next and previous block of the transcript"], ["n", "note"], ["m", "Memory, and back"],
      ["← →", "one version"], ["Page Up, Page Down", "in Memory, previous and next condensation"], ["Home, End", "first and last version"],
      ["↑ ↓", "in the list"], ["Enter", "open, or pin this version to compare"], ["+ −", "zoom"], ["/", "search for an id, or for words: all of them, in any order; “in quotes” side by side. Enter and Shift+Enter go through the hits"], ["Escape", "back"],
    ];
    this.help = el("dialog", { "aria-label": "Help" },
      el("form", { method: "dialog" }, el("h2", {}, "How to read this page"), el("button", { autofocus: true }, "Close")),
      el("p", {}, "At the top are the tokens of the View of each version, by kind. Below, each row is an event. It begins on the diagonal, at the version that it brought, and ends where a condensation forgot it. A vertical line at a version cuts through all that the View showed at that version. Hatched is what it did not show any more."),
      terms({ class: "states" }, STATES.map(([kind, words]) => [el("span", { class: `swatch ${kind}`, "aria-hidden": true }), words])),
      terms({ class: "keys" }, keys));
    return this.help;
  }

  // -- keys and address -----------------------------------------------------------------------------------------------

  targets() {
    const { history, version } = this;
    const moments = history.condensations.map((change) => change.id + 1);
    return {
      before: moments.findLast((at) => at < version) ?? (version > 0 ? 0 : null),
      back: version > 0 ? version - 1 : null,
      on: version < history.version ? version + 1 : null,
      after: moments.find((at) => at > version) ?? (version < history.version ? history.version : null),
      newest: version < history.version ? history.version : null,
    };
  }

  goToNumber() {
    const version = numberIn(this.number.value);
    if (Number.isInteger(version)) this.go(version);
    this.number.value = grouped(this.version);
  }

  step(name) {
    const target = this.targets()[name];
    if (target !== null) this.go(target);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.help.open || isTyped(event)) return;
    const { before, back, on, after } = this.targets();
    const steps = { ArrowLeft: back, ArrowRight: on, Home: 0, End: this.history.version };
    const target = (this.tab === "memory" ? { ...steps, PageUp: before, PageDown: after } : steps)[event.key];
    if (target !== undefined) {
      event.preventDefault();
      if (target !== null) this.tab === "memory" ? this.go(target) : this.goTo(target);
      return;
    }
    const action = {
      e: () => this.nextMark("errors", 1), E: () => this.nextMark("errors", -1), c: () => this.nextMark("condensations", 1), C: () => this.nextMark("condensations", -1),
      w: () => this.nextMark("waits", 1), W: () => this.nextMark("waits", -1), j: () => this.transcript.step(1), k: () => this.transcript.step(-1),
      m: () => this.showPage(this.tab === "memory" ? "transcript" : "memory"), n: () => this.note(),
      "+": () => this.chart.zoom(1 / 1.6), "-": () => this.chart.zoom(1.6), "/": () => this.box.focus(), "?": () => this.help.showModal(),
      ArrowDown: this.tab === "memory" && (() => this.list.key(event)), ArrowUp: this.tab === "memory" && (() => this.list.key(event)), Escape: () => this.escape(),
    }[event.key];
    const pins = this.tab === "memory" && event.key === "Enter" && !event.target.closest("button, a, summary, input");
    if (!action && !pins) return;
    event.preventDefault();
    if (pins) this.compare(this.from === null ? this.version : null);
    else action();
  }

  searchKey(event) {
    if (event.key === "Enter") this.nextHit(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      this.box.value = "";
      this.find("");
      this.list.node.focus();
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
    if (given.get("at") === "error") this.goToFirstError();
    this.notice.textContent = unknown.length ? `This history has no ${unknown.join(" and no ")}: it has the versions 0 to ${grouped(last)}${last ? `, and the events 0 to ${grouped(last - 1)}` : ""}. Version ${grouped(this.version)} is shown.` : "";
    if (this.chart.history) this.chart.reveal(this.version);
    const tab = given.get("tab") ?? (this.from !== null ? "memory" : null);
    if (tab === "memory" || tab === "transcript") this.showPage(tab);
    this.toRead = this.event ?? this.version - 1;
    if (this.event !== null) {
      this.toReveal = this.event;
      this.showTab("detail");
    }
    this.toChange = this.from !== null;
    this.changed("moment", "chosen");
  }

  goToFirstError() {
    const [id] = this.marks.errors;
    if (id === undefined) return;
    this.version = id + 1;
    this.event = id;
  }

  address() {
    const parts = [`v=${this.version}`];
    if (this.from !== null) parts.push(`from=${this.from}`);
    if (this.event !== null) parts.push(`e=${this.event}`);
    if (this.tab === "memory") parts.push("tab=memory");
    return `#${parts.join("&")}`;
  }

  writeAddress() {
    clearTimeout(this.addressing);
    this.addressing = setTimeout(() => history.replaceState(null, "", this.address()), 120);
  }
}

const TAB = "foldlog-tab";
const MARKS = { errors: "error", condensations: "condensation", waits: "wait" };
const RULE = "An event is found by its id, or if it contains all of the words: in any order, also inside longer words. “In quotes” they stand side by side; #17 is only the event with this id.";
const LEGEND = ["damaged", "pending", "unsent", "masked", "summarized", "forgotten", "taken back"];
const STATES = [
  ["g2", "a row in the colour of summaries: a summary, from its condensation on until it is summarized again"],
  ["is-edge", "a thin line across rows: a condensation, or in red a retraction. Its label says what it took out of the View, and the tokens"],
  ["is-open", "the strong line: the version that is open. Dashed: the version that is compared with it"],
  ["is-limit", "the dashed red line across: the limit of tokens"],
  ["g3", "full colour: sent to the model"], ["k-pending", "faint: in the View, but not sent. Pending: it waits for its observation, or for that of a parallel call. Unsent: another part of its call was forgotten"],
  ["k-masked", "pale: masked, a line is sent in place of its content"], ["k-summarized", "hatched in the colour of summaries: summarized, a summary took its place"],
  ["k-forgotten", "hatched grey: forgotten without a summary"], ["k-taken-back", "hatched the other way: taken back by a retraction"],
];

// A page that says why there is no other one, and the ways on.
function failure(error, isServed = true) {
  const isHome = !location.search;
  // A browser raises a TypeError where no reply comes.
  const [why, remedy] = !isServed
    ? [error.message, "The file may be incomplete. Write it again with foldlog report, and open it in a browser of the last three years."]
    : error instanceof TypeError
      ? ["The server does not answer.", "Start it again with foldlog serve, and open the address that it prints."]
      : [error.message, null];
  return [
    el("header", {}, el("span", { class: "brand" }, "foldlog"), el("span", { class: "grow" }), themeButton()),
    el("main", { class: "failure" },
      el("div", { role: "alert" }, el("h1", {}, "This page cannot be shown"), said(sentence(why).replace(/[^.]$/, "$&."), "p")),
      remedy && el("p", { class: "soft" }, remedy),
      el("div", { class: "ways" }, isServed && !isHome ? el("a", { class: "button", href: homeAddress() }, "All runs") : null, el("button", { onclick: () => location.reload() }, "Try again"))),
  ];
}

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
