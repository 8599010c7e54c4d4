/** One conversation: its events, its Views, its leases and the effects of its tools. */

import { type FollowedEvent, follow, type FollowOptions } from "./follow.js";
import { holdLease, type LeaseOptions } from "./lease.js";
import type { components, operations } from "./openapi.js";
import type { Answer, Body, Operation, Query, Sending, Transport } from "./transport.js";

type Schemas = components["schemas"];
export type AppendableEvent = NonNullable<Body<"append_events">["events"]>[number];
export type Appended = Schemas["AppendedEvents"];
export type RecordedEvent = Schemas["RecordedEvent"];
export type ShownView = Schemas["ShownView"];
export type Dialect = NonNullable<Body<"prepare">["dialect"]>;

/** An event as the store keeps it, with its `id` and its `kind`. */
export type StoredEvent = Record<string, unknown> & { id: number; kind: string };

export interface KeyedOptions {
  /**
   * A repeated write with this key is carried out once. The client makes a key for its own
   * repetitions; choose one if your program may repeat the write, also after a crash.
   */
  idempotencyKey?: string;
  signal?: AbortSignal;
}

export interface WriteOptions extends KeyedOptions {
  /** Append only if the conversation has this version. Raises `VersionConflict` otherwise. */
  expectedVersion?: number;
}

export interface ReplyOptions extends WriteOptions {
  /** The version of the View that was sent to the model. */
  viewVersion?: number;
  cost?: number;
  meta?: Record<string, unknown>;
}

export interface ToolResultOptions extends KeyedOptions {
  isError?: boolean;
  extras?: Record<string, unknown>;
}

export interface RecordsOptions extends WriteOptions {
  dedupe?: boolean;
}

type Headers = Record<string, string>;

/** A conversation of the store. It begins with the first append. Get one by `histories.open`. */
export class History {
  readonly id: string;
  protected readonly transport: Transport;
  /** Ends the requests of this object. */
  protected readonly ending: AbortSignal | undefined;
  readonly #leaseHeaders: Headers;

  constructor(transport: Transport, id: string, lease?: { token: string; signal: AbortSignal }) {
    this.transport = transport;
    this.id = id;
    this.ending = lease?.signal;
    this.#leaseHeaders = lease === undefined ? {} : { "foldlog-lease": lease.token };
  }

  // -- appending

  /** Append events, all or none. They are on disk when the promise resolves. */
  append(events: AppendableEvent | AppendableEvent[], options?: WriteOptions): Promise<Appended> {
    return this.write("append_events", ["events"], { events: [events].flat() }, options);
  }

  /** Append chat messages, such as `{role: "user", content: "hello"}`. */
  appendMessages(messages: Record<string, unknown>[], options?: WriteOptions): Promise<Appended> {
    return this.write("append_events", ["events"], { messages }, options);
  }

  /** Append what a model's server answered: an action for each tool call, or the agent's message. */
  appendReply(reply: object, options: ReplyOptions = {}): Promise<Appended> {
    const { viewVersion, cost, meta } = options;
    const body: Body<"append_reply"> = { reply: { ...reply }, ...defined({ cost, meta }) };
    if (viewVersion !== undefined) body.view_version = viewVersion;
    return this.write("append_reply", ["replies"], body, options);
  }

  /** Append the result of an open tool call. `call` is the id that the model gave the call. */
  appendToolResult(call: string, content: unknown, options: ToolResultOptions = {}): Promise<Appended> {
    const body = { call, content, is_error: options.isError ?? false, extras: options.extras ?? null };
    return this.write("append_tool_result", ["tool-results"], body, options);
  }

  /**
   * Append records of another program, such as the items of an SDK: they become events, and are read
   * back unchanged. With `dedupe`, records whose id the conversation has already are left out: then
   * their ids are the keys, and all records need one.
   */
  appendRecords(format: string, records: object[], options: RecordsOptions = {}): Promise<Appended> {
    const body: Body<"append_records"> = { format, records: records as Record<string, unknown>[] };
    if (!options.dedupe) return this.write("append_records", ["records"], body, options);
    const headers = this.#headers(options);
    const sending = { body: { ...body, dedupe: "origin" as const }, headers, signal: options.signal };
    return this.call<"append_records">("POST", ["records"], { ...sending, repeatable: true });
  }

  /** Set documents by name; null removes a document. */
  setDocuments(documents: Record<string, unknown>, options?: WriteOptions): Promise<Appended> {
    return this.write("change_documents", ["documents"], documents, options, "PATCH");
  }

  /** Change attributes by name; null removes an attribute. */
  setAttributes(attributes: Record<string, unknown>): Promise<Answer<"change_attributes">> {
    return this.call<"change_attributes">("PATCH", ["attributes"], { body: { attributes }, repeatable: true });
  }

  // -- reading

  /** The version, the attributes and the lease. Raises `ConversationNotFound` before the first event. */
  state(): Promise<Answer<"read_conversation">> {
    return this.#read<"read_conversation">([]);
  }

