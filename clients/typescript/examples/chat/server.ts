/**
 * A chat whose replies survive: load the page again in the middle of one, open a second page, kill
 * this program or the service and start it again. The text goes on, without a gap or a repetition.
 *
 *     foldlog serve --write --tokens tokens.toml --db chat.db --allow-origin http://localhost:8000
 *     FOLDLOG_TOKEN=… OPENAI_BASE_URL=… OPENAI_API_KEY=… node chat/server.js
 */

import { createServer, type IncomingMessage } from "node:http";
import { json } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import {
  ConversationNotFound,
  Foldlog,
  type HeldHistory,
  type History,
  LeaseLost,
  type UnfinishedReply,
} from "foldlog";
import { type ChatRequest, loadChat, saveRequest } from "foldlog/ai-sdk";
import OpenAI from "openai";

const { FOLDLOG_URL: url = "http://localhost:8765", FOLDLOG_TOKEN: token = "" } = process.env;
const { MODEL: model = "gpt-5", PORT: port = "8000" } = process.env;
const foldlog = new Foldlog({ url, token });
const openai = new OpenAI();

/** Write a reply, or the rest of one: the server of the model goes on behind the text that it gets. */
async function write(held: HeldHistory, unfinished?: UnfinishedReply): Promise<void> {
  const { messages } = await held.prepare("openai");
  const writer = unfinished?.continue() ?? (await held.streamReply());
  if (unfinished !== undefined) messages.push(unfinished.message);
  const source = await openai.chat.completions.create({ model, stream: true, messages }, { signal: held.signal });
  for await (const { choices } of source) {
    const text = choices[0]?.delta.content;
    if (text) await writer.feed({ type: "text", text });
  }
  await writer.end(); // appends the whole reply, and closes its stream
}

/** First what a killed program left, then the message of the page, then the reply to it. */
async function drive(history: History, sent?: ChatRequest, saved: () => void = () => undefined): Promise<void> {
  try {
    await history.lease({ worker: `process ${process.pid}`, ttlS: 15, waitS: 60 }, async (held) => {
      const unfinished = await held.unfinishedReply();
      if (unfinished !== undefined) await write(held, unfinished);
      if (sent !== undefined) await saveRequest(held, sent); // a repetition saves nothing
      saved();
      const { messages } = await held.prepare("openai");
      if (messages.at(-1)?.role === "user") await write(held);
    });
  } catch (error) {
    if (error instanceof LeaseLost) return drive(history, sent, saved);
    console.error(history.id, error);
    throw error;
  }
}

function nullOfNewChat(error: unknown): null {
  if (error instanceof ConversationNotFound) return null;
  throw error;
}

async function answer(request: IncomingMessage): Promise<unknown> {
  const { pathname, searchParams } = new URL(request.url ?? "/", "http://localhost");
  const history = foldlog.histories.open(`chat/${searchParams.get("id")}`); // yours asks whose chat it is
  switch (`${request.method} ${pathname}`) {
    case "GET /chat":
      return loadChat(history);
    case "GET /token":
      return history.readToken().then((token) => ({ url, ...token }), nullOfNewChat);
    case "POST /chat": {
      const sent = (await json(request)) as ChatRequest;
      return new Promise<void>((saved, failed) => void drive(history, sent, saved).catch(failed));
    }
    default:
      return undefined;
  }
}

const page = fileURLToPath(new URL("page.js", import.meta.url));
const define = { "process.env.NODE_ENV": '"production"' };
const { outputFiles } = await build({ entryPoints: [page], bundle: true, write: false, format: "esm", define });
const html =
  '<!doctype html><meta charset="utf-8"><title>Chat</title><div id="chat"></div><script type="module" src="/page.js"></script>';

createServer((request, response) => {
  const send = (type: string, content: string | undefined): void => {
    response.setHeader("content-type", type).end(content);
  };
  if (request.url === "/") return send("text/html", html);
  if (request.url === "/page.js") return send("text/javascript", outputFiles[0]?.text);
  answer(request).then(
    (value) => send("application/json", JSON.stringify(value ?? null)),
    (error: unknown) => response.writeHead(500).end(String(error)),
  );
}).listen(Number(port), "localhost", () => console.log(`http://localhost:${port}`));

// Go on with the replies that an earlier process left unfinished.
for await (const { id } of foldlog.histories.list({}, "chat/"))
  void drive(foldlog.histories.open(id)).catch(() => undefined);
