import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { Foldlog } from "foldlog";
import { FoldlogSession } from "foldlog/openai-agents";
import { ClaudeModel } from "./claude-model.js";
import { Proxy, type Service, startService, TOKEN } from "./service.js";

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
  return startIn(".", {}, example, ...parameters);
}

function startIn(
  cwd: string,
  variables: Record<string, string>,
  example: string,
  ...parameters: string[]
): ChildProcess {
  const env = { ...process.env, FOLDLOG_URL: service.url, FOLDLOG_TOKEN: TOKEN, ...variables };
  return spawn(process.execPath, [resolve("build/examples", example), ...parameters], {
    cwd,
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

/** Save and compile the program of a page as the page says, with other texts in place of some. */
async function compilePage(name: string, saved: string, settings: Record<string, string>): Promise<void> {
  const page = await readFile(`../../docs/how-to/${name}`, "utf8");
  const [, program = ""] = /```ts\n(.*?)```/s.exec(page) ?? [];
  const [, options = ""] = /npx tsc (.*) \w+\.ts/.exec(page) ?? [];
  const changes = Object.entries({ "http://localhost:8765": service.url, ...settings });
  const replaced = changes.reduce((text, [before, now]) => text.replaceAll(before, now), program);
  await writeFile(`build/examples/${saved}`, replaced);
  execFileSync("node_modules/.bin/tsc", [...options.split(" "), `build/examples/${saved}`], { stdio: "inherit" });
}

for (const example of ["page.js", "ai-sdk.js"]) {
  test(`${example} goes on after a kill, and pays nobody twice`, async () => {
    let outcomes = 0;
    let secondIsPaid = (): void => undefined;
    const paidTwice = new Promise<void>((resolve) => (secondIsPaid = resolve));
    const proxy = await new Proxy(
      () => service.url,
      ({ url }) => {
        if (!url?.endsWith("/outcome") || (outcomes += 1) !== 2) return "none";
        secondIsPaid();
        return "hold"; // so the example is killed with a payment that is not recorded, however slow this test is
      },
    ).start();
    const settings = {
      "http://localhost:8765": proxy.url,
      "secret-of-worker": TOKEN,
      "chat-1": "page.js",
      '"payments.txt"': "process.argv[3]!",
    };
    if (example === "page.js") await compilePage("typescript.md", "page.ts", settings);
    const payments = join(folder, `payments of ${example}`);
    const history = foldlog.histories.open(example);
    const run = (): ChildProcess => startIn(".", { FOLDLOG_URL: proxy.url }, example, history.id, payments);
    const killed = run();
    const ending = finish(killed);
    await paidTwice;
    killed.kill("SIGKILL");
    assert.deepEqual((await ending)[1], null);
    assert.deepEqual(await finish(run()), ["All are paid.", 0]);
    await proxy.stop();
    const keys = (await readFile(payments, "utf8"))
      .trim()
      .split("\n")
      .map((line) => line.split(" ")[0]);
    assert.equal(new Set(keys).size, keys.length, "a key was paid twice");
    const effects = await history.effects();
    assert.deepEqual(effects.length, 3);
    for (const { key, state } of effects) {
      const mayBeUnknown = example === "ai-sdk.js"; // the page looks up the payment
      assert((mayBeUnknown && state === "unknown") || (state === "done" && keys.includes(key)), `${key} is ${state}`);
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

test("claude-agent.js continues its session after a kill, in a home without its files", async () => {
  const model = new ClaudeModel();
  const address = await model.start();
  const work = join(folder, "work");
  await mkdir(work);
  const session = crypto.randomUUID();
  const ask = async (question: string): Promise<ChildProcess> => {
    const home = await mkdtemp(join(folder, "home-"));
    const quiet = { DISABLE_TELEMETRY: "1", DISABLE_AUTOUPDATER: "1", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1" };
    const own = { HOME: home, CLAUDE_CONFIG_DIR: home, ANTHROPIC_BASE_URL: address, ANTHROPIC_API_KEY: "of the test" };
    return startIn(work, { ...quiet, ...own }, "claude-agent.js", session, question);
  };
  try {
    assert.deepEqual(await finish(await ask("Question 1")), ["You have asked 1 questions.", 0]);
    const killed = await ask("Question 2");
    const ending = finish(killed);
    await new Promise<void>((resolve) => {
      model.asked = (question) => {
        if (question === "Question 2") resolve();
        return question === "Question 2" ? ending.then(() => undefined) : undefined;
      };
    });
    killed.kill("SIGKILL");
    assert.equal((await ending)[1], null);
    const [printed, status] = await finish(await ask("Question 3"));
    assert.match(printed, /^You have asked [23] questions\.$/);
    assert.equal(status, 0);
  } finally {
    model.stop();
  }
});

test("the chat of the page asks before it pays, lists and searches", async () => {
  const tokens = { "secret-of-worker": "token-of-worker", "secret-of-approver": "token-of-approver" };
  await compilePage("chat.md", "page-chat.ts", { ...tokens, "first chat": "chat of the page" });
  const lines = ["The heron sleeps.", "pay Ann", "y", "pay Bob", "n", "/list", "/search heron", "/quit"];
  const chat = spawn(process.execPath, ["build/examples/page-chat.js"], { stdio: ["pipe", "pipe", "inherit"] });
  let printed = "";
  chat.stdout.on("data", (data: Buffer) => {
    printed += data.toString();
    // It asks for a line, or for the answer to a question.
    if (/(> |\(y\/n\) )$/.test(printed)) chat.stdin.write(`${lines.shift() ?? "/quit"}\n`);
  });
  assert.equal(await new Promise((resolve) => chat.once("close", resolve)), 0);
  const asked = (to: string): string => `pay {"to":"${to}"}? (y/n) `;
  assert.ok(printed.includes(`${asked("Ann")}The tool says: paid Ann\n`), printed);
  assert.ok(printed.includes(`${asked("Bob")}The tool says: the user refused\n`), printed);
  assert.match(printed, /^chat of the page> chat of the page \d{4}-/m);
  assert.match(printed, /^chat of the page The heron sleeps\.$/m);
});
