/** A headless Chromium, driven by its DevTools protocol over a pipe. */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";

const FLAGS =
  "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --remote-debugging-pipe";
const PATIENCE_MS = 60_000;

type Json = Record<string, unknown>;

/** The browser that FOLDLOG_CHROMIUM names, or Debian's, or undefined if there is none. */
export function findChromium(): string | undefined {
  try {
    const named = process.env["FOLDLOG_CHROMIUM"];
    return named ?? execFileSync("sh", ["-c", "command -v chromium || command -v google-chrome"]).toString().trim();
  } catch {
    return undefined;
  }
}

export class Chromium {
  readonly #process: ChildProcess;
  readonly #folder = mkdtempSync(join(tmpdir(), "foldlog-chromium-"));
  readonly #answers = new Map<number, (answer: { result?: Json; error?: { message: string } }) => void>();
  #number = 0;

  constructor(program: string) {
    const flags = [...FLAGS.split(" "), `--user-data-dir=${this.#folder}`, "about:blank"];
    this.#process = spawn(program, flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    let rest = "";
    (this.#process.stdio[4] as Readable).setEncoding("utf8").on("data", (part: string) => {
      const messages = (rest + part).split("\0");
      rest = messages.pop() ?? "";
      for (const message of messages) {
        const { id, ...answer } = JSON.parse(message) as { id?: number };
        if (id !== undefined) this.#answers.get(id)?.(answer);
      }
    });
  }

  async send(method: string, params: Json = {}, sessionId?: string): Promise<Json> {
    const id = (this.#number += 1);
    const answered = new Promise<{ result?: Json; error?: { message: string } }>((resolve) =>
      this.#answers.set(id, resolve),
    );
    (this.#process.stdio[3] as Writable).write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    const { result, error } = await answered;
    this.#answers.delete(id);
    if (error !== undefined) throw new Error(`${method}: ${error.message}`);
    return result ?? {};
  }

  async open(url: string): Promise<Tab> {
    const { targetId } = await this.send("Target.createTarget", { url });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    return new Tab(this, targetId as string, sessionId as string);
  }

  async stop(): Promise<void> {
    const ended = new Promise((resolve) => this.#process.once("exit", resolve));
    if (this.#process.kill("SIGKILL")) await ended;
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

export class Tab {
  readonly #browser: Chromium;
  readonly #target: string;
  readonly #session: string;

  constructor(browser: Chromium, target: string, session: string) {
    this.#browser = browser;
    this.#target = target;
    this.#session = session;
  }

  send(method: string, params: Json = {}): Promise<Json> {
    return this.#browser.send(method, params, this.#session);
  }

  /** What an expression is in the page. */
  async ask(expression: string): Promise<unknown> {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, returnByValue: true });
    if (exceptionDetails !== undefined) throw new Error(`${expression}: ${JSON.stringify(exceptionDetails)}`);
    return (result as { value?: unknown }).value;
  }

  /** Wait until an expression is true. A page that is being loaded again has no answer yet. */
  async wait(expression: string): Promise<void> {
    const until = performance.now() + PATIENCE_MS;
    let last: unknown;
    while ((last = await this.ask(expression).catch(String)) !== true) {
      if (performance.now() > until) throw new Error(`${expression} did not become true: ${JSON.stringify(last)}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Type a text into the element that matches, and press Enter. */
  async type(selector: string, text: string): Promise<void> {
    await this.wait(
      `(() => { const found = document.querySelector('${selector}:enabled'); found?.focus(); return found !== null })()`,
    );
    await this.send("Input.insertText", { text });
    const enter = { key: "Enter", windowsVirtualKeyCode: 13 };
    await this.send("Input.dispatchKeyEvent", { ...enter, type: "keyDown", text: "\r" });
    await this.send("Input.dispatchKeyEvent", { ...enter, type: "keyUp" });
  }

  reload(): Promise<Json> {
    return this.send("Page.reload");
  }

  close(): Promise<Json> {
    return this.#browser.send("Target.closeTarget", { targetId: this.#target });
  }
}
