/** One conversation: its events, its Views, its leases and the effects of its tools. */

import type { OpenCall, StoredEvent } from "./events.js";
import { follow, type FollowOptions } from "./follow.js";
import { toJson } from "./json.js";
import { holdLease, type Lease, type LeaseOptions } from "./lease.js";
import type { MessagesByDialect } from "./messages.js";
import type { components } from "./openapi.js";
import type {
  AppendableEvent,
  Appended,
  Dialect,
  KeyedOptions,
  RecordedEvent,
  RecordsOptions,
  ReplyOptions,
  ToolResultOptions,
  ViewIn,
  WriteOptions,
} from "./options.js";
import {
  followReply,
  type FollowReplyOptions,
  openDeltas,
  openReply,
  StreamRequests,
  ReplyWriter,
  UnfinishedReply,
} from "./streams.js";
import {
  type Answer,
  anyOf,
  type Body,
  type InConversation,
  type Query,
  type Sending,
  type Transport,
  type Values,
} from "./transport.js";
import type { Signal } from "./web.js";

type Schemas = components["schemas"];

/** A condenser may ask a model for a summary. */
const CONDENSING_MS = 120_000;

export * from "./options.js";

/** A conversation of the store. It begins with the first append. Get one by `histories.open`. */
export class History {
  readonly id: string;
  protected readonly transport: Transport;
  /** Carried by each request. */
  protected readonly held: Lease | undefined;

  constructor(transport: Transport, id: string, held?: Lease) {
    this.transport = transport;
    this.id = id;
    this.held = held;
  }

  // -- appending

  /** Append events, all or none. They are on disk when the promise resolves. */
  append(events: AppendableEvent | AppendableEvent[], options?: WriteOptions) {
    return this.write("/events", { events: [events].flat() }, options);
  }

  /** Append chat messages, such as `{role: "user", content: "hello"}`. */
  appendMessages(messages: Record<string, unknown>[], options?: WriteOptions) {
    return this.write("/events", { messages }, options);
  }

  /** Append what a model's server answered: an action for each tool call, or the agent's message. */
  appendReply(reply: object, options: ReplyOptions = {}) {
    const { viewVersion, request, tools, parameters, cost, meta } = options;
    const sent = { view_version: viewVersion, model_request: request, tools, parameters };
    return this.write("/replies", { reply: { ...reply }, ...sent, cost, meta }, options);
  }

  /**
   * Begin a reply that is recorded while the model writes it: `await writer.feed(delta)`, then
   * `writer.end(reply)`. A worker looks for an `unfinishedReply` first.
   */
  streamReply(): Promise<ReplyWriter> {
    return this.replyWriter().begin();
  }

  /**
   * Append the reply that a killed worker left, marked as cut, without calls whose arguments are incomplete.
   * Call it under a lease.
   */
  cutReply(options?: ReplyOptions): Promise<Appended> {
    return this.replyWriter().cut(options);
  }

  /** The reply that a killed worker left, to `continue` or to `cut`. Ask under a lease. */
  async unfinishedReply(): Promise<UnfinishedReply | undefined> {
    const deltas = await openDeltas(new StreamRequests(this.transport, this.id));
    return deltas && new UnfinishedReply(deltas, this.replyWriter());
  }

  /** Whether a reply is being written, or was left unfinished. */
  async isReplying(signal?: Signal): Promise<boolean> {
    return (await this.openReply(signal)) !== null;
  }

  /** The offset at which the reply begins that is being written, or null: `followReply({ after: offset })`. */
  openReply(signal?: Signal): Promise<string | null> {
    return openReply(new StreamRequests(this.transport, this.id), signal);
  }

  /** The parts of the reply that is being written, until its end, after a break too. */
  followReply(options: FollowReplyOptions = {}) {
    return followReply(new StreamRequests(this.transport, this.id), options);
  }

  /** The requests of a stream of this conversation, for adapters: see `foldlog/tanstack-ai`. */
  streamRequests(name: string): StreamRequests {
    return new StreamRequests(this.transport, this.id, name);
  }

  /** A token for a page in a browser: it reads this conversation and its streams for some seconds. */
  readToken(seconds = 300) {
    return this.send("post", "/read-tokens", { body: { seconds } });
  }

  /** Writes a reply, under the lease if there is one. */
  protected replyWriter(): ReplyWriter {
    return new ReplyWriter(
      new StreamRequests(this.transport, this.id),
      this.held?.token,
      (body, producer, { viewVersion, request, tools, parameters, cost, meta, ...options } = {}) => {
        const sent = { view_version: viewVersion, model_request: request, tools, parameters, cost, meta };
        const sending = { body: { ...body, ...sent }, headers: { "producer-id": producer } };
        return this.send("post", "/replies", sending, keyed(options));
      },
    );
  }

