/**
 * A transport of `useChat` over a reply that foldlog stores while it is written: a page that is
 * loaded again, or a second one, gets the reply from its beginning and then live.
 *
 *     const { id, messages, version } = await …;        // `loadChat(history)` of your server
 *     const transport = new FoldlogChatTransport({ send, history, version });
 *     useChat({ id, messages, resume: true, transport });
 */

import type { ChatTransport, UIMessage, UIMessageChunk } from "ai";
import { toolOf } from "./chat.js";
import { replyChunks } from "./live.js";
import { type Shown, toolStates, Turn } from "./turn.js";
import type { History } from "../history.js";
import type { Json } from "../json.js";
import type { ReplyPart } from "../streams.js";

type Sent<M extends UIMessage> = Parameters<ChatTransport<M>["sendMessages"]>[0];

export interface ChatTransportOptions<M extends UIMessage> {
  /**
   * Send the messages to your server. It answers when its worker holds the lease and has begun the
   * reply (`held.streamReply()`), or when there is nothing to do.
   */
  send: (sent: Sent<M>) => Promise<unknown>;
  /**
   * The conversation of a chat, opened with a read token (`history.readToken()`), or null if the chat
   * has no conversation yet: a new chat has one after `send`.
   */
  history: (chatId: string) => History | null | Promise<History | null>;
  /** The `version` of the `loadChat` that gave the messages: then nothing falls between the two. */
  version?: number;
  /** The `reply` of this `loadChat`. With a version, it is not needed. */
  reply?: string | null;
}

/**
 * The stream of a request is the agent's whole turn: replies, live, results of tools and questions to
 * a person. It ends when the agent's last word is there, a person is asked, or no worker holds the
 * lease of the conversation. If nothing follows what the page sent, it ends with `NoReply`.
 */
export class FoldlogChatTransport<M extends UIMessage> implements ChatTransport<M> {
  readonly #options: ChatTransportOptions<M>;
  /** The page has the conversation up to this version. */
  #version: number | undefined;
  #loaded: string | null | undefined;
  #turn: Turn | undefined;
  #chat: string | undefined;
  #replays = false;

  constructor(options: ChatTransportOptions<M>) {
    this.#options = options;
    this.#version = options.version;
    this.#loaded = options.reply;
  }

  /** A resumed stream begins with the beginning of the message. Version 7 of the AI SDK asks before it reads. */
  get resumeStreamIsReplay(): boolean {
    this.#replays = true;
    return true;
  }

  async sendMessages(sent: Sent<M>): Promise<ReadableStream<UIMessageChunk>> {
    this.#enter(sent.chatId);
    const last = sent.messages.at(-1);
    const shown = last?.role === "assistant" ? await this.#continued(sent, last) : newTurn(this.#version ?? 0, last);
    await this.#options.send(sent);
    const turn = this.#turnOf(shown, sent);
    const isDue = last?.role !== "assistant" || toolOf(last.parts.at(-1) as Json) !== undefined;
    return streamOf(() => this.#chunks(turn, { isDue }));
  }

  /** What the page does not have of the agent's turn, or null if there is nothing, and nobody works. */
  async reconnectToStream(options: {
    chatId: string;
    abortSignal?: AbortSignal;
  }): Promise<ReadableStream<UIMessageChunk> | null> {
    this.#enter(options.chatId);
    const first = this.#version === undefined ? (this.#loaded ?? null) : null;
    this.#loaded = undefined; // the next time, ask
    const isLoaded = this.#turn === undefined;
    if (isLoaded && this.#version === 0 && (await this.#options.history(options.chatId)) === null) return null;
    const turn = this.#turnOf(this.#turn === undefined ? newTurn(0) : elsewhere(this.#turn.shown), options);
    if (isLoaded) turn.shown.before = this.#version ?? (await turn.state()).version;
    if (first === null && !(await turn.hasNews())) return null;
    return streamOf(() => this.#chunks(turn, { first }, isLoaded && first === null));
  }

  /** The chunks of a message: a turn between its start and its finish. */
  async *#chunks(
    turn: Turn,
    options: { first?: string | null; isDue?: boolean },
    isLoaded = false,
  ): AsyncGenerator<UIMessageChunk, void, undefined> {
    let start: UIMessageChunk = { type: "start" };
    if (isLoaded && this.#replays) {
      const messageId = await turn.message();
      if (messageId !== undefined) start = { type: "start", messageId };
      turn.shown.before = 0; // the message is shown anew
    }
    yield start;
    yield* turn.chunks(options);
    this.#version = turn.version;
    yield { type: "finish" };
  }

  /** The conversation of a chat that has messages. */
  async #history(chatId: string): Promise<History> {
    const history = await this.#options.history(chatId);
    if (history === null) throw new TypeError(`history("${chatId}") is null, but the chat has messages`);
    return history;
  }

  /** What the transport knows is of one chat. */
  #enter(chatId: string): void {
    if (this.#chat !== undefined && this.#chat !== chatId) {
      this.#version = undefined;
      this.#loaded = undefined;
      this.#turn = undefined;
    }
    this.#chat = chatId;
  }

  /** Begin a turn behind what the page shows. */
  #turnOf(shown: Shown, { chatId, abortSignal }: { chatId: string; abortSignal?: AbortSignal | undefined }): Turn {
    this.#turn = new Turn(shown, () => this.#history(chatId), abortSignal);
    return this.#turn;
  }

  /** The turn that the page's message goes on with. */
  async #continued(sent: Sent<M>, message: M): Promise<Shown> {
    const tools = toolStates(message);
    if (this.#turn !== undefined) return { ...this.#turn.shown, tools };
    const user = sent.messages.filter(({ role }) => role === "user").at(-1);
    const shown = { ...newTurn(0, user), tools, hasParts: true };
    return { ...shown, before: this.#version ?? (await this.#turnOf(shown, sent).state()).version };
  }
}

/** The turn goes on in another message, where a call that was open needs all of its chunks. */
function elsewhere({ tools, ...shown }: Shown): Shown {
  const ended = [...tools].filter(([, state]) => state.startsWith("output-"));
  return { ...shown, tools: new Map(ended), hasParts: false };
}

/** A turn of which the page shows nothing, behind a version. */
function newTurn(start: number, user?: UIMessage): Shown {
  const named = user === undefined ? {} : { user: user.id };
  return { start, before: start, ...named, tools: new Map(), slots: new Set(), hasParts: false };
}

/** The parts of a reply, from its beginning, as the chunks that `useChat` reads. */
export function uiMessageStream(parts: AsyncIterable<ReplyPart>): ReadableStream<UIMessageChunk> {
  return streamOf(async function* () {
    yield { type: "start" };
    yield* replyChunks(parts);
    yield { type: "finish" };
  });
}

/** A stream that begins with its first read. */
function streamOf(generate: () => AsyncGenerator<UIMessageChunk, void, undefined>): ReadableStream<UIMessageChunk> {
  const chunks = generate();
  return new ReadableStream(
    {
      async pull(controller) {
        const { done, value } = await chunks.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        await chunks.return();
      },
    },
    { highWaterMark: 0 },
  );
}
