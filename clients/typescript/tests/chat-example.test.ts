import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ChatExample } from "./chat-example.js";
import { findChromium } from "./chromium.js";

const program = findChromium();
const skip = program === undefined ? "no browser here; on Debian: apt-get install chromium" : false;
let chat: ChatExample;

before(async () => {
  if (program !== undefined) chat = await new ChatExample(program).start();
});
after(() => chat?.stop());

test("a page that is loaded again, and a second one, go on with the reply", { skip }, async () => {
  const page = await chat.ask("c1", "q1");
  await page.wait(`document.querySelector("[data-role=assistant]") !== null`);
  const second = await chat.open("c1");
  await page.reload();
  await chat.check(page, "q1");
  await chat.check(second, "q1");
  await page.reload();
  await chat.check(page, "q1");
  await chat.checkLog("c1", "q1");
  assert.deepEqual(chat.model.calls, [{ question: "q1", beginning: "" }]);
});

test("a reply goes on after a kill of the service, and no model is called again", { skip }, async () => {
  const page = await chat.ask("c2", "q2");
  await page.wait(`document.querySelector("[data-role=assistant]") !== null`);
  await chat.killService();
  await chat.startService();
  await chat.check(page, "q2");
  await chat.checkLog("c2", "q2");
  assert.deepEqual(
    chat.model.calls.filter(({ question }) => question === "q2"),
    [{ question: "q2", beginning: "" }],
  );
});

test("a reply goes on after a kill of its writer, and no piece is written twice", { skip }, async () => {
  const page = await chat.ask("c3", "q3");
  await page.wait(`document.querySelector("[data-role=assistant]") !== null`);
  await chat.killApp();
  await chat.startApp();
  const second = await chat.open("c3");
  await chat.check(page, "q3");
  await chat.check(second, "q3");
  await chat.checkLog("c3", "q3");
  const [first, rest, ...others] = chat.model.calls.filter(({ question }) => question === "q3");
  assert.equal(first?.beginning, "");
  assert.match(rest?.beginning ?? "", /^q3 0 /); // the second call begins behind the text that readers have
  assert.deepEqual(others, []);
});
