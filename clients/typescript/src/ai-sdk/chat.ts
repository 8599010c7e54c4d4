/**
 * A chat of `UIMessage`s as events. A slot is a part of a message, or a message without parts. The
 * first event of a slot shows it to a model; a later event has its newer state. The member
 * `meta.ai_sdk` of an event names the slot, and has what the event does not show.
 */

import type { UIMessage } from "ai";
import { type Approvals, noteApproval } from "../approvals.js";
import type { AppendableEvent, StoredEvent } from "../history.js";
import { filePart, jsonOf, referencePart, textOf, urlOf } from "./content.js";
import { isPartOfChat, partsOf as partsOfEvent, roleOf } from "./recorded.js";
import { areEqual, isObject, type Json, toJson, without } from "../json.js";

export interface Slot {
  message: string;
  role: UIMessage["role"];
  part?: Json;
}

export interface StoredSlot extends Slot {
  /** The number of a slot that was saved, or the name of one that others recorded. */
  number: number | string;
  /** The event that began the slot. */
  event: number;
  /** The action of a tool part. */
  call?: number;
  /** The result that somebody else recorded for the call. */
  result?: Json;
  /** Whether the event was not recorded by `saveMessages`: the ids of its message are of no one else. */
  isOther?: boolean;
  /** The reply of a model that another program recorded. */
  reply?: string;
}

/** The slots of a chat, and the members of its messages beside `id`, `role` and `parts`. */
export interface Chat<S extends Slot = Slot> {
  slots: S[];
  members: Map<string, Json>;
}

/** A member of a part that stands in the event itself. */
type Held = "text" | "url" | "input" | "output" | "json" | "errorText";

/** What `meta.ai_sdk` has. The members `same` of the part are those of the slot's state before. */
type Kept = Slot & { slot?: number | string; members?: Json; held?: Held; same?: string[] };

/** A tool part waits for its whole input, is an open call, or has its outcome. */
enum Stage {
  Streaming,
  Open,
  Ended,
}

/** Parts of what a model thought, which it needs back beside the text or the call after it. */
export const THINKING = ["reasoning", "reasoning-file", "custom"];
/** Parts after which another reply of the model begins. */
const BEGINNINGS = ["step-start", "steering-message"];
/** Contents that only the first event of a slot has, so that a redaction of the event erases them. */
const CONTENTS = ["text", "url", "input", "output", "errorText"];

/** The chat of some messages. Raises `TypeError` if JSON cannot hold it, or an id occurs twice. */
export function chatOf(messages: UIMessage[]): Chat {
  const chat: Chat = { slots: [], members: new Map() };
  for (const [index, uiMessage] of messages.entries()) {
    const place = `messages[${index}]`;
    const { id: message, role, parts, ...members } = toJson(uiMessage, place) as Json & Pick<UIMessage, "id" | "role">;
    if (chat.members.has(message)) {
      throw new TypeError(
        `${place} has the id ${JSON.stringify(message)} of another message; nothing was saved; give each message an id` +
          " of its own, for example by `generateMessageId` of `toUIMessageStreamResponse`",
      );
    }
    chat.members.set(message, members);
    const slots: Slot[] = (parts as Json[]).map((part) => ({ message, role, part }));
    chat.slots.push(...(slots.length === 0 ? [{ message, role }] : slots));
  }
  return chat;
}

/** The messages of a chat. */
export function messagesOf({ slots, members }: Chat): Json[] {
  const messages = new Map<string, Json & { parts: Json[] }>();
  for (const { message: id, role, part } of slots) {
    const message = messages.get(id) ?? { id, role, ...members.get(id), parts: [] };
    messages.set(id, message);
    if (part !== undefined) message.parts.push(part);
  }
  return [...messages.values()];
}

/** The chat in a log whose events are added one by one, without events that were taken back. */
export class StoredChat implements Chat<StoredSlot> {
  version = 0;
  /** The number of the next slot. */
  nextNumber = 0;
  readonly slots: StoredSlot[] = [];
  readonly members = new Map<string, Json>();
  readonly approvals = new Map<number, Approvals>();
  readonly #slotOf = new Map<number | string, StoredSlot>();
  readonly #callOf = new Map<number, StoredSlot>();

  /** Add the next event that stands. */
  add(event: StoredEvent): void {
    this.version = event.id + 1;
    if (noteApproval(this.approvals, event)) return;
    const kept = (event["meta"] as { ai_sdk?: Kept } | undefined)?.ai_sdk;
    if (kept?.message === undefined) return isPartOfChat(event) ? this.#addOther(event) : this.#noteResult(event);
    const { message, role, slot: number, members } = kept;
    if (members !== undefined) this.members.set(message, members);
    if (number === undefined) return;
    const before = this.#slotOf.get(number);
    if (before === undefined && (kept.same ?? []).length > 0 && event.kind === "annotation") return; // it was redacted
    const slot = before ?? { message, role, number, event: event.id };
    slot.message = message;
    if (kept.part !== undefined) slot.part = partOf(kept, event, before && this.continuedPart(before));
    if (event.kind === "action") this.#addCall(slot);
    if (before !== undefined) return;
    this.#addSlot(slot);
  }

