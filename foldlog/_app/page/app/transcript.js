// The run as text. A call and its result are one block, and a condensation is a cut. Only blocks near the visible part
// are elements. For the other blocks, the page reserves their measured height, or the usual height of their kind.

import {
  DAY,
  Sight,
  count,
  dated,
  duration,
  el,
  firstPlace,
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
import { RESULTS_OF_TOOLS } from "./history.js";
import { Marks } from "./marks.js";
import { markdown } from "./markdown.js";
import { asText, coded, difference, endOfClip, markWords, pretty, textOf } from "./texts.js";

const PORTION = 40; // The number of events in one request.
const MOST_TEXTS = 4_000; // The number of events whose texts are in memory.
const SOON = 2_000; // The milliseconds that the page waits for its first texts.
// The usual heights of blocks in pixels, before they are measured.
const USUAL = { action: 120, user: 90, agent: 70, system: 110, condensation: 110 };
const EFFECT = "foldlog.effect"; // The name of the marks.
const QUIET = new Set(["annotation", "documents", "request", "redaction", "retraction"]);

// The blocks of a run, in the order of events. A block has the id of its event, and for a call the id of its result.
export function blocksOf(history, isAll) {
  const blocks = [];
  const { answers } = history.columns;
  for (let id = 0; id <= history.version; id += 1) {
    for (const border of history.borders) if (border.parent_version === id) blocks.push({ id, border });
    if (id === history.version) break;
    const kind = history.kind(id);
    if (answers[id] >= 0 && RESULTS_OF_TOOLS.has(kind)) continue;
    if (QUIET.has(kind) && !isAll && kind !== "retraction") continue;
    blocks.push({ id, result: kind === "action" ? history.answered.get(id) : undefined });
  }
  return blocks;
}

export class Transcript {
  constructor(app) {
    this.app = app;
    this.isAll = false; // Also show events that are never shown to a model.
    this.isWhole = false; // Show all texts in full.
    this.isPlain = false; // Do not format Markdown.
    this.opened = new Set(); // The names of the texts that the reader has opened in full.
    this.forgetTexts();
    this.nodes = new Map(); // For each place near the visible part, the element of its block.
    this.inner = el("div", { class: "flow" });
    this.shown = el("div", { class: "blocks" });
    this.inner.append(this.shown);
    this.node = el("div", { class: "transcript", role: "feed", tabindex: 0, "aria-label": "Transcript" }, this.inner);
    this.sight = new Sight(this.node, this.inner, () => this.draw());
    new ResizeObserver(() => this.measure()).observe(this.shown);
    this.shown.addEventListener("click", (event) => this.click(event));
    for (const moves of ["wheel", "touchmove", "pointerdown"])
      this.node.addEventListener(moves, () => (this.target = undefined), { passive: true });
  }

  // Show the blocks of a history. If the history has grown, keep the measured heights.
  open(history) {
    const before = this.heights;
    this.history = history;
    this.blocks = blocksOf(history, this.isAll).filter((block) => this.isWanted(block));
    this.days = this.newDays();
    this.heights = Float64Array.from(
      this.blocks,
      ({ id, border }, place) => before?.[place] ?? (border ? 40 : (USUAL[history.kind(id)] ?? 60)),
    );
    this.tops = new Float64Array(this.blocks.length + 1);
    this.node.setAttribute("aria-busy", "false");
    this.again();
  }

  // Draw all visible blocks again.
  again() {
    for (const node of this.nodes.values()) node.remove();
    this.nodes.clear();
    this.sum();
    this.draw();
  }

  // Forget the texts and the measured heights, because the content of an event was erased.
  forget() {
    this.forgetTexts();
    this.heights = undefined;
  }

  // Change options such as ``isAll``, and show the blocks again.
  change(options = {}) {
    Object.assign(this, options);
    this.heights = undefined;
    this.open(this.history);
  }

  // Whether to show a block. During a comparison, the reader can choose to see only events that entered or left the
  // View.
  isWanted({ id, result = undefined, border = undefined }) {
    const { app } = this;
    if (app.from === null || !app.onlyChanges) return true;
    return !border && [id, result, -id - 2].some((each) => each !== undefined && this.changeOf(each) !== "");
  }

  // "entered" or "left" if the event did so between the two compared versions, or else "".
  changeOf(id) {
    const { compared } = this.app;
    return compared ? this.history.changeOf(id, ...compared) : "";
  }

  // Compute the top of each block from the heights of the blocks above it.
  sum() {
    const { heights, tops } = this;
    for (let place = 0; place < heights.length; place += 1) tops[place + 1] = tops[place] + heights[place];
    this.inner.style.height = `${tops[heights.length]}px`;
  }

  // The place of an event's block. If the event has no block, the place of the block before it.
  placeOf(id) {
    const came = this.history.came(id);
    const action = this.history.columns.answers[came];
    const wanted = action >= 0 ? action : came;
    return Math.max(0, firstPlace(this.blocks.length, (place) => this.blocks[place].id > wanted) - 1);
  }

  // Draw the blocks near the visible part that are not drawn yet, and remove the others.
  draw() {
    if (!this.history) return;
    const { top, height } = this.sight;
    const first = Math.max(
      0,
      firstPlace(this.blocks.length, (place) => this.tops[place + 1] > top - 500),
    );
    const last = Math.min(
      this.blocks.length,
      firstPlace(this.blocks.length, (place) => this.tops[place] > top + (height || 800) + 500),
    );
    for (const [place, node] of this.nodes) {
      if (place >= first && place < last) continue;
      node.remove();
      this.nodes.delete(place);
    }
    let after = null;
    for (let place = last - 1; place >= first; place -= 1) {
      let node = this.nodes.get(place);
      if (!node) {
        node = this.block(place);
        this.nodes.set(place, node);
        this.shown.insertBefore(node, after);
      }
      after = node;
    }
    this.first = first;
    this.shown.style.transform = `translateY(${this.tops[first]}px)`;
    this.measure();
  }

  // Measure the heights of the drawn blocks. The visible part does not move.
  measure() {
    if (!this.nodes.size) return;
    const { top } = this.sight;
    const held = firstPlace(this.blocks.length, (place) => this.tops[place + 1] > top);
    let changed = false;
    let shift = 0;
    for (const [place, node] of this.nodes) {
      const height = node.offsetHeight;
      if (!height || Math.abs(height - this.heights[place]) < 1) continue;
      if (place < held) shift += height - this.heights[place];
      this.heights[place] = height;
      changed = true;
    }
    if (!changed) return;
    this.sum();
    this.shown.style.transform = `translateY(${this.tops[this.first]}px)`;
    if (shift && top > 0) this.sight.top = top + shift;
    if (this.target !== undefined) this.bring(this.target);
    else requestAnimationFrame(() => this.draw());
  }

  // Scroll to an event, and show it near the top. Keep it there while the heights around it are measured, until the
  // reader scrolls.
  reveal(id) {
    if (!this.history || !this.blocks.length) return;
    this.target = this.placeOf(id);
    this.settle();
    this.bring(this.target);
  }

  // After the texts around the event have been loaded, do not keep the event at its place any more.
  settle() {
    clearTimeout(this.settling);
    this.settling = setTimeout(
      () => (this.shown.querySelector(".waiting") ? this.settle() : (this.target = undefined)),
      700,
    );
  }

  // Scroll until the block at a place is near the top.
  bring(place) {
    this.sight.top = Math.max(0, this.tops[place] - Math.min(120, this.sight.height / 4));
    this.draw();
  }

  // Whether the transcript has a block for an event, or shows the event in the block of its call.
  hasBlock(id) {
    const { id: first, result } = this.blocks[this.placeOf(id)] ?? {};
    return [first, result].includes(this.history.came(id));
  }

  // Scroll by 90 % of the visible height.
  scroll(step) {
    this.target = undefined;
    this.sight.top += step * 0.9 * this.sight.height;
  }

  // A click on a block chooses its event, unless the reader has clicked an element of the block, or selects a text.
  click(event) {
    if (event.target.closest("button, a, summary, input, textarea") || String(getSelection())) return;
    const node = event.target.closest("[data-event]");
    if (node) this.app.goToEvent(Number(node.dataset.event), false);
  }

  // Go to the next or the previous block, counted from the chosen event, or from the first visible block.
  step(by) {
    const { event } = this.app;
    const at =
      event === null
        ? firstPlace(this.blocks.length, (place) => this.tops[place] >= this.sight.top) - (by > 0 ? 1 : 0)
        : this.placeOf(event);
    const place = Math.min(this.blocks.length - 1, Math.max(0, at + by));
    if (this.blocks[place]) this.app.goToEvent(this.blocks[place].id);
  }

  // -- texts ----------------------------------------------------------------------------------------------------------

  // The document of an event. It is undefined until it is loaded.
  text(id) {
    const known = this.texts.get(id);
    if (known === undefined) this.load(id - (id % PORTION));
    return known;
  }

  // Load the texts of visible blocks again that could not be loaded.
  loadMissing() {
    if (this.shown.querySelector(".waiting")) this.again();
  }

  // Load the texts around an event. After ``SOON`` milliseconds, do not wait for the rest.
  loadAround(id) {
    const own = Math.max(0, id - (id % PORTION));
    const starts = [own - PORTION, own, own + PORTION].filter((start) => start >= 0 && start < this.history.version);
    return Promise.race([
      Promise.all(starts.map((start) => this.load(start))),
      new Promise((resolve) => setTimeout(resolve, SOON)),
    ]);
  }

  // Load the texts of the events from ``start`` on, unless they are there or on their way. An answer that was asked for
  // before the texts were forgotten is not used, because one of its events may have been redacted since.
  async load(start) {
    const stop = Math.min(start + PORTION, this.history.version);
    if (this.portions.get(start) === stop) return;
    if (this.texts.size > MOST_TEXTS) this.forgetTexts(); // The visible texts are loaded again.
    const { texts, portions } = this;
    portions.set(start, stop);
    try {
      for (let at = start; at < stop;) {
        const events = await this.app.source.events(at, stop);
        if (!events.length || this.texts !== texts) break;
        events.forEach((event, place) => texts.set(at + place, event));
        at += events.length;
        this.fill(start, at);
      }
    } catch (error) {
      portions.delete(start);
      this.app.live?.set(false, error.message);
    }
  }

  forgetTexts() {
    this.portions = new Map(); // For each request, its first event and the event after its last event.
    this.texts = new Map(); // For each loaded event, its document.
  }

  // Draw the blocks again whose texts were loaded.
  fill(start, stop) {
    for (const [place, node] of this.nodes) {
      const { id, result } = this.blocks[place];
      const isIn = (each) => each !== undefined && each >= start && each < stop;
      if (!isIn(id) && !isIn(result)) continue;
      const other = this.block(place);
      node.replaceWith(other);
      this.nodes.set(place, other);
    }
    this.measure();
    this.app.changed("chosen");
  }

  // Draw the block of an event again, because its note was changed.
  refresh(id) {
    const place = this.placeOf(id);
    const node = this.nodes.get(place);
    if (node) refill(node, ...this.block(place).childNodes);
  }

  // -- what a block is at the version that is open ----------------------------------------------------------------------

  // Show the states of the events of all drawn blocks at the open version.
  showStates() {
    for (const [place, node] of this.nodes) this.showState(place, node);
  }

  showState(place, node) {
    const { id, result, border } = this.blocks[place];
    if (border) return;
    const { event } = this.app;
    node.classList.toggle("chosen", event !== null && [id, result, -id - 2].includes(event));
    const [first, ...others] = Array.from(node.querySelectorAll(".state"));
    const own = Number(first.dataset.of);
    node.dataset.state = this.history.state(own, this.app.version);
    node.dataset.change = this.changeOf(own) || (result === undefined ? "" : this.changeOf(result));
    first.textContent = this.stateWords(own);
    for (const label of others) {
      const words = this.stateWords(Number(label.dataset.of));
      label.textContent = words === first.textContent ? "" : words;
    }
  }

  // The state of an event if it is unusual: "+ entered", "in S198", "forgotten".
  stateWords(id) {
    const { history, app } = this;
    const change = this.changeOf(id);
    if (change) return `${SIGNS_OF[change]} ${change}`;
    const state = history.state(id, app.version);
    if (state === "summarized") return `in ${idOf(history.standsFor(id, app.version).summary)}`;
    // At this version the agent is about to write the event, so "not yet" would be no news.
    if (state === "not yet" && history.isOfAgent(id) && history.came(id) === app.version) return "";
    return WORTH_SAYING.has(state) ? state : "";
  }

  // -- a block --------------------------------------------------------------------------------------------------------

  block(place) {
    const { id, result, border } = this.blocks[place];
    const { history, app } = this;
    if (border) return this.border(border, place);
    const kind = history.kind(id);
    if (history.changes.get(id)?.kind === "condensation") return this.cut(id, place);
    const isFailed =
      kind === "damaged" || kind === "error" || (result !== undefined && history.kind(result) === "error");
    const node = el("article", {
      class: `block-of g${history.group(id)}${isFailed ? " failed" : ""}`,
      "data-event": id,
      "aria-posinset": place + 1,
      "aria-setsize": this.blocks.length,
      "aria-label": `${sentence(kind)} ${idOf(id)}`,
    });
    if (history.isUnshown(id)) node.classList.add("unshown");
    const main = el("div", { class: "what" });
    const event = this.text(id);
    if (event === undefined) main.append(el("b", {}, sentence(kind)), el("div", { class: "waiting" }));
    else main.append(...this.content(id, kind, event));
    if (result !== undefined) main.append(...this.result(id, result));
    else if (kind === "action")
      main.append(
        el(
          "p",
          { class: "soft" },
          this.hasBegun(id) ? "No result. The tool has begun, so the call may have run." : "No result.",
        ),
      );
    main.append(...app.agents.of(id), ...this.notesOf(id), ...(result === undefined ? [] : this.notesOf(result)));
    markWords(main, app.words);
    if (this.days[place] !== null) node.append(el("div", { class: "day" }, dated(this.days[place])[0]));
    node.append(el("div", { class: "id-of" }, this.idLink(id), stateLabel(id)), main, this.facts(id, result));
    this.showState(place, node);
    return node;
  }

  // Whether a mark among the next loaded events says that the tool of a call has begun.
  hasBegun(id) {
    for (let mark = id + 1; mark <= id + PORTION; mark += 1) {
      const event = this.texts.get(mark);
      if (event?.name === EFFECT && event.cause === id) return true;
    }
    return false;
  }

  idLink(id) {
    return el(
      "button",
      { class: "id link", "aria-label": `Choose event ${idOf(id)}`, onclick: () => this.app.goToEvent(id, false) },
      idOf(id),
    );
  }

  // For each block, its time if it is the first block of a day, or else null.
  newDays() {
    let day = null;
    return this.blocks.map(({ id }) => {
      const time = this.history.time(id);
      const before = day;
      day = time === null ? day : Math.floor(time / DAY);
      return day === before ? null : time;
    });
  }

  // The time and the tokens at the right.
  facts(id, result) {
    const { history } = this;
    const tokens = history.tokens(id) + (result === undefined ? 0 : history.tokens(result));
    const time = moment(history.time(id), "");
    return el(
      "div",
      { class: "facts-of", title: time ? moment(history.time(id), history.zone) : null },
      el("span", {}, time.slice(11)),
      el("span", {}, tokens ? `${history.about}${tokenCount(tokens)}` : ""),
    );
  }

  // The elements of a loaded event: who wrote it, and its texts.
  content(id, kind, event) {
    if (event.kind === "damaged")
      return [el("b", { class: "problem" }, "Damaged"), el("p", { class: "problem" }, said(event.problem))];
    if (event.redacted)
      return [
        el("b", {}, sentence(kind)),
        el("p", { class: "soft" }, `Its content was erased: ${printable(event.redacted.reason)}`),
      ];
    if (kind === "action") return this.call(id, event);
    const nodes = [el("b", {}, NAMES[kind] ?? sentence(kind)), ...this.thinking(id, event)];
    if (RESULTS_OF_TOOLS.has(kind)) return [...nodes, ...this.output(id, event)];
    if (kind === "user" || kind === "agent" || kind === "environment" || kind === "system")
      return [
        ...nodes,
        ...this.neededAgain(id),
        textOf(event.content ?? "").trim()
          ? this.prose(id, textOf(event.content))
          : el("span", { class: "soft" }, " no text"),
      ];
    if (kind === "retraction")
      return [...nodes, el("p", {}, `Returns to version ${grouped(event.version)}. `, said(event.reason ?? ""))];
    if (kind === "approval" && isWellFormed(event)) return [...nodes, ...this.approval(id, event)];
    return [...nodes, this.code(`${id} whole`, pretty(event.data ?? event.changed ?? event.reason ?? event))];
  }

  // Who was asked and who decided about a call, in the words of `foldlog log`.
  approval(id, { data, cause }) {
    const call = this.app.way(cause, `call ${idOf(cause)}`);
    if (!("approved" in data))
      return [
        el("p", {}, said(`asked ${data.asked || "somebody"} to approve `), call, ":"),
        this.code(`${id} shown`, asText(data.shown ?? null)),
      ];
    const who = `${data.by || "somebody"}${data.token ? ` with the token ${data.token}` : ""}`;
    const end = `${data.until ? ` until ${data.until}` : ""}${data.reason ? `: ${data.reason}` : ""}`;
    return [el("p", {}, said(`${who} ${data.approved === true ? "approved" : "refused"} `), call, said(end))];
  }

  // What the model thought before an event, folded.
  thinking(id, event) {
    const texts = (event.thinking ?? [])
      .map((part) => part.thinking)
      .filter((text) => typeof text === "string" && text);
    if (!texts.length) return [];
    return [
      el(
        "details",
        { open: this.isWhole, "aria-label": "Thinking" },
        el("summary", { class: "soft" }, "Thinking"),
        this.prose(`${id} thinking`, texts.join("\n")),
      ),
    ];
  }

  // A call: the tool, the most telling argument beside it, and the other arguments below.
  call(id, event) {
    const thought = textOf(event.thought ?? "");
    const values = parsed(event.arguments);
    const { line, brief, changes, rest } = parts(values);
    const head = el(
      "div",
      { class: "call" },
      said(String(event.tool), "b"),
      " ",
      line ? el("bdi", { class: "line-of soft" }, printable(line.split("\n")[0])) : null,
      ...brief.map(([name, value]) => el("span", { class: "brief soft" }, said(`${name} ${value}`))),
    );
    return [
      ...this.thinking(id, event),
      thought ? this.prose(`${id} thought`, thought) : null,
      head,
      ...this.neededAgain(id),
      line.includes("\n") ? this.code(`${id} line`, line) : null,
      ...changes.map((text, place) =>
        el("div", { class: "argument" }, this.code(`${id} change ${place}`, text, "", true)),
      ),
      ...Object.entries(rest).map(([name, text]) =>
        el(
          "div",
          { class: "argument" },
          el("span", { class: "soft" }, said(name)),
          PROSE.has(name) ? this.prose(`${id} of ${name}`, text) : this.code(`${id} of ${name}`, text),
        ),
      ),
    ].filter(Boolean);
  }

  // The result of a call, with the time that it took.
  result(id, result) {
    const { history } = this;
    const event = this.text(result);
    const isError = history.kind(result) === "error";
    const took =
      history.time(result) === null || history.time(id) === null ? null : history.time(result) - history.time(id);
    const code = event?.extras?.exit_code;
    const words = [
      history.kind(result) === "refused" ? "refused by the user" : "",
      isError ? `failed${typeof code === "number" ? `, exit ${code}` : ""}` : "",
      took === null || took < 50 ? "" : `after ${duration(took)}`,
    ]
      .filter(Boolean)
      .join(" ");
    const head = el(
      "div",
      { class: isError ? "outcome error" : "outcome soft" },
      this.idLink(result),
      ` ${words} `,
      stateLabel(result),
    );
    if (event === undefined) return [head, el("div", { class: "waiting" })];
    if (event.redacted)
      return [head, el("p", { class: "soft" }, `Its content was erased: ${printable(event.redacted.reason)}`)];
    return [head, ...this.output(result, event)];
  }

  output(id, event) {
    const text = textOf(event.content ?? event.problem ?? "").trimEnd();
    return text
      ? [this.code(`${id} output`, text, this.history.kind(id) === "error" ? "error" : "")]
      : [el("p", { class: "soft" }, "no output")];
  }

  // The terms that the agent wrote in an event although they had been dropped.
  neededAgain(id) {
    const terms = this.app.marks.again.get(id);
    if (!terms) return [];
    const { event, condensation } = terms[0];
    const names = Marks.names(terms);
    return [
      el(
        "span",
        { class: "needed", title: names.join(", ") },
        `needed again: ${names.slice(0, 3).map(printable).join(", ")}${names.length > 3 ? ` and ${grouped(names.length - 3)} more` : ""}, known at `,
        this.app.way(event),
        ", forgotten at ",
        this.app.way(condensation),
      ),
    ];
  }

  // -- texts as elements ----------------------------------------------------------------------------------------------

  // A text of a person or a model. ``name`` is the text's name in ``opened``.
  prose(name, text) {
    return this.clipped(name, text, (part) =>
      this.isPlain ? el("pre", { class: "prose" }, said(part)) : el("div", { class: "prose" }, ...markdown(part)),
    );
  }

  // Code, or the output of a tool.
  code(name, text, kind = "", isPatch = false) {
    return this.clipped(name, text, (part) => el("pre", { class: `code ${kind}` }, ...coded(part, isPatch)));
  }

  // The beginning of a text, and a button for the rest.
  clipped(name, text, show) {
    const whole = this.isWhole || this.opened.has(name);
    const end = whole ? text.length : endOfClip(text);
    const node = show(text.slice(0, end));
    markWords(node, this.app.words);
    if (end < text.length || (whole && !this.isWhole)) {
      const lines = text.slice(end).split("\n").length;
      const button = el(
        "button",
        {
          class: "more",
          "aria-expanded": whole,
          onclick: () => {
            if (!this.opened.delete(name)) this.opened.add(name);
            const other = this.clipped(name, text, show);
            box.replaceWith(other);
            /** @type {HTMLElement} */ (other.querySelector(".more")).focus({ preventScroll: true });
            this.measure();
          },
        },
        whole
          ? "Show less"
          : `Show all: ${lines > 1 ? count(lines, "more line") : `${short(text.length - end)} more characters`}`,
      );
      const box = el("div", { class: "clip" }, node, button);
      return box;
    }
    return node;
  }

  // -- what is no message ---------------------------------------------------------------------------------------------

  // The line at which a fork begins.
  border({ parent, parent_version: version }, place) {
    const href = this.app.source.address?.(parent, version);
    return el(
      "article",
      { class: "cut border", "aria-posinset": place + 1, "aria-setsize": this.blocks.length, "aria-label": "Fork" },
      "Fork of ",
      href ? el("a", { href }, said(parent)) : said(parent),
      ` at version ${grouped(version)}: the events before are shared`,
    );
  }

  // A condensation: the events that it removed from the View, and the terms that were needed again.
  cut(id, place) {
    const { app, history } = this;
    const change = history.changes.get(id);
    const took = app.removed(id);
    const needed = app.marks.needed.get(id);
    const time = moment(history.time(id), "").slice(11);
    const isDeclined = change.outcome === "declined";
    const node = el(
      "article",
      {
        class: "cut",
        "data-event": id,
        "aria-posinset": place + 1,
        "aria-setsize": this.blocks.length,
        "aria-label": `Condensation ${idOf(id)}`,
      },
      el(
        "p",
        {},
        el("b", {}, isDeclined ? "Declined at " : "Condensed at ", this.app.way(id)),
        ` ${[
          time,
          change.reason || "no reason given",
          `${history.about}${short(took.before)} → ${tokenCount(took.after)}`,
        ]
          .filter(Boolean)
          .map((each) => `· ${each}`)
          .join(" ")}`,
      ),
      isDeclined
        ? null
        : el(
            "p",
            {},
            `${sentence(took.words)} left the context`,
            change.summary == null ? "; no summary took their place." : ", one summary took their place.",
            ...neededWords(needed),
          ),
      el(
        "div",
        { class: "ways" },
        el("button", { onclick: () => app.compare(id, id + 1, id) }, "Before ⇄ after"),
        needed?.terms.length
          ? el(
              "button",
              { onclick: () => app.goToEvent(needed.terms[0].needed_in) },
              `First needed again at ${idOf(needed.terms[0].needed_in)}`,
            )
          : null,
      ),
    );
    node.append(change.summary == null ? stateLabel(id) : this.summary(id), ...this.notesOf(id));
    this.showState(place, node);
    return node;
  }

  // The summary of a condensation, folded.
  summary(id) {
    const event = this.text(id);
    const text = event?.summary ?? "";
    const tokens = this.history.tokens(this.history.changes.get(id).summary);
    return el(
      "details",
      {
        "aria-label": `Summary ${idOf(-id - 2)}`,
        open: this.isWhole || this.opened.has(`${id} summary`),
        ontoggle: ({ target }) =>
          target.open ? this.opened.add(`${id} summary`) : this.opened.delete(`${id} summary`),
      },
      el("summary", {}, `Summary ${idOf(-id - 2)}, ${this.history.about}${tokenCount(tokens)} `, stateLabel(-id - 2)),
      event === undefined ? el("div", { class: "waiting" }) : this.prose(`${id} summary text`, text),
    );
  }

  notesOf(id) {
    const note = this.app.notes?.of(id);
    return note ? [el("p", { class: "note" }, "★ ", said(note.text || "bookmarked"))] : [];
  }
}

// What of a condensation's terms was needed again. Nothing is said while that is not known.
function neededWords(needed) {
  if (!needed) return [];
  const names = Marks.names(needed.terms);
  if (!names.length) return [" Nothing that was dropped was needed again."];
  return [
    " Of what was dropped, ",
    el("b", {}, `${count(names.length, "thing was", "things were")} needed again`),
    ": ",
    said(names.slice(0, MOST_NAMES).join(", ")),
    names.length > MOST_NAMES ? `, ${grouped(names.length - MOST_NAMES)} more` : "",
    ".",
  ];
}

const MOST_NAMES = 6; // The number of terms that a condensation names.

// Whether an approval has the fields that the page shows.
const isWellFormed = ({ data, cause }) =>
  typeof cause === "number" && typeof data === "object" && data !== null && !Array.isArray(data);
const WORTH_SAYING = new Set(["not yet", "pending", "unsent", "masked", "forgotten", "taken back"]);
const SIGNS_OF = { entered: "+", left: "−" };
const stateLabel = (id) => el("span", { class: "state", "data-of": id });
const NAMES = { user: "User", agent: "Agent", system: "System prompt", environment: "Environment" };

// The arguments of a call as a value, or as their text if they are no JSON.
function parsed(given) {
  if (typeof given !== "string") return given ?? {};
  try {
    return JSON.parse(given);
  } catch {
    return given;
  }
}

// The arguments of a call, without those that are null or false. The most telling argument becomes ``line``, and the
// others keep their names. An old text and the new text that replaces it become one of the ``changes``.
function parts(values) {
  const changes = [];
  const rest = {};
  const brief = [];
  if (typeof values === "string") return { line: values, brief, changes, rest };
  if (typeof values !== "object" || Array.isArray(values) || values === null)
    return { line: "", brief, changes, rest: { arguments: pretty(values) } };
  const given = { ...values };
  for (const [before, after] of [
    ["old_str", "new_str"],
    ["old_string", "new_string"],
  ]) {
    if (typeof given[before] !== "string" || typeof given[after] !== "string") continue;
    changes.push(difference(given[before], given[after]));
    delete given[before];
    delete given[after];
  }
  const telling = TELLING.find((name) => typeof given[name] === "string" || isWords(given[name]));
  const found = telling === undefined ? "" : given[telling];
  const line = isWords(found) ? found.at(-1) : found;
  if (telling !== undefined) delete given[telling];
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === false) continue;
    const text = typeof value === "string" ? value : pretty(value);
    if (text.length <= BRIEF && !text.includes("\n")) brief.push([name, text]);
    else rest[name] = text;
  }
  return { line, brief, changes, rest };
}

const BRIEF = 48; // The maximum length of an argument that stands beside the name of the tool.
const PROSE = new Set(["message", "thought", "prompt"]);
// The arguments that tell most about a call, the most telling one first.
const TELLING = ["file_path", "path", "command", "cmd", "pattern", "query", "url", "description", "code"];
const isWords = (value) => Array.isArray(value) && value.length > 0 && value.every((each) => typeof each === "string");
