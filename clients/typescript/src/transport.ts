/** Sends requests to the service, and repeats them where a repetition cannot do harm. */

import { errorOf, FoldlogError, type Problem, Unavailable, unavailable } from "./errors.js";
import type { paths } from "./openapi.js";
import type { Fetch, Signal, WebResponse } from "./web.js";

export interface FoldlogOptions {
  /** The address of the service, such as `http://localhost:8765`. */
  url: string;
  token: string;
  /** How long a request is sent again while the service does not answer; 60,000 ms by default. */
  waitMs?: number;
  /** How long an attempt may take; 60,000 ms by default. */
  timeoutMs?: number;
  /** Another implementation of `fetch`. */
  fetch?: Fetch;
}

/** The path of something in a conversation, such as `/events`. */
export type InConversation<Suffix extends string> = `/v1/conversations/{conversation}${Suffix}`;
/** The values of the parameters of a path. */
export type Values = Record<string, string | number> | undefined;

type Json<R> = R extends { content: { "application/json": infer T } } ? T : never;
/** An undefined member is left out of a body or a query. */
type Optional<T> = { [K in keyof T]: T[K] | undefined };
type Operation<M, P> = P extends keyof paths ? (M extends keyof paths[P] ? paths[P][M] : never) : never;

export type Answer<M, P> = Operation<M, P> extends { responses: infer R } ? Json<R[keyof R & (200 | 201)]> : never;
export type Body<M, P> = Operation<M, P> extends { requestBody: infer B } ? Optional<Json<B>> : undefined;
export type Query<M, P> = Operation<M, P> extends { parameters: { query?: infer Q } } ? Optional<Q> : undefined;

export interface Sending<M, P> {
  values?: Values;
  body?: Body<M, P>;
  query?: Query<M, P>;
  headers?: Record<string, string | undefined>;
  signal?: Signal | undefined;
  /** How long the service may wait before it answers, beside the time of an attempt. */
  waitMs?: number;
  /** Ends each attempt after this time, if the time of the client is not shorter. */
  attemptMs?: number;
  /** Whether the request may be sent twice, as by default: it reads, has a key, or changes nothing twice. */
  repeatable?: boolean;
}

/** The longest pause before the first repetition. Each further one may be twice as long. */
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;

/** Sends requests with a token to a service. */
export class Transport {
  readonly #options: Required<FoldlogOptions>;

  constructor(options: FoldlogOptions) {
    const { url, token, waitMs = 60_000, timeoutMs = 60_000 } = options;
    const send = options.fetch ?? ((...sent: Parameters<typeof fetch>) => fetch(...sent));
    this.#options = { url: url.replace(/\/+$/, ""), token, waitMs, timeoutMs, fetch: send };
  }

  /** Send a request, again and again until it is answered, and return the answer. */
  async send<M extends string, P extends string>(method: M, path: P, sending: Sending<M, P>): Promise<Answer<M, P>> {
    return (await this.exchange(method, path, sending)).value;
  }

