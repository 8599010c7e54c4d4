/**
 * A session of the Claude Agent SDK that survives a kill, and goes on in another folder or machine:
 *
 *     FOLDLOG_URL=http://localhost:8765 FOLDLOG_TOKEN=… node claude-agent.js UUID "What did I ask?"
 *
 * The model needs ANTHROPIC_API_KEY, or the program of Claude Code a login.
 */

import { getSessionMessages, query } from "@anthropic-ai/claude-agent-sdk";
import { Foldlog } from "foldlog";
import { FoldlogSessionStore } from "foldlog/claude-agent";

const { FOLDLOG_URL: url = "http://localhost:8765", FOLDLOG_TOKEN: token = "" } = process.env;
const [session = crypto.randomUUID(), prompt = "What did I ask?"] = process.argv.slice(2);

const sessionStore = new FoldlogSessionStore(new Foldlog({ url, token }));
const before = await getSessionMessages(session, { sessionStore });
const place = before.length === 0 ? { sessionId: session } : { resume: session };
// "eager": an entry is in the store as soon as it is made, and not only at the end of a turn
const options = { ...place, sessionStore, sessionStoreFlush: "eager" as const };
for await (const message of query({ prompt, options })) {
  if (message.type === "result") console.log(message.subtype === "success" ? message.result : message.subtype);
}
