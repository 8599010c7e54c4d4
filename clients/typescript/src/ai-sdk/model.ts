/**
 * `ModelMessage`s as events, and the events of a View as `ModelMessage`s. The member `meta.ai_sdk`
 * of an event has what other SDKs do not know, such as provider options; the content itself stands
 * in the event, where condensers and redactions find it.
 */

import type { ModelMessage } from "ai";
import type { Approvals, RecordedDecision } from "../approvals.js";
import type { AppendableEvent, StoredEvent } from "../history.js";
import { type Content, filePart, jsonOf, modelPart, referencePart, textOf } from "./content.js";
import { THINKING, thinkingBlock } from "./chat.js";
import { isObject, type Json, toJson, without } from "../json.js";

type Part = Json & { type: string };
/** A person's answer to an approval that the SDK asked for. */
export interface ApprovalResponse {
  approvalId: string;
  approved: boolean;
  reason?: string;
}
/** An approval that the SDK asked for. The question in the log shows it. */
export type ApprovalRequest = Json & { approvalId: string };
/** Events, with the approvals that the SDK asks for by the index of their call; or an answer to one. */
export type Batch = { events: AppendableEvent[]; asked: Map<number, ApprovalRequest> } | { response: ApprovalResponse };

// -- to events

/** The events of some messages, and the answers to approvals between them. `key` makes the ids of replies. */
export function eventsOfMessages(messages: ModelMessage[], key: string): Batch[] {
  const batches: Batch[] = [];
  const automatic = new Set<unknown>();
  const add = (events: AppendableEvent[], requests: Json[] = []): void => {
    let last = batches.at(-1);
    if (last === undefined || !("events" in last)) batches.push((last = { events: [], asked: new Map() }));
    const calls = new Map(events.map((event, index) => [event.kind === "action" ? event.call_id : undefined, index]));
    for (const { type, toolCallId, ...request } of requests) {
      const index = calls.get(toolCallId as string);
      if (index === undefined)
        throw new TypeError(`the approval ${request["approvalId"]} is about a call that is not in its message`);
      if (request["isAutomatic"] === true) automatic.add(request["approvalId"]);
      else last.asked.set(last.events.length + index, request as ApprovalRequest);
    }
    last.events.push(...events);
  };
  for (const [index, message] of messages.entries()) {
    const place = `messages[${index}]`;
    const options = message.providerOptions === undefined ? {} : { options: toJson(message.providerOptions, place) };
    const content = message.content as string | Part[];
    if (message.role === "system") {
      add([{ kind: "system", content: String(toJson(content, place)), meta: { ai_sdk: options } }]);
    } else if (message.role === "user") {
      add([userEvent(content, options, place)]);
    } else if (message.role === "assistant") {
      const parts: Part[] = typeof content === "string" ? [{ type: "text", text: content }] : content;
      const requests = parts.filter(({ type }) => type === "tool-approval-request");
      add(assistantEvents(parts, options, `${key} ${index}`, place), toJson(requests, place) as Json[]);
    } else {
      for (const part of content as Part[]) {
        if (part.type !== "tool-approval-response") add([resultEvent(part, place)]);
        else if (!automatic.has(part["approvalId"])) batches.push({ response: part as unknown as ApprovalResponse });
      }
    }
  }
  return batches;
}

/** The event of a user's message. */
function userEvent(content: string | Part[], options: Json, place: string): AppendableEvent {
  if (typeof content === "string") {
    const text = { kind: "message", source: "user", content: String(toJson(content, place)) } as const;
    return "options" in options ? { ...text, meta: { ai_sdk: options } } : text; // as any chat message is stored
  }
  const kept = content.map((part, index) => keptPart(part, `${place}.content[${index}]`));
  const meta = { ai_sdk: { ...options, parts: kept.map(({ rest }) => rest) } };
  return { kind: "message", source: "user", content: kept.map(({ shown }) => shown), meta };
}

