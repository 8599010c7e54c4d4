/**
 * A session of OpenAI Agents JS that is a conversation of foldlog.
 *
 *     const session = new FoldlogSession(foldlog, "user-7");
 *     await run(agent, "hello", { session });
 *
 * The items are stored in the format `openai-responses`, which adapters for other languages read
 * too. If the SDK takes items back, they are retracted, and they stay in the log.
 */

import type { AgentInputItem, Session } from "@openai/agents-core";
import { Unavailable, VersionConflict } from "./errors.js";
import type { History } from "./history.js";
import type { Foldlog } from "./index.js";

const FORMAT = "openai-responses";
type Item = Record<string, unknown>;

export interface FoldlogSessionOptions {
  /** The conversation has the id `PREFIX/SESSION`; by default `openai-agents/SESSION`. */
  prefix?: string;
  /** A history that is held under a lease: the session then writes under the lease. */
  history?: History;
}

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

/** The SDK names the members of calls in its own way: see `itemOf` for the way back. */
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
