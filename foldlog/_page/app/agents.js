// The agents of a task: side by side on one time line above the transcript, and inside the calls that began them.

import { ask, costWords, count, dated, duration, el, idOf, keep, kept, phone, printable, refill, said, sentence } from "./dom.js";
import { STATES_OF_RUNS, addressOf, timeIn } from "./runs.js";
import { textOf } from "./texts.js";

const AGENTS_SHOWN = 200; // The number of agents that are shown without asking.
const AGENT_TEXT = 2_000; // The number of characters of an event that are shown inside a call.
const AGENT_EVENTS = 50; // The number of events of a sub-agent that are loaded at once.
const NAMED = 20; // The number of agents that a line of facts names.
const NOT_THERE = "no event has it"; // What the server says of an agent that has nothing to do with the words.
const CLOSED = "foldlog-agents";
const COLUMNS = ["Agent", "", "Now", "Models", "Errors", "Longest wait", "Cost"];

export class Agents {
  constructor(app) {
    this.app = app;
    this.task = null;
    this.runs = new Map();
    this.begun = new Map(); // For the event of a call, the agents that the call began.
    this.node = el("section", { class: "agents", "aria-label": "Task", hidden: true });
    this.box = el("input", { type: "search", placeholder: "Where does a text come from?", "aria-label": "Ask all agents of the task about a text", autocomplete: "off", spellcheck: "false" });
    this.found = el("div", { role: "status" });
  }

  take(task) {
    this.task = task;
    this.begun = new Map();
    for (const agent of task.agents) {
      if (agent.call_event !== undefined) this.begun.set(agent.call_event, [...(this.begun.get(agent.call_event) ?? []), agent]);
    }
    this.node.hidden = !task.sub_agents && !Object.keys(task.erased).length;
    if (!this.node.hidden) this.draw(AGENTS_SHOWN);
  }

  // The event of the call that began a sub-agent of the open conversation.
  callOf(conversation) {
    return this.task?.agents.find((agent) => agent.conversation === conversation)?.call_event;
  }

  draw(most) {
    const { task } = this;
    const first = timeIn(task.first_event_at ?? "");
    const took = timeIn(task.last_event_at ?? "") - first || 1;
    const [top] = task.agents;
    const alone = top.spent && top.spent.cost !== null ? `, ${costWords(top.spent)} without sub-agents` : "";
    const sums = [count(task.sub_agents, "sub-agent"), task.errors ? count(task.errors, "error") : "", task.spent.cost === null ? "" : `${costWords(task.spent)}${alone}`, `${duration(task.seconds * 1000)} of work in ${duration(took)}`].filter(Boolean).join(", ");
    const more = task.agents.length > most ? el("button", { onclick: () => this.draw(Infinity) }, `All ${count(task.agents.length, "agent")}`) : "";
    const times = task.first_event_at ? `${dated(first).join(" ")} to ${dated(first + took).join(" ")}` : "";
    const head = el("div", { class: "agent-head", role: "row" }, ...COLUMNS.map((name) => el("span", { role: "columnheader" }, name || times)));
    const form = el("form", { onsubmit: (event) => this.askAbout(event) }, this.box, el("button", {}, "Ask"));
    const isOpen = this.node.querySelector("details")?.open ?? (!phone.matches && kept("sessionStorage", CLOSED) !== "closed");
    refill(this.node, this.above(), el("details", { open: isOpen, ontoggle: ({ target }) => keep("sessionStorage", CLOSED, target.open ? "" : "closed") },
      el("summary", {}, "Task with ", sums), ...this.facts(),
      el("div", { role: "table", "aria-label": "Agents on one time line" }, head, ...task.agents.slice(0, most).map((agent) => this.row(agent, first, took))), more, form, this.found));
  }

