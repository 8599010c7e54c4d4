import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { type CanUseTool, query } from "@anthropic-ai/claude-agent-sdk";
import {
  Agent,
  type Model,
  type ModelRequest,
  type ModelResponse,
  run,
  RunState,
  setTracingDisabled,
  tool,
  Usage,
} from "@openai/agents-core";
import { Foldlog, type History, NotAllowed, type OpenCall, type StoredEvent } from "foldlog";
import { FoldlogSessionStore, type PermissionOptions } from "foldlog/claude-agent";
import { applyDecisions, FoldlogSession } from "foldlog/openai-agents";
import { z } from "zod";
import { ClaudeModel } from "./claude-model.js";
import { type Service, startService } from "./service.js";

setTracingDisabled(true);
let service: Service;
let worker: Foldlog;
let approver: Foldlog;
let fresh = 0;

before(async () => {
  service = await startService();
  worker = new Foldlog({ url: service.url, token: "token-of-worker" });
  approver = new Foldlog({ url: service.url, token: "token-of-approver" });
});
after(() => service.stop());

/** What the log has about approvals: the questions as "?", and the decisions. */
async function approvalsIn(history: History): Promise<unknown[]> {
  const found: unknown[] = [];
  for await (const event of history.events()) {
    if (event.kind !== "annotation" || event.name !== "foldlog.approval") continue;
    const { approved, by, token } = event.data as Record<string, unknown>;
    found.push(approved === undefined ? ["?", event.cause] : [approved, event.cause, by, token]);
  }
  return found;
}

async function resultsIn(history: History): Promise<unknown[]> {
  const { events } = await history.view();
  return (events as StoredEvent[]).filter(({ kind }) => kind === "observation").map((event) => event["content"]);
}

describe("approvals of OpenAI Agents JS", () => {
  /** Calls `pay` for Ann and Bob, and ends when both have a result. */
  class PayingModel implements Model {
    getResponse({ input }: ModelRequest): Promise<ModelResponse> {
      const items = typeof input === "string" ? [] : input;
      const call = (name: string) => ({
        type: "function_call" as const,
        callId: `k-${name}`,
        name: "pay",
        arguments: JSON.stringify({ to: name }),
        status: "completed" as const,
      });
      const said = { type: "output_text" as const, text: "The end." };
      const message = {
        type: "message" as const,
        role: "assistant" as const,
        status: "completed" as const,
        content: [said],
      };
      const isDone = items.some(({ type }) => type === "function_call_result");
      return Promise.resolve({ usage: new Usage(), output: isDone ? [message] : [call("Ann"), call("Bob")] });
    }

    getStreamedResponse(): never {
      throw new Error("this model does not stream");
    }
  }

  /** An agent whose payments need an approval, and the persons whom it has paid. */
  function newAgent(): { agent: Agent; paid: string[] } {
    const paid: string[] = [];
    const pay = tool({
      name: "pay",
      description: "Pay a person.",
      parameters: z.object({ to: z.string() }),
      needsApproval: true,
      execute: ({ to }) => {
        paid.push(to);
        return `paid ${to}`;
      },
    });
    return { agent: new Agent({ name: "payer", model: new PayingModel(), tools: [pay] }), paid };
  }

  const newSession = () => new FoldlogSession(worker, `pay ${(fresh += 1)}`);
  const approverOf = ({ history }: FoldlogSession) => approver.histories.open(history.id);

  test("are questions and decisions in the log, and the run obeys them, call by call", async () => {
    const { agent, paid } = newAgent();
    const session = newSession();
    let result = await run(agent, "Pay Ann and Bob.", { session });
    const calls = await applyDecisions(session.history, result.state);
    assert.deepEqual(
      calls.map(({ call_id: id }) => id),
      ["k-Ann", "k-Bob"],
    );
    const [ann, bob] = calls as [OpenCall, OpenCall];
    assert.equal((await applyDecisions(session.history, result.state)).length, 2, "nobody has decided yet");
    await assert.rejects(session.history.decide(ann, { approved: true }), NotAllowed);

    await approverOf(session).decide(ann, { approved: true, by: "eve" });
    assert.deepEqual(
      (await applyDecisions(session.history, result.state)).map(({ id }) => id),
      [bob.id],
    );
    result = await run(agent, result.state, { session });
    assert.deepEqual(paid, ["Ann"]);

    await approverOf(session).decide(bob, { approved: false, by: "eve", reason: "Bob has left" });
    assert.deepEqual(await applyDecisions(session.history, result.state), []);
    result = await run(agent, result.state, { session });
    assert.equal(result.finalOutput, "The end.");
    assert.deepEqual(paid, ["Ann"]);
    assert.deepEqual(await resultsIn(session.history), ["paid Ann", "Bob has left"]);
    assert.deepEqual(await approvalsIn(session.history), [
      ["?", ann.id],
      ["?", bob.id],
      [true, ann.id, "eve", "approver"],
      [false, bob.id, "eve", "approver"],
    ]);
    assert.deepEqual(await applyDecisions(session.history, result.state), [], "a run that has ended waits for nothing");
  });

  test("outlive the process: the run is a document, and its decisions are in the log", async () => {
    const first = newAgent();
    const session = newSession();
    const { state } = await run(first.agent, "Pay Ann and Bob.", { session });
    await session.history.setDocuments({ run: state.toString() });
    for (const call of await applyDecisions(session.history, state)) {
      await approverOf(session).decide(call, { approved: true });
    }

    const next = newAgent();
    const { documents } = await session.history.documents();
    const restored = await RunState.fromString(next.agent, String(documents["run"]));
    assert.deepEqual(await applyDecisions(session.history, restored), []);
    await run(next.agent, restored, { session });
    assert.deepEqual([first.paid, next.paid], [[], ["Ann", "Bob"]]);
  });

  test("that have ended are asked for again, by the same question", async () => {
    const { agent, paid } = newAgent();
    const session = newSession();
    const { state } = await run(agent, "Pay Ann and Bob.", { session });
    const [ann] = (await applyDecisions(session.history, state)) as [OpenCall];
    await approverOf(session).decide(ann, { approved: true, until: "2026-01-01T00:00:00Z" });
    assert.equal((await applyDecisions(session.history, state)).length, 2);
    await run(agent, state, { session });
    assert.deepEqual(paid, []);
    assert.equal((await approvalsIn(session.history)).length, 3);
  });

  test("of a call that is not in the log are refused in words", async () => {
    const { agent } = newAgent();
    const { state } = await run(agent, "Pay Ann and Bob.", { session: newSession() });
    await assert.rejects(applyDecisions(newSession().history, state), /has no open call "pay" \("k-Ann"\)/);
  });
});

