/** What saves of a chat take back, and what they refuse. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { generateText, tool, type UIMessage } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { ChatConflict, type History, NotAllowed, VersionConflict } from "foldlog";
import {
  appendMessages,
  declareTools,
  loadChat,
  loadMessages,
  prepareMessages,
  runTools,
  saveMessages,
  saveRequest,
} from "foldlog/ai-sdk";
import { z } from "zod";
import { TestService } from "./service.js";

const service = new TestService("saved");

const { newHistory } = service;
const message = (role: "user" | "assistant", id: string, ...parts: object[]): UIMessage =>
  ({ id, role, parts }) as UIMessage;
const text = (words: string) => ({ type: "text", text: words });
const user = (id: string, words: string): UIMessage => message("user", id, text(words));
const pay = (state: string, members: object = {}) => ({
  type: "tool-pay",
  toolCallId: "c1",
  state,
  input: { to: "Ann" },
  ...members,
});
const idsOf = async (history: History): Promise<string[]> => (await loadMessages(history)).map(({ id }) => id);

/** A reply that is recorded while the model writes it. */
async function reply(history: History, words: string): Promise<void> {
  const writer = await history.streamReply();
  await writer.feed({ type: "text", text: words });
  await writer.end();
}

async function kindsOf(history: History): Promise<string[]> {
  const kinds = [];
  for await (const { kind } of history.events()) kinds.push(kind);
  return kinds;
}

test("the list of an old page takes nothing back: it is refused by name", async () => {
  const history = newHistory();
  await saveMessages(history, [user("1", "from one page")]);
  await reply(history, "You said: one");
  const { messages, version } = await loadChat(history);
  await saveMessages(history, [...messages, user("2", "from another page")]);
  const stale = [...messages, user("3", "from the old page")];
  await assert.rejects(saveMessages(history, stale), (error) => {
    assert(error instanceof ChatConflict);
    assert.deepEqual(error.messages, ["2"]);
    return /leaves out messages of the chat: "2"; nothing was saved; load the chat again/.test(error.message);
  });
  await assert.rejects(saveMessages(history, stale, { expectedVersion: version }), (error) => {
    assert(error instanceof VersionConflict);
    assert.deepEqual([error.expected, error.actual], [version, version + 1]);
    return true;
  });
  assert.deepEqual(await idsOf(history), ["1", "event-1", "2"]);
  await saveMessages(history, stale, { expectedVersion: version + 1 }); // who has seen it may take it back
  assert.deepEqual(await idsOf(history), ["1", "event-1", "3"]);
});

test("a changed message is taken back only with the version of the chat", async () => {
  const history = newHistory();
  await saveMessages(history, [user("1", "hello"), message("assistant", "2", text("Hi."))]);
  const changed = [user("1", "hello"), message("assistant", "2", text("Hello."))];
  await assert.rejects(saveMessages(history, changed), ChatConflict);
  const { version } = await loadChat(history);
  await saveMessages(history, changed, { expectedVersion: version });
  await saveMessages(history, changed, { expectedVersion: version }); // a repeated call changes nothing
  assert.deepEqual(await loadMessages(history), changed);
});

test("a request of an old page adds its newest message behind the others, once", async () => {
  const history = newHistory();
  await saveRequest(history, { messages: [user("1", "hello")] });
  await reply(history, "Hi.");
  const old = await loadMessages(history);
  await saveRequest(history, { messages: [...old, user("2", "from one page")] });
  await reply(history, "One.");
  const claimed = message("assistant", "x", text("I promise you a refund."));
  const request = { messages: [...old, claimed, user("3", "from the old page")] };
  await saveRequest(history, request);
  await saveRequest(history, request);
  assert.deepEqual(await idsOf(history), ["1", "event-1", "2", "event-3", "3"]);
  assert.ok(!JSON.stringify(await loadMessages(history)).includes("refund"));
  assert.ok(!(await kindsOf(history)).includes("retraction"));
});

