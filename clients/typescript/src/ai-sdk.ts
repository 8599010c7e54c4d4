/**
 * Messages of the AI SDK in foldlog: the `UIMessage`s of a chat, and the `ModelMessage`s of a loop.
 *
 *     const messages = await loadMessages(history);               // for useChat, or a route
 *     await saveMessages(history, messages);                      // in onFinish
 *
 *     const messages = await prepareMessages(held);               // for generateText
 *     await appendMessages(held, (await generateText({ model, messages, tools })).response.messages);
 */

import type { ModelMessage, UIMessage } from "ai";
import { VersionConflict } from "./errors.js";
import type { AppendableEvent, History, StoredEvent, WriteOptions } from "./history.js";

type Json = Record<string, unknown>;

/** One part of a `UIMessage`, or the message's metadata. */
interface Slot {
  message: string;
  role: UIMessage["role"];
  part?: Json;
  metadata?: unknown;
}

interface StoredSlot extends Slot {
  /** The id of the event that began the slot. */
  event: number;
}

/** The messages of a chat, as they were saved. Messages that were replaced stay in the log. */
export async function loadMessages<M extends UIMessage = UIMessage>(history: History): Promise<M[]> {
  const messages = new Map<string, Json & { parts: unknown[] }>();
  for (const slot of (await readSlots(history)).slots) {
    const message = messages.get(slot.message) ?? { id: slot.message, role: slot.role, parts: [] };
    messages.set(slot.message, message);
    if (slot.part !== undefined) message.parts.push(slot.part);
    else if (slot.metadata !== undefined) message["metadata"] = slot.metadata;
  }
  return [...messages.values()] as unknown as M[];
}

/**
 * Save the messages of a chat. Only what is new is appended: an event for each part, so that the
 * View shows texts, tool calls and results. If a message was changed or removed, such as by
 * "regenerate", its events and those after it are retracted. A repeated call changes nothing.
 */
export async function saveMessages(history: History, messages: UIMessage[]): Promise<void> {
  const wanted = messages.flatMap(slotsOf);
  for (;;) {
    let { version, slots } = await readSlots(history);
    const added: AppendableEvent[] = [];
    let place = 0;
    for (; place < wanted.length && place < slots.length; place += 1) {
      const [before, after] = [slots[place] as Slot, wanted[place] as Slot];
      if (areEqual(before, after)) continue;
      if (!isContinued(before, after)) break;
      added.push(eventOf(after));
    }
    try {
      if (place < slots.length) {
        const first = (slots[place] as StoredSlot).event;
        await history.retract(first, "the chat was changed", { expectedVersion: version });
        ({ version, slots } = await readSlots(history));
      }
      added.push(...wanted.slice(place).map(eventOf));
      if (added.length > 0) await history.append(added, { expectedVersion: version });
      return;
    } catch (error) {
      if (!(error instanceof VersionConflict)) throw error; // another writer was first: look again
    }
  }
}

/** The messages to send to the model. If the View has become too large, it is condensed first. */
export async function prepareMessages(history: History): Promise<ModelMessage[]> {
  return toModelMessages((await history.prepare("openai")).messages ?? []);
}

/** Append messages of the AI SDK, such as `result.response.messages`. */
export async function appendMessages(
  history: History,
  messages: ModelMessage[],
  options?: WriteOptions,
): Promise<void> {
  await history.appendMessages(messages.flatMap(chatMessagesOf), options);
}

// -- UIMessage

function slotsOf({ id: message, role, parts, metadata }: UIMessage): Slot[] {
  const slots: Slot[] = parts.map((part) => ({ message, role, part: { ...part } }));
  if (metadata !== undefined || parts.length === 0) slots.push({ message, role, metadata });
  return slots;
}

function eventOf({ message, role, part, metadata }: Slot): AppendableEvent {
  const { text, ...rest } = part ?? {};
  if (part !== undefined && rest["type"] === "text") {
    const meta = { ai_sdk: { message, role, part: rest } };
    const content = String(text);
    if (role === "system") return { kind: "system", content, meta };
    return { kind: "message", source: role === "user" ? "user" : "agent", content, meta };
  }
  const meta = { ai_sdk: { message, role, ...(part === undefined ? { metadata: metadata ?? null } : { part }) } };
  const tool = toolOf(part);
  const callId = String(part?.["toolCallId"]);
  if (part === undefined || tool === undefined) return { kind: "annotation", name: "ai-sdk part", meta };
  if (!hasEnded(part)) return { kind: "action", tool, call_id: callId, arguments: (part["input"] ?? {}) as Json, meta };
  const isError = part["state"] !== "output-available";
  const outcome = isError ? (part["errorText"] ?? "the call was not approved") : part["output"];
  return { kind: "observation", tool, call_id: callId, content: textOf(outcome), is_error: isError, meta };
}

/** The slots of the messages that stand, each with its newest state. */
async function readSlots(history: History): Promise<{ version: number; slots: StoredSlot[] }> {
  const slots = new Map<string, StoredSlot>();
  const { version, events } = await standingEvents(history);
  for (const event of events) {
    const stored = (event["meta"] as Json | undefined)?.["ai_sdk"] as (Slot & { part?: Json }) | undefined;
    if (stored === undefined) continue;
    const { message, role, part, metadata } = stored;
    const isText = part?.["type"] === "text";
    const slot: StoredSlot = { message, role, event: event.id };
    if (part === undefined) slot.metadata = metadata ?? undefined;
    else slot.part = isText ? { ...part, text: event["content"] } : part;
    // A call and its result are one slot; every other event is a slot of its own.
    const name = toolOf(part) === undefined ? String(event.id) : `call ${part?.["toolCallId"]}`;
    slots.set(name, { ...slot, event: slots.get(name)?.event ?? event.id });
  }
  return { version, slots: [...slots.values()] };
}

