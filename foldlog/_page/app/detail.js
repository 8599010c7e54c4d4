// The chosen event in full, or the chosen condensation; with nothing chosen, all condensations.

import { costWords, count, el, eventsAndSummaries, grouped, idOf, moment, money, refill, said, savingMeans, sentence, short, table, terms, tokenCount } from "./dom.js";

const STEP = 20000;

export class Detail {
  constructor(app) {
    this.app = app;
    this.node = el("section", { class: "detail", tabindex: -1, "aria-label": "Details" });
    this.shown = null;
  }

  // Show what is chosen. What is said of it depends on the version; its text does not, nor do the rows of the changes
  // before a version, until it goes past another one.
  show() {
    const { event, history, version } = this.app;
    const changes = history.taking.filter((change) => change.id < version);
    const key = event === null ? `${changes.length} changes of ${history.version} events` : `${event}`;
    const words = () => (event === null ? this.totals(changes) : this.about(event));
    if (key === this.shown) {
      refill(this.words, ...words());
      return;
    }
    this.shown = key;
    // Where the keyboard is at a button that goes away it stays in these details.
    if (this.node.contains(document.activeElement)) this.node.focus({ preventScroll: true });
    this.node.scrollTop = 0;
    this.words = el("div", { class: event === null ? "" : "about" }, ...words());
    if (event === null) {
      this.node.replaceChildren(el("div", { class: "heading" }, el("h2", {}, "Why not more?")), this.words, ...this.rows(changes));
      return;
    }
    const body = el("div", { class: "body" }, el("p", { class: "soft" }, "Opening …"));
    this.node.replaceChildren(this.heading(event), this.words, body);
    this.app.source.event(history.came(event)).then(
      (document) => this.shown === key && body.replaceChildren(...(event < 0 ? this.summary(document) : this.fields(document))),
      (error) => body.replaceChildren(el("p", { class: "problem", role: "alert" }, `This event cannot be shown: ${error.message}`)),
    );
  }

  heading(id) {
    const { history } = this.app;
    const kind = history.kind(id);
    const time = moment(history.time(id), history.zone);
    return el("div", { class: `heading g${history.group(id)}` },
      el("h2", {}, `${sentence(kind)} ${idOf(id)}`),
      el("span", { class: "soft" }, [history.tokens(id) ? `${history.aboutOf(id)}${tokenCount(history.tokens(id))}` : "", time].filter(Boolean).join(" · ")),
      el("button", { class: "close", title: "Close (Escape)", "aria-label": "Close", onclick: () => this.app.choose(null) }, "×"),
    );
  }

  // One sentence that says what the event is at this version, and the ways on from there.
  about(id) {
    const change = this.app.history.changes.get(id);
    return change && change.kind !== "request" ? this.aboutChange(change) : this.aboutEvent(id);
  }

  aboutEvent(id) {
    const { history, version } = this.app;
    const came = history.came(id);
    const state = history.state(id, version);
    const sentences = [];
    const ways = [];
    const way = (text, action) => ways.push(el("button", { onclick: action }, text));
    const span = history.spanAt(id, version);
    if (state === "not yet" && version === came && history.group(id) === 3) sentences.push(`With the View of version ${grouped(version)} the agent wrote it.`);
    else if (state === "not yet") {
      sentences.push(`It is not there yet at version ${grouped(version)}: it comes at version ${grouped(came + 1)}.`);
      way(`Version ${grouped(came + 1)}`, () => this.app.go(came + 1));
    } else if (state === "damaged") sentences.push("Its stored bytes are damaged. The events around it are whole; if it was a condensation, the Views after it are shown as if it were not there.");
    else if (state === "sent") sentences.push(`The model is sent it at version ${grouped(version)}, since version ${grouped(span.sent.findLast((at) => at <= version))}.`);
    else if (state === "masked") sentences.push(`The View shows it at version ${grouped(version)}, and the model is sent a line in place of its content: it is masked since version ${grouped(history.maskedAt.get(id))}.`);
    else if (state === "pending") {
      const next = span.sent.find((at) => at > version);
      sentences.push(`The View shows it, and the model is not sent it at version ${grouped(version)}: ${this.pendingBecause(id)}.`);
      if (next) way(`Sent from version ${grouped(next)}`, () => this.app.go(next));
    } else if (state === "unsent") sentences.push(`The View shows it, and the model is not sent it since version ${grouped(span.sent.findLast((at) => at <= version))}: another part of its call or tool loop is gone.`);
    else if (state === "never shown") sentences.push(this.neverBecause(id));
    else this.aboutGone(id, state, sentences, way);
    if (history.columns.kind[came] !== undefined && history.group(id) === 3 && version !== came) way("What the model knew when it wrote this", () => this.app.go(came, id));
    const answer = id >= 0 ? history.answered.get(id) : undefined;
    if (answer !== undefined) way(`Its observation, ${idOf(answer)}`, () => this.app.choose(answer));
    const action = id >= 0 ? history.columns.answers[id] : -1;
    if (action >= 0) way(`Its action, ${idOf(action)}`, () => this.app.choose(action));
    if (id < 0) way(`Condensation ${idOf(came)}`, () => this.app.choose(came));
    return [el("p", { class: `why s-${state.replace(" ", "-")}` }, ...sentences.flatMap((each) => [each, " "])), el("div", { class: "ways" }, ...ways)];
  }

