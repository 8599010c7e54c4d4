/** Makes chats of `UIMessage`s over all types and states of parts that the AI SDK has, by a seed. */

import type { UIMessage } from "ai";

type Part = Record<string, unknown>;

const STATES = [
  "input-streaming",
  "input-available",
  "approval-requested",
  "approval-responded",
  "output-available",
  "preliminary",
  "output-error",
  "output-denied",
] as const;
const TEXTS = ["Pay Ann.", "", " ", "ä 𝄞 \u2028", "a\n\nb", "\u0000", "{}", '{"json": 1}', "[1]", "null"];
const VALUES: unknown[] = [
  1,
  0,
  -1.5,
  1e21,
  1e20,
  true,
  null,
  "",
  "text",
  '{"a":1}',
  [],
  [1, [2, null]],
  {},
  { a: { b: "ä" } },
];

/** Pseudo-random numbers: the same for the same seed. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed * 2_654_435_761 + 1;
  }

  below(limit: number): number {
    this.#state = (Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state) + 0x6d2b79f5) | 0;
    return ((this.#state ^ (this.#state >>> 14)) >>> 0) % limit;
  }

  of<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }

  /** The members, or none, by chance. */
  maybe(members: Part): Part {
    return this.below(2) === 0 ? members : {};
  }
}

/** The states of a chat as it grows: each is saved, and the last one is the whole chat. */
export function growingChat(seed: number): UIMessage[][] {
  const random = new Random(seed);
  const chat: Part[] = [];
  const states: Part[][] = [];
  for (let turn = 0; turn <= random.below(3); turn += 1) {
    if (turn === 0 && random.below(4) === 0) chat.push(message(random, chat, "system", [text(random)]));
    const files = random.below(3) === 0 ? [file(random)] : [];
    chat.push(message(random, chat, "user", [text(random), ...files]));
    const parts = Array.from({ length: random.below(8) }, () => part(random));
    if (random.below(2) === 0) {
      const begun = parts.map((each) => earlier(each));
      states.push([...chat, { ...message(random, chat, "assistant", begun), id: `m${chat.length}` }]);
    }
    chat.push(message(random, chat, "assistant", parts));
    states.push([...chat]);
  }
  if (random.below(5) === 0)
    states.push([...chat.slice(0, -1), message(random, chat, "assistant", [part(random), text(random)])]);
  return states as unknown as UIMessage[][];
}

function message(random: Random, chat: Part[], role: string, parts: Part[]): Part {
  return { id: `m${chat.length}`, role, ...random.maybe({ metadata: random.of(VALUES) }), parts };
}

function part(random: Random): Part {
  const makers = [
    text,
    text,
    reasoning,
    tool,
    tool,
    tool,
    tool,
    file,
    source,
    data,
    custom,
    reasoningFile,
    steering,
    step,
    step,
  ];
  return random.of(makers)(random);
}

/** The part at an earlier time, as far as it has one. */
function earlier(part: Part): Part {
  const { state, output, errorText, preliminary, resultProviderMetadata, approval, ...rest } = part;
  if ("toolCallId" in part && state !== "input-streaming") return { ...rest, state: "input-available" };
  return part;
}

const provider = (random: Random): Part =>
  random.maybe({ providerMetadata: { x: { signature: random.of(TEXTS), n: 1 } } });
const text = (random: Random): Part => {
  const states = random.maybe({ state: random.of(["streaming", "done"]) });
  return { type: "text", text: random.of(TEXTS), ...states, ...provider(random) };
};
const reasoning = (random: Random): Part => ({
  type: "reasoning",
  text: random.of(TEXTS),
  ...random.maybe({ state: "done" }),
  ...random.maybe({ providerMetadata: { anthropic: random.of([{ signature: "s" }, { redactedData: "r" }]) } }),
});
const step = (): Part => ({ type: "step-start" });
const custom = (random: Random): Part => ({ type: "custom", kind: "openai.compaction", ...provider(random) });
const reasoningFile = (): Part => ({
  type: "reasoning-file",
  mediaType: "image/png",
  url: "data:image/png;base64,iVBORw0KGgo=",
});
const steering = (random: Random): Part => ({
  type: "steering-message",
  id: `s${random.below(9)}`,
  parts: [text(random), file(random)],
});
const data = (random: Random): Part => ({
  type: "data-weather",
  ...random.maybe({ id: "w" }),
  data: random.of(VALUES),
});
const source = (random: Random): Part =>
  random.of<Part>([
    { type: "source-url", sourceId: "1", url: "https://a.test/x", ...random.maybe({ title: "X" }) },
    { type: "source-document", sourceId: "2", mediaType: "application/pdf", title: "Y", ...provider(random) },
  ]);
const file = (random: Random): Part => ({
  type: "file",
  ...random.of<Part>([
    { mediaType: "image/png", url: "data:image/png;base64,iVBORw0KGgo=" },
    { mediaType: "image", url: "https://a.test/a.png" },
    { mediaType: "application/pdf", url: "data:application/pdf;base64,JVBERi0=" },
    { mediaType: "application/pdf", url: "https://a.test/a.pdf" },
    { mediaType: "audio/wav", url: "data:audio/wav;base64,AAAA" },
    { mediaType: "text/plain", url: "data:text/plain;base64,aGk=" },
    { mediaType: "application/pdf", url: "https://a.test/b.pdf", providerReference: { openai: "file-1" } },
  ]),
  ...random.maybe({ filename: "a file" }),
  ...provider(random),
});

function tool(random: Random): Part {
  const name = random.of<Part>([
    { type: "tool-pay" },
    { type: "tool-look_up" },
    { type: "dynamic-tool", toolName: "mcp" },
  ]);
  const isSet = random.below(5) > 0;
  const shared = {
    ...name,
    toolCallId: `call ${random.below(isSet ? 1_000 : 2)}`,
    ...random.maybe({ title: "Pay" }),
    ...(random.below(6) === 0 ? { providerExecuted: true } : {}),
    ...random.maybe({ callProviderMetadata: { x: { item: "i" } } }),
  };
  const input = random.of(VALUES);
  const approval = { id: `approval ${random.below(1_000)}`, ...random.maybe({ requestReason: "much" }) };
  const state = random.of(STATES);
  const approved = random.maybe({ approval: { ...approval, approved: true, ...random.maybe({ reason: "ok" }) } });
  switch (state) {
    case "input-streaming":
      return { ...shared, state, ...random.maybe({ input: { to: "A" } }) };
    case "input-available":
      return { ...shared, state, input };
    case "approval-requested":
      return { ...shared, state, input, approval };
    case "approval-responded":
      return { ...shared, state, input, approval: { ...approval, approved: random.below(2) === 0, reason: "said" } };
    case "output-available":
      return { ...shared, state, input, output: random.of(VALUES), ...approved };
    case "preliminary":
      return { ...shared, state: "output-available", input, output: random.of(VALUES), preliminary: true };
    case "output-error":
      return { ...shared, state, input, errorText: random.of(TEXTS), ...approved };
    case "output-denied":
      return { ...shared, state, input, approval: { ...approval, approved: false, reason: "no" } };
  }
}
