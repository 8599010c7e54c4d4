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
} from "./build/orval/client";
import { useService } from "./orval-request";
import { ASKED, REPLY, type Service, type Turn } from "./turn";

export async function takeTurn(service: Service, conversation: string): Promise<Turn> {
  useService(service);
  await appendEvents(conversation, { messages: [ASKED] }, { headers: { "Idempotency-Key": "message-1" } });
  const late = await appendEvents(
    conversation,
    { events: [{ kind: "message", source: "user", content: "too late" }] },
    { headers: { "If-Match": '"0"' } },
  );
  const problem = late.status === 409 ? late.data : undefined;

  const lease = await takeLease(conversation, { worker: "w" });
  if (lease.status !== 201) throw new Error(lease.data.detail);
  const underLease = { headers: { "Foldlog-Lease": lease.data.token } };
  const view = await prepare(conversation, { dialect: "openai" }, underLease);
  if (view.status !== 201) throw new Error(view.data.detail);
  const { version, messages, model_request } = view.data;
  await appendReply(conversation, { reply: REPLY, view_version: version, model_request }, underLease);
  const open = await readOpenCalls(conversation);
  if (open.status !== 200) throw new Error(open.data.detail);
  const event = open.data.calls[0]!["id"] as number;
  const begun = await beginEffect(conversation, event, { repeat: "never" }, underLease);
  if (begun.status !== 200) throw new Error(begun.data.detail);
  await endEffect(conversation, event, { outcome: "done" }, underLease);

  const followed = await followConversation(conversation, { after: "0" });
  if (followed.status !== 200 || typeof followed.data === "string") throw new Error("the answer is no page of events");
  const found = await searchEvents({ words: "pay", within: conversation, kind: "message" });
  if (found.status !== 200) throw new Error(found.data.detail);
  const list = await listConversations();
  if (list.status !== 200) throw new Error(list.data.detail);
  return {
    conflict: [late.status, problem?.expected, problem?.actual],
    prepared: messages,
    paidTo: begun.data.arguments?.["to"],
    kinds: followed.data.events.map(({ event }) => event["kind"]),
    found: found.data.hits.map(({ snippet, highlights }) => snippet.slice(...(highlights[0] as [number, number]))),
    isListed: list.data.conversations.some(({ id }) => id === conversation),
  };
}