  aboutGone(id, state, sentences, way) {
    const { history, version } = this.app;
    const { path, summary } = history.standsFor(id, version);
    const by = path[0];
    const change = history.changes.get(by);
    const reason = ` (${change?.reason || "no reason given"})`;
    const verb = state === "taken back" ? "took it back" : "forgot it";
    sentences.push(`Not shown at version ${grouped(version)}: ${change?.kind ?? "event"} ${idOf(by)} ${verb} at version ${grouped(by + 1)}${reason}.`);
    if (summary !== null) {
      sentences.push(path.length > 1 ? `Its summary was summarized again; summary ${idOf(summary)} replaces it now.` : `Summary ${idOf(summary)} replaces it.`);
      way("What replaces it", () => this.app.choose(summary));
    } else if (state !== "taken back") sentences.push(path.length > 1 ? `Its summary was forgotten at version ${grouped(path.at(-1) + 1)}, and no summary replaces it.` : "No summary replaces it.");
    way(`${change?.kind === "retraction" ? "Retraction" : "Condensation"} ${idOf(by)}`, () => this.app.choose(by));
    way(`Last shown at version ${grouped(by)}`, () => this.app.go(by, id));
  }

  pendingBecause(id) {
    const kind = this.app.history.kind(id);
    if (kind === "action" && this.app.version === this.app.history.version) return "no observation came for it, or for a parallel call, up to the last event";
    if (kind === "observation" || kind === "error") return this.app.history.columns.answers[id] >= 0 ? "a parallel call has no observation yet" : "it answers no action that is shown";
    return kind === "action" ? "it waits for its observation, or for that of a parallel call" : "it has no form as a message";
  }

  neverBecause(id) {
    return NEVER[this.app.history.kind(id)] ?? `No View shows ${this.app.history.unshown}, nor an event that was forgotten before it came.`;
  }

  aboutChange(change) {
    const { history } = this.app;
    const took = this.app.removed(change.id);
    const facts = [];
    const fact = (name, value) => value !== undefined && value !== null && value !== "" && facts.push([name, String(value)]);
    fact("reason", change.reason || "none given");
    if (change.kind === "retraction") fact("returns to", `version ${grouped(change.version)}`);
    fact("removed", took.words);
    fact("sent", took.sent.map(({ events, summaries }) => eventsAndSummaries(events, summaries)).join(" → "));
    fact("tokens", `${history.about}${short(took.before)} → ${short(took.after)}`);
    const condensed = change.kind === "condensation" && change.outcome !== "declined";
    if (condensed) fact("saved", change.tokens_saved === null ? "not known" : `${history.about}${tokenCount(change.tokens_saved)}`);
    const recorded = [change.tokens_before, change.tokens_after].map((tokens) => (typeof tokens === "number" ? grouped(tokens) : "not recorded"));
    if (change.tokens_before !== undefined) fact("its own count", `${recorded.join(" → ")} tokens of its prompt${change.tokens_estimated ? ", estimated" : ""}`);
    fact("limit", [change.events_max && count(change.events_max, "event"), change.tokens_max && count(change.tokens_max, "token")].filter(Boolean).join(", "));
    fact("condenser", change.condenser);
    fact("outcome", change.outcome);
    fact("model", change.model);
    fact("cost", typeof change.cost === "number" ? money(change.cost) : condensed ? "not recorded" : undefined);
    fact("time taken", typeof change.latency_s === "number" ? `${change.latency_s.toFixed(1)} s` : undefined);
    fact("prompt hash", change.prompt_hash);
    const summary = change.summary;
    const ways = [el("button", { onclick: () => this.app.compare(change.id, change.id + 1, change.id) }, "Compare before and after")];
    if (summary !== null && summary !== undefined) {
      fact("its summary", this.standing(summary, change.id));
      ways.push(el("button", { onclick: () => this.app.choose(summary, Math.max(this.app.version, change.id + 1)) }, `Summary ${idOf(summary)}`));
    }
    for (const request of change.requests ?? []) ways.push(el("button", { onclick: () => this.app.choose(request) }, `Request ${idOf(request)}`));
    return [el("p", { class: "why s-forgotten" }, took.sentence), terms({}, facts), el("div", { class: "ways" }, ...ways)];
  }

