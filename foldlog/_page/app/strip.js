// The tokens of the View over time, with errors, waits and condensations: a run at a glance.

import { GROUPS } from "./history.js";
import { dated, duration, el, firstPlace, grouped, short } from "./dom.js";

const STRIP_LEFT = 16;
const STRIP_RIGHT = 16;
const TOP = 26;
const CURVE = 52;
const BELOW = 26;
const END = 140; // Pixels for the time at either end.
export const STRIP = TOP + CURVE + BELOW;

export class Strip {
  measured; of; // the history whose times are measured

  constructor(app) {
    this.app = app;
    this.byTime = true;
    this.canvas = el("canvas", { class: "layer", role: "img" });
    this.tip = el("div", { class: "tip", hidden: true });
    this.switch = el("button", { class: "small", onclick: () => this.turn() });
    this.node = el("section", { class: "strip", "aria-label": "The run over time" }, this.canvas, this.tip, this.switch);
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    this.canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    new ResizeObserver(() => this.app.changed("strip")).observe(this.node);
  }

  turn() {
    this.byTime = !this.byTime;
    this.app.changed("strip");
  }

  // The time of each version, never falling; null where the history has no times.
  measureTime() {
    const { history, marks } = this.app;
    if (this.measured === history.version && this.of === history) return;
    [this.measured, this.of] = [history.version, history];
    this.times = null;
    if (marks.first === undefined || marks.took === 0) return;
    this.times = new Float64Array(history.version + 1);
    let at = marks.first;
    for (let version = 0; version <= history.version; version += 1) {
      const time = version ? history.time(version - 1) : null;
      if (time !== null && time > at) at = time;
      this.times[version] = at;
    }
  }

  get hasTime() {
    return this.byTime && this.times !== null;
  }

  x(version) {
    const { history, marks } = this.app;
    const part = this.hasTime ? (this.times[version] - marks.first) / marks.took : version / Math.max(1, history.version);
    return STRIP_LEFT + part * this.width;
  }

  // The last version at a place.
  versionAt(x) {
    const { history } = this.app;
    return Math.max(0, Math.min(history.version, firstPlace(history.version + 1, (version) => this.x(version) > x) - 1));
  }

  draw() {
    const { app } = this;
    const { history, marks } = app;
    this.measureTime();
    this.switch.textContent = this.hasTime ? "by time" : "by step";
    this.switch.hidden = this.times === null;
    this.switch.setAttribute("aria-label", this.hasTime ? "by time; press for steps" : "by step; press for time");
    const ratio = window.devicePixelRatio || 1;
    const full = this.node.clientWidth;
    this.width = Math.max(20, full - STRIP_LEFT - STRIP_RIGHT);
    this.canvas.width = Math.round(full * ratio);
    this.canvas.height = Math.round(STRIP * ratio);
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.colors = app.chart.colorsOfPage();
    context.font = `11px ${this.colors.font}`;
    context.textBaseline = "middle";
    this.drawCurve(context);
    this.drawAxis(context);
    for (const wait of [...marks.waits, ...marks.pauses]) this.drawWait(context, wait);
    for (const id of marks.condensations) this.drawCondensation(context, id);
    for (const id of marks.errors) this.drawError(context, id);
    this.drawNow(context);
    this.canvas.setAttribute("aria-label", `The View's tokens from the first to the last of ${grouped(history.version)} versions, with ${grouped(marks.errors.length)} errors, ${grouped(marks.condensations.length)} condensations and ${grouped(marks.waits.length)} waits`);
  }

  // The largest View of each pixel, by kind; the smallest one of it in full before it.
  drawCurve(context) {
    const { sizes, total, version: last } = this.app.history;
    const most = total[this.app.history.largest()] || 1;
    const scale = (tokens) => (tokens / most) * CURVE;
    let version = 0;
    for (let column = 0; column < this.width; column += 1) {
      let [low, high] = [version, version];
      while (version < last && this.x(version + 1) <= STRIP_LEFT + column + 1) {
        version += 1;
        if (total[version] < total[low]) low = version;
        if (total[version] > total[high]) high = version;
      }
      for (const [alpha, chosen] of /** @type {[number, number][]} */ ([[0.5, high], [1, low]])) {
        let bottom = TOP + CURVE;
        context.globalAlpha = alpha;
        for (let group = 0; group < sizes.length; group += 1) {
          const height = scale(sizes[group][chosen]);
          if (height <= 0) continue;
          context.fillStyle = this.colors.groups[group];
          context.fillRect(STRIP_LEFT + column, bottom - height, 1, height);
          bottom -= height;
        }
      }
    }
    context.globalAlpha = 1;
    context.fillStyle = this.colors.soft;
    context.textAlign = "left";
    context.fillText(`${short(most)} tokens`, STRIP_LEFT, TOP - 12);
    context.fillRect(STRIP_LEFT, TOP + CURVE, this.width, 1);
  }

