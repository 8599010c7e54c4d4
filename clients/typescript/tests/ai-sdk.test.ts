import assert from "node:assert/strict";
import { test } from "node:test";
import { convertToModelMessages, type ModelMessage, type UIMessage, validateUIMessages } from "ai";
import { generateText, tool } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { type History, NotAllowed } from "foldlog";
import { appendMessages, loadChat, loadMessages, prepareMessages, saveMessages } from "foldlog/ai-sdk";
import { z } from "zod";
import { TestService } from "./service.js";
import { growingChat } from "./ui-messages.js";

const CHATS = 300;
type Part = Record<string, unknown> & { type: string };

const service = new TestService("chat");

const { newHistory } = service;
const save = (history: History, messages: unknown[]): Promise<void> => saveMessages(history, messages as never);
const user = (id: string, text: string) => ({ id, role: "user", parts: [{ type: "text", text }] });
const assistant = (id: string, ...parts: object[]) => ({ id, role: "assistant", parts });
const pay = (state: string, members: object = {}) => ({
  type: "tool-pay",
  toolCallId: "c1",
  state,
  input: { to: "Ann" },
  ...members,
});
const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

/** The messages, with calls that have a preliminary output as calls that are still open. */
function withOpenCalls(messages: UIMessage[]): UIMessage[] {
  const begun = ({ output, preliminary, ...part }: Part): Part =>
    preliminary === true
      ? { ...part, state: "input-available" }
      : { ...part, ...(output === undefined ? {} : { output }) };
  return messages.map((each) => ({
    ...each,
    parts: (each.parts as unknown as Part[]).map(begun),
  })) as unknown as UIMessage[];
}

/** A denied call is the same in other words; an error of a call that a provider ran is a text. */
function shownOutput({ type, value }: Part): unknown[] {
  if (type.startsWith("error")) return ["error", String(value).replace(/^the call was not approved: /, "")];
  return [type, value];
}

function isAnswered(request: Part, results: Part[]): boolean {
  return (
    request.type === "tool-approval-request" && results.some(({ approvalId }) => approvalId === request["approvalId"])
  );
}

/** What a model reads in some messages, in order: each result by the number of its call. */
function read(messages: ModelMessage[]): unknown[] {
  const shown: unknown[] = [];
  const calls = new Map<string, number>();
  let reasoning: unknown[] = [];
  const results = new Set<string>();
  messages.forEach(({ role, content }, index) => {
    if (typeof content === "string") {
      if (content.trim() !== "") shown.push([role, content, undefined]);
      return;
    }
    const parts = content as Part[];
    const after =
      role === "assistant" && messages[index + 1]?.role === "tool" ? (messages[index + 1]?.content as Part[]) : [];
    const isDone = (id: unknown): boolean =>
      [...parts, ...after].some(({ type, toolCallId }) => type === "tool-result" && toolCallId === id) ||
      (index + 2 === messages.length && parts.some((part) => part["toolCallId"] === id && isAnswered(part, after)));
    reasoning = [];
    const ids = new Map<unknown, number>();
    for (const part of parts) {
      const options = part["providerOptions"];
      if (["reasoning", "custom", "reasoning-file"].includes(part.type)) {
        reasoning.push([part.type, part["text"] ?? "", options]);
        continue;
      }
      if (part.type === "text") {
        if (String(part["text"]).trim() === "") continue;
        shown.push(...reasoning, [role, part["text"], options]);
      } else if (part.type === "tool-call") {
        if (!isDone(part["toolCallId"]) || ids.has(part["toolCallId"])) continue;
        calls.set(`${index} ${part["toolCallId"]}`, calls.size);
        ids.set(part["toolCallId"], calls.size);
        shown.push(...reasoning, ["call", part["toolName"], part["input"], options]);
      } else if (part.type === "file" || part.type === "image") {
        shown.push(...reasoning, [role, "file"]);
      } else if (part.type === "tool-result") {
        if ((part["output"] as Part).type === "execution-denied") continue; // in the last reply, the SDK adds it
        if (!results.has(`${index} ${part["toolCallId"]}`))
          shown.push(["result", ...shownOutput(part["output"] as Part)]);
        results.add(`${index} ${part["toolCallId"]}`);
      } else if (part.type === "tool-approval-response") {
        continue;
      }
      reasoning = [];
    }
  });
  return shown;
}

