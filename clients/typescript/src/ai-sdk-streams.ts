/**
 * A transport of `useChat` over a reply that foldlog stores while it is written: a page that is
 * loaded again, or a second one, gets the reply from its beginning and then live.
 *
 *     const { id, messages, reply } = await …;          // `loadChat(history)` of your server
 *     const transport = new FoldlogChatTransport({ send, history, reply });
 *     useChat({ id, messages, resume: true, transport });
 */

import type { ChatTransport, UIMessage, UIMessageChunk } from "ai";
import { NotAllowed } from "./errors.js";
import type { History } from "./history.js";
import { type Delta, NEWEST, type ReplyPart } from "./streams.js";

type Sent<M extends UIMessage> = Parameters<ChatTransport<M>["sendMessages"]>[0];

export interface ChatTransportOptions<M extends UIMessage> {
  /** Send the messages to your server, which begins the reply (`history.streamReply()`) before it answers. */
  send: (sent: Sent<M>) => Promise<unknown>;
  /** The conversation of a chat, opened with a read token (`history.readToken()`). */
  history: (chatId: string) => History | Promise<History>;
  /** The `reply` of the `loadChat` that gave the messages: then no reply falls between the two. */
  reply?: string | null;
}

export class FoldlogChatTransport<M extends UIMessage> implements ChatTransport<M> {
  /** A resumed stream begins with the beginning of the reply. */
  readonly resumeStreamIsReplay = true;
  readonly #options: ChatTransportOptions<M>;
  #loaded: string | null | undefined;

  constructor(options: ChatTransportOptions<M>) {
    this.#options = options;
    this.#loaded = options.reply;
  }

  async sendMessages(sent: Sent<M>): Promise<ReadableStream<UIMessageChunk>> {
    await this.#options.send(sent);
    // The reply may have ended already.
    return uiMessageStream(this.#follow(sent.chatId, NEWEST, sent.abortSignal));
  }

  /** The reply that is being written, or null if none is. */
  async reconnectToStream(options: {
    chatId: string;
    abortSignal?: AbortSignal;
  }): Promise<ReadableStream<UIMessageChunk> | null> {
    const { chatId, abortSignal } = options;
    const reply = this.#loaded === undefined ? await this.#openReply(chatId, abortSignal) : this.#loaded;
    this.#loaded = undefined; // the next time, ask
    return reply === null ? null : uiMessageStream(this.#follow(chatId, reply, abortSignal));
  }

  async #openReply(chatId: string, signal: AbortSignal | undefined): Promise<string | null> {
    return (await this.#options.history(chatId)).openReply(signal);
  }

  /** The parts of a reply, with a new token whenever a token has ended. */
  async *#follow(chatId: string, start: string, signal: AbortSignal | undefined): AsyncGenerator<ReplyPart, void, undefined> {
    let after = start;
    for (;;) {
      const history = await this.#options.history(chatId);
      const before = after;
      try {
        for await (const part of history.followReply({ after, ...(signal && { signal }) })) {
          after = part.offset;
          yield part;
        }
        return;
      } catch (error) {
        if (!(error instanceof NotAllowed) || after === before) throw error;
      }
    }
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