  /** Append the result of an open tool call. `call` is the id that the model gave the call. */
  appendToolResult(call: string, content: unknown, options: ToolResultOptions = {}) {
    const { isError, extras } = options;
    return this.write("/tool-results", { call, content, is_error: isError, extras }, options);
  }

  /**
   * Append records of another program, such as the items of an SDK: they become events, and are read
   * back unchanged. With `dedupe`, records whose id the conversation has already are left out: then
   * their ids are the keys, and all records need one.
   */
  appendRecords(format: string, records: object[], options: RecordsOptions = {}): Promise<Appended> {
    const body = { format, records: records.map((record) => ({ ...record })) };
    if (!options.dedupe) return this.write("/records", body, options);
    return this.send("post", "/records", { body: { ...body, dedupe: "origin" } }, options);
  }

  /** Set documents by name; null removes a document. */
  setDocuments(documents: Record<string, unknown>, options: WriteOptions = {}) {
    return this.send("patch", "/documents", { body: documents }, keyed(options));
  }

  /** Change attributes by name; null removes an attribute. */
  setAttributes(attributes: Schemas["ChangeAttributesRequest"]["attributes"]) {
    return this.send("patch", "/attributes", { body: { attributes } });
  }

  // -- reading

  /** The version, the attributes and the lease. Raises `ConversationNotFound` before the first event. */
  state() {
    return this.send("get", "");
  }

  /** The events from `start` to before `stop`, also those that a condensation forgot. */
  async *events(start = 0, stop?: number) {
    for (let next: number | null | undefined = start; typeof next === "number";) {
      const page: Schemas["EventPage"] = await this.send("get", "/events", { query: { start: next, stop } });
      yield* page.events as StoredEvent[];
      next = page.next;
    }
  }

  /** The View, now or at a version; with a dialect, its messages too. */
  view(query: Query<"get", InConversation<"/view">> = {}) {
    return this.send("get", "/view", { query });
  }

  /** The messages of the View in the form that a model's server expects. */
  async messages<D extends Dialect = "openai">(dialect?: D, at?: number): Promise<MessagesByDialect[D]> {
    const { messages = [] } = await this.view({ dialect: dialect ?? "openai", at });
    return messages as unknown as MessagesByDialect[D];
  }

  /**
   * The View to send to the model. If it has become too large, the server's condenser runs first: a
   * digest of the oldest events, unless `foldlog serve --config FILE` names another condenser, or
   * `noop` for none.
   */
  async prepare<D extends Dialect = "openai">(dialect?: D, options: { signal?: Signal } = {}): Promise<ViewIn<D>> {
    const body = { dialect: dialect ?? ("openai" as const) };
    const prepared = await this.send("post", "/prepare", { body, waitMs: CONDENSING_MS }, options);
    return prepared as unknown as ViewIn<D>;
  }

  /** The records of a format: all, or, with `sent`, those that a model is shown. */
  records(format: string, { sent = false } = {}) {
    return this.send("get", "/records", { query: { format, sent } });
  }

  /** The attributes, such as the user and the title. */
  attributes() {
    return this.send("get", "/attributes");
  }

  /** All documents by name. */
  documents() {
    return this.send("get", "/documents");
  }

  /** Why the View shows an event or not. */
  why(event: number, at?: number) {
    return this.send("get", "/why/{event}", { values: { event }, query: { at } });
  }

  /** The events that entered or left the View between two versions. */
  difference(before: number, after: number) {
    return this.send("get", "/difference", { query: { before, after } });
  }

  /** What a condensation took out of the View, by default the newest condensation. */
  dropped(condensation?: number) {
    return this.send("get", "/dropped", { query: { condensation } });
  }

  /** Figures: events, tokens, cost by model and day. With children, those of sub-agents too. */
  stats(query: Query<"get", InConversation<"/stats">> = {}) {
    return this.send("get", "/stats", { query });
  }

  /** Whether the agent knows some words, now or at a version, and from which events. */
  fact(words: string, at?: number) {
    return this.send("get", "/fact", { query: { words, at } });
  }

  /** The first difference to another conversation, such as a fork, with the figures of both. */
  compared(other: History | string) {
    const id = typeof other === "string" ? other : other.id;
    return this.send("get", "/compared", { query: { other: id } });
  }

