// The strip at the top of a run: the tokens of the View over time or by version, with errors, waits and condensations.

import { GROUPS } from "./history.js";
import { count, dated, dayAndClock, duration, el, firstPlace, grouped, short, tokenCount } from "./dom.js";

// Pixels: the edges of the picture, and the heights of the space above the curve, of the curve and of all.
export const LEFT = 58;
export const RIGHT = 24;
const ABOVE_CURVE = 14;
const CURVE = 58;
const HEIGHT = 116;
const TICK = 110; // The least number of pixels between two numbers of the axis.

export class Strip {
  constructor(app) {
    this.app = app;
    this.canvas = el("canvas", { class: "layer", role: "img" });
    this.tip = el("div", { class: "tip", hidden: true });
    this.slider = el("input", {
      type: "range",
      class: "slider",
      min: 0,
      step: 1,
      "aria-label": "Version",
      oninput: () => app.show(Number(this.slider.value)),
    });
    this.node = el(
      "section",
      { class: "strip", "aria-label": "The run over time" },
      this.canvas,
      this.slider,
      this.tip,
    );
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    this.canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    new ResizeObserver(() => app.changed("strip")).observe(this.node);
  }

  // Whether the strip goes over time. Above the picture in Memory, it goes over versions, as the picture does.
  get hasTime() {
    return this.app.marks.took > 0 && this.app.tab === "transcript";
  }

  // The first version of the strip, and the version behind its last one.
  get window() {
    return this.app.tab === "memory" ? this.app.chart.window : [0, this.app.history.version + 1];
  }

  // The left edge of a version's column.
  x(version) {
    const { marks } = this.app;
    const [first, last] = this.window;
    const part = this.hasTime ? (marks.times[version] - marks.first) / marks.took : (version - first) / (last - first);
    return LEFT + part * this.width;
  }

  // The place of a version's line: at its time if the strip goes over time, or else in the middle of its column.
  at(version) {
    return this.hasTime ? this.x(version) : this.x(version + 0.5);
  }

  // The last version whose column begins at or before a place.
  versionAt(x) {
    const [first, last] = this.window;
    const span = Math.min(last, this.app.history.version + 1) - first;
    return first + Math.max(0, firstPlace(span, (place) => this.x(first + place) > x) - 1);
  }

  isInWindow(version) {
    const [first, last] = this.window;
    return version >= first && version < last;
  }

  draw() {
    const { history, marks, version, chart, from } = this.app;
    const full = this.node.clientWidth;
    this.width = Math.max(20, full - LEFT - RIGHT);
    this.colors = chart.colors;
    const context = cleared(this.canvas, full, HEIGHT, this.colors.font);
    this.drawCurve(context);
    if (this.hasTime) for (const wait of [...marks.waits, ...marks.pauses]) this.drawWait(context, wait);
    for (const id of marks.condensations) if (this.isInWindow(id + 1)) this.drawCondensation(context, id);
    for (const id of marks.errors) if (this.isInWindow(id + 1)) this.drawError(context, id);
    const taken = [];
    for (const marked of [version, from])
      if (marked !== null && this.isInWindow(marked)) taken.push(this.drawVersion(context, marked, taken[0]));
    this.drawAxis(context, taken);
    this.slider.max = history.version;
    this.slider.value = version;
    this.slider.setAttribute(
      "aria-valuetext",
      `${grouped(version)} of ${grouped(history.version)}, ${history.about}${tokenCount(history.total[version] ?? 0)}`,
    );
    this.canvas.setAttribute(
      "aria-label",
      `The View's tokens from the first to the last of ${grouped(history.version)} versions, with ${count(marks.errors.length, "error")}, ${count(marks.condensations.length, "condensation")} and ${count(marks.waits.length, "wait")}`,
    );
  }