  /** The event of a program that does not use the AI SDK. A reply joins the message of the turn. */
  #addOther(event: StoredEvent): void {
    const role = roleOf(event);
    const last = this.slots.at(-1);
    const isTurn = role === "assistant" && last?.role === role;
    const message = isTurn ? last.message : `event-${event.id}`;
    const {
      id,
      meta,
      response_id: response = meta?.["reply"] ?? `event ${id}`,
    } = event as StoredEvent & { response_id?: string };
    const shared = {
      message,
      role,
      event: id,
      isOther: true,
      ...(role === "assistant" ? { reply: String(response) } : {}),
    };
    if (isTurn && last.reply !== shared.reply) {
      this.#addSlot({ ...shared, number: `event ${id} step`, part: { type: "step-start" } }); // another reply
    }
    for (const [index, part] of partsOfEvent(event).entries()) {
      const slot: StoredSlot = { ...shared, part, number: `event ${id} ${index}` };
      if (toolOf(part) !== undefined) this.#addCall(slot);
      this.#addSlot(slot);
    }
  }

  /** Add a slot behind the others. */
  #addSlot(slot: StoredSlot): void {
    this.#slotOf.set(slot.number, slot);
    this.slots.push(slot);
    if (typeof slot.number === "number") this.nextNumber = slot.number + 1;
  }

  /** Note that the event of a slot is the action of its call. */
  #addCall(slot: StoredSlot): void {
    slot.call = slot.event;
    this.#callOf.set(slot.event, slot);
  }

  /** Note the result of a call that somebody else recorded: by its cause, or by the id of the call. */
  #noteResult(event: StoredEvent): void {
    if (event.kind !== "observation") return;
    const isAnswered = ({ part, result }: StoredSlot): boolean =>
      part?.["toolCallId"] === event["call_id"] && stageOf(part) === Stage.Open && result === undefined;
    const slot = this.#callOf.get(event["cause"] as number) ?? [...this.#callOf.values()].find(isAnswered);
    if (slot !== undefined) slot.result = event;
  }

  /** The chat as others went on with it: with decisions about calls, and with results of calls. */
  get continued(): Chat {
    return {
      members: this.members,
      slots: this.slots.map((slot) => ({ ...slot, part: this.continuedPart(slot) })),
    } as Chat;
  }

  /** The part, with the decision about its call, and with its result. */
  continuedPart({ part, call, result }: StoredSlot): Json | undefined {
    if (part === undefined || call === undefined || stageOf(part) !== Stage.Open) return part;
    if (result !== undefined) {
      const { content, is_error: isError } = result;
      if (isError === true) return { ...part, state: "output-error", errorText: textOf(content) };
      return { ...part, state: "output-available", output: jsonOf(content)?.value ?? content };
    }
    const { shown = [], decision } = this.approvals.get(call) ?? {};
    const asked = part["approval"] ?? (shown.length === 0 ? undefined : { id: `approval-${call}` });
    if (asked === undefined || part["state"] === "approval-responded") return part;
    if (decision === undefined) return { ...part, state: "approval-requested", approval: asked };
    const { approved, reason } = decision;
    const approval = { ...(asked as Json), approved, ...(reason === "" ? {} : { reason }) };
    return { ...part, state: "approval-responded", approval };
  }
}

/** Whether the log can go on from the part before to the part after, with nothing taken back. */
export function isContinued(before: StoredSlot, after: Slot): boolean {
  const { part: one } = before;
  const { part: other } = after;
  const isSameMessage = before.isOther === true || before.message === after.message;
  if (!isSameMessage || before.role !== after.role) return false;
  if (one === undefined || other === undefined) return one === other;
  if (areEqual(one, other)) return true;
  const isSame = (...names: string[]): boolean => names.every((name) => areEqual(one[name], other[name]));
  if (!isSame("type")) return false;
  const isOtherThought = before.isOther === true && one["type"] === "reasoning"; // the page may have its state too
  if (one["type"] === "text" || isOtherThought) return isSame("text");
  if (THINKING.includes(String(one["type"]))) return false;
  if (one["type"] === "file") return isSame("url", "mediaType", "filename", "providerReference");
  if (one["type"] === "steering-message") return false;
  if (toolOf(one) === undefined) return true;
  const stage = stageOf(one);
  if (stage > stageOf(other) || !isSame("toolCallId", "toolName")) return false;
  if (stage === Stage.Streaming) return true;
  return isSame("input") && (stage === Stage.Open || isSame("state", "output", "errorText"));
}

