// All runs of a store: which runs failed, and what they cost. The server filters and sorts the runs, and computes the
// sums.

import {
  DAY,
  ask,
  costWords,
  count,
  dated,
  duration,
  el,
  grouped,
  idOf,
  isTyped,
  keep,
  kept,
  Live,
  moment,
  phone,
  printable,
  refill,
  said,
  short,
  table,
  withMarks,
} from "./dom.js";
import { openStream } from "./sources.js";
import { distinguished } from "./titles.js";

const PAGE = 100; // The number of runs in one request.
const MOST_HITS = 50; // The maximum number of events with the searched words.
const MOST_FACETS = 10; // The number of names of a facet, unless the reader asks for all.
const SORT = "-activity";
const SORTS = [
  ["state", "Run", "Sort by state: runs that ended with an error first"],
  ["condensations", "Condensed", "How often the context was condensed"],
  ["", "First error", ""],
  ["errors", "Errors", "Results of calls that their source marks as errors"],
  ["wait", "Longest wait", "The longest wait for a model or a tool"],
  ["duration", "Took", "From the first event to the last one"],
  ["cost", "Cost", "The cost of all model calls. ≈ means that prices come from a table"],
  ["activity", "Last event", "Runs without times come last"],
];
const FACETS = [
  ["state", "State"],
  ["program", "Program"],
  ["tool", "Tool"],
  ["model", "Model"],
  ["attribute", "Attribute"],
];
export const STATES_OF_RUNS = {
  error: "ended with an error",
  refused: "a person refused a call",
  open_call: "waits for a tool",
  result: "waits for the model",
  request: "asked, not answered",
  answer: "answered",
};
const HOME = "foldlog-home"; // Where the browser stores the search line and the order.
const WRONG_LINE = 422; // The status of an answer to a search line that cannot be read.

export class Runs {
  constructor(root) {
    this.root = root;
    this.line = "";
    this.sort = SORT;
    this.rows = []; // The loaded runs. There are ``total`` runs.
    this.nodes = new Map();
    this.total = 0;
    this.refreshes = 0; // The number of times that the runs were asked for.
    this.shown = 0; // The refresh whose runs are shown.
    this.drawn = ""; // What the shown sums were drawn of.
    this.chosen = new Set();
    this.wide = new Set(); // The facets that show all their names.
    this.names = new Map();
  }

