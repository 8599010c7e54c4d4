/**
 * Kills the example of the AI SDK and its service again and again, and compares each chat with what
 * was paid. Every third kill is one of the service.
 *
 *     npm run pretest; FOLDLOG=… npm run example-kills -- [KILLS] [SEED] [STORE]
 *
 * Exits with 1 if a payment or a message was lost, written twice, or made twice.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Foldlog } from "foldlog";
import { freePort, type Service, startService, TOKEN } from "./service.js";
import { Random } from "./ui-messages.js";

const [kills = "100", seed = "1", store] = process.argv.slice(2);
const PEOPLE = ["Ann", "Bob", "Eve"];
/** The example needs about so long for a chat. */
const CHAT_MS = 1_500;
const random = new Random(Number(seed));
const folder = mkdtempSync(join(tmpdir(), "foldlog-example-"));
const db = store ?? join(folder, "chats.db");
const port = await freePort();
const url = `http://127.0.0.1:${port}`;
let service: Service = await startService(db, port);
const foldlog = new Foldlog({ url, token: TOKEN });
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const counts = { chats: 0, "examples killed": 0, "services killed": 0, "examples that failed": 0, paid: 0, unknown: 0 };
const broken = { lost: 0, doubled: 0, "paid twice": 0, "paid without an outcome": 0, "outcome without a payment": 0 };
const killed = (): number => counts["examples killed"] + counts["services killed"];

function start(conversation: string, payments: string): ChildProcess {
  const env = { ...process.env, FOLDLOG_URL: url, FOLDLOG_TOKEN: TOKEN };
  return spawn(process.execPath, ["build/examples/ai-sdk.js", conversation, payments], {
    env,
    stdio: ["ignore", "ignore", "pipe"],
  });
}

/** Run the example until it has ended by itself, with kills between. */
async function finishChat(conversation: string, payments: string): Promise<void> {
  for (;;) {
    const example = start(conversation, payments);
    const closed = once(example, "close");
    if (killed() < Number(kills)) {
      await Promise.race([closed, sleep(random.below(CHAT_MS))]);
      if (example.exitCode === null && (killed() + 1) % 3 === 0) {
        counts["services killed"] += 1;
        await service.stop();
        service = await startService(db, port);
      } else if (example.exitCode === null) {
        counts["examples killed"] += 1;
        example.kill("SIGKILL");
      }
    }
    const [status] = (await closed) as [number | null];
    if (status === 0) return;
    if (status !== null) counts["examples that failed"] += 1;
  }
}

async function check(conversation: string, payments: string): Promise<void> {
  const history = foldlog.histories.open(conversation);
  const paid = existsSync(payments) ? readFileSync(payments, "utf8").trim().split("\n") : [];
  const keys = paid.map((line) => line.split(" ")[0] as string);
  const people = paid.map((line) => (JSON.parse(line.slice(line.indexOf(" "))) as { to: string }).to);
  broken["paid twice"] += paid.length - new Set(people).size;
  counts.paid += paid.length;
  const effects = await history.effects();
  for (const { key, state } of effects) {
    if (state === "unknown") counts.unknown += 1;
    else if (!keys.includes(key)) broken["outcome without a payment"] += 1;
  }
  broken["paid without an outcome"] += keys.filter((key) => !effects.some((effect) => effect.key === key)).length;
  const messages = await history.messages();
  const said = messages.map(({ role, content }) => `${role} ${role === "tool" ? "" : JSON.stringify(content ?? null)}`);
  const calls = messages.flatMap((message) => (message.role === "assistant" ? (message.tool_calls ?? []) : []));
  const called = calls.map((call) => (JSON.parse(call.function.arguments) as { to: string }).to);
  for (const person of PEOPLE) {
    const count = called.filter((to) => to === person).length;
    if (count === 0) broken.lost += 1;
    else broken.doubled += count - 1;
  }
  const [first, last] = [said[0], said.at(-1)];
  if (first !== 'user "Pay Ann, Bob and Eve."' || !last?.includes("All are paid.")) broken.lost += 1;
  const expected = 2 + 2 * PEOPLE.length;
  broken.lost += Math.max(0, expected - said.length);
  broken.doubled += Math.max(0, said.length - expected);
  counts.chats += 1;
}

while (killed() < Number(kills)) {
  const conversation = `chat ${counts.chats}`;
  const payments = join(folder, conversation);
  await finishChat(conversation, payments);
  await check(conversation, payments);
}
await service.stop();
console.log(JSON.stringify({ seed, ...counts, broken }, null, 1));
process.exit(Object.values(broken).some((count) => count > 0) ? 1 : 0);
