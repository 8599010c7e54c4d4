/** Sends requests to the service, and repeats them where a repetition cannot do harm. */

import { errorOf, FoldlogError, type Problem, Unavailable, unavailable } from "./errors.js";
import type { operations } from "./openapi.js";

export interface FoldlogOptions {
  /** The address of the service, such as `http://localhost:8765`. */
  url: string;
  token: string;
  /** How often a request is sent again after a failure; 8 by default. */
  retries?: number;
  /** How long an attempt may take; 60,000 ms by default. */
  timeoutMs?: number;
  /** Another implementation of `fetch`. */
  fetch?: typeof fetch;
}

type Json<R> = R extends { content: { "application/json": infer T } } ? T : never;

export type Operation = keyof operations;
export type Answer<Op extends Operation> = operations[Op]["responses"] extends infer R
  ? R extends { 200: infer Ok }
    ? Json<Ok>
    : R extends { 201: infer Made }
      ? Json<Made>
      : undefined
  : never;
export type Body<Op extends Operation> = operations[Op] extends { requestBody: infer B } ? Json<B> : never;
export type Query<Op extends Operation> = NonNullable<operations[Op]["parameters"]["query"]>;

export interface Sending<Op extends Operation> {
  body?: Body<Op>;
  query?: Query<Op>;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
  /** Whether the request may be sent twice: it reads, has an idempotency key, or changes nothing twice. */
  repeatable: boolean;
}

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;
const MAY_PASS = new Set([429, 502, 503, 504]);

export class Transport {
  readonly #url: string;
  readonly #token: string;
  readonly #retries: number;
  readonly #timeoutMs: number;
  readonly #fetch: typeof fetch;

  constructor(options: FoldlogOptions) {
    this.#url = `${options.url.replace(/\/+$/, "")}/v1`;
    this.#token = options.token;
    this.#retries = options.retries ?? 8;
    this.#timeoutMs = options.timeoutMs ?? 60_000;
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
  }

  async send<Op extends Operation>(method: string, path: string[], sending: Sending<Op>): Promise<Answer<Op>> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await this.#attempt(method, path, sending);
      } catch (error) {
        sending.signal?.throwIfAborted();
        // 429 refuses a request before anything is done, so each request may follow it.
        const passes = error instanceof Unavailable && (sending.repeatable || error.status === 429);
        if (!passes || attempt >= this.#retries) throw error;
        await pause(pauseMs(attempt, error), sending.signal);
      }
    }
  }

  /** Open a stream of server-sent events. The caller cancels the body, or aborts the signal. */
  async open(
    path: string[],
    query: Record<string, unknown>,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): Promise<ReadableStream<Uint8Array>> {
    const accept = { accept: "text/event-stream", ...headers };
    const response = await this.#request("GET", path, query, { headers: accept, signal });
    if (response.body === null) throw unavailable("the stream of events has no body", undefined);
    return response.body;
  }

  async #attempt<Op extends Operation>(
    method: string,
    path: string[],
    { body, query, headers, signal }: Sending<Op>,
  ): Promise<Answer<Op>> {
    const timeout = AbortSignal.timeout(this.#timeoutMs);
    const init: RequestInit = {
      method,
      headers: { ...headers, ...(body === undefined ? {} : { "content-type": "application/json" }) },
      signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
    };
    if (body !== undefined) init.body = JSON.stringify(body);
    const response = await this.#request(method, path, query ?? {}, init);
    const text = await response.text().catch((error: unknown) => {
      throw unavailable(`${method} ${response.url}: the answer was cut off`, error);
    });
    return (text === "" ? undefined : parsed(text, response)) as Answer<Op>;
  }

  async #request(
    method: string,
    path: string[],
    query: Record<string, unknown>,
    init: RequestInit,
  ): Promise<Response> {
    const url = new URL(`${this.#url}/${path.map(segment).join("/")}`);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined && value !== null) url.searchParams.set(name, String(value));
    }
    const headers = { accept: "application/json", ...init.headers, authorization: `Bearer ${this.#token}` };
    let response: Response;
    try {
      response = await this.#fetch(url, { ...init, headers });
    } catch (error) {
      throw unavailable(`${method} ${url}: no answer: ${reason(error)}`, error);
    }
    if (!response.ok) throw await refusal(response);
    return response;
  }
}

/** Wait, or throw the reason of the signal. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
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

function segment(text: string): string {
  if (text === "" || text === "." || text === "..") {
    throw new TypeError(`${JSON.stringify(text)} cannot be a part of a URL; choose another id`);
  }
  return encodeURIComponent(text);
}

function parsed(text: string, response: Response): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw unavailable(`${response.url}: the answer is not JSON: ${text.slice(0, 80)}`, error);
  }
}

async function refusal(response: Response): Promise<FoldlogError> {
  const { status } = response;
  const text = await response.text().catch(() => "");
  const retryAfterS = Number(response.headers.get("retry-after"));
  const problem: Problem = { type: "about:blank", title: response.statusText, status, detail: `status ${status}` };
  try {
    Object.assign(problem, JSON.parse(text));
  } catch {
    problem.detail = `${response.url} answered ${status}: ${text.slice(0, 200)}`; // a proxy answered
  }
  if (MAY_PASS.has(status) && retryAfterS > 0) problem["retry_after_ms"] = retryAfterS * 1_000;
  return errorOf(problem);
}

function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
}
