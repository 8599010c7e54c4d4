import assert from "node:assert/strict";
import { test } from "node:test";
import { AbstractChat, type ChatState, type ChatStatus, type UIMessage } from "ai";
import { type Delta, Foldlog, type History, NEWEST, NotAllowed, type ReplyPart, type ReplyWriter } from "foldlog";
import { FoldlogChatTransport } from "foldlog/ai-sdk";
import { type Fault, Proxy, TestService, TOKEN } from "./service.js";

const service = new TestService("streamed");

async function newHistory(): Promise<History> {
  const history = service.newHistory();
  await history.appendMessages([{ role: "user", content: "what is a kite?" }]);
  return history;
}

const text = (piece: string): Delta => ({ type: "text", text: piece });
const WORDS = Array.from({ length: 60 }, (_, number) => `${number} `);

async function contents(history: History): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const event of history.events(1)) found.push(event["content"]);
  return found;
}

async function textOf(parts: AsyncIterable<ReplyPart>): Promise<string> {
  let found = "";
  for await (const { delta } of parts) if (delta.type === "text") found += delta.text;
  return found;
}

test("a reader gets each piece once, and the reply is appended with the end of its stream", async () => {
  const history = await newHistory();
  assert.equal(await history.isReplying(), false);
  await history.lease({ worker: "w" }, async (held) => {
    const writer = await held.streamReply();
    const reading = textOf(history.followReply());
    for (const word of WORDS) await writer.feed(text(word));
    assert.equal(await history.isReplying(), true);
    const { version } = await writer.end({ role: "assistant", content: WORDS.join("") });
    assert.equal(version, 2);
    assert.equal(await reading, WORDS.join(""));
  });
  assert.equal(await history.isReplying(), false);
  assert.deepEqual(await contents(history), [WORDS.join("")]);
});

test("writers and readers behind a proxy that breaks connections lose and double nothing", async () => {
  const { id } = await newHistory();
  const faults: Fault[] = ["none", "drop", "cut", "none", "cut in the body", "repeat", "none", "busy", "delay"];
  let number = 0;
  const proxy = await new Proxy(
    () => service.url,
    () => faults[(number += 1) % faults.length] ?? "none",
  ).start();
  try {
    const history = new Foldlog({ url: proxy.url, token: TOKEN }).histories.open(id);
    const writer = await history.streamReply();
    const reading = textOf(history.followReply());
    for (const word of WORDS) await writer.feed(text(word));
    await writer.end();
    assert.equal(await reading, WORDS.join(""));
    assert.deepEqual(await contents(history), [WORDS.join("")]);
  } finally {
    await proxy.stop();
  }
});

test("a reader reads on after an offset", async () => {
  const history = await newHistory();
  const writer = await history.streamReply();
  await writer.feed(text("A "));
  const first = await history.followReply().next();
  assert(!first.done);
  await writer.feed(text("toy"));
  await writer.end();
  assert.equal(await textOf(history.followReply({ after: first.value.offset })), "toy");
  assert.equal(await textOf(history.followReply()), ""); // no reply is being written
});

test("another worker goes on with a reply, in the same stream", async () => {
  const history = await newHistory();
  assert.equal(await history.unfinishedReply(), undefined);
  await (await history.streamReply()).feed({ type: "reasoning", text: "hm" }, ...WORDS.slice(0, 20).map(text));
  const reading = textOf(history.followReply());
  await history.lease({ worker: "w" }, async (held) => {
    const unfinished = await held.unfinishedReply();
    assert(unfinished);
    assert.deepEqual([unfinished.reasoning, unfinished.hasCalls], ["hm", false]);
    assert.deepEqual(unfinished.message, { role: "assistant", content: WORDS.slice(0, 20).join("") });
    const writer = unfinished.continue();
    for (const word of WORDS.slice(20)) await writer.feed(text(word));
    await writer.end();
    assert.equal(await held.unfinishedReply(), undefined);
  });
  assert.equal(await reading, WORDS.join(""));
  assert.deepEqual(await contents(history), [WORDS.join("")]);
});

