// Two runs side by side. Equal requests and calls stand in the same row.

import {
  ask,
  costWords,
  count,
  eventsAndSummaries,
  el,
  grouped,
  idOf,
  printable,
  said,
  sentence,
  table,
  tokenCount,
} from "./dom.js";
import { addressOf, homeAddress } from "./runs.js";

const MOST_TOOLS = 12; // The maximum number of tools in the figures.
const MOST_LINES = 40; // The maximum number of events that only one model was shown.
const NAME = 36; // The maximum number of characters of an id above the figures, enough for a UUID.

export class Comparison {
  constructor(root, one, other) {
    this.root = root;
    this.ids = [one, other];
  }

  async start() {
    const main = el("main", { class: "compared" }, el("p", { class: "soft", role: "status" }, "Comparing …"));
    this.root.replaceChildren(
      el("header", {}, el("a", { class: "back", href: homeAddress() }, "← Runs"), el("h1", {}, "Two runs")),
      main,
    );
    const found = await ask(`compare?${new URLSearchParams({ id: this.ids[0], other: this.ids[1] })}`);
    document.title = "Two runs · foldlog";
    // The word for a step that is not a request.
    this.reply = found.runs.every((run) => run.calls) ? ["call", "calls"] : ["reply", "replies"];
    const runs = found.runs.map(({ conversation: id }) =>
      el("div", {}, el("a", { href: addressOf(id) }, said(printable(id)))),
    );
    main.replaceChildren(
      this.sentence(found),
      el("div", { class: "step runs-of" }, ...runs),
      ...this.systemPrompts(found),
      ...this.firstDifference(found),
      el("h2", {}, "Both in figures"),
      this.figures(found),
      ...this.shown(found),
      el("h2", {}, `Requests and ${this.reply[1]}`),
      this.steps(found),
    );
  }

  // A link to an event of one of the runs.
  way(place, event) {
    return el("a", { href: addressOf(this.ids[place], event) }, idOf(event));
  }

  // A sentence about the beginnings of the runs.
  sentence(found) {
    const [one, many] = this.reply;
    const words = sentence(`${found.system_prompts ? "their system prompts differ; " : ""}${this.beginning(found)}`);
    const both = count(found.same, `request or ${one} is`, `requests and ${many} are`);
    return el("p", { class: "summary" }, el("b", {}, words), found.steps.length ? `; ${both} in both.` : ".");
  }

  // How many of the first steps are equal or redacted, in the words of the command "foldlog diff".
  beginning({ same_first: first, redacted_first: redacted, steps }) {
    const [one, many] = this.reply;
    const are = (number) => (number === 1 ? "is" : "are");
    const notCompared = `${are(redacted)} redacted, and ${redacted === 1 ? "was" : "were"} not compared`;
    const equal = first - redacted;
    const firsts = first === 1 ? `first request or ${one}` : `first ${grouped(first)} requests and ${many}`;
    if (!steps.length) return `neither has a request or a ${one}`;
    if (!first) return `their first request or ${one} differs`;
    if (!equal) return `their ${firsts} ${notCompared}`;
    if (!redacted) return `their ${firsts} ${are(first)} equal`;
    return `${grouped(equal)} of their ${firsts} ${are(equal)} equal; ${grouped(redacted)} ${notCompared}`;
  }

  systemPrompts({ system_prompts: prompts }) {
    if (!prompts) return [];
    if (prompts.events.includes(null))
      return [el("h2", {}, "Only one run has a system prompt"), this.differing(prompts)];
    const [lines, apart] = [prompts.lines, prompts.lines_apart].map((numbers) => numbers.map(grouped));
    const first = `${apart[0]} of ${lines[0]} lines only in the first`;
    const second = `${apart[1]} of ${lines[1]} lines only in the second`;
    const title = `The system prompts differ: ${first}, ${second}`;
    return [el("h2", {}, title), this.differing(prompts)];
  }

  firstDifference({ first_difference: first, same_first: same, redacted_first: redacted }) {
    if (!first && same === redacted) return [];
    const compared = redacted ? " that was compared" : "";
    if (!first) return [el("p", {}, `No request and no ${this.reply[0]}${compared} differs.`)];
    return [el("h2", {}, `The first request or ${this.reply[0]} that differs`), this.differing(first)];
  }

