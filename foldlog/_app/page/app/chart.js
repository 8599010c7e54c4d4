// The picture in Memory: a column for each version, a row for each event. One canvas has the data, and another canvas
// above it has the lines and marks that follow the reader.

import { GROUPS } from "./history.js";
import { count, el, firstPlace, grouped, idOf, printable, short, tokenCount } from "./dom.js";
import { LEFT, cleared, drawTag, niceStep, showTip, tagWidth } from "./strip.js";
import { lineOf } from "./texts.js";

const ARCS = 8; // The maximum number of arcs for a condensation.
const GUTTER = [4, 12]; // Pixels between the rows and the ticks of rare kinds, and of errors.
const ABOVE_ROWS = 6; // Pixels above the first row.
export const ROOMY = 600; // A history with more rows is opened at its newest versions.
const TALLEST = 26; // The maximum height of a row, in pixels.
const STATE_WORDS = {
  "not yet": "comes later",
  "never shown": "never shown",
  damaged: "damaged: it cannot be read",
  pending: "pending: not sent yet",
  unsent: "unsent: another part of its call is gone",
  masked: "masked",
  sent: "sent to the model",
  summarized: "summarized",
  forgotten: "forgotten",
  "taken back": "taken back",
};

export class Chart {
  constructor(app) {
    this.app = app;
    this.strip = app.strip; // It has the same columns.
    this.window = null;
    this.labelSpots = [];
    this.base = el("canvas", { class: "layer", role: "img" });
    this.over = el("canvas", { class: "layer over", "aria-hidden": true });
    this.tip = el("div", { class: "tip", hidden: true });
    this.node = el(
      "div",
      { class: "canvas", onpointerleave: () => (this.tip.hidden = true) },
      this.base,
      this.over,
      this.tip,
    );
    this.over.addEventListener("click", (event) => this.pick(event));
    this.over.addEventListener("pointermove", (event) => this.move(event));
    new ResizeObserver(() => app.changed("size")).observe(this.node);
    this.readColors();
  }

  // -- what is where --------------------------------------------------------------------------------------------------

  // Show all versions. If the rows would be too thin, show the newest versions.
  open(history) {
    this.history = history;
    const { version, byCame } = history;
    const first = byCame.length > ROOMY ? history.came(byCame[byCame.length - ROOMY / 2]) : 0;
    this.window ??= [first, version + 1];
    this.layOut();
  }

  get isWhole() {
    return this.window[0] === 0 && this.window[1] > this.history.version;
  }

  setWindow(first, last) {
    const columns = this.history.version + 1;
    const span = Math.min(columns, Math.max(8, Math.round(last - first)));
    const start = Math.min(Math.max(0, Math.round(first)), columns - span);
    if (start === this.window[0] && start + span === this.window[1]) return;
    this.window = [start, start + span];
    this.layOut();
    this.app.changed("window");
  }

  zoom(factor, version = this.app.version) {
    const [first, last] = this.window;
    const middle = Math.min(last, Math.max(first, version));
    this.setWindow(middle - (middle - first) * factor, middle + (last - middle) * factor);
  }

  // Move the window so that it contains a version.
  reveal(version) {
    const [first, last] = this.window;
    if (version >= first && version < last) return;
    const span = last - first;
    this.setWindow(version - span / 2, version + span / 2);
  }

  // Choose the rows: the events that the View shows at a version of the window, or that enter or leave it there.
  layOut() {
    const [first, last] = this.window;
    const history = this.history;
    const whole = this.isWhole;
    this.rows = history.byCame.filter(
      (id) =>
        history.came(id) < last &&
        (whole || history.spansOf(id).some((span) => span.start <= last && (span.stop === 0 || span.stop > first))),
    );
  }

  measure() {
    const { clientWidth: width, clientHeight: height } = this.node;
    this.box = {
      width,
      height,
      livesTop: ABOVE_ROWS,
      livesHeight: Math.max(20, height - ABOVE_ROWS - 6),
      plotWidth: this.strip.width,
    };
  }

