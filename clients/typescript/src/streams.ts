/**
 * A reply while a model writes it. The writer stores each piece before it is passed on, and readers
 * in any process get the pieces in their order, after a break too.
 */

import { FoldlogError, replyUnfinished, Unavailable, unavailable } from "./errors.js";
import { blocks } from "./follow.js";
import type { Appended, ReplyOptions } from "./options.js";
import { anyOf, pause, pauseMs, type Sending, type Transport } from "./transport.js";
import type { Signal, WebResponse } from "./web.js";

/** A piece of a reply, in no provider's form. `at` is its place among other texts or calls. */
export type Delta =
  | { type: "text" | "reasoning"; text: string; at?: number }
  | { type: "call"; at: number; id?: string; tool?: string; arguments?: string; ends?: boolean }
  | { type: "about"; id?: string; model?: string; usage?: Record<string, unknown> };

export interface ReplyPart {
  delta: Delta;
  /** The place behind the batch of this delta: `followReply({ after: offset })` reads on there. */
  offset: string;
}

export interface FollowReplyOptions {
  /**
   * Read on behind this offset, or the newest reply from its beginning, even if it has ended (`NEWEST`).
   * By default, the reply that is being written, from its beginning.
   */
  after?: string;
  /** Ends the loop without an error. */
  signal?: Signal;
}

/** The beginning of the newest reply. */
export const NEWEST = "-1";

type StreamMethod = "get" | "head" | "put" | "post";
type StreamPath = "/v1/stream/{conversation}/{stream}";
interface StreamSending {
  body?: unknown[];
  query?: Record<string, string>;
  headers?: Record<string, string | undefined>;
  signal?: Signal | undefined;
}

/** Sends requests to a stream of a conversation, by default to the stream of its reply. */
export class StreamRequests {
  readonly #transport: Transport;
  readonly #values: { conversation: string; stream: string };

  constructor(transport: Transport, conversation: string, stream = "reply") {
    this.#transport = transport;
    this.#values = { conversation, stream };
  }

  get conversation(): string {
    return this.#values.conversation;
  }

  /** Send a request again until it is answered, as each write has its number. */
  send(method: StreamMethod, sending: StreamSending): Promise<unknown> {
    return this.#transport.send(method, PATH, this.#with(sending));
  }

  /** As `send`, with the headers of the answer. */
  exchange(method: StreamMethod, sending: StreamSending): Promise<{ value: unknown; headers: WebResponse["headers"] }> {
    return this.#transport.exchange(method, PATH, this.#with(sending));
  }

  /** Send a request once. The caller reads the body. */
  request(method: StreamMethod, sending: StreamSending): Promise<WebResponse> {
    return this.#transport.request(method, PATH, this.#with(sending));
  }

  // The paths of streams are not in the OpenAPI document: another protocol describes them.
  #with(sending: StreamSending): Sending<StreamMethod, StreamPath> {
    return { ...sending, values: this.#values } as unknown as Sending<StreamMethod, StreamPath>;
  }
}

const PATH: StreamPath = "/v1/stream/{conversation}/{stream}";

/** Sends a request to `/replies` as the producer that wrote the reply. */
type AppendReply = (body: object, producer: string, options?: ReplyOptions) => Promise<Appended>;

/**
 * Writes a reply. Deltas that come while a request is on its way are sent together with the next
 * one. End it with `end` or `cut`, which append the reply and close its stream in one transaction.
 */
export class ReplyWriter {
  readonly #requests: StreamRequests;
  readonly #headers: Record<string, string | undefined>;
  readonly #append: AppendReply;
  readonly #producer = crypto.randomUUID();
  #sequence = 0;
  #waiting: Delta[] = [];
  #sending: Promise<void> = Promise.resolve();

  constructor(requests: StreamRequests, lease: string | undefined, append: AppendReply) {
    this.#requests = requests;
    this.#headers = { "foldlog-lease": lease };
    this.#append = append;
  }

  /** Begin the stream. Raises `ReplyUnfinished` if a worker writes a reply, or left one unfinished. */
  async begin(): Promise<this> {
    try {
      // An empty array begins an empty stream. A stream that another producer began is refused.
      await this.#requests.send("put", { body: [], headers: { ...this.#headers, "producer-id": this.#producer } });
    } catch (error) {
      if (error instanceof FoldlogError && error.status === 409)
        throw replyUnfinished(this.#requests.conversation, error);
      throw error;
    }
    return this;
  }

  /** Store deltas. When the promise resolves, no killed process takes them any more. */
  feed(...deltas: Delta[]): Promise<void> {
    this.#waiting.push(...deltas);
    this.#sending = this.#sending.then(() => this.#flush());
    return this.#sending;
  }

  /**
   * Append the complete reply, as its provider sent it, and close the stream. Without a reply, it is
   * made of the deltas.
   */
  async end(reply?: object, options?: ReplyOptions): Promise<Appended> {
    await this.#sending;
    return this.#append({ stream: "reply", reply: reply && { ...reply } }, this.#producer, options);
  }

  /** Append what was written, marked as cut, without calls whose arguments are incomplete. */
  async cut(options?: ReplyOptions): Promise<Appended> {
    await this.#sending.catch(() => undefined); // what was stored is appended
    return this.#append({ stream: "reply", cut: true }, this.#producer, options);
  }

  /** Send what waits, under the next number, so that a repetition stores nothing twice. */
  async #flush(): Promise<void> {
    const deltas = this.#waiting;
    if (deltas.length === 0) return;
    this.#waiting = [];
    const number = { "producer-id": this.#producer, "producer-epoch": "0", "producer-seq": String(this.#sequence) };
    this.#sequence += 1;
    await this.#requests.send("post", { body: deltas, headers: { ...this.#headers, ...number } });
  }
}

/**
 * A reply whose worker ended while the model wrote it. Call its methods under a lease, so that no
 * other worker still writes the reply.
 */
export class UnfinishedReply {
  readonly text: string;
  readonly reasoning: string;
  /** Whether the model began a tool call. No model continues one: call `cut` then. */
  readonly hasCalls: boolean;
  readonly #writer: ReplyWriter;

