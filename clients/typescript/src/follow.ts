/** Follows new events over server-sent events, and continues after each break where it stopped. */

import { errorOf, type FoldlogError, type Problem, Unavailable, unavailable } from "./errors.js";
import type { components } from "./openapi.js";
import { anyOf, pause, pauseMs, type Transport, type Values } from "./transport.js";
import type { ByteStream, Signal } from "./web.js";

export type RecordedEvent = components["schemas"]["RecordedEvent"];

export interface FollowOptions {
  /** Follow behind this place; by default from the beginning. */
  after?: string | number;
  /** Ends the loop without an error. */
  signal?: Signal;
  /** Connect again after this time without an event or a heartbeat; the server sends one in 15 s. */
  silenceMs?: number;
}

/** A followed event. To continue after it in another process, store `after`. */
export interface FollowedEvent extends RecordedEvent {
  after: string;
}

/** The events behind a place, until the signal aborts. */
export async function* follow(
  transport: Transport,
  path: string,
  values: Values,
  { after: start = "0", signal, silenceMs = 45_000 }: FollowOptions,
): AsyncGenerator<FollowedEvent, void, undefined> {
  let after = String(start);
  for (let attempt = 0; !signal?.aborted; attempt += 1) {
    const broken = new AbortController();
    let reason: FoldlogError | undefined;
    const unlessSilent = <T>(work: Promise<T>): Promise<T> => {
      const timer = setTimeout(() => broken.abort(), silenceMs);
      return work.finally(() => clearTimeout(timer));
    };
    try {
      const headers = { accept: "text/event-stream", "last-event-id": after };
      const sending = { values, headers, signal: anyOf(signal, broken.signal) };
      const { body } = await unlessSilent(transport.request("get", path, sending));
      if (body === null) throw unavailable("the stream of events has no body", undefined);
      for await (const block of blocks(body, unlessSilent)) {
        const { id, event: name, data = "" } = fieldsOf(block);
        if (name === undefined) continue; // such as "retry"
        attempt = 0;
        if (name === "problem") throw errorOf(JSON.parse(data) as Problem);
        after = id ?? after;
        if (name === "event") yield { ...(JSON.parse(data) as RecordedEvent), after };
      }
    } catch (error) {
      if (signal?.aborted) return;
      if (!(error instanceof Unavailable)) throw error;
      reason = error;
    } finally {
      broken.abort();
    }
    await pause(pauseMs(attempt, reason), signal).catch(() => undefined); // an abort ends the loop
  }
}

/** The server-sent events of a stream. An event that is cut off by the end is left out. */
export async function* blocks(
  body: ByteStream,
  unlessSilent: <T>(work: Promise<T>) => Promise<T>,
): AsyncGenerator<string, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const broken = (error: unknown): never => {
    throw unavailable("the stream of events broke", error);
  };
  let parts: string[] = [];
  try {
    for (;;) {
      const { done, value } = await unlessSilent(reader.read()).catch(broken);
      if (done) return;
      const part = decoder.decode(value, { stream: true });
      if (part === "") continue; // the middle of a character
      const isComplete = `${parts.at(-1)?.at(-1) ?? ""}${part}`.includes("\n\n");
      parts.push(part);
      if (!isComplete) continue;
      const complete = parts.join("").split("\n\n");
      parts = [complete.pop() ?? ""];
      yield* complete;
    }
  } finally {
    await reader.cancel().catch(() => undefined); // the connection is gone already
  }
}

/**
 * The fields of a server-sent event. Each field of the service is one line, which only a line feed
 * ends: a text may have other separators of lines.
 */
function fieldsOf(block: string): { id?: string; event?: string; data?: string } {
  const fields = block.split("\n").map((line) => {
    const colon = line.indexOf(": ");
    return [line.slice(0, colon), line.slice(colon + 2)] as const;
  });
  return Object.fromEntries(fields);
}
