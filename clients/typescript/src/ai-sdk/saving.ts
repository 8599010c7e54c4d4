/**
 * Load the `UIMessage`s of a chat from a history and save them there, and the `ModelMessage`s of a loop.
 */

import type { ModelMessage, UIMessage } from "ai";
import {
  approvalOf,
  type Chat,
  chatOf,
  eventsOf,
  isContinued,
  membersEvent,
  messagesOf,
  type Slot,
  StoredChat,
  type StoredSlot,
} from "./chat.js";
import { areEqual, type Json, toJson } from "../json.js";
import { standingEvents } from "./standing.js";
import { eventsOfMessages, modelMessagesOf, requestOf } from "./model.js";
import { type Approvals, readApprovals } from "../approvals.js";
import { chatConflict, NotAllowed, VersionConflict, versionConflict } from "../errors.js";
import type { AppendableEvent, History, StoredEvent, WriteOptions } from "../history.js";

export interface ApprovalOptions {
  /**
   * The same conversation, opened with a token that may approve: it records what a person decided
   * about a call. By default the history itself.
   */
  approver?: History;
  /** The person who decides, by default "user" as asked, and the name of the token as decided. */
  by?: string;
}

export interface SaveOptions extends ApprovalOptions {
  /**
   * The version of the chat that the messages were made of: the `version` of `loadChat`. Messages that
   * the list changes or leaves out are then taken back. Raises `VersionConflict` if the conversation
   * has another version.
   */
  expectedVersion?: number;
}

/** What `useChat` sends to a server: the messages, and `trigger` and `messageId` of its transport. */
export interface ChatRequest {
  messages: UIMessage[];
  /** "regenerate-message" takes back the replies to the newest message. */
  trigger?: string;
}

/**
 * The messages of a chat, as they were saved, with what others recorded: messages and replies,
 * decisions about calls that wait for one, and results of calls. Messages that were replaced stay in
 * the log.
 */
export async function loadMessages<M extends UIMessage = UIMessage>(history: History): Promise<M[]> {
  return messagesOf((await readChat(history)).continued) as unknown as M[];
}

/**
 * A chat for a page: pass `id` and `messages` to `useChat`, and `reply` and `version` to its
 * `FoldlogChatTransport`.
 */
export interface LoadedChat<M extends UIMessage = UIMessage> {
  id: string;
  messages: M[];
  /** Where the reply begins that is being written, or null. The messages do not have this reply yet. */
  reply: string | null;
  /** The version of the conversation that the messages are of. */
  version: number;
}

/**
 * The messages of a chat, and the place of the reply that is being written. Each reply is in one of
 * the two, also if it ends while the chat is loaded.
 */
export async function loadChat<M extends UIMessage = UIMessage>(history: History): Promise<LoadedChat<M>> {
  for (;;) {
    const chat = await readChat(history);
    const reply = await history.openReply();
    const { done } = await history.events(chat.version).next();
    const { id } = history;
    const { continued, version } = chat;
    if (done) return { id, messages: messagesOf(continued) as unknown as M[], reply, version };
  }
}

/**
 * Save the messages of a chat. Only what is new is appended: a View shows texts, files, tool calls
 * and results. A repeated call changes nothing. An approval of a part becomes the question and the
 * decision of foldlog: see `ApprovalOptions`.
 *
 * All roles are saved as the list claims, so pass a list that your server made, such as the one of
 * `onFinish`, and save a request of a browser with `saveRequest`.
 *
 * Raises `ChatConflict`, and saves nothing, if the list changes or leaves out messages that were
 * saved, as the list of an old page does. A reply that another program recorded may be missing, and
 * stays. With `expectedVersion`, everything that the list does not have is taken back. Raises
 * `TypeError`, and saves nothing, if JSON cannot hold a message, or if two messages have one id.
 */
export async function saveMessages(history: History, messages: UIMessage[], options: SaveOptions = {}): Promise<void> {
  const wanted = chatOf(messages);
  await saving(history, options, () => wanted);
}