test(`${CHATS} chats over all parts and states of the newest AI SDK come back equal, and the View has them`, async (context) => {
  const chats = Array.from({ length: CHATS }, (_, seed) => growingChat(seed));
  const states = new Set<string>();
  let next = 0;
  let compared = 0;
  const work = async (): Promise<void> => {
    for (let seed = next++; seed < CHATS; seed = next++) {
      const history = service.foldlog.histories.open(`generated ${seed}`);
      const chat = chats[seed] as UIMessage[][];
      for (const [index, messages] of chat.entries()) {
        const seen = index === 0 ? {} : { expectedVersion: (await history.state()).version };
        await saveMessages(history, messages, seen); // the last state may leave out a message
      }
      const last = chat.at(-1) as UIMessage[];
      const loaded = await loadMessages(history);
      assert.deepEqual(loaded, last, `seed ${seed}`);
      const { version } = await history.state();
      await save(history, loaded);
      assert.equal((await history.state()).version, version, `seed ${seed}: a repeated save appends nothing`);
      const parts = last.flatMap((message) => message.parts as unknown as Part[]);
      for (const { type, state } of parts) states.add(`${type} ${state ?? ""}`);
      const { events } = await history.view();
      const of = (...kinds: string[]): unknown[] => events.filter(({ kind }) => kinds.includes(kind as string));
      const tools = parts.filter(({ toolCallId, state }) => toolCallId !== undefined && state !== "input-streaming");
      const ended = tools.filter(
        ({ state, preliminary }) => String(state).startsWith("output-") && preliminary !== true,
      );
      const texts = parts.filter(({ type }) => ["text", "file", "steering-message"].includes(type));
      assert.deepEqual(
        [of("action").length, of("observation").length, of("message", "system").length],
        [tools.length, ended.length, texts.length],
        `seed ${seed}: the View`,
      );
      // the SDK sends no result of a call that a provider ran after an approval
      if (parts.some((part) => part["providerExecuted"] === true && part["approval"] !== undefined)) continue;
      compared += 1;
      const expected = read(await convertToModelMessages(withOpenCalls(last)));
      assert.deepEqual(
        plain(read(await prepareMessages(history))),
        plain(expected),
        `seed ${seed}: the messages for a model`,
      );
    }
  };
  await Promise.all(Array.from({ length: 8 }, work));
  context.diagnostic(`${CHATS} chats, ${states.size} types and states; the messages of ${compared} compared`);
  assert.ok(states.size >= 30);
});

for (const [what, value] of [
  ["a BigInt", 1n],
  ["NaN", Number.NaN],
  ["a Map", new Map()],
  ["bytes", new Uint8Array(1)],
  ["half of a character", "a\ud800"],
  ["a function", () => 1],
] as const) {
  test(`${what} in a message is refused with its place, and nothing is saved`, async () => {
    const history = newHistory();
    const messages = [user("1", "pay"), assistant("2", pay("output-available", { output: { deep: [value] } }))];
    await assert.rejects(save(history, messages), {
      name: "TypeError",
      message: /^messages\[1\]\.parts\[0\]\.output\.deep\[0\] is /,
    });
    await assert.rejects(history.state());
  });
}

test("a date is saved as its text, as a route sends it", async () => {
  const history = newHistory();
  const messages = [assistant("2", pay("output-available", { output: { at: new Date(0), none: undefined } }))];
  await save(history, messages);
  assert.deepEqual(await loadMessages(history), plain(messages));
});

test("two messages with one id are refused", async () => {
  await assert.rejects(save(newHistory(), [user("1", "a"), user("1", "b")]), {
    message: /messages\[1\] has the id "1" of another message.*generateMessageId/,
  });
});

test("a call id that occurs again in a chat, and in a message, is another call", async () => {
  const history = newHistory();
  const messages = [
    user("1", "pay"),
    assistant("2", pay("output-available", { output: 1 }), pay("output-available", { output: 2 })),
    user("3", "again"),
    assistant("4", pay("output-available", { output: 3 })),
  ];
  for (let length = 1; length <= messages.length; length += 1) await save(history, messages.slice(0, length));
  assert.deepEqual(await loadMessages(history), messages);
  const results = (await history.messages()).filter(({ role }) => role === "tool").map(({ content }) => content);
  assert.deepEqual(results, ["1", "2", "3"]);
  assert.equal((await history.view()).version, 8, "nothing was retracted");
});