  /** The events from `start` to before `stop`, also those that a condensation forgot. */
  async *events(start = 0, stop?: number): AsyncGenerator<StoredEvent, void, undefined> {
    for (let next: number | null | undefined = start; typeof next === "number"; ) {
      const query: Query<"read_events"> = { start: next, ...defined({ stop }) };
      const page: Answer<"read_events"> = await this.#read<"read_events">(["events"], query);
      yield* page.events as StoredEvent[];
      next = page.next;
    }
  }

  /** The View, now or at a version; with a dialect, its messages too. */
  view(query: Query<"read_view"> = {}): Promise<ShownView> {
    return this.#read<"read_view">(["view"], query);
  }

  /** The messages of the View in the form that a model's server expects. */
  async messages(dialect: Dialect = "openai", at?: number): Promise<Record<string, unknown>[]> {
    return (await this.view({ dialect, ...defined({ at }) })).messages ?? [];
  }

  /** The View to send to the model. If it has become too large, the server's condenser runs first. */
  prepare(dialect: Dialect = "openai", options?: KeyedOptions): Promise<ShownView> {
    return this.write("prepare", ["prepare"], { dialect }, options);
  }

  /** The records of a format: all, or, with `sent`, those that a model is shown. */
  records(format: string, { sent = false } = {}): Promise<Answer<"read_records">> {
    return this.#read<"read_records">(["records"], { format, sent });
  }

  attributes(): Promise<Answer<"read_attributes">> {
    return this.#read<"read_attributes">(["attributes"]);
  }

  documents(): Promise<Answer<"read_documents">> {
    return this.#read<"read_documents">(["documents"]);
  }

  /** Why the View shows an event or not. */
  why(event: number, at?: number): Promise<Answer<"why">> {
    return this.#read<"why">(["why", String(event)], defined({ at }));
  }

  difference(before: number, after: number): Promise<Answer<"difference">> {
    return this.#read<"difference">(["difference"], { before, after });
  }

  /** What a condensation took out of the View, by default the newest condensation. */
  dropped(condensation?: number): Promise<Answer<"dropped">> {
    return this.#read<"dropped">(["dropped"], defined({ condensation }));
  }

