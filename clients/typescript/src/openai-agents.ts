/**
 * A session of OpenAI Agents JS that is a conversation of foldlog.
 *
 *     const session = new FoldlogSession(foldlog, "user-7");
 *     await run(agent, "hello", { session });
 *
 * The items are stored in the format `openai-responses`, which adapters for other languages read
 * too. If the SDK takes items back, they are retracted, and they stay in the log. Calls that need an
 * approval are decided in the log: see `applyDecisions`.
 */

import type { AgentInputItem, Session } from "@openai/agents-core";
import { askOnce, decisionOf, type Question, readApprovals, refusalOf } from "./approvals.js";
import { Unavailable, VersionConflict } from "./errors.js";
import type { History, OpenCall } from "./history.js";
import type { Foldlog } from "./index.js";

const FORMAT = "openai-responses";
type Item = Record<string, unknown>;

export interface FoldlogSessionOptions {
  /** The conversation has the id `PREFIX/SESSION`; by default `openai-agents/SESSION`. */
  prefix?: string;
  /** A history that is held under a lease: the session then writes under the lease. */
  history?: History;
}

/** The items of a session, as the records of a conversation. */
export class FoldlogSession implements Session {
  readonly history: History;
  readonly #id: string;

  constructor(foldlog: Foldlog, sessionId: string, options: FoldlogSessionOptions = {}) {
    const { prefix = "openai-agents" } = options;
    this.#id = sessionId;
    this.history = options.history ?? foldlog.histories.open(`${prefix}/${encodeURIComponent(sessionId)}`);
  }

  getSessionId(): Promise<string> {
    return Promise.resolve(this.#id);
  }

  /** The items that a model is shown, the oldest first. A condensed part is a message with its summary. */
  async getItems(limit?: number): Promise<AgentInputItem[]> {
    if (limit !== undefined && limit <= 0) return [];
    const { records } = await this.history.records(FORMAT, { sent: true });
    return records.slice(limit === undefined ? 0 : -limit).map((record) => itemOf(record as Item));
  }

  /** Append all items, or none. They are on disk when the promise resolves. */
  async addItems(items: AgentInputItem[]): Promise<void> {
    if (items.length > 0) await this.history.appendRecords(FORMAT, items.map(recordOf));
  }

  /** Take the newest item back, and return it. A summary of a condensation is not taken back. */
  async popItem(): Promise<AgentInputItem | undefined> {
    for (;;) {
      const { version, records, newest = [] } = await this.history.records(FORMAT, { sent: true });
      const record = records.at(-1);
      if (record === undefined || newest.some((id) => id < 0)) return undefined;
      const metadata = { reason: "the runtime took the newest item back" };
      const change = { kind: "condensation", forgotten_event_ids: newest, metadata } as const;
      try {
        await this.history.append(change, { expectedVersion: version });
        return itemOf(record as Item);
      } catch (error) {
        if (!(error instanceof VersionConflict)) throw error; // another writer was first: look again
      }
    }
  }

  /** Retract all items. They stay in the log. */
  async clearSession(): Promise<void> {
    for (;;) {
      const { version, events } = await this.history.view();
      if (events.length === 0) return;
      try {
        await this.history.retract(0, "the session was cleared", { expectedVersion: version });
      } catch (error) {
        // After a lost answer, the next View says whether the session is clear.
        if (!(error instanceof VersionConflict || error instanceof Unavailable)) throw error;
      }
    }
  }
}

/** A call of a run that waits for an approval, as `result.interruptions` has it. */
interface Interruption {
  readonly rawItem: object;
}

/** The state of a run: `result.state`, or `RunState.fromString(agent, text)`. */
interface InterruptedRun<I> {
  getInterruptions(): I[];
  approve(item: I): void;
  reject(item: I, options?: { message?: string }): void;
}

/**
 * Approve or reject the calls of an interrupted run as the log says, and return the calls that wait
 * for a decision. Each of them is a question in the log then. A token with the scope `approve`
 * decides, in any process, now or days later:
 *
 *     let result = await run(agent, "Pay Ann.", { session });
 *     for (const call of await applyDecisions(session.history, result.state)) {
 *       await approver.open(session.history.id).decide(call, { approved: true, by: "ann" });
 *     }
 *     await applyDecisions(session.history, result.state);
 *     result = await run(agent, result.state, { session });
 *
 * Raises `TypeError` for a call that is not in the log, such as one of an agent that runs as a tool.
 */
export async function applyDecisions<I extends Interruption>(
  history: History,
  state: InterruptedRun<I>,
  { to }: Pick<Question, "to"> = {},
): Promise<OpenCall[]> {
  const items = state.getInterruptions();
  if (items.length === 0) return [];
  const open = new Map((await history.openCalls()).map((call) => [call.call_id, call]));
  const interrupted = items.map((item) => ({ item, call: callOf(item, open, history) }));
  const approvals = await readApprovals(history, Math.min(...interrupted.map(({ call }) => call.id)));
  const waiting: OpenCall[] = [];
  for (const { item, call } of interrupted) {
    const decision = decisionOf(approvals.get(call.id) ?? { shown: [] });
    if (decision === undefined) {
      await askOnce(history, call, { to });
      waiting.push(call);
    } else if (decision.approved) {
      state.approve(item);
    } else {
      state.reject(item, { message: refusalOf(decision) });
    }
  }
  return waiting;
}

/** The open call that an interruption is about. */
function callOf({ rawItem }: Interruption, open: Map<unknown, OpenCall>, { id }: History): OpenCall {
  const { callId, name } = rawItem as Item;
  const call = open.get(callId);
  if (call !== undefined) return call;
  const named = `${JSON.stringify(name)} (${JSON.stringify(callId ?? null)})`;
  throw new TypeError(
    `the conversation ${JSON.stringify(id)} has no open call ${named}, so nobody can decide about it in the log;` +
      " pass the run the session of this conversation, and approve calls of an agent that runs as a tool by `state.approve`",
  );
}

/** An item as it is stored. The SDK names the members of calls in its own way: see `itemOf` for the way back. */
function recordOf(item: AgentInputItem): Item {
  const { callId, ...rest } = item as Item;
  if (rest["type"] === "function_call") return { ...rest, call_id: callId };
  if (rest["type"] !== "function_call_result") return { ...(item as Item) };
  const output = rest["output"];
  const text = typeof output === "string" ? output : textOf(output);
  const stored = { ...rest, type: "function_call_output", call_id: callId, output: text ?? JSON.stringify(output) };
  if (typeof output === "string") return stored;
  return text === undefined ? { ...stored, agents_output: output } : { ...stored, agents_output: "text" };
}

/** A stored record as the item that it was. */
function itemOf(record: Item): AgentInputItem {
  const { call_id: callId, agents_output: sdkOutput, ...rest } = record;
  if (rest["type"] === "function_call") return { ...rest, callId } as AgentInputItem;
  if (rest["type"] !== "function_call_output") return record as AgentInputItem;
  const item: Item = { ...rest, type: "function_call_result", callId };
  if (sdkOutput === "text") item["output"] = { type: "text", text: rest["output"] };
  else if (sdkOutput !== undefined) item["output"] = sdkOutput;
  return item as AgentInputItem;
}

/** The text of an output that is a text and nothing else. */
function textOf(output: unknown): string | undefined {
  const { type, text, ...others } = output as Item;
  return type === "text" && typeof text === "string" && Object.keys(others).length === 0 ? text : undefined;
}