/**
 * The events that lead from the part before to the part of a slot. `current` is the part before as
 * others went on with it. The first event gets the id `nextId`.
 */
export function eventsOf(
  chat: Chat,
  index: number,
  number: number | string,
  before: StoredSlot | undefined,
  current: Json | undefined,
  nextId: number,
): AppendableEvent[] {
  const slot = chat.slots[index] as Slot;
  const { part } = slot;
  const isSame = areEqual(before?.part, part) || areEqual(current, part);
  if (isSame && before?.message === slot.message) return [];
  const tool = toolOf(part);
  const newer = (): AppendableEvent => note(slot, number, current);
  if (part === undefined || tool === undefined)
    return [before === undefined ? firstEvent(chat, index, number) : newer()];
  const stage = stageOf(part);
  if (stage === Stage.Streaming) return [newer()];
  const isCalled = before !== undefined && stageOf(before.part) !== Stage.Streaming;
  const events = isCalled ? [] : [actionOf(chat, index, number, tool)];
  if (stage === Stage.Open) return isCalled ? [newer()] : events;
  const isClosed = isCalled && (stageOf(before.part) === Stage.Ended || before.result !== undefined);
  if (isClosed) return [newer()];
  return [...events, observationOf(slot, number, tool, before?.call ?? nextId)];
}

/** The event for the members of a message that its slots do not have. */
export function membersEvent(message: string, role: string, members: Json): AppendableEvent {
  return annotation({ message, role, members });
}

/** Whether a person decides about a tool part: the id of the approval, and the decision. */
export function approvalOf(part: Json | undefined): { id: string; approved?: boolean; reason?: string } | undefined {
  const approval = part?.["approval"];
  if (toolOf(part) === undefined || !isObject(approval) || approval["isAutomatic"] === true) return undefined;
  return approval as { id: string };
}

// -- parts as events

/** The event that begins a slot and shows it to a model, unless it is a tool part. */
function firstEvent(chat: Chat, index: number, number: number | string): AppendableEvent {
  const { message, role, part } = chat.slots[index] as Slot;
  const source = role === "user" ? "user" : "agent";
  const shared = role === "assistant" ? { thinking: thinkingBefore(chat, index) } : {};
  const meta = (kept: Json) => ({
    ...(role === "assistant" ? { reply: replyOf(chat, index) } : {}),
    ai_sdk: { slot: number, message, role, ...kept },
  });
  if (part?.["type"] === "text") {
    const { text, ...rest } = part;
    const event = { content: String(text), meta: meta({ part: rest, held: "text" }) };
    return role === "system" ? { kind: "system", ...event } : { kind: "message", source, ...event, ...shared };
  }
  if (part?.["type"] === "file") {
    const reference = part["providerReference"];
    const content = reference === undefined ? shownFile(part) : referencePart(reference, part["filename"]);
    const isHeld = urlOf(content) === part["url"];
    const kept = isHeld ? { part: without(part, "url"), held: "url" } : { part };
    return { kind: "message", source, content: [content], meta: meta(kept), ...shared };
  }
  if (part?.["type"] === "steering-message") {
    const content = (part["parts"] as Json[]).map((inner) => (inner["type"] === "file" ? shownFile(inner) : inner));
    return { kind: "message", source: "user", content, meta: { ai_sdk: { slot: number, message, role, part } } };
  }
  return annotation({ slot: number, message, role, ...(part === undefined ? {} : { part }) });
}

/** A file of a chat as a model is shown it. */
function shownFile(part: Json): Json {
  return filePart(String(part["url"]), String(part["mediaType"]), part["filename"]);
}

/** The action of a tool part, without its outcome. */
function actionOf(chat: Chat, index: number, number: number | string, tool: string): AppendableEvent {
  const { message, role, part = {} } = chat.slots[index] as Slot;
  const { output, errorText, preliminary, resultProviderMetadata, ...rest } = part;
  const isEnded = stageOf(part) === Stage.Ended;
  const begun = isEnded ? { ...rest, state: "input-available" } : part;
  const { input } = begun as Json;
  const isHeld = isObject(input);
  const raw = input ?? part["rawInput"];
  const text = raw === undefined ? {} : textOf(raw); // the input of a tool that takes no object
  const kept = isHeld ? { part: without(begun, "input"), held: "input" } : { part: begun };
  const reply = replyOf(chat, index);
  return {
    kind: "action",
    tool,
    call_id: String(part["toolCallId"]),
    arguments: isHeld ? input : text,
    response_id: reply,
    thinking: thinkingBefore(chat, index),
    meta: { reply, ai_sdk: { slot: number, message, role, ...kept } },
  };
}

