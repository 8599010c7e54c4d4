/** The page of the chat: `useChat` of the AI SDK over replies that foldlog stores. */

import { useChat } from "@ai-sdk/react";
import { Foldlog } from "foldlog";
import { type ChatRequest, FoldlogChatTransport, type LoadedChat } from "foldlog/ai-sdk";
import { useState } from "react";
import { createRoot } from "react-dom/client";

location.hash ||= crypto.randomUUID();
const id = location.hash.slice(1);

async function ask<T>(path: string, sent?: ChatRequest): Promise<T> {
  const init = sent && { method: "POST", body: JSON.stringify(sent) };
  const response = await fetch(`${path}?id=${id}`, init);
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()) as T;
}

const chat = await ask<LoadedChat>("/chat");
const transport = new FoldlogChatTransport({
  send: ({ messages, trigger }) => ask("/chat", { messages: messages.slice(-1), trigger }),
  history: async (name) => {
    const access = await ask<{ url: string; token: string } | null>("/token");
    return access && new Foldlog(access).histories.open(name);
  },
  version: chat.version,
});

function Chat() {
  const { messages, sendMessage, status, error } = useChat({
    id: chat.id,
    messages: chat.messages,
    resume: true,
    transport,
  });
  const [text, setText] = useState("");
  const shown = messages.map((message) => (
    <p key={message.id} data-role={message.role} style={{ whiteSpace: "pre-wrap" }}>
      {message.parts.map((part) => (part.type === "text" ? part.text : ""))}
    </p>
  ));
  const send = (): void => {
    void sendMessage({ text });
    setText("");
  };
  return (
    <form data-status={status} onSubmit={(event) => (event.preventDefault(), send())}>
      {shown}
      {error && <p role="alert">{error.message}</p>}
      <input value={text} onChange={(event) => setText(event.target.value)} disabled={status !== "ready"} />
    </form>
  );
}

createRoot(document.getElementById("chat") as HTMLElement).render(<Chat />);
