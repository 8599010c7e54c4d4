/**
 * A turn of the agent as the chunks that `useChat` reads: its replies, live, with the results of tools
 * and the questions to a person between them, until nobody works on the conversation.
 */

import type { UIMessage, UIMessageChunk } from "ai";
import { ConversationNotFound, NotAllowed, noReply } from "../errors.js";
import type { History, StoredEvent } from "../history.js";
import type { Json } from "../json.js";
import type { ReplyPart } from "../streams.js";
import { anyOf, pause } from "../transport.js";
import type { Signal } from "../web.js";
import { StoredChat, type StoredSlot, toolOf } from "./chat.js";
import { replyChunks } from "./live.js";
import { standingEvents } from "./standing.js";

/** The first pause before the page looks again. Each further one is twice as long. */
const SHORTEST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 500;
/** How long a server may need to take the lease after its answer. */
const GRACE_MS = 3_000;

/** What a page shows of a turn. */
export interface Shown {
  /** Read events from this version on. */
  start: number;
  /** The page has the texts of the events before this version. */
  before: number;
  /** The page's newest message, if it is a user's: the turn comes behind it. */
  user?: string;
  /** The states of tool parts, by the ids of their calls. */
  tools: Map<string, string>;
  /** The slots that were shown since. */
  slots: Set<number | string>;
  /** Whether the page's message has parts, so that a reply is another step. */
  hasParts: boolean;
}

/** Reads a turn of the agent, and knows what the page has of it. */
export class Turn {
  readonly shown: Shown;
  /** The version of the conversation up to which the page has the turn. */
  version: number;
  readonly #open: () => History | Promise<History>;
  readonly #signal: Signal;
  #history: History | undefined;
  /** The chat as the newest look found it. */
  #stored: StoredChat | undefined;
  #replies = 0;
  /** Where the newest reply begins that was shown live: its events have no more to show. */
  #liveFrom: number | undefined;

  constructor(shown: Shown, open: () => History | Promise<History>, signal?: Signal) {
    this.shown = shown;
    this.version = shown.before;
    this.#open = open;
    this.#signal = anyOf(signal);
  }

  /** The version, and whether a worker holds the lease. */
  async state(): Promise<{ version: number; isHeld: boolean }> {
    try {
      const { version, lease } = await this.#ask((history) => history.state());
      return { version, isHeld: lease !== null };
    } catch (error) {
      if (!(error instanceof ConversationNotFound)) throw error;
      return { version: 0, isHeld: false };
    }
  }

  /** The chat, and where the reply begins that is being written: each reply is in one of the two. */
  async look(): Promise<{ stored: StoredChat; reply: string | null }> {
    for (;;) {
      const stored = await this.#ask((history) => this.#read(history));
      const reply = await this.#ask((history) => history.openReply(this.#signal));
      const { done } = await this.#ask((history) => history.events(stored.version).next());
      if (done) return { stored, reply };
    }
  }

