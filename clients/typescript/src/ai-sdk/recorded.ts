/**
 * Events that other programs recorded, such as a reply that was stored while the model wrote it, as
 * parts of `UIMessage`s.
 */

import type { UIMessage } from "ai";
import type { StoredEvent } from "../events.js";
import { isObject, type Json } from "../json.js";
import { type Content, jsonOf, urlOf } from "./content.js";

/** Whether a chat shows the event as a part of its own. The result of a call stands in the call. */
export function isPartOfChat({ kind, redacted }: StoredEvent): boolean {
  return redacted === undefined && (kind === "message" || kind === "system" || kind === "action");
}

/** Whose message an event belongs to. */
export function roleOf(event: StoredEvent): UIMessage["role"] {
  if (event.kind === "system") return "system";
  if (event["source"] === "environment" && event.kind === "message") return "system"; // no person wrote it
  return event.kind === "action" || event["source"] === "agent" ? "assistant" : "user";
}

/** The parts of a `UIMessage` that show an event. */
export function partsOf(event: StoredEvent): Json[] {
  const thinking = ((event["thinking"] ?? []) as Json[]).flatMap(reasoningOf);
  if (event.kind !== "action") return [...thinking, ...contentParts(event["content"] as Content)];
  const { tool, call_id: callId, arguments: input = {}, id } = event as Json;
  const call = {
    type: `tool-${tool}`,
    toolCallId: callId ?? `call_${id}`,
    state: "input-available",
    input: typeof input === "string" ? (jsonOf(input)?.value ?? input) : input,
  };
  return [...thinking, ...contentParts(event["thought"] as Content | undefined), call];
}

/** A block of thinking as a part. */
function reasoningOf({ type, thinking, signature, data }: Json): Json[] {
  if (type === "redacted_thinking") {
    return [{ type: "reasoning", text: "", providerMetadata: { anthropic: { redactedData: data } } }];
  }
  if (typeof thinking !== "string") return [];
  const signed = signature === undefined ? {} : { providerMetadata: { anthropic: { signature } } };
  return [{ type: "reasoning", text: thinking, ...signed }];
}

/** The texts and files of a content as parts. */
function contentParts(content: Content | undefined): Json[] {
  if (content === undefined || content === "") return [];
  if (typeof content === "string") return [{ type: "text", text: content }];
  return content.map((part) => {
    const url = urlOf(part);
    if (url === undefined) return { type: "text", text: String(part["text"] ?? `[${part["type"]}]`) };
    const { filename } = (isObject(part["file"]) ? part["file"] : part) as Json;
    const named = filename === undefined ? {} : { filename };
    return { type: "file", mediaType: mediaTypeOf(url, part["type"]), url, ...named };
  });
}

/** The media type that an address tells, or a guess by the type of its part. */
function mediaTypeOf(url: string, type: unknown): string {
  const ofData = /^data:([^;,]+)/.exec(url)?.[1];
  return ofData ?? (type === "image_url" ? "image/*" : "application/octet-stream");
}