test("an approval of a part is a question and a decision of foldlog about one call", async () => {
  const history = newHistory();
  const approval = { id: "a1", requestReason: "much" };
  const asked = [user("1", "pay"), assistant("2", pay("approval-requested", { approval }))];
  await save(history, asked);
  const [call] = await history.openCalls();
  assert.ok(call);
  await history.lease({ worker: "w" }, async (held) => {
    await assert.rejects(
      held.run(call, () => "paid", { needsApproval: true }),
      NotAllowed,
    );
  });
  const decided = [
    asked[0],
    assistant("2", pay("approval-responded", { approval: { ...approval, approved: true, reason: "ok" } })),
  ];
  await saveMessages(history, decided as never, { by: "ann" });
  assert.deepEqual(await loadMessages(history), decided);
  const said = [];
  for await (const event of history.events())
    if (event["name"] === "foldlog.approval") said.push(event["data"] as Part);
  assert.deepEqual(said.map(({ asked: to, shown }) => [to, shown])[0], [
    "user",
    { approvalId: "a1", requestReason: "much" },
  ]);
  assert.deepEqual(said.map(({ approved, by, reason, token }) => [approved, by, reason, token])[1], [
    true,
    "ann",
    "ok",
    "tests",
  ]);
  await history.lease({ worker: "w" }, (held) => held.run(call, () => ({ receipt: 7 }), { needsApproval: true }));
  const [, message] = await loadMessages(history);
  const [paid] = message?.parts as unknown as Part[];
  assert.deepEqual([paid?.["state"], paid?.["output"]], ["output-available", { receipt: 7 }]);
  await save(history, await loadMessages(history));
  assert.equal((await history.effects()).length, 1);
});

test("a decision that a person made elsewhere is in the loaded chat", async () => {
  const history = newHistory();
  await save(history, [user("1", "pay"), assistant("2", pay("approval-requested", { approval: { id: "a1" } }))]);
  const approver = service.client("token-of-approver").histories.open(history.id);
  const [call] = await history.openCalls();
  await approver.decide(call as never, { approved: false, by: "eve", reason: "too much" });
  const [, message] = await loadMessages(history);
  const expected = pay("approval-responded", { approval: { id: "a1", approved: false, reason: "too much" } });
  assert.deepEqual(message?.parts, [expected]);
  assert.deepEqual(await validateUIMessages({ messages: await loadMessages(history) }), await loadMessages(history));
});

test("a token that only appends saves a decision through an approver", async () => {
  const history = service.client("token-of-worker").histories.open(newHistory().id);
  const approver = service.client("token-of-approver").histories.open(history.id);
  const approval = { id: "a1", approved: true };
  const messages = [
    user("1", "pay"),
    assistant("2", pay("output-available", { approval, output: "paid" }), { type: "text", text: "Paid." }),
  ];
  await assert.rejects(
    save(history, messages),
    (error) => error instanceof NotAllowed && /pass `approver`/.test(error.message),
  );
  await saveMessages(history, messages as never, { approver });
  assert.deepEqual(await loadMessages(history), messages);
  assert.deepEqual(
    (await history.messages()).map(({ role }) => role),
    ["user", "assistant", "tool"],
  );
});

test("a chat has what other programs recorded, and a later save keeps it", async () => {
  const history = newHistory();
  await save(history, [user("1", "pay")]);
  const made = { id: "k1", type: "function", function: { name: "pay", arguments: '{"to":"Ann"}' } };
  const image = { type: "image_url", image_url: { url: "https://a.test/a.png" } };
  await history.appendReply({ role: "assistant", content: "I ask.", reasoning_content: "hm", tool_calls: [made] });
  const [call] = await history.openCalls();
  await history.askApproval(call as never, { to: "ann", shown: { amount: 7 } });
  const begun = [
    { type: "reasoning", text: "hm" },
    { type: "text", text: "I ask." },
  ];
  const approval = { id: `approval-${call?.id}` };
  const part = { type: "tool-pay", toolCallId: "k1", input: { to: "Ann" } };
  const asked = assistant("event-1", ...begun, { ...part, state: "approval-requested", approval });
  assert.deepEqual(await loadMessages(history), [user("1", "pay"), asked]);
  // the page streamed the reply under an id of its own, and a person has answered
  const answered = { ...part, state: "approval-responded", approval: { ...approval, approved: true } };
  const streamed = begun.map((each) => ({ ...each, state: "done" }));
  await saveMessages(history, [user("1", "pay"), assistant("2", ...streamed, answered)] as never, { by: "ann" });
  await history.lease({ worker: "w" }, (held) => held.run(call as never, () => "paid", { needsApproval: true }));
  await history.appendReply({ role: "assistant", content: "Paid." });
  await history.appendMessages([{ role: "user", content: [{ type: "text", text: "see" }, image] }]);
  const paid = { ...part, state: "output-available", approval: { ...approval, approved: true }, output: "paid" };
  const messages = [
    user("1", "pay"),
    assistant("2", ...streamed, paid, { type: "step-start" }, { type: "text", text: "Paid." }),
    {
      id: "event-10",
      role: "user",
      parts: [
        { type: "text", text: "see" },
        { type: "file", mediaType: "image/*", url: "https://a.test/a.png" },
      ],
    },
  ];
  assert.deepEqual(await loadMessages(history), messages);
  const { version } = await history.state();
  await save(history, await loadMessages(history));
  assert.equal((await history.state()).version, version, "a save of what was loaded appends nothing");
  await save(history, [...messages.slice(0, 2), user("3", "again")]); // a page that does not have the last message yet
  assert.deepEqual(await loadMessages(history), [...messages, user("3", "again")]);
  for await (const { kind } of history.events()) assert.notEqual(kind, "retraction");
});

