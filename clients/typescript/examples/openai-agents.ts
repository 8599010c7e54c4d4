/**
 * A session of OpenAI Agents JS that survives a kill: run it, kill it, and run it again.
 *
 *     FOLDLOG_URL=http://localhost:8765 FOLDLOG_TOKEN=… node openai-agents.js SESSION
 *
 * Each run asks the next question. The model has fixed answers; leave out `model` for a real one.
 */

import {
  Agent,
  type Model,
  type ModelRequest,
  type ModelResponse,
  run,
  setTracingDisabled,
  Usage,
} from "@openai/agents-core";
import { Foldlog } from "foldlog";
import { FoldlogSession } from "foldlog/openai-agents";

setTracingDisabled(true);
const { FOLDLOG_URL: url = "http://localhost:8765", FOLDLOG_TOKEN: token = "" } = process.env;
const [sessionId = "user-7"] = process.argv.slice(2);

/** A model that says how many messages of the user it was shown. */
class CountingModel implements Model {
  async getResponse({ input }: ModelRequest): Promise<ModelResponse> {
    await new Promise((resolve) => setTimeout(resolve, 50));
    const items = typeof input === "string" ? [{ role: "user" }] : input;
    const questions = items.filter((item) => "role" in item && item.role === "user").length;
    const text = `You have asked ${questions} questions.`;
    const content = [{ type: "output_text" as const, text }];
    return { usage: new Usage(), output: [{ type: "message", role: "assistant", status: "completed", content }] };
  }

  getStreamedResponse(): never {
    throw new Error("this model does not stream");
  }
}

const session = new FoldlogSession(new Foldlog({ url, token }), sessionId);
const agent = new Agent({ name: "counter", model: new CountingModel() });
const questions = (await session.getItems()).filter((item) => "role" in item && item.role === "user").length;
const result = await run(agent, `Question ${questions + 1}`, { session });
console.log(result.finalOutput);
