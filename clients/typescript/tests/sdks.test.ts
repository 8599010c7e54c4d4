import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  getSessionMessages,
  InMemorySessionStore,
  listSessions,
  type SessionStore,
} from "@anthropic-ai/claude-agent-sdk";
import { type AgentInputItem, MemorySession, type Session } from "@openai/agents-core";
import { convertToModelMessages, generateText, stepCountIs, tool, type UIMessage, validateUIMessages } from "ai-oldest";
import { MockLanguageModelV3 } from "ai-oldest/test";
import { appendMessages, loadChat, loadMessages, prepareMessages, saveMessages } from "foldlog/ai-sdk";
import { FoldlogSessionStore } from "foldlog/claude-agent";
import { FoldlogSession } from "foldlog/openai-agents";
import { z } from "zod";
import { TestService } from "./service.js";

const service = new TestService("sdks");

describe("a session of OpenAI Agents JS", () => {
  const ITEMS: AgentInputItem[] = [
    { type: "message", role: "user", content: "Pay Ann." },
    { type: "reasoning", id: "rs_1", content: [{ type: "input_text", text: "hm" }] },
    { type: "function_call", callId: "k1", name: "pay", arguments: '{"to":"Ann"}', status: "completed" },
    {
      type: "function_call_result",
      callId: "k1",
      name: "pay",
      status: "completed",
      output: { type: "text", text: "paid" },
    },
    { type: "function_call", callId: "k2", name: "look", arguments: "{}", status: "completed" },
    {
      type: "function_call_result",
      callId: "k2",
      name: "look",
      status: "completed",
      output: [{ type: "input_text", text: "a" }],
    },
    {
      type: "message",
      role: "assistant",
      status: "completed",
      content: [{ type: "output_text", text: "Done.", providerData: { a: 1 } }],
    },
  ];

  /** What both sessions return for the same calls. */
  async function answers(session: Session): Promise<unknown[]> {
    const results: unknown[] = [await session.getItems(), await session.popItem()];
    await session.addItems([]);
    for (const item of ITEMS) await session.addItems([item]);
    results.push(await session.getItems(), await session.getItems(2), await session.getItems(0));
    results.push(await session.popItem(), await session.popItem(), await session.getItems());
    await session.addItems(ITEMS.slice(5));
    results.push(await session.getItems(), await session.getItems(100));
    await session.clearSession();
    results.push(await session.getItems(), await session.popItem());
    await session.addItems(ITEMS);
    results.push(await session.getItems(), await session.getSessionId());
    return results;
  }

  test("answers as the SDK's own session does", async () => {
    const expected = await answers(new MemorySession({ sessionId: "a/b" }));
    assert.deepEqual(await answers(new FoldlogSession(service.foldlog, "a/b")), expected);
  });

  test("is a conversation with calls and results, whose items stay in the log", async () => {
    const session = new FoldlogSession(service.foldlog, "s2");
    await session.addItems(ITEMS);
    await session.clearSession();
    const kinds: string[] = [];
    for await (const event of session.history.events()) kinds.push(event.kind);
    assert.deepEqual(kinds.filter((kind) => kind === "action").length, 2);
    assert.equal(kinds.at(-1), "retraction");
  });
});