  // The height of all rows. Rows have a maximum height, so few rows do not fill the picture.
  get rowsHeight() {
    return Math.min(this.box.livesHeight, this.rows.length * TALLEST);
  }

  // The top of the row at a place.
  y(place) {
    return this.box.livesTop + (place / (this.rows.length || 1)) * this.rowsHeight;
  }

  // The place of an event's row, or the place at which the row would be.
  place(came) {
    return firstPlace(this.rows.length, (place) => this.history.came(this.rows[place]) >= came);
  }

  rowAt(y) {
    const place = Math.floor(((y - this.box.livesTop) / this.rowsHeight) * this.rows.length);
    return this.rows[place] ?? null;
  }

  // -- the data -------------------------------------------------------------------------------------------------------

  // Read the colours from the style sheet, which knows the theme.
  readColors() {
    const style = getComputedStyle(document.documentElement);
    const named = (name) => style.getPropertyValue(`--${name}`).trim();
    const names = [
      "font",
      "user-text",
      "ink",
      "soft",
      "line",
      "ground",
      "entered",
      "left",
      "focus",
      "limit",
      "border",
      "wait",
    ];
    this.colors = /** @type {any} */ (Object.fromEntries(names.map((name) => [name, named(name)])));
    this.colors.groups = GROUPS.map(named);
    this.patterns = {
      forgotten: this.pattern(named("hatch"), named("hatch-ground"), 1),
      summarized: this.pattern(named("fold"), named("fold-ground"), 1),
      "taken back": this.pattern(named("left"), named("back-ground"), -1),
    };
  }