  // -- the text -------------------------------------------------------------------------------------------------------

  summary(document) {
    return [el("p", { class: "soft" }, `A summary has the id of its condensation and two more, below 0: this is that of condensation ${idOf(document.id)}.`), this.block("summary", document.summary ?? document.content ?? "")];
  }

  // What is left of an event whose content was erased.
  receipt({ at, by, reason, bytes, hash, record }) {
    const facts = { erased: `${String(at).slice(0, 19).replace("T", " ")} UTC`, by, reason, size: `${grouped(bytes)} bytes`, commitment: hash };
    return el("div", { class: "block" },
      el("h3", {}, `The ${record ? "record of its source" : "content"} was erased`),
      terms({}, Object.entries(facts).map(([name, value]) => [name, said(String(value))])));
  }

  fields(document) {
    const blocks = [];
    const { kind, thinking, thought, tool, content, data, extras, meta, redacted } = document;
    if (redacted) blocks.push(this.receipt(redacted));
    if (kind === "damaged") return [el("p", { class: "problem", role: "alert" }, said(document.problem))];
    for (const [name, change] of Object.entries(kind === "document_changes" ? document.changed : {})) {
      const how = change.deleted ? ", deleted" : change.difference === undefined ? "" : `, difference to event ${idOf(change.base)}`;
      blocks.push(this.block(name === "attributes" ? name : `document ${name}${how}`, pretty(change.value ?? change.difference ?? null), true));
    }
    if (kind === "redaction") blocks.push(this.block(`erased the ${document.record ? "record" : "content"} of ${count(document.event_ids.length, "event")}`, document.event_ids.join(", ")), this.block("by", document.by));
    for (const part of thinking ?? []) blocks.push(this.block("thinking", typeof part.thinking === "string" ? part.thinking : pretty(part)));
    if (isSaid(thought)) blocks.push(this.block("thought", textOf(thought)));
    if (kind === "action") blocks.push(...this.call(tool, document.arguments));
    if (kind === "condensation") {
      if (document.summary) blocks.push(this.block("summary", document.summary));
      blocks.push(this.block("stored event", pretty({ ...document, summary: undefined }), true));
      return blocks;
    }
    if (content !== undefined) blocks.push(this.block(kind === "observation" ? `${document.is_error ? "error" : "observation"}${tool ? ` of ${tool}` : ""}` : kind === "system" ? "system prompt" : kind === "message" ? "message" : "content", textOf(content), kind === "observation"));
    if (document.tools?.length) blocks.push(this.block(count(document.tools.length, "tool"), pretty(document.tools), true));
    if (document.name !== undefined) blocks.push(this.block(`annotation ${document.name}`, asText(data), true));
    if (document.reason) blocks.push(this.block("reason", document.reason));
    const call = calledWords(meta);
    if (call) blocks.push(el("p", { class: "called" }, said(call)));
    for (const [name, value] of Object.entries({ extras, meta })) {
      if (value && Object.keys(value).length) blocks.push(this.block(name, pretty(value), true));
    }
    if (!blocks.length) blocks.push(this.block("stored event", pretty(document), true));
    blocks.push(this.origin(document));
    return blocks;
  }

  origin(document) {
    const names = ["format", "source_id", "call_id", "response_id", "cause"].filter((name) => document[name] !== undefined && document[name] !== null);
    return terms({ class: "origin" }, names.map((name) => [name.replace("_", " "), said(String(document[name]))]));
  }

