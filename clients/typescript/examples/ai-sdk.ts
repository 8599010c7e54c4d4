/**
 * A loop of the AI SDK that survives a kill: run it, kill it at any time, and run it again.
 *
 *     FOLDLOG_URL=http://localhost:8765 FOLDLOG_TOKEN=… node ai-sdk.js CONVERSATION
 *
 * foldlog runs the tool, so it runs once: the SDK gets the tool without `execute`. The model has
 * fixed answers; replace it by a provider's model.
 */

import { appendFileSync } from "node:fs";
import { generateText, tool } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { Foldlog, type HeldHistory } from "foldlog";
import { appendMessages, prepareMessages } from "foldlog/ai-sdk";
import { z } from "zod";

const { FOLDLOG_URL: url = "http://localhost:8765", FOLDLOG_TOKEN: token = "" } = process.env;
const [conversation = "chat-2", paymentsFile = "payments.txt"] = process.argv.slice(2);
const history = new Foldlog({ url, token }).histories.open(conversation);
const tools = { pay: tool({ description: "Pay a person", inputSchema: z.object({ to: z.string() }) }) };

const model = new MockLanguageModelV3({
  doGenerate: ({ prompt }) => {
    const person = ["Ann", "Bob", "Eve"][prompt.filter(({ role }) => role === "tool").length];
    const call = { toolCallId: `call-${person}`, toolName: "pay", input: JSON.stringify({ to: person }) };
    return Promise.resolve({
      content: person ? [{ type: "tool-call" as const, ...call }] : [{ type: "text" as const, text: "All are paid." }],
      finishReason: { unified: person ? ("tool-calls" as const) : ("stop" as const), raw: undefined },
      usage: {
        inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
        outputTokens: { total: 1, text: 1, reasoning: 0 },
      },
      warnings: [],
    });
  },
});

async function pay(input: Record<string, unknown>, { key }: { key: string }): Promise<string> {
  await new Promise((resolve) => setTimeout(resolve, 50));
  appendFileSync(paymentsFile, `${key} ${JSON.stringify(input)}\n`);
  return "paid";
}

async function drive(held: HeldHistory): Promise<unknown> {
  for (;;) {
    for (const call of await held.openCalls()) await held.run(call, pay);
    const messages = await prepareMessages(held);
    const last = messages.at(-1);
    if (last?.role === "assistant") return last.content;
    const { responseMessages } = await generateText({ model, messages, tools });
    await appendMessages(held, responseMessages);
  }
}

await appendMessages(history, [{ role: "user", content: "Pay Ann, Bob and Eve." }], { idempotencyKey: "question" });
console.log(await history.lease({ worker: `pid ${process.pid}`, ttlS: 2, waitS: 60 }, drive));