describe("a session store of the Claude Agent SDK", () => {
  const PROJECT = "project one";
  const entry = (type: string, members: object = {}) => ({ type, ...members });
  const key = (sessionId: string, subpath?: string) => ({
    projectKey: PROJECT,
    sessionId,
    ...(subpath === undefined ? {} : { subpath }),
  });
  const newStore = (): Required<Pick<SessionStore, "append" | "load" | "listSessions" | "delete" | "listSubkeys">> =>
    new FoldlogSessionStore(service.foldlog, `claude ${service.newNumber()}`);

  test("returns entries as they were appended, in their order", async () => {
    const store = newStore();
    const entries = [entry("a", { n: 1, deep: { x: [1, null, "ä"] } }), entry("b"), entry("b")];
    await store.append(key("s"), []);
    assert.equal(await store.load(key("s")), null);
    await store.append(key("s"), entries.slice(0, 1));
    await store.append(key("s"), entries.slice(1));
    await store.append(key("s"), []);
    assert.deepEqual(await store.load(key("s")), entries);
  });

  test("appends an entry with a uuid once", async () => {
    const store = newStore();
    const entries = ["u1", "u2"].map((uuid) => entry("user", { uuid, message: { role: "user", content: uuid } }));
    await store.append(key("s"), entries.slice(0, 1));
    await store.append(key("s"), entries);
    await store.append(key("s"), entries);
    assert.deepEqual(await store.load(key("s")), entries);
    const title = entry("custom-title", { title: "t" });
    await store.append(key("s"), [title, ...entries, title]);
    assert.deepEqual(await store.load(key("s")), [...entries, title, title]);
  });

  test("keeps sessions, sub-agents and projects apart", async () => {
    const store = newStore();
    const other = { projectKey: "other", sessionId: "s1" };
    await store.append(key("s1"), [entry("main")]);
    await store.append(key("s1", "subagents/x"), [entry("sub")]);
    await store.append(key("s2", "subagents/y"), [entry("sub of another")]);
    await store.append(other, [entry("other")]);
    assert.deepEqual(await store.load(key("s1")), [entry("main")]);
    assert.deepEqual(await store.load(key("s1", "subagents/x")), [entry("sub")]);
    assert.equal(await store.load(key("s1", "subagents/y")), null);
    assert.deepEqual(await store.load(other), [entry("other")]);
    assert.deepEqual(
      (await store.listSessions(PROJECT)).map(({ sessionId }) => sessionId),
      ["s1"],
    );
    assert.deepEqual(await store.listSubkeys(key("s1")), ["subagents/x"]);
    assert.deepEqual(await store.listSubkeys(key("never")), []);
    assert.deepEqual(await store.listSessions("never"), []);
  });

  test("says when a session was last written", async () => {
    const store = newStore();
    await store.append(key("s"), [entry("a")]);
    const [session] = await store.listSessions(PROJECT);
    assert(Number.isInteger(session?.mtime) && (session?.mtime ?? 0) > 1e12);
  });

  test("deletes a session with its sub-agents, or one sub-agent", async () => {
    const store = newStore();
    for (const [id, subpath] of [["s1"], ["s1", "subagents/a"], ["s1", "subagents/b"], ["s12"]]) {
      await store.append(key(id as string, subpath), [entry("a")]);
    }
    await store.delete(key("s1", "subagents/a"));
    assert.deepEqual(await store.listSubkeys(key("s1")), ["subagents/b"]);
    assert.notEqual(await store.load(key("s1")), null);
    await store.delete(key("s1"));
    await store.delete(key("never"));
    assert.equal(await store.load(key("s1")), null);
    assert.equal(await store.load(key("s1", "subagents/b")), null);
    assert.notEqual(await store.load(key("s12")), null);
  });

  test("gives the SDK's own functions the answers of the SDK's own store", async () => {
    const sessionId = "0b1f3c52-6f0e-4b58-9d0a-6d1f0c7b8e11";
    const uuids = ["1", "2"].map((digit) => `0b1f3c52-6f0e-4b58-9d0a-00000000000${digit}`);
    const [first, second] = uuids;
    const common = {
      sessionId,
      isSidechain: false,
      cwd: "/srv/ann",
      version: "2",
      timestamp: "2026-01-01T00:00:00.000Z",
    };
    const entries = [
      { ...common, type: "user", uuid: first as string, parentUuid: null, message: { role: "user", content: "Hi." } },
      {
        ...common,
        type: "assistant",
        uuid: second as string,
        parentUuid: first,
        message: { id: "m1", role: "assistant", content: [{ type: "text", text: "Hello." }] },
      },
    ];
    const answersOf = async (sessionStore: SessionStore): Promise<unknown[]> => {
      const [listed] = await listSessions({ dir: "/srv/ann", sessionStore });
      const messages = await getSessionMessages(sessionId, { dir: "/srv/ann", sessionStore });
      return [listed?.sessionId, listed?.summary, messages];
    };
    const stores: SessionStore[] = [newStore(), new InMemorySessionStore()];
    for (const store of stores) await store.append({ projectKey: "-srv-ann", sessionId }, entries);
    const [own, expected] = [await answersOf(stores[0] as SessionStore), await answersOf(stores[1] as SessionStore)];
    assert.equal((expected[2] as unknown[]).length, 2);
    assert.deepEqual(own, expected);
  });
});

