// Two runs beside each other, aligned by their calls.

import { ask, costWords, eventsAndSummaries, el, grouped, idOf, printable, said, table, tokenCount } from "./dom.js";
import { themeButton, watchTheme } from "./theme.js";
import { homeAddress } from "./runs.js";

const MOST_TOOLS = 12;

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
    main.replaceChildren(...this.summary(found), el("h2", {}, "Requests and calls"), this.steps(found));
  }

  way(place, event) {
    return el("a", { href: `./?${new URLSearchParams({ id: this.ids[place] })}#e=${event}` }, idOf(event));
  }

  summary({ runs, same_first: same, same: both, redacted_first: redacted, first_difference: differing, knew }) {
    const number = (value) => (typeof value === "number" ? grouped(value) : "unknown");
    const rows = ["requests", "replies", "calls", "errors"].map((name) => [name, ...runs.map((run) => number(run[name]))]);
    const tools = [...new Set(runs.flatMap((run) => Object.keys(run.tools)))].slice(0, MOST_TOOLS);
    rows.push(...tools.map((tool) => [`calls of ${tool}`, ...runs.map((run) => grouped(run.tools[tool] ?? 0))]));
    for (const [name, words] of [["prompt_tokens", "prompt tokens"], ["completion_tokens", "completion tokens"]]) rows.push([words, ...runs.map(({ spent }) => number(spent?.[name]))]);
    rows.push(["cost", ...runs.map((run) => costWords(run.spent))], ["last answer", ...runs.map((run) => (run.answer ? run.answer.gist : "none"))]);
    if (differing) rows.push(["was shown at the first difference", ...knew.map((each) => `${eventsAndSummaries(each.events - each.summaries, each.summaries)}, ≈ ${tokenCount(each.tokens)}`)]);
    const head = [el("td"), ...runs.map((run) => el("th", { scope: "col" }, el("a", { href: `./?${new URLSearchParams({ id: run.conversation })}` }, said(printable(run.conversation)))))];
    const cells = rows.map(([name, ...values]) => [el("th", { scope: "row" }, said(name)), ...values.map((value) => el("td", { class: value === values[0] && value === values[1] ? "soft" : "" }, said(value)))]);
    return [
      el("p", { class: "summary" }, el("b", {}, same ? `${same === 1 ? "The first request or call says" : `The first ${grouped(same)} requests and calls say`} the same` : "They differ from the first request on"), `; both have ${grouped(both)} of them.${redacted ? ` Nothing is known of those that are redacted: ${grouped(redacted)}.` : ""}`),
      table(head, cells),
    ];
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
