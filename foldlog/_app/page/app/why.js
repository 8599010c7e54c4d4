// Explains why the model is sent an event or not, what one condensation did, and what all condensations saved and cost.

import {
  costWords,
  count,
  el,
  eventsAndSummaries,
  grouped,
  idOf,
  money,
  said,
  savingMeans,
  sentence,
  short,
  table,
  terms,
  tokenCount,
} from "./dom.js";
import { RESULTS_OF_TOOLS } from "./history.js";
import { asText } from "./texts.js";

const MOST = 200; // The maximum number of changes in the table.
const NEVER = {
  annotation: "Annotations are bookkeeping. They are never sent to a model.",
  approval: "An approval says who was asked and who decided about a call. It is never sent to a model.",
  redaction: "This is the receipt of a redaction. It is never sent to a model.",
  documents: "Attributes and documents are stored beside the conversation. They are never sent to a model.",
  request: "This event requests a condensation. A request is never in a View.",
};

export class Why {
  constructor(app) {
    this.app = app;
  }

  // Sentences about the state of an event at the open version, and buttons that lead to related events.
  about(id) {
    const change = this.app.history.changes.get(id);
    return change && change.kind !== "request" ? this.aboutChange(change) : this.aboutEvent(id);
  }

  // The state of an event that is no change.
  aboutEvent(id) {
    const { history, version } = this.app;
    const came = history.came(id);
    const state = history.state(id, version);
    const sentences = [];
    const ways = [];
    const way = (text, action) => ways.push(el("button", { onclick: action }, text));
    const span = history.spanAt(id, version);
    const last = span?.sent.findLast((at) => at <= version);
    if (state === "not yet" && version === came && history.isOfAgent(id))
      sentences.push(`The agent wrote it when it was shown the View of version ${grouped(version)}.`);
    else if (state === "not yet") {
      sentences.push(`At version ${grouped(version)} it does not exist yet. It comes at version ${grouped(came + 1)}.`);
      way(`Version ${grouped(came + 1)}`, () => this.app.go(came + 1));
    } else if (state === "damaged")
      sentences.push(
        "Its stored bytes are damaged. If it was a condensation, the page shows the later Views without it. All other events can be read.",
      );
    else if (state === "sent")
      sentences.push(
        `At version ${grouped(version)} it is sent to the model, as it is since version ${grouped(last)}.`,
      );
    else if (state === "masked")
      sentences.push(
        `The View shows it at version ${grouped(version)}, but it is masked: since version ${grouped(history.maskedAt.get(id))} the model is sent a line instead of its content.`,
      );
    else if (state === "pending") {
      const next = span.sent.find((at) => at > version);
      sentences.push(
        `The View shows it at version ${grouped(version)}, but it is not sent to the model: ${this.pendingBecause(id)}.`,
      );
      if (next) way(`Sent from version ${grouped(next)}`, () => this.app.go(next));
    } else if (state === "unsent")
      sentences.push(
        `The View shows it, but since version ${grouped(last)} it is not sent to the model: another part of its call or tool loop is gone.`,
      );
    else if (state === "never shown")
      sentences.push(
        NEVER[history.kind(id)] ?? `No View shows it: ${history.unshown}, or it was forgotten before it came.`,
      );
    else this.aboutGone(id, state, sentences, way);
    if (history.isOfAgent(id) && version !== came)
      way("What the model knew when it wrote this", () => this.app.go(came, id));
    const answer = history.answered.get(id);
    if (answer !== undefined) way(`Its observation, ${idOf(answer)}`, () => this.app.choose(answer));
    const action = id >= 0 ? history.columns.answers[id] : -1;
    if (action >= 0) way(`Its action, ${idOf(action)}`, () => this.app.choose(action));
    if (id < 0) way(`Condensation ${idOf(came)}`, () => this.app.choose(came));
    return [el("p", { class: "why" }, sentences.join(" ")), el("div", { class: "ways" }, ...ways)];
  }

  // Add what took an event out of the View, and what stands for it now.
  aboutGone(id, state, sentences, way) {
    const { history, version } = this.app;
    const { path, summary } = history.standsFor(id, version);
    const [by] = path;
    const change = history.changes.get(by);
    const reason = ` (${change?.reason || "no reason given"})`;
    const verb = state === "taken back" ? "took it back" : "forgot it";
    sentences.push(
      `Not shown at version ${grouped(version)}: ${change?.kind ?? "event"} ${idOf(by)} ${verb} at version ${grouped(by + 1)}${reason}.`,
    );
    if (summary !== null) {
      sentences.push(
        path.length > 1
          ? `Its summary was summarized again; summary ${idOf(summary)} replaces it now.`
          : `Summary ${idOf(summary)} replaces it.`,
      );
      way("What replaces it", () => this.app.choose(summary));
    } else if (state !== "taken back") {
      sentences.push(
        path.length > 1
          ? `Its summary was forgotten at version ${grouped(path.at(-1) + 1)}, and no summary replaces it.`
          : "No summary replaces it.",
      );
    }
    way(`${sentence(change?.kind ?? "event")} ${idOf(by)}`, () => this.app.choose(by));
    way(`Last shown at version ${grouped(by)}`, () => this.app.go(by, id));
  }