  drawAxis(context) {
    const { history, marks } = this.app;
    const y = TOP + CURVE + 18;
    context.fillStyle = this.colors.soft;
    const ends = this.hasTime ? [marks.first, marks.last].map((time) => dated(time).join(" ")) : ["0", grouped(history.version)];
    context.textAlign = "left";
    if (this.x(this.app.version) > STRIP_LEFT + END) context.fillText(ends[0], STRIP_LEFT, y);
    context.textAlign = "right";
    if (this.x(this.app.version) < STRIP_LEFT + this.width - END) context.fillText(ends[1], STRIP_LEFT + this.width, y);
  }

  drawWait(context, { id, from, to, who }) {
    if (!this.hasTime) return;
    const left = this.x(id);
    const right = this.x(id + 1);
    context.fillStyle = this.colors.wait;
    context.fillRect(left, TOP + CURVE + 2, Math.max(2, right - left), 4);
    const words = `waited ${duration(to - from)} for ${who}`;
    const half = context.measureText(words).width / 2 + 8;
    const middle = (left + right) / 2;
    const now = this.x(this.app.version);
    if (right - left < 2 * half + 74 || middle - half < STRIP_LEFT + END || middle + half > STRIP_LEFT + this.width - END || Math.abs(now - middle) < half + 30) return;
    context.fillStyle = this.colors["user-text"];
    context.textAlign = "center";
    context.fillText(words, middle, TOP + CURVE + 18);
  }

  drawCondensation(context, id) {
    context.fillStyle = this.colors.groups[GROUPS.indexOf("summary")];
    context.fillRect(Math.round(this.x(id + 1)) - 1, TOP - 4, 2, CURVE + 8);
  }

  drawError(context, id) {
    const x = this.x(id + 1);
    context.fillStyle = this.colors.groups[GROUPS.indexOf("error")];
    context.beginPath();
    context.moveTo(x, TOP + CURVE + 2);
    context.lineTo(x + 4, TOP + CURVE + 10);
    context.lineTo(x - 4, TOP + CURVE + 10);
    context.fill();
  }

  drawNow(context) {
    const { version } = this.app;
    const words = grouped(version);
    const x = Math.round(this.x(version));
    context.font = `600 11px ${this.colors.font}`;
    const width = context.measureText(words).width + 10;
    const left = Math.min(Math.max(2, x - width / 2), STRIP_LEFT + this.width + STRIP_RIGHT - width - 2);
    context.fillStyle = this.colors.ink;
    context.fillRect(x - 1, TOP - 6, 2, CURVE + 16);
    context.beginPath();
    context.roundRect(left, TOP + CURVE + 10, width, 15, 3);
    context.fill();
    context.fillStyle = this.colors.ground;
    context.textAlign = "center";
    context.fillText(words, left + width / 2, TOP + CURVE + 18);
  }

  press(event) {
    if (!this.app.history.version) return;
    this.app.goTo(this.versionAt(event.offsetX));
  }

  move(event) {
    const { history } = this.app;
    if (!history.version) return;
    const version = this.versionAt(event.offsetX);
    const time = history.timeAt(version);
    this.tip.replaceChildren(el("b", {}, `Version ${grouped(version)}`), el("div", {}, `${history.about}${short(history.total[version])} tokens`), time === null ? "" : el("div", { class: "soft" }, dated(time).join(" ")));
    this.tip.hidden = false;
    const left = event.offsetX + 16 + this.tip.offsetWidth > this.node.clientWidth ? event.offsetX - this.tip.offsetWidth - 12 : event.offsetX + 16;
    this.tip.style.transform = `translate(${Math.max(4, left)}px, 8px)`;
  }
}
