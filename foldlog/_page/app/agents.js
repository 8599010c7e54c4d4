// The agents of a task: side by side on one time line above the transcript, and inside the calls that began them.

import { costWords, count, duration, el, idOf, printable, refill, said, sentence } from "./dom.js";
import { addressOf, timeIn } from "./runs.js";
import { textOf } from "./texts.js";

const AGENTS_SHOWN = 200; // The number of agents that are shown without asking.
const AGENT_TEXT = 2_000; // The number of characters of an event that are shown inside a call.
const AGENT_EVENTS = 50; // The number of events of a sub-agent that are loaded at once.

export class Agents {
  constructor(app) {
    this.app = app;
    this.task = null;
    this.runs = new Map();
    this.begun = new Map(); // For the event of a call, the agents that the call began.
    this.node = el("details", { class: "agents", hidden: true });
  }

  take(task) {
    this.task = task;
    this.begun = new Map();
    for (const agent of task.agents) {
      if (agent.call_event !== undefined) this.begun.set(agent.call_event, [...(this.begun.get(agent.call_event) ?? []), agent]);
    }
    this.node.hidden = !task.sub_agents;
    this.draw(AGENTS_SHOWN);
  }

  draw(most) {
    const { task } = this;
    const first = timeIn(task.first_event_at ?? "");
    const took = timeIn(task.last_event_at ?? "") - first || 1;
    const sums = [count(task.sub_agents, "sub-agent"), task.errors ? count(task.errors, "error") : "", task.spent.cost === null ? "" : costWords(task.spent), `${duration(task.seconds * 1000)} of work in ${duration(took)}`].filter(Boolean).join(", ");
    const error = task.first_error ? el("p", { class: "bad" }, "First error in ", el("a", { href: `${addressOf(task.first_error_in)}#at=error` }, said(task.first_error_in)), ": ", said(task.first_error)) : null;
    const more = task.agents.length > most ? el("button", { onclick: () => this.draw(Infinity) }, `All ${count(task.agents.length, "agent")}`) : null;
    refill(this.node, el("summary", {}, "Task with ", sums), error, el("div", { role: "list", "aria-label": "Agents on one time line" }, ...task.agents.slice(0, most).map((agent) => this.row(agent, first, took))), more);
  }

  row(agent, first, took) {
    const bar = el("span", { class: agent.errors ? "span bad" : "span" });
    if (agent.first_event_at && agent.last_event_at) {
      bar.style.left = `${(100 * (timeIn(agent.first_event_at) - first)) / took}%`;
      bar.style.width = `${(100 * (timeIn(agent.last_event_at) - timeIn(agent.first_event_at))) / took}%`;
    }
    const isHere = agent.conversation === this.app.history.conversation;
    const name = el("a", { class: "name", href: addressOf(agent.conversation), "aria-current": isHere ? "page" : null, title: agent.conversation }, said(agent.title ?? agent.conversation));
    name.style.paddingLeft = `${Math.min(agent.depth, 12)}em`;
    return el("div", { class: "agent", role: "listitem" }, name, el("span", { class: "line", "aria-hidden": true }, bar),
      el("span", { class: "bad" }, agent.errors ? count(agent.errors, "error") : ""), el("span", {}, agent.spent && agent.spent.cost !== null ? costWords(agent.spent) : ""));
  }

  // The runs of the sub-agents that a call began. A run is loaded when the reader opens it, and stays open when the
  // block of its call is drawn again.
  of(id) {
    return (this.begun.get(id) ?? []).map((agent) => {
      if (!this.runs.has(agent.conversation)) this.runs.set(agent.conversation, this.run(agent));
      return this.runs.get(agent.conversation);
    });
  }

  run(agent) {
    const events = el("div", { class: "run-of" });
    const node = el("details", { class: "sub-agent" },
      el("summary", {}, "Sub-agent ", el("a", { href: addressOf(agent.conversation) }, said(agent.title ?? agent.conversation)), agent.errors ? `, ${count(agent.errors, "error")}` : ""), events);
    node.addEventListener("toggle", () => {
      if (node.open && !events.childNodes.length) this.load(agent.conversation, events, 0);
    });
    return node;
  }

  async load(conversation, run, start) {
    try {
      const { events } = await this.app.source.ask("events", { id: conversation, start, stop: start + AGENT_EVENTS });
      run.querySelector("button")?.remove();
      run.append(...events.filter((event) => event.kind !== "annotation" && event.kind !== "document_changes").map((event) => this.line(event)));
      if (events.length) run.append(el("button", { onclick: () => this.load(conversation, run, start + events.length) }, "More"));
    } catch (error) {
      run.append(el("p", { class: "problem" }, said(error.message)));
    }
  }

  line(event) {
    const text = event.kind === "action" ? `${event.tool} ${JSON.stringify(event.arguments ?? {})}` : textOf(event.content ?? event.summary ?? event.reason ?? "");
    return el("p", { class: event.is_error ? "bad" : "" }, el("b", {}, `${idOf(event.id)} ${sentence(event.source ?? event.kind)} `), printable(text.slice(0, AGENT_TEXT)));
  }
}