/**
 * Save what a page may add to a chat: the newest message if it is a user's, or answers to approvals in
 * the newest message. Everything else is as the store has it, so an old page takes nothing back, and
 * no page writes words of the agent. A repeated call changes nothing.
 *
 * With the trigger "regenerate-message", and if the newest message was changed, the replies to it are
 * taken back. Raises `ChatConflict` if later messages of the user would be taken back too, unless
 * `expectedVersion` is the version of the chat; then raises `VersionConflict` if it is another.
 */
export async function saveRequest(history: History, request: ChatRequest, options: SaveOptions = {}): Promise<void> {
  chatOf(request.messages);
  const newest = request.messages.at(-1);
  if (newest?.role === "user") checkUserParts(newest);
  await saving(history, options, (stored) => chatAfter(stored, request, options));
}

/**
 * Save the chat that `wantedOf` makes of the stored one: take back what was changed, and append what
 * is new. After a write of another program, it looks at the chat again.
 */
async function saving(history: History, options: SaveOptions, wantedOf: (stored: StoredChat) => Wanted): Promise<void> {
  let { expectedVersion } = options;
  let mayChange = true;
  for (;;) {
    const stored = await readChat(history);
    const wanted = wantedOf(stored);
    const changed = mayChange ? changedSlot(stored, wanted, expectedVersion) : undefined;
    const { events, asked } = nextEvents(stored, wanted);
    const isNews = changed !== undefined || events.length > 0 || asked !== undefined;
    if (isNews && expectedVersion !== undefined && expectedVersion !== stored.version) {
      throw versionConflict(history.id, expectedVersion, stored.version);
    }
    try {
      if (changed !== undefined) {
        await history.retract(changed.event, "the chat was changed", { expectedVersion: stored.version });
        expectedVersion = undefined; // it was the version, and what follows only appends
        mayChange = false;
        continue;
      }
      return await save(history, stored, wanted, options);
    } catch (error) {
      // Another writer was first: look again.
      if (!(error instanceof VersionConflict)) throw error;
    }
  }
}

/**
 * The messages to send to the model. If the View has become too large, it is condensed first. A call
 * whose approval was decided stands with the decision, so that the SDK runs it or refuses it.
 */
export async function prepareMessages(history: History): Promise<ModelMessage[]> {
  const { events } = await history.prepare("openai");
  return modelMessagesOf(events as StoredEvent[], await approvalsOfOpenCalls(history)) as unknown as ModelMessage[];
}

/**
 * Append messages of the AI SDK, such as `result.responseMessages`. An approval that the SDK asks
 * for, or that a message answers, becomes the question and the decision of foldlog.
 */
export async function appendMessages(
  history: History,
  messages: ModelMessage[],
  options: WriteOptions & ApprovalOptions = {},
): Promise<void> {
  const { approver = history, by, expectedVersion, idempotencyKey = crypto.randomUUID(), ...sending } = options;
  const asked = new Map<string, { id: number }>();
  const batches = eventsOfMessages(messages, idempotencyKey);
  if (batches.some((batch) => "response" in batch)) {
    for (const [id, approvals] of await approvalsOfOpenCalls(history)) {
      asked.set(requestOf(approvals)?.approvalId ?? "", { id });
    }
  }
  let expected = expectedVersion === undefined ? {} : { expectedVersion };
  for (const [number, batch] of batches.entries()) {
    if ("events" in batch) {
      const key = number === 0 ? idempotencyKey : `${idempotencyKey} ${number}`;
      const { recorded } = await history.append(batch.events, { ...sending, ...expected, idempotencyKey: key });
      expected = {};
      for (const [index, request] of batch.asked) {
        const call = recorded[index]?.event as StoredEvent;
        asked.set(request.approvalId, call);
        await ask(history, call, request, by);
      }
      continue;
    }
    const { response } = batch;
    const call = asked.get(response.approvalId);
    if (call === undefined)
      throw new TypeError(`no open call waits for the approval ${JSON.stringify(response.approvalId)}`);
    await decide(approver, call, response.approvalId, response, by);
  }
}

/** What the log says about the approvals of the calls that wait for a result. */
async function approvalsOfOpenCalls(history: History): Promise<Map<number, Approvals>> {
  const open = (await history.openCalls()).map(({ id }) => id);
  const approvals = open.length === 0 ? new Map<number, Approvals>() : await readApprovals(history, Math.min(...open));
  return new Map([...approvals].filter(([id]) => open.includes(id)));
}

