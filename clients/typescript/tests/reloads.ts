/**
 * Loads the page of the example again at random moments of a reply, and compares what it shows with
 * what the model wrote. Each fifth time it opens a second page too, each tenth time it kills the
 * service, and each twentieth time the program that writes the reply (and shows the pages).
 *
 *     npm run pretest; FOLDLOG=… npm run reloads -- [COUNT] [SEED]
 *
 * Exits with 1 if a text differs, or if a model was asked for the beginning of a reply twice. A kill
 * of the writer, and one of the service that takes longer than the lease, costs a call for the rest.
 */

import { ChatExample, REPLY_MS } from "./chat-example.js";
import { findChromium } from "./chromium.js";
import { Random } from "./ui-messages.js";

const [count = "100", seed = "1"] = process.argv.slice(2);
const random = new Random(Number(seed));
const program = findChromium();
if (program === undefined) throw new Error("no browser here; on Debian: apt-get install chromium");
const chat = await new ChatExample(program).start();
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const counts = {
  equal: 0,
  "second pages": 0,
  "services killed": 0,
  "writers killed": 0,
  "calls for a beginning": 0,
  "calls for a rest": 0,
};
const problems: string[] = [];
for (let number = 1; number <= Number(count); number += 1) {
  const name = `${seed}-${number}`;
  const tabs = [await chat.ask(name, name)];
  try {
    await sleep(random.below(REPLY_MS * 1.2));
    if (number % 5 === 0) {
      tabs.push(await chat.open(name));
      counts["second pages"] += 1;
    }
    if (number % 20 === 0) {
      await chat.killApp();
      await chat.startApp();
      counts["writers killed"] += 1;
    } else if (number % 10 === 0) {
      await chat.killService();
      await chat.startService();
      counts["services killed"] += 1;
    }
    for (const tab of number % 20 === 0 ? tabs : tabs.slice(0, 1)) await tab.reload();
    for (const tab of tabs) await chat.check(tab, name);
    await chat.checkLog(name, name);
    counts.equal += 1;
  } catch (error) {
    problems.push(`${name}: ${String(error).slice(0, 2_000)}`);
  }
  for (const tab of tabs) await tab.close();
}
for (const { beginning } of chat.model.calls)
  counts[beginning === "" ? "calls for a beginning" : "calls for a rest"] += 1;
await chat.stop();
console.log(JSON.stringify({ reloads: Number(count), seed, ...counts, problems }, null, 1));
process.exit(problems.length > 0 || counts["calls for a beginning"] > Number(count) ? 1 : 0);
