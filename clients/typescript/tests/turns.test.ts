/** What a page of `useChat` shows of a turn with tools, approvals and several replies. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as newest from "ai";
import type { ChatState, ChatStatus, UIMessage } from "ai";
import * as oldest from "ai-oldest";
import { type HeldHistory, type History, NoReply, NotApproved } from "foldlog";
import { type ChatRequest, FoldlogChatTransport, loadChat, type LoadedChat, saveRequest } from "foldlog/ai-sdk";
import { TestService } from "./service.js";

const service = new TestService("turn");

const { newHistory } = service;

class State implements ChatState<UIMessage> {
  status: ChatStatus = "ready";
  error: Error | undefined = undefined;
  constructor(public messages: UIMessage[]) {}
  pushMessage = (message: UIMessage): unknown => (this.messages = this.messages.concat(message));
  popMessage = (): unknown => (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index: number, message: UIMessage): void => {
    this.messages = this.messages.map((before, place) => (place === index ? structuredClone(message) : before));
  };
  snapshot = <T>(thing: T): T => structuredClone(thing);
}

/** The parts as short words. */
function shown(message: UIMessage | undefined): unknown[] {
  return ((message?.parts ?? []) as unknown as Record<string, unknown>[]).map((part) => {
    if (part["type"] === "text") return part["text"];
    if (part["type"] === "step-start") return "--";
    return [part["type"], part["state"], part["output"] ?? part["errorText"] ?? null];
  });
}

async function stream(held: HeldHistory, words: string, tool?: string): Promise<void> {
  const writer = await held.streamReply();
  for (const word of words.match(/\S+\s*/gu) ?? []) await writer.feed({ type: "text", text: word });
  if (tool)
    await writer.feed({ type: "call", at: 0, id: `call ${words}`, tool, arguments: '{"to":"Ann"}', ends: true });
  await writer.end();
}

/** A server whose model says "Let me see." and calls a tool for "pay" and "look", and otherwise repeats. */
class Server {
  requests = 0;
  runs = 0;
  /** Resolves for each step of the agent, so that a test can hold it. */
  gate: (step: string) => Promise<void> = async () => undefined;

  constructor(readonly history: History) {}

  send = async ({ messages, trigger }: ChatRequest): Promise<void> => {
    this.requests += 1;
    await new Promise<void>((begun, failed) => {
      const work = async (held: HeldHistory): Promise<void> => {
        await (await held.unfinishedReply())?.cut();
        await saveRequest(held, { messages, ...(trigger === undefined ? {} : { trigger }) }, { by: "ann" });
        await this.#answer(held, begun);
      };
      this.history.lease({ worker: "server", waitS: 20 }, work).then(begun, failed);
    });
  };

  async #answer(held: HeldHistory, begun: () => void): Promise<void> {
    for (;;) {
      for (const call of await held.openCalls()) {
        try {
          await this.gate("tool");
          await held.run(call, () => `ran ${(this.runs += 1)}`, { needsApproval: call.tool === "pay" });
        } catch (error) {
          if (!(error instanceof NotApproved)) throw error;
          await held.askApproval(call, { to: "ann", shown: {} }, { idempotencyKey: `ask ${call.id}` });
          return;
        }
      }
      const last = (await held.messages()).at(-1);
      if (last?.role === "assistant") return;
      const words = String(last?.content);
      begun();
      await this.gate("reply");
      const isCall = last?.role === "user" && /^(pay|look)/.test(words);
      await stream(held, isCall ? "Let me see." : `You said: ${words}`, isCall ? words.split(" ")[0] : undefined);
    }
  }
}

async function readerOf(chatId: string): Promise<History> {
  const { token } = await service.foldlog.histories.open(chatId).readToken(60);
  return service.client(token).histories.open(chatId);
}