/** The texts, calls and files of a reply. What the model thought stands at the event after it. */
function assistantEvents(parts: Part[], options: Json, reply: string, place: string): AppendableEvent[] {
  const events: AppendableEvent[] = [];
  let thinking: Json[] = [];
  for (const [index, part] of parts.entries()) {
    const at = `${place}.content[${index}]`;
    const own = { source: "agent", thinking, meta: { reply, ai_sdk: { ...options } as Json } } as const;
    if (THINKING.includes(part.type)) {
      const stored = toJson(withText(part), at) as Json;
      thinking.push(thinkingBlock(stored, stored["providerOptions"]));
      continue;
    }
    if (part.type === "tool-approval-request") continue; // the caller asks
    if (part.type === "tool-result") {
      events.push(resultEvent(part, at));
      continue;
    }
    thinking = [];
    if (part.type === "tool-call") {
      const { input, toolCallId, toolName, ...rest } = toJson(part, at) as Json;
      const isHeld = isObject(input);
      own.meta.ai_sdk["part"] = isHeld ? rest : { ...rest, input };
      const call = { tool: String(toolName), call_id: String(toolCallId), response_id: reply };
      events.push({ kind: "action", ...call, arguments: isHeld ? input : textOf(input ?? {}), ...own });
    } else {
      const { shown, rest } = keptPart(part, at);
      own.meta.ai_sdk["parts"] = [rest];
      events.push({ kind: "message", content: part.type === "text" ? String(shown["text"]) : [shown], ...own });
    }
  }
  if (thinking.length > 0 || events.length === 0) {
    events.push({
      kind: "message",
      source: "agent",
      content: "",
      thinking,
      meta: { reply, ai_sdk: { ...options, parts: [] } },
    });
  }
  return events;
}

/** The event of a result of a tool. */
function resultEvent(part: Part, place: string): AppendableEvent {
  const { toolCallId, toolName, output: given, ...others } = part;
  const output = given as Json & { type: string };
  const { value, ...outputRest } = output;
  const isError = ["error-text", "error-json", "execution-denied"].includes(output.type);
  let content: Content;
  let parts: Json[] | undefined;
  if (output.type === "content") {
    const kept = (value as Part[]).map((part, index) => keptPart(part, `${place}.output.value[${index}]`));
    content = kept.map(({ shown }) => shown);
    parts = kept.map(({ rest }) => rest);
  } else if (output.type === "execution-denied") {
    const { reason } = output;
    content = `the call was not approved${reason === undefined ? "" : `: ${textOf(reason)}`}`;
  } else {
    const stored = toJson(value ?? null, `${place}.output.value`);
    content = output.type.endsWith("json") ? JSON.stringify(stored) : textOf(stored);
  }
  const rest = toJson({ ...others, output: outputRest }, place) as Json;
  const meta = { ai_sdk: { part: rest, ...(parts === undefined ? {} : { parts }) } };
  return { kind: "observation", tool: String(toolName), call_id: String(toolCallId), content, is_error: isError, meta };
}

/** A part as the content of an event shows it, and its other members. */
function keptPart(part: Part, place: string): { shown: Json; rest: Json } {
  if (part.type === "text") {
    const { text, type, ...rest } = toJson(part, place) as Json;
    return { shown: { type, text }, rest };
  }
  const { image, data = image, url = data, ...others } = part as Json;
  const rest = toJson(others, place) as Json;
  const mediaType = String(
    part["mediaType"] ?? (part.type.startsWith("image") ? "image/*" : "application/octet-stream"),
  );
  const tagged = isObject(url) && typeof url["type"] === "string" ? url : { type: "data", data: url };
  const source = tagged[String(tagged["type"])];
  const shows = (address: string): { shown: Json; rest: Json } => ({
    shown: filePart(address, mediaType, part["filename"]),
    rest,
  });
  if (source instanceof URL) return shows(source.href);
  if (tagged["type"] === "text")
    return shows(`data:${mediaType};base64,${base64(new TextEncoder().encode(String(source)))}`);
  if (typeof source === "string") {
    const isAddress = tagged["type"] === "url" || /^(https?|data):/.test(source);
    return shows(isAddress ? source : `data:${mediaType.replace("/*", "/png")};base64,${source}`);
  }
  if (ArrayBuffer.isView(source)) {
    const bytes = new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
    return shows(`data:${mediaType.replace("/*", "/png")};base64,${base64(bytes)}`);
  }
  if (source instanceof ArrayBuffer)
    return shows(`data:${mediaType.replace("/*", "/png")};base64,${base64(new Uint8Array(source))}`);
  const whole = toJson(part, place) as Json; // such as a file that a provider keeps
  const reference = source ?? part["providerReference"] ?? part["fileId"];
  if (reference === undefined) throw new TypeError(`${place}: a part of the type ${part.type} needs its data`);
  return { shown: referencePart(reference, part["filename"]), rest: { ...whole, whole: true } };
}

/** Bytes as base64. */
function base64(bytes: Uint8Array): string {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
}

