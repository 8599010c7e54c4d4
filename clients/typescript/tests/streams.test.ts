import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { AbstractChat, type ChatState, type ChatStatus, type UIMessage } from "ai";
import { type Delta, Foldlog, FoldlogError, type History, type ReplyPart, type ReplyWriter } from "foldlog";
import { FoldlogChatTransport } from "foldlog/ai-sdk";
import { type Fault, Proxy, type Service, startService, TOKEN } from "./service.js";

let service: Service;
let foldlog: Foldlog;
let fresh = 0;

before(async () => {
  service = await startService();
  foldlog = new Foldlog({ url: service.url, token: TOKEN });
});
after(() => service.stop());

async function newHistory(): Promise<History> {
  const history = foldlog.histories.open(`streamed ${(fresh += 1)}`);
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
  const proxy = await new Proxy(() => service.url, () => faults[(number += 1) % faults.length] ?? "none").start();
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

test("what a killed worker left is appended as cut, without half a call", async () => {
  const history = await newHistory();
  const left = await history.streamReply();
  await left.feed(text("A toy"), { type: "call", at: 0, id: "k", tool: "look", arguments: '{"at' });
  await assert.rejects(history.streamReply(), (error: FoldlogError) => error.status === 409);
  await history.cutReply();
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
  const { token } = await foldlog.histories.open(chatId).readToken(60);
  return new Foldlog({ url: service.url, token }).histories.open(chatId);
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
