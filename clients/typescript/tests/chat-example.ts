/** Runs the example of a chat, with a model that writes slowly, a service, and a browser. */

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { Foldlog } from "foldlog";
import { Chromium, type Tab } from "./chromium.js";
import { freePort, type Service, startService, TOKEN } from "./service.js";

const PIECE_MS = 15;
export const PIECES = 60;
export const REPLY_MS = PIECE_MS * PIECES;

/** The reply to a question: the same for the same question, with characters that need several bytes. */
export function replyTo(question: string): string[] {
  return Array.from({ length: PIECES }, (_, number) => `${question} ${number} ${["a", "ä", "𝄞\n", "—  "][number % 4]}`);
}

/** Answers as a server of chat completions, which goes on behind the beginning of a reply. */
class SlowModel {
  readonly calls: { question: string; beginning: string }[] = [];
  /** Called when a question has come. */
  asked: (question: string) => void = () => undefined;
  readonly #server: Server;

  constructor() {
    this.#server = createServer(async (request, response) => {
      const { messages } = (await json(request)) as { messages: { role: string; content: string }[] };
      const question = messages.filter(({ role }) => role === "user").at(-1)?.content ?? "";
      const last = messages.at(-1);
      const beginning = last?.role === "assistant" ? last.content : "";
      this.calls.push({ question, beginning });
      this.asked(question);
      response.writeHead(200, { "content-type": "text/event-stream" });
      let place = 0;
      for (const piece of replyTo(question)) {
        place += piece.length;
        const rest = piece.slice(Math.max(0, piece.length - (place - beginning.length)));
        if (place <= beginning.length) continue;
        const chunk = { id: "1", object: "chat.completion.chunk", choices: [{ index: 0, delta: { content: rest } }] };
        response.write(`data: ${JSON.stringify(chunk)}\n\n`);
        await new Promise((resolve) => setTimeout(resolve, PIECE_MS));
      }
      response.end("data: [DONE]\n\n");
    });
  }

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

/** The chat with all that it needs. */
export class ChatExample {
  readonly model = new SlowModel();
  readonly #browser: Chromium;
  #folder = "";
  #modelUrl = "";
  #port = 0;
  #servicePort = 0;
  #service: Service | undefined;
  #app: ChildProcess | undefined;

  constructor(program: string) {
    this.#browser = new Chromium(program);
  }

  async start(): Promise<this> {
    this.#folder = await mkdtemp(join(tmpdir(), "foldlog-chat-"));
    this.#modelUrl = await this.model.start();
    [this.#port, this.#servicePort] = [await freePort(), await freePort()];
    await this.startService();
    await this.startApp();
    return this;
  }

  async stop(): Promise<void> {
    await this.#browser.stop();
    await this.killApp();
    await this.#service?.stop();
    this.model.stop();
    await rm(this.#folder, { recursive: true, force: true });
  }

  async startService(): Promise<void> {
    const origin = ["--allow-origin", `http://localhost:${this.#port}`];
    this.#service = await startService(join(this.#folder, "chat.db"), this.#servicePort, ...origin);
  }

  async killService(): Promise<void> {
    await this.#service?.stop();
  }

  async startApp(): Promise<void> {
    const variables = {
      FOLDLOG_URL: `http://127.0.0.1:${this.#servicePort}`,
      FOLDLOG_TOKEN: TOKEN,
      OPENAI_BASE_URL: this.#modelUrl,
      OPENAI_API_KEY: "of the test",
      PORT: String(this.#port),
    };
    const stdio = ["ignore", "pipe", "inherit"] as const;
    this.#app = spawn(process.execPath, ["build/examples/chat/server.js"], {
      env: { ...process.env, ...variables },
      stdio: [...stdio],
    });
    if (this.#app.stdout !== null) await once(this.#app.stdout, "data");
  }

  async killApp(): Promise<void> {
    const ended = this.#app && once(this.#app, "exit");
    if (this.#app?.kill("SIGKILL")) await ended;
  }

  open(chat: string): Promise<Tab> {
    return this.#browser.open(`http://localhost:${this.#port}/#${chat}`);
  }

  /** Ask in a new page. Resolves when the model begins to write. */
  async ask(chat: string, question: string): Promise<Tab> {
    const tab = await this.open(chat);
    const asked = new Promise<void>((resolve) => (this.model.asked = () => resolve()));
    await tab.type("input", question);
    await asked;
    return tab;
  }

  /** Wait until a page has the whole reply, once, and is ready for the next question. */
  async check(tab: Tab, question: string): Promise<void> {
    const reply = JSON.stringify(replyTo(question).join(""));
    const shown = `[...document.querySelectorAll("[data-role]")].map((shown) => shown.dataset.role + " " + shown.textContent)`;
    const expected = `["user ${question}", "assistant " + ${reply}]`;
    await tab.wait(
      `document.querySelector("form")?.dataset.status === "ready" && JSON.stringify(${shown}) === JSON.stringify(${expected})`,
    );
  }

  /** The log has the question and the reply, and no reply is open. */
  async checkLog(chat: string, question: string): Promise<void> {
    const history = new Foldlog({ url: `http://127.0.0.1:${this.#servicePort}`, token: TOKEN }).histories.open(
      `chat/${chat}`,
    );
    const said: unknown[] = [];
    for await (const event of history.events()) said.push(event["content"]);
    assert.deepEqual(said, [question, replyTo(question).join("")]);
    assert.equal(await history.isReplying(), false);
  }
}
