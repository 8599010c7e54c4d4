/**
 * A session store of the Claude Agent SDK: each transcript is a conversation of foldlog.
 *
 *     query({ prompt, options: { sessionStore: new FoldlogSessionStore(foldlog) } });
 *
 * The entries are stored in the format `claude-code`, under the ids that the adapter for Python
 * uses too. Claude Code itself decides what its model is shown. Permissions that it asks for are
 * decided in the log: see `canUseTool`.
 */

import type { SessionKey, SessionStore, SessionStoreEntry } from "@anthropic-ai/claude-agent-sdk";
import {
  type Approvals,
  askOnce,
  decisionOf,
  noteApproval,
  readApprovals,
  type RecordedDecision,
  refusalOf,
} from "./approvals.js";
import { ConversationErased, ConversationNotFound } from "./errors.js";
import type { History, OpenCall, StoredEvent } from "./history.js";
import type { Foldlog, Histories } from "./index.js";
import { pause } from "./transport.js";
import type { Signal } from "./web.js";

const FORMAT = "claude-code";
/** The maximum number of entries of a request, so that none is refused as too large. */
const ENTRIES_MAX = 1_000;
/** A call is in the log within this time after the SDK asked for its permission. */
const STORED_WITHIN_MS = 10_000;
/** The number of calls whose conversations are kept for `canUseTool`. */
const CALLS_MAX = 1_000;

/** A person's answer. `approver` of `PermissionOptions` records it. */
export interface Answer {
  approved: boolean;
  by?: string;
  reason?: string;
}

export interface PermissionOptions {
  /**
   * Asks a person in this process. Without it, the tool waits until a decision about its call is
   * in the log, which another process makes: `histories.open(id).decide(call, { approved: true })`.
   */
  ask?: (call: OpenCall, context: { history: History; signal: Signal }) => Answer | Promise<Answer>;
  /** A service with a token that may approve: it records the answer of `ask`. */
  approver?: Foldlog;
  /** Who is asked, by default "user". */
  to?: string;
}

/** What Claude Code says about a tool that needs a permission. */
interface AskedTool {
  signal: Signal;
  toolUseID: string;
  title?: string;
  description?: string;
  decisionReason?: string;
  blockedPath?: string;
}

type Permission = { behavior: "allow"; updatedInput: Record<string, unknown> } | { behavior: "deny"; message: string };

/** Stores the transcripts of Claude Code in the conversations of a service. */
export class FoldlogSessionStore implements SessionStore {
  readonly #histories: Histories;
  readonly #prefix: string;
  /** The conversations of the newest calls of tools, by their ids. */
  readonly #calls = new Map<string, History>();

  constructor(foldlog: Foldlog, prefix = "claude") {
    this.#histories = foldlog.histories;
    this.#prefix = prefix;
  }

  /** The conversation of a transcript: `PREFIX/PROJECT/SESSION`, and `/SUBPATH` for a sub-agent. */
  history(key: SessionKey): History {
    return this.#histories.open(this.#id(key));
  }