  /** The records of an export, by default in the format of the source; with `view`, those of the next prompt. */
  async *exported(query: Omit<Query<"get", InConversation<"/export">>, "after"> = {}) {
    for (let after: number | null = 0; after !== null;) {
      const page: Schemas["ExportedRecords"] = await this.send("get", "/export", { query: { ...query, after } });
      yield* page.records;
      after = page.next;
    }
  }

  /** The tool `recall`, to offer to a model, and a hint for the system prompt. */
  recallTool(dialect: Dialect = "openai") {
    return this.send("get", "/recall", { query: { dialect } });
  }

  /** What the tool `recall` answers to a model that called it with some arguments. */
  async recall(input: Record<string, unknown> | string) {
    return (await this.send("post", "/recall", { body: { arguments: input } })).text;
  }

  /** New events as they are appended, after a break too: `for await (const event of history.follow())`. */
  follow(options: FollowOptions = {}) {
    const path = "/v1/conversations/{conversation}/follow";
    return follow(this.transport, path, { conversation: this.id }, options);
  }

  // -- changing

  /** Ask for a condensation at the next `prepare`. */
  requestCondensation(reason = "", options?: KeyedOptions) {
    return this.write("/condensation-requests", { reason }, options);
  }

  /** Condense now, and return the View. */
  condense(reason = "", options: KeyedOptions = {}) {
    return this.send("post", "/condensations", { body: { reason }, waitMs: CONDENSING_MS }, keyed(options));
  }

  /** Take back all events after a version. They stay in the log. */
  retract(version: number, reason = "", options?: WriteOptions) {
    return this.write("/retractions", { version, reason }, options);
  }

  /** Begin a conversation that shares the events up to a version, by default all. */
  async fork(body: Body<"post", InConversation<"/forks">> = {}, options?: KeyedOptions) {
    return new History(this.transport, (await this.write("/forks", body, options)).id);
  }

  /** Erase the content of events for good. Needs the scope `administer`. */
  redact(body: Body<"post", InConversation<"/redactions">>) {
    return this.send("post", "/redactions", { body });
  }

  /**
   * Erase the conversation for good. Needs the scope `administer`. With a token that has a filter, a
   * call whose first answer was lost throws `ConversationNotFound`: the conversation is erased.
   */
  erase(body: Body<"post", InConversation<"/erasure">>) {
    return this.send("post", "/erasure", { body });
  }

  // -- tool calls

  /** The actions that wait for their result. */
  async openCalls() {
    return (await this.send("get", "/open-calls")).calls as OpenCall[];
  }

  /** Close every open call with a result that says why it has none. */
  closeOpenCalls(reason = "") {
    return this.write("/open-calls/close", { reason });
  }

  /** Record that a person was asked to approve an open call, and what the person was shown. */
  askApproval(
    { id }: { id: number },
    body: Body<"post", InConversation<"/approvals/{event}/questions">>,
    options?: KeyedOptions,
  ) {
    return this.write("/approvals/{event}/questions", body, options, { event: id });
  }

  /** Record that a person approved or refused an open call: see `needsApproval` of `run`. */
  decide(
    { id }: { id: number },
    body: Body<"post", InConversation<"/approvals/{event}/decisions">>,
    options?: KeyedOptions,
  ) {
    return this.write("/approvals/{event}/decisions", body, options, { event: id });
  }

  /** The calls with the state of their effects. */
  async effects(state?: Schemas["CallEffect"]["state"]) {
    return (await this.send("get", "/effects", { query: { state } })).effects;
  }

  /** Record the outcome of an effect, by its key, that a person or the outside system reported. */
  settle(key: string, body: Body<"post", InConversation<"/settlements/{key}">>) {
    return this.send("post", "/settlements/{key}", { values: { key }, body, repeatable: false });
  }

  /**
   * Take the lease, and call `work` with a history that writes under it. The lease renews itself
   * while `work` runs, and is released at its end. If it is lost, `held.signal` aborts, requests of
   * `held` raise `LeaseLost`, and the service refuses each write that is still on its way.
   *
   * Raises `LeaseTaken` if another worker has the lease after `waitS` seconds.
   */
  lease<T>(options: LeaseOptions, work: (held: HeldHistory) => Promise<T>) {
    const path = "/v1/conversations/{conversation}/lease";
    const values = { conversation: this.id };
    return holdLease(
      (method, sending) => this.transport.send(method, path, { ...sending, values }),
      this.id,
      options,
      (lease) => work(new HeldHistory(this.transport, this.id, lease)),
    );
  }

  // -- requests

