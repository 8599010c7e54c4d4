import assert from "node:assert/strict";
import { test } from "node:test";
import {
  memoryStream,
  resumeServerSentEventsResponse,
  type StreamChunk,
  type StreamDurability,
  toServerSentEventsResponse,
} from "@tanstack/ai";
import { Foldlog, FoldlogError, type History } from "foldlog";
import { foldlogStream } from "foldlog/tanstack-ai";
import { Proxy, TestService, TOKEN } from "./service.js";

const service = new TestService("tanstack");

async function newHistory(): Promise<History> {
  const history = service.newHistory();
  await history.appendMessages([{ role: "user", content: "what is a kite?" }]);
  return history;
}

const text = (delta: string): StreamChunk =>
  ({ type: "TEXT_MESSAGE_CONTENT", messageId: "m1", delta, timestamp: 1 }) as unknown as StreamChunk;
const CHUNKS = [
  { type: "RUN_STARTED", runId: "r1", threadId: "t1" } as unknown as StreamChunk,
  ...Array.from({ length: 40 }, (_, number) => text(`${number} ä\u2028`)),
  { type: "RUN_FINISHED", runId: "r1", threadId: "t1", finishReason: "stop" } as unknown as StreamChunk,
];

async function* chunks(): AsyncGenerator<StreamChunk> {
  yield* CHUNKS;
}

/** The events of a response: an id and a chunk each. */
function eventsOf(body: string): { id: string; chunk: StreamChunk }[] {
  const fields = body.split("\n\n").filter((block) => block.includes("data: {"));
  return fields.map((block) => {
    const line = (name: string): string =>
      block
        .split("\n")
        .find((each) => each.startsWith(`${name}: `))
        ?.slice(name.length + 2) ?? "";
    return { id: line("id"), chunk: JSON.parse(line("data")) as StreamChunk };
  });
}

const asked = (query: string, headers: Record<string, string> = {}): Request =>
  new Request(`http://localhost/chat${query}`, { headers });

/** What an adapter answers; the offsets as their places. */
async function answers(make: (runId: string, offset?: string) => StreamDurability): Promise<unknown[]> {
  const results: unknown[] = [];
  const run = `run ${service.newNumber()}/ä`;
  const producer = make(run);
  results.push(producer.resumeFrom(), await producer.snapshot());
  const offsets = [...(await producer.append([])), ...(await producer.append(CHUNKS.slice(0, 2)))];
  offsets.push(...(await producer.append(CHUNKS.slice(2, 5))));
  assert.equal(new Set(offsets).size, 5);
  const place = (offset: string): number => offsets.indexOf(offset);
  const entries = (found: { offset: string; chunk: unknown }[]): unknown[] =>
    found.map(({ offset, chunk }) => [place(offset), chunk]);
  results.push(entries(await make(run).snapshot()));
  const reader = make(run, offsets[1]);
  results.push(place(reader.resumeFrom() ?? ""));
  const read: { offset: string; chunk: unknown }[] = [];
  for await (const entry of reader.read(reader.resumeFrom() as string)) {
    read.push(entry);
    if (read.length !== 3) continue;
    offsets.push(...(await producer.append(CHUNKS.slice(5, 6))));
    await producer.close();
    await producer.close();
  }
  results.push(entries(read));
  const all: { offset: string; chunk: unknown }[] = [];
  for await (const entry of make(run).read("-1")) all.push(entry);
  results.push(entries(all));
  const ending = new AbortController();
  const waiting = make(`${run} 2`);
  await waiting.append(CHUNKS.slice(0, 1));
  for await (const { chunk } of make(`${run} 2`).read("-1", ending.signal)) {
    results.push(chunk);
    ending.abort(); // the run has not ended, and the reader goes
  }
  return results;
}

test("the five methods answer as TanStack AI's own adapter does", async () => {
  const history = await newHistory();
  const expected = await answers((runId, offset) => memoryStream({ runId, ...(offset && { offset }) }));
  const own = await answers((runId, offset) => foldlogStream(history, { runId, ...(offset && { offset }) }));
  // the ids of the runs differ, and nothing else
  assert.deepEqual(own, expected);
});

test("a response that was cut off goes on in another process, and the model is called once", async () => {
  const { id } = await newHistory();
  let number = 0;
  const proxy = await new Proxy(
    () => service.url,
    () => ((number += 1) % 5 === 0 ? "cut" : "none"),
  ).start();
  try {
    const history = (): History => new Foldlog({ url: proxy.url, token: TOKEN }).histories.open(id);
    const adapter = foldlogStream(history(), asked("?runId=r1"));
    const response = toServerSentEventsResponse(chunks(), { durability: { adapter, batch: 4 } });
    const events = eventsOf(await response.text());
    const texts = events.map(({ chunk }) => chunk).filter(({ type }) => type === "TEXT_MESSAGE_CONTENT");
    assert.deepEqual(texts, CHUNKS.slice(1, -1));
    for (const place of [0, 7, events.length - 1]) {
      const request = asked("", { "last-event-id": events[place]?.id ?? "" });
      const resumed = resumeServerSentEventsResponse({ adapter: foldlogStream(history(), request) });
      assert.deepEqual(eventsOf(await resumed.text()), events.slice(place + 1));
    }
    const joined = resumeServerSentEventsResponse({ adapter: foldlogStream(history(), asked("?offset=-1&runId=r1")) });
    assert.deepEqual(eventsOf(await joined.text()), events);
  } finally {
    await proxy.stop();
  }
});

test("an offset of another run, and a run that nobody knows, are refused", async () => {
  const history = await newHistory();
  const [offset = ""] = await foldlogStream(history, { runId: "r1" }).append(CHUNKS.slice(0, 1));
  await assert.rejects(
    foldlogStream(history, { runId: "r2" }).read(offset)[Symbol.asyncIterator]().next(),
    /is not of the run "r2"/,
  );
  const unknown = foldlogStream(history, { runId: "r3" });
  await assert.rejects(
    unknown.read("-1")[Symbol.asyncIterator]().next(),
    (error: FoldlogError) => error.status === 404,
  );
  assert.deepEqual(await unknown.snapshot(), []);
  assert.throws(() => foldlogStream(history, { runId: "" }), /the id of a run is ""/);
});

test("the chunks of a run are erased with their conversation", async () => {
  const history = await newHistory();
  await foldlogStream(history, { runId: "r1" }).append(CHUNKS.slice(0, 3));
  await history.erase({ reason: "asked" });
  await assert.rejects(foldlogStream(history, { runId: "r1" }).snapshot(), { name: "ConversationErased" });
});

test("a stream that could not be begun is begun by the next append", async () => {
  const history = service.newHistory();
  const stream = foldlogStream(history, { runId: `run ${service.newNumber()}` });
  await assert.rejects(stream.append(CHUNKS.slice(0, 1)), { name: "ConversationNotFound" });
  await history.appendMessages([{ role: "user", content: "hi" }]);
  assert.equal((await stream.append(CHUNKS.slice(0, 1))).length, 1);
});