/** What the model thought, with bytes as a text. */
function withText(part: Part): Json {
  const { data } = part;
  return part.type === "reasoning-file" && ArrayBuffer.isView(data)
    ? { ...part, data: base64(new Uint8Array(data.buffer, data.byteOffset, data.byteLength)) }
    : part;
}

// -- from a View

/** A reply of a model, collected from its events. */
interface Reply {
  /** What its events call it. */
  names: Set<unknown>;
  content: Json[];
  results: Json[];
  /** The parts that stand only in the last reply: the SDK runs calls that were approved, and ends refused ones. */
  lastOnly: Json[];
  /** The results of refused calls in earlier replies. */
  earlierOnly: Json[];
}

/** The approval that the SDK asked for about a call, from the questions in the log. */
export function requestOf(approvals: Approvals | undefined): ApprovalRequest | undefined {
  const shown = (approvals?.shown ?? []).filter(
    (question) => isObject(question) && typeof question["approvalId"] === "string",
  );
  return shown.at(-1) as ApprovalRequest | undefined;
}

/**
 * The messages for the events of a View. Each call is followed by its result; an open call is left
 * out, unless the SDK asked for its approval, and it was refused, or approved and not run yet. No two
 * calls share an id.
 */
export function modelMessagesOf(events: StoredEvent[], approvals = new Map<number, Approvals>()): Json[] {
  const answers = answersOf(events);
  const usedIds = new Set<string>();
  const messages: Json[] = [];
  let reply: Reply | undefined;
  const close = (isLast = false): void => {
    if (reply !== undefined) messages.push(...messagesOfReply(reply, isLast));
    reply = undefined;
  };
  for (const event of events) {
    if (event.kind === "observation" || isUnseen(event)) continue; // a result stands at its call
    const isCall = event.kind === "action";
    if (!isCall && !(event.kind === "message" && event["source"] === "agent")) {
      close();
      addInput(messages, event);
      continue;
    }
    const names = [event["response_id"], (event["meta"] as Json | undefined)?.["reply"]].filter(
      (name) => name !== undefined,
    );
    if (reply === undefined || !names.some((name) => reply?.names.has(name))) {
      close();
      reply = { names: new Set(), content: [], results: [], lastOnly: [], earlierOnly: [] };
    }
    for (const name of names) reply.names.add(name);
    const answer = answers.get(event.id);
    const { decision } = approvals.get(event.id) ?? {};
    const request = decision === undefined ? undefined : requestOf(approvals.get(event.id));
    reply.content.push(...((event["thinking"] ?? []) as Json[]).flatMap(thought));
    if (isCall && answer === undefined && request === undefined) continue;
    if (!isCall) {
      reply.content.push(...contentParts(event));
      continue;
    }
    reply.content.push(...partsOf(event["thought"] as Content));
    const toolCallId = newId(event, usedIds);
    const call = callPart(event, toolCallId);
    reply.content.push(call);
    if (answer !== undefined) {
      const result = resultPart(answer, toolCallId, String(event["tool"]));
      (call["providerExecuted"] === true ? reply.content : reply.results).push(result);
    } else if (request !== undefined && decision !== undefined) {
      addDecision(reply, call, request, decision);
    }
  }
  close(true);
  return messages;
}

/** The messages of a reply: what the agent said and called, and the results. */
function messagesOfReply(reply: Reply, isLast: boolean): Json[] {
  const others = isLast ? reply.earlierOnly : reply.lastOnly;
  const sent = (part: Json): boolean => !others.includes(part);
  const content = reply.content.filter(sent);
  const results = reply.results.filter(sent);
  while (THINKING.includes(String(content.at(-1)?.["type"]))) content.pop(); // what it led to is not shown
  const messages: Json[] = [];
  if (content.length > 0) messages.push({ role: "assistant", content: asText(content) });
  if (results.length > 0) messages.push({ role: "tool", content: results });
  return messages;
}

/** Add the question and the decision about an open call to its reply. */
function addDecision(reply: Reply, call: Json, request: ApprovalRequest, decision: RecordedDecision): void {
  const { approvalId } = request;
  const { approved, reason } = decision;
  const ofProvider = call["providerExecuted"] === true ? { providerExecuted: true } : {};
  const response = { type: "tool-approval-response", approvalId, approved, ...ofProvider };
  const answered = reason === "" ? response : { ...response, reason };
  const asked = { type: "tool-approval-request", ...request, toolCallId: call["toolCallId"] };
  reply.content.push(asked);
  reply.results.push(answered);
  if (approved) {
    reply.lastOnly.push(call, asked, answered);
  } else {
    const denied = deniedPart(call, reason);
    reply.results.push(denied);
    reply.earlierOnly.push(denied);
  }
}