  async start() {
    this.build();
    this.readAddress();
    addEventListener("hashchange", () => {
      this.readAddress();
      this.load();
    });
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || isTyped(event)) return;
      event.preventDefault();
      this.box.focus();
    });
    try {
      await this.refresh();
    } catch (error) {
      if (error.status !== WRONG_LINE) throw error;
      this.problem.textContent = error.message; // The reader can change the search line.
    }
    openStream("follow", {
      version: () => this.follow(),
      error: () => this.live.set(false),
      open: () => this.live.set(true),
    });
  }

  // Load the shown runs and sums again. While the server still counts runs, repeat this.
  async refresh() {
    const { line, sort } = this;
    const asked = (this.asked = `${line}\n${sort}`);
    const number = (this.refreshes += 1);
    // Whether nothing newer was asked for or shown: answers may overtake each other.
    const isNewest = () => this.asked === asked && number >= this.shown;
    // The rows do not wait for the sums, which take longer.
    const count = Math.max(PAGE, this.rows.length);
    const page = this.askPage(0, count).then((answer) => {
      if (isNewest()) {
        this.shown = number;
        // More rows may have been loaded since the request.
        this.rows = answer.conversations.concat(this.rows.slice(count));
        this.total = answer.total;
        this.showRows();
      }
      return answer;
    });
    const [fleet, rows] = await Promise.all([ask(`overview?${new URLSearchParams({ q: line })}`), page]);
    if (!isNewest()) return;
    this.fleet = fleet;
    const sums = JSON.stringify([fleet, line, this.total]);
    // Equal sums are not drawn again: a click that began on one of their buttons would be lost.
    if (sums !== this.drawn) this.showSums();
    this.drawn = sums;
    // The server goes on counting between the two answers, so either of them may lack runs that the other one has.
    const uncounted = Math.max(fleet.conversations - fleet.counted, rows.total - rows.counted);
    this.counted = fleet.conversations - uncounted;
    clearTimeout(this.again);
    if (uncounted || fleet.behind || rows.behind) this.again = setTimeout(() => this.follow(), 700);
  }

  // Load the shown runs and sums again, because the store has changed.
  async follow() {
    try {
      await this.refresh();
      this.live.set(true);
    } catch (error) {
      this.live.set(false, error.message);
    }
  }

  askPage(start, limit = PAGE) {
    return ask(
      `conversations?${new URLSearchParams({ q: this.line, sort: this.sort, start: String(start), limit: String(limit) })}`,
    );
  }

  // -- what is chosen -------------------------------------------------------------------------------------------------

  // Show the runs that a search line selects, in an order.
  async choose(line, sort = this.sort) {
    this.line = line.trim();
    this.sort = sort;
    this.rows = [];
    if (document.activeElement !== this.box) this.box.value = this.line;
    this.writeAddress();
    this.search();
    await this.load();
  }

  // Load the runs that the search line selects, and show them from the first on. Say why if this fails, unless the
  // reader has changed the line or the order meanwhile.
  async load() {
    const { line, sort } = this;
    const isAsked = () => this.line === line && this.sort === sort;
    try {
      await this.refresh();
      if (!isAsked()) return;
      this.problem.textContent = "";
      this.list.scrollTop = 0;
    } catch (error) {
      if (isAsked()) this.problem.textContent = error.message;
    }
  }

  // The words of the search line that name a facet, each with its value.
  words() {
    return Array.from(this.line.matchAll(WORD), ([word, key, quoted, plain]) => ({
      word,
      key,
      value: quoted ?? plain,
    }));
  }

  // Whether the search line has a word.
  isOn(key, value) {
    return this.words().some((each) => each.key === key && each.value === value);
  }

  // The search line without the words that name a facet and for which ``isLeftOut`` is true.
  without(isLeftOut) {
    return this.line
      .replace(WORD, (word, key, quoted, plain) => (isLeftOut(key, quoted ?? plain) ? " " : word))
      .replace(/\s+/g, " ");
  }

  // The search line to which a word of a facet can be added. Of a facet other than "has", and of an attribute, only one
  // value is chosen: the word of another value is left out.
  lineBeside(key, value) {
    const isReplaced = (other) => key !== "has" && (key !== "attribute" || attributeOf(other) === attributeOf(value));
    return this.without((other, its) => other === key && isReplaced(its)).trim();
  }

  // Add a word to the search line, or remove it.
  toggle(key, value) {
    if (this.isOn(key, value)) this.choose(this.without((other, its) => other === key && its === value));
    else this.choose(`${this.lineBeside(key, value)} ${wordOf(key, value)}`);
  }

  // Choose the runs whose last event is between two days. Without days, choose all days.
  brush(from, to) {
    const others = this.without((key) => key === "since" || key === "until");
    this.choose(`${others}${from ? ` since:${from} until:${to}` : ""}`);
  }

  // The words of the search line that name no facet.
  get plain() {
    return this.without(() => true).trim();
  }

  writeAddress() {
    const parts = new URLSearchParams();
    if (this.line) parts.set("q", this.line);
    if (this.sort !== SORT) parts.set("sort", this.sort);
    const hash = parts.size ? `#${parts}` : "";
    history.replaceState(null, "", `${location.pathname}${location.search}${hash}`);
    keep("sessionStorage", HOME, hash);
  }

  readAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    this.line = given.get("q") ?? "";
    const sort = given.get("sort") ?? SORT;
    this.sort = SORTS.some(([name]) => name && name === sort.replace(/^-/, "")) ? sort : SORT;
    this.box.value = this.line;
    keep("sessionStorage", HOME, location.hash);
    this.search();
  }

  // -- building -------------------------------------------------------------------------------------------------------

  build() {
    this.live = new Live();
    this.box = el("input", {
      type: "search",
      placeholder: 'has:error  tool:Bash  program:codex  "No such file"',
      "aria-label": "Choose runs",
      title: RUNS_RULE,
      autocomplete: "off",
      spellcheck: "false",
      list: "facet-words",
      oninput: () => {
        clearTimeout(this.typing);
        this.typing = setTimeout(() => this.choose(this.box.value), 250);
      },
    });
    this.proposals = el("datalist", { id: "facet-words" });
    this.problem = el("p", { class: "problem", role: "alert" });
    this.facets = el("aside", { class: "facets", "aria-label": "Facets" });
    this.sentence = el("p", { class: "summary", role: "status" });
    this.costs = el("div", {
      class: "costs",
      role: "group",
      "aria-label": "Cost by model and by day",
      tabindex: "0",
      hidden: true,
    });
    this.days = el("div", { class: "histogram", role: "img" });
    this.ends = el("div", { class: "ends soft" });
    this.followBrush();
    this.hits = el("section", { class: "hits", "aria-label": "Events that contain the words", hidden: true });
    this.comparing = el("div", { class: "picked", hidden: true });
    this.buttons = new Map(
      SORTS.map(([name, , title]) => [name, el("button", { class: "sort", title, onclick: () => this.sortBy(name) })]),
    );
    this.head = el(
      "div",
      { class: "row head", role: "group", "aria-label": "Order of the runs" },
      ...SORTS.map(([name, words]) =>
        el(
          "span",
          { class: `cell c-${name || "first"}` },
          name === "condensations" ? el("span", { title: "The tokens of the prompts over the run" }, "Context") : "",
          name ? this.buttons.get(name) : words,
        ),
      ),
    );
    this.inner = el("div", { role: "presentation" });
    this.end = el("div", { class: "end" });
    this.list = el("div", { class: "rows", "aria-label": "Runs" }, this.inner, this.end);
    this.seen = new IntersectionObserver(([{ isIntersecting }]) => isIntersecting && this.loadMore());
    this.root.replaceChildren(
      el(
        "header",
        {},
        el("h1", {}, "foldlog"),
        el("div", { class: "search wide" }, this.box, this.proposals),
        this.live.node,
      ),
      el(
        "main",
        { class: "runs" },
        el("details", { class: "facets-of", open: !phone.matches }, el("summary", {}, "Facets"), this.facets),
        el(
          "section",
          { class: "conversations" },
          el("div", { class: "above" }, this.problem, this.sentence, this.costs, this.days, this.ends),
          this.hits,
          this.comparing,
          this.head,
          this.list,
        ),
      ),
    );
  }

  // Dragging over days chooses them. Dragging over exactly the chosen days chooses all days again.
  followBrush() {
    let start = null;
    const dayAt = ({ clientX }) => {
      const { left, width } = this.days.getBoundingClientRect();
      return Math.min(this.range.length - 1, Math.max(0, Math.floor(((clientX - left) / width) * this.range.length)));
    };
    const ends = (event) => [start, dayAt(event)].sort((one, other) => one - other);
    this.days.addEventListener("pointerdown", (event) => {
      start = dayAt(event);
      this.days.setPointerCapture(event.pointerId);
      this.markDays(start, start);
    });
    this.days.addEventListener("pointermove", (event) => start !== null && this.markDays(...ends(event)));
    this.days.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const [first, last] = ends(event);
      start = null;
      const [from, to] = [this.range[first], nextDay(this.range[last])];
      if (this.isOn("since", from) && this.isOn("until", to)) this.brush();
      else this.brush(from, to);
    });
  }

  // Mark the days at these places of the picture as chosen.
  markDays(first, last) {
    Array.from(this.days.children).forEach((day, place) =>
      day.classList.toggle("chosen", place >= first && place <= last),
    );
  }

  // -- showing --------------------------------------------------------------------------------------------------------

  // Show what was computed from all chosen runs.
  showSums() {
    this.showSentence();
    this.showFacets();
    this.showDays();
    this.list.querySelector(".empty")?.remove();
    if (!this.total)
      this.list.append(
        this.fleet.conversations
          ? el("p", { class: "empty" }, "No run matches.")
          : el(
              "div",
              { class: "empty" },
              el("p", {}, "The store has no runs yet. Import some:"),
              el("pre", { class: "code" }, this.fleet.import_command),
            ),
      );
  }

  // Show the loaded runs, and by which column they are sorted.
  showRows() {
    this.nameThem(this.rows);
    for (const [name, words] of SORTS) {
      const button = this.buttons.get(name);
      if (!name) continue;
      const isChosen = this.sort.replace(/^-/, "") === name;
      const arrow = this.sort.startsWith("-") ? "↓" : "↑";
      button.setAttribute("aria-pressed", isChosen);
      button.textContent = `${words}${isChosen ? ` ${arrow}` : ""}`;
      button.setAttribute("aria-label", isChosen ? `${words}, ${arrow === "↓" ? "falling" : "rising"}` : words);
    }
    this.list.setAttribute("role", this.total ? "list" : "group");
    this.draw();
  }

  // "12 of 137 runs that mark errors ended with one · most errors in Bash (30) · $7.80 of $44.35".
  showSentence() {
    const { chosen, conversations, counted, behind, is_partial: isPartial } = this.fleet;
    const tools = this.fleet.facets.filter((facet) => facet.what === "tool errors");
    const tool = tools.sort((one, other) => other.number - one.number)[0];
    const all =
      chosen.conversations < conversations && this.fleet.spent.cost !== null
        ? ` of ${costWords(this.fleet.spent)}`
        : "";
    const unknown = [
      [chosen.without_usage, "usage"],
      [chosen.without_cost, "a price"],
    ]
      .filter(([number]) => number)
      .map(([number, what]) => `${grouped(number)} without ${what}`);
    const hasCost = chosen.spent.cost !== null;
    const button = el(
      "button",
      {
        class: "link",
        "aria-expanded": !this.costs.hidden,
        title: "Cost by model and by day",
        onclick: () => this.turnCosts(),
      },
      `${costWords(chosen.spent)}${all}`,
    );
    refill(
      this.sentence,
      el("b", {}, errorWords(chosen, this.total)),
      tool
        ? el(
            "span",
            {},
            " · most errors in ",
            el(
              "button",
              { class: "link bad", onclick: () => this.choose(`has:error ${wordOf("tool", tool.name)}`) },
              printable(tool.name),
            ),
            ` (${grouped(tool.number)})`,
          )
        : "",
      hasCost ? el("span", {}, " · ", button) : "",
      unknown.length && hasCost ? el("span", { class: "soft" }, ` (${unknown.join(", ")})`) : "",
      counted < conversations
        ? el("span", { class: "soft" }, ` · still counting: ${grouped(counted)} of ${grouped(conversations)}`)
        : "",
      behind?.as_of ? el("span", { class: "soft" }, ` · as of ${moment(Date.parse(behind.as_of), "")}`) : "",
      isPartial ? el("span", { class: "soft" }, " · not all conversations were searched") : "",
    );
    if (!hasCost) this.costs.hidden = true;
    this.showCosts();
  }

  turnCosts() {
    this.costs.hidden = !this.costs.hidden;
    this.showSentence();
  }

  // Two tables of the cost of the chosen runs: by model, the highest cost first, and by day, the last day first.
  showCosts() {
    if (this.costs.hidden) return;
    const { models, days } = this.fleet.chosen;
    const of = (name, rows, named) => {
      const head = [name, "Calls", "Tokens", "Cost"].map((words) => el("th", { scope: "col" }, words));
      const cells = rows.map((row) => [
        el("th", { scope: "row" }, said(named(row))),
        el("td", {}, grouped(row.calls)),
        el("td", {}, short((row.prompt_tokens ?? 0) + (row.completion_tokens ?? 0))),
        el("td", {}, costWords(row)),
      ]);
      return table(head, cells);
    };
    refill(
      this.costs,
      of(
        "Model",
        [...models].sort((one, other) => (other.cost ?? -1) - (one.cost ?? -1)),
        ({ model }) => model || "not named",
      ),
      of("Day", [...days].reverse(), ({ day }) => day),
    );
  }

  showFacets() {
    const failed = this.isOn("has", "error");
    const widen = (key) => {
      this.wide.add(key);
      this.showFacets();
    };
    const groups = FACETS.map(([key, words]) => {
      // Together with has:error, a tool facet counts the runs in which the tool failed.
      const isOfErrors = failed && key === "tool";
      const name = isOfErrors ? `${words} with errors` : words;
      const what = isOfErrors ? "tool errors" : key;
      const found = this.fleet.facets.filter((facet) => facet.what === what && !/^(program|model)=/.test(facet.name));
      const sorted = found.sort((one, other) => other.conversations - one.conversations);
      const some = this.wide.has(key) ? sorted : sorted.slice(0, MOST_FACETS);
      const hidden = sorted.length - some.length;
      const more = hidden
        ? el("button", { class: "more", onclick: () => widen(key) }, el("span", {}, `${grouped(hidden)} more`))
        : "";
      if (!some.length) return null;
      return el(
        "div",
        { class: "facet", role: "group", "aria-label": name },
        el("h2", {}, name),
        ...some.map((facet) => {
          const isOn = this.isOn(key, facet.name);
          const label = key === "state" ? (STATES_OF_RUNS[facet.name] ?? facet.name) : printable(facet.name);
          return el(
            "button",
            { "aria-pressed": isOn, title: label, onclick: () => this.toggle(key, facet.name) },
            el("span", {}, label),
            el("span", { class: "number" }, grouped(facet.conversations)),
          );
        }),
        more,
      );
    });
    const having = (name, number) =>
      el(
        "button",
        { "aria-pressed": this.isOn("has", name), onclick: () => this.toggle("has", name) },
        el("span", {}, `with ${name === "error" ? "an" : "a"} ${name}`),
        el("span", { class: "number" }, grouped(number)),
      );
    const { with_errors: errors, with_notes: notes } = this.fleet.chosen;
    refill(
      this.facets,
      el("div", { class: "facet" }, having("error", errors), notes ? having("note", notes) : ""),
      ...groups.filter(Boolean),
    );
    refill(
      this.proposals,
      ...this.fleet.facets
        .filter((facet) => facet.what !== "tool errors")
        .slice(0, 200)
        .map(({ what, name }) => {
          const before = this.plain ? `${this.lineBeside(what, name)} ` : "";
          return el("option", { value: `${before}${wordOf(what, name)}` });
        }),
    );
  }

  // Show all days from the first to the last day, including days without a run. An event with a wrong time may lie
  // years away from all others, so the picture shows one period, and buttons name the runs outside of it.
  showDays() {
    const known = new Map(this.fleet.days.map((day) => [day.day, day]));
    const [since, until] = ["since", "until"].map((key) => this.words().find((each) => each.key === key)?.value);
    const periods = periodsOf([...this.fleet.days].sort((one, other) => (one.day < other.day ? -1 : 1)));
    const shown =
      periods.find(({ days }) => since && days.some(({ day }) => day >= since && (!until || day < until))) ??
      [...periods].sort((one, other) => other.runs - one.runs)[0];
    this.range = shown ? daysBetween(shown.first, shown.last) : [];
    this.days.hidden = this.ends.hidden = !this.range.length;
    if (!this.range.length) return;
    const most = Math.max(...shown.days.map((day) => Math.max(day.conversations, day.errors)));
    const label = (name) => dated(Date.parse(name))[0];
    const days = this.range.map((name) => {
      const { conversations, errors } = known.get(name) ?? { conversations: 0, errors: 0 };
      const bars = [conversations, errors].map((number) => {
        const bar = el("span", {});
        // With a square root, a day with few runs stays visible beside a day with a hundred times as many.
        bar.style.height = number ? `max(2px, ${100 * Math.sqrt(number / most)}%)` : "0";
        return bar;
      });
      return el(
        "span",
        { class: "day", title: `${label(name)}: ${count(conversations, "run")}, ${count(errors, "error")}` },
        ...bars,
      );
    });
    this.days.replaceChildren(...days);
    const [first, last] = [this.range[0], this.range.at(-1)];
    const others = periods.filter((period) => period !== shown).map((period) => this.outside(period, label));
    if (others.length) others.unshift("; not shown:");
    this.ends.replaceChildren(
      el("span", {}, label(first)),
      el("span", {}, `runs by day, errors in red; at most ${grouped(most)} a day; heights are square roots`, ...others),
      el("span", {}, label(last)),
    );
    this.days.setAttribute(
      "aria-label",
      `Runs and errors by day from ${first} to ${last}, at most ${grouped(most)} on a day. The words since: and until: choose days`,
    );
    const isChosen = (name) => name >= since && (!until || name < until);
    if (since) this.markDays(this.range.findIndex(isChosen), this.range.findLastIndex(isChosen));
  }

  // A button that chooses the runs of a period that the picture of the days does not show.
  outside({ first, last, runs }, label) {
    const when = first === last ? `on ${label(first)}` : `from ${label(first)} to ${label(last)}`;
    return el(
      "button",
      { class: "link", onclick: () => this.brush(first, nextDay(last)) },
      `${count(runs, "run")} ${when}`,
    );
  }

  // Shorten the titles of loaded runs that begin alike, so that the words that differ are visible.
  nameThem(conversations) {
    for (const [id, name] of distinguished(conversations)) this.names.set(id, name);
  }

  nameOf({ conversation: id, title = undefined }) {
    const { name, start } = this.names.get(id) ?? { name: title ?? id, start: "" };
    return [start && said(printable(`${start} `), "span", { class: "soft" }), said(printable(name))].filter(Boolean);
  }

  // Sort by a column, in falling order. If the runs have this order already, turn it round.
  sortBy(name) {
    this.choose(this.line, this.sort === `-${name}` ? name : `-${name}`);
  }

  // -- rows -----------------------------------------------------------------------------------------------------------

  // Draw the loaded rows. Unchanged rows keep their elements.
  draw() {
    const before = this.nodes;
    this.nodes = new Map();
    this.rows.forEach((one, place) => {
      const content = JSON.stringify([one, place, this.total, this.chosen.has(one.conversation)]);
      const known = before.get(one.conversation);
      const node = known?.content === content ? known.node : this.row(one, place);
      if (known && known.node !== node) {
        const hasFocus = known.node.contains(document.activeElement);
        known.node.replaceWith(node);
        if (hasFocus) node.querySelector("a").focus({ preventScroll: true });
      }
      this.nodes.set(one.conversation, { node, content });
      const there = this.inner.children[place];
      if (there !== node) this.inner.insertBefore(node, there ?? null);
    });
    while (this.inner.children.length > this.rows.length) this.inner.lastChild.remove();
    this.seen.disconnect();
    this.seen.observe(this.end); // It reports at once whether the end of the list is visible.
  }

  // Load the next runs. The end of the list calls this whenever it comes into sight.
  async loadMore() {
    const { asked, rows } = this;
    if (rows.length >= this.total || this.loading === rows) return;
    this.loading = rows;
    try {
      const { conversations } = await this.askPage(rows.length);
      if (this.asked !== asked || this.rows !== rows) return;
      // The total may include runs that the server has not counted yet. They come with a later ``refresh``.
      if (!conversations.length) return;
      this.rows = [...rows, ...conversations];
      this.nameThem(conversations);
      this.draw();
    } catch (error) {
      this.live.set(false, error.message);
    } finally {
      this.loading = null;
    }
  }

  row(one, place) {
    const item = el("div", { class: "item", role: "listitem", "aria-setsize": this.total, "aria-posinset": place + 1 });
    const told = (words) => el("span", { class: "told" }, words);
    const cell = (name, text, unit) =>
      el("span", { class: `cell c-${name}` }, text, text ? told(unit) : "", text ? told(", ") : "");
    const state = STATES_OF_RUNS[one.state] ?? "";
    const box = /** @type {HTMLInputElement} */ (
      el("input", {
        type: "checkbox",
        title: "Compare with another run",
        "aria-label": `Compare ${printable(one.title ?? one.conversation)}`,
        onchange: () => this.pick(one.conversation, box.checked),
      })
    );
    box.checked = this.chosen.has(one.conversation);
    const took =
      one.first_event_at && one.last_event_at ? timeIn(one.last_event_at) - timeIn(one.first_event_at) : null;
    const { spent, errors, first_error: words } = one.task ?? one; // A row of a task has the sums over its agents.
    const failed = words ? (one.task?.first_error_in ?? one.conversation) : one.conversation;
    const error = words ? printable(words.replace(COLOURS, "")) : null;
    const under = [
      one.format === "foldlog" ? "" : one.format,
      one.model,
      one.parent && `fork of ${one.parent}`,
      one.attributes?.incomplete,
      one.task && count(one.task.sub_agents, "sub-agent"),
      one.attributes?.parent && `sub-agent of ${shortId(one.attributes.parent)}`,
      shortId(one.conversation),
    ]
      .filter(Boolean)
      .join(" · ");
    // A click on the first error opens the run at this error. Any other click opens the end of the run.
    const lead = ({ target, currentTarget: link }) => {
      const isToError = words && target.closest(".c-first");
      link.href = addressOf(isToError ? failed : one.conversation) + (isToError ? "#at=error" : "");
    };
    const row = el(
      "a",
      { class: "row", href: addressOf(one.conversation), onclick: lead },
      el(
        "span",
        { class: "cell c-state" },
        el("span", { class: `dot is-${one.state ?? "unknown"}`, title: state, "aria-hidden": true }),
        told(state && `${state}: `),
        el("span", { class: "name", title: printable(one.title ?? one.conversation) }, ...this.nameOf(one)),
        told(", "),
        el("span", { class: "under" }, one.problem ? el("span", { class: "problem" }, said(one.problem)) : said(under)),
      ),
      el(
        "span",
        { class: "cell c-condensations" },
        sparkline(one.context ?? [], one.state === "error"),
        one.condensations
          ? el(
              "span",
              { class: "condensed", title: count(one.condensations, "condensation") },
              grouped(one.condensations),
              told(one.condensations === 1 ? " condensation, " : " condensations, "),
            )
          : "",
      ),
      el("span", { class: "cell c-first", title: error }, error ? said(error) : ""),
      cell("errors", errors ? grouped(errors) : "", errors === 1 ? " error" : " errors"),
      cell("wait", one.longest_wait_s >= 0.05 ? duration(one.longest_wait_s * 1000) : "", " longest wait"),
      cell("duration", took === null ? "" : duration(took), " taken"),
      cell("cost", costInRow(spent), " cost"),
      el(
        "span",
        { class: "cell c-activity" },
        ...(one.last_event_at
          ? dated(timeIn(one.last_event_at)).map((part) => el("span", {}, `${part} `))
          : [el("span", { class: "soft" }, "no times")]),
      ),
    );
    item.append(box, row);
    return item;
  }

  // -- two runs -------------------------------------------------------------------------------------------------------

  // Choose a run for a comparison, or not. Of three chosen runs, only the last two are compared.
  pick(conversation, isChosen) {
    if (isChosen) this.chosen.add(conversation);
    else this.chosen.delete(conversation);
    while (this.chosen.size > 2) this.chosen.delete(this.chosen.values().next().value);
    const [one, other] = [...this.chosen];
    this.comparing.hidden = !this.chosen.size;
    refill(
      this.comparing,
      other === undefined
        ? el("span", { class: "soft" }, "Tick another run to compare the two.")
        : el(
            "a",
            { class: "button", href: `./?${new URLSearchParams({ compare: one, with: other })}` },
            "Compare the two runs",
          ),
    );
    this.draw();
  }

  // -- texts ----------------------------------------------------------------------------------------------------------

  // Search the texts of events for the words that name no facet, in the runs that the facets choose. With has:error,
  // search only errors.
  async search() {
    const words = this.plain;
    const facets = this.words()
      .map(({ word }) => word)
      .join(" ");
    const asksForErrors = this.isOn("has", "error");
    const asked = String(new URLSearchParams({ words, limit: String(MOST_HITS), q: facets }));
    if (asked === this.searched) return;
    this.searched = asked;
    this.hits.hidden = true;
    if (!words) return;
    try {
      const reply = await ask(`search?${asked}`);
      if (asked !== this.searched) return;
      this.hits.hidden = false;
      refill(
        this.hits,
        el(
          reply.hits.length ? "h2" : "p",
          {},
          reply.hits.length
            ? `${reply.more ? "The first " : ""}${count(reply.hits.length, asksForErrors ? "error" : "event")} in ${facets ? "the chosen" : "all"} runs with all of the words`
            : `No ${asksForErrors ? "error" : "event"} contains these words.`,
        ),
        lacks(reply) ? el("p", { class: "soft" }, lacks(reply)) : "",
        ...reply.hits.map((hit) =>
          el(
            "a",
            { class: "hit", href: addressOf(hit.conversation, hit.event) },
            el("b", {}, ...this.nameOf({ conversation: hit.conversation })),
            el(
              "span",
              {
                class: hit.kind === "error" ? "bad" : "soft",
                title: printable(
                  hit.task ? `${hit.conversation}, a sub-agent in the task ${hit.task}` : hit.conversation,
                ),
              },
              `${hit.task ? `in task ${shortId(hit.task)} · ` : ""}${hit.kind} ${idOf(hit.event)} · ${shortId(hit.conversation)}`,
            ),
            el("bdi", { class: "snippet" }, ...withMarks(hit.snippet, hit.highlights)),
          ),
        ),
      );
    } catch (error) {
      if (asked !== this.searched) return;
      this.searched = undefined; // The next search for the same words asks again.
      this.hits.hidden = false;
      this.hits.replaceChildren(
        el("p", { class: "soft" }, said(`Only titles and ids were searched: ${error.message}`)),
      );
    }
  }
}