  /** Append entries. An entry whose `uuid` the session has already is left out. */
  async append(key: SessionKey, entries: SessionStoreEntry[]): Promise<void> {
    const history = this.history(key);
    for (let start = 0; start < entries.length;) {
      const dedupe = entries[start]?.uuid !== undefined;
      let stop = start + 1;
      while (stop < entries.length && (entries[stop]?.uuid !== undefined) === dedupe) stop += 1;
      stop = Math.min(stop, start + ENTRIES_MAX);
      await history.appendRecords(FORMAT, entries.slice(start, stop), { dedupe });
      start = stop;
    }
    for (const id of entries.flatMap(toolUsesOf)) this.#calls.set(id, history);
    for (const id of [...this.#calls.keys()].slice(0, -CALLS_MAX)) this.#calls.delete(id);
  }

  /**
   * The option `canUseTool` of `query`: a tool that needs a permission becomes a question in the
   * log, and runs if the last decision about its call approved it. The decision needs a token with
   * the scope `approve`.
   *
   *     const canUseTool = sessionStore.canUseTool({ approver, ask });
   *     query({ prompt, options: { sessionStore, sessionStoreFlush: "eager", canUseTool } });
   *
   * The call must be in the log before a person decides about it, so `sessionStoreFlush` is "eager".
   */
  canUseTool({ ask, approver, to }: PermissionOptions = {}) {
    return async (_tool: string, input: Record<string, unknown>, asked: AskedTool): Promise<Permission> => {
      const { signal, toolUseID, title, description, decisionReason, blockedPath } = asked;
      const { history, call } = await this.#storedCall(toolUseID, signal);
      await askOnce(history, call, { to, shown: { title, description, decisionReason, blockedPath } });
      let decision = await decisionAbout(history, call);
      if (decision === undefined && ask !== undefined) {
        const answer = await ask(call, { history, signal });
        const deciding = approver?.histories.open(history.id) ?? history;
        await deciding.decide(call, { ...answer }, { signal });
      }
      decision ??= await nextDecision(history, call, signal);
      if (decision.approved) return { behavior: "allow", updatedInput: input };
      return { behavior: "deny", message: refusalOf(decision) };
    };
  }

  /** The call with an id. The SDK appends it about when it asks for the permission. */
  async #storedCall(toolUse: string, signal: Signal): Promise<{ history: History; call: OpenCall }> {
    const giveUpAt = performance.now() + STORED_WITHIN_MS;
    for (;;) {
      const history = this.#calls.get(toolUse);
      const calls = history === undefined ? [] : await history.openCalls();
      const call = calls.find(({ call_id: id }) => id === toolUse);
      if (history !== undefined && call !== undefined) return { history, call };
      if (performance.now() >= giveUpAt) {
        throw new TypeError(
          `the call ${JSON.stringify(toolUse)} is not in the log after ${STORED_WITHIN_MS / 1_000} s, so nobody can` +
            ' decide about it; pass `query` this session store, and sessionStoreFlush: "eager"',
        );
      }
      await pause(20, signal);
    }
  }

  /** The entries of a transcript, or null for none. */
  async load(key: SessionKey): Promise<SessionStoreEntry[] | null> {
    try {
      const { records } = await this.history(key).records(FORMAT);
      return records.length === 0 ? null : (records as SessionStoreEntry[]);
    } catch (error) {
      if (error instanceof ConversationErased || error instanceof ConversationNotFound) return null;
      throw error;
    }
  }

  /** The sessions of a project, without those of sub-agents. */
  async listSessions(projectKey: string): Promise<{ sessionId: string; mtime: number }[]> {
    const sessions: { sessionId: string; mtime: number }[] = [];
    const start = this.#id({ projectKey, sessionId: "" });
    for await (const { id, updated_at } of this.#histories.list({}, start)) {
      const name = id.slice(start.length);
      if (name.includes("/")) continue; // of a sub-agent
      sessions.push({ sessionId: decodeURIComponent(name), mtime: Date.parse(updated_at) });
    }
    return sessions;
  }

  /**
   * Erase a session with its sub-agents, or one sub-agent. An erased id cannot begin again. Needs a
   * token that may administer.
   */
  async delete(key: SessionKey): Promise<void> {
    const ids = [this.#id(key)];
    for await (const { id } of this.#histories.list({}, `${ids[0]}/`)) ids.push(id);
    for (const id of ids) {
      try {
        await this.#histories.open(id).erase({ reason: "the session was deleted", detach_forks: true });
      } catch (error) {
        if (!(error instanceof ConversationErased || error instanceof ConversationNotFound)) throw error;
      }
    }
  }

  /** The parts of a session: its sub-agents. */
  async listSubkeys(key: { projectKey: string; sessionId: string }): Promise<string[]> {
    const start = `${this.#id(key)}/`;
    const subpaths: string[] = [];
    for await (const { id } of this.#histories.list({}, start)) {
      subpaths.push(decodeURIComponent(id.slice(start.length)));
    }
    return subpaths;
  }

  #id({ projectKey, sessionId, subpath }: SessionKey): string {
    const parts = [projectKey, sessionId, ...(subpath ? [subpath] : [])];
    return [this.#prefix, ...parts.map(encodeURIComponent)].join("/");
  }
}

/** The ids of the calls of tools in an entry of a transcript. */
function toolUsesOf(entry: SessionStoreEntry): string[] {
  const { message } = entry as { message?: { content?: unknown } };
  const blocks = Array.isArray(message?.content) ? (message.content as Record<string, unknown>[]) : [];
  return blocks.filter(({ type }) => type === "tool_use").map(({ id }) => String(id));
}

/** The decision about a call that holds now. */
async function decisionAbout(history: History, { id }: OpenCall): Promise<RecordedDecision | undefined> {
  const approvals = await readApprovals(history, id);
  return decisionOf(approvals.get(id) ?? { shown: [] });
}

/** The decision about a call, which may come in days. */
async function nextDecision(history: History, { id }: OpenCall, signal: Signal): Promise<RecordedDecision> {
  const approvals = new Map<number, Approvals>();
  for await (const { event } of history.follow({ after: id, signal })) {
    noteApproval(approvals, event as StoredEvent);
    const decision = decisionOf(approvals.get(id) ?? { shown: [] });
    if (decision !== undefined) return decision;
  }
  throw signal.reason; // nothing else ends the loop
}
