import assert from "node:assert/strict";
import { test } from "node:test";
import { FoldlogError, type History } from "foldlog";
import { TestService } from "./service.js";

const service = new TestService("errors");

const begun = async (): Promise<History> => {
  const history = service.newHistory();
  await history.appendMessages([{ role: "user", content: "pay" }]);
  return history;
};
const called = async (): Promise<[History, never]> => {
  const history = await begun();
  const call = { id: "k1", type: "function", function: { name: "pay", arguments: "{}" } };
  await history.appendReply({ role: "assistant", content: null, tool_calls: [call] });
  return [history, (await history.openCalls())[0] as never];
};

/** For each wrong call: what is wrong, the call, the class of its error, and words of the client in the message. */
const TRIES: [string, () => Promise<unknown>, string, RegExp?][] = [
  [
    "another version",
    async () => (await begun()).append({ kind: "message", source: "user", content: "x" }, { expectedVersion: 7 }),
    "VersionConflict",
  ],
  ["a version that does not exist", async () => (await begun()).view({ at: 9 }), "InvalidRequest"],
  ["an event that does not exist", async () => (await begun()).why(9), "InvalidRequest"],
  [
    "a conversation that does not exist",
    () => service.foldlog.histories.open("nobody").state(),
    "ConversationNotFound",
  ],
  [
    "no lease",
    async () => {
      const [history, call] = await called();
      let lost: { run: History["append"] } | undefined;
      await history.lease({ worker: "w" }, async (held) => void (lost = held as never));
      await lost?.run(call, (() => 1) as never);
    },
    "LeaseLost",
    /take the lease again/,
  ],
  [
    "another worker",
    async () => {
      const history = await begun();
      await history.lease({ worker: "a" }, () => history.lease({ worker: "b" }, async () => 1));
    },
    "LeaseTaken",
    /wait longer \(waitS\)/,
  ],
  [
    "a lease that is too long",
    async () => (await begun()).lease({ worker: "a", ttlS: 9_999 }, async () => 1),
    "InvalidRequest",
    /`ttlS`/,
  ],
  [
    "no approval",
    async () => {
      const [history, call] = await called();
      await history.lease({ worker: "w" }, (held) => held.run(call, () => 1, { needsApproval: true }));
    },
    "NotApproved",
    /scope 'approve'/,
  ],
  [
    "a fork",
    async () => {
      const history = await begun();
      await history.fork();
      await history.erase({ reason: "asked" });
    },
    "ConversationHasForks",
    /pass with_forks or detach_forks to erase/,
  ],
  [
    "an effect that does not exist",
    async () => (await begun()).settle("no key", { outcome: 1 }),
    "InvalidRequest",
    /history\.effects\(\) lists all effects/,
  ],
  [
    "a condensation that does not exist",
    async () => (await begun()).dropped(0),
    "InvalidRequest",
    /history\.events\(\) has events of the kind condensation/,
  ],
  [
    "a user's message as a reply",
    async () => (await begun()).appendReply({ role: "user", content: "x" }),
    "InvalidRequest",
    /append it with history\.appendMessages/,
  ],
  ["no reply to end", async () => (await begun()).cutReply(), "StreamNotFound"],
  [
    "a second reply",
    async () => {
      const history = await begun();
      await history.streamReply();
      await history.streamReply();
    },
    "ReplyUnfinished",
    /call unfinishedReply\(\) in history\.lease/,
  ],
  [
    "an unknown delta",
    async () => {
      const writer = await (await begun()).streamReply();
      await writer.feed({ type: "no" } as never);
      await writer.end();
    },
    "InvalidRequest",
  ],
];

for (const [what, attempt, name, words = /./] of TRIES) {
  test(`${what} is ${name}, in words of the client`, async () => {
    await assert.rejects(attempt(), (error) => {
      assert(error instanceof FoldlogError);
      assert.equal(error.name, name);
      assert.match(error.message, words);
      assert.doesNotMatch(
        error.message,
        /\bTrue\b|\bNone\b|\w=…|'foldlog |foldlog\.|the path \/|\b(?:ttl|wait)_s\b|lease\(\)/,
      );
      return true;
    });
  });
}
