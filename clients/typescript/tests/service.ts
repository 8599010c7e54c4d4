/** Runs a foldlog service for tests, and a proxy before it that breaks connections. */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, request, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import { Foldlog, type History } from "foldlog";

export const TOKEN = "token-of-the-tests";
const TOKENS = `[tests]
token = "${TOKEN}"
scope = "administer"

[ann]
token = "token-of-ann"
scope = "append"
where = { user = "ann" }

[worker]
token = "token-of-worker"
scope = "append"

[approver]
token = "token-of-approver"
scope = "approve"
`;

export interface Service {
  url: string;
  store: string;
  process: ChildProcess;
  stop: () => Promise<void>;
}

/** Start `foldlog serve --write` on a free port. The variable FOLDLOG names another command. */
export async function startService(store?: string, port = 0, ...options: string[]): Promise<Service> {
  const folder = await mkdtemp(join(tmpdir(), "foldlog-client-"));
  const tokens = join(folder, "tokens.toml");
  await writeFile(tokens, TOKENS, { mode: 0o600 });
  const db = store ?? join(folder, "store.db");
  const serve = ["serve", "--write", "--tokens", tokens, "--db", db, "--port", String(port), ...options];
  const process_ = spawn(process.env["FOLDLOG"] ?? "foldlog", serve, { stdio: ["ignore", "pipe", "pipe"] });
  const url = await printedAddress(process_);
  const stop = async (): Promise<void> => {
    const ended = new Promise((resolve) => process_.once("exit", resolve));
    if (process_.kill("SIGKILL")) await ended;
    await rm(folder, { recursive: true, force: true });
  };
  return { url, store: db, process: process_, stop };
}

function printedAddress(server: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let printed = "";
    const look = (data: Buffer): void => {
      printed += data.toString();
      const address = /(http:\/\/[^\s/?]+)[\s/?]/.exec(printed)?.[1];
      if (address !== undefined) resolve(address);
    };
    server.stdout?.on("data", look);
    server.stderr?.on("data", look);
    server.once("error", reject);
    server.once("exit", (code) => reject(new Error(`foldlog serve ended with ${code}: ${printed}`)));
  });
}

/** A service that runs while the tests of a file run, with conversations of its own for each test. */
export class TestService {
  #service: Service | undefined;
  #foldlog: Foldlog | undefined;
  #number = 0;

  constructor(readonly name: string) {
    before(async () => {
      this.#service = await startService();
    });
    after(() => this.#service?.stop());
  }

  get url(): string {
    if (this.#service === undefined) throw new Error("the service runs only while tests run");
    return this.#service.url;
  }

  /** The client that the tests share. */
  get foldlog(): Foldlog {
    return (this.#foldlog ??= this.client(TOKEN));
  }

  /** Another client, with another token of the service. */
  readonly client = (token: string): Foldlog => new Foldlog({ url: this.url, token });
  readonly newNumber = (): number => (this.#number += 1);
  readonly newHistory = (): History => this.foldlog.histories.open(`${this.name} ${this.newNumber()}`);
}

export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** What the proxy does with a request. A request that it holds is neither passed on nor answered. */
export type Fault = "none" | "drop" | "cut" | "cut in the body" | "repeat" | "delay" | "busy" | "hold";

/** An HTTP proxy that breaks some of the requests. */
export class Proxy {
  url = "";
  readonly seen: { method: string; path: string; key: string | undefined; fault: Fault }[] = [];
  readonly #server: Server;
  readonly #targets: () => string;
  readonly #choose: (request: IncomingMessage) => Fault;

  constructor(targets: () => string, choose: (request: IncomingMessage) => Fault) {
    this.#targets = targets;
    this.#choose = choose;
    this.#server = createServer((incoming, outgoing) => void this.#pass(incoming, outgoing));
  }

  async start(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    return this;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** Cut all open connections. */
  cut(): void {
    this.#server.closeAllConnections();
  }

  async #pass(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const fault = this.#choose(incoming);
    const { method = "", url: path = "" } = incoming;
    this.seen.push({ method, path, key: incoming.headers["idempotency-key"] as string | undefined, fault });
    const parts: Buffer[] = [];
    for await (const part of incoming) parts.push(part as Buffer);
    const body = Buffer.concat(parts);
    if (fault === "drop") return void incoming.socket.destroy();
    if (fault === "hold") return;
    if (fault === "busy") {
      outgoing.writeHead(503, { "retry-after": "0" });
      return void outgoing.end();
    }
    if (fault === "delay") await new Promise((resolve) => setTimeout(resolve, 50));
    try {
      if (fault === "repeat") (await this.#forward(incoming, body)).resume();
      const answer = await this.#forward(incoming, body);
      if (fault === "cut") {
        answer.resume().once("end", () => incoming.socket.destroy());
        return;
      }
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      outgoing.flushHeaders();
      answer.on("error", () => incoming.socket.destroy());
      outgoing.on("close", () => answer.destroy());
      if (fault === "cut in the body") answer.once("data", () => incoming.socket.destroy());
      answer.pipe(outgoing);
    } catch {
      incoming.socket.destroy(); // the server is gone
    }
  }

  #forward(incoming: IncomingMessage, body: Buffer): Promise<IncomingMessage> {
    const target = new URL(this.#targets());
    const headers = { ...incoming.headers, host: target.host };
    const { method, url: path } = incoming;
    return new Promise((resolve, reject) => {
      const sent = request({ host: target.hostname, port: target.port, method, path, headers }, resolve);
      sent.once("error", reject);
      sent.end(body);
    });
  }
}
