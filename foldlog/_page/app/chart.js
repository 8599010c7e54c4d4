// The picture: versions across, events down, and above it the size of the View. Two canvases, one of the data and one of
// what follows the pointer.

import { GROUPS } from "./history.js";
import { count, dayAndClock, el, firstPlace, grouped, idOf, moment, printable, short, tokenCount } from "./dom.js";

const LEFT = 58;
const RIGHT = 24;
const ARCS = 8; // for each condensation
const GUTTER = [4, 12]; // Pixels right of the rows: ticks of rare kinds, and of errors.
const AXIS = 40;
const ROOMY = 600;
const TALLEST = 26;
const STATE_WORDS = {
  "not yet": "comes later", "never shown": "never shown", damaged: "damaged: it cannot be read", pending: "pending: not sent yet", unsent: "unsent: another part of its call is gone",
  masked: "masked", sent: "sent to the model", summarized: "summarized", forgotten: "forgotten", "taken back": "taken back",
};

export class Chart {
  constructor(app) {
    this.app = app;
    this.window = null;
    this.hover = null;
    this.labelled = false;
    this.labelSpots = [];
    this.base = el("canvas", { class: "layer", role: "img" });
    this.over = el("canvas", { class: "layer over", "aria-hidden": true });
    this.slider = el("input", {
      type: "range", class: "slider", min: 0, step: 1, "aria-label": "Version",
      oninput: () => app.go(Number(this.slider.value)),
    });
    this.tip = el("div", { class: "tip", hidden: true });
    this.node = el("div", { class: "canvas", onpointerleave: () => this.leave() }, this.base, this.over, this.slider, this.tip);
    this.over.addEventListener("pointerdown", (event) => this.press(event));
    this.over.addEventListener("click", (event) => event.pointerType === "touch" && this.pick(event));
    this.over.addEventListener("pointermove", (event) => this.move(event));
    this.over.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    new ResizeObserver(() => app.changed("size")).observe(this.node);
  }

  // -- what is where --------------------------------------------------------------------------------------------------

  // Show all versions, or the newest where all would be too thin to be seen.
  open(history) {
    this.history = history;
    this.window ??= history.byCame.length > ROOMY ? this.newest() : [0, history.version + 1];
    this.layOut();
  }

