/** A worker of `chaos.ts`: appends, takes leases, and runs tools, until it is killed. */

import { randomUUID } from "node:crypto";
import { appendFileSync } from "node:fs";
import { Foldlog, FoldlogError, type HeldHistory, type History, LeaseLost, LeaseTaken, Unavailable } from "foldlog";
import { TOKEN } from "./service.js";

const [url = "", folder = "", conversations = "1"] = process.argv.slice(2);
const foldlog = new Foldlog({ url, token: TOKEN });
process.stdin.once("end", () => process.exit()).resume();
const write = (file: string, ...words: unknown[]): void => appendFileSync(`${folder}/${file}`, `${words.join(" ")}\n`);

async function untilAnswered<T>(act: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await act();
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
    }
  }
}

async function say(history: History): Promise<void> {
  const content = randomUUID();
  await untilAnswered(() => history.appendMessages([{ role: "user", content }], { idempotencyKey: content }));
  write("acknowledged", history.id, content);
}

async function drive(held: HeldHistory): Promise<void> {
  const lease = randomUUID();
  const { version } = await held.view();
  write("leases", held.id, lease, version);
  const run = async (): Promise<void> => {
    for (const call of await held.openCalls()) {
      await held.run(call, async (_, { key }) => {
        write("runs", key);
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 100));
        return "ran";
      });
    }
  };
  for (let turn = 0; turn < 3; turn += 1) {
    await run();
    const called = { name: "tool", arguments: "{}" };
    const calls = [{ id: randomUUID(), type: "function", function: called }];
    await held.appendReply({ role: "assistant", content: `under ${lease}`, tool_calls: calls });
    await run();
    await held.appendMessages([{ role: "assistant", content: `under ${lease}` }]);
  }
}

for (;;) {
  const history = foldlog.histories.open(`chaos ${Math.floor(Math.random() * Number(conversations))}`);
  try {
    await say(history);
    await history.lease({ worker: `pid ${process.pid}`, ttlS: 4, waitS: 1 }, drive);
  } catch (error) {
    const isExpected = error instanceof LeaseLost || error instanceof LeaseTaken || error instanceof Unavailable;
    const name = error instanceof FoldlogError ? error.name : "other";
    write(isExpected ? "refusals" : "surprises", name, isExpected ? "" : String(error));
  }
}