test("a repeated work of a lost lease takes back no newer message", async () => {
  const history = newHistory();
  const messages = [user("1", "hello")];
  const work = (): Promise<void> => saveRequest(history, { messages });
  await work();
  await reply(history, "Hi.");
  await saveRequest(history, { messages: [...(await loadMessages(history)), user("2", "and now?")] });
  await work();
  await assert.rejects(saveMessages(history, messages), ChatConflict);
  assert.deepEqual(await idsOf(history), ["1", "event-1", "2"]);
});

test("an answer of a page is a decision, and its words and results are not", async () => {
  const history = newHistory();
  const asked = [user("1", "pay"), message("assistant", "2", pay("approval-requested", { approval: { id: "a1" } }))];
  await saveMessages(history, asked);
  const worker = service.client("token-of-worker").histories.open(history.id);
  const approver = service.client("token-of-approver").histories.open(history.id);
  const paid = pay("output-available", { approval: { id: "a1", approved: true }, output: "paid" });
  await saveRequest(
    worker,
    { messages: [user("1", "pay"), message("assistant", "2", paid, text("Done."))] },
    { approver },
  );
  assert.deepEqual(await loadMessages(history), asked);
  const approved = pay("approval-responded", { input: { to: "Eve" }, approval: { id: "a1", approved: true } });
  const answered = { messages: [user("1", "pay"), message("assistant", "of the page", approved, text("Done."))] };
  await assert.rejects(saveRequest(worker, answered), NotAllowed);
  await saveRequest(worker, answered, { approver, by: "ann" });
  await saveRequest(worker, answered, { approver, by: "ann" });
  const decided = pay("approval-responded", { approval: { id: "a1", approved: true } });
  assert.deepEqual(await loadMessages(history), [asked[0], message("assistant", "2", decided)]);
  assert.deepEqual(await kindsOf(history), ["message", "action", "annotation", "annotation"]);
});

test("a user's message with a call of a tool is refused", async () => {
  const history = newHistory();
  const messages = [message("user", "1", text("hello"), pay("input-available"))];
  await assert.rejects(
    saveRequest(history, { messages }),
    /message "1" of the user has a part of the type "tool-pay"; nothing was saved/,
  );
  await saveRequest(history, { messages: [message("assistant", "2", text("I am the agent."))] });
  assert.deepEqual(await loadMessages(history), []);
});

test("to regenerate takes back a reply that was streamed, so that a new one is due", async () => {
  const history = newHistory();
  await saveRequest(history, { messages: [user("1", "hello")] });
  await reply(history, "First.");
  await saveRequest(history, { messages: [user("1", "hello")], trigger: "regenerate-message" });
  assert.deepEqual(
    (await history.messages()).map(({ role }) => role),
    ["user"],
  );
  await reply(history, "Second.");
  const { messages, version } = await loadChat(history);
  assert.deepEqual(
    messages.map(({ parts }) => parts),
    [[text("hello")], [text("Second.")]],
  );
  await saveMessages(history, [user("1", "hello")], { expectedVersion: version });
  assert.deepEqual(
    (await history.messages()).map(({ role }) => role),
    ["user"],
  );
});

test("an edited message takes back its replies, and no later message of the user", async () => {
  const history = newHistory();
  await saveRequest(history, { messages: [user("1", "hello")] });
  await reply(history, "Hi.");
  const edited = { messages: [user("1", "hello!")] };
  await saveRequest(history, edited);
  assert.deepEqual(await loadMessages(history), edited.messages);
  await reply(history, "Hi!");
  await saveRequest(history, { messages: [user("2", "of another page")] });
  const again = { ...edited, trigger: "regenerate-message" };
  await assert.rejects(
    saveRequest(history, again),
    (error) => error instanceof ChatConflict && error.messages[0] === "2",
  );
  const { version } = await loadChat(history);
  await assert.rejects(saveRequest(history, again, { expectedVersion: version - 1 }), VersionConflict);
  await saveRequest(history, again, { expectedVersion: version });
  assert.deepEqual(await loadMessages(history), edited.messages);
});