  // The places at which two events differ, with the words that differ marked.
  differing({ events, passages, more }) {
    const column = (event, side) => {
      if (!event) return el("div", { class: "none" }, "none");
      const texts = passages.map((passage) => {
        const words = side ? passage.other_words : passage.words;
        return el("p", {}, said(passage.before), " ", words && said(words, "mark"), " ", said(passage.after));
      });
      return el(
        "div",
        {},
        this.way(side, event.event),
        ` ${event.kind} `,
        ...(texts.length ? texts : [said(event.gist)]),
        more ? el("p", { class: "soft" }, `and ${count(more, "more place")}`) : null,
      );
    };
    return el("div", { class: "steps-of" }, el("div", { class: "step differs" }, ...events.map(column)));
  }

  // A table of the figures of both runs.
  figures({ runs, knew }) {
    const number = (value) => (typeof value === "number" ? grouped(value) : "unknown");
    const rows = ["requests", "replies", "calls", "errors"].map((name) => [
      name,
      ...runs.map((run) => number(run[name])),
    ]);
    const callsOf = (tools, run) => tools.reduce((calls, tool) => calls + (run.tools[tool] ?? 0), 0);
    const ofBoth = (tool) => callsOf([tool], runs[0]) + callsOf([tool], runs[1]);
    const tools = [...new Set(runs.flatMap((run) => Object.keys(run.tools)))].sort((a, b) => ofBoth(b) - ofBoth(a));
    for (const tool of tools.slice(0, MOST_TOOLS))
      rows.push([`calls of ${tool}`, ...runs.map((run) => grouped(callsOf([tool], run)))]);
    const others = tools.slice(MOST_TOOLS);
    if (others.length)
      rows.push([
        `calls of ${count(others.length, "other tool")}`,
        ...runs.map((run) => grouped(callsOf(others, run))),
      ]);
    for (const [name, words] of [
      ["prompt_tokens", "prompt tokens"],
      ["completion_tokens", "completion tokens"],
    ])
      rows.push([words, ...runs.map(({ spent }) => number(spent?.[name]))]);
    rows.push(
      ["cost", ...runs.map((run) => costWords(run.spent))],
      ...(runs.some((run) => run.task)
        ? [["cost with sub-agents", ...runs.map((run) => costWords((run.task ?? run).spent))]]
        : []),
      ["last answer", ...runs.map((run) => (run.answer ? run.answer.gist : "none"))],
    );
    const differs = knew.some((each, place) => each.version < runs[place].version);
    rows.push([
      differs ? "was shown at the first difference" : "was shown at the end",
      ...knew.map(
        (each) => `${eventsAndSummaries(each.events - each.summaries, each.summaries)}, ≈ ${tokenCount(each.tokens)}`,
      ),
    ]);
    const head = [
      el("td"),
      ...runs.map((run) =>
        el(
          "th",
          { scope: "col" },
          printable(run.conversation.length > NAME ? `…${run.conversation.slice(-NAME)}` : run.conversation),
        ),
      ),
    ];
    const cells = rows.map(([name, ...values]) => [
      el("th", { scope: "row" }, said(name)),
      ...values.map((value) =>
        el("td", { class: value === values[0] && value === values[1] ? "soft" : "" }, said(value)),
      ),
    ]);
    return table(head, cells);
  }

  // The events that only one of the two models was shown, at the first difference or at the end.
  shown({ knew }) {
    if (!knew.some((each) => each.alone.length)) return [];
    const columns = knew.map(({ alone }, side) =>
      el(
        "div",
        {},
        ...alone
          .slice(0, MOST_LINES)
          .map((line) => el("p", {}, this.way(side, line.event), ` ${line.kind} `, said(line.gist))),
        alone.length > MOST_LINES ? el("p", { class: "soft" }, `and ${grouped(alone.length - MOST_LINES)} more`) : null,
        alone.length ? null : el("p", { class: "soft" }, "nothing"),
      ),
    );
    return [
      el("h2", {}, "What only one of them was shown"),
      el("div", { class: "steps-of" }, el("div", { class: "step alone" }, ...columns)),
    ];
  }

  // The steps of both runs in one table. A step of both runs fills both cells of its row, any other step only one.
  steps({ steps, same_first: same }) {
    const line = (place, event, step) => [this.way(place, event), ` ${step.kind} `, said(printable(step.gist))];
    const rows = steps.map((step, place) => {
      const isBoth = step.event !== null && step.other_event !== null;
      const row = el("div", { class: `step${isBoth ? " both" : ""}${place === same ? " differs" : ""}`, role: "row" });
      for (const [side, event] of [step.event, step.other_event].entries()) {
        row.append(
          el(
            "div",
            { role: "cell", class: event === null ? "none" : "" },
            ...(event === null ? ["–"] : line(side, event, step)),
          ),
        );
      }
      return row;
    });
    return el("div", { class: "steps-of", role: "table", "aria-label": "Requests and calls of both" }, ...rows);
  }
}