/** The events that no retraction has taken back. A retraction may take back another one. */
async function standingEvents(history: History): Promise<{ version: number; events: StoredEvent[] }> {
  interface Newest {
    event: StoredEvent;
    before: Newest | undefined;
  }
  const newestAt: (Newest | undefined)[] = [undefined];
  for await (const event of history.events()) {
    const before = newestAt.at(-1);
    newestAt.push(event.kind === "retraction" ? newestAt[event["version"] as number] : { event, before });
  }
  const events: StoredEvent[] = [];
  for (let newest = newestAt.at(-1); newest !== undefined; newest = newest.before) events.push(newest.event);
  return { version: newestAt.length - 1, events: events.reverse() };
}

function toolOf(part: Json | undefined): string | undefined {
  const type = String(part?.["type"]);
  if (type === "dynamic-tool") return String(part?.["toolName"]);
  return type.startsWith("tool-") ? type.slice("tool-".length) : undefined;
}

function hasEnded(part: Json): boolean {
  return String(part["state"]).startsWith("output-");
}

function isContinued({ part: before }: Slot, { part: after }: Slot): boolean {
  if (before === undefined || after === undefined || toolOf(before) === undefined) return false;
  return before["toolCallId"] === after["toolCallId"] && !hasEnded(before) && hasEnded(after);
}

function areEqual(one: Slot, other: Slot): boolean {
  const fields = ({ message, role, part, metadata }: Slot): string =>
    JSON.stringify([message, role, sorted(part), sorted(metadata)]);
  return fields(one) === fields(other);
}

/** The value with its members in the order of their names, and without undefined members. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  const names = Object.keys(value).sort();
  return Object.fromEntries(names.map((name) => [name, sorted((value as Json)[name])]));
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value ?? null);
}

// -- ModelMessage

/** Chat messages of OpenAI from messages of the AI SDK. */
function chatMessagesOf(message: ModelMessage): Json[] {
  const { role, content } = message;
  if (typeof content === "string") return [{ role, content }];
  const parts = content as (Json & { type: string })[];
  if (role === "tool") {
    return parts
      .filter(({ type }) => type === "tool-result")
      .map(({ toolCallId, output }) => ({ role, tool_call_id: toolCallId, content: outputText(output as Json) }));
  }
  if (role === "user") return [{ role, content: parts.map(chatPart) }];
  const text = parts.flatMap((part) => (part.type === "text" ? [part["text"]] : [])).join("");
  const calls = parts
    .filter(({ type }) => type === "tool-call")
    .map(({ toolCallId, toolName, input }) => ({
      id: toolCallId,
      type: "function",
      function: { name: toolName, arguments: JSON.stringify(input) },
    }));
  const reply = { role, content: text === "" && calls.length > 0 ? null : text };
  return [calls.length > 0 ? { ...reply, tool_calls: calls } : reply];
}

function chatPart(part: Json & { type: string }): Json {
  if (part.type === "text") return { type: "text", text: part["text"] };
  const data = part["image"] ?? part["data"];
  if (typeof data !== "string" && !(data instanceof URL)) {
    throw new TypeError(`a part of the type ${part.type} needs its data as a URL or in base64`);
  }
  const isUrl = /^(https?|data):/.test(String(data));
  const url = isUrl ? String(data) : `data:${String(part["mediaType"] ?? "image/png")};base64,${String(data)}`;
  return { type: "image_url", image_url: { url } };
}

function outputText({ type, value, reason }: Json): string {
  return type === "execution-denied" ? `the call was not approved: ${textOf(reason ?? "")}` : textOf(value);
}

/** Messages of the AI SDK from chat messages of OpenAI. */
export function toModelMessages(messages: Json[]): ModelMessage[] {
  const tools = new Map<unknown, string>();
  return messages.map((message) => {
    const { role, content, tool_calls: calls = [], tool_call_id: toolCallId } = message;
    if (role === "tool") {
      const output = { type: "text", value: textOf(content) };
      const result = { type: "tool-result", toolCallId, toolName: tools.get(toolCallId) ?? "", output };
      return { role, content: [result] };
    }
    const parts = typeof content === "string" ? [{ type: "text", text: content }] : contentParts(content);
    for (const { id, function: called } of calls as { id: string; function: Record<string, string> }[]) {
      const toolName = called["name"] ?? "";
      tools.set(id, toolName);
      parts.push({ type: "tool-call", toolCallId: id, toolName, input: JSON.parse(called["arguments"] ?? "{}") as unknown });
    }
    const isText = typeof content === "string" && parts.length === 1;
    return { role, content: isText || role === "system" ? textOf(content) : parts };
  }) as ModelMessage[];
}

function contentParts(content: unknown): Json[] {
  return ((content ?? []) as Json[]).map((part) =>
    part["type"] === "image_url"
      ? { type: "image", image: (part["image_url"] as Json)["url"] }
      : { type: "text", text: part["text"] },
  );
}