  // A pattern of thin diagonal lines. They rise if ``direction`` is 1, and fall if it is -1.
  pattern(line, ground, direction) {
    const ratio = window.devicePixelRatio || 1;
    const size = 7;
    const tile = el("canvas", { width: size * ratio, height: size * ratio });
    const context = tile.getContext("2d");
    context.scale(ratio, ratio);
    context.fillStyle = ground;
    context.fillRect(0, 0, size, size);
    context.strokeStyle = line;
    context.lineWidth = 0.8;
    for (const shift of [-size, 0, size]) {
      drawLines(context, [shift, direction > 0 ? size : 0, shift + size, direction > 0 ? 0 : size]);
    }
    const pattern = context.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(1 / ratio));
    return pattern;
  }

  drawData() {
    this.measure();
    const context = cleared(this.base, this.box.width, this.box.height, this.colors.font);
    if (!this.history.version) return;
    this.drawAxis(context);
    this.drawLives(context);
    this.drawEdges(context);
    this.drawArcs(context);
    this.labelSpots = [];
    this.drawBorders(context);
    this.drawLabels(context);
    this.base.setAttribute("aria-label", this.inWords());
  }

  // A description of the picture for screen readers.
  inWords() {
    const { version, made, total, about } = this.history;
    const [first, last] = this.window;
    const until = Math.min(last - 1, version);
    const most = this.history.largest(first, until);
    const forgot = made.filter(({ id }) => this.strip.isInWindow(id)).length;
    return `Versions ${grouped(first)} to ${grouped(until)}: ${count(forgot, "condensation")}. The View is largest at version ${grouped(most)}, with ${about}${tokenCount(total[most] ?? 0)}.`;
  }

  drawAxis(context) {
    const { livesTop, livesHeight } = this.box;
    context.strokeStyle = this.colors.line;
    context.fillStyle = this.colors.soft;
    context.textAlign = "right";
    this.rowSpots = [];
    let drawn = -Infinity;
    const gap = niceStep((this.rows.length || 1) / Math.max(1, this.rowsHeight / 34));
    this.rows.forEach((row, place) => {
      const id = this.history.came(row);
      const y = this.y(place + 0.5);
      if (id % gap !== 0 && y - drawn < 60) return;
      if (y - drawn < 14) return;
      context.fillText(idOf(id), LEFT - 10, y);
      this.rowSpots.push(y);
      context.fillRect(LEFT - 7, Math.round(y), 4, 1);
      drawn = y;
    });
    context.strokeRect(LEFT - 0.5, livesTop - 0.5, this.box.plotWidth + 1, livesHeight + 1);
  }

  drawLives(context) {
    const { livesTop, livesHeight, plotWidth } = this.box;
    const isThin = this.rows.length > livesHeight * 1.5;
    context.save();
    context.beginPath();
    context.rect(LEFT, livesTop, plotWidth, livesHeight);
    context.clip();
    if (isThin) this.drawThin(context);
    else {
      const lines = this.rows.map((id, place) => [id, this.y(place), this.y(place + 1)]);
      this.drawGone(context, lines);
      for (const [id, top, bottom] of lines) this.drawRow(context, id, top, bottom - top - (bottom - top > 5 ? 1 : 0));
    }
    context.restore();
    this.drawRare(context);
  }

  // Draw a tick beside each row of an error or of a rare kind, so that even a very thin row is visible.
  drawRare(context) {
    const right = LEFT + this.box.plotWidth;
    this.rows.forEach((id, place) => {
      const group = this.history.group(id);
      if (!RARE.has(group)) return;
      const from = GUTTER[group === ERROR ? 1 : 0];
      context.fillStyle = this.colors.groups[group];
      context.fillRect(right + from, Math.round(this.y(place + 0.5)) - 1, 6, 2);
    });
  }

  // Draw more rows than there are lines of pixels. A line has the colour of one kind. The tokens of the other kinds are
  // carried to the next lines, so in the end each kind has as many lines as its share of the tokens.
  drawThin(context) {
    const { livesTop, livesHeight } = this.box;
    const { history } = this;
    const lines = [];
    const owed = new Float64Array(GROUPS.length);
    let place = 0;
    for (let line = 0; line < livesHeight && place < this.rows.length; line += 1) {
      const until = Math.max(place + 1, Math.round(((line + 1) / livesHeight) * this.rows.length));
      const ids = this.rows.slice(place, until);
      place = until;
      const tokens = ids.reduce((sum, id) => sum + history.tokens(id), 0);
      for (const id of ids) owed[history.group(id)] += tokens ? history.tokens(id) / tokens : 1 / ids.length;
      const there = ids.map((id) => history.group(id));
      const group = there.reduce((most, other) => (owed[other] > owed[most] ? other : most));
      owed[group] -= 1;
      const largest = ids
        .filter((id) => history.group(id) === group)
        .reduce((one, other) => (history.tokens(other) > history.tokens(one) ? other : one));
      lines.push([largest, livesTop + line, livesTop + line + 1]);
    }
    this.drawGone(context, lines);
    for (const [id, top] of lines) this.drawRow(context, id, top, 1);
  }

  // Hatch each row from the version at which its event left the View. Adjacent rows with equal versions become one
  // area.
  drawGone(context, lines) {
    const last = Math.min(this.window[1], this.history.version + 1);
    const areas = new Map();
    const close = ({ kind, x, end, top, bottom }) => {
      context.fillStyle = this.patterns[kind];
      context.fillRect(x, top, end - x, bottom - top);
    };
    const fill = (kind, from, to, top, bottom) => {
      const x = Math.max(LEFT, this.strip.x(from));
      const end = this.strip.x(to);
      if (end <= LEFT || x >= end) return;
      const name = `${kind} ${x} ${end}`;
      const area = areas.get(name);
      if (area && Math.abs(area.bottom - top) < 0.01) {
        area.bottom = bottom;
        return;
      }
      if (area) close(area);
      areas.set(name, { kind, x, end, top, bottom });
    };
    for (const [id, top, bottom] of lines) {
      const spans = this.history.spansOf(id);
      spans.forEach((span, place) => {
        if (span.stop === 0) return;
        const until = Math.min(last, spans[place + 1]?.start ?? last);
        let from = span.stop;
        let kind = this.history.departure(span.by, from);
        for (const [version, next] of this.history.fatesOf(span.by)) {
          if (version <= from || version >= until) continue;
          fill(kind, from, version, top, bottom);
          from = version;
          kind = next;
        }
        fill(kind, from, until, top, bottom);
      });
    }
    for (const area of areas.values()) close(area);
  }

  drawRow(context, id, top, height) {
    const last = Math.min(this.window[1], this.history.version + 1);
    const masked = this.history.maskedAt.get(id) ?? Infinity;
    const bar = (from, to, alpha) => {
      const x = Math.max(LEFT, this.strip.x(from));
      const width = this.strip.x(Math.min(last, to)) - x;
      if (width <= 0) return;
      context.globalAlpha = alpha;
      context.fillRect(x, top, width, height);
    };
    context.fillStyle = this.colors.groups[this.history.group(id)];
    if (id < 0 && height < 2) {
      top -= (2 - height) / 2; // A summary is always visible.
      height = 2;
    }
    for (const span of this.history.spansOf(id)) {
      const stop = span.stop || last;
      if (stop < this.window[0] || span.start > last) continue;
      const changes = [...span.sent.filter((version) => version < stop), stop];
      let from = span.start;
      changes.forEach((to, place) => {
        const sent = place % 2 === 1;
        if (sent && masked < to) {
          bar(from, Math.max(from, masked), 1);
          bar(Math.max(from, masked), to, 0.28);
        } else bar(from, to, sent ? 1 : 0.45);
        from = to;
      });
    }
    context.globalAlpha = 1;
  }

  // Draw each condensation and retraction as a line, from the first row that it removed down to its own row.
  drawEdges(context) {
    const last = Math.min(this.window[1], this.history.version + 1);
    for (const change of this.history.taking) {
      if (change.id + 1 < this.window[0] || change.id + 1 > last) continue;
      const removed = this.history.removedBy.get(change.id);
      if (!removed) continue;
      const first = removed.reduce((least, id) => Math.min(least, this.history.came(id)), Infinity);
      const x = Math.round(this.strip.x(change.id + 1));
      const top = this.y(this.place(first));
      const bottom = this.y(Math.min(this.rows.length, this.place(change.id) + 1));
      context.fillStyle = change.kind === "retraction" ? this.colors.left : this.colors.ink;
      context.fillRect(x - 0.5, top, 1, Math.max(2, bottom - top));
    }
  }

  // Draw arcs from the events that a condensation dropped to the places where the agent needed them again.
  drawArcs(context) {
    context.strokeStyle = this.colors.wait;
    context.lineWidth = 1.5;
    for (const { condensation, terms } of this.app.marks.needed.values()) {
      if (!this.strip.isInWindow(condensation + 1)) continue;
      const drawn = new Set();
      for (const { event, needed_in: id } of terms) {
        if (drawn.size >= ARCS || drawn.has(event) || !this.strip.isInWindow(id)) continue;
        drawn.add(event);
        const left = this.strip.x(condensation + 1);
        const right = this.strip.at(id);
        const from = this.y(this.place(this.history.came(event)) + 0.5);
        const to = this.y(Math.min(this.rows.length, this.place(id) + 1) - 0.5);
        context.beginPath();
        context.moveTo(left, from);
        context.bezierCurveTo(right, from, right, (from + to) / 2, right, to);
        context.stroke();
        context.fillStyle = this.colors.wait;
        context.fillRect(right - 2, to - 2, 5, 5);
      }
    }
    context.lineWidth = 1;
  }

  // Draw where a fork begins. The shared versions are at the left of the lines, and the shared events above them.
  drawBorders(context) {
    const { livesTop, plotWidth } = this.box;
    for (const { parent, parent_version: at } of this.history.borders) {
      if (at < this.window[0] || at > this.window[1]) continue;
      const x = Math.round(this.strip.x(at + 1)) + 0.5;
      const y = Math.round(this.y(this.place(at))) + 0.5;
      context.strokeStyle = this.colors.border;
      context.setLineDash([6, 3]);
      drawLines(context, [x, livesTop, x, y], [LEFT, y, LEFT + plotWidth, y]);
      context.setLineDash([]);
      this.drawLabel(context, at, [`fork of ${printable(parent)}`, "fork"], this.colors.border);
    }
  }

  // Write what condensations did. If there is not room for all labels, write the labels of those that saved most.
  drawLabels(context) {
    const { about, taking, total } = this.history;
    const changes = taking.filter((change) => this.strip.isInWindow(change.id));
    const saved = ({ id }) => total[id] - total[id + 1];
    const most = Math.floor(this.box.livesHeight / 36);
    const labelled =
      changes.length > most ? changes.sort((one, other) => saved(other) - saved(one)).slice(0, most) : changes;
    for (const change of labelled) {
      const took = this.app.removed(change.id);
      const tokens = took.before - took.after;
      const words = change.kind === "retraction" ? "took back" : "forgot";
      const saves = `${about}${tokens < 0 ? "+" : "−"}${short(Math.abs(tokens))}`;
      const texts =
        change.outcome === "declined"
          ? ["declined"]
          : [`${words} ${took.words}, ${saves} tokens`, `${words} ${took.count}, ${saves}`, saves];
      this.drawLabel(
        context,
        change.id,
        texts,
        change.kind === "retraction" ? this.colors.left : this.colors.groups[SUMMARY],
      );
    }
  }

  // Write the first text that fits on the empty side of the diagonal. If another label is there, write nothing.
  drawLabel(context, came, texts, color) {
    const { livesTop, livesHeight } = this.box;
    const place = Math.min(this.place(came), this.rows.length - 1);
    const y = Math.min(Math.max(this.y(place + 0.5), livesTop + 7), livesTop + livesHeight - 7);
    const above = this.rowAt(y - 6); // The upper half of the text is beside an earlier row.
    const x = this.strip.x(above === null ? came : Math.min(came, this.history.came(above))) - 7;
    context.font = `600 11px ${this.colors.font}`;
    const text = texts.find((words) => context.measureText(words).width <= x - LEFT - 4);
    if (!text) return;
    const start = x - context.measureText(text).width;
    if (this.labelSpots.some(([from, to, middle]) => Math.abs(middle - y) < 14 && start < to && from < x)) return;
    this.labelSpots.push([start, x, y]);
    context.fillStyle = color;
    context.textAlign = "right";
    context.fillText(text, x, y);
  }

  // -- what is drawn over the chart -----------------------------------------------------------------------------------

  // Draw the chosen event, the hits of a search and the open versions on the canvas over the chart.
  drawOver() {
    if (!this.box) return;
    const context = cleared(this.over, this.box.width, this.box.height, this.colors.font);
    if (!this.history.version) return;
    const { version, from, event, compared } = this.app;
    if (event !== null) this.drawChosen(context, event);
    this.drawHits(context);
    if (compared !== null) this.drawCompared(context, ...compared);
    if (from !== null && from !== version) this.drawLine(context, from, true);
    this.drawLine(context, version, false);
  }

  drawChosen(context, id) {
    const place = this.place(this.history.came(id));
    if (place >= this.rows.length || this.history.came(this.rows[place]) !== this.history.came(id)) return;
    const top = this.y(place);
    const bottom = this.y(place + 1);
    const y = (top + bottom) / 2;
    const grown = Math.max(0, (5 - (bottom - top)) / 2);
    context.strokeStyle = this.colors.focus;
    context.lineWidth = 1.5;
    const left = Math.max(LEFT - 2, this.strip.x(this.history.came(id)) - 2);
    context.strokeRect(left, top - grown - 0.5, LEFT + this.box.plotWidth + 2 - left, bottom - top + 2 * grown + 1);
    context.fillStyle = this.colors.ground;
    for (const label of this.rowSpots) if (Math.abs(label - y) < 15) context.fillRect(0, label - 8, LEFT - 2, 16);
    context.font = `600 11px ${this.colors.font}`;
    context.fillStyle = this.colors.focus;
    drawTag(context, idOf(id), Math.max(2, LEFT - 4 - tagWidth(context, idOf(id))), y, this.colors.ground);
  }

  drawHits(context) {
    if (!this.app.hits) return;
    context.fillStyle = this.colors.focus;
    for (const { id } of this.app.hits) {
      const place = this.place(id);
      if (place >= this.rows.length || this.rows[place] !== id) continue;
      context.fillRect(LEFT - 4, this.y(place + 0.5) - 1, 5, 2);
    }
  }

  // Mark the events that entered, at the line of the later version, and the events that left, at the earlier line.
  drawCompared(context, from, version) {
    this.rows.forEach((id, place) => {
      const now = this.history.isShown(id, version);
      const before = this.history.isShown(id, from);
      if (now === before) return;
      const top = this.y(place);
      context.fillStyle = now ? this.colors.entered : this.colors.left;
      context.fillRect(
        now ? this.strip.at(version) + 2 : this.strip.at(from) - 6,
        top,
        4,
        Math.max(1, this.y(place + 1) - top),
      );
    });
  }

  lineEnd(version) {
    return Math.max(this.box.livesTop, this.y(this.place(version)));
  }

  // Draw the line of a version down to the diagonal. Below the diagonal are later events and the labels of their rows.
  drawLine(context, version, dashed) {
    if (!this.strip.isInWindow(version)) return;
    const x = Math.round(this.strip.at(version));
    const line = [x, 0, x, this.lineEnd(version)];
    context.strokeStyle = this.colors.ground;
    context.lineWidth = 4;
    if (!dashed) drawLines(context, line);
    context.strokeStyle = this.colors.ink;
    context.lineWidth = dashed ? 1.5 : 2;
    if (dashed) context.setLineDash([4, 3]);
    drawLines(context, line);
    context.setLineDash([]);
  }

  // -- pointer --------------------------------------------------------------------------------------------------------

  // Choose the event or the condensation under the pointer.
  pick(event) {
    if (!this.history?.version) return;
    const { offsetX: x, offsetY: y } = event;
    const edge = this.edgeAt(x, y);
    if (edge !== null) this.app.choose(edge, edge + 1);
    else this.app.choose(this.rowAt(y), this.strip.versionAt(x));
  }

  // The condensation or retraction whose line is under the pointer.
  edgeAt(x, y) {
    for (const change of this.history.taking) {
      if (Math.abs(this.strip.x(change.id + 1) - x) > 4) continue;
      if (this.history.removedBy.has(change.id) && y < this.y(this.place(change.id)) + 8) return change.id;
    }
    return null;
  }

  move(event) {
    const { offsetX: x, offsetY: y } = event;
    this.tip.hidden = true;
    if (!this.history?.version || x < LEFT || x > LEFT + this.box.plotWidth) return;
    const version = this.strip.versionAt(x);
    const { history } = this;
    const edge = this.edgeAt(x, y);
    const id = edge ?? this.rowAt(y);
    if (id === null) return;
    const lines = [el("b", {}, `${idOf(id)} ${edge === null ? history.kind(id) : history.changes.get(edge).kind}`)];
    if (edge === null) {
      lines.push(el("span", { class: "soft" }, ` ${history.aboutOf(id)}${tokenCount(history.tokens(id))}`));
      lines.push(el("div", {}, `at version ${grouped(version)}: ${STATE_WORDS[history.state(id, version)]}`));
      const event = this.app.transcript.text(history.came(id));
      if (event) lines.push(el("div", { class: "gist" }, lineOf(event)));
    } else lines.push(el("div", {}, this.app.removed(edge).sentence));
    showTip(this.tip, event, this.node, ...lines);
  }
}

const ERROR = GROUPS.indexOf("error");
const SUMMARY = GROUPS.indexOf("summary");
const RARE = new Set([GROUPS.indexOf("system"), GROUPS.indexOf("user"), SUMMARY, ERROR]);

// Draw lines, each from (x, y) to (toX, toY).
function drawLines(context, ...lines) {
  context.beginPath();
  for (const [x, y, toX, toY] of lines) {
    context.moveTo(x, y);
    context.lineTo(toX, toY);
  }
  context.stroke();
}
