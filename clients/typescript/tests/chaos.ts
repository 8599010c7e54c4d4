/**
 * Kills servers and workers, stops workers for longer than their lease, and breaks connections; then
 * compares the log with what the workers wrote down. It takes a minute or more, and is no test of
 * `npm test`.
 *
 *     npm run pretest; FOLDLOG=… npm run chaos -- STORE [SECONDS] [SEED] [WORKERS] [SERVERS]
 *
 * STORE is the URL of an empty PostgreSQL store. Exits with 1 if a promise was broken.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Foldlog } from "foldlog";
import { type Fault, freePort, Proxy, type Service, startService, TOKEN } from "./service.js";

const [store = "", seconds = "60", seed = "1", workerCount = "16", serverCount = "4"] = process.argv.slice(2);
const CONVERSATIONS = 6;
const folder = mkdtempSync(join(tmpdir(), "foldlog-chaos-"));
const counts = { "servers killed": 0, "workers killed": 0, "workers stopped": 0, "connections cut": 0 };

/** Numbers from 0 to 1 that depend on the seed alone (a linear congruential generator). */
let state = Number(seed);
function random(): number {
  state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
  return state / 2 ** 31;
}
const pick = <T>(list: T[]): T => list[Math.floor(random() * list.length)] as T;
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const servers: (Service | undefined)[] = [];
const urls: string[] = [];
const workers: ChildProcess[] = [];

async function startServer(place: number): Promise<void> {
  const port = Number(new URL(urls[place] as string).port);
  while (servers[place] === undefined) {
    // A connection of this machine may have the port for a while.
    servers[place] = await startService(store, port).catch(() => sleep(500).then(() => undefined));
  }
}

function startWorker(place: number): void {
  const parameters = [join("build/tests/chaos-worker.js"), proxy.url, folder, String(CONVERSATIONS)];
  // A worker ends when its standard input does, so that no worker outlives this program.
  workers[place] = spawn(process.execPath, parameters, { stdio: ["pipe", "inherit", "inherit"] });
}

async function killServer(): Promise<void> {
  const place = Math.floor(random() * urls.length);
  const server = servers[place];
  if (server === undefined) return; // it is starting
  servers[place] = undefined;
  counts["servers killed"] += 1;
  await server.stop();
  await startServer(place);
}

function killWorker(): void {
  const place = Math.floor(random() * workers.length);
  workers[place]?.kill("SIGKILL");
  counts["workers killed"] += 1;
  startWorker(place);
}

async function stopWorker(): Promise<void> {
  const worker = pick(workers);
  worker.kill("SIGSTOP");
  counts["workers stopped"] += 1;
  await sleep(6_000);
  worker.kill("SIGCONT"); // its lease has ended, and it does not know
}

function fault(): Fault {
  const faults: Fault[] = ["drop", "cut", "cut in the body", "repeat", "delay", "delay", "busy"];
  if (random() >= 0.15) return "none";
  counts["connections cut"] += 1;
  return pick(faults);
}

for (let place = 0; place < Number(serverCount); place += 1) {
  urls.push(`http://127.0.0.1:${await freePort()}`);
  await startServer(place);
}
const proxy = await new Proxy(() => pick(urls), fault).start();
const foldlog = new Foldlog({ url: proxy.url, token: TOKEN });

const ending = new AbortController();
const followed: { conversation: string; id: number }[] = [];
const following = (async () => {
  for await (const { conversation, id } of foldlog.histories.follow({ signal: ending.signal })) {
    followed.push({ conversation, id });
  }
})();

for (let place = 0; place < Number(workerCount); place += 1) startWorker(place);
const acts: Promise<void>[] = [];
const until = performance.now() + Number(seconds) * 1_000;
while (performance.now() < until) {
  await sleep(600 + random() * 800);
  const chance = random();
  if (chance < 0.12) acts.push(killServer());
  else if (chance < 0.45) killWorker();
  else if (chance < 0.7) acts.push(stopWorker());
  else proxy.cut();
}
await Promise.all(acts);
for (const worker of workers) worker.kill("SIGKILL");
await sleep(3_000);

// -- the check

const lines = (file: string): string[][] => {
  const path = join(folder, file);
  const text = existsSync(path) ? readFileSync(path, "utf8").trim() : "";
  return text === "" ? [] : text.split("\n").map((line) => line.split(" "));
};
const logs = new Map<string, { id: number; content: string }[]>();
const effectKeys = new Set<string>();
let events = 0;
for (let number = 0; number < CONVERSATIONS; number += 1) {
  const history = foldlog.histories.open(`chaos ${number}`);
  const log: { id: number; content: string }[] = [];
  for await (const event of history.events()) {
    log.push({ id: event.id, content: String(event["content"] || event["thought"] || "") });
  }
  events += log.length;
  logs.set(history.id, log);
  for (const { key, state: effectState } of await history.effects()) if (effectState === "done") effectKeys.add(key);
}

let lost = 0;
let doubled = 0;
const acknowledged = lines("acknowledged");
for (const log of logs.values()) {
  const said = log.map(({ content }) => content).filter((content) => /^[0-9a-f-]{36}$/.test(content));
  doubled += said.length - new Set(said).size;
}
for (const [chaos, number, content] of acknowledged) {
  if (!logs.get(`${chaos} ${number}`)?.some((event) => event.content === content)) lost += 1;
}

const runs = lines("runs").map(([key]) => key as string);
const runTwice = runs.length - new Set(runs).size;
const outcomesWithoutRun = [...effectKeys].filter((key) => !runs.includes(key)).length;

let withoutLease = 0;
const leases = lines("leases").map(([chaos, number, lease, version]) => ({
  conversation: `${chaos} ${number}`,
  lease: lease as string,
  version: Number(version),
}));
leases.forEach(({ conversation, lease, version }, place) => {
  // Another lease that began later, by the version that its holder saw, or by the order of the file.
  const later = leases.filter(
    (other, otherPlace) =>
      other.conversation === conversation &&
      (other.version > version || (other.version === version && otherPlace > place)),
  );
  const endsAt = Math.min(...later.map((other) => other.version));
  const written = logs.get(conversation)?.filter(({ content }) => content === `under ${lease}`) ?? [];
  withoutLease += written.filter(({ id }) => id >= endsAt).length;
});

while (followed.length < events && performance.now() < until + 30_000) await sleep(100);
ending.abort();
await following;
const names = followed.map(({ conversation, id }) => `${conversation} ${id}`);
const followedTwice = names.length - new Set(names).size;
const notFollowed = events - new Set(names).size;

const refusals = lines("refusals").map(([name]) => name as string);
const broken = { lost, doubled, runTwice, outcomesWithoutRun, withoutLease, followedTwice, notFollowed };
console.log(
  JSON.stringify(
    {
      seed,
      seconds,
      servers: urls.length,
      workers: workers.length,
      ...counts,
      requests: proxy.seen.length,
      events,
      acknowledged: acknowledged.length,
      leases: leases.length,
      runs: runs.length,
      "leases lost or taken": refusals.length,
      surprises: lines("surprises")
        .map((words) => words.join(" "))
        .slice(0, 5),
      ...broken,
    },
    null,
    1,
  ),
);
await proxy.stop();
for (const server of servers) await server?.stop();
process.exit(Object.values(broken).some((count) => count !== 0) ? 1 : 0);
