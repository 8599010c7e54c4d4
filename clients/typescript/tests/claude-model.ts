/**
 * Answers as the server of Claude's models: it says how many questions of the user it was shown. For
 * `Question: run COMMAND`, it calls the tool Bash first, and then says what came back.
 */

import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

interface Content {
  type: string;
  text?: string;
  content?: string;
}
interface Shown {
  role: string;
  content: string | Content[];
}

/** The questions in the messages: the program adds texts of its own. */
function questions(messages: Shown[]): string[] {
  return messages
    .filter(({ role }) => role === "user")
    .flatMap(({ content }) => (typeof content === "string" ? [content] : content.map(({ text = "" }) => text)))
    .filter((text) => text.startsWith("Question"));
}

export class ClaudeModel {
  readonly #server: Server;
  /** Called with the newest question before it is answered. */
  asked: (question: string) => Promise<void> | void = () => undefined;

  constructor() {
    this.#server = createServer(async (request, response) => {
      const parts: Buffer[] = [];
      for await (const part of request) parts.push(part as Buffer);
      if (request.method !== "POST" || !request.url?.startsWith("/v1/messages?")) {
        response.writeHead(404, { "content-type": "application/json" });
        return void response.end("{}");
      }
      const body = JSON.parse(Buffer.concat(parts).toString()) as {
        messages: Shown[];
        model: string;
        tools?: object[];
      };
      const { messages, model, tools = [] } = body;
      const shown = questions(messages);
      await this.asked(shown.at(-1) ?? "");
      response.writeHead(200, { "content-type": "text/event-stream" });
      const usage = { input_tokens: 10, output_tokens: 5 };
      const message = { id: crypto.randomUUID(), type: "message", role: "assistant", model, content: [], usage };
      const send = (type: string, members: object): void =>
        void response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`);
      send("message_start", { message });
      const [, command] = /^Question: run (.*)/.exec(shown.at(-1) ?? "") ?? [];
      const results = messages.flatMap(({ content }) => (typeof content === "string" ? [] : content));
      const result = results.filter(({ type }) => type === "tool_result").at(-1);
      const isCall = command !== undefined && result === undefined && tools.length > 0;
      const called = { type: "tool_use", id: `toolu_${crypto.randomUUID()}`, name: "Bash", input: {} };
      const asked = `You have asked ${new Set(shown).size} questions.`;
      const said = command === undefined ? asked : `The tool says: ${result?.content}`;
      const delta = isCall
        ? { type: "input_json_delta", partial_json: JSON.stringify({ command, description: "of the test" }) }
        : { type: "text_delta", text: said };
      send("content_block_start", { index: 0, content_block: isCall ? called : { type: "text", text: "" } });
      send("content_block_delta", { index: 0, delta });
      send("content_block_stop", { index: 0 });
      send("message_delta", { delta: { stop_reason: isCall ? "tool_use" : "end_turn" }, usage });
      send("message_stop", {});
      response.end();
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