  // The arguments of a call, each by its name; texts as texts, and what one puts in another's place as a difference.
  call(tool, given) {
    let values = given;
    if (typeof given === "string") {
      try {
        values = JSON.parse(given);
      } catch {
        return [this.block(`call of ${tool}`, given, true)];
      }
    }
    if (!values || typeof values !== "object" || Array.isArray(values)) return [this.block(`call of ${tool}`, pretty(values ?? {}), true)];
    const parts = [];
    const rest = { ...values };
    for (const [before, after] of [["old_str", "new_str"], ["old_string", "new_string"]]) {
      if (typeof rest[before] === "string" && typeof rest[after] === "string") {
        parts.push([`${before} → ${after}`, `${signed("-", rest[before])}\n${signed("+", rest[after])}`]);
        delete rest[before];
        delete rest[after];
      }
    }
    const named = Object.entries(rest).map(([name, value]) => [name, asText(value)]);
    const blocks = [...named, ...parts].map(([name, text]) => this.block(name, text, true));
    return [el("h3", {}, "call of ", said(String(tool), "b"), Object.keys(values).length ? "" : ", without arguments"), el("div", { class: "arguments" }, ...blocks)];
  }

  block(name, text, isCode = false) {
    const characters = text.length >= 80 ? `, ${count(text.length, "character")}` : "";
    const pre = el("pre", { class: isCode ? "code" : "prose", role: "group", "aria-label": name });
    const fill = (length) => {
      const part = text.slice(0, length);
      pre.replaceChildren(...(isCode ? coded(part) : [said(part)]));
      if (length < text.length) pre.append(el("button", { class: "more", onclick: () => fill(length * 5) }, `Show more: ${short(text.length - length)} characters are left`));
      this.mark(pre);
      requestAnimationFrame(() => pre.scrollHeight > pre.clientHeight && pre.setAttribute("tabindex", 0));
    };
    fill(STEP);
    return el("div", { class: "block" }, el("h3", {}, said(`${name}${characters}`)), pre);
  }

  // Mark the words of a search in a text that is shown.
  mark(node) {
    if (!this.app.words.length) return;
    const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
    const texts = [];
    while (walker.nextNode()) texts.push(/** @type {Text} */ (walker.currentNode));
    for (const word of this.app.words) {
      for (const text of texts) {
        const at = text.data.toLowerCase().indexOf(word);
        if (at < 0 || text.parentElement.closest("button, mark")) continue;
        const hit = text.splitText(at);
        hit.splitText(word.length);
        const mark = el("mark");
        hit.replaceWith(mark);
        mark.append(hit);
      }
    }
  }

  // -- nothing chosen -------------------------------------------------------------------------------------------------

  // What condensing saved and cost up to the version that is open; and, where that is not the last one, over the whole
  // history. Each has the largest View, too. Then the attributes, and that nothing is forgotten where nothing is.
  totals(changes) {
    const { history, version } = this.app;
    if (!history.version) return [el("p", { class: "soft" }, "The conversation has no events yet.")];
    const isLast = version === history.version;
    const { made } = history.savingsAt(version);
    const told = [el("p", { class: "about" }, isLast ? "Whole history: " : `Up to version ${grouped(version)}: `, ...this.totalsAt(version), made ? el("span", { class: "soft" }, ` Saved: ${savingMeans(history.counted_as)}.`) : "")];
    if (!isLast) told.push(el("p", { class: "about soft" }, "Whole history: ", ...(this.isSame(version) ? ["the same."] : this.totalsAt(history.version))));
    if (history.models.length) told.push(terms({ "aria-label": "Models" }, history.models.map((each) => [said(each.model), `${count(each.calls, "call")}${each.condenser_calls ? `, ${grouped(each.condenser_calls)} of them of condensers` : ""}, ${usageWords(each)}, cost ${costWords(each)}`])));
    const attributes = Object.entries(history.attributes);
    if (attributes.length) told.push(terms({ "aria-label": "Attributes" }, attributes.map(([name, value]) => [said(name), said(asText(value))])));
    if (!changes.length) told.push(el("p", {}, `Nothing is forgotten at version ${grouped(version)}: no condensation came before it. The View shows all events that it can.`));
    return told;
  }

  // Whether nothing after a version changes the totals.
  isSame(version) {
    const { history } = this.app;
    return history.savingsAt(version).made === history.made.length && history.largest(0, version) === history.largest();
  }

  totalsAt(version) {
    const { history } = this.app;
    const { made, saved, cost, priced } = history.savingsAt(version);
    const most = history.largest(0, version);
    const part = cost !== null && priced < made ? ` (recorded by ${grouped(priced)} of them)` : "";
    return [
      made ? `${count(made, "condensation")} saved ` : "no condensation",
      ...(made ? [el("b", {}, saved === null ? "tokens that are not known" : `${history.about}${tokenCount(saved)}`), "; cost ", el("b", {}, cost === null ? "not recorded" : money(cost)), part] : []),
      ". Largest View: ", el("button", { class: "link", onclick: () => this.app.go(most) }, `version ${grouped(most)}`), `, ${history.about}${tokenCount(history.total[most])}.`,
    ];
  }