test("a page asks for a new token when its token has ended in the middle of a reply", async () => {
  const history = await newHistory();
  const writer = await history.streamReply();
  await writer.feed(text("A "));
  let opened = 0;
  let answers: "cut" | "refused" | "whole" = "cut";
  const send = async (...sent: Parameters<typeof fetch>): Promise<Response> => {
    if (answers === "refused") return new Response("{}", { status: 401 });
    const response = await fetch(...sent);
    if (answers === "whole" || !String(sent[0]).includes("live=sse")) return response;
    answers = "refused"; // the connection ends after its first bytes, and so does the token
    return new Response((await response.body?.getReader().read())?.value, response);
  };
  const open = (): History => {
    opened += 1;
    if (opened > 1) answers = "whole";
    return new Foldlog({ url: service.url, token: TOKEN, fetch: send }).histories.open(history.id);
  };
  const transport = new FoldlogChatTransport({
    send: async () => undefined,
    history: open,
    reply: await history.openReply(),
  });
  const stream = await transport.reconnectToStream({ chatId: history.id });
  assert(stream);
  const reader = stream.getReader();
  const types: string[] = [];
  let shown = "";
  for (let step = await reader.read(); !step.done; step = await reader.read()) {
    types.push(step.value.type);
    if (step.value.type !== "text-delta") continue;
    shown += step.value.delta;
    if (shown === "A ") await writer.feed(text("toy"));
    if (shown === "A ") await writer.end();
  }
  assert.equal(shown, "A toy");
  assert.equal(opened, 2);
  assert.equal(types.filter((type) => type === "start").length, 1);
  const refusing = service.client("of nobody").histories.open(history.id);
  const refused = new FoldlogChatTransport({ send: async () => undefined, history: () => refusing, reply: NEWEST });
  await assert.rejects(refused.reconnectToStream({ chatId: history.id }), NotAllowed);
});

test("what a killed worker left is appended as cut, without half a call", async () => {
  const history = await newHistory();
  const left = await history.streamReply();
  await left.feed(text("A toy"), { type: "call", at: 0, id: "k", tool: "look", arguments: '{"at' });
  await assert.rejects(history.streamReply(), {
    name: "ReplyUnfinished",
    message: /call unfinishedReply\(\) in history\.lease/,
  });
  await assert.rejects(history.cutReply(), /take the lease/);
  await history.lease({ worker: "w" }, (held) => held.cutReply());
  assert.deepEqual(await contents(history), ["A toy"]);
  await (await history.streamReply()).cut(); // nothing was written, so nothing is appended
  assert.deepEqual(await contents(history), ["A toy"]);
});

// -- useChat

class State implements ChatState<UIMessage> {
  status: ChatStatus = "ready";
  error: Error | undefined = undefined;
  constructor(public messages: UIMessage[]) {}
  pushMessage = (message: UIMessage): unknown => this.messages.push(message);
  popMessage = (): unknown => this.messages.pop();
  replaceMessage = (index: number, message: UIMessage): void => void (this.messages[index] = structuredClone(message));
  snapshot = <T>(thing: T): T => structuredClone(thing);
}

class Page extends AbstractChat<UIMessage> {
  constructor(history: History, send: () => Promise<unknown>) {
    super({ id: history.id, state: new State([]), transport: new FoldlogChatTransport({ send, history: readerOf }) });
  }

  get text(): string {
    const parts = this.lastMessage?.parts ?? [];
    return parts.map((part) => (part.type === "text" ? part.text : "")).join("");
  }
}

async function readerOf(chatId: string): Promise<History> {
  const { token } = await service.foldlog.histories.open(chatId).readToken(60);
  return service.client(token).histories.open(chatId);
}

test("a page that is loaded again, and a second one, show the whole reply", async () => {
  const history = await newHistory();
  let writer: ReplyWriter | undefined;
  const page = new Page(history, async () => (writer = await history.streamReply()));
  const sent = page.sendMessage({ text: "what is a kite?" });
  while (writer === undefined) await new Promise((resolve) => setTimeout(resolve, 5));
  const pages: { page: Page; resumed: Promise<void> }[] = [];
  for (const [number, word] of WORDS.entries()) {
    await writer.feed(text(word));
    if (number % 6 !== 3) continue;
    const again = new Page(history, async () => assert.fail("the model is called once"));
    pages.push({ page: again, resumed: again.resumeStream() });
    // A page that asks only after the end of the reply has nothing to resume.
    while (again.text === "") await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await writer.end();
  await sent;
  assert.equal(page.text, WORDS.join(""));
  for (const { page, resumed } of pages) {
    await resumed;
    assert.equal(page.text, WORDS.join(""));
  }
  const late = new Page(history, async () => undefined);
  await late.resumeStream();
  assert.equal(late.messages.length, 0);
});