for (const [
  name,
  { AbstractChat, lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls },
] of [
  ["the newest AI SDK", newest],
  ["the oldest AI SDK", oldest as unknown as typeof newest],
] as const) {
  class Page extends AbstractChat<UIMessage> {
    constructor(
      server: Server,
      loaded?: LoadedChat,
      sendAutomaticallyWhen?: (chat: { messages: UIMessage[] }) => boolean,
    ) {
      const { version } = loaded ?? {};
      super({
        id: server.history.id,
        state: new State(loaded?.messages ?? []),
        ...(sendAutomaticallyWhen ? { sendAutomaticallyWhen } : {}),
        transport: new FoldlogChatTransport({
          send: server.send,
          history: readerOf,
          ...(version === undefined ? {} : { version }),
        }),
      });
    }
  }

  const settled = async (page: Page): Promise<void> => {
    for (let quiet = 0; quiet < 5; quiet += 1) {
      await new Promise((resolve) => setTimeout(resolve, 60));
      if (page.status === "submitted" || page.status === "streaming") quiet = 0;
    }
  };

  describe(`a page of ${name}`, () => {
    test("shows the whole turn: a reply, the result of a tool, and the next reply", async () => {
      const server = new Server(newHistory());
      const page = new Page(server, undefined, lastAssistantMessageIsCompleteWithToolCalls);
      await page.sendMessage({ text: "look at it" });
      await settled(page);
      const parts = ["Let me see.", ["tool-look", "output-available", "ran 1"], "--", "You said: ran 1"];
      assert.deepEqual(shown(page.lastMessage), parts);
      assert.equal(server.requests, 1);
      assert.deepEqual(shown((await loadChat(server.history)).messages.at(-1)), parts);
      await page.sendMessage({ text: "and now?" });
      assert.deepEqual(page.messages.map(shown), [["look at it"], parts, ["and now?"], ["You said: and now?"]]);
    });

    test("shows the question of an approval, and one answer runs the tool and one more reply", async () => {
      const server = new Server(newHistory());
      const page = new Page(server, undefined, lastAssistantMessageIsCompleteWithApprovalResponses);
      await page.sendMessage({ text: "pay Ann" });
      assert.deepEqual(shown(page.lastMessage), ["Let me see.", ["tool-pay", "approval-requested", null]]);
      const [, part] = page.lastMessage?.parts as unknown as { approval: { id: string } }[];
      await page.addToolApprovalResponse({ id: part?.approval.id ?? "", approved: true });
      await settled(page);
      const parts = ["Let me see.", ["tool-pay", "output-available", "ran 1"], "--", "You said: ran 1"];
      assert.deepEqual(shown(page.lastMessage), parts);
      assert.equal(page.status, "ready");
      assert.deepEqual([server.requests, server.runs], [2, 1]);
      assert.deepEqual(shown((await loadChat(server.history)).messages.at(-1)), parts);
    });

    test("that was loaded again answers the question", async () => {
      const server = new Server(newHistory());
      await new Page(server).sendMessage({ text: "pay Ann" });
      const page = new Page(
        server,
        await loadChat(server.history),
        lastAssistantMessageIsCompleteWithApprovalResponses,
      );
      await page.resumeStream();
      const [, part] = page.lastMessage?.parts as unknown as { approval: { id: string } }[];
      await page.addToolApprovalResponse({ id: part?.approval.id ?? "", approved: true });
      await settled(page);
      const parts = ["Let me see.", ["tool-pay", "output-available", "ran 1"], "--", "You said: ran 1"];
      assert.deepEqual(page.messages.map(shown), [["pay Ann"], parts]);
      assert.equal(server.requests, 2);
    });

    test("whose answer begins nothing stops with an error, and does not ask again", async () => {
      const server = new Server(newHistory());
      const page = new Page(server, undefined, lastAssistantMessageIsCompleteWithApprovalResponses);
      await page.sendMessage({ text: "pay Ann" });
      const { send } = server;
      let sent = 0;
      server.send = async () => void (sent += 1);
      const failing = new Page(
        server,
        await loadChat(server.history),
        lastAssistantMessageIsCompleteWithApprovalResponses,
      );
      const [, part] = failing.lastMessage?.parts as unknown as { approval: { id: string } }[];
      await failing.addToolApprovalResponse({ id: part?.approval.id ?? "", approved: true });
      while (failing.status !== "error") await new Promise((resolve) => setTimeout(resolve, 20));
      assert(failing.error instanceof NoReply);
      await settled(failing);
      assert.equal(sent, 1);
      server.send = send;
    });

    test("shows a reply once if the request is repeated", async () => {
      const server = new Server(newHistory());
      const page = new Page(server);
      await page.sendMessage({ text: "hello" });
      await page.sendMessage(); // nothing follows
      assert.deepEqual(page.messages.map(shown), [["hello"], ["You said: hello"]]);
      await page.sendMessage({ text: "next" });
      assert.deepEqual(page.messages.map(shown), [["hello"], ["You said: hello"], ["next"], ["You said: next"]]);
      assert.deepEqual((await loadChat(server.history)).messages.map(shown), page.messages.map(shown));
    });

    test("shows the reply to a request whose answer was lost", async () => {
      const server = new Server(newHistory());
      const { send } = server;
      server.send = async (sent) => {
        await send(sent);
        while ((await server.history.state()).lease !== null) await new Promise((resolve) => setTimeout(resolve, 20));
        server.send = send;
        throw new TypeError("the answer was lost");
      };
      const page = new Page({ history: server.history, send: (sent: ChatRequest) => server.send(sent) } as Server);
      await page.sendMessage({ text: "hello" });
      assert.equal(page.status, "error");
      await page.sendMessage();
      assert.deepEqual(page.messages.map(shown), [["hello"], ["You said: hello"]]);
    });

    test("shows a new reply in place of the one before", async () => {
      const server = new Server(newHistory());
      const page = new Page(server);
      await page.sendMessage({ text: "hello" });
      await page.regenerate();
      assert.deepEqual(page.messages.map(shown), [["hello"], ["You said: hello"]]);
      assert.deepEqual(
        (await server.history.messages()).map(({ role }) => role),
        ["user", "assistant"],
      );
      assert.equal((await server.history.state()).version, 4);
    });

    test("gets an answer behind a reply that a killed server left", async () => {
      const server = new Server(newHistory());
      await server.history.appendMessages([{ role: "user", content: "hello" }]);
      await (await server.history.streamReply()).feed({ type: "text", text: "Hi" });
      const page = new Page(server, await loadChat(server.history));
      await page.sendMessage({ text: "and now?" });
      assert.deepEqual(shown(page.lastMessage), ["You said: and now?"]);
      const { messages } = await loadChat(server.history);
      assert.deepEqual(messages.map(shown), [["hello"], ["Hi"], ["and now?"], ["You said: and now?"]]);
    });

    test("of an old tab sends behind the messages of the others", async () => {
      const server = new Server(newHistory());
      const one = new Page(server, await loadChat(server.history));
      const other = new Page(server, await loadChat(server.history));
      await one.sendMessage({ text: "one" });
      await other.sendMessage({ text: "other" });
      assert.deepEqual(other.messages.map(shown), [["other"], ["You said: other"]]);
      const { messages } = await loadChat(server.history);
      assert.deepEqual(messages.map(shown), [["one"], ["You said: one"], ["other"], ["You said: other"]]);
    });

    for (const step of ["reply", "tool"]) {
      test(`that is loaded while an agent works shows the rest of the turn: before a ${step}`, async () => {
        const server = new Server(newHistory());
        let go = (): void => undefined;
        const held = new Promise<void>((resolve) => (go = resolve));
        let replies = 0;
        server.gate = (each) =>
          (each === "reply" ? (replies += 1) === 2 : step === "tool") && step === each ? held : Promise.resolve();
        const sent = new Page(server).sendMessage({ text: "look at it" });
        const wanted = step === "tool" ? 2 : 3;
        while (await loadChat(server.history).then(({ version }) => version < wanted))
          await new Promise((resolve) => setTimeout(resolve, 20));
        const page = new Page(server, await loadChat(server.history));
        const resumed = page.resumeStream();
        await new Promise((resolve) => setTimeout(resolve, 100));
        go();
        await Promise.all([sent, resumed]);
        const parts = ["Let me see.", ["tool-look", "output-available", "ran 1"], "--", "You said: ran 1"];
        assert.deepEqual(page.messages.map(shown), [["look at it"], parts]);
        await page.resumeStream();
        assert.equal(page.messages.length, 2);
      });
    }

    test("that is loaded while an agent works reads the events before its turn once", async () => {
      const server = new Server(newHistory());
      let go = (): void => undefined;
      const held = new Promise<void>((resolve) => (go = resolve));
      server.gate = (step) => (step === "tool" ? held : Promise.resolve());
      const sent = new Page(server).sendMessage({ text: "look at it" });
      while ((await loadChat(server.history)).version < 2) await new Promise((resolve) => setTimeout(resolve, 20));
      let readings = 0;
      const history = async (id: string): Promise<History> => {
        const reader = await readerOf(id);
        const events = reader.events.bind(reader);
        reader.events = (start = 0, stop) => {
          if (start === 0) readings += 1;
          return events(start, stop);
        };
        return reader;
      };
      const { messages, version } = await loadChat(server.history);
      const transport = new FoldlogChatTransport({ send: server.send, history, version });
      const page = new (class extends AbstractChat<UIMessage> {})({
        id: server.history.id,
        state: new State(messages),
        transport,
      });
      const resumed = page.resumeStream();
      while (readings === 0) await new Promise((resolve) => setTimeout(resolve, 20));
      go();
      await Promise.all([sent, resumed]);
      assert.deepEqual(shown(page.lastMessage).at(-1), "You said: ran 1");
      assert.equal(readings, 1);
    });

    test("of a new chat has nothing to resume, and a refused token is an error", async () => {
      const { id, version } = await loadChat(newHistory());
      const resume = (history: () => Promise<History | null>) =>
        new FoldlogChatTransport({ send: async () => undefined, history, version }).reconnectToStream({ chatId: id });
      assert.equal(await resume(async () => null), null);
      await assert.rejects(
        resume(() => Promise.reject(new Error("no token today"))),
        /no token today/,
      );
    });

    test("that was opened at rest resumes a reply that began later, at the first try", async () => {
      const server = new Server(newHistory());
      const loaded = { ...(await loadChat(server.history)), reply: null };
      let go = (): void => undefined;
      const held = new Promise<void>((resolve) => (go = resolve));
      const writing = server.history.lease({ worker: "w" }, async (history) => {
        await history.appendMessages([{ role: "user", content: "hello" }]);
        const writer = await history.streamReply();
        await writer.feed({ type: "text", text: "Hi " });
        await held;
        await writer.feed({ type: "text", text: "there." });
        await writer.end();
      });
      while ((await server.history.openReply()) === null) await new Promise((resolve) => setTimeout(resolve, 20));
      const transports = [{ reply: loaded.reply }, { version: loaded.version }].map(
        (options) => new FoldlogChatTransport({ send: server.send, history: readerOf, ...options }),
      );
      const pages = transports.map(
        (transport) =>
          new (class extends AbstractChat<UIMessage> {})({ id: server.history.id, state: new State([]), transport }),
      );
      const resumed = pages.map((page) => page.resumeStream());
      while (pages.some(({ messages }) => messages.length === 0))
        await new Promise((resolve) => setTimeout(resolve, 20));
      go();
      await Promise.all([writing, ...resumed]);
      for (const page of pages) assert.deepEqual(page.messages.map(shown), [["Hi there."]]);
      const late = new Page(server, loaded as LoadedChat); // the reply began and ended after the page was loaded
      await late.resumeStream();
      assert.deepEqual(late.messages.map(shown), [["Hi there."]]);
    });
  });
}