  // Whether a summary stands at the version that is open, and until when it stood or will stand.
  standing(summary, id) {
    const { history, version } = this.app;
    if (version <= id) return `comes at version ${grouped(id + 1)}`;
    const stop = (span) => (span ? span.stop : 0);
    if (!history.isShown(summary, version)) return `stood until version ${grouped(stop(history.lastSpan(summary, version)))}`;
    const until = stop(history.spanAt(summary, version));
    return `stands at version ${grouped(version)}${until ? ` (whole history: until version ${grouped(until)})` : ""}`;
  }

  // The newest changes before the version, each in a row.
  rows(changes) {
    const { history, version } = this.app;
    if (!changes.length) return [];
    const shown = changes.slice(-MOST).reverse();
    const rows = shown.map((change) => {
      const took = this.app.removed(change.id);
      const until = change.summary == null ? null : history.spansOf(change.summary).find((span) => span.stop !== 0 && span.stop <= version);
      return [
        el("td", {}, el("button", { class: "link", "aria-label": `${sentence(change.kind)} ${idOf(change.id)}`, onclick: () => this.app.choose(change.id) }, idOf(change.id))),
        el("td", { class: "n" }, took.count),
        el("td", { class: "n" }, `${short(took.before)} → ${short(took.after)}`),
        el("td", { class: "n" }, typeof change.tokens_saved === "number" ? `${history.about}${short(change.tokens_saved)}` : "–"),
        el("td", {}, change.kind === "retraction" ? "retraction" : change.summary == null ? "no summary" : until ? `until version ${grouped(until.stop)}` : "stands"),
        el("td", {}, change.reason || "no reason given"),
      ];
    });
    const head = [["at", ""], ["forgot", "n"], ["tokens", "n"], ["saved", "n"], ["summary", ""], ["why", ""]].map(([name, kind]) => el("th", { class: kind, scope: "col" }, name));
    return [
      table(head, rows),
      changes.length > MOST ? el("p", { class: "soft" }, `The last ${grouped(MOST)} of ${grouped(changes.length)}.`) : null,
    ].filter(Boolean);
  }
}

const NEVER = {
  annotation: "Annotations are bookkeeping. No model is sent them.", redaction: "It is the receipt of a redaction. No model is sent it.",
  documents: "Attributes and documents are beside the conversation. No model is sent them.",
  request: "It asks for a condensation. Requests change a View and are never in it.",
};
const MOST = 200;

// The tokens of calls, as far as they are told: "1.2k tokens in, 800 of them cached, 34 out".
function usageWords({ prompt_tokens: prompt, cached_tokens: cached, completion_tokens: reply }) {
  const known = (tokens) => (typeof tokens === "number" ? short(tokens) : "unknown");
  return `${known(prompt)} tokens in, ${typeof cached === "number" && cached > 0 ? `${short(cached)} of them cached, ` : ""}${known(reply)} out`;
}

// The call of a model in which an event was made, as far as the event tells it.
function calledWords(meta) {
  const usage = typeof meta?.usage === "object" ? meta.usage : null;
  const model = typeof meta?.model === "string" ? meta.model : "";
  if (!model && !usage) return "";
  return ["Model: ", model || "not named", usage ? `, ${usageWords(usage)}` : "", typeof meta.cost === "number" ? `, cost ${money(meta.cost)}` : ""].join("");
}

const isSaid = (content) => Array.isArray(content) ? content.length > 0 : Boolean(content);

export function textOf(content) {
  if (!Array.isArray(content)) return asText(content);
  return content.map((part) => (typeof part?.text === "string" ? part.text : pretty(part))).join("\n");
}

export const pretty = (value) => JSON.stringify(value, null, 2) ?? "";

const asText = (value) => (typeof value === "string" ? value : pretty(value));

export const signed = (sign, text) => text.split("\n").map((line) => `${sign}${line}`).join("\n");

// Code, with the lines of a difference in their colours.
export function coded(text, isPatch = false) {
  const lines = text.split("\n");
  const isDifference = isPatch || lines.some((line) => line.startsWith("@@ ") || line.startsWith("diff --git ")) || lines.every((line) => /^[-+]/.test(line));
  if (!isDifference || lines.length > 5000) return [said(text)];
  return lines.flatMap((line, place) => {
    const kind = line.startsWith("@@") ? "place" : line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
    const node = said(line, "span", { class: kind });
    return place ? ["\n", node] : [node];
  });
}