// -- saving

/** The chat in a conversation. */
async function readChat(history: History): Promise<StoredChat> {
  const chat = new StoredChat();
  for (const event of await standingEvents(history)) chat.add(event);
  return chat;
}

/** The chat to save. `mayChange` says that stored messages may be taken back. */
interface Wanted extends Chat {
  mayChange?: boolean;
}

/** The chat as the newest message of a page goes on with it. */
function chatAfter(stored: StoredChat, { messages, trigger }: ChatRequest, { expectedVersion }: SaveOptions): Wanted {
  const known = messagesOf(stored.continued) as unknown as UIMessage[];
  const newest = messages.at(-1);
  if (newest?.role === "assistant") return chatOf(known.map((message) => withAnswers(message, newest)));
  if (newest?.role !== "user") return chatOf(known);
  const place = known.findIndex(({ id, role }) => id === newest.id && role === "user");
  if (place === -1) return chatOf([...known, newest]);
  const isSame = areEqual(known[place], toJson(newest, "the newest message"));
  if (isSame && trigger !== "regenerate-message") return chatOf(known);
  const others = known.slice(place + 1).filter(({ role }) => role === "user");
  if (others.length > 0 && expectedVersion === undefined) throw chatConflict(others.map(({ id }) => id));
  return { ...chatOf([...known.slice(0, place), newest]), mayChange: true };
}

/** The message with the decisions about its calls that a page has. */
function withAnswers(message: UIMessage, page: UIMessage): UIMessage {
  const answers = new Map<unknown, Json>();
  for (const part of page.parts as Json[]) {
    if (part["state"] === "approval-responded") answers.set(approvalOf(part)?.id, part);
  }
  const parts = (message.parts as Json[]).map((part) => {
    const answer = part["state"] === "approval-requested" ? answers.get(approvalOf(part)?.id) : undefined;
    if (answer === undefined || answer["toolCallId"] !== part["toolCallId"]) return part;
    const { approved, reason } = approvalOf(answer) as { approved?: boolean; reason?: string };
    const approval = { ...(part["approval"] as Json), approved, ...(reason === undefined ? {} : { reason }) };
    return { ...part, state: "approval-responded", approval };
  });
  return { ...message, parts: parts as unknown as UIMessage["parts"] };
}

/** Refuse parts that only an agent has. */
function checkUserParts({ id, parts }: UIMessage): void {
  const other = parts.find(({ type }) => type !== "text" && type !== "file" && !type.startsWith("data-"));
  if (other === undefined) return;
  throw new TypeError(
    `the message ${JSON.stringify(id)} of the user has a part of the type ${JSON.stringify(other.type)};` +
      " nothing was saved; a page sends texts, files and data",
  );
}

/** The first stored slot to take back. Raises `ChatConflict` if the list may take back nothing. */
function changedSlot(stored: StoredChat, wanted: Wanted, expectedVersion: number | undefined): StoredSlot | undefined {
  const isWhole = wanted.mayChange === true || expectedVersion === stored.version;
  const { slots, changed } = slotsBefore(stored, wanted, isWhole);
  if (changed === undefined || isWhole) return changed;
  if (expectedVersion !== undefined) return changed; // a conflict of versions
  const kept = new Set(slots.map(({ message }) => message));
  const later = stored.slots.slice(stored.slots.indexOf(changed));
  throw chatConflict(
    [...new Set(later.map(({ message }) => message))].filter((id) => id === changed.message || !kept.has(id)),
  );
}

/** Append what the stored chat does not have, and record approvals between. */
async function save(history: History, stored: StoredChat, wanted: Chat, options: ApprovalOptions): Promise<void> {
  for (;;) {
    const { events, asked } = nextEvents(stored, wanted);
    if (events.length > 0) {
      const { recorded } = await history.append(events, { expectedVersion: stored.version });
      for (const { event } of recorded) stored.add(event as StoredEvent);
    } else if (asked !== undefined) {
      stored.add(await recordApproval(history, stored, asked, options));
    } else {
      return;
    }
  }
}

/**
 * The stored slot of each wanted slot, and the first stored slot that was changed or removed. Unless
 * the wanted chat is whole, what other programs recorded may be missing: a page that was loaded before
 * does not have it.
 */