// What a search did not read, or an empty text. A search that found enough need not read the rest.
function lacks({ more, read, conversations, unread, is_partial: isPartial }) {
  if (!isPartial && !unread.length && (more || read >= conversations)) return "";
  const reasons = unread.slice(0, 2).map(printable);
  if (unread.length > 2) reasons.push(`${grouped(unread.length - 2)} more`);
  return `Not all conversations were searched${reasons.length ? ": " : ""}${reasons.join("; ")}.`;
}

// The cost in a row, where there is room for three digits.
function costInRow(spent) {
  if (!spent || spent.cost === null) return "";
  return spent.cost > 0 && spent.cost < 0.0005 ? "< $0.001" : costWords(spent);
}

// The number of chosen runs that failed, among the runs whose sources mark errors. Sub-agents are runs without a row of
// their own.
function errorWords({ conversations, unmarked, ended_with_error: failed, with_errors: some }, rows) {
  const runs = `${count(conversations, "run")}${rows < conversations ? ` of ${count(rows, "task")}` : ""}`;
  const marking = conversations - unmarked;
  if (!conversations) return "No run";
  if (!marking) return `${runs}, from sources that mark no errors`;
  const all = unmarked ? `${count(marking, "run")} that mark${marking === 1 ? "s" : ""} errors` : runs;
  if (failed) return `${grouped(failed)} of ${all} ended with ${unmarked ? "one" : "an error"}`;
  if (some) return `${grouped(some)} of ${all} had ${unmarked ? "one" : "an error"}`;
  return unmarked ? `${runs}; none of the ${grouped(marking)} that mark errors has one` : `${runs} without an error`;
}

