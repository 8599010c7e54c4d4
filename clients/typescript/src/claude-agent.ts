/**
 * A session store of the Claude Agent SDK: each transcript is a conversation of foldlog.
 *
 *     query({ prompt, options: { sessionStore: new FoldlogSessionStore(foldlog) } });
 *
 * The entries are stored in the format `claude-code`, under the ids that the adapter for Python
 * uses too. Claude Code itself decides what its model is shown.
 */

import type { SessionKey, SessionStore, SessionStoreEntry } from "@anthropic-ai/claude-agent-sdk";
import { ConversationErased, ConversationNotFound } from "./errors.js";
import type { History } from "./history.js";
import type { Foldlog, Histories } from "./index.js";

const FORMAT = "claude-code";
const ENTRIES_MAX = 1_000;

export class FoldlogSessionStore implements SessionStore {
  readonly #histories: Histories;
  readonly #prefix: string;

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
    for (let start = 0; start < entries.length; ) {
      const dedupe = entries[start]?.uuid !== undefined;
      let stop = start + 1;
      while (stop < entries.length && (entries[stop]?.uuid !== undefined) === dedupe) stop += 1;
      stop = Math.min(stop, start + ENTRIES_MAX);
      await history.appendRecords(FORMAT, entries.slice(start, stop), { dedupe });
      start = stop;
    }
  }

  async load(key: SessionKey): Promise<SessionStoreEntry[] | null> {
    try {
      const { records } = await this.history(key).records(FORMAT);
      return records.length === 0 ? null : (records as SessionStoreEntry[]);
    } catch (error) {
      if (error instanceof ConversationErased || error instanceof ConversationNotFound) return null;
      throw error;
    }
  }

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