  // For each column of pixels, draw the largest View in faint colours and the smallest View above it. Then draw the
  // limit.
  drawCurve(context) {
    const { sizes, total, version: end, limit } = this.app.history;
    const [first, last] = this.window;
    const until = Math.min(last - 1, end);
    let most = Math.max(1, total[this.app.history.largest(first, until)]);
    if (limit && limit < 2 * most) most = Math.max(most, limit);
    const scale = (tokens) => (tokens / most) * CURVE;
    let version = first;
    for (let column = 0; column < this.width && version <= until; column += 1) {
      let low = version;
      let high = version;
      while (version < until && this.x(version + 1) < LEFT + column + 1) {
        version += 1;
        if (total[version] < total[low]) low = version;
        if (total[version] > total[high]) high = version;
      }
      for (const [alpha, chosen] of /** @type {[number, number][]} */ ([
        [0.5, high],
        [1, low],
      ])) {
        let bottom = ABOVE_CURVE + CURVE;
        context.globalAlpha = alpha;
        for (let group = 0; group < sizes.length; group += 1) {
          const height = scale(sizes[group][chosen]);
          if (height <= 0) continue;
          context.fillStyle = this.colors.groups[group];
          context.fillRect(LEFT + column, bottom - height, 1, height);
          bottom -= height;
        }
      }
      if (this.x(version + 1) <= LEFT + column + 1) version += 1;
    }
    context.globalAlpha = 1;
    context.fillStyle = this.colors.soft;
    context.textAlign = "right";
    for (const [words, y] of /** @type {[string, number][]} */ ([
      [short(most), ABOVE_CURVE + 4],
      ["tokens", ABOVE_CURVE + CURVE / 2],
      ["0", ABOVE_CURVE + CURVE - 3],
    ]))
      context.fillText(words, LEFT - 8, y);
    context.fillRect(LEFT, ABOVE_CURVE + CURVE, this.width, 1);
    if (!limit || limit > most) return;
    const y = ABOVE_CURVE + CURVE - scale(limit);
    context.fillStyle = this.colors.limit;
    for (let x = 0; x < this.width; x += 8) context.fillRect(LEFT + x, y, 5, 1);
    context.textAlign = "left";
    context.fillText(`limit ${short(limit)}`, LEFT + 4, Math.max(6, y - 7));
  }

  // Write the numbers of versions, and below each number the day and the minute if they differ from those before.
  drawAxis(context, taken) {
    const { history, marks } = this.app;
    const [first, last] = this.window;
    const y = ABOVE_CURVE + CURVE + 18;
    context.font = `11px ${this.colors.font}`;
    context.fillStyle = this.colors.soft;
    let day = null;
    let minute = null;
    const write = (x, words, time) => {
      const [date, clock] = this.axisTime(time);
      let when = "";
      if (date !== day) when = `${date} ${clock}`;
      else if (clock !== minute) when = clock;
      const half = Math.max(context.measureText(words).width, context.measureText(when).width) / 2;
      const middle = Math.min(Math.max(x, LEFT + half), LEFT + this.width - half);
      if (taken.some(([from, to]) => from < middle + half + 6 && middle - half - 6 < to)) return;
      taken.push([middle - half, middle + half]);
      day = date;
      minute = clock;
      context.textAlign = "center";
      context.fillText(words, middle, y);
      context.fillText(when, middle, y + (words ? 15 : 0));
      context.fillRect(x, ABOVE_CURVE + CURVE + 2, 1, 4);
    };
    if (this.hasTime) {
      const step = marks.took / Math.max(1, Math.floor(this.width / (2 * TICK)));
      for (let time = marks.first; time <= marks.last; time += step)
        write(LEFT + ((time - marks.first) / marks.took) * this.width, "", time);
      return;
    }
    const step = niceStep((last - first) / Math.max(2, this.width / TICK));
    for (let version = Math.ceil(first / step) * step; version < last; version += step)
      write(this.at(version), grouped(version), history.timeAt(version));
  }

  // The day and the minute below a number of the axis.
  axisTime(time) {
    if (time === null) return ["", ""];
    return this.hasTime ? dated(time) : dayAndClock(time);
  }

