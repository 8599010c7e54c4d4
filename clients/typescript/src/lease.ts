/** Holds the lease of a conversation while some work runs. */

import { FoldlogError, LeaseLost, leaseLost, LeaseTaken, Unavailable } from "./errors.js";
import { anyOf, pause, type Transport, type Values } from "./transport.js";

export interface LeaseOptions {
  /** The name of this worker, which others read in `LeaseTaken`. */
  worker: string;
  /** The lease ends this many seconds after its last renewal; 30 by default. */
  ttlS?: number;
  /** How long to wait while another worker has the lease; 0 seconds by default. */
  waitS?: number;
  signal?: AbortSignal;
}

export interface Lease {
  token: string;
  /** Aborts with `LeaseLost` when the lease has ended, and with the caller's reason. */
  signal: AbortSignal;
}

const LONGEST_WAIT_S = 20;
const RENEWALS = 3;
const LEASE = "/v1/conversations/{conversation}/lease";

/** The requests about the lease of one worker. Times are of this process, in milliseconds. */
export class LeaseRequests {
  readonly #transport: Transport;
  readonly #conversation: string;
  readonly #options: LeaseOptions;
  readonly #ttlMs: number;
  #token = "";

  constructor(transport: Transport, conversation: string, options: LeaseOptions) {
    this.#transport = transport;
    this.#conversation = conversation;
    this.#options = options;
    this.#ttlMs = (options.ttlS ?? 30) * 1_000;
  }

  async hold<T>(work: (lease: Lease) => Promise<T>): Promise<T> {
    const { signal } = this.#options;
    const lost = new AbortController();
    const ended = new AbortController();
    const ending = AbortSignal.any([ended.signal, lost.signal]);
    const expireAfter = (sentAt: number): ReturnType<typeof setTimeout> =>
      setTimeout(() => lost.abort(leaseLost(this.#conversation)), sentAt + this.#ttlMs - performance.now());
    let expiry = expireAfter(await this.#take());

    const keepRenewing = async (): Promise<void> => {
      for (;;) {
        await pause(this.#ttlMs / RENEWALS, ending);
        const sentAt = await this.#renew(ending);
        clearTimeout(expiry);
        expiry = expireAfter(sentAt);
      }
    };
    const renewing = keepRenewing().catch((error: unknown) => {
      // The service refused the renewal, or did not answer: then the time of the lease decides.
      if (!ending.aborted && !(error instanceof Unavailable)) lost.abort(error);
    });
    try {
      return await work({ token: this.#token, signal: anyOf(signal, lost.signal) });
    } finally {
      ended.abort();
      clearTimeout(expiry);
      await renewing;
      if (!lost.signal.aborted) await this.#release();
    }
  }

  /**
   * Take the lease, and return a time before which it was not renewed. If an answer is lost, the
   * next attempt waits until the lease of the attempt before has ended: it has another token.
   */
  async #take(): Promise<number> {
    const { worker, waitS = 0, signal } = this.#options;
    const giveUpAt = performance.now() + waitS * 1_000;
    for (;;) {
      const sentAt = performance.now();
      const wait_s = Math.min(Math.max(0, (giveUpAt - sentAt) / 1_000), LONGEST_WAIT_S);
      try {
        const body = { worker, ttl_s: this.#ttlMs / 1_000, wait_s };
        this.#token = (await this.#transport.send("post", LEASE, { values: this.#values, body, signal })).token;
        const isRecent = performance.now() - sentAt < this.#ttlMs / RENEWALS;
        return isRecent ? sentAt : await this.#renew(signal);
      } catch (error) {
        const mayFollow = error instanceof LeaseTaken || error instanceof LeaseLost;
        if (!mayFollow || performance.now() >= giveUpAt) throw error;
      }
    }
  }

  async #renew(signal: AbortSignal | undefined): Promise<number> {
    const sentAt = performance.now();
    const body = { ttl_s: this.#ttlMs / 1_000 };
    await this.#transport.send("put", LEASE, { ...this.#sending, body, signal });
    return sentAt;
  }

  /** Release the lease. If this fails, the lease ends by itself. */
  async #release(): Promise<void> {
    await this.#transport.send("delete", LEASE, this.#sending).catch((error: unknown) => {
      if (!(error instanceof FoldlogError)) throw error;
    });
  }

  get #sending(): { values: Values; headers: Record<string, string> } {
    return { values: this.#values, headers: { "foldlog-lease": this.#token } };
  }

  get #values(): Values {
    return { conversation: this.#conversation };
  }
}
