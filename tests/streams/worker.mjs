// A worker of `kills.py` with the client for TypeScript: writes replies until it is killed. After each chunk that is in the
// store, it writes a line.
import { randomUUID } from "node:crypto";
import { writeSync } from "node:fs";
import { Foldlog, LeaseLost, LeaseTaken, Unavailable } from "../../clients/typescript/dist/index.js";

const [url, token, conversation] = process.argv.slice(2);
const history = new Foldlog({ url, token }).histories.open(conversation);
const tell = (...words) => writeSync(1, `${words.join(" ")}\n`);

async function write(held) {
  for (let turn = 0; turn < 5; turn += 1) {
    const id = randomUUID();
    const writer = await held.streamReply();
    const length = Math.floor(Math.random() * 40);
    for (let number = 0; number < length; number += 1) {
      await writer.feed({ type: "text", text: `${id}.${number} ` });
      tell("stored", id, number);
    }
    await writer.feed({ type: "call", at: 1, id, tool: "look", arguments: '{"whole": ' });
    await writer.feed({ type: "call", at: 1, arguments: "true}" });
    await writer.end(undefined, { idempotencyKey: id });
    tell("ended", id, length);
  }
}

for (;;) {
  try {
    await history.lease({ worker: `pid ${process.pid}`, ttlS: 2, waitS: 5 }, async (held) => {
      if (await held.isReplying()) await held.cutReply();
      await write(held);
    });
  } catch (error) {
    const isExpected = error instanceof LeaseLost || error instanceof LeaseTaken || error instanceof Unavailable;
    if (!isExpected) tell("surprise", String(error).replaceAll("\n", " "));
  }
}
