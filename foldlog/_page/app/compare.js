// Two runs beside each other, aligned by their calls.

import { ask, costWords, count, eventsAndSummaries, el, grouped, idOf, printable, said, table, tokenCount, withMarks } from "./dom.js";
import { themeButton, watchTheme } from "./theme.js";
import { homeAddress } from "./runs.js";

const MOST_TOOLS = 12;
const MOST_LINES = 40;
const NO_PARTS = [[], []];

export class Comparison {
  constructor(root, one, other) {
    this.root = root;
    this.ids = [one, other];
  }

  async start() {
    watchTheme(() => {});
    const main = el("main", { class: "compared" }, el("p", { class: "soft", role: "status" }, "Comparing …"));
    this.root.replaceChildren(el("header", {}, el("a", { class: "back", href: homeAddress() }, "← Runs"), el("h1", {}, "Two runs"), el("span", { class: "grow" }), themeButton()), main);
    const found = await ask(`compare?${new URLSearchParams({ id: this.ids[0], other: this.ids[1] })}`);
    document.title = "Two runs · foldlog";
    main.replaceChildren(...this.summary(found), ...this.difference(found), ...this.shown(found), el("h2", {}, "Requests and calls"), this.steps(found));
  }

  way(place, event) {
    return el("a", { href: `./?${new URLSearchParams({ id: this.ids[place] })}#e=${event}` }, idOf(event));
  }

  summary({ runs, same_first: same, same: both, redacted_first: redacted, knew }) {
    const number = (value) => (typeof value === "number" ? grouped(value) : "unknown");
    const rows = ["requests", "replies", "calls", "errors"].map((name) => [name, ...runs.map((run) => number(run[name]))]);
    const tools = [...new Set(runs.flatMap((run) => Object.keys(run.tools)))].slice(0, MOST_TOOLS);
    rows.push(...tools.map((tool) => [`calls of ${tool}`, ...runs.map((run) => grouped(run.tools[tool] ?? 0))]));
    for (const [name, words] of [["prompt_tokens", "prompt tokens"], ["completion_tokens", "completion tokens"]]) rows.push([words, ...runs.map(({ spent }) => number(spent?.[name]))]);
    rows.push(["cost", ...runs.map((run) => costWords(run.spent))], ["last answer", ...runs.map((run) => (run.answer ? run.answer.gist : "none"))]);
    const differs = knew.some((each, place) => each.version < runs[place].version);
    rows.push([differs ? "was shown at the first difference" : "was shown at the end", ...knew.map((each) => `${eventsAndSummaries(each.events - each.summaries, each.summaries)}, ≈ ${tokenCount(each.tokens)}`)]);
    const head = [el("td"), ...runs.map((run) => el("th", { scope: "col" }, el("a", { href: `./?${new URLSearchParams({ id: run.conversation })}` }, said(printable(run.conversation)))))];
    const cells = rows.map(([name, ...values]) => [el("th", { scope: "row" }, said(name)), ...values.map((value) => el("td", { class: value === values[0] && value === values[1] ? "soft" : "" }, said(value)))]);
    return [
      el("p", { class: "summary" }, el("b", {}, same ? `${same === 1 ? "The first request or call says" : `The first ${grouped(same)} requests and calls say`} the same` : "They differ from the first request on"), `; ${count(both, "request or call is", "requests and calls are")} in both.${redacted ? ` Nothing is known of those that are redacted: ${grouped(redacted)}.` : ""}`),
      table(head, cells),
    ];
  }

  // The first request or call that differs, of both, with the words that differ marked.
  difference({ first_difference: lines }) {
    if (!lines) return [el("p", {}, "No request and no call differs.")];
    const [one, other] = lines;
    const marks = one && other ? differingParts(one.gist, other.gist) : NO_PARTS;
    const cells = lines.map((line, place) => el("div", { class: line ? "" : "none" }, ...(line ? [this.way(place, line.event), ` ${line.kind} `, el("bdi", {}, ...withMarks(line.gist, marks[place]))] : ["It ends here."])));
    return [el("h2", {}, "The first difference"), el("div", { class: "steps-of" }, el("div", { class: "step differs first" }, ...cells))];
  }

  // What a model was shown in one run alone, at the first difference or at the end.
  shown({ knew }) {
    if (!knew.some((each) => each.alone.length)) return [];
    const [ours, theirs] = knew.map((each) => each.alone);
    const marks = ours.map((line, place) => (line.kind === theirs[place]?.kind ? differingParts(line.gist, theirs[place].gist) : NO_PARTS));
    const columns = knew.map(({ alone }, side) => el("div", {},
      ...alone.slice(0, MOST_LINES).map((line, place) => el("p", {}, this.way(side, line.event), ` ${line.kind} `, el("bdi", {}, ...withMarks(line.gist, (marks[place] ?? NO_PARTS)[side])))),
      alone.length > MOST_LINES ? el("p", { class: "soft" }, `and ${grouped(alone.length - MOST_LINES)} more`) : null,
      alone.length ? null : el("p", { class: "soft" }, "nothing")));
    return [el("h2", {}, "What only one of them was shown"), el("div", { class: "steps-of" }, el("div", { class: "step alone" }, ...columns))];
  }

  // The steps of both in one order: one that both have stands across, the others in their own column.
  steps({ steps, same_first: same }) {
    const line = (place, event, step) => [this.way(place, event), ` ${step.kind} `, said(printable(step.gist))];
    const rows = steps.map((step, place) => {
      const isBoth = step.event !== null && step.other_event !== null;
      const row = el("div", { class: `step${isBoth ? " both" : ""}${place === same ? " differs" : ""}`, role: "row" });
      for (const [side, event] of [step.event, step.other_event].entries()) {
        row.append(el("div", { role: "cell", class: event === null ? "none" : "" }, ...(event === null ? ["–"] : line(side, event, step))));
      }
      return row;
    });
    return el("div", { class: "steps-of", role: "table", "aria-label": "Requests and calls of both" }, ...rows);
  }
}

// The parts of two texts that differ, from the first word to the last one: a list of one place, or empty, for each.
function differingParts(one, other) {
  const most = Math.min(one.length, other.length);
  let start = 0;
  while (start < most && one[start] === other[start]) start += 1;
  let end = 0;
  while (end < most - start && one.at(-1 - end) === other.at(-1 - end)) end += 1;
  const from = one.lastIndexOf(" ", Math.max(0, start - 1)) + 1;
  return [one, other].map((text) => {
    const stop = text.indexOf(" ", text.length - end);
    const to = stop < 0 ? text.length : stop;
    return to > from ? [[from, to]] : [];
  });
}