describe("permissions of Claude Code", () => {
  let folder: string;
  let model: ClaudeModel;
  let address: string;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "foldlog-claude-"));
    model = new ClaudeModel();
    address = await model.start();
  });
  after(async () => {
    model.stop();
    await rm(folder, { recursive: true, force: true });
  });

  /** Let Claude Code run `touch paid` with these permissions. Returns its answer, and the session. */
  async function touch(canUseToolOf: (store: FoldlogSessionStore) => CanUseTool) {
    const work = await mkdtemp(join(folder, "work-"));
    const home = await mkdtemp(join(folder, "home-"));
    const sessionStore = new FoldlogSessionStore(worker, `claude ${(fresh += 1)}`);
    const env = {
      PATH: process.env["PATH"],
      HOME: home,
      CLAUDE_CONFIG_DIR: home,
      ANTHROPIC_BASE_URL: address,
      ANTHROPIC_API_KEY: "of the test",
      DISABLE_TELEMETRY: "1",
      DISABLE_AUTOUPDATER: "1",
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    };
    const canUseTool = canUseToolOf(sessionStore);
    const options = { cwd: work, env, sessionStore, sessionStoreFlush: "eager" as const, canUseTool };
    let answer = "";
    for await (const message of query({ prompt: "Question: run touch paid", options })) {
      if (message.type === "result" && message.subtype === "success") answer = message.result;
    }
    const projectKey = work.replace(/[^a-zA-Z0-9]/g, "-");
    const [session] = await sessionStore.listSessions(projectKey);
    const history = sessionStore.history({ projectKey, sessionId: session?.sessionId ?? "" });
    return { answer, history, isDone: existsSync(join(work, "paid")) };
  }

  test("are questions and decisions in the log: the tool runs when a person approved it", async () => {
    const asked: unknown[] = [];
    const ask: PermissionOptions["ask"] = (call) => {
      asked.push([call.tool, (call.arguments as Record<string, unknown>)["command"]]);
      return { approved: true, by: "eve" };
    };
    const { answer, history, isDone } = await touch((store) => store.canUseTool({ ask, approver }));
    assert.deepEqual([asked, isDone], [[["Bash", "touch paid"]], true]);
    assert.match(answer, /^The tool says: /);
    const [question, decision] = (await approvalsIn(history)) as [unknown[], unknown[]];
    assert.deepEqual([question[0], decision], ["?", [true, question[1], "eve", "approver"]]);
  });

  test("wait for a decision that another process records, and a refusal has its reason", async () => {
    const decideElsewhere = async (history: History, call: number): Promise<void> => {
      await approver.histories.open(history.id).decide({ id: call }, { approved: false, reason: "not today" });
    };
    const { answer, history, isDone } = await touch((store) => {
      const canUseTool = store.canUseTool();
      return async (...asked) => {
        const deciding = (async () => {
          for await (const { conversation, event } of approver.histories.follow()) {
            const { name, cause, data } = event as { name?: string; cause?: number; data?: Record<string, unknown> };
            const isMine = (data?.["shown"] as { tool?: string } | undefined)?.tool === "Bash";
            if (name !== "foldlog.approval" || !isMine || cause === undefined) continue;
            const other = approver.histories.open(String(conversation));
            const open = (await other.openCalls()).find(({ call_id: id }) => id === asked[2].toolUseID);
            if (open?.id === cause) return decideElsewhere(other, cause);
          }
        })();
        const permission = await canUseTool(...asked);
        await deciding;
        return permission;
      };
    });
    assert.deepEqual([answer, isDone], ["The tool says: not today", false]);
    const [, decision] = (await approvalsIn(history)) as [unknown, unknown[]];
    assert.deepEqual([decision[0], decision[3]], [false, "approver"]);
  });
});