  // The way from a sub-agent to the call that began it.
  above() {
    const { agents } = this.task;
    const here = agents.find((agent) => agent.conversation === this.app.history.conversation);
    const parent = agents.find((agent) => agent.conversation === here?.parent);
    return parent ? el("p", {}, "Sub-agent of ", el("a", { href: `${addressOf(parent.conversation)}#child=${encodeURIComponent(here.conversation)}` }, said(nameOf(parent))), ": the call that began it, what it was given and what it returned") : "";
  }

  // Lines about all agents: the first error, the longest wait, the highest cost, open calls, and redactions.
  facts() {
    const { task } = this;
    const { agents } = task;
    const most = (figure) => agents.reduce((best, agent) => ((figure(agent) ?? -1) > (figure(best) ?? -1) ? agent : best));
    const cost = (agent) => agent.spent?.cost;
    const slowest = most((agent) => agent.longest_wait_s);
    const dearest = most(cost);
    const failed = agents.find((agent) => agent.conversation === task.first_error_in);
    const open = agents.filter((agent) => agent.state === "open_call");
    const redacted = agents.filter((agent) => agent.redactions);
    const erased = Object.entries(task.erased);
    const line = (kind, ...parts) => el("p", { class: kind }, ...parts);
    const names = (some, words) => some.slice(0, NAMED).flatMap((agent, place) => [place ? ", " : "", words(agent)]);
    const rest = (some) => (some.length > NAMED ? ` and ${count(some.length - NAMED, "other")}` : "");
    return [
      failed ? line("bad", "First error in ", link(failed, "at=error"), ": ", said(task.first_error)) : "",
      cost(dearest) ? line("", "Highest cost: ", link(dearest), ` ${costWords(dearest.spent)}`) : "",
      slowest.longest_wait_s ? line("", "Longest wait: ", link(slowest, "at=wait"), ` ${duration(slowest.longest_wait_s * 1000)}`) : "",
      open.length ? line("", "Calls without a result, which may have run: in ", ...names(open, (agent) => link(agent, "at=open")), rest(open)) : "",
      redacted.length ? line("", "Redacted: ", ...names(redacted, (agent) => el("span", {}, link(agent), ` (${count(agent.redactions, "event")})`)), rest(redacted)) : "",
      erased.length ? line("", "Erased: ", ...names(erased, ([id, reason]) => said(reason ? `${id} (${reason})` : id)), rest(erased)) : "",
    ];
  }

  row(agent, first, took) {
    const bar = el("span", { class: agent.errors ? "span bad" : "span" });
    if (agent.first_event_at && agent.last_event_at) {
      bar.style.left = `${(100 * (timeIn(agent.first_event_at) - first)) / took}%`;
      bar.style.width = `${(100 * (timeIn(agent.last_event_at) - timeIn(agent.first_event_at))) / took}%`;
      bar.title = `${dated(timeIn(agent.first_event_at)).join(" ")} to ${dated(timeIn(agent.last_event_at)).join(" ")}`;
    }
    const isHere = agent.conversation === this.app.history.conversation;
    const name = el("a", { class: "name", href: addressOf(agent.conversation), "aria-current": isHere ? "page" : null, title: printable(agent.conversation) }, said(nameOf(agent)));
    name.style.paddingLeft = `${Math.min(agent.depth, 12)}em`;
    const cells = [
      STATES_OF_RUNS[agent.state] ?? "", printable(agent.models.join(", ")), agent.errors ? count(agent.errors, "error") : "",
      agent.longest_wait_s >= 0.05 ? duration(agent.longest_wait_s * 1000) : "", agent.spent && agent.spent.cost !== null ? costWords(agent.spent) : "",
    ];
    return el("div", { class: "agent", role: "row" }, el("span", { role: "cell" }, name), el("span", { class: "line", role: "cell" }, bar),
      ...cells.map((words, place) => el("span", { role: "cell", class: COLUMNS[place + 2] === "Errors" ? "bad" : "", title: words }, words)));
  }