  /** The answer, with the headers of the response. */
  async exchange<M extends string, P extends string>(
    method: M,
    path: P,
    sending: Sending<M, P>,
  ): Promise<{ value: Answer<M, P>; headers: WebResponse["headers"] }> {
    const { signal, waitMs = 0, attemptMs = Infinity, repeatable = true } = sending;
    const timeoutMs = Math.ceil(Math.min(this.#options.timeoutMs, attemptMs) + waitMs);
    const giveUpAt = performance.now() + this.#options.waitMs;
    for (let attempt = 0; ; attempt += 1) {
      try {
        const ending = anyOf(signal, AbortSignal.timeout(timeoutMs));
        const response = await this.request(method, path, { ...sending, signal: ending });
        return { value: (await read(response)) as Answer<M, P>, headers: response.headers };
      } catch (error) {
        signal?.throwIfAborted();
        // 429 refuses a request before anything is done, so each request may follow it.
        const passes = error instanceof Unavailable && (repeatable || error.status === 429);
        if (!passes || performance.now() >= giveUpAt) throw error;
        await pause(pauseMs(attempt, error), signal);
      }
    }
  }

  /** Send a request once. The caller reads the body, or aborts the signal. */
  async request<M extends string, P extends string>(
    method: M,
    path: P,
    { values = {}, body, query, headers = {}, signal }: Sending<M, P>,
  ): Promise<WebResponse> {
    const { url: start, token, fetch } = this.#options;
    const url = new URL(start + path.replace(/{(\w+)}/g, (_, name: string) => segment(String(values[name]))));
    url.search = new URLSearchParams(present(query)).toString();
    const sent = { accept: "application/json", authorization: `Bearer ${token}`, ...present(headers) };
    const init: RequestInit = { method: method.toUpperCase(), headers: sent, signal: signal ?? null };
    if (body !== undefined) {
      init.headers = { ...sent, "content-type": "application/json" };
      init.body = JSON.stringify(body);
    }
    let response: WebResponse;
    try {
      response = await fetch(url, init);
    } catch (error) {
      throw unavailable(`${init.method} ${url}: no answer: ${reason(error)}`, error);
    }
    if (!response.ok) throw await refusal(response);
    return response;
  }
}

/** A signal that aborts with the first of some signals. */
export function anyOf(...signals: (Signal | undefined)[]): Signal {
  return AbortSignal.any(signals.filter((signal) => signal !== undefined));
}

/** Wait, or throw the reason of the signal. */
export function pause(ms: number, signal?: Signal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

/** The pause grows with each attempt, and is random, so that clients do not return all at once. */
export function pauseMs(attempt: number, error?: FoldlogError): number {
  const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** attempt);
  return Number(error?.problem["retry_after_ms"] ?? 0) + Math.random() * longest;
}

/** A value as a part of a path. */
function segment(text: string): string {
  if (text === "" || text === "." || text === "..") {
    throw new TypeError(`${JSON.stringify(text)} cannot be a part of a URL; choose another id`);
  }
  return encodeURIComponent(text);
}

/** The body of an answer. Raises `Unavailable` if it is not complete. */
async function read(response: WebResponse): Promise<unknown> {
  try {
    const text = await response.text();
    return text === "" && isEmpty(response) ? undefined : JSON.parse(text);
  } catch (error) {
    throw unavailable(`${response.url}: the answer was cut off, or is not JSON`, error);
  }
}

/**
 * Whether the service sends no body: 204, or the headers of a stream. Some proxies and servers answer
 * with an empty 200 when a connection breaks, and nothing may be carried out then.
 */
function isEmpty({ status, headers }: WebResponse): boolean {
  return status === 204 || headers.has("stream-next-offset");
}

/** The members that have a value, as texts. */
function present(members: object = {}): Record<string, string> {
  const entries = Object.entries(members).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(entries.map(([name, value]) => [name, String(value)]));
}

/** The error that an answer tells. */
async function refusal(response: WebResponse): Promise<FoldlogError> {
  const { status } = response;
  const text = await response.text().catch(() => "");
  const retryAfterS = Number(response.headers.get("retry-after"));
  // A proxy, or the server without --write, answers in another form.
  const detail = `${response.url} answered ${status}: ${text.slice(0, 200)}`;
  const problem: Problem = { type: "about:blank", title: response.statusText, status, detail };
  if (response.headers.get("content-type")?.startsWith("application/problem+json")) {
    try {
      Object.assign(problem, JSON.parse(text));
    } catch {
      // The answer was cut off, so its text says what there is.
    }
  }
  if (retryAfterS > 0) problem["retry_after_ms"] = retryAfterS * 1_000;
  return errorOf(problem);
}

/** Why `fetch` failed: Node.js has the reason in `cause`. */
function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
}
