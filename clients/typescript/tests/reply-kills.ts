/**
 * Kills workers that write replies as streams, and compares what they wrote down with the log, with
 * what readers got, and with the prompts.
 *
 *     npm run pretest; FOLDLOG=… npm run reply-kills -- [KILLS] [SERVICE KILLS] [STORE]
 *
 * Exits with 1 if a promise was broken.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Foldlog, FoldlogError, type History } from "foldlog";
import { freePort, type Service, startService, TOKEN } from "./service.js";

const [kills = "100", serviceKills = "0", store] = process.argv.slice(2);
const CONVERSATIONS = 4;
const folder = mkdtempSync(join(tmpdir(), "foldlog-replies-"));
const db = store ?? join(folder, "replies.db");
const port = await freePort();
const url = `http://127.0.0.1:${port}`;
let service: Service = await startService(db, port);
const foldlog = new Foldlog({ url, token: TOKEN });
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const broken = {
  lost: 0,
  doubled: 0,
  "out of order": 0,
  "half calls": 0,
  "open and appended": 0,
  "appended twice": 0,
  "left open": 0,
};
const counts = {
  kills: 0,
  "services killed": 0,
  "killed in a reply": 0,
  replies: 0,
  cut: 0,
  calls: 0,
  acknowledged: 0,
  "parts read": 0,
  prompts: 0,
};
const surprises: string[] = [];
let isEnding = false;

/** The reply and the numbers of a text `ID 0 1 2 …`. */
function read(text: string): { reply: string; numbers: number[] } {
  const [reply = "", ...numbers] = text.trim().split(" ");
  return { reply, numbers: numbers.map(Number) };
}

function checkOrder(text: string): void {
  const { numbers } = read(text);
  if (new Set(numbers).size !== numbers.length) broken.doubled += 1;
  else if (numbers.some((number, index) => number !== index)) broken["out of order"] += 1;
}

/** Read each reply as a page does, from its beginning to its end. */
async function follow(history: History): Promise<void> {
  while (!isEnding) {
    let text = "";
    for await (const { delta } of history.followReply()) {
      counts["parts read"] += 1;
      if (delta.type === "text") text += delta.text;
    }
    checkOrder(text);
    await sleep(20);
  }
}

/** Look at the prompt, and whether an appended reply is open. */
async function look(history: History): Promise<void> {
  while (!isEnding) {
    const appended = new Set<string>();
    for await (const event of history.events()) appended.add(replyOf(event));
    const open = await history.unfinishedReply();
    if (open !== undefined && open.text !== "" && appended.has(read(open.text).reply)) broken["open and appended"] += 1;
    for (const message of await history.messages()) {
      if (message.role !== "assistant") continue;
      for (const call of message.tool_calls ?? []) {
        const whole = /^\{"reply": ?"\w+", ?"whole": ?true\}$/.test(call.function.arguments);
        if (!whole) broken["half calls"] += 1;
      }
    }
    counts.prompts += 1;
    await sleep(200);
  }
}

const replyOf = (event: Record<string, unknown>): string =>
  read(String(event["thought"] ?? event["content"] ?? "")).reply;

/** Start a worker, and kill it at a random moment after it has begun to write. */
async function killWorkers(history: History, file: string): Promise<void> {
  while (counts.kills < Number(kills)) {
    const parameters = ["build/tests/reply-worker.js", url, history.id, file];
    const worker: ChildProcess = spawn(process.execPath, parameters, { stdio: ["pipe", "inherit", "inherit"] });
    const lines = (): number => (existsSync(file) ? readFileSync(file).length : 0);
    const before = lines();
    while (lines() === before && worker.exitCode === null) await sleep(20);
    await sleep(Math.random() * 4_000);
    if (worker.exitCode !== null) surprises.push(`a worker ended with ${worker.exitCode}`);
    const ended = once(worker, "exit");
    worker.kill("SIGKILL");
    await ended;
    counts.kills += 1;
    if (await history.isReplying()) counts["killed in a reply"] += 1;
  }
}

async function killServices(): Promise<void> {
  while (counts["services killed"] < Number(serviceKills)) {
    await sleep(1_000 + Math.random() * 2_000);
    const ended = once(service.process, "exit");
    service.process.kill("SIGKILL");
    await ended;
    counts["services killed"] += 1;
    service = await startService(db, port);
  }
}

async function check(history: History, file: string): Promise<void> {
  await history.lease({ worker: "check", ttlS: 30, waitS: 30 }, async (held) => {
    await (await held.unfinishedReply())?.cut();
  });
  if (await history.isReplying()) broken["left open"] += 1;
  const texts = new Map<string, number>();
  for await (const event of history.events(1)) {
    if (event.kind !== "message" && event.kind !== "action") continue;
    const text = event.kind === "action" ? String(event["thought"]) : String(event["content"]);
    const { reply, numbers } = read(text);
    checkOrder(text);
    if (texts.has(reply)) broken["appended twice"] += 1;
    texts.set(reply, numbers.length);
    counts.replies += 1;
    if ((event["meta"] as { cut?: true } | undefined)?.cut) counts.cut += 1;
    if (event.kind === "action") counts.calls += 1;
  }
  for (const line of readFileSync(file, "utf8").trim().split("\n")) {
    const [reply = "", number] = line.split(" ");
    counts.acknowledged += 1;
    if ((texts.get(reply) ?? 0) <= Number(number)) broken.lost += 1;
  }
}

const histories = Array.from({ length: CONVERSATIONS }, (_, number) => foldlog.histories.open(`replies ${number}`));
for (const history of histories) await history.appendMessages([{ role: "user", content: "look" }]);
const watch = (work: Promise<void>): Promise<void> =>
  work.catch((error: unknown) => void surprises.push(error instanceof FoldlogError ? error.message : String(error)));
const watching = histories.flatMap((history) => [watch(follow(history)), watch(look(history))]);
const files = histories.map((_, number) => join(folder, `acknowledged ${number}`));
await Promise.all([
  ...histories.map((history, number) => killWorkers(history, files[number] as string)),
  killServices(),
]);
isEnding = true;
for (const [number, history] of histories.entries()) await check(history, files[number] as string);
await Promise.all(watching);
console.log(JSON.stringify({ ...counts, ...broken, surprises }, null, 1));
await service.stop();
process.exit(Object.values(broken).some((count) => count > 0) || surprises.length > 0 ? 1 : 0);