  // Which agents have a text, from whom, and where it was lost.
  async askAbout(event) {
    event.preventDefault();
    const words = this.box.value.trim();
    if (!words) return;
    this.found.replaceChildren("Asking …");
    try {
      const { agents } = await ask(`hand-overs?${new URLSearchParams({ id: this.task.agents[0].conversation, words })}`);
      const known = new Map(this.task.agents.map((agent) => [agent.conversation, agent]));
      const telling = agents.filter((agent) => agent.reason !== NOT_THERE);
      const lines = telling.map((agent) => el("li", {}, el("a", { href: addressOf(agent.conversation, agent.first ?? undefined) }, said(nameOf(known.get(agent.conversation) ?? agent))), ": ", said(agent.reason)));
      const silent = agents.length - telling.length;
      this.found.replaceChildren(el("ul", {}, ...lines), silent ? `No event of ${count(silent, lines.length ? "other agent" : "agent")} has this text.` : "");
    } catch (error) {
      this.found.replaceChildren(el("p", { class: "problem" }, said(error.message)));
    }
  }

  // The runs of the sub-agents that a call began. A run is loaded when the reader opens it, and stays open when the
  // block of its call is drawn again.
  of(id) {
    return (this.begun.get(id) ?? []).map((agent) => {
      if (!this.runs.has(agent.conversation)) this.runs.set(agent.conversation, this.run(agent, id));
      return this.runs.get(agent.conversation);
    });
  }

  open(conversation) {
    this.runs.get(conversation).open = true;
  }

  run(agent, call) {
    const events = el("div", { class: "run-of" });
    const node = el("details", { class: "sub-agent" },
      el("summary", {}, "Sub-agent ", el("a", { href: addressOf(agent.conversation) }, said(nameOf(agent))), agent.errors ? `, ${count(agent.errors, "error")}` : ""), events);
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
      const { not_given: given, not_returned: returned } = agents.find(({ conversation }) => conversation === agent.conversation);
      const list = (terms, end) => terms.map(({ term, event, needed_in: again }) => el("li", {}, said(term), again === null ? ` (${idOf(event)})` : el("b", {}, ` (${idOf(event)}, needed ${end} at ${idOf(again)})`)));
      const part = (words, terms, end) => (terms.length ? [el("p", { class: "soft" }, words), el("ul", { class: "terms" }, ...list(terms, end))] : []);
      node.replaceChildren(...part("Names that the parent knew, and the call did not give:", given, "by the sub-agent"), ...part("Names that the sub-agent knew, and the result did not return:", returned, "by the parent"));
    } catch (error) {
      node.replaceChildren(el("p", { class: "problem" }, said(error.message)));
    }
  }

  async load(conversation, run, start) {
    try {
      const { events } = await this.app.source.ask("events", { id: conversation, start, stop: start + AGENT_EVENTS });
      run.querySelector(".more")?.remove();
      run.append(...events.filter((event) => event.kind !== "annotation" && event.kind !== "document_changes").map((event) => this.line(event)));
      if (events.length) run.append(el("button", { class: "more", onclick: () => this.load(conversation, run, start + events.length) }, "More"));
    } catch (error) {
      run.append(el("p", { class: "problem" }, said(error.message)));
    }
  }

  line(event) {
    const text = event.kind === "action" ? `${event.tool} ${JSON.stringify(event.arguments ?? {})}` : textOf(event.content ?? event.summary ?? event.reason ?? "");
    return el("p", { class: event.is_error ? "bad" : "" }, el("b", {}, `${idOf(event.id)} ${sentence(event.source ?? event.kind)} `), printable(text.slice(0, AGENT_TEXT)));
  }
}

const nameOf = (agent) => agent.title ?? agent.conversation;

// A link to an agent. ``place`` names a part of its page, such as "at=error".
const link = (agent, place = "") => el("a", { href: `${addressOf(agent.conversation)}${place && `#${place}`}` }, said(nameOf(agent)));