test("a redacted result is gone from the chat after a save of it", async () => {
  const history = newHistory();
  await save(history, [user("1", "pay"), assistant("2", pay("input-available"))]);
  await history.appendToolResult("c1", "the secret");
  const [first, second] = await loadMessages(history);
  await save(history, [first, assistant("2", { ...second?.parts[0], title: "Pay" })]);
  await history.redact({ events: [2], reason: "asked" });
  assert.ok(!JSON.stringify(await loadMessages(history)).includes("secret"));
  for await (const event of history.events()) assert.ok(!JSON.stringify(event).includes("secret"));
});

test("a reply that ends while a chat is loaded is in its messages, or in its stream", async () => {
  for (const endsBefore of ["openReply", "events"] as const) {
    const history = newHistory();
    await save(history, [user("1", "hello")]);
    const writer = await history.streamReply();
    await writer.feed({ type: "text", text: "Hi." });
    const { [endsBefore]: method } = history;
    let calls = 0;
    const loaded = service.foldlog.histories.open(history.id);
    const replaced = async (...values: never[]): Promise<unknown> => {
      calls += 1;
      if (calls === (endsBefore === "events" ? 2 : 1)) await writer.end();
      return (method as (...values: never[]) => unknown).apply(history, values);
    };
    const generated = async function* (...values: never[]): AsyncGenerator<unknown> {
      yield* (await replaced(...values)) as AsyncIterable<unknown>;
    };
    Object.assign(loaded, { [endsBefore]: endsBefore === "events" ? generated : replaced });
    const chat = await loadChat(loaded);
    assert.equal(chat.reply, null);
    assert.deepEqual(chat.messages, [user("1", "hello"), assistant("event-1", { type: "text", text: "Hi." })]);
  }
});

test("a redacted part is gone from the chat, and a later save does not bring it back", async () => {
  const history = newHistory();
  const messages = [user("1", "the secret"), assistant("2", { type: "text", text: "ok", state: "streaming" })];
  await save(history, messages);
  await save(history, [messages[0], assistant("2", { type: "text", text: "ok", state: "done" })]);
  await history.redact({ events: [1], reason: "asked" });
  const loaded = await loadMessages(history);
  assert.deepEqual(loaded, [messages[0]]);
  await save(history, [...loaded, user("3", "go on")]);
  for await (const event of history.events()) assert.ok(!JSON.stringify(event).includes('"ok"'));
});

test("model messages keep reasoning with its options, files, and JSON outputs", async () => {
  const history = newHistory();
  const signed = { anthropic: { signature: "s" } };
  const result = (output: object) => ({ type: "tool-result", toolCallId: "c1", toolName: "pay", output });
  const content = {
    type: "content",
    value: [
      { type: "text", text: "see" },
      { type: "file-data", data: "JVBERi0=", mediaType: "application/pdf" },
    ],
  };
  const messages = [
    { role: "system", content: "Be brief." },
    {
      role: "user",
      content: [
        { type: "text", text: "sum up", providerOptions: { x: { cache: true } } },
        { type: "file", data: "JVBERi0=", mediaType: "application/pdf", filename: "a.pdf" },
        { type: "image", image: "iVBORw0KGgo=", mediaType: "image/png" },
        { type: "file", data: { openai: "file-1" }, mediaType: "application/pdf" },
      ],
    },
    {
      role: "assistant",
      content: [
        { type: "reasoning", text: "hm", providerOptions: signed },
        { type: "text", text: "I pay." },
        {
          type: "tool-call",
          toolCallId: "c1",
          toolName: "pay",
          input: { to: "Ann" },
          providerOptions: { x: { item: 1 } },
        },
      ],
    },
    { role: "tool", content: [result({ type: "json", value: { ok: [1] } })] },
    {
      role: "assistant",
      content: [
        { type: "reasoning", text: "again" },
        { type: "tool-call", toolCallId: "c2", toolName: "pay", input: {} },
      ],
    },
    { role: "tool", content: [{ ...result(content), toolCallId: "c2" }] },
    { role: "assistant", content: [{ type: "tool-call", toolCallId: "c3", toolName: "pay", input: {} }] },
    { role: "tool", content: [{ ...result({ type: "error-json", value: { code: 7 } }), toolCallId: "c3" }] },
    { role: "assistant", content: "Done." },
  ];
  for (const message of messages) await appendMessages(history, [message] as never);
  assert.deepEqual(plain(await prepareMessages(history)), messages);
  assert.match(JSON.stringify(await history.messages("anthropic")), /"thinking":"hm","signature":"s"/);
});

