import { createClient } from "./build/hey-api/client";
import {
  appendEvents,
  appendReply,
  beginEffect,
  endEffect,
  followConversation,
  listConversations,
  prepare,
  readOpenCalls,
  searchEvents,
  takeLease,
} from "./build/hey-api";
import { ASKED, REPLY, type Service, type Turn } from "./turn";

export async function takeTurn({ url, token }: Service, conversation: string): Promise<Turn> {
  const client = createClient({ baseUrl: url, auth: () => token });
  const path = { conversation };
  await appendEvents({ client, path, headers: { "Idempotency-Key": "message-1" }, body: { messages: [ASKED] } });
  const late = await appendEvents({
    client,
    path,
    headers: { "If-Match": '"0"' },
    body: { events: [{ kind: "message", source: "user", content: "too late" }] },
  });
  const problem = late.error?.status === 409 ? late.error : undefined;

  const lease = await takeLease({ client, path, body: { worker: "w" } });
  const headers = { "Foldlog-Lease": lease.data!.token };
  const view = await prepare({ client, path, headers, body: { dialect: "openai" } });
  await appendReply({
    client,
    path,
    headers,
    body: { reply: REPLY, view_version: view.data!.version, model_request: view.data!.model_request },
  });
  const open = await readOpenCalls({ client, path });
  const call = { ...path, event: open.data!.calls[0]!["id"] as number };
  const begun = await beginEffect({ client, path: call, headers, body: { repeat: "never" } });
  await endEffect({ client, path: call, headers, body: { outcome: "done" } });

  const followed = await followConversation({ client, path, query: { after: "0" } });
  const found = await searchEvents({ client, query: { words: "pay", within: conversation, kind: "message" } });
  const list = await listConversations({ client });
  return {
    conflict: [late.response!.status, problem?.expected, problem?.actual],
    prepared: view.data!.messages,
    paidTo: begun.data!.arguments?.["to"],
    kinds: followed.data!.events.map(({ event }) => event["kind"]),
    found: found.data!.hits.map(({ snippet, highlights }) => snippet.slice(...(highlights[0] as [number, number]))),
    isListed: list.data!.conversations.some(({ id }) => id === conversation),
  };
}