const WORD = /(?:^|(?<=\s))(state|program|tool|model|attribute|has|since|until):(?:"([^"]*)"|(\S+))/g;
const attributeOf = (value) => value.split("=", 1)[0];
const wordOf = (key, value) => `${key}:${/[\s"]/.test(value) ? `"${value}"` : value}`;
const RUNS_RULE =
  "Words are searched in titles, ids and texts. These words choose runs: has:error, has:note, state:error, tool:Bash, program:codex, model:…, attribute:name=value, since:2026-09-20 and until:2026-10-01. has:error tool:Bash chooses the runs in which Bash failed.";
const COLOURS = /\x1b\[[\d;?]*[a-zA-Z]/g; // Escape sequences that colour a terminal.

// An area that shows the tokens of a run's prompts. If the run ended with an error, a red line is at the end.
export function sparkline(context, isFailed = false) {
  const node = el("span", { class: "spark", "aria-hidden": true });
  if (context.length < 2) return node;
  const most = Math.max(...context, 1);
  const x = (place) => `${((100 * place) / (context.length - 1)).toFixed(1)}%`;
  const area = el("span", { class: "area" });
  area.style.clipPath = `polygon(0% 100%, ${context.map((tokens, place) => `${x(place)} ${(100 - (94 * tokens) / most).toFixed(1)}%`).join(", ")}, 100% 100%)`;
  node.append(area);
  if (isFailed) node.append(el("span", { class: "failure-at" }));
  return node;
}

// The address of the list, with the search line and the order that it had.
export const homeAddress = () => `./${kept("sessionStorage", HOME) ?? ""}`;

export const addressOf = (id, event = undefined) =>
  `./?${new URLSearchParams({ id })}${event === undefined ? "" : `#e=${event}`}`;
export const timeIn = (text) => Date.parse(/[zZ]|[+-]\d\d:?\d\d$/.test(text) ? text : `${text}Z`);

// The short form of an id, such as the first part of a UUID.
export function shortId(id) {
  const last = id.split("/").at(-1) || id;
  return printable(/^[0-9a-f]{8}-/.test(last) ? last.slice(0, 8) : last);
}

const dayText = (milliseconds) => new Date(milliseconds).toISOString().slice(0, 10);
const nextDay = (day) => dayText(Date.parse(day) + DAY);

// The periods in which there are runs. A new period begins after a year without a run, and after ten years.
function periodsOf(days) {
  const periods = [];
  for (const day of days) {
    const period = periods.at(-1);
    const isSame =
      period &&
      Date.parse(day.day) - Date.parse(period.last) <= 366 * DAY &&
      Date.parse(day.day) - Date.parse(period.first) < 3660 * DAY;
    if (isSame) {
      period.days.push(day);
      period.last = day.day;
      period.runs += day.conversations;
    } else periods.push({ first: day.day, last: day.day, runs: day.conversations, days: [day] });
  }
  return periods;
}

function daysBetween(first, last) {
  const days = [];
  for (let at = Date.parse(first); at <= Date.parse(last); at += DAY) days.push(dayText(at));
  return days;
}