  // Why an event in the View is not sent yet.
  pendingBecause(id) {
    const { history, version } = this.app;
    const kind = history.kind(id);
    if (kind === "action" && version === history.version)
      return "no observation came for it, or for a parallel call, up to the last event";
    if (kind === "action") return "it waits for its observation, or for that of a parallel call";
    if (!RESULTS_OF_TOOLS.has(kind)) return "it has no form as a message";
    return history.columns.answers[id] >= 0
      ? "a parallel call has no observation yet"
      : "it answers no action that is shown";
  }

  // A condensation or a retraction, with its figures.
  aboutChange(change) {
    const { app } = this;
    const { about } = app.history;
    const took = app.removed(change.id);
    const facts = [];
    const fact = (name, value) => {
      if (value !== undefined && value !== null && value !== "") facts.push([name, said(String(value))]);
    };
    fact("reason", change.reason || "none given");
    if (change.kind === "retraction") fact("returns to", `version ${grouped(change.version)}`);
    fact("sent", took.sent.map(({ events, summaries }) => eventsAndSummaries(events, summaries)).join(" → "));
    const condensed = change.kind === "condensation" && change.outcome !== "declined";
    if (condensed) fact("saved", savedWords(change.tokens_saved, about));
    const recorded = [change.tokens_before, change.tokens_after].map((tokens) =>
      typeof tokens === "number" ? grouped(tokens) : "not recorded",
    );
    if (change.tokens_before !== undefined)
      fact(
        "its own count",
        `${recorded.join(" → ")} tokens of its prompt${change.tokens_estimated ? ", estimated" : ""}`,
      );
    fact(
      "limit",
      [change.events_max && count(change.events_max, "event"), change.tokens_max && count(change.tokens_max, "token")]
        .filter(Boolean)
        .join(", "),
    );
    for (const name of ["condenser", "outcome", "model"]) fact(name, change[name]);
    if (typeof change.cost === "number") fact("cost", money(change.cost));
    else if (condensed) fact("cost", "not recorded");
    fact("time taken", typeof change.latency_s === "number" ? `${change.latency_s.toFixed(1)} s` : undefined);
    fact("prompt hash", change.prompt_hash);
    const ways = [
      el("button", { onclick: () => app.compare(change.id, change.id + 1, change.id) }, "Compare before and after"),
    ];
    if (change.summary !== null && change.summary !== undefined) {
      fact("its summary", this.standing(change.summary, change.id));
      ways.push(
        el(
          "button",
          { onclick: () => app.choose(change.summary, Math.max(app.version, change.id + 1)) },
          `Summary ${idOf(change.summary)}`,
        ),
      );
    }
    for (const request of change.requests ?? [])
      ways.push(el("button", { onclick: () => app.choose(request) }, `Request ${idOf(request)}`));
    return [el("p", { class: "why" }, took.sentence), terms({}, facts), el("div", { class: "ways" }, ...ways)];
  }

  // Words that say whether a summary is in the View at the open version, and until which version it stays.
  standing(summary, id) {
    const { history, version } = this.app;
    if (version <= id) return `comes at version ${grouped(id + 1)}`;
    const span = history.spanAt(summary, version);
    if (!span) return `stood until version ${grouped(history.lastSpan(summary, version)?.stop ?? 0)}`;
    return `stands at version ${grouped(version)}${span.stop ? ` (whole history: until version ${grouped(span.stop)})` : ""}`;
  }

  // What condensations saved and cost up to the open version, and the largest View. If the open version is not the last
  // version, also the figures of the whole history.
  totals() {
    const { history, version } = this.app;
    const isLast = version === history.version;
    const { made } = history.savingsAt(version);
    const isSame = made === history.made.length && history.largest(0, version) === history.largest();
    const means = made ? el("span", { class: "soft" }, ` Saved: ${savingMeans(history.counted_as)}.`) : "";
    const totals = [
      el(
        "p",
        { class: "about" },
        isLast ? "Whole history: " : `Up to version ${grouped(version)}: `,
        ...this.totalsAt(version),
        means,
      ),
    ];
    if (!isLast)
      totals.push(
        el(
          "p",
          { class: "about soft" },
          "Whole history: ",
          ...(isSame ? ["the same."] : this.totalsAt(history.version)),
        ),
      );
    return totals;
  }