/** A system prompt, or a user's message, which joins the user's message before it. */
function addInput(messages: Json[], event: StoredEvent): void {
  const options = keptOf(event)["options"];
  const shared = options === undefined ? {} : { providerOptions: options };
  if (event.kind === "system") {
    const content = contentParts(event)
      .map((part) => part["text"])
      .join("\n\n");
    messages.push({ role: "system", content, ...shared });
    return;
  }
  const parts =
    event.kind === "annotation" ? partsOf(`${event["name"]}:\n${textOf(event["data"])}`) : contentParts(event);
  if (parts.length === 0) return;
  const last = messages.at(-1);
  if (last?.["role"] === "user" && options === undefined && last["providerOptions"] === undefined) {
    const before = last["content"] as Content;
    last["content"] = [...(typeof before === "string" ? [{ type: "text", text: before }] : before), ...parts];
  } else {
    messages.push({ role: "user", content: asText(parts), ...shared });
  }
}

/** An imported note, or an event of a kind that this version does not know. */
function isUnseen(event: StoredEvent): boolean {
  const isNote = event.kind === "annotation" && event["origin"] === undefined;
  return !isNote && !["action", "message", "system", "condensation_summary"].includes(event.kind);
}

/** The observation of each action, by the id of the action. */
function answersOf(events: StoredEvent[]): Map<number, StoredEvent> {
  const answers = new Map<number, StoredEvent>();
  const open: StoredEvent[] = [];
  for (const event of events) {
    if (event.kind === "action") open.push(event);
    if (event.kind !== "observation") continue;
    const named = open.filter(({ id }) => id === event["cause"]);
    const newest = open.filter((call) => call["call_id"] === event["call_id"]);
    const response = newest.at(-1)?.["response_id"];
    const call = named[0] ?? newest.find((named) => named["response_id"] === response);
    if (call === undefined) continue;
    answers.set(call.id, event);
    open.splice(open.indexOf(call), 1);
  }
  return answers;
}

/** The id of a call, or another one if a call before has it. */
function newId({ id, call_id: callId }: StoredEvent, used: Set<string>): string {
  const own = `call_${id}`;
  let name = typeof callId === "string" && callId !== "" ? callId : own;
  while (used.has(name)) name = name === callId ? own : `${name}_`;
  used.add(name);
  return name;
}

/** The part of a call, with the input as the SDK had it. */
function callPart(event: StoredEvent, toolCallId: string): Json {
  const kept = (keptOf(event)["part"] ?? {}) as Json;
  const { providerExecuted, providerOptions, callProviderMetadata: metadata = providerOptions } = kept;
  const { arguments: given = {} } = event as Json;
  const stored = typeof given === "string" ? (jsonOf(given)?.value ?? given) : given;
  const input = "input" in kept ? kept["input"] : stored;
  return {
    type: "tool-call",
    toolCallId,
    toolName: event["tool"],
    input,
    ...(providerExecuted === undefined ? {} : { providerExecuted }),
    ...(metadata === undefined ? {} : { providerOptions: metadata }),
  };
}

/** The part of a result. */
function resultPart(event: StoredEvent, toolCallId: string, toolName: string): Json {
  const { part: kept = {}, parts, held } = keptOf(event) as { part?: Json; parts?: Json[]; held?: string };
  const { output, resultProviderMetadata, providerOptions = resultProviderMetadata } = kept;
  const options = providerOptions === undefined ? {} : { providerOptions };
  const rest = isObject(output) && held === undefined ? output : {};
  const type = rest["type"] ?? (held === "json" ? "json" : undefined);
  return { type: "tool-result", toolCallId, toolName, output: outputOf(event, type, rest, parts), ...options };
}

/** The result of a call that a person refused. */
function deniedPart({ toolCallId, toolName, providerOptions }: Json, reason: string): Json {
  const output = { type: "execution-denied", ...(reason === "" ? {} : { reason }) };
  return {
    type: "tool-result",
    toolCallId,
    toolName,
    output,
    ...(providerOptions === undefined ? {} : { providerOptions }),
  };
}