  constructor(deltas: Delta[], writer: ReplyWriter) {
    const textOf = (type: string): string =>
      deltas.map((delta) => (delta.type === type && "text" in delta ? delta.text : "")).join("");
    this.text = textOf("text");
    this.reasoning = textOf("reasoning");
    this.hasCalls = deltas.some(({ type }) => type === "call");
    this.#writer = writer;
  }

  /** The reply so far. Send it to a model as the beginning of its reply, if its server takes one. */
  get message(): { role: "assistant"; content: string } {
    return { role: "assistant", content: this.text };
  }

  /** Write on in the same stream: its readers read on. End it with `end()`, which has the whole text. */
  continue(): ReplyWriter {
    return this.#writer;
  }

  /** Append what was written, marked as cut, without calls whose arguments are incomplete. */
  cut(options?: ReplyOptions): Promise<Appended> {
    return this.#writer.cut(options);
  }
}

/** The deltas of the reply that is being written, or undefined if none is. */
export async function openDeltas(requests: StreamRequests): Promise<Delta[] | undefined> {
  const start = await openReply(requests);
  if (start === null) return undefined;
  const { values, isClosed } = await readStream(requests, start);
  return isClosed ? undefined : (values as Delta[]); // if it is closed, its writer was alive
}

/** The values that a stream of JSON has now behind an offset, and the place behind them. */
export async function readStream(
  requests: StreamRequests,
  start: string,
): Promise<{ values: unknown[]; offset: string; isClosed: boolean }> {
  const values: unknown[] = [];
  for (let offset = start; ;) {
    const { value, headers } = await requests.exchange("get", { query: { offset } });
    values.push(...(value as unknown[]));
    offset = headers.get("stream-next-offset") as string;
    if (headers.get("stream-up-to-date") !== "true") continue;
    return { values, offset, isClosed: headers.get("stream-closed") === "true" };
  }
}

/** The offset of the beginning of the reply that is being written, or null. */
export async function openReply(requests: StreamRequests, signal?: Signal): Promise<string | null> {
  try {
    const { headers } = await requests.exchange("head", { signal });
    if (headers.get("stream-closed") === "true") return null;
    // An offset is STREAM_PLACE, and each reply is another stream.
    return (headers.get("stream-next-offset") as string).replace(/[0-9]+$/, (place) => "0".repeat(place.length));
  } catch (error) {
    if (error instanceof FoldlogError && error.status === 404) return null;
    throw error;
  }
}

/** The parts of a reply, until its end, after breaks too. */
export async function* followReply(
  requests: StreamRequests,
  { after, signal }: FollowReplyOptions,
): AsyncGenerator<ReplyPart, void, undefined> {
  const start = after ?? (await openReply(requests, signal));
  if (start === null) return;
  for await (const { values, offset } of followStream(requests, start, signal)) {
    for (const delta of values as Delta[]) yield { delta, offset };
  }
}

/** The values of a stream of JSON in batches, until its end, after breaks too. `offset` is the place behind a batch. */
export async function* followStream(
  requests: StreamRequests,
  start: string,
  signal?: Signal,
): AsyncGenerator<{ values: unknown[]; offset: string }, void, undefined> {
  let offset = start;
  for (let attempt = 0; !signal?.aborted; attempt += 1) {
    const broken = new AbortController();
    let reason: FoldlogError | undefined;
    try {
      const query = { live: "sse", offset };
      const headers = { accept: "text/event-stream" };
      const { body } = await requests.request("get", { query, headers, signal: anyOf(signal, broken.signal) });
      if (body === null) throw unavailable("the stream has no body", undefined);
      let values: unknown[] = [];
      for await (const block of blocks(body, (work) => work)) {
        attempt = 0;
        const { event, data } = fieldsOf(block);
        if (event === "data") values = JSON.parse(data) as unknown[];
        if (event !== "control") continue;
        // The place of a batch comes behind it, so a batch without its place is read again.
        const control = JSON.parse(data) as { streamNextOffset: string; streamClosed?: boolean };
        offset = control.streamNextOffset;
        if (values.length > 0) yield { values, offset };
        values = [];
        if (control.streamClosed) return;
      }
    } catch (error) {
      if (signal?.aborted) return;
      if (!(error instanceof Unavailable)) throw error;
      reason = error;
    } finally {
      broken.abort();
    }
    await pause(attempt === 0 ? 0 : pauseMs(attempt, reason), signal).catch(() => undefined);
  }
}

/** The fields of a server-sent event. Its data may have several lines. */
function fieldsOf(block: string): { event: string; data: string } {
  const data: string[] = [];
  let event = "";
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (line.startsWith("data:")) data.push(value);
    else if (line.startsWith("event:")) event = value;
  }
  return { event, data: data.join("\n") };
}