function slotsBefore(stored: StoredChat, wanted: Chat, isWhole = false): { slots: StoredSlot[]; changed?: StoredSlot } {
  const slots: StoredSlot[] = [];
  for (const slot of stored.slots) {
    const after = wanted.slots[slots.length];
    if (after !== undefined && isContinued(slot, after)) slots.push(slot);
    else if (slot.isOther !== true || (isWhole && slot.part?.["type"] !== "step-start"))
      return { slots, changed: slot };
  }
  return { slots };
}

/**
 * The events to append next, up to a call that a person decides about, and this call when it is in
 * the log: its question and its decision come before its result.
 */
function nextEvents(stored: StoredChat, wanted: Chat): { events: AppendableEvent[]; asked?: StoredSlot & Slot } {
  const events: AppendableEvent[] = [];
  const { slots } = slotsBefore(stored, wanted);
  let number = stored.nextNumber;
  for (const [index, { part, message, role }] of wanted.slots.entries()) {
    const before = slots[index];
    const current = before === undefined ? undefined : stored.continuedPart(before);
    const nextId = stored.version + events.length;
    const own = eventsOf(wanted, index, before?.number ?? number++, before, current, nextId);
    const hasOutcome = own.at(-1)?.kind === "observation";
    if (approvalOf(part) !== undefined && before?.call === undefined) {
      if (own[0]?.kind === "action") return { events: [...events, own[0]] };
    } else if (before?.call !== undefined && before.result === undefined && waits(stored, before, part, hasOutcome)) {
      return events.length > 0 ? { events } : { events, asked: { ...before, part: part ?? {} } };
    }
    events.push(...own);
    const members = wanted.members.get(message) ?? {};
    const isLast = wanted.slots[index + 1]?.message !== message;
    if (isLast && !areEqual(stored.members.get(message) ?? {}, members))
      events.push(membersEvent(message, role, members));
  }
  return { events };
}

/** Whether the question or the decision about an open call is not in the log yet. */
function waits(
  stored: StoredChat,
  { call = -1, part: before }: StoredSlot,
  part: Slot["part"],
  hasOutcome: boolean,
): boolean {
  const approval = approvalOf(part);
  const isOpen = hasOutcome || !String(before?.["state"]).startsWith("output-");
  if (approval === undefined || !isOpen) return false;
  const { shown = [], decision } = stored.approvals.get(call) ?? {};
  return shown.length === 0 || (approval.approved !== undefined && decision?.approved !== approval.approved);
}

/** Record the question about an open call, or if it is in the log, the decision. */
async function recordApproval(
  history: History,
  { approvals }: { approvals: Map<number, Approvals> },
  { call: id = -1, part }: StoredSlot,
  { approver = history, by }: ApprovalOptions,
): Promise<StoredEvent> {
  const call = { id };
  const approval = approvalOf(part) ?? { id: "" };
  if ((approvals.get(id)?.shown ?? []).length === 0) {
    const { id: approvalId, approved, reason, ...shown } = approval;
    return ask(history, call, { approvalId, ...shown }, by);
  }
  return decide(approver, call, approval.id, { approved: approval.approved === true, reason: approval.reason }, by);
}

/** Record that a person was asked about a call. A repetition records nothing. */
async function ask(
  history: History,
  call: { id: number },
  shown: { approvalId: string },
  by = "user",
): Promise<StoredEvent> {
  const idempotencyKey = `ask ${call.id} ${shown.approvalId}`;
  return (await history.askApproval(call, { to: by, shown }, { idempotencyKey })).event as StoredEvent;
}

/** Record a decision about a call. */
async function decide(
  approver: History,
  call: { id: number },
  approvalId: string,
  { approved, reason }: { approved: boolean; reason?: string | undefined },
  by: string | undefined,
): Promise<StoredEvent> {
  try {
    return (await approver.decide(call, { approved, by, reason })).event as StoredEvent;
  } catch (error) {
    if (!(error instanceof NotAllowed)) throw error;
    const detail =
      `the decision about the approval ${JSON.stringify(approvalId)} was not recorded: ${error.message};` +
      " pass `approver`, the same conversation opened with a token of the scope approve";
    throw new NotAllowed({ ...error.problem, detail }, { cause: error });
  }
}