  // The newest versions, as many as bring a few hundred rows.
  newest() {
    const { version, byCame } = this.history;
    const first = byCame[Math.max(0, byCame.length - ROOMY / 2)];
    return [Math.min(this.history.came(first), version), version + 1];
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

  // Keep a version in the window.
  reveal(version) {
    const [first, last] = this.window;
    if (version >= first && version < last) return;
    const span = last - first;
    this.setWindow(version - span / 2, version + span / 2);
  }

  // The rows of the window: what is shown at any of its versions, or comes or goes there.
  layOut() {
    const [first, last] = this.window;
    const history = this.history;
    const whole = this.isWhole;
    this.rows = history.byCame.filter(
      (id) =>
        history.came(id) < last &&
        (whole || history.spansOf(id).some((span) => span.start <= last && (span.stop === 0 || span.stop > first))),
    );
    const byTokens = this.app.rowHeights === "tokens";
    this.tops = new Float64Array(this.rows.length + 1);
    const average = this.rows.reduce((sum, id) => sum + history.tokens(id), 0) / Math.max(1, this.rows.length);
    this.rows.forEach((id, place) => {
      this.tops[place + 1] = this.tops[place] + (byTokens ? history.tokens(id) + average / 12 + 1 : 1);
    });
  }

  measure() {
    const width = this.node.clientWidth;
    const height = this.node.clientHeight;
    const sizesTop = 10;
    const sizesHeight = Math.max(36, Math.min(110, Math.round(height * 0.16)));
    const livesTop = sizesTop + sizesHeight + AXIS;
    this.box = {
      width, height, sizesTop, sizesHeight, livesTop,
      livesHeight: Math.max(20, height - livesTop - 6), plotWidth: Math.max(20, width - LEFT - RIGHT),
    };
    Object.assign(this.slider.style, {
      left: `${LEFT}px`, width: `${this.box.plotWidth}px`, top: `${sizesTop}px`, height: `${sizesHeight}px`,
    });
  }

  x(version) {
    const [first, last] = this.window;
    return LEFT + ((version - first) / (last - first)) * this.box.plotWidth;
  }

  // The middle of the column of a version.
  middle(version) {
    return this.x(version + 0.5);
  }

  versionAt(x) {
    const [first, last] = this.window;
    const version = Math.floor(first + ((x - LEFT) / this.box.plotWidth) * (last - first));
    return Math.min(last - 1, this.history.version, Math.max(first, version));
  }

  // Few rows do not fill the picture.
  get rowsHeight() {
    return Math.min(this.box.livesHeight, this.rows.length * TALLEST);
  }

  y(top) {
    return this.box.livesTop + (top / (this.tops[this.rows.length] || 1)) * this.rowsHeight;
  }

  rowMiddle(place) {
    return this.y((this.tops[place] + this.tops[place + 1]) / 2);
  }

  // The place of the row of an event, or of where it would be.
  place(came) {
    return firstPlace(this.rows.length, (place) => this.history.came(this.rows[place]) >= came);
  }

  rowAt(y) {
    const top = ((y - this.box.livesTop) / this.rowsHeight) * this.tops[this.rows.length];
    if (top < 0 || top >= this.tops[this.rows.length]) return null;
    return this.rows[firstPlace(this.rows.length, (place) => this.tops[place] > top) - 1];
  }

  // -- the data -------------------------------------------------------------------------------------------------------

  canvas(layer) {
    const ratio = window.devicePixelRatio || 1;
    const { width, height } = this.box;
    if (layer.width !== Math.round(width * ratio) || layer.height !== Math.round(height * ratio)) {
      layer.width = Math.round(width * ratio);
      layer.height = Math.round(height * ratio);
    }
    const context = layer.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = `11px ${this.colors.font}`;
    context.textBaseline = "middle";
    return context;
  }

  // Read the colours from the style sheet, which knows the theme.
  readColors() {
    const style = getComputedStyle(document.documentElement);
    const named = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colors = { font: named("font"), groups: GROUPS.map(named) };
    for (const name of ["user-text", "ink", "soft", "line", "ground", "hatch", "hatch-ground", "fold", "fold-ground", "back-ground", "entered", "left", "focus", "limit", "border", "wait"]) {
      this.colors[name] = named(name);
    }
    this.patterns = {
      forgotten: this.pattern(this.colors.hatch, this.colors["hatch-ground"], 1),
      summarized: this.pattern(this.colors.fold, this.colors["fold-ground"], 1),
      "taken back": this.pattern(this.colors.left, this.colors["back-ground"], -1),
    };
  }

  // Thin diagonal lines on a ground: rising or falling.
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

  colorsOfPage() {
    if (!this.colors) this.readColors();
    return this.colors;
  }

  drawData() {
    this.measure();
    this.colorsOfPage();
    const context = this.canvas(this.base);
    if (!this.history.version) return;
    this.slider.min = this.window[0];
    this.slider.max = Math.min(this.window[1] - 1, this.history.version);
    this.drawSizes(context);
    this.drawAxis(context);
    this.drawLives(context);
    this.drawEdges(context);
    this.drawArcs(context);
    this.drawBorders(context);
    this.drawLabels(context);
    this.base.setAttribute("aria-label", this.inWords());
  }

  // What the picture shows, for those who do not see it.
  inWords() {
    const { version, made, total, about } = this.history;
    const [first, last] = this.window;
    const until = Math.min(last - 1, version);
    const most = this.history.largest(first, until);
    const forgot = made.filter(({ id }) => this.isInWindow(id)).length;
    return `Versions ${grouped(first)} to ${grouped(until)}: ${count(forgot, "condensation")}. The View is largest at version ${grouped(most)}, with ${about}${tokenCount(total[most] ?? 0)}.`;
  }

  drawSizes(context) {
    const { sizesTop, sizesHeight } = this.box;
    const { sizes, total, limit } = this.history;
    const [first, last] = this.window;
    let most = 1;
    for (let version = first; version < Math.min(last, this.history.version + 1); version += 1) most = Math.max(most, total[version]);
    if (limit && limit < most * 2) most = Math.max(most, limit);
    const scale = (tokens) => sizesTop + sizesHeight - (tokens / (most * 1.04)) * sizesHeight;
    const steps = Math.min(Math.ceil(this.box.plotWidth), last - first);
    const versions = extremes(total, first, Math.min(last, this.history.version + 1), steps, last - first);
    // The largest View of each step is drawn faint, and the smallest one of it in full before it.
    for (const chosen of [versions.most, versions.least]) {
      context.globalAlpha = chosen === versions.most ? 0.5 : 1;
      const below = new Float64Array(steps);
      for (let group = 0; group < sizes.length; group += 1) {
        context.fillStyle = this.colors.groups[group];
        context.beginPath();
        for (let place = 0; place < chosen.length; place += 1) {
          const tokens = sizes[group][chosen[place]];
          if (tokens > 0) {
            const x = LEFT + (place / steps) * this.box.plotWidth;
            const next = LEFT + ((place + 1) / steps) * this.box.plotWidth;
            const top = scale(below[place] + tokens);
            context.rect(x, top, Math.max(0.5, next - x), Math.max(0.4, scale(below[place]) - top));
          }
          below[place] += tokens;
        }
        context.fill();
      }
    }
    context.globalAlpha = 1;
    context.fillStyle = this.colors.soft;
    context.textAlign = "right";
    context.fillText(short(most), LEFT - 8, scale(most) + 4);
    context.fillText("tokens", LEFT - 8, sizesTop + sizesHeight / 2);
    context.fillText("0", LEFT - 8, sizesTop + sizesHeight - 3);
    if (limit && limit <= most) {
      context.strokeStyle = this.colors.limit;
      context.setLineDash([5, 3]);
      const y = Math.round(scale(limit)) + 0.5;
      drawLines(context, [LEFT, y, LEFT + this.box.plotWidth, y]);
      context.setLineDash([]);
    }
    this.limitAt = limit && limit <= most ? Math.max(sizesTop + 1, scale(limit) - 8) : null;
  }

  // The words at the line of the limit: at the left, or beside the lines of the versions that would cross them there.
  drawLimit(context, version, pinned) {
    if (this.limitAt === null) return;
    const words = `limit ${short(this.history.limit)}`;
    context.font = `11px ${this.colors.font}`;
    const width = context.measureText(words).width + 6;
    const lines = [version, pinned].filter((each) => each !== null && this.isInWindow(each)).map((each) => this.middle(each));
    let left = LEFT + 1;
    for (const x of lines.sort((a, b) => a - b)) if (left - 3 < x && x < left + width + 3) left = x + 4;
    context.textAlign = "left";
    context.fillStyle = this.colors.ground;
    context.globalAlpha = 0.85;
    context.fillRect(left, this.limitAt - 7, width, 14);
    context.globalAlpha = 1;
    context.fillStyle = this.colors.limit;
    context.fillText(words, left + 3, this.limitAt);
  }

  drawAxis(context) {
    const { sizesTop, sizesHeight, livesTop, livesHeight } = this.box;
    const [first, last] = this.window;
    const top = sizesTop + sizesHeight;
    context.strokeStyle = this.colors.line;
    context.fillStyle = this.colors.soft;
    const tick = niceStep((last - first) / Math.max(2, this.box.plotWidth / 110));
    this.tickSpots = [];
    let day = null;
    let minute = null;
    for (let version = Math.ceil(first / tick) * tick; version < last; version += tick) {
      const x = Math.round(this.middle(version)) + 0.5;
      context.fillRect(x - 0.5, top + 2, 1, 4);
      const aligned = x > LEFT + this.box.plotWidth - 20 ? "right" : x < LEFT + 20 ? "left" : "center";
      context.textAlign = aligned;
      context.fillText(grouped(version), x, top + 13);
      const time = this.history.timeAt(version);
      // The day and the minute, where they are others than at the time before.
      const [date, clock] = time === null ? ["", ""] : dayAndClock(time);
      const words = date !== day ? `${date} ${clock}` : clock !== minute ? clock : "";
      if (time !== null) {
        [day, minute] = [date, clock];
        context.globalAlpha = 0.8;
        context.fillText(words, x, top + 27);
        context.globalAlpha = 1;
      }
      const width = Math.max(context.measureText(grouped(version)).width, context.measureText(words).width);
      const left = aligned === "right" ? x - width : aligned === "left" ? x : x - width / 2;
      this.tickSpots.push([left, left + width]);
    }
    context.textAlign = "right";
    this.rowSpots = [];
    let drawn = -Infinity;
    const regular = this.isWhole && this.app.rowHeights === "equal" && this.rows.length > 0.9 * this.history.version;
    const gap = niceStep((this.rows.length || 1) / Math.max(1, this.rowsHeight / 34));
    // Between round numbers others are written where rows are missing, or much higher than the average.
    const empty = Math.max(60, (1.7 * gap * this.rowsHeight) / (this.rows.length || 1));
    for (let place = 0; place < this.rows.length; place += 1) {
      const id = this.history.came(this.rows[place]);
      const y = this.rowMiddle(place);
      const wanted = id % gap === 0 || (!regular && y - drawn >= empty);
      if (!wanted || y - drawn < 14) continue;
      context.fillText(idOf(id), LEFT - 10, y);
      this.rowSpots.push(y);
      context.fillRect(LEFT - 7, Math.round(y), 4, 1);
      drawn = y;
    }
    context.strokeRect(LEFT - 0.5, livesTop - 0.5, this.box.plotWidth + 1, livesHeight + 1);
  }

  drawLives(context) {
    const { livesTop, livesHeight, plotWidth } = this.box;
    this.isThin = this.rows.length > livesHeight * 1.5;
    context.save();
    context.beginPath();
    context.rect(LEFT, livesTop, plotWidth, livesHeight);
    context.clip();
    if (this.isThin) this.drawThin(context);
    else {
      const lines = this.rows.map((id, place) => [id, this.y(this.tops[place]), this.y(this.tops[place + 1])]);
      this.drawGone(context, lines);
      for (const [id, top, bottom] of lines) this.drawRow(context, id, top, bottom - top - (bottom - top > 5 ? 1 : 0));
    }
    context.restore();
    this.drawRare(context);
  }

  // Right of the rows a tick for each event of a rare kind, and for each error: however thin its row is, it is seen.
  drawRare(context) {
    const right = LEFT + this.box.plotWidth;
    this.rows.forEach((id, place) => {
      const group = this.history.group(id);
      if (!RARE.has(group)) return;
      const from = GUTTER[group === ERROR ? 1 : 0];
      context.fillStyle = this.colors.groups[group];
      context.fillRect(right + from, Math.round(this.rowMiddle(place)) - 1, 6, 2);
    });
  }

  // More rows than pixels. Each line of pixels has the colour of one kind, so that over neighbouring lines each kind has
  // as many of them as its share of the tokens: what a line does not show is carried to the next one.
  drawThin(context) {
    const { livesTop, livesHeight } = this.box;
    const { history } = this;
    const lines = [];
    const owed = new Float64Array(GROUPS.length);
    let place = 0;
    for (let line = 0; line < livesHeight && place < this.rows.length; line += 1) {
      const until = ((line + 1) / livesHeight) * this.tops[this.rows.length];
      const first = place;
      do place += 1;
      while (place < this.rows.length && this.tops[place] < until);
      const ids = this.rows.slice(first, place);
      const tokens = ids.reduce((sum, id) => sum + history.tokens(id), 0);
      for (const id of ids) owed[history.group(id)] += tokens ? history.tokens(id) / tokens : 1 / ids.length;
      const there = ids.map((id) => history.group(id));
      const group = there.reduce((most, other) => (owed[other] > owed[most] ? other : most));
      owed[group] -= 1;
      const largest = ids.filter((id) => history.group(id) === group).reduce((one, other) => (history.tokens(other) > history.tokens(one) ? other : one));
      lines.push([largest, livesTop + line, livesTop + line + 1]);
    }
    this.drawGone(context, lines);
    for (const [id, top] of lines) this.drawRow(context, id, top, 1);
  }

  // What left the View, hatched from then on. Neighbours that left together are one area.
  drawGone(context, lines) {
    const last = Math.min(this.window[1], this.history.version + 1);
    const areas = new Map();
    const close = ({ kind, x, end, top, bottom }) => {
      context.fillStyle = this.patterns[kind];
      context.fillRect(x, top, end - x, bottom - top);
    };
    const fill = (kind, from, to, top, bottom) => {
      const x = Math.max(LEFT, this.x(from));
      const end = this.x(to);
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
          [from, kind] = [version, next];
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
      const x = Math.max(LEFT, this.x(from));
      const width = this.x(Math.min(last, to)) - x;
      if (width <= 0) return;
      context.globalAlpha = alpha;
      context.fillRect(x, top, width, height);
    };
    context.fillStyle = this.colors.groups[this.history.group(id)];
    if (id < 0 && height < 2) [top, height] = [top - (2 - height) / 2, 2];
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

  // Each condensation as a line from the first row that it took out to its own.
  drawEdges(context) {
    const last = Math.min(this.window[1], this.history.version + 1);
    for (const change of this.history.taking) {
      if (change.id + 1 < this.window[0] || change.id + 1 > last) continue;
      const removed = this.history.removedBy.get(change.id);
      if (!removed) continue;
      let first = Infinity;
      for (const id of removed) first = Math.min(first, this.history.came(id));
      const x = Math.round(this.x(change.id + 1));
      const top = this.y(this.tops[this.place(first)]);
      const bottom = this.y(this.tops[Math.min(this.rows.length, this.place(change.id) + 1)]);
      context.fillStyle = change.kind === "retraction" ? this.colors.left : this.colors.ink;
      context.fillRect(x - 0.5, top, 1, Math.max(2, bottom - top));
    }
  }

  // From what a condensation dropped to where the agent needed it again: an arc for each event, the first ones.
  drawArcs(context) {
    context.strokeStyle = this.colors.wait;
    context.lineWidth = 1.5;
    for (const { condensation, terms } of this.app.marks.needed.values()) {
      if (!this.isInWindow(condensation + 1)) continue;
      const drawn = new Set();
      for (const { event, needed_in: id } of terms) {
        if (drawn.size >= ARCS || drawn.has(event) || !this.isInWindow(id)) continue;
        drawn.add(event);
        const [left, right] = [this.x(condensation + 1), this.middle(id)];
        const [from, to] = [this.rowMiddle(this.place(this.history.came(event))), this.rowMiddle(Math.min(this.rows.length - 1, this.place(id)))];
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

  // Where a fork begins: left of the line and above it are the versions and events that it shares.
  drawBorders(context) {
    const { sizesTop, sizesHeight, livesTop } = this.box;
    this.borderLabels = [];
    for (const border of this.history.borders) {
      const at = border.parent_version;
      if (at < this.window[0] || at > this.window[1]) continue;
      const x = Math.round(this.x(at + 1)) + 0.5;
      const y = Math.round(this.y(this.tops[this.place(at)])) + 0.5;
      context.strokeStyle = this.colors.border;
      context.setLineDash([6, 3]);
      context.lineWidth = 1.5;
      drawLines(context, [x, sizesTop - 6, x, sizesTop + sizesHeight], [x, livesTop, x, y], [LEFT, y, LEFT + this.box.plotWidth, y]);
      context.setLineDash([]);
      context.lineWidth = 1;
      this.borderLabels.push([at, x, y, `fork of ${printable(border.parent)}`]);
    }
  }

  // A place for a label that would stand on the line at which a fork begins: above it, or below it.
  besideBorders(y) {
    for (const [, , line] of this.borderLabels) if (Math.abs(y - line) < 9) return y <= line ? line - 9 : line + 9;
    return y;
  }

  drawBorderLabels(context, taken) {
    context.font = `600 11px ${this.colors.font}`;
    for (const [, x, y, words] of this.borderLabels) {
      const middle = y + 11 > this.box.livesTop + this.box.livesHeight - 6 ? y - 11 : y + 11;
      const leftward = x - LEFT - 14 > 90;
      const room = leftward ? Math.min(x - LEFT - 14, 320) : this.box.width - RIGHT - x - 14;
      const text = fit(context, words, room);
      const width = context.measureText(text).width;
      // Left of the rows that the text's upper half is beside.
      const above = this.rowAt(middle - 6);
      const least = Math.min(x, this.x(this.history.version), above === null ? Infinity : this.x(this.history.came(above)));
      const right = leftward ? Math.max(least - 7, LEFT + 4 + width) : x + 7 + width;
      taken.push([right - width, right, middle - 7, middle + 7]);
      context.fillStyle = this.colors.ground;
      context.fillRect(right - width - 3, middle - 8, width + 6, 16);
      context.fillStyle = this.colors.border;
      context.textAlign = "right";
      context.fillText(text, right, middle);
    }
  }

  // What condensations did and what the user asked, on the free side of the diagonal.
  drawLabels(context) {
    const taken = (this.labelSpots = []);
    const free = (x, y, width) => {
      const mine = [x - width, x, y - 7, y + 7];
      if (taken.some(([a, b, c, d]) => mine[0] < b && a < mine[1] && mine[2] < d && c < mine[3])) return false;
      taken.push(mine);
      return true;
    };
    this.drawBorderLabels(context, taken);
    context.textAlign = "right";
    const bottom = this.box.livesTop + this.box.livesHeight - 7;
    // Write the first of these texts that there is room for, beside the row or, where a label is already, near it.
    const label = (came, texts, color, bold, least) => {
      if (!this.isInWindow(came)) return;
      const place = this.place(came);
      const own = this.rows[place] !== undefined && this.history.came(this.rows[place]) === came;
      const middle = own ? this.rowMiddle(place) : this.y(this.tops[place]);
      context.font = `${bold ? "600 " : ""}11px ${this.colors.font}`;
      context.fillStyle = color;
      for (const shift of [0, -14, 14]) {
        const y = this.besideBorders(Math.min(middle + shift, bottom));
        if (y < this.box.livesTop + 7 || y > bottom) continue;
        // Left of the rows that the text's upper half is beside.
        const above = this.rowAt(y - 6);
        const x = this.x(above === null ? came : Math.min(came, this.history.came(above))) - 7;
        const room = Math.min(x - LEFT - 4, 420);
        if (room < least) continue;
        const text = texts.find((each) => context.measureText(each).width <= room) ?? (bold ? "" : fit(context, texts.at(-1), room));
        if (!text || !free(x, y, context.measureText(text).width)) continue;
        return context.fillText(text, x, y);
      }
    };
    // Where there is not room for all, those that saved most.
    const changes = this.history.taking.filter((change) => this.isInWindow(change.id));
    const saved = ({ id }) => this.history.total[id] - this.history.total[id + 1];
    const most = Math.floor(this.box.livesHeight / 36);
    const labelled = changes.length > most ? changes.sort((a, b) => saved(b) - saved(a)).slice(0, most) : changes;
    for (const change of labelled) {
      const took = this.app.removed(change.id);
      const tokens = took.before - took.after;
      const words = change.kind === "retraction" ? "took back" : "forgot";
      const saves = `${this.history.about}${tokens < 0 ? "+" : "−"}${short(Math.abs(tokens))}`;
      const texts = change.outcome === "declined" ? ["declined"] : [`${words} ${took.words}, ${saves} tokens`, `${words} ${took.count}, ${saves}`, saves];
      label(change.id, texts, change.kind === "retraction" ? this.colors.left : this.colors.groups[2], true, 30);
    }
    for (const id of this.isThin ? [] : this.rows) {
      if (id >= 0 && this.history.kind(id) === "user") {
        label(id, [printable(this.app.source.gist(id) ?? "")], this.colors["user-text"], false, 70);
      }
    }
  }

  // -- what follows the pointer ---------------------------------------------------------------------------------------

  drawOver() {
    if (!this.box || !this.colors) return;
    const context = this.canvas(this.over);
    if (!this.history.version) return;
    const { version, from, event } = this.app;
    this.slider.value = version;
    this.slider.setAttribute("aria-valuetext", `${grouped(version)} of ${grouped(this.history.version)}, ${this.history.about}${tokenCount(this.history.total[version] ?? 0)}`);
    if (event !== null) this.drawChosen(context, event);
    this.drawHits(context);
    if (from !== null) this.drawCompared(context, ...this.app.compared);
    const pinned = from !== null && from !== version ? from : null;
    if (pinned !== null) this.drawLine(context, pinned, true);
    this.drawLine(context, version, false);
    this.drawLimit(context, version, pinned);
    this.drawTags(context, version, pinned);
    if (this.hover) {
      context.fillStyle = this.colors.soft;
      context.globalAlpha = 0.55;
      context.fillRect(this.hover.x, this.box.sizesTop, 1, this.box.height - this.box.sizesTop);
      if (this.hover.y > this.box.livesTop) context.fillRect(LEFT, this.hover.y, this.box.plotWidth, 1);
      context.globalAlpha = 1;
    }
  }

  drawChosen(context, id) {
    const place = this.place(this.history.came(id));
    if (place >= this.rows.length || this.history.came(this.rows[place]) !== this.history.came(id)) return;
    const top = this.y(this.tops[place]);
    const bottom = this.y(this.tops[place + 1]);
    const y = (top + bottom) / 2;
    const grown = Math.max(0, (5 - (bottom - top)) / 2);
    context.strokeStyle = this.colors.focus;
    context.lineWidth = 1.5;
    const left = Math.max(LEFT - 2, this.x(this.history.came(id)) - 2);
    context.strokeRect(left, top - grown - 0.5, LEFT + this.box.plotWidth + 2 - left, bottom - top + 2 * grown + 1);
    if (left > LEFT) {
      context.globalAlpha = 0.4;
      context.fillStyle = this.colors.focus;
      const touched = this.labelSpots.filter(([, , above, below]) => above < y && y < below).map(([start]) => start - 4);
      context.fillRect(LEFT - 2, y - 0.5, Math.min(left, ...touched) - LEFT + 2, 1);
      context.globalAlpha = 1;
    }
    context.fillStyle = this.colors.ground;
    for (const label of this.rowSpots) if (Math.abs(label - y) < 15) context.fillRect(0, label - 8, LEFT - 2, 16);
    this.tag(context, idOf(id), LEFT - 4, y, this.colors.focus, "right");
  }

  drawHits(context) {
    if (!this.app.hits) return;
    context.fillStyle = this.colors.focus;
    for (const { id } of this.app.hits) {
      const place = this.place(id);
      if (place >= this.rows.length || this.rows[place] !== id) continue;
      context.fillRect(LEFT - 4, this.rowMiddle(place) - 1, 5, 2);
    }
  }

  // Beside the line of the later moment what entered, beside the earlier one's what left.
  drawCompared(context, from, version) {
    this.rows.forEach((id, place) => {
      const now = this.history.isShown(id, version);
      const before = this.history.isShown(id, from);
      if (now === before) return;
      const top = this.y(this.tops[place]);
      context.fillStyle = now ? this.colors.entered : this.colors.left;
      context.fillRect(now ? this.middle(version) + 2 : this.middle(from) - 6, top, 4, Math.max(1, this.y(this.tops[place + 1]) - top));
    });
  }

  lineEnd(version) {
    return Math.max(this.box.livesTop, this.y(this.tops[this.place(version)]));
  }

  // From the sizes down to the diagonal: below it are the events that came later, and the labels at their rows.
  drawLine(context, version, dashed) {
    if (!this.isInWindow(version)) return;
    const { sizesTop } = this.box;
    const x = Math.round(this.middle(version));
    const end = this.lineEnd(version);
    // Labels stay readable: the line goes on below them.
    const labels = this.labelSpots
      .filter(([from, to, above]) => from - 3 < x && x < to + 3 && above < end)
      .sort((a, b) => a[2] - b[2]);
    const line = () => drawLines(context, ...labels.map(([, , above], place) => [x, labels[place - 1]?.[3] ?? sizesTop - 4, x, above]), [x, labels.at(-1)?.[3] ?? sizesTop - 4, x, end]);
    context.strokeStyle = this.colors.ground;
    context.lineWidth = 4;
    if (!dashed) line();
    context.strokeStyle = this.colors.ink;
    context.lineWidth = dashed ? 1.5 : 2;
    if (dashed) context.setLineDash([4, 3]);
    line();
    context.setLineDash([]);
  }

  isInWindow(version) {
    return version >= this.window[0] && version < this.window[1];
  }

  // The numbers of the version and of the pinned one, on the axis, with their times. Numbers of the axis that they touch
  // are covered whole.
  drawTags(context, version, pinned) {
    const y = this.box.sizesTop + this.box.sizesHeight + 13;
    const shown = this.isInWindow(version);
    const x = Math.round(this.middle(version));
    const before = pinned !== null && this.isInWindow(pinned) ? Math.round(this.middle(pinned)) : null;
    const time = this.history.timeAt(version);
    const words = time === null ? "" : dayAndClock(time).join(" ");
    context.font = `11px ${this.colors.font}`;
    const timeWidth = context.measureText(words).width;
    context.font = `600 11px ${this.colors.font}`;
    const width = context.measureText(grouped(pinned ?? 0)).width + 12;
    const own = context.measureText(grouped(version)).width + 12;
    const right = Math.min(Math.max(x + own / 2, own + 2), this.box.width - 2);
    const apart = before === null || !shown || Math.abs(before - (right - own / 2)) > (width + own) / 2 + 2;
    const place = before === null ? null : apart ? before + width / 2 : pinned < version ? right - own - 2 : right + width + 2;
    const middle = Math.min(Math.max(right - own / 2, timeWidth / 2 + 2), this.box.width - timeWidth / 2 - 2);
    const half = Math.max(own, timeWidth) / 2;
    const spots = [...(shown ? [[Math.min(middle - half, right - own), Math.max(middle + half, right)]] : []), ...(place === null ? [] : [[place - width, place]])];
    for (const [left, end] of spots) {
      const touched = this.tickSpots.filter(([a, b]) => a < end + 4 && left - 4 < b).flat();
      const first = Math.min(left - 3, ...touched) - 1;
      context.fillStyle = this.colors.ground;
      context.fillRect(first, y - 11, Math.max(end + 3, ...touched) + 1 - first, 34);
    }
    if (place !== null) this.tag(context, grouped(pinned), place, y, this.colors.soft, "right");
    if (!shown) return;
    this.tag(context, grouped(version), x, y, this.colors.ink, "center");
    context.fillStyle = this.colors.soft;
    context.font = `11px ${this.colors.font}`;
    context.fillText(words, middle, y + 14);
  }

  tag(context, text, x, y, color, align) {
    context.font = `600 11px ${this.colors.font}`;
    const width = context.measureText(text).width + 12;
    const wanted = align === "right" ? x - width : x - width / 2;
    const left = Math.min(Math.max(2, wanted), this.box.width - width - 2);
    context.fillStyle = color;
    context.beginPath();
    context.roundRect(left, y - 9, width, 16, 3);
    context.fill();
    context.fillStyle = this.colors.ground;
    context.textAlign = "center";
    context.fillText(text, left + width / 2, y - 0.5);
  }

  // -- pointer --------------------------------------------------------------------------------------------------------

  at(event) {
    const { left, top } = this.over.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }

  press(event) {
    if (!this.history?.version) return;
    const { x, y } = this.at(event);
    const version = this.versionAt(x);
    if (y < this.box.livesTop) {
      this.dragging = true;
      this.over.setPointerCapture(event.pointerId);
      this.over.addEventListener("pointerup", () => (this.dragging = false), { once: true });
      this.over.addEventListener("pointercancel", () => (this.dragging = false), { once: true });
      this.app.go(version);
    } else if (event.pointerType !== "touch") this.pick(event);
  }

  // Choose the event or the condensation under the pointer. A finger may scroll the page: it chooses when it is lifted.
  pick(event) {
    if (!this.history?.version) return;
    const { x, y } = this.at(event);
    if (y < this.box.livesTop) return;
    const edge = this.edgeAt(x, y);
    if (edge !== null) this.app.choose(edge, edge + 1);
    else this.app.choose(this.rowAt(y), this.versionAt(x));
  }

  // The condensation whose line is under the pointer.
  edgeAt(x, y) {
    for (const change of this.history.taking) {
      if (Math.abs(this.x(change.id + 1) - x) > 4) continue;
      if (this.history.removedBy.has(change.id) && y < this.y(this.tops[this.place(change.id)]) + 8) return change.id;
    }
    return null;
  }

  move(event) {
    if (!this.history?.version) return;
    const { x, y } = this.at(event);
    if (this.dragging) this.app.go(this.versionAt(x));
    if (x < LEFT || x > LEFT + this.box.plotWidth) return this.leave();
    this.hover = { x: Math.round(x), y: Math.round(y) };
    this.showTip(x, y);
    this.app.changed("over");
  }

  leave() {
    this.hover = null;
    this.tip.hidden = true;
    this.app.changed("over");
  }

  showTip(x, y) {
    const version = this.versionAt(x);
    const lines = [];
    if (y < this.box.livesTop) {
      const time = moment(this.history.timeAt(version), this.history.zone);
      lines.push(el("b", {}, `Version ${grouped(version)}`), el("div", {}, `${this.history.about}${tokenCount(this.history.total[version] ?? 0)}`));
      if (time) lines.push(el("div", { class: "soft" }, time));
    } else {
      const edge = this.edgeAt(x, y);
      const id = edge ?? this.rowAt(y);
      if (id === null) return (this.tip.hidden = true);
      lines.push(el("b", {}, `${idOf(id)} ${edge === null ? this.history.kind(id) : this.history.changes.get(edge).kind}`));
      if (edge === null) {
        const state = this.history.state(id, version);
        lines.push(el("span", { class: "soft" }, ` ${this.history.aboutOf(id)}${tokenCount(this.history.tokens(id))}`));
        lines.push(el("div", {}, `at version ${grouped(version)}: ${STATE_WORDS[state]}`));
      } else lines.push(el("div", {}, this.app.removed(edge).sentence));
      const gist = id >= 0 ? this.app.source.gist(id) : this.history.summaryOf.get(id)?.gist;
      if (gist && edge === null) lines.push(el("div", { class: "gist" }, printable(gist)));
    }
    this.tip.replaceChildren(...lines);
    this.tip.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.tip;
    const left = x + 16 + width > this.box.width ? x - width - 14 : x + 16;
    const top = y + 16 + height > this.box.height ? y - height - 12 : y + 16;
    this.tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
  }

  wheel(event) {
    if (!this.history?.version) return;
    event.preventDefault();
    const { x } = this.at(event);
    const [first, last] = this.window;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const shift = (event.deltaX / this.box.plotWidth) * (last - first);
      const whole = Math.sign(shift) * Math.max(1, Math.round(Math.abs(shift)));
      this.setWindow(first + whole, last + whole);
    } else this.zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, this.versionAt(x));
  }
}

const ERROR = GROUPS.indexOf("error");
const RARE = new Set([0, 1, 2, ERROR]);

// For each of some steps the version with the smallest and with the largest View among those of the step.
export function extremes(total, first, until, steps, span) {
  const [least, most] = [[], []];
  for (let place = 0; place < steps; place += 1) {
    const start = Math.floor(first + (place * span) / steps);
    const stop = Math.max(start + 1, Math.floor(first + ((place + 1) * span) / steps));
    if (start >= until) break;
    let [low, high] = [start, start];
    for (let version = start; version < Math.min(stop, until); version += 1) {
      if (total[version] < total[low]) low = version;
      if (total[version] > total[high]) high = version;
    }
    least.push(low);
    most.push(high);
  }
  return { least, most };
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  for (const step of [1, 2, 5, 10]) if (step * power >= least) return Math.max(1, step * power);
  return 10 * power;
}

// Lines, each from a point to another.
function drawLines(context, ...lines) {
  context.beginPath();
  for (const [x, y, toX, toY] of lines) {
    context.moveTo(x, y);
    context.lineTo(toX, toY);
  }
  context.stroke();
}

function fit(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  const length = firstPlace(text.length, (place) => context.measureText(`${text.slice(0, place + 1)}…`).width > room);
  return length < 6 ? "" : `${text.slice(0, length).trimEnd()}…`;
}