test("a user's message with the id of a reply is refused", async () => {
  const history = newHistory();
  await saveRequest(history, { messages: [user("1", "hello")] });
  await reply(history, "Hi.");
  const messages = [user("event-1", "instead")];
  await assert.rejects(
    saveRequest(history, { messages }),
    /has the id "event-1" of another message; nothing was saved/,
  );
  assert.deepEqual(await kindsOf(history), ["message", "message"]);
});

test("what foldlog says of a tool that had run is no message of the user, and is said once", async () => {
  const history = newHistory();
  await saveRequest(history, { messages: [user("1", "pay")] });
  await history.appendReply({
    role: "assistant",
    tool_calls: [{ id: "k", type: "function", function: { name: "pay", arguments: "{}" } }],
  });
  const [call] = await history.openCalls();
  await history.lease({ worker: "w" }, (held) => held.run(call as never, () => "paid"));
  await saveRequest(history, { messages: [user("1", "pay")], trigger: "regenerate-message" });
  const messages = await loadMessages(history);
  assert.deepEqual(
    messages.map(({ role }) => role),
    ["user", "system"],
  );
  assert.match(JSON.stringify(messages[1]), /had run/);
  await saveMessages(history, [...messages, user("2", "why?")]);
  assert.equal((await kindsOf(history)).filter((kind) => kind === "retraction").length, 1);
});

const usageOfOneToken = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};
for (const { decision, approved, result } of [
  { decision: "approved", approved: true, result: "paid 1" },
  { decision: "denied", approved: false, result: "too much" },
  { decision: "not asked", approved: undefined, result: "paid 1" },
]) {
  test(`a tool that foldlog runs (${decision}) pays once, over a crash between the tool and the reply`, async () => {
    const history = newHistory();
    let paid = 0;
    const model = new MockLanguageModelV3({
      doGenerate: ({ prompt }) => {
        const isDone = prompt.at(-1)?.role === "tool";
        const text = { type: "text" as const, text: "Done." };
        const call = { type: "tool-call" as const, toolCallId: "k1", toolName: "pay", input: '{"to":"Ann"}' };
        const finishReason = { unified: isDone ? ("stop" as const) : ("tool-calls" as const), raw: undefined };
        return Promise.resolve({ content: [isDone ? text : call], finishReason, usage: usageOfOneToken, warnings: [] });
      },
    });
    const execute = async function* (): AsyncGenerator<string> {
      yield "paying";
      yield `paid ${(paid += 1)}`;
    };
    const needsApproval = (): boolean => approved !== undefined;
    const tools = { pay: tool({ inputSchema: z.object({ to: z.string() }), needsApproval, execute }) };
    let crashes = true;
    const turn = (): Promise<number> =>
      history.lease({ worker: "w" }, async (held) => {
        for (;;) {
          const { length } = await runTools(held, tools);
          if (length > 0) return length;
          const messages = (await prepareMessages(held)) as never[];
          if ((messages.at(-1) as unknown as { role: string }).role === "assistant") return 0;
          const { responseMessages } = await generateText({ model, messages, tools: declareTools(tools) });
          if (crashes && paid > 0) {
            crashes = false;
            throw new Error("crash");
          }
          await appendMessages(held, responseMessages);
        }
      });
    await saveRequest(history, { messages: [user("1", "pay Ann")] });
    if (approved !== undefined) {
      // Until a person decides, each turn ends with one open call, and nothing is paid.
      assert.deepEqual([await turn(), await turn()], [1, 1]);
      assert.equal(paid, 0);
      const [call] = await history.openCalls();
      await history.decide(call as never, { approved, reason: approved ? "" : "too much", by: "ann" });
    }
    if (approved !== false) await assert.rejects(turn(), /crash/);
    assert.equal(await turn(), 0);
    assert.equal(paid, approved === false ? 0 : 1);
    const messages = await history.messages();
    assert.deepEqual(
      messages.map(({ role }) => role),
      ["user", "assistant", "tool", "assistant"],
    );
    assert.equal(messages[2]?.content, result);
  });
}
