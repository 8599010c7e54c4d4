/** Holds the lease of a conversation while some work runs. */

import { FoldlogError, LeaseLost, leaseLost, LeaseTaken, Unavailable } from "./errors.js";
import { type Answer, anyOf, type InConversation, pause, type Sending } from "./transport.js";
import type { Signal } from "./web.js";

export interface LeaseOptions {
  /** The name of this worker, which others read in `LeaseTaken`. */
  worker: string;
  /** The lease ends this many seconds after its last renewal; 30 by default. */
  ttlS?: number;
  /** How long to wait while another worker has the lease; 0 seconds by default. */
  waitS?: number;
  signal?: Signal;
}

export interface Lease {
  token: string;
  /** Aborts with `LeaseLost` when the lease has ended, and with the caller's reason. */
  signal: Signal;
}

/** A request waits for the lease at most this long, and the next one goes on waiting. */
const LONGEST_WAIT_S = 20;
/**
 * A lease is renewed this often in its time, and no attempt takes longer than one such part of it: so
 * one lost request does not end it.
 */
const RENEWALS = 3;

type LeasePath = InConversation<"/lease">;
/** Sends a request about the lease of the conversation. */
export type SendLease = <M extends "post" | "put" | "delete">(
  method: M,
  sending: Sending<M, LeasePath>,
) => Promise<Answer<M, LeasePath>>;

/** Hold the lease while `work` runs. Times are of this process, in milliseconds. */
export async function holdLease<T>(
  send: SendLease,
  conversation: string,
  { worker, ttlS = 30, waitS = 0, signal }: LeaseOptions,
  work: (lease: Lease) => Promise<T>,
): Promise<T> {
  const ttlMs = ttlS * 1_000;
  const lost = new AbortController();
  const ended = new AbortController();
  const ending = AbortSignal.any([ended.signal, lost.signal]);
  let token = "";

  /** Returns a time before which the lease was not renewed. */
  const renew = async (signal: Signal | undefined): Promise<number> => {
    const sentAt = performance.now();
    const headers = { "foldlog-lease": token };
    await send("put", { headers, body: { ttl_s: ttlS }, signal, attemptMs: ttlMs / RENEWALS });
    return sentAt;
  };

  /**
   * Returns a time before which the lease was not renewed. If an answer is lost, the next attempt
   * waits until the lease of the attempt before has ended: it has another token.
   */
  const take = async (): Promise<number> => {
    const giveUpAt = performance.now() + waitS * 1_000;
    for (;;) {
      const sentAt = performance.now();
      const wait_s = Math.min(Math.max(0, (giveUpAt - sentAt) / 1_000), LONGEST_WAIT_S);
      try {
        const body = { worker, ttl_s: ttlS, wait_s };
        ({ token } = await send("post", { body, signal, waitMs: wait_s * 1_000 }));
        return performance.now() - sentAt < ttlMs / RENEWALS ? sentAt : await renew(signal);
      } catch (error) {
        const mayFollow = error instanceof LeaseTaken || error instanceof LeaseLost;
        if (!mayFollow || performance.now() >= giveUpAt) throw error;
      }
    }
  };

  const expireAfter = (sentAt: number): ReturnType<typeof setTimeout> =>
    setTimeout(() => lost.abort(leaseLost(conversation)), sentAt + ttlMs - performance.now());
  let renewedAt = await take();
  let expiry = expireAfter(renewedAt);
  const keepRenewing = async (): Promise<void> => {
    for (;;) {
      await pause(renewedAt + ttlMs / RENEWALS - performance.now(), ending);
      renewedAt = await renew(ending);
      clearTimeout(expiry);
      expiry = expireAfter(renewedAt);
    }
  };
  const renewing = keepRenewing().catch((error: unknown) => {
    // The service refused the renewal, or did not answer: then the time of the lease decides.
    if (!ending.aborted && !(error instanceof Unavailable)) lost.abort(error);
  });
  try {
    return await work({ token, signal: anyOf(signal, lost.signal) });
  } finally {
    ended.abort();
    clearTimeout(expiry);
    await renewing;
    if (!lost.signal.aborted) {
      // If this fails, the lease ends by itself.
      await send("delete", { headers: { "foldlog-lease": token } }).catch((error: unknown) => {
        if (!(error instanceof FoldlogError)) throw error;
      });
    }
  }
}
