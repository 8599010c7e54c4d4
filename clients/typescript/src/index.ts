/** The client of the foldlog service. It needs `fetch` and web streams, and nothing else. */

import { follow, type FollowOptions } from "./follow.js";
import { History } from "./history.js";
import type { components } from "./openapi.js";
import { type Body, type FoldlogOptions, type Query, Transport } from "./transport.js";

export type { components, operations, paths } from "./openapi.js";
export * from "./errors.js";
export type { FollowedEvent, FollowOptions } from "./follow.js";
export * from "./history.js";
export type * from "./messages.js";
export type { LeaseOptions } from "./lease.js";
export {
  type Delta,
  type FollowReplyOptions,
  NEWEST,
  type ReplyPart,
  ReplyWriter,
  UnfinishedReply,
} from "./streams.js";
export type { FoldlogOptions } from "./transport.js";

/** A foldlog service. */
export class Foldlog {
  readonly histories: Histories;

  constructor(options: FoldlogOptions) {
    this.histories = new Histories(new Transport(options));
  }
}

type ListQuery = Omit<Query<"get", "/v1/conversations">, "where">;
type SearchQuery = Omit<Query<"get", "/v1/search">, "words">;

/** The conversations that the token may see. */
export class Histories {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** A conversation by its id, without a request. It begins with its first append. */
  open(id: string): History {
    return new History(this.#transport, id);
  }

  /** Begin a conversation with attributes. Without an id, the service makes one. */
  async create(body: Body<"post", "/v1/conversations"> = {}, idempotencyKey?: string) {
    const headers = { "idempotency-key": idempotencyKey ?? crypto.randomUUID() };
    return this.open((await this.#transport.send("post", "/v1/conversations", { body, headers })).id);
  }

  /**
   * The conversations with some attributes, the one with the newest event first. With `below`, those
   * whose ids begin with it, in no order.
   */
  async *list(where: Record<string, string> = {}, below = "") {
    const query: ListQuery = { below };
    do {
      const page = await this.listPage(where, query);
      yield* page.conversations;
      query.after = page.next;
    } while (query.after);
  }

  /** One page of a list, of `limit` conversations. `next` is the `after` of the next page, or null. */
  listPage(where: Record<string, string> = {}, query: ListQuery = {}) {
    const pairs = Object.entries(where).map((pair) => pair.map(encodeURIComponent).join("="));
    return this.#transport.send("get", "/v1/conversations", { query: { ...query, where: pairs.join(",") } });
  }

  /**
   * The events with all the words, in the conversations that the token may see: the conversation that
   * was active last comes first. `within` is the id of one conversation, and `kind` chooses events: `message` is
   * what persons and agents said. The pages are read as they are needed, so end the loop
   * when you have enough.
   */
  async *search(words: string, options: Omit<SearchQuery, "after"> = {}) {
    const query: SearchQuery = { ...options };
    for (;;) {
      const page = await this.searchPage(words, query);
      yield* page.hits;
      if (page.next === null) return;
      query.after = page.next;
    }
  }

  /**
   * One page of a search, of `limit` hits. `next` is the `after` of the next page, or null. The places
   * of the words in a snippet are indices of JavaScript: `snippet.slice(begin, end)`.
   */
  async searchPage(words: string, query: SearchQuery = {}) {
    const page = await this.#transport.send("get", "/v1/search", { query: { ...query, words } });
    return { ...page, hits: page.hits.map(withPlaces) };
  }

  /**
   * The ids of the conversations that a worker left, for example because it died: they have open calls, a
   * reply that has been open for ten minutes, or a lease that was not released. A worker that starts takes
   * the lease of each, and goes on.
   */
  async unfinished() {
    return (await this.#transport.send("get", "/v1/unfinished", {})).conversations;
  }

  /** Append to several conversations: all events are appended, or none. */
  async appendTogether(appends: Body<"post", "/v1/appends">["appends"], idempotencyKey: string = crypto.randomUUID()) {
    const headers = { "idempotency-key": idempotencyKey };
    return (await this.#transport.send("post", "/v1/appends", { body: { appends }, headers })).appended;
  }

  /** The new events of all conversations that the token may see. */
  follow(options: FollowOptions = {}) {
    return follow(this.#transport, "/v1/follow", undefined, options);
  }
}

/** A hit whose places count UTF-16 units, as JavaScript does. The service counts code points. */
function withPlaces(hit: components["schemas"]["FoundEvent"]) {
  const points = [...hit.snippet];
  const unitsBefore = (count: number): number => points.slice(0, count).join("").length;
  return { ...hit, highlights: hit.highlights.map(([begin, end]) => [unitsBefore(begin), unitsBefore(end)] as const) };
}