/** The output of a tool. If a condenser has replaced the content, the content is a text. */
function outputOf(event: StoredEvent, type: unknown, rest: Json, parts: Json[] | undefined): Json {
  const content = event["content"] as Content;
  const isError = event["is_error"] === true;
  const json = typeof type === "string" && type.endsWith("json") ? jsonOf(content) : undefined;
  if (json !== undefined) return { type: isError ? "error-json" : "json", value: json.value, ...rest };
  if (type === "execution-denied") return { type, ...rest };
  if (typeof content === "string")
    return { type: isError ? "error-text" : "text", value: content, ...without(rest, "type") };
  const value = content.map((part, index) => outputPart(part, parts?.[index]));
  return { type: "content", value, ...without(rest, "type") };
}

/** A part of an output with several parts. */
function outputPart(part: Json, rest: Json = {}): Json {
  if (rest["whole"] === true) return without(rest, "whole");
  const shown = modelPart(part, rest["type"] === undefined ? {} : { type: "file" });
  const url = shown["data"] ?? shown["image"];
  if (shown["type"] === "text" || typeof url !== "string") return { ...shown, ...rest };
  const [, mediaType = "application/pdf", data] = /^data:([^;,]+)[^,]*,(.*)$/s.exec(url) ?? [];
  if (String(rest["type"]).endsWith("-url")) return { ...rest, url };
  if (rest["type"] === "file") {
    return { ...rest, data: data === undefined ? { type: "url", url: new URL(url) } : { type: "data", data } };
  }
  if (data === undefined) return { type: "file-url", url, ...rest };
  return { type: "file-data", data, mediaType, ...rest };
}

/** The parts of a message. `meta` has the members beside the texts and the data. */
function contentParts(event: StoredEvent): Json[] {
  const { parts = [], part } = keptOf(event) as { parts?: Json[]; part?: Json };
  const content = event["content"] as Content;
  if (part === undefined) return partsOf(content, parts);
  const ofChat = part["type"] === "steering-message" ? (part["parts"] as Json[]) : [part];
  return partsOf(content, ofChat.map(restOfChat));
}

/** The members of a part of a `UIMessage` that a part of a `ModelMessage` has beside its text or data. */
function restOfChat(part: Json): Json {
  const { providerMetadata, providerReference: data, ...others } = part;
  const rest = without(others, "state", "citations", "url", "text");
  const file = data === undefined ? {} : { data, whole: true };
  return { ...rest, ...file, ...(providerMetadata === undefined ? {} : { providerOptions: providerMetadata }) };
}

/** The texts and files of a content. `rests` are the members that the log keeps beside each. */
function partsOf(content: Content | undefined, rests: Json[] = []): Json[] {
  if (content === undefined) return [];
  const parts = typeof content === "string" ? [{ type: "text", text: content }] : content;
  const shown = parts.map((part, index) => {
    const { whole, ...rest } = rests[index] ?? {};
    return whole === true ? rest : bare(modelPart(part, rest));
  });
  return shown.filter((part) => part["type"] !== "text" || String(part["text"]).trim() !== "");
}

/** A file with its data in base64, without the beginning of a data URL. */
function bare(part: Json): Json {
  const name = "image" in part ? "image" : "data";
  const [, mediaType, data] = /^data:([^;,]+);base64,(.*)$/s.exec(String(part[name])) ?? [];
  return data === undefined ? part : { mediaType, ...part, [name]: data };
}

/** What the model thought, as the AI SDK has it. */
function thought(block: Json): Json[] {
  const kept = block["ai_sdk"] as Json | undefined;
  const text = block["thinking"];
  if (kept !== undefined) {
    const { providerMetadata, ...rest } = kept;
    const options = providerMetadata === undefined ? {} : { providerOptions: providerMetadata };
    const { url, ...others } = rest;
    const data = url === undefined ? {} : { data: url };
    return [{ ...others, ...data, ...(typeof text === "string" ? { text } : {}), ...options }];
  }
  const { signature, data } = block;
  if (block["type"] === "redacted_thinking") {
    return [{ type: "reasoning", text: "", providerOptions: { anthropic: { redactedData: data } } }];
  }
  if (typeof text !== "string") return [];
  const options = typeof signature === "string" ? { providerOptions: { anthropic: { signature } } } : {};
  return [{ type: "reasoning", text, ...options }];
}

/** What an event keeps for the AI SDK. */
function keptOf(event: StoredEvent): Json {
  return ((event["meta"] as Json | undefined)?.["ai_sdk"] ?? {}) as Json;
}

/** A single text without further members is a text. */
function asText(parts: Json[]): Content {
  const [first = {}] = parts;
  const isText = parts.length === 1 && first["type"] === "text" && Object.keys(first).length === 2;
  return isText ? String(first["text"]) : parts;
}
