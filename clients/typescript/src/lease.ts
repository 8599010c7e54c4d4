/** Holds the lease of a conversation while some work runs. */

import { FoldlogError, LeaseLost, leaseLost, LeaseTaken, Unavailable } from "./errors.js";
import { pause, type Transport } from "./transport.js";

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

export async function holdLease<T>(
  transport: Transport,
  conversation: string,
  options: LeaseOptions,
  work: (lease: Lease) => Promise<T>,
): Promise<T> {
  const { signal, ttlS = 30 } = options;
  const requests = new LeaseRequests(transport, conversation, options.worker, ttlS);
  let renewedAt = await requests.take(options.waitS ?? 0, signal);
  const lost = new AbortController();
  const ended = new AbortController();
  let expiry = expireAt(renewedAt);

  function expireAt(sentAt: number): ReturnType<typeof setTimeout> {
    const leftMs = sentAt + ttlS * 1_000 - performance.now();
    return setTimeout(() => lost.abort(leaseLost(conversation)), leftMs);
  }

  async function keepRenewing(ending: AbortSignal): Promise<void> {
    for (;;) {
      await pause((ttlS * 1_000) / RENEWALS, ending);
      renewedAt = await requests.renew(ending);
      clearTimeout(expiry);
      expiry = expireAt(renewedAt);
    }
  }

  const ending = AbortSignal.any([ended.signal, lost.signal]);
  const renewing = keepRenewing(ending).catch((error: unknown) => {
    // The service refused the renewal, or did not answer: then the time of the lease decides.
    if (!ending.aborted && !(error instanceof Unavailable)) lost.abort(error);
  });
  try {
    const held = signal === undefined ? lost.signal : AbortSignal.any([signal, lost.signal]);
    return await work({ token: requests.token, signal: held });
  } finally {
    ended.abort();
    clearTimeout(expiry);
    await renewing;
    if (!lost.signal.aborted) await requests.release();
  }
}

/** The requests about the lease of one worker. Times are of this process, in milliseconds. */
class LeaseRequests {
  token = "";
  readonly #transport: Transport;
  readonly #path: string[];
  readonly #worker: string;
  readonly #ttlS: number;

  constructor(transport: Transport, conversation: string, worker: string, ttlS: number) {
    this.#transport = transport;
    this.#path = ["conversations", conversation, "lease"];
    this.#worker = worker;
    this.#ttlS = ttlS;
  }

  /**
   * Take the lease, and return a time before which it was not renewed. If an answer is lost, the
   * next attempt waits until the lease of the attempt before has ended: it has another token.
   */
  async take(waitS: number, signal: AbortSignal | undefined): Promise<number> {
    const giveUpAt = performance.now() + waitS * 1_000;
    for (;;) {
      const sentAt = performance.now();
      const wait_s = Math.min(Math.max(0, (giveUpAt - sentAt) / 1_000), LONGEST_WAIT_S);
      const body = { worker: this.#worker, ttl_s: this.#ttlS, wait_s };
      try {
        const sending = { body, signal, repeatable: true };
        this.token = (await this.#transport.send<"take_lease">("POST", this.#path, sending)).token;
        const isRecent = performance.now() - sentAt < (this.#ttlS * 1_000) / RENEWALS;
        return isRecent ? sentAt : await this.renew(signal);
      } catch (error) {
        const mayFollow = error instanceof LeaseTaken || error instanceof LeaseLost;
        if (!mayFollow || performance.now() >= giveUpAt) throw error;
      }
    }
  }

  async renew(signal: AbortSignal | undefined): Promise<number> {
    const sentAt = performance.now();
    const sending = { body: { ttl_s: this.#ttlS }, headers: this.#headers, signal, repeatable: true };
    await this.#transport.send<"renew_lease">("PUT", this.#path, sending);
    return sentAt;
  }

  /** Release the lease. If this fails, the lease ends by itself. */
  async release(): Promise<void> {
    const sending = { headers: this.#headers, repeatable: true };
    await this.#transport.send<"release_lease">("DELETE", this.#path, sending).catch((error: unknown) => {
      if (!(error instanceof FoldlogError)) throw error;
    });
  }

  get #headers(): Record<string, string> {
    return { "foldlog-lease": this.token };
  }
}
