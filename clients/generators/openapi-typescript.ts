import createClient from "openapi-fetch";
import type { paths } from "./build/openapi-typescript";
import { ASKED, REPLY, type Service, type Turn } from "./turn";

export async function takeTurn({ url, token }: Service, conversation: string): Promise<Turn> {
  const client = createClient<paths>({ baseUrl: url, headers: { authorization: `Bearer ${token}` } });
  const path = { conversation };
  await client.POST("/v1/conversations/{conversation}/events", {
    params: { path, header: { "Idempotency-Key": "message-1" } },
    body: { messages: [ASKED] },
  });
  const late = await client.POST("/v1/conversations/{conversation}/events", {
    params: { path, header: { "If-Match": '"0"' } },
    body: { events: [{ kind: "message", source: "user", content: "too late" }] },
  });
  const problem = late.error?.status === 409 ? late.error : undefined;

  const lease = await client.POST("/v1/conversations/{conversation}/lease", {
    params: { path },
    body: { worker: "w" },
  });
  const header = { "Foldlog-Lease": lease.data!.token };
  const view = await client.POST("/v1/conversations/{conversation}/prepare", {
    params: { path, header },
    body: { dialect: "openai" },
  });
  await client.POST("/v1/conversations/{conversation}/replies", {
    params: { path, header },
    body: { reply: REPLY, view_version: view.data!.version, model_request: view.data!.model_request },
  });
  const { data: open } = await client.GET("/v1/conversations/{conversation}/open-calls", { params: { path } });
  const call = { ...path, event: open!.calls[0]!["id"] as number };
  const begun = await client.POST("/v1/conversations/{conversation}/effects/{event}/begin", {
    params: { path: call, header },
    body: { repeat: "never" },
  });
  await client.POST("/v1/conversations/{conversation}/effects/{event}/outcome", {
    params: { path: call, header },
    body: { outcome: "done" },
  });

  const followed = await client.GET("/v1/conversations/{conversation}/follow", {
    params: { path, query: { after: "0" } },
  });
  const page = followed.data!;
  if (typeof page === "string") throw new Error("the answer is a stream, which was not asked for");
  const { data: found } = await client.GET("/v1/search", {
    params: { query: { words: "pay", within: conversation, kind: "message" } },
  });
  const { data: list } = await client.GET("/v1/conversations");
  return {
    conflict: [late.response.status, problem?.expected, problem?.actual],
    prepared: view.data!.messages,
    paidTo: begun.data!.arguments?.["to"],
    kinds: page.events.map(({ event }) => event["kind"]),
    found: found!.hits.map(({ snippet, highlights }) => snippet.slice(...(highlights[0] as [number, number]))),
    isListed: list!.conversations.some(({ id }) => id === conversation),
  };
}
