/**
 * The durability of TanStack AI: each run of a chat is a stream of a conversation, so a page that is
 * loaded again goes on with the run, and no model is called again.
 *
 *     const adapter = foldlogStream(history, request);
 *     return toServerSentEventsResponse(stream, { durability: { adapter } });        // POST
 *     return resumeServerSentEventsResponse({ adapter });                            // GET
 */

import type { StreamChunk, StreamDurability } from "@tanstack/ai";
import { FoldlogError } from "./errors.js";
import type { History } from "./history.js";
import { followStream, readStream } from "./streams.js";
import type { WebRequest } from "./web.js";

/** A run without the request that asks for it. */
export interface FoldlogRun {
  runId: string;
  offset?: string | null;
}

export interface FoldlogStreamOptions {
  /** How long the chunks stay after the last request to their stream; 3,600 seconds by default. */
  ttlS?: number;
}

/**
 * The chunks of a run. The request names the run as TanStack AI does: by the header `X-Run-Id`, by
 * `runId` in its address, or by the offset after which it resumes. Otherwise it is a new run.
 */
export function foldlogStream(
  history: History,
  source: WebRequest | FoldlogRun,
  { ttlS = 3_600 }: FoldlogStreamOptions = {},
): StreamDurability {
  const { runId, offset: resumed } = runOf(source);
  const requests = history.streamRequests(`run-${runId}`);
  const producer = crypto.randomUUID();
  let sequence = 0;
  let begun: Promise<unknown> | undefined;

  /** Begin the stream, once. A stream that another program began for the run is the same stream. */
  const begin = (): Promise<unknown> => {
    begun ??= requests.send("put", { body: [], headers: { "stream-ttl": String(ttlS) } }).catch((error: unknown) => {
      begun = undefined; // the next call tries again
      throw error;
    });
    return begun;
  };
  return {
    resumeFrom: () => resumed,

    async append(chunks) {
      if (chunks.length === 0) return [];
      await begin();
      const number = { "producer-id": producer, "producer-epoch": "0", "producer-seq": String(sequence) };
      sequence += 1;
      const { headers } = await requests.exchange("post", { body: chunks, headers: number });
      return offsetsOf(runId, headers.get("stream-next-offset") as string, chunks.length);
    },

    async *read(offset, signal) {
      for await (const batch of followStream(requests, placeOf(runId, offset), signal)) {
        yield* entriesOf(runId, batch);
      }
    },

    async snapshot() {
      try {
        return entriesOf(runId, await readStream(requests, "-1"));
      } catch (error) {
        if (isUnknown(error)) return [];
        throw error;
      }
    },

    async close() {
      await begin();
      await requests.send("post", { headers: { "stream-closed": "true" } });
    },
  };
}

/** The run that a request names, and the offset after which it resumes. */
function runOf(source: WebRequest | FoldlogRun): { runId: string; offset: string | null } {
  if ("runId" in source) return { runId: checkedRun(source.runId), offset: source.offset ?? null };
  const query = new URL(source.url, "http://localhost").searchParams;
  const offset = source.headers.get("last-event-id") || query.get("offset");
  const named = source.headers.get("x-run-id") || query.get("runId");
  const ofOffset = offset?.includes(":") ? decodeURIComponent(offset.split(":")[0] ?? "") : undefined;
  return { runId: checkedRun(ofOffset ?? named ?? crypto.randomUUID()), offset };
}

/** The id of a run that a header can carry. */
function checkedRun(runId: string): string {
  if (runId === "" || /[\r\n]/.test(runId))
    throw new TypeError(`the id of a run is ${JSON.stringify(runId)}; send a line with a text`);
  return runId;
}

// -- offsets: RUN:STREAM_UNIT, where STREAM_UNIT is the offset of the service behind a chunk

/** The offset of the service in an offset of a run. */
function placeOf(runId: string, offset: string): string {
  if (offset === "-1" || offset === "now") return offset;
  const [run = "", place = ""] = offset.split(":");
  if (decodeURIComponent(run) === runId) return place;
  throw new TypeError(`the offset ${JSON.stringify(offset)} is not of the run ${JSON.stringify(runId)}`);
}

/** The offsets of the last `count` values before a place. */
function offsetsOf(runId: string, place: string, count: number): string[] {
  const [stream = "", unit = ""] = place.split("_");
  const first = Number(unit) - count + 1;
  return Array.from({ length: count }, (_, index) => {
    const behind = String(first + index).padStart(unit.length, "0");
    return `${encodeURIComponent(runId)}:${stream}_${behind}`;
  });
}

/** The chunks of a batch, each with the offset behind it. */
function entriesOf(
  runId: string,
  { values, offset }: { values: unknown[]; offset: string },
): { offset: string; chunk: StreamChunk }[] {
  const offsets = offsetsOf(runId, offset, values.length);
  return (values as StreamChunk[]).map((chunk, index) => ({ chunk, offset: offsets[index] as string }));
}

function isUnknown(error: unknown): boolean {
  return error instanceof FoldlogError && error.status === 404;
}
