/** A worker of `reply-kills.ts`: writes replies as streams, until it is killed. */

import { appendFileSync } from "node:fs";
import { type Delta, Foldlog, type HeldHistory, LeaseLost, LeaseTaken, type ReplyWriter, Unavailable } from "foldlog";
import { TOKEN } from "./service.js";

const [url = "", conversation = "", file = "", pieces = "30"] = process.argv.slice(2);
process.stdin.once("end", () => process.exit()).resume();
const history = new Foldlog({ url, token: TOKEN }).histories.open(conversation);
const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

/** The text is `ID 0 1 2 …`, and the next piece is `number`. Half of the replies end with a call. */
async function write(writer: ReplyWriter, reply: string, number: number): Promise<void> {
  for (let next = number; next < Number(pieces); next += 1) {
    await writer.feed({ type: "text", text: next === 0 ? `${reply} 0` : ` ${next}` });
    appendFileSync(file, `${reply} ${next}\n`);
    await pause();
  }
  if (Number.parseInt(reply, 16) % 2 === 0) {
    const call: Delta[] = [
      { type: "call", at: 0, id: `call-${reply}`, tool: "look", arguments: '{"re' },
      { type: "call", at: 0, arguments: `ply": "${reply}` },
      { type: "call", at: 0, arguments: '", "whole": true}', ends: true },
    ];
    for (const delta of call) {
      await writer.feed(delta);
      await pause();
    }
  }
  await writer.end();
}

async function drive(held: HeldHistory): Promise<void> {
  const unfinished = await held.unfinishedReply();
  const [reply = "", ...numbers] = unfinished?.text.split(" ") ?? [];
  if (unfinished?.hasCalls === true || (unfinished !== undefined && numbers.length % 2 === 0)) {
    await unfinished.cut();
  } else if (unfinished !== undefined) {
    await write(unfinished.continue(), reply, numbers.length);
  }
  for (;;) {
    for (const call of await held.openCalls()) await held.run(call, () => "looked", { repeat: "same key" });
    const id = Math.floor(Math.random() * 2 ** 48).toString(16);
    await write(await held.streamReply(), id, 0);
  }
}

for (;;) {
  try {
    await history.lease({ worker: `pid ${process.pid}`, ttlS: 2, waitS: 30 }, drive);
  } catch (error) {
    const isExpected = error instanceof LeaseLost || error instanceof LeaseTaken || error instanceof Unavailable;
    if (!isExpected) throw error;
  }
}