  // What the condensations before a version saved and cost, and the largest View up to it, as parts of a sentence.
  totalsAt(version) {
    const { history } = this.app;
    const { made, saved, cost, priced } = history.savingsAt(version);
    const most = history.largest(0, version);
    const part = cost !== null && priced < made ? ` (recorded by ${grouped(priced)} of them)` : "";
    const savings = [
      el("b", {}, saved === null ? "an unknown number of tokens" : `${history.about}${tokenCount(saved)}`),
      "; cost ",
      el("b", {}, cost === null ? "not recorded" : money(cost)),
      part,
    ];
    return [
      made ? `${count(made, "condensation")} saved ` : history.changesAt(version),
      ...(made ? savings : []),
      ". Largest View: ",
      el("button", { class: "link", onclick: () => this.app.go(most) }, `version ${grouped(most)}`),
      `, ${history.about}${tokenCount(history.total[most])}.`,
    ];
  }

  // A table of the newest changes before the open version.
  changes() {
    const { app } = this;
    const { about, taking } = app.history;
    const before = taking.filter(({ id }) => id < app.version);
    if (!before.length) return [];
    const rows = before
      .slice(-MOST)
      .reverse()
      .map((change) => {
        const took = app.removed(change.id);
        const name = `${sentence(change.kind)} ${idOf(change.id)}`;
        return [
          el(
            "td",
            {},
            el(
              "button",
              { class: "link", "aria-label": name, onclick: () => app.choose(change.id) },
              change.kind === "retraction" ? name : idOf(change.id),
            ),
          ),
          el("td", { class: "n" }, took.count),
          el("td", { class: "n" }, `${short(took.before)} → ${short(took.after)}`),
          el(
            "td",
            { class: "n" },
            typeof change.tokens_saved === "number" ? `${about}${short(change.tokens_saved)}` : "–",
          ),
        ];
      });
    const head = ["at", "took out", "tokens", "saved"].map((name, place) =>
      el("th", { class: place ? "n" : "", scope: "col" }, name),
    );
    const rest =
      before.length > MOST
        ? el("p", { class: "soft" }, `The last ${grouped(MOST)} of ${grouped(before.length)}.`)
        : null;
    return [table(head, rows), rest];
  }

  // The models that were called, and the attributes of the conversation.
  facts() {
    const { models, attributes } = this.app.history;
    const called = models.map((model) => [
      said(model.model),
      `${count(model.calls, "call")}${model.condenser_calls ? `, ${grouped(model.condenser_calls)} of them of condensers` : ""}, ${usageWords(model)}, cost ${costWords(model)}`,
    ]);
    const named = Object.entries(attributes).map(([name, value]) => [said(name), said(asText(value))]);
    return [
      called.length ? terms({ "aria-label": "Models" }, called) : null,
      named.length ? terms({ "aria-label": "Attributes" }, named) : null,
    ];
  }
}

// The tokens that a condensation saved. They are undefined if an import took the condensation back.
function savedWords(tokens, about) {
  if (tokens === undefined) return "not counted, because an import took the condensation back";
  return tokens === null ? "not known" : `${about}${tokenCount(tokens)}`;
}

// The receipt of an event whose content was erased.
export function receipt({ at, by, reason, bytes, hash, record }) {
  const facts = {
    erased: `${String(at).slice(0, 19).replace("T", " ")} UTC`,
    by,
    reason,
    size: `${grouped(bytes)} bytes`,
    commitment: hash,
  };
  return [
    el("p", {}, `The ${record ? "record of its source" : "content"} was erased`),
    terms(
      {},
      Object.entries(facts).map(([name, value]) => [name, said(String(value))]),
    ),
  ];
}

// The recorded tokens of calls: "1.2k tokens in, 800 of them cached, 34 out".
function usageWords({ prompt_tokens: prompt, cached_tokens: cached, completion_tokens: reply }) {
  const known = (tokens) => (typeof tokens === "number" ? short(tokens) : "unknown");
  return `${known(prompt)} tokens in, ${typeof cached === "number" && cached > 0 ? `${short(cached)} of them cached, ` : ""}${known(reply)} out`;
}

// What an event records about the model call that wrote it. The text is empty if the event records nothing.
export function calledWords(meta) {
  const usage = typeof meta?.usage === "object" ? meta.usage : null;
  const model = typeof meta?.model === "string" ? meta.model : "";
  if (!model && !usage) return "";
  return [
    "Model: ",
    model || "not named",
    usage ? `, ${usageWords(usage)}` : "",
    typeof meta.cost === "number" ? `, cost ${money(meta.cost)}` : "",
  ].join("");
}
