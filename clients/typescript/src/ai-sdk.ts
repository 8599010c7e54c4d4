/**
 * Messages of the AI SDK in foldlog: the `UIMessage`s of a chat, and the `ModelMessage`s of a loop.
 *
 *     const messages = await loadMessages(history);               // for useChat, or a route
 *     await saveMessages(history, messages);                      // in onFinish
 *
 *     const messages = await prepareMessages(held);               // for generateText
 *     await appendMessages(held, (await generateText({ model, messages, tools })).responseMessages);
 *
 * In version 6 of the AI SDK, the messages are `response.messages`. In version 7, this member has only
 * the last step, and no result of a tool that ran after an approval.
 */

export { type ChatTransportOptions, FoldlogChatTransport, uiMessageStream } from "./ai-sdk-streams.js";
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
} from "./ai-sdk/chat.js";
import { areEqual } from "./json.js";
import { eventsOfMessages, modelMessagesOf, requestOf } from "./ai-sdk/model.js";
import { type Approvals, readApprovals } from "./approvals.js";
import { NotAllowed, VersionConflict } from "./errors.js";
import type { AppendableEvent, History, StoredEvent, WriteOptions } from "./history.js";

export interface ApprovalOptions {
  /**
   * The same conversation, opened with a token that may approve: it records what a person decided
   * about a call. By default the history itself.
   */
  approver?: History;
  /** The person who decides, by default "user" as asked, and the name of the token as decided. */
  by?: string;
}

/**
 * The messages of a chat, as they were saved, with what others recorded: messages and replies,
 * decisions about calls that wait for one, and results of calls. Messages that were replaced stay in
 * the log.
 */
export async function loadMessages<M extends UIMessage = UIMessage>(history: History): Promise<M[]> {
  return messagesOf((await readChat(history)).continued) as unknown as M[];
}

/** A chat for a page: pass `id` and `messages` to `useChat`, and `reply` to its `FoldlogChatTransport`. */
export interface LoadedChat<M extends UIMessage = UIMessage> {
  id: string;
  messages: M[];
  /** Where the reply begins that is being written, or null. The messages do not have this reply yet. */
  reply: string | null;
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
    if (done) return { id: history.id, messages: messagesOf(chat.continued) as unknown as M[], reply };
  }
}

/**
 * Save the messages of a chat. Only what is new is appended: a View shows texts, files, tool calls
 * and results. If a message was changed or removed, such as by "regenerate", its events and those
 * after it are retracted. A repeated call changes nothing. An approval of a part becomes the
 * question and the decision of foldlog: see `ApprovalOptions`.
 *
 * Raises `TypeError`, and saves nothing, if JSON cannot hold a message, or if two messages have one id.
 */
export async function saveMessages(history: History, messages: UIMessage[], options: ApprovalOptions = {}): Promise<void> {
  const wanted = chatOf(messages);
  for (;;) {
    const stored = await readChat(history);
    try {
      if (await save(history, stored, wanted, options)) return;
    } catch (error) {
      if (!(error instanceof VersionConflict)) throw error; // another writer was first: look again
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
    if (call === undefined) throw new TypeError(`no open call waits for the approval ${JSON.stringify(response.approvalId)}`);
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

async function readChat(history: History): Promise<StoredChat> {
  const chat = new StoredChat();
  for (const event of await standingEvents(history)) chat.add(event);
  return chat;
}

/** The events that no retraction has taken back. A retraction may take back another one. */
async function standingEvents(history: History): Promise<StoredEvent[]> {
  interface Newest {
    event: StoredEvent;
    before: Newest | undefined;
  }
  const newestAt: (Newest | undefined)[] = [undefined];
  let last: StoredEvent | undefined;
  for await (const event of history.events()) {
    last = event;
    const before = newestAt.at(-1);
    newestAt.push(event.kind === "retraction" ? newestAt[event["version"] as number] : { event, before });
  }
  const events: StoredEvent[] = last?.kind === "retraction" ? [last] : []; // its id is the version
  for (let newest = newestAt.at(-1); newest !== undefined; newest = newest.before) events.push(newest.event);
  return events.reverse();
}

/** Returns false if something was taken back, so that the chat has to be read again. */
async function save(history: History, stored: StoredChat, wanted: Chat, options: ApprovalOptions): Promise<boolean> {
  const changed = slotsBefore(stored, wanted).changed;
  if (changed !== undefined) {
    await history.retract(changed.event, "the chat was changed", { expectedVersion: stored.version });
    return false;
  }
  for (;;) {
    const { events, asked } = nextEvents(stored, wanted);
    if (events.length > 0) {
      const { recorded } = await history.append(events, { expectedVersion: stored.version });
      for (const { event } of recorded) stored.add(event as StoredEvent);
    } else if (asked !== undefined) {
      stored.add(await recordApproval(history, stored, asked, options));
    } else {
      return true;
    }
  }
}

/**
 * The stored slot of each wanted slot, and the first stored slot that was changed or removed. What
 * other programs recorded may be missing: a page that was loaded before does not have it.
 */
function slotsBefore(stored: StoredChat, wanted: Chat): { slots: StoredSlot[]; changed?: StoredSlot } {
  const slots: StoredSlot[] = [];
  for (const slot of stored.slots) {
    const after = wanted.slots[slots.length];
    if (after !== undefined && isContinued(slot, after)) slots.push(slot);
    else if (slot.isOther !== true) return { slots, changed: slot };
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
    if (isLast && !areEqual(stored.members.get(message) ?? {}, members)) events.push(membersEvent(message, role, members));
  }
  return { events };
}

/** Whether the question or the decision about an open call is not in the log yet. */
function waits(stored: StoredChat, { call = -1, part: before }: StoredSlot, part: Slot["part"], hasOutcome: boolean): boolean {
  const approval = approvalOf(part);
  const isOpen = hasOutcome || !String(before?.["state"]).startsWith("output-");
  if (approval === undefined || !isOpen) return false;
  const { shown = [], decision } = stored.approvals.get(call) ?? {};
  return shown.length === 0 || (approval.approved !== undefined && decision?.approved !== approval.approved);
}

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

async function ask(history: History, call: { id: number }, shown: { approvalId: string }, by = "user"): Promise<StoredEvent> {
  const idempotencyKey = `ask ${call.id} ${shown.approvalId}`;
  return (await history.askApproval(call, { to: by, shown }, { idempotencyKey })).event as StoredEvent;
}

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