/** The outcome of a tool part: its output, its error, or the refusal of a person. */
function observationOf(
  { message, role, part = {} }: Slot,
  number: number | string,
  tool: string,
  cause: number,
): AppendableEvent {
  const { output, errorText, state } = part;
  const same = isObject(part["input"]) ? ["input"] : [];
  const call_id = String(part["toolCallId"]);
  const event = (content: string, is_error: boolean, held?: Held): AppendableEvent => {
    const rest = without(part, ...same, held === "json" ? "output" : (held ?? ""));
    const meta = { ai_sdk: { slot: number, message, role, part: rest, same, ...(held === undefined ? {} : { held }) } };
    return { kind: "observation", tool, call_id, cause, content, is_error, meta };
  };
  if (state === "output-available") {
    if (output === undefined) return event("", false);
    return event(textOf(output), false, typeof output === "string" ? "output" : "json");
  }
  if (typeof errorText === "string") return event(errorText, true, "errorText");
  const reason = approvalOf(part)?.reason;
  return event(`the call was not approved${reason === undefined ? "" : `: ${reason}`}`, true);
}

/** The newer state of a slot. A model is not shown it. */
function note({ message, role, part = {} }: Slot, number: number | string, before: Json = {}): AppendableEvent {
  const same = CONTENTS.filter((name) => name in part && areEqual(part[name], before[name]));
  return annotation({ slot: number, message, role, part: without(part, ...same), same });
}

/** An event that only keeps the state of a part. */
function annotation(kept: Json): AppendableEvent {
  return { kind: "annotation", name: "ai-sdk part", meta: { ai_sdk: kept } };
}

/** The part that an event keeps. */
function partOf({ part: rest, held, same = [] }: Kept, event: StoredEvent, before: Json | undefined): Json {
  const { content, arguments: input = {} } = event as Json;
  const part = { ...rest, ...pick(before ?? {}, same) };
  switch (held) {
    case undefined:
      return part;
    case "url":
      return { ...part, url: urlOf((content as Json[])[0]) };
    case "input":
      return { ...part, input };
    case "json":
      return { ...part, output: jsonOf(content)?.value };
    default:
      return { ...part, [held]: content };
  }
}

/** The members with these names. */
function pick(value: Json, names: string[]): Json {
  return Object.fromEntries(names.filter((name) => name in value).map((name) => [name, value[name]]));
}

/** The name of the reply that a slot belongs to: the texts and calls of a step are one reply of the model. */
function replyOf({ slots }: Chat, index: number): string {
  const { message } = slots[index] as Slot;
  const first = slots.findIndex((slot) => slot.message === message);
  const steps = slots.slice(first, index).filter(({ part }) => BEGINNINGS.includes(String(part?.["type"])));
  return `${message} ${steps.length}`;
}

/** What the model thought directly before a part, as blocks that servers of models take back. */
function thinkingBefore({ slots }: Chat, index: number): Json[] {
  const blocks: Json[] = [];
  for (let before = index - 1; slots[before]?.message === slots[index]?.message; before -= 1) {
    const part = slots[before]?.part ?? {};
    const type = String(part["type"]);
    if (["text", "file", ...BEGINNINGS].includes(type) || toolOf(part) !== undefined) break;
    if (THINKING.includes(type)) blocks.unshift(thinkingBlock(without(part, "state", "id"), part["providerMetadata"]));
  }
  return blocks;
}

/**
 * A block of thinking, with the part for the AI SDK in `ai_sdk`. Only the text of a block of the type
 * "thinking" stands in the block itself, so its `ai_sdk` is without it.
 */
export function thinkingBlock(part: Json, options: unknown): Json {
  const anthropic = isObject(options) && isObject(options["anthropic"]) ? options["anthropic"] : {};
  const { signature, redactedData } = anthropic;
  const { text, ...rest } = part;
  if (typeof redactedData === "string") return { type: "redacted_thinking", data: redactedData, ai_sdk: part };
  if (part["type"] !== "reasoning") return { type: "ai_sdk", ai_sdk: part };
  const signed = typeof signature === "string" ? { signature } : {};
  return { type: "thinking", thinking: String(text), ...signed, ai_sdk: rest };
}

/** The name of the tool of a tool part. */
export function toolOf(part: Json | undefined): string | undefined {
  const type = String(part?.["type"]);
  if (type === "dynamic-tool") return String(part?.["toolName"]);
  return type.startsWith("tool-") ? type.slice("tool-".length) : undefined;
}

/** How far a tool part is. */
function stageOf(part: Json | undefined): Stage {
  const state = String(part?.["state"]);
  if (state === "input-streaming") return Stage.Streaming;
  return state.startsWith("output-") && part?.["preliminary"] !== true ? Stage.Ended : Stage.Open;
}
