/**
 * A transport of `useChat` over a reply that foldlog stores while it is written: a page that is
 * loaded again, or a second one, gets the reply from its beginning and then live.
 *
 *     useChat({ id, messages, resume: true, transport: new FoldlogChatTransport({ send, history }) })
 */

import type { ChatTransport, UIMessage, UIMessageChunk } from "ai";
import type { History } from "./history.js";
import { type Delta, NEWEST, type ReplyPart } from "./streams.js";

type Sent<M extends UIMessage> = Parameters<ChatTransport<M>["sendMessages"]>[0];

export interface ChatTransportOptions<M extends UIMessage> {
  /** Send the messages to your server, which begins the reply (`history.streamReply()`) before it answers. */
  send: (sent: Sent<M>) => Promise<unknown>;
  /** The conversation of a chat, opened with a read token (`history.readToken()`). */
  history: (chatId: string) => History | Promise<History>;
}

export class FoldlogChatTransport<M extends UIMessage> implements ChatTransport<M> {
  readonly #options: ChatTransportOptions<M>;

  constructor(options: ChatTransportOptions<M>) {
    this.#options = options;
  }

  async sendMessages(sent: Sent<M>): Promise<ReadableStream<UIMessageChunk>> {
    await this.#options.send(sent);
    const history = await this.#options.history(sent.chatId);
    // The reply may have ended already.
    const signal = sent.abortSignal ? { signal: sent.abortSignal } : {};
    return uiMessageStream(history.followReply({ after: NEWEST, ...signal }));
  }

  /** The reply that is being written, or null if none is. */
  async reconnectToStream({ chatId }: { chatId: string }): Promise<ReadableStream<UIMessageChunk> | null> {
    const history = await this.#options.history(chatId);
    return (await history.isReplying()) ? uiMessageStream(history.followReply({ after: NEWEST })) : null;
  }
}

/** The parts of a reply, from its beginning, as the chunks that `useChat` reads. */
export function uiMessageStream(parts: AsyncIterable<ReplyPart>): ReadableStream<UIMessageChunk> {
  const chunks = uiChunks(parts);
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await chunks.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await chunks.return();
    },
  });
}

interface Call {
  toolCallId: string;
  toolName: string;
  input: string;
  ends: boolean;
}

async function* uiChunks(parts: AsyncIterable<ReplyPart>): AsyncGenerator<UIMessageChunk, void, undefined> {
  const texts = new Map<string, "text" | "reasoning">();
  const calls = new Map<number, Call>();
  yield { type: "start" };
  for await (const { delta } of parts) {
    if (delta.type === "text" || delta.type === "reasoning") {
      const id = `${delta.type}-${delta.at ?? 0}`;
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
    if (ends || value !== undefined) yield { type: "tool-input-available", toolCallId, toolName, input: value ?? input };
  }
  yield { type: "finish" };
}

function* callChunks(calls: Map<number, Call>, delta: Delta & { type: "call" }): Generator<UIMessageChunk, void, undefined> {
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

function valueOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // cut off, or the text of a tool that takes no JSON
  }
}
