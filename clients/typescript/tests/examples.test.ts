import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Foldlog } from "foldlog";
import { FoldlogSession } from "foldlog/openai-agents";
import { type Service, startService, TOKEN } from "./service.js";

let service: Service;
let folder: string;
let foldlog: Foldlog;

before(async () => {
  service = await startService();
  folder = await mkdtemp(join(tmpdir(), "foldlog-examples-"));
  foldlog = new Foldlog({ url: service.url, token: TOKEN });
});
after(async () => {
  await service.stop();
  await rm(folder, { recursive: true, force: true });
});

function start(example: string, ...parameters: string[]): ChildProcess {
  const env = { ...process.env, FOLDLOG_URL: service.url, FOLDLOG_TOKEN: TOKEN };
  return spawn(process.execPath, [join("build/examples", example), ...parameters], {
    env,
    stdio: ["ignore", "pipe", "inherit"],
  });
}

/** What an example prints, and its exit status: null if it was killed. */
async function finish(example: ChildProcess): Promise<[string, number | null]> {
  let printed = "";
  example.stdout?.on("data", (data: Buffer) => (printed += data.toString()));
  const status = await new Promise<number | null>((resolve) => example.once("close", resolve));
  return [printed.trim(), status];
}

const PAGE = "../../docs/how-to/typescript.md";

/** Write the program of the page beside the examples, for the service of the tests. */
async function savePage(): Promise<void> {
  const [, program = ""] = /```js\n(.*?)```/s.exec(await readFile(PAGE, "utf8")) ?? [];
  const settings = [["http://localhost:8765", service.url], ["secret-of-worker", TOKEN], ["chat-1", "page.mjs"]] as const;
  const replaced = settings.reduce((text, [before, now]) => text.replace(before, now), program);
  await writeFile("build/examples/page.mjs", replaced.replace('"payments.txt"', "process.argv[3]"));
}

for (const example of ["page.mjs", "ai-sdk.js"]) {
  test(`${example} goes on after a kill, and pays nobody twice`, async () => {
    await savePage();
    const payments = join(folder, `payments of ${example}`);
    const history = foldlog.histories.open(example);
    const killed = start(example, history.id, payments);
    const ending = finish(killed);
    await history.appendMessages([{ role: "user", content: "Pay Ann, Bob and Eve." }], { idempotencyKey: "question" });
    for await (const { event } of history.follow()) {
      if (event["kind"] === "observation") break; // the first payment: the second comes soon
    }
    killed.kill("SIGKILL");
    assert.deepEqual((await ending)[1], null);
    assert.deepEqual(await finish(start(example, history.id, payments)), ["All are paid.", 0]);
    const keys = (await readFile(payments, "utf8")).trim().split("\n").map((line) => line.split(" ")[0]);
    assert.equal(new Set(keys).size, keys.length, "a key was paid twice");
    const effects = await history.effects();
    assert.deepEqual(effects.length, 3);
    for (const { key, state } of effects) {
      assert(state === "unknown" || (state === "done" && keys.includes(key)), `${key} is ${state}`);
    }
  });
}

test("openai-agents.js continues its session after a kill", async () => {
  const asked = start("openai-agents.js", "user-7");
  assert.deepEqual(await finish(asked), ["You have asked 1 questions.", 0]);
  const killed = start("openai-agents.js", "user-7");
  const ending = finish(killed);
  killed.kill("SIGKILL");
  await ending;
  const [printed, status] = await finish(start("openai-agents.js", "user-7"));
  assert.match(printed, /^You have asked [23] questions\.$/);
  assert.equal(status, 0);
  const items = await new FoldlogSession(foldlog, "user-7").getItems();
  assert.equal(items.filter((item) => "role" in item && item.role === "assistant").length, 2);
});