  /** New events as they are appended, after a break too: `for await (const event of history.follow())`. */
  follow(options: FollowOptions = {}): AsyncGenerator<FollowedEvent, void, undefined> {
    return follow(this.transport, this.#path(["follow"]), options);
  }

  // -- changing

  requestCondensation(reason = "", options?: KeyedOptions): Promise<RecordedEvent> {
    return this.write("request_condensation", ["condensation-requests"], { reason }, options);
  }

  condense(reason = ""): Promise<ShownView> {
    return this.call<"condense">("POST", ["condensations"], { body: { reason }, repeatable: false });
  }

  /** Take back all events after a version. They stay in the log. */
  retract(version: number, reason = "", options?: WriteOptions): Promise<RecordedEvent> {
    return this.write("retract", ["retractions"], { version, reason }, options);
  }

  /** Begin a conversation that shares the events up to a version, by default all. */
  async fork(body: Body<"fork"> = {}, options?: KeyedOptions): Promise<History> {
    return new History(this.transport, (await this.write("fork", ["forks"], body, options)).id);
  }

  /** Erase the content of events for good. Needs the scope `administer`. */
  redact(body: Body<"redact">): Promise<Answer<"redact">> {
    return this.call<"redact">("POST", ["redactions"], { body, repeatable: false });
  }

  /** Erase the conversation for good. Needs the scope `administer`. */
  erase(body: Body<"erase">): Promise<Answer<"erase">> {
    return this.call<"erase">("POST", ["erasure"], { body, repeatable: false });
  }

  // -- tool calls

  /** The actions that wait for their result. */
  async openCalls(): Promise<StoredEvent[]> {
    return (await this.#read<"read_open_calls">(["open-calls"])).calls as StoredEvent[];
  }

  /** Close every open call with a result that says why it has none. */
  closeOpenCalls(reason = ""): Promise<Appended> {
    const headers = this.#leaseHeaders;
    return this.call<"close_open_calls">("POST", ["open-calls", "close"], { body: { reason }, headers, repeatable: true });
  }

  /** Record that a person was asked to approve an open call, and what the person was shown. */
  askApproval(call: StoredEvent, body: Body<"ask_approval">, options?: KeyedOptions): Promise<RecordedEvent> {
    return this.write("ask_approval", ["approvals", String(call.id), "questions"], body, options);
  }

  /** Record that a person approved or refused an open call: see `needsApproval` of `run`. */
  decide(call: StoredEvent, body: Body<"decide">, options?: KeyedOptions): Promise<RecordedEvent> {
    return this.write("decide", ["approvals", String(call.id), "decisions"], body, options);
  }

  /** The calls with the state of their effects. */
  async effects(state?: Query<"read_effects">["state"]): Promise<Schemas["CallEffect"][]> {
    return (await this.#read<"read_effects">(["effects"], defined({ state }))).effects;
  }

  /** Record the outcome of an effect, by its key, that a person or the outside system reported. */
  settle(key: string, body: Body<"settle_effect">): Promise<RecordedEvent> {
    return this.call<"settle_effect">("POST", ["settlements", key], { body, repeatable: false });
  }

  /**
   * Take the lease, and call `work` with a history that writes under it. The lease renews itself
   * while `work` runs, and is released at its end. If it is lost, `held.signal` aborts, requests of
   * `held` raise `LeaseLost`, and the service refuses each write that is still on its way.
   *
   * Raises `LeaseTaken` if another worker has the lease after `waitS` seconds.
   */
  lease<T>(options: LeaseOptions, work: (held: HeldHistory) => Promise<T>): Promise<T> {
    return holdLease(this.transport, this.id, options, (lease) =>
      work(new HeldHistory(this.transport, this.id, lease)),
    );
  }

  // -- requests

  /** Send a write that has an idempotency key, so that it may be repeated. */
  protected write<Op extends Operation>(
    _operation: Op,
    path: string[],
    body: Body<Op>,
    options: WriteOptions = {},
    method = "POST",
  ): Promise<Answer<Op>> {
    const headers = this.#headers({ idempotencyKey: crypto.randomUUID(), ...options });
    return this.call<Op>(method, path, { body, headers, signal: options.signal, repeatable: true });
  }

  protected call<Op extends keyof operations>(
    method: string,
    path: string[],
    sending: Sending<Op>,
  ): Promise<Answer<Op>> {
    const headers = { ...this.#leaseHeaders, ...sending.headers };
    const signals = [sending.signal, this.ending].filter((signal) => signal !== undefined);
    const signal = signals.length === 0 ? undefined : AbortSignal.any(signals);
    return this.transport.send<Op>(method, this.#path(path), { ...sending, headers, signal });
  }

  #read<Op extends Operation>(path: string[], query?: Query<Op>): Promise<Answer<Op>> {
    return this.call<Op>("GET", path, { ...defined({ query }), repeatable: true });
  }

  #path(path: string[]): string[] {
    return ["conversations", this.id, ...path];
  }

  #headers({ expectedVersion, idempotencyKey }: WriteOptions): Headers {
    const headers: Headers = {};
    if (idempotencyKey !== undefined) headers["idempotency-key"] = idempotencyKey;
    if (expectedVersion !== undefined) headers["if-match"] = `"${expectedVersion}"`;
    return headers;
  }
}

/** The arguments of a tool, and what it needs besides. */
export type Tool = (
  input: Record<string, unknown>,
  context: { key: string; signal: AbortSignal; call: StoredEvent },
) => unknown;

export interface RunOptions {
  /**
   * What to do if an earlier worker began the tool and recorded no outcome. `never`: the call ends,
   * and the model reads that it may have run. `same key`: run it again, because the outside system
   * ignores a key that it knows. By default `never`, or, with `check`, what the check returns.
   */
  repeat?: "never" | "same key";
  /** Looks up the outcome of a key outside. Returns undefined if the tool has not run. */
  check?: (key: string, call: StoredEvent) => Promise<{ outcome: unknown } | undefined>;
  /** Refuse to run the tool unless the last decision about the call approved it. */
  needsApproval?: boolean;
  /** Who approved the run, and why. */
  by?: string;
  reason?: string;
}

/** A history whose writes carry a lease. `signal` aborts when the lease is lost. */
export class HeldHistory extends History {
  readonly signal: AbortSignal;

  constructor(transport: Transport, id: string, lease: { token: string; signal: AbortSignal }) {
    super(transport, id, lease);
    this.signal = lease.signal;
  }

  /**
   * Run the tool of an open call at most once, over all workers and crashes, and record its outcome.
   * An error of the tool is its outcome, unless the lease was lost: then the call stays begun, and
   * the next worker decides by its own `repeat`.
   */
  async run(call: StoredEvent, tool: Tool, options: RunOptions = {}): Promise<RecordedEvent> {
    const { check, by, reason } = options;
    const repeat = check === undefined ? (options.repeat ?? "never") : "check";
    const begin = (checked: boolean): Promise<Answer<"begin_effect">> =>
      this.write("begin_effect", this.#effect(call, "begin"), {
        ...defined({ by, reason }),
        repeat,
        checked,
        needs_approval: options.needsApproval ?? false,
      });
    let begun = await begin(false);
    if (begun.next === "check") {
      const found = await check?.(begun.key, call);
      if (found !== undefined) return this.#end(call, found.outcome, false);
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
  #end(call: StoredEvent, outcome: unknown, isError: boolean): Promise<RecordedEvent> {
    const path = ["conversations", this.id, ...this.#effect(call, "outcome")];
    const headers = { "idempotency-key": crypto.randomUUID() };
    const body = { outcome, is_error: isError };
    return this.transport.send<"end_effect">("POST", path, { body, headers, repeatable: true });
  }

  #effect(call: StoredEvent, act: string): string[] {
    return ["effects", String(call.id), act];
  }
}

type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

/** Leave out the members that are undefined. */
function defined<T extends object>(members: T): Defined<T> {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as Defined<T>;
}
