// The agents of a task: side by side on one time line above the transcript, and inside the calls that began them.

import {
  ask,
  costWords,
  count,
  dated,
  duration,
  el,
  idOf,
  keep,
  kept,
  moment,
  phone,
  printable,
  refill,
  said,
  sentence,
} from "./dom.js";
import { remembered } from "./history.js";
import { STATES_OF_RUNS, addressOf, shortId, timeIn } from "./runs.js";
import { textOf, wholeEnd } from "./texts.js";

const AGENTS_SHOWN = 200; // The number of agents that are shown without asking.
const AGENT_TEXT = 2_000; // The number of characters of an event that are shown inside a call.
const AGENT_EVENTS = 50; // The number of events of a sub-agent that are loaded at once.
const NAMED = 20; // The number of agents that a line of facts names.
const CLOSED = "foldlog-agents"; // Where the browser stores that the reader has closed the agents.
const COLUMNS = ["Agent", "", "Now", "Models", "Errors", "Longest gap", "Cost"];
const GAP = "The longest time without an event, before a reply or a result";

export class Agents {
  constructor(app) {
    this.app = app;
    this.task = null;
    this.runs = new Map(); // For each sub-agent whose call was drawn, the element of its run.
    this.begun = new Map(); // For the event of a call, the agents that the call began.
    this.node = el("section", { class: "agents", "aria-label": "Task", hidden: true });
    this.box = el("input", {
      type: "search",
      placeholder: "Where does a text come from?",
      "aria-label": "Ask all agents of the task about a text",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.found = el("div", { role: "status" }); // The answer to the last question.
    this.asked = 0; // The number of questions.
  }

  // Show a task. A task without other agents is not shown.
  take(task) {
    this.task = task;
    this.begun = new Map();
    const { conversation } = this.app.history;
    for (const agent of [...task.agents, ...task.erased.filter(({ parent }) => parent === conversation)]) {
      if (agent.call_event !== undefined)
        this.begun.set(agent.call_event, [...(this.begun.get(agent.call_event) ?? []), agent]);
    }
    this.node.hidden = !task.sub_agents && !task.erased.length;
    if (!this.node.hidden) this.draw(AGENTS_SHOWN);
  }

  // The event of the call that began a sub-agent of the open conversation.
  callOf(conversation) {
    return this.task?.agents.find((agent) => agent.conversation === conversation)?.call_event;
  }

  // Draw the sums of the task, its facts, and a row for each of the first ``most`` agents.
  draw(most) {
    const { task } = this;
    const first = timeIn(task.first_event_at ?? "");
    const took = timeIn(task.last_event_at ?? "") - first || 1;
    const [top] = task.agents;
    const costs = [
      task.spent.cost === null ? "" : costWords(task.spent),
      task.erased.length ? count(task.erased.length, "erased agent") : "",
    ];
    const sums = [
      count(task.sub_agents, "sub-agent"),
      task.errors ? count(task.errors, "error") : "",
      costs.filter(Boolean).join(" + "),
      task.sub_agents_unreached ? `${task.sub_agents_unreached} no longer reached` : "",
      top.spent && top.spent.cost !== null ? `${costWords(top.spent)} without sub-agents` : "",
      `${duration(task.seconds * 1000)} of work in ${duration(took)}${task.agents.length > 1 ? ` (the first agent alone: ${duration(lastedOf(top))})` : ""}`,
    ]
      .filter(Boolean)
      .join(", ");
    const more =
      task.agents.length > most
        ? el("button", { onclick: () => this.draw(Infinity) }, `All ${count(task.agents.length, "agent")}`)
        : "";
    const times = task.first_event_at ? `${dated(first).join(" ")} to ${dated(first + took).join(" ")}` : "";
    const head = el(
      "div",
      { class: "agent-head", role: "row" },
      ...COLUMNS.map((name) =>
        el("span", { role: "columnheader", title: name === "Longest gap" ? GAP : null }, name || times),
      ),
    );
    const form = el("form", { onsubmit: (event) => this.askAbout(event) }, this.box, el("button", {}, "Ask"));
    const isOpen =
      this.node.querySelector("details")?.open ?? (!phone.matches && kept("sessionStorage", CLOSED) !== "closed");
    refill(
      this.node,
      this.above(),
      el(
        "details",
        { open: isOpen, ontoggle: ({ target }) => keep("sessionStorage", CLOSED, target.open ? "" : "closed") },
        el("summary", {}, "Task with ", sums),
        ...this.facts(),
        el(
          "div",
          { role: "table", "aria-label": "Agents on one time line" },
          head,
          ...task.agents.slice(0, most).map((agent) => this.row(agent, first, took)),
          ...task.erased.slice(0, most).map((agent) => this.erasedRow(agent, first, took)),
        ),
        more,
        form,
        this.found,
      ),
    );
  }

  // The way from a sub-agent to the call that began it.
  above() {
    const { agents } = this.task;
    const here = agents.find((agent) => agent.conversation === this.app.history.conversation);
    const parent = agents.find((agent) => agent.conversation === here?.parent);
    return parent
      ? el(
          "p",
          {},
          "Sub-agent of ",
          el(
            "a",
            { href: `${addressOf(parent.conversation)}#child=${encodeURIComponent(here.conversation)}` },
            nameOf(parent),
          ),
          ": the call that began it, what it was given and what it returned",
        )
      : "";
  }

  // Lines about all agents: the first error, the highest cost, the longest call and wait, open calls, and redactions.
  facts() {
    const { task } = this;
    const { agents } = task;
    const most = (some, figure) =>
      some.reduce((best, agent) => ((figure(agent) ?? -1) > (figure(best) ?? -1) ? agent : best), {});
    const cost = (agent) => agent.spent?.cost;
    const parents = new Set(agents.map((agent) => agent.parent));
    const slowest = most(
      agents.filter((agent) => !parents.has(agent.conversation)),
      (agent) => agent.longest_wait_s,
    );
    const dearest = most(agents, cost);
    const { history } = this.app;
    const longest = { call: -1, took: 0 };
    for (const [call, result] of history.answered) {
      const [from, to] = [history.time(call), history.time(result)];
      if (from !== null && to !== null && to - from > longest.took) Object.assign(longest, { call, took: to - from });
    }
    const failed = agents.find((agent) => agent.conversation === task.first_error_in);
    const open = agents.filter((agent) => agent.state === "open_call");
    const redacted = agents.filter((agent) => agent.redactions);
    const line = (kind, ...parts) => el("p", { class: kind }, ...parts);
    const names = (some, words) => some.slice(0, NAMED).flatMap((agent, place) => [place ? ", " : "", words(agent)]);
    const rest = (some) => (some.length > NAMED ? ` and ${count(some.length - NAMED, "other")}` : "");
    return [
      failed ? line("bad", "First error in ", link(failed, "at=error"), ": ", said(task.first_error)) : "",
      cost(dearest) ? line("", "Highest cost: ", link(dearest), ` ${costWords(dearest.spent)}`) : "",
      longest.took
        ? line(
            "",
            "Longest call of this agent: ",
            this.app.way(longest.call),
            ` ${duration(longest.took)}${this.begun.has(longest.call) ? ", waited for a sub-agent" : ""}`,
          )
        : "",
      slowest.longest_wait_s
        ? line(
            "",
            "Longest wait of an agent without sub-agents: ",
            link(slowest, "at=wait"),
            ` ${duration(slowest.longest_wait_s * 1000)}`,
          )
        : "",
      open.length
        ? line(
            "",
            "Calls without a result, which may have run: in ",
            ...names(open, (agent) => link(agent, "at=open")),
            rest(open),
          )
        : "",
      redacted.length
        ? line(
            "",
            "Redacted: ",
            ...names(redacted, (agent) => el("span", {}, link(agent), ...redactionsOf(agent))),
            rest(redacted),
          )
        : "",
    ];
  }

  // The row of an agent: its name, its bar on the time line that begins at ``first`` and lasts ``took`` milliseconds,
  // and its figures.
  row(agent, first, took) {
    const bar = el("span", { class: agent.errors ? "span bad" : "span" });
    if (agent.first_event_at && agent.last_event_at)
      setSpan(bar, timeIn(agent.first_event_at), timeIn(agent.last_event_at), first, took);
    const isHere = agent.conversation === this.app.history.conversation;
    const name = el(
      "a",
      {
        class: "name",
        href: addressOf(agent.conversation),
        "aria-current": isHere ? "page" : null,
        title: printable(agent.conversation),
      },
      nameOf(agent),
    );
    name.style.paddingLeft = `${Math.min(agent.depth, 12)}em`;
    const cells = [
      STATES_OF_RUNS[agent.state] ?? "",
      printable(agent.models.join(", ")),
      agent.errors ? count(agent.errors, "error") : "",
      agent.longest_wait_s >= 0.05 ? duration(agent.longest_wait_s * 1000) : "",
      agent.spent && agent.spent.cost !== null ? costWords(agent.spent) : "",
    ];
    return el(
      "div",
      { class: "agent", role: "row" },
      el("span", { role: "cell" }, name),
      el("span", { class: "line", role: "cell" }, bar),
      ...cells.map((words, column) =>
        el("span", { role: "cell", class: COLUMNS[column + 2] === "Errors" ? "bad" : "", title: words }, words),
      ),
    );
  }

  // The bar of an erased agent reaches from the call that began it to the result, if the open conversation has both.
  erasedRow(agent, first, took) {
    const { history } = this.app;
    const bar = el("span", { class: "span gone" });
    const isHere = agent.parent === history.conversation;
    const call = isHere ? history.time(agent.call_event) : null;
    bar.hidden = call === null;
    if (call !== null)
      setSpan(bar, call, history.time(history.answered.get(agent.call_event) ?? agent.call_event) ?? call, first, took);
    const name = el(
      "a",
      { class: "name", href: addressOf(agent.parent, agent.call_event), title: printable(agent.conversation) },
      shortId(agent.conversation),
    );
    name.style.paddingLeft = `${Math.min((this.task.agents.find(({ conversation }) => conversation === agent.parent)?.depth ?? 0) + 1, 12)}em`;
    return el(
      "div",
      { class: "agent erased", role: "row" },
      el("span", { role: "cell" }, name),
      el("span", { class: "line", role: "cell" }, bar),
      el("span", { role: "cell", "aria-colspan": 4, title: erasedWords(agent) }, erasedWords(agent)),
      el("span", { role: "cell" }, "unknown"),
    );
  }

  // Which agents have a text, from whom, and where it was lost.
  async askAbout(event) {
    event.preventDefault();
    const words = this.box.value.trim();
    if (!words) return;
    const number = (this.asked += 1);
    this.found.replaceChildren("Asking …");
    try {
      const { agents } = await ask(
        `hand-overs?${new URLSearchParams({ id: this.task.agents[0].conversation, words })}`,
      );
      if (number !== this.asked) return; // The reader has asked for another text since.
      const known = new Map(this.task.agents.map((agent) => [agent.conversation, agent]));
      const time = ({ first_at: at }) => (at ? timeIn(at) : Infinity);
      const telling = agents
        .filter((agent) => agent.is_concerned)
        .sort((one, other) => (time(one) < time(other) ? -1 : Number(time(one) > time(other))));
      const lines = telling.map((agent) =>
        el(
          "li",
          {},
          el(
            "a",
            { href: addressOf(agent.conversation, agent.first ?? undefined) },
            nameOf(known.get(agent.conversation) ?? agent),
          ),
          ": ",
          ...withLinks(agent),
        ),
      );
      const silent = agents.length - telling.length;
      const lost = telling.find((agent) => agent.first != null && agent.is_returned === false && !agent.is_given);
      const lead =
        telling[0]?.first == null
          ? ""
          : el(
              "p",
              {},
              el(
                "b",
                {},
                "First in ",
                eventLink(telling[0].conversation, telling[0].first, "event"),
                ...(lost ? ["; lost in ", eventLink(lost.parent, lost.result, "result")] : []),
              ),
            );
      this.found.replaceChildren(
        lead,
        el("ul", {}, ...lines),
        silent ? `No event of ${count(silent, lines.length ? "other agent" : "agent")} has this text.` : "",
      );
    } catch (error) {
      if (number !== this.asked) return;
      this.found.replaceChildren(el("p", { class: "problem" }, said(error.message)));
    }
    this.found.scrollIntoView();
  }

  // The runs of the sub-agents that a call began. A run is loaded when the reader opens it, and stays open when the
  // block of its call is drawn again.
  of(id) {
    return (this.begun.get(id) ?? []).map((agent) => {
      if (this.task.erased.includes(agent))
        return el(
          "p",
          { class: "sub-agent soft" },
          `Sub-agent ${shortId(agent.conversation)}: ${erasedWords(agent)}; cost unknown`,
        );
      return this.runOf(agent);
    });
  }

  // Open the run of a sub-agent inside its call. The block of the call may be drawn later.
  open(conversation) {
    this.runOf(this.task.agents.find((agent) => agent.conversation === conversation)).open = true;
  }

  runOf(agent) {
    return remembered(this.runs, agent.conversation, Infinity, () => this.run(agent, agent.call_event));
  }

  // A sub-agent inside the call that began it. When the reader opens it the first time, its events are loaded.
  run(agent, call) {
    const events = el("div", { class: "run-of" });
    const node = el(
      "details",
      { class: "sub-agent" },
      el(
        "summary",
        {},
        "Sub-agent ",
        el("a", { href: addressOf(agent.conversation) }, nameOf(agent)),
        agent.errors ? `, ${count(agent.errors, "error")}` : "",
      ),
      events,
    );
    node.addEventListener("toggle", () => {
      if (!node.open || events.childNodes.length) return;
      const losses = el("div");
      events.append(losses);
      this.compare(agent, call, losses);
      this.load(agent.conversation, events, 0);
    });
    return node;
  }

  // What the parent knew and the call did not give, and what the sub-agent found and the result did not return.
  async compare(agent, call, node) {
    try {
      const { agents } = await ask(`hand-overs?${new URLSearchParams({ id: this.app.history.conversation, call })}`);
      const { not_given: given, not_returned: returned } = agents.find(
        ({ conversation }) => conversation === agent.conversation,
      );
      const list = (terms, end) =>
        terms.map(({ term, event, needed_in: again }) =>
          el(
            "li",
            {},
            said(term),
            again === null ? ` (${idOf(event)})` : el("b", {}, ` (${idOf(event)}, needed ${end} at ${idOf(again)})`),
          ),
        );
      const part = (words, terms, end) =>
        terms.length ? [el("p", { class: "soft" }, words), el("ul", { class: "terms" }, ...list(terms, end))] : [];
      node.replaceChildren(
        ...part("Names that the parent knew, and the call did not give:", given, "by the sub-agent"),
        ...part("Names that the sub-agent knew, and the result did not return:", returned, "by the parent"),
      );
    } catch (error) {
      node.replaceChildren(...withRetry(error, () => this.compare(agent, call, node)));
    }
  }

  // Add the events of a sub-agent from ``start`` on to its run, and a button for the events behind them.
  async load(conversation, run, start) {
    const end = el("div"); // It stands for the events until they come.
    run.append(end);
    try {
      const { events } = await this.app.source.ask("events", { id: conversation, start, stop: start + AGENT_EVENTS });
      end.replaceWith(
        ...events
          .filter((event) => event.kind !== "annotation" && event.kind !== "document_changes")
          .map((event) => this.line(event)),
      );
      const more = el("button", { class: "more" }, "More");
      more.addEventListener("click", () => {
        more.remove();
        this.load(conversation, run, start + events.length);
      });
      if (events.length) run.append(more);
    } catch (error) {
      const again = () => {
        end.remove();
        this.load(conversation, run, start);
      };
      end.replaceChildren(...withRetry(error, again));
    }
  }

  // An event of a sub-agent as a paragraph.
  line(event) {
    const text =
      event.kind === "action"
        ? `${event.tool} ${JSON.stringify(event.arguments ?? {})}`
        : textOf(event.content ?? event.summary ?? event.reason ?? "");
    return el(
      "p",
      { class: event.is_error ? "bad" : "" },
      el("b", {}, `${idOf(event.id)} ${sentence(event.source ?? event.kind)} `),
      printable(text.slice(0, wholeEnd(text, AGENT_TEXT))),
    );
  }
}

// The last part of the id, and the title.
const nameOf = ({ conversation, title }) =>
  el("span", {}, el("b", {}, shortId(conversation)), title ? said(` (${title})`) : "");
const lastedOf = (agent) => timeIn(agent.last_event_at ?? "") - timeIn(agent.first_event_at ?? "") || 0;
const clockOf = (time) => moment(time, "").slice(11);
const erasedWords = ({ at, reason }) => `erased ${clockOf(timeIn(at))}${reason && `, ${printable(reason)}`}`;
const eventLink = (conversation, id, what) =>
  el("a", { href: addressOf(conversation, id) }, `${what} ${idOf(id)} of ${shortId(conversation)}`);

// A problem, and a button that tries again.
const withRetry = (error, again) => [
  el("p", { class: "problem" }, said(error.message)),
  el("button", { class: "more", onclick: again }, "Try again"),
];

// Place a bar on the time line.
function setSpan(bar, from, to, first, took) {
  bar.style.left = `${(100 * (from - first)) / took}%`;
  bar.style.width = `${(100 * (to - from)) / took}%`;
  bar.title = `${moment(from, "")} to ${clockOf(to)}, ${duration(to - from)}`;
}

// The redacted events of an agent, by whom, and why.
function redactionsOf({ conversation, receipts = [], redactions }) {
  if (!receipts.length) return [` (${count(redactions, "event")})`];
  return receipts.flatMap(({ event_ids: ids, by, reason }) => [
    ...ids.slice(0, NAMED).flatMap((id) => [" ", el("a", { href: addressOf(conversation, id) }, `event ${idOf(id)}`)]),
    ids.length > NAMED ? ` and ${count(ids.length - NAMED, "other")}` : "",
    said(` (by ${by}: ${reason})`),
  ]);
}

// The reason of an answer, with links to the events that it names.
function withLinks({ conversation, parent, reason }) {
  const parts = [];
  let end = 0;
  for (const found of reason.matchAll(/(?:event|call|result) (\d+)/g)) {
    const after = found.index + found[0].length;
    const isParents = parent && reason.startsWith(` of ${parent}`, after);
    parts.push(
      said(reason.slice(end, found.index)),
      el("a", { href: addressOf(isParents ? parent : conversation, found[1]) }, found[0]),
    );
    end = after;
  }
  return [...parts, said(reason.slice(end))];
}

// A link to an agent. ``place`` names a part of its page, such as "at=error".
const link = (agent, place = "") =>
  el("a", { href: `${addressOf(agent.conversation)}${place && `#${place}`}` }, nameOf(agent));