  /** The chat with the events that came since the last look. After a retraction, all events are read again. */
  async #read(history: History): Promise<StoredChat> {
    const added: StoredEvent[] = [];
    if (this.#stored !== undefined) {
      for await (const event of history.events(this.#stored.version)) added.push(event);
    }
    if (this.#stored === undefined || added.some(({ kind }) => kind === "retraction")) {
      const standing = await standingEvents(history, this.shown.start);
      this.#stored = new StoredChat();
      this.#stored.version = this.shown.start;
      for (const event of standing) this.#stored.add(event);
    } else {
      for (const event of added) this.#stored.add(event);
    }
    return this.#stored;
  }

  /** Whether the turn goes on, or has parts that the page does not show. */
  async hasNews(): Promise<boolean> {
    const { stored, reply } = await this.look();
    if (reply !== null || !(await this.#isOver(stored))) return true;
    if (stored.version <= this.shown.before) return false;
    const { slots, tools, ...rest } = this.shown;
    const copy = new Turn({ ...rest, slots: new Set(slots), tools: new Map(tools) }, this.#open);
    return !copy.#news(stored).next().done;
  }

  /** The message of the turn in the store, if it has parts already. */
  async message(): Promise<string | undefined> {
    return this.#slotsOf((await this.look()).stored)[0]?.message;
  }

  /**
   * The chunks of what the page does not show. `first` is the offset of a reply to begin with. Raises
   * `NoReply` if there is nothing although `isDue` says that the page waits for something.
   */
  async *chunks({ first, isDue = false }: { first?: string | null; isDue?: boolean } = {}): AsyncGenerator<
    UIMessageChunk,
    void,
    undefined
  > {
    const giveUpAt = performance.now() + GRACE_MS;
    let isSilent = true;
    let wait = SHORTEST_PAUSE_MS;
    let next = first ?? null;
    while (!this.#signal.aborted) {
      let stored: StoredChat | undefined;
      if (next === null) {
        ({ stored, reply: next } = await this.look());
        for (const chunk of this.#news(stored)) {
          isSilent = false;
          wait = SHORTEST_PAUSE_MS;
          yield chunk;
        }
        this.version = stored.version;
      }
      if (next !== null) {
        isSilent = false;
        yield* this.#live(next, this.version);
        next = null;
        wait = SHORTEST_PAUSE_MS;
        continue;
      }
      const mayBegin = isSilent && isDue && performance.now() < giveUpAt;
      if (stored !== undefined && !mayBegin && (await this.#isOver(stored))) break;
      await this.#change(this.version, wait);
      wait = Math.min(2 * wait, LONGEST_PAUSE_MS);
    }
    if (isSilent && isDue && !this.#signal.aborted) throw noReply((await this.#opened()).id);
  }

  /** Wait a moment, or longer while a worker is busy and nothing changes. */
  async #change(version: number, ms: number): Promise<void> {
    for (let wait = ms; !this.#signal.aborted; wait = Math.min(2 * wait, LONGEST_PAUSE_MS)) {
      await pause(wait, this.#signal).catch(() => undefined);
      if (this.#signal.aborted) return;
      const now = await this.state();
      if (now.version !== version || !now.isHeld) return;
      if ((await this.#ask((history) => history.openReply(this.#signal))) !== null) return;
    }
  }

  /** Whether the agent's last word is there, a person is asked, or nobody works. */
  async #isOver(stored: StoredChat): Promise<boolean> {
    const { isHeld } = await this.state();
    if (!isHeld) return true;
    const parts = this.#slotsOf(stored).map((slot) => stored.continuedPart(slot));
    const open = parts.filter((part) => toolOf(part) !== undefined && !String(part?.["state"]).startsWith("output-"));
    if (open.length > 0) return open.every((part) => part?.["state"] === "approval-requested");
    return ["text", "file"].includes(String(parts.at(-1)?.["type"]));
  }

  /** The agent's slots behind the page's newest message of the user. */
  #slotsOf({ slots }: StoredChat): StoredSlot[] {
    const own = slots.map(({ message }) => message).lastIndexOf(this.shown.user ?? "");
    const last = slots.map(({ role }) => role).lastIndexOf("user");
    const turn = slots.slice((own === -1 ? last : own) + 1);
    const next = turn.findIndex(({ role }) => role === "user");
    return (next === -1 ? turn : turn.slice(0, next)).filter(({ role }) => role === "assistant");
  }

  /** The chunks of the slots that the page does not show, without the reply that was shown live. */
  *#news(stored: StoredChat): Generator<UIMessageChunk, void, undefined> {
    const turn = this.#slotsOf(stored);
    const { before, slots, tools } = this.shown;
    const live = turn.find(
      ({ event, reply }) => reply !== undefined && event >= (this.#liveFrom ?? Number.POSITIVE_INFINITY),
    );
    if (live !== undefined) {
      for (const { reply, number } of turn) if (reply === live.reply) slots.add(number);
    }
    this.#liveFrom = undefined;
    for (const slot of turn) {
      const part = stored.continuedPart(slot);
      const isTool = toolOf(part) !== undefined;
      if (part === undefined || (!isTool && (slot.event < before || slots.has(slot.number)))) continue;
      slots.add(slot.number);
      this.shown.hasParts = true;
      yield* isTool ? toolChunks(part, tools) : partChunks(part, `stored-${slot.number}`);
    }
  }

  /** The chunks of a reply while it is written. */
  async *#live(reply: string, version: number): AsyncGenerator<UIMessageChunk, void, undefined> {
    const { tools } = this.shown;
    if (this.shown.hasParts) yield { type: "start-step" };
    this.#replies += 1;
    for await (const chunk of replyChunks(this.#follow(reply), this.#replies === 1 ? "" : `${this.#replies}-`)) {
      this.shown.hasParts = true;
      if (chunk.type !== "tool-input-available") this.#liveFrom = version;
      else tools.set(chunk.toolCallId, "input-available");
      yield chunk;
    }
  }

  /** The parts of a reply, with a new token whenever a token has ended. */
  async *#follow(start: string): AsyncGenerator<ReplyPart, void, undefined> {
    let after = start;
    for (;;) {
      const before = after;
      try {
        const history = await this.#opened();
        for await (const part of history.followReply({ after, signal: this.#signal })) {
          after = part.offset;
          yield part;
        }
        return;
      } catch (error) {
        if (!(error instanceof NotAllowed) || after === before) throw error;
        this.#history = undefined;
      }
    }
  }

  /** The conversation, opened with a token that may have ended by now. */
  async #opened(): Promise<History> {
    return (this.#history ??= await this.#open());
  }

  /** Ask the service, with a new token if the token has ended. */
  async #ask<T>(question: (history: History) => Promise<T>): Promise<T> {
    const isNew = this.#history === undefined;
    try {
      return await question(await this.#opened());
    } catch (error) {
      if (!(error instanceof NotAllowed) || isNew) throw error;
      this.#history = undefined;
      return question(await this.#opened());
    }
  }
}

/** The states of the tool parts of a message. */
export function toolStates(message: UIMessage | undefined): Map<string, string> {
  const tools = ((message?.parts ?? []) as Json[]).filter((part) => toolOf(part) !== undefined);
  return new Map(tools.map((part) => [String(part["toolCallId"]), String(part["state"])]));
}

/** The chunks of a part that is no tool part. */
function* partChunks(part: Json, id: string): Generator<UIMessageChunk, void, undefined> {
  const { type, text, providerMetadata } = part as { type: string; text: string; providerMetadata?: never };
  const metadata = providerMetadata === undefined ? {} : { providerMetadata };
  if (type === "text" || type === "reasoning") {
    yield { type: `${type}-start`, id, ...metadata };
    yield { type: `${type}-delta`, id, delta: text };
    yield { type: `${type}-end`, id };
  } else if (type === "step-start") {
    yield { type: "start-step" };
  } else if (type === "file" || type.startsWith("data-") || type.startsWith("source-")) {
    yield part as UIMessageChunk;
  }
}

/** The chunks that lead to the state of a tool part. */
function* toolChunks(part: Json, tools: Map<string, string>): Generator<UIMessageChunk, void, undefined> {
  const { toolCallId, state, input, output, errorText } = part as Record<string, string>;
  const id = String(toolCallId);
  const before = tools.get(id);
  const approvalId = (part["approval"] as { id: string } | undefined)?.id;
  if (before === state || state === "input-streaming") return;
  tools.set(id, String(state));
  if (before === undefined || before === "input-streaming") {
    const dynamic = part["type"] === "dynamic-tool" ? { dynamic: true } : {};
    yield { type: "tool-input-available", toolCallId: id, toolName: String(toolOf(part)), input, ...dynamic };
  }
  const isAsked = before !== "approval-requested" && before !== "approval-responded";
  if (approvalId !== undefined && isAsked) yield { type: "tool-approval-request", toolCallId: id, approvalId };
  if (state === "output-available") yield { type: "tool-output-available", toolCallId: id, output };
  if (state === "output-error") yield { type: "tool-output-error", toolCallId: id, errorText: String(errorText) };
  if (state === "output-denied") yield { type: "tool-output-denied", toolCallId: id };
}