  drawWait(context, { id, from, to, who }) {
    const left = this.x(id);
    const right = this.x(id + 1);
    context.fillStyle = this.colors.wait;
    context.fillRect(left, ABOVE_CURVE + CURVE + 2, Math.max(2, right - left), 4);
    const words = `waited ${duration(to - from)} for ${who}`;
    if (right - left < context.measureText(words).width + 16) return;
    context.fillStyle = this.colors["user-text"];
    context.textAlign = "center";
    context.fillText(words, (left + right) / 2, ABOVE_CURVE + CURVE + 34);
  }

  drawCondensation(context, id) {
    context.fillStyle = this.colors.groups[GROUPS.indexOf("summary")];
    context.fillRect(Math.round(this.x(id + 1)) - 1, ABOVE_CURVE - 4, 2, CURVE + 8);
  }

  drawError(context, id) {
    const x = this.at(id + 1);
    context.fillStyle = this.colors.groups[GROUPS.indexOf("error")];
    context.beginPath();
    context.moveTo(x, ABOVE_CURVE + CURVE + 2);
    context.lineTo(x + 4, ABOVE_CURVE + CURVE + 10);
    context.lineTo(x - 4, ABOVE_CURVE + CURVE + 10);
    context.fill();
  }

  // Draw the line and the number of a version. A number that would cover the number of the open version (``open``) is
  // moved beside it. Return the left and right edge of the number.
  drawVersion(context, version, open = undefined) {
    const isOpen = version === this.app.version;
    const words = grouped(version);
    const x = Math.round(this.at(version));
    context.font = `600 11px ${this.colors.font}`;
    const width = tagWidth(context, words);
    let left = Math.min(Math.max(2, x - width / 2), LEFT + this.width + RIGHT - width - 2);
    if (open && left < open[1] && open[0] < left + width)
      left = version < this.app.version ? open[0] - width - 2 : open[1] + 2;
    context.fillStyle = isOpen ? this.colors.ink : this.colors.soft;
    context.fillRect(x - 1, ABOVE_CURVE - 6, isOpen ? 2 : 1, HEIGHT);
    drawTag(context, words, left, ABOVE_CURVE + CURVE + 18, this.colors.ground);
    return [left, left + width];
  }

  press(event) {
    if (!this.app.history.version) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.app.show(this.versionAt(event.offsetX));
  }

  move(event) {
    const { history } = this.app;
    if (!history.version) return;
    const version = this.versionAt(event.offsetX);
    if (this.canvas.hasPointerCapture(event.pointerId)) this.app.show(version);
    const time = history.timeAt(version);
    showTip(
      this.tip,
      event,
      this.node,
      el("b", {}, `Version ${grouped(version)}`),
      el("div", {}, `${history.about}${tokenCount(history.total[version])}`),
      time === null ? "" : el("div", { class: "soft" }, dated(time).join(" ")),
    );
  }
}

// Clear a canvas, give it this size in CSS pixels, and return its context.
export function cleared(canvas, width, height, font) {
  const ratio = window.devicePixelRatio || 1;
  const size = { width: Math.round(width * ratio), height: Math.round(height * ratio) };
  if (canvas.width !== size.width || canvas.height !== size.height) Object.assign(canvas, size);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `11px ${font}`;
  context.textBaseline = "middle";
  return context;
}

// Write words in a box with round corners. The box has the present fill colour, and the words have the colour
// ``ground``.
export function drawTag(context, words, left, y, ground) {
  const width = tagWidth(context, words);
  context.beginPath();
  context.roundRect(left, y - 8, width, 16, 3);
  context.fill();
  context.fillStyle = ground;
  context.textAlign = "center";
  context.fillText(words, left + width / 2, y);
}

// The width of a box with words.
export const tagWidth = (context, words) => context.measureText(words).width + 12;

// Show elements in a box beside the pointer, inside a node of this size.
export function showTip(tip, { offsetX: x, offsetY: y }, { clientWidth, clientHeight }, ...children) {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  const left = x + 16 + width > clientWidth ? x - width - 14 : x + 16;
  const top = y + 16 + height > clientHeight ? y - height - 12 : y + 16;
  tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

// The least of the numbers 1, 2, 5, 10, 20, 50 … that is at least ``least``.
export function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return power * ([1, 2, 5].find((step) => step * power >= least) ?? 10);
}