  /** Send a write that has an idempotency key, so that it may be repeated. */
  protected write<S extends string>(
    path: S,
    body: Body<"post", InConversation<S>>,
    options: WriteOptions = {},
    values?: Values,
  ): Promise<Answer<"post", InConversation<S>>> {
    return this.send("post", path, { body, values }, keyed(options));
  }

  /** Send a request about this conversation, under the lease if there is one. */
  protected send<M extends string, S extends string>(
    method: M,
    path: S,
    sending: Sending<M, InConversation<S>> = {},
    { idempotencyKey, expectedVersion, signal }: WriteOptions = {},
  ): Promise<Answer<M, InConversation<S>>> {
    const headers = {
      "foldlog-lease": this.held?.token,
      "idempotency-key": idempotencyKey,
      "if-match": expectedVersion === undefined ? undefined : `"${expectedVersion}"`,
    };
    const values = { conversation: this.id, ...sending.values };
    return this.transport.send(method, `/v1/conversations/{conversation}${path}`, {
      ...sending,
      headers: { ...sending.headers, ...headers },
      values,
      signal: anyOf(signal, this.held?.signal),
    });
  }
}

/** The arguments of a tool, and what it needs besides. */
export type Tool = (
  input: Record<string, unknown>,
  context: { key: string; signal: Signal; call: OpenCall },
) => unknown;

export interface RunOptions {
  /**
   * What to do if an earlier worker began the tool and recorded no outcome. `never`: the call ends,
   * and the model reads that it may have run. `same key`: run it again, because the outside system
   * ignores a key that it knows. By default `never`, or, with `check`, what the check returns.
   */
  repeat?: "never" | "same key";
  /** Looks up the outcome of a key outside. Returns undefined or null if the tool has not run. */
  check?: (key: string, call: OpenCall) => unknown;
  /** Refuse to run the tool unless the last decision about the call approved it. */
  needsApproval?: boolean;
  /** Who approved the run, and why. */
  by?: string;
  reason?: string;
}

/** A history whose writes carry a lease. `signal` aborts when the lease is lost. */
export class HeldHistory extends History {
  readonly signal: Signal;

  constructor(transport: Transport, id: string, held: Lease) {
    super(transport, id, held);
    this.signal = held.signal;
  }

  /**
   * Run the tool of an open call at most once, over all workers and crashes, and record its outcome.
   * An error of the tool is its outcome, unless the lease was lost: then the call stays begun, and
   * the next worker decides by its own `repeat`.
   */
  async run(call: OpenCall, tool: Tool, options: RunOptions = {}): Promise<RecordedEvent> {
    const { check, by, reason, needsApproval } = options;
    const repeat: "never" | "same key" | "check" | undefined = check === undefined ? options.repeat : "check";
    const begin = (checked: boolean) => {
      const body = { repeat, checked, needs_approval: needsApproval, by, reason };
      return this.write("/effects/{event}/begin", body, {}, { event: call.id });
    };
    let begun = await begin(false);
    if (begun.next === "check") {
      const outcome = (await check?.(begun.key, call)) ?? null;
      if (outcome !== null) return this.#end(call, outcome, false);
      begun = await begin(true);
    }
    if (begun.next !== "run") return begun.recorded as RecordedEvent;
    this.signal.throwIfAborted();
    const context = { key: begun.key, signal: this.signal, call };
    let outcome: unknown;
    let isError = false;
    try {
      outcome = (await tool(begun.arguments ?? {}, context)) ?? null;
    } catch (error) {
      this.signal.throwIfAborted();
      outcome = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
      isError = true;
    }
    return this.#end(call, outcome, isError);
  }

  /** Record an outcome. It happened, so it is recorded even if the lease is lost by now. */
  #end({ id }: OpenCall, outcome: unknown, isError: boolean): Promise<RecordedEvent> {
    const stored = storable(outcome);
    return this.transport.send("post", "/v1/conversations/{conversation}/effects/{event}/outcome", {
      values: { conversation: this.id, event: id },
      body: { outcome: stored, is_error: isError },
      headers: { "idempotency-key": crypto.randomUUID() },
    });
  }
}

/** The outcome as JSON. The tool has run, so an outcome that is no JSON never leaves its call open. */
function storable(outcome: unknown): unknown {
  try {
    return toJson(outcome, "its result");
  } catch (error) {
    return `the tool returned, but its result cannot be stored: ${error instanceof Error ? error.message : String(error)}`;
  }
}

/** The options with a key, so that the client may repeat the write. */
function keyed(options: WriteOptions): WriteOptions {
  return { ...options, idempotencyKey: options.idempotencyKey ?? crypto.randomUUID() };
}