describe("messages of the AI SDK", () => {
  const asked: UIMessage = { id: "m1", role: "user", parts: [{ type: "text", text: "Pay Ann." }] };
  const call = { type: "tool-pay", toolCallId: "k1", input: { to: "Ann" } } as const;
  const begun = { ...call, state: "input-available" } as const;
  const ended = { ...call, state: "output-available", output: { receipt: 7 } } as const;
  const answer = (...parts: UIMessage["parts"]): UIMessage => ({ id: "m2", role: "assistant", parts });
  const file = { type: "file", mediaType: "image/png", url: "https://a.test/a.png" } as const;

  const newHistory = () => service.newHistory();

  test("a chat is loaded as it was saved, with every kind of part", async () => {
    const history = newHistory();
    assert.deepEqual(await loadMessages(history), []);
    const messages: UIMessage[] = [
      { id: "m0", role: "system", parts: [{ type: "text", text: "Be brief." }] },
      { ...asked, parts: [...asked.parts, file] },
      {
        ...answer(
          { type: "step-start" },
          { type: "reasoning", text: "hm", providerMetadata: { x: { signature: "s" } } },
          ended,
          {
            type: "dynamic-tool",
            toolName: "look",
            toolCallId: "k2",
            state: "output-error",
            input: {},
            errorText: "no",
          },
          { type: "source-url", sourceId: "1", url: "https://a.test" },
          { type: "text", text: "Done.", state: "done" },
          { type: "data-note", data: { a: [1] } },
        ),
        metadata: { model: "m" },
      },
    ];
    await saveMessages(history, messages);
    const loaded = await loadMessages(history);
    assert.deepEqual(loaded, messages);
    assert.deepEqual(await validateUIMessages({ messages: loaded }), messages);
    assert.deepEqual(await convertToModelMessages(loaded), await convertToModelMessages(messages));
    const { version } = await history.state();
    await saveMessages(history, loaded);
    assert.equal((await history.state()).version, version, "a repeated save appends nothing");
  });

  test("a tool part is a call and its result, and the model is shown both", async () => {
    const history = newHistory();
    await saveMessages(history, [asked, answer(begun)]);
    assert.deepEqual(
      (await history.openCalls()).map((event) => event["tool"]),
      ["pay"],
    );
    await saveMessages(history, [asked, answer(ended, { type: "text", text: "Done." })]);
    assert.deepEqual(await history.openCalls(), []);
    const kinds = (await history.view()).events.map((event) => event["kind"]);
    assert.deepEqual(kinds, ["message", "action", "observation", "message"]);
    assert.deepEqual(await loadMessages(history), [asked, answer(ended, { type: "text", text: "Done." })]);
  });

  test("a message that is generated again replaces the one before, which stays in the log", async () => {
    const history = newHistory();
    await saveMessages(history, [asked, answer({ type: "text", text: "No." })]);
    const again: UIMessage = { id: "m3", role: "assistant", parts: [{ type: "text", text: "Yes." }] };
    const { version } = await loadChat(history);
    await saveMessages(history, [asked, again], { expectedVersion: version });
    assert.deepEqual(await loadMessages(history), [asked, again]);
    assert.deepEqual(await history.messages(), [
      { role: "user", content: "Pay Ann." },
      { role: "assistant", content: "Yes." },
    ]);
    assert.equal((await history.why(1)).fate, "taken back");
  });

  test("a loop of generateText continues from the store", async () => {
    const history = newHistory();
    await appendMessages(history, [{ role: "user", content: "Pay Ann." }]);
    const usage = {
      inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
      outputTokens: { total: 1, text: 1, reasoning: 0 },
    };
    const model = new MockLanguageModelV3({
      doGenerate: ({ prompt }) => {
        const isPaid = prompt.some(({ role }) => role === "tool");
        const content = isPaid
          ? [{ type: "text" as const, text: "Done." }]
          : [{ type: "tool-call" as const, toolCallId: "k1", toolName: "pay", input: '{"to":"Ann"}' }];
        const finishReason = { unified: isPaid ? ("stop" as const) : ("tool-calls" as const), raw: undefined };
        return Promise.resolve({ content, finishReason, usage, warnings: [] });
      },
    });
    const pay = tool({ inputSchema: z.object({ to: z.string() }), execute: ({ to }) => ({ paid: to }) });
    for (let step = 0; step < 2; step += 1) {
      const messages = (await prepareMessages(history)) as never; // the newest SDK's type
      const { response } = await generateText({ model, messages, tools: { pay }, stopWhen: stepCountIs(1) });
      await appendMessages(history, response.messages);
    }
    const prepared = await prepareMessages(history);
    assert.deepEqual(
      prepared.map(({ role }) => role),
      ["user", "assistant", "tool", "assistant"],
    );
    assert.deepEqual(prepared[3], { role: "assistant", content: "Done." });
    assert.deepEqual(prepared[1]?.content, [
      { type: "tool-call", toolCallId: "k1", toolName: "pay", input: { to: "Ann" } },
    ]);
  });
});