test("bytes of a file are kept in base64", async () => {
  const history = newHistory();
  const file = { type: "file", data: new Uint8Array([37, 80, 68, 70, 45]), mediaType: "application/pdf" } as const;
  await appendMessages(history, [{ role: "user", content: [file] }]);
  assert.deepEqual((await prepareMessages(history))[0]?.content, [{ ...file, data: "JVBERi0=" }]);
});

/** A model that pays a person, and then says that it is done, or that it was not allowed. */
function payer(): MockLanguageModelV3 {
  const usage = {
    inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: 1, text: 1, reasoning: 0 },
  };
  return new MockLanguageModelV3({
    doGenerate: ({ prompt }) => {
      const result = prompt.filter(({ role }) => role === "tool").at(-1);
      const content = result
        ? [{ type: "text" as const, text: JSON.stringify(result).includes("paid") ? "Done." : "Not allowed." }]
        : [{ type: "tool-call" as const, toolCallId: "k1", toolName: "pay", input: '{"to":"Ann"}' }];
      const finishReason = { unified: result ? ("stop" as const) : ("tool-calls" as const), raw: undefined };
      return Promise.resolve({ content, finishReason, usage, warnings: [] });
    },
  });
}

for (const approved of [true, false]) {
  test(`a loop of generateText obeys a decision of foldlog: ${approved ? "approved" : "refused"}`, async () => {
    const history = newHistory();
    let paid = 0;
    const execute = (): string => {
      paid += 1;
      return "paid";
    };
    const tools = { pay: tool({ inputSchema: z.object({ to: z.string() }), needsApproval: true, execute }) };
    const step = async (): Promise<void> => {
      const messages = (await prepareMessages(history)) as never;
      const { responseMessages } = await generateText({ model: payer(), messages, tools });
      await appendMessages(history, responseMessages);
    };
    await appendMessages(history, [{ role: "user", content: "Pay Ann." }]);
    await step();
    const [call] = await history.openCalls();
    assert.ok(call);
    await history.decide(call, { approved, by: "eve" });
    await step();
    assert.equal(paid, approved ? 1 : 0);
    assert.deepEqual(await history.openCalls(), []);
    const last = (await prepareMessages(history)).at(-1);
    assert.deepEqual(last, { role: "assistant", content: approved ? "Done." : "Not allowed." });
  });
}

test("the answer to an approval of the SDK is a decision of foldlog", async () => {
  const history = newHistory();
  const call = { type: "tool-call", toolCallId: "k1", toolName: "pay", input: { to: "Ann" } };
  const request = { type: "tool-approval-request", approvalId: "a1", toolCallId: "k1" };
  const response = { type: "tool-approval-response", approvalId: "a1", approved: true, reason: "ok" };
  await appendMessages(history, [
    { role: "user", content: "Pay Ann." },
    { role: "assistant", content: [call, request] },
  ] as never);
  const answer = [{ role: "tool", content: [response] }] as never;
  await assert.rejects(
    appendMessages(history, [{ role: "tool", content: [{ ...response, approvalId: "a2" }] }] as never),
    /no open call waits for the approval "a2"/,
  );
  await appendMessages(history, answer, { by: "eve" });
  const prepared = await prepareMessages(history);
  assert.deepEqual(plain(prepared.slice(1)), [
    { role: "assistant", content: [call, request] },
    { role: "tool", content: [response] },
  ]);
  const [open] = await history.openCalls();
  const recorded = await history.lease({ worker: "w" }, (held) =>
    held.run(open as never, () => "paid", { needsApproval: true }),
  );
  assert.equal(recorded.event["content"], "paid");
});
