/**
 * An agent that survives a kill: run it, kill it at any time, and run it again.
 *
 *     FOLDLOG_URL=http://localhost:8765 FOLDLOG_TOKEN=… node agent.js CONVERSATION
 *
 * The model is a function with fixed answers; replace it by a call of your model's server.
 */

import { appendFileSync } from "node:fs";
import { Foldlog, type HeldHistory } from "foldlog";

const { FOLDLOG_URL: url = "http://localhost:8765", FOLDLOG_TOKEN: token = "" } = process.env;
const [conversation = "chat-1", paymentsFile = "payments.txt"] = process.argv.slice(2);
const history = new Foldlog({ url, token }).histories.open(conversation);

/** A tool with an effect outside: it must not run twice. */
async function pay(input: Record<string, unknown>, { key }: { key: string }): Promise<string> {
  await new Promise((resolve) => setTimeout(resolve, 50));
  appendFileSync(paymentsFile, `${key} ${JSON.stringify(input)}\n`);
  return "paid";
}

/** The model: it pays three people, one after the other. */
function model(messages: Record<string, unknown>[]): object {
  const person = ["Ann", "Bob", "Eve"][messages.filter(({ role }) => role === "tool").length];
  if (person === undefined) return { role: "assistant", content: "All are paid." };
  const called = { name: "pay", arguments: JSON.stringify({ to: person }) };
  return { role: "assistant", content: null, tool_calls: [{ id: `call-${person}`, type: "function", function: called }] };
}

async function drive(held: HeldHistory): Promise<unknown> {
  for (;;) {
    for (const call of await held.openCalls()) await held.run(call, pay); // also those of a killed run
    const { messages = [], version, events } = await held.prepare("openai");
    const last = events.at(-1);
    if (last?.["kind"] === "message" && last["source"] === "agent") return last["content"];
    await held.appendReply(model(messages ?? []), { viewVersion: version, expectedVersion: version });
  }
}

await history.appendMessages([{ role: "user", content: "Pay Ann, Bob and Eve." }], { idempotencyKey: "question" });
console.log(await history.lease({ worker: `pid ${process.pid}`, ttlS: 2, waitS: 60 }, drive));
