/** A reply while it is written, as the chunks that `useChat` reads. */

import type { UIMessageChunk } from "ai";
import type { Delta, ReplyPart } from "../streams.js";

interface Call {
  toolCallId: string;
  toolName: string;
  input: string;
  ends: boolean;
}

/** The chunks of a reply. `prefix` tells its parts from parts of other replies of the message. */
export async function* replyChunks(
  parts: AsyncIterable<ReplyPart>,
  prefix = "",
): AsyncGenerator<UIMessageChunk, void, undefined> {
  const texts = new Map<string, "text" | "reasoning">();
  const calls = new Map<number, Call>();
  for await (const { delta } of parts) {
    if (delta.type === "text" || delta.type === "reasoning") {
      const id = `${prefix}${delta.type}-${delta.at ?? 0}`;
      if (!texts.has(id)) yield { type: `${delta.type}-start`, id };
      texts.set(id, delta.type);
      yield { type: `${delta.type}-delta`, id, delta: delta.text };
    } else if (delta.type === "call") {
      yield* callChunks(calls, delta);
    }
  }
  for (const [id, type] of texts) yield { type: `${type}-end`, id };
  for (const { toolCallId, toolName, input, ends } of calls.values()) {
    const value = valueOf(input || "{}");
    if (ends || value !== undefined)
      yield { type: "tool-input-available", toolCallId, toolName, input: value ?? input };
  }
}

/** The chunks of a piece of a call. */
function* callChunks(
  calls: Map<number, Call>,
  delta: Delta & { type: "call" },
): Generator<UIMessageChunk, void, undefined> {
  let call = calls.get(delta.at);
  if (call === undefined) {
    call = { toolCallId: delta.id ?? `call-${delta.at}`, toolName: delta.tool ?? "", input: "", ends: false };
    calls.set(delta.at, call);
    yield { type: "tool-input-start", toolCallId: call.toolCallId, toolName: call.toolName };
  }
  call.ends ||= delta.ends ?? false;
  if (!delta.arguments) return;
  call.input += delta.arguments;
  yield { type: "tool-input-delta", toolCallId: call.toolCallId, inputTextDelta: delta.arguments };
}

/** The value of the arguments of a call, or undefined if they are no JSON. */
function valueOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // cut off, or the text of a tool that takes no JSON
  }
}
