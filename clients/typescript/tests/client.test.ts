import assert from "node:assert/strict";
import { test } from "node:test";
import {
  ConversationErased,
  ConversationNotFound,
  Foldlog,
  FoldlogError,
  type HeldHistory,
  type History,
  IdempotencyConflict,
  InvalidRequest,
  LeaseLost,
  LeaseTaken,
  NotAllowed,
  type OpenCall,
  Unavailable,
  VersionConflict,
} from "foldlog";
import { type Fault, Proxy, TestService, TOKEN } from "./service.js";

const service = new TestService("conversation");

const { newHistory } = service;
const user = (content: string) => ({ role: "user", content });
const CALL = { id: "k1", type: "function", function: { name: "pay", arguments: '{"to": "Ann"}' } };
const REPLY = { role: "assistant", content: null, tool_calls: [CALL] };

/** A history behind a proxy. `faults` are the faults of the first requests. */
async function behindProxy(faults: Fault[], work: (history: History, proxy: Proxy) => Promise<void>): Promise<void> {
  const proxy = await new Proxy(
    () => service.url,
    () => faults.shift() ?? "none",
  ).start();
  try {
    const client = new Foldlog({ url: proxy.url, token: TOKEN });
    await work(client.histories.open(newHistory().id), proxy);
  } finally {
    await proxy.stop();
  }
}

async function contents(history: History): Promise<unknown[]> {
  const texts: unknown[] = [];
  for await (const event of history.events()) texts.push(event["content"]);
  return texts;
}

/** A conversation with an open call of the tool "pay". */
async function withOpenCall(history: History): Promise<OpenCall> {
  await history.appendMessages([user("pay Ann")]);
  await history.appendReply(REPLY);
  const [call] = await history.openCalls();
  assert(call !== undefined);
  return call;
}

test("an append is read back", async () => {
  const history = newHistory();
  const appended = await history.append({ kind: "message", source: "user", content: "hi" });
  assert.equal(appended.version, 1);
  await history.appendMessages([user("and more")], { expectedVersion: 1 });
  assert.deepEqual(await contents(history), ["hi", "and more"]);
  assert.equal((await history.state()).version, 2);
});

for (const id of ["a/b c", "äö", "%2F", "x?y#z", "+", ".x.", "𝄞"]) {
  test(`a conversation may be called ${id}`, async () => {
    const history = service.foldlog.histories.open(id);
    await history.appendMessages([user("hi")]);
    assert.equal((await history.state()).id, id);
  });
}

test("more events than a page has are read one by one", async () => {
  const history = newHistory();
  await history.appendMessages(Array.from({ length: 1_001 }, (_, number) => user(String(number))));
  const texts = await contents(history);
  assert.deepEqual([texts.length, texts[1_000]], [1_001, "1000"]);
});

test("a refusal is an error of the library, with its values", async () => {
  const history = newHistory();
  await history.appendMessages([user("hi")], { idempotencyKey: "k" });
  await assert.rejects(history.appendMessages([user("x")], { expectedVersion: 0 }), (error) => {
    assert(error instanceof VersionConflict);
    assert.deepEqual([error.expected, error.actual, error.status], [0, 1, 409]);
    return true;
  });
  await assert.rejects(history.appendMessages([user("other")], { idempotencyKey: "k" }), IdempotencyConflict);
  await assert.rejects(newHistory().state(), ConversationNotFound);
  await assert.rejects(history.append({ kind: "message" } as never), InvalidRequest);
  const stranger = service.client("wrong").histories.open(history.id);
  await assert.rejects(stranger.state(), NotAllowed);
  await history.erase({ reason: "asked" });
  await assert.rejects(history.state(), ConversationErased);
});

test("a conversation has the attributes of its token, and the token's list has it", async () => {
  const ann = service.client("token-of-ann");
  const history = await ann.histories.create({ attributes: { title: "mine" } });
  const listed: string[] = [];
  for await (const state of ann.histories.list({ user: "ann" })) listed.push(state.id);
  assert.deepEqual(listed, [history.id]);
  assert.equal((await history.setAttributes({ title: "ours" })).attributes["title"], "ours");
  assert.equal((await history.attributes()).attributes["user"], "ann");
});

test("several conversations are appended to together", async () => {
  const [first, second] = [newHistory(), newHistory()];
  const append = { events: [{ kind: "message", source: "user", content: "hi" } as const], expected_version: 0 };
  await service.foldlog.histories.appendTogether([
    { conversation: first.id, ...append },
    { conversation: second.id, ...append },
  ]);
  assert.deepEqual(await contents(first), ["hi"]);
  assert.deepEqual(await contents(second), ["hi"]);
});

test("a fork has the events of its parent up to a version", async () => {
  const history = newHistory();
  await history.appendMessages([user("one"), user("two")]);
  assert.deepEqual(await contents(await history.fork({ at: 1 })), ["one"]);
});

test("a list and a search have all their pages", async () => {
  const names = new Set<string>();
  for (let number = 0; number < 103; number++) {
    const history = await service.foldlog.histories.create({ attributes: { of: "pages" } });
    if (number % 40 === 0) await history.appendMessages([user(`the heron of page ${number}`)]);
    names.add(history.id);
  }
  const listed: string[] = [];
  for await (const state of service.foldlog.histories.list({ of: "pages" })) listed.push(state.id);
  assert.equal(listed.length, 103);
  assert.deepEqual(new Set(listed), names);
  const found: string[] = [];
  for await (const hit of service.foldlog.histories.search('"the heron"', { limit: 2 })) {
    const [start, end] = hit.highlights[0]!;
    found.push(hit.snippet.slice(start, end));
    assert.ok(names.has(hit.conversation));
  }
  assert.deepEqual(found, ["the heron", "the heron", "the heron"]);
});

test("pages of a list and of a search, and places behind an emoji", async () => {
  const topic = `topic${Date.now()}`;
  const names: string[] = [];
  for (let number = 0; number < 5; number++) {
    const history = await service.foldlog.histories.create({ attributes: { of: topic } });
    await history.appendMessages([user(`👋👋 <b>${topic}</b> number ${number}`)]);
    names.unshift(history.id);
  }
  const listed: string[][] = [];
  for (let after: string | null | undefined; after !== null;) {
    const page = await service.foldlog.histories.listPage({ of: topic }, { limit: 2, after: after ?? undefined });
    listed.push(page.conversations.map(({ id }) => id));
    after = page.next;
  }
  assert.deepEqual(
    listed.filter((page) => page.length > 0),
    [names.slice(0, 2), names.slice(2, 4), names.slice(4)],
  );

  const first = await service.foldlog.histories.searchPage(topic, { limit: 3, kind: "message" });
  const second = await service.foldlog.histories.searchPage(topic, {
    limit: 3,
    kind: "message",
    after: first.next ?? undefined,
  });
  assert.deepEqual([first.hits.length, second.hits.length], [3, 2]);
  for (const { snippet, highlights } of [...first.hits, ...second.hits]) {
    assert.deepEqual(
      highlights.map(([begin, end]) => snippet.slice(begin, end)),
      [topic],
    );
  }
});

test("what a dead worker left is unfinished, and its reply is due", async () => {
  const history = newHistory();
  const call = { id: "k1", type: "function", function: { name: "pay", arguments: "{}" } };
  await history.appendReply({ role: "assistant", content: null, tool_calls: [call] });
  assert.ok((await service.foldlog.histories.unfinished()).includes(history.id));
  await history.appendToolResult("k1", "paid");
  assert.ok(!(await service.foldlog.histories.unfinished()).includes(history.id));
  assert.equal((await history.view()).reply_due, true);
});

/** A new history of two messages of the user. */
async function oneAndTwo(): Promise<History> {
  const history = newHistory();
  for (const text of ["one", "two"]) await history.appendMessages([user(text)]);
  return history;
}

test("messages are those of the View, in the form of a server", async () => {
  const history = await oneAndTwo();
  assert.deepEqual(await history.messages(), [user("one\n\ntwo")]);
  assert.deepEqual(await history.messages("anthropic", 1), [
    { role: "user", content: [{ type: "text", text: "one" }] },
  ]);
  assert.equal((await history.why(1)).fate, "shown");
});

test("a retracted event is in no prompt, and the difference of the Views names it", async () => {
  const history = await oneAndTwo();
  await history.retract(1, "wrong", { expectedVersion: 2 });
  assert.deepEqual((await history.prepare()).messages, [user("one")]);
  assert.deepEqual(
    (await history.difference(2, 3)).left.map((event) => event["id"]),
    [1],
  );
});

test("a redaction says which events it redacted", async () => {
  const history = await oneAndTwo();
  assert.deepEqual((await history.redact({ events: [1], reason: "asked" })).redacted, [1]);
  assert.deepEqual(await contents(history), ["one", "[redacted]", undefined]);
});

test("documents are set and read", async () => {
  const history = await oneAndTwo();
  await history.setDocuments({ plan: [1] });
  assert.deepEqual((await history.documents()).documents, { plan: [1] });
});

test("a requested condensation is pending until a step, and nothing was dropped", async () => {
  const history = await oneAndTwo();
  await history.requestCondensation("long");
  assert.equal((await history.view()).unhandled_condensation_request, true);
  await assert.rejects(history.dropped(), /was never condensed/);
});

/** A new history of a question and an answer. */
async function heron(): Promise<History> {
  const history = newHistory();
  await history.appendMessages([user("The heron sleeps."), { role: "assistant", content: "Yes." }]);
  return history;
}

test("figures count the events by their source, and a fact names its events", async () => {
  const history = await heron();
  assert.deepEqual((await history.stats()).events, { total: 2, user: 1, agent: 1 });
  assert.deepEqual((await history.fact("heron")).events, [0]);
});

test("a comparison with a fork names the common past", async () => {
  const history = await heron();
  const fork = await history.fork({ at: 1 });
  await fork.appendMessages([{ role: "assistant", content: "No." }]);
  const { divergence, runs } = await history.compared(fork);
  assert.equal(divergence?.common_past, 1);
  assert.equal(runs, null);
});

test("an export of the View has its messages", async () => {
  const history = await heron();
  const exported: unknown[] = [];
  for await (const record of history.exported({ view: true })) exported.push(record);
  assert.deepEqual(exported, await history.messages());
});

test("the tool for recalls finds an event by its words", async () => {
  const history = await heron();
  const { tool } = await history.recallTool("anthropic");
  assert.equal(tool["name"], "recall");
  assert.match(await history.recall({ query: "heron" }), /The heron sleeps\./);
});

test("a condenser may take longer than other requests", async () => {
  const client = new Foldlog({
    url: service.url,
    token: TOKEN,
    timeoutMs: 50,
    waitMs: 0,
    fetch: async (url, init) => {
      if (String(url).endsWith("/prepare")) await new Promise((resolve) => setTimeout(resolve, 200));
      init?.signal?.throwIfAborted();
      return fetch(url, { ...init, signal: null });
    },
  });
  const history = newHistory();
  await history.appendMessages([user("hi")]);
  assert.deepEqual((await client.histories.open(history.id).prepare()).messages, [user("hi")]);
});

for (const fault of ["drop", "cut", "cut in the body", "repeat", "delay", "busy"] as const) {
  test(`an append is carried out once behind a proxy with the fault "${fault}"`, async () => {
    await behindProxy([fault, fault], async (history, proxy) => {
      assert.equal((await history.appendMessages([user("hi")], { expectedVersion: 0 })).version, 1);
      assert.deepEqual(await contents(history), ["hi"]);
      const keys = proxy.seen.filter(({ method }) => method === "POST").map(({ key }) => key);
      assert.equal(new Set(keys).size, 1, "each repetition has the same key");
    });
  });
}

test("a request without a key is not repeated, and one with a key is", async () => {
  await behindProxy(["none", "cut", "none", "cut"], async (history, proxy) => {
    await history.appendMessages([user("one")]);
    // Deno sends a request again by itself when a connection breaks, and passes on the second answer.
    const isDeno = "Deno" in globalThis;
    await assert.rejects(history.settle("a key", { outcome: "paid" }), isDeno ? FoldlogError : Unavailable);
    assert.equal(proxy.seen.length, isDeno ? 3 : 2);
    const version = (await history.view()).version;
    await history.retract(0, "wrong");
    assert.equal((await history.view()).version, version + 1);
  });
});

test("condense, redact and erase are carried out once, also when their answer was lost", async () => {
  const faults: Fault[] = ["none", "none", "cut", "none", "none", "cut", "none", "cut", "none"];
  await behindProxy(faults, async (history, proxy) => {
    const texts = Array.from({ length: 40 }, (_, number) => ({
      role: number % 2 === 0 ? "user" : "assistant",
      content: "word",
    }));
    await history.appendMessages(texts);
    await history.view();
    const { version } = await history.condense("tidy");
    assert.equal(version, 42, "40 messages, one request and one condensation");
    assert.equal((await history.state()).version, 42);
    assert.deepEqual((await history.redact({ events: [3], reason: "asked" })).redacted, [3]);
    assert.equal((await history.erase({ reason: "asked" })).events, 43, "and one redaction");
    const cut = proxy.seen.filter(({ fault }) => fault === "cut");
    assert.deepEqual(
      cut.map(({ method, path }) => `${method} ${path.split("?")[0]?.split("/").at(-1) ?? ""}`),
      ["POST condensations", "POST redactions", "POST erasure"],
    );
  });
});

test("a server that is away ends in an error that names the reason", async () => {
  const nowhere = new Foldlog({ url: "http://127.0.0.1:9", token: TOKEN, waitMs: 0 });
  await assert.rejects(nowhere.histories.open("c").state(), (error) => {
    assert(error instanceof Unavailable);
    assert.match(error.message, /GET http:\/\/127\.0\.0\.1:9\/v1\/conversations\/c: no answer: /);
    return true;
  });
});

test("Retry-After is the shortest pause", async () => {
  const pauses: number[] = [];
  let answeredAt = 0;
  const answers = [new Response("", { status: 429, headers: { "retry-after": "0.2" } }), new Response("{}")];
  const client = new Foldlog({
    url: "http://service",
    token: TOKEN,
    fetch: () => {
      pauses.push(performance.now() - answeredAt);
      answeredAt = performance.now();
      return Promise.resolve(answers.shift() as Response);
    },
  });
  await client.histories.open("c").state();
  assert((pauses[1] ?? 0) >= 190, "0.2 s; a timer of Node may end some milliseconds early");
});

test("the tool of a call runs once, and its outcome is in the log", async () => {
  const history = newHistory();
  const call = await withOpenCall(history);
  const paid: unknown[] = [];
  const recorded = await history.lease({ worker: "w1" }, (held) =>
    held.run(call, (input, { key }) => {
      paid.push(input["to"], typeof key);
      return "paid";
    }),
  );
  assert.deepEqual(paid, ["Ann", "string"]);
  assert.equal(recorded.event["content"], "paid");
  const [effect] = await history.effects();
  assert.deepEqual([effect?.state, effect?.outcome, effect?.attempts], ["done", "paid", 1]);
  assert.deepEqual(await history.openCalls(), []);
});

test("an outcome that is no JSON is recorded in words, and leaves no call open", async () => {
  const history = newHistory();
  const call = await withOpenCall(history);
  const recorded = await history.lease({ worker: "w1" }, (held) => held.run(call, () => ({ amount: 7n })));
  assert.match(
    String(recorded.event["content"]),
    /its result cannot be stored: its result\.amount is a value of the type bigint/,
  );
  assert.deepEqual(await history.openCalls(), []);
});

test("an error of a tool is its outcome", async () => {
  const history = newHistory();
  const call = await withOpenCall(history);
  const fail = () => {
    throw new RangeError("no money");
  };
  const recorded = await history.lease({ worker: "w1" }, (held) => held.run(call, fail));
  assert.deepEqual([recorded.event["content"], recorded.event["is_error"]], ["RangeError: no money", true]);
});

test("a tool that an earlier worker began runs again only if its rule allows it", async () => {
  const runs: string[] = [];
  const tool = (_: unknown, { key }: { key: string }): string => {
    runs.push(key);
    return "paid";
  };
  const resume = async (options: Parameters<HeldHistory["run"]>[2]): Promise<unknown> => {
    const history = newHistory();
    const call = await withOpenCall(history);
    await beginAndDie(history, call);
    const lease = { worker: "w2", waitS: 5 };
    return (await history.lease(lease, (held) => held.run(call, tool, options))).event["content"];
  };
  assert.match(String(await resume({})), /may have run/);
  assert.equal(await resume({ check: () => "found" }), "found");
  assert.deepEqual(runs, []);
  assert.equal(await resume({ repeat: "same key" }), "paid");
  assert.equal(await resume({ check: () => Promise.resolve(null) }), "paid");
  assert.equal(runs.length, 2);
});

/** Begin the tool of a call as a worker that then ends without an outcome. */
async function beginAndDie(history: History, call: OpenCall): Promise<void> {
  const url = `${service.url}/v1/conversations/${encodeURIComponent(history.id)}`;
  const headers: Record<string, string> = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
  const body = JSON.stringify({ worker: "w1" });
  const lease = await fetch(`${url}/lease`, { method: "POST", headers, body });
  headers["foldlog-lease"] = ((await lease.json()) as { token: string }).token;
  const begun = await fetch(`${url}/effects/${call.id}/begin`, { method: "POST", headers, body: "{}" });
  assert.equal(((await begun.json()) as { next: string }).next, "run");
  await fetch(`${url}/lease`, { method: "DELETE", headers });
}

test("one worker has the lease, and the others learn its name", async () => {
  const history = newHistory();
  await history.lease({ worker: "w1" }, async (held) => {
    await held.appendMessages([user("under the lease")]);
    await assert.rejects(
      history.lease({ worker: "w2" }, () => Promise.resolve()),
      (error) =>
        error instanceof LeaseTaken &&
        error.worker === "w1" &&
        typeof error.until === "string" &&
        /\(waitS\)/.test(error.message),
    );
    const tooLong = { worker: "w2", ttlS: 601 };
    await assert.rejects(
      history.lease(tooLong, () => Promise.resolve()),
      { name: "InvalidRequest", message: /`ttlS`/ },
    );
    assert.equal((await history.state()).lease, "w1");
  });
  assert.equal(await history.lease({ worker: "w2" }, () => Promise.resolve("free")), "free");
});

test("a lease renews itself", async () => {
  await behindProxy([], async (history, proxy) => {
    await history.lease({ worker: "w1", ttlS: 3 }, async (held) => {
      while (proxy.seen.filter(({ method }) => method === "PUT").length < 1) {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      await held.appendMessages([user("renewed")]);
    });
    assert.deepEqual(await contents(history), ["renewed"]);
  });
});

test("a lost renewal is sent again before the lease ends", async () => {
  let isHeld = false; // a slow take renews its lease, too
  let renewals = 0;
  const isLost = ({ method }: { method?: string | undefined }): boolean =>
    isHeld && method === "PUT" && (renewals += 1) === 1;
  const proxy = await new Proxy(
    () => service.url,
    (request) => (isLost(request) ? "hold" : "none"),
  ).start();
  try {
    const history = new Foldlog({ url: proxy.url, token: TOKEN }).histories.open(newHistory().id);
    await history.lease({ worker: "w1", ttlS: 6 }, async (held) => {
      isHeld = true;
      // The second renewal repeats the first, the third follows at once, and the fourth after 6 seconds.
      while (renewals < 4 && !held.signal.aborted) await new Promise((resolve) => setTimeout(resolve, 20));
      await held.appendMessages([user("still held")]);
    });
    assert.deepEqual(await contents(history), ["still held"]);
  } finally {
    await proxy.stop();
  }
});

test("a holder whose lease has ended is stopped, and writes nothing", async () => {
  let isHeld = false; // a slow take renews its lease, too
  const isRenewal = ({ method }: { method?: string | undefined }): boolean => isHeld && method === "PUT";
  const proxy = await new Proxy(
    () => service.url,
    (request) => (isRenewal(request) ? "drop" : "none"),
  ).start();
  const history = newHistory();
  const throughProxy = new Foldlog({ url: proxy.url, token: TOKEN }).histories.open(history.id);
  const call = await withOpenCall(history);
  let runs = 0;
  await assert.rejects(
    throughProxy.lease({ worker: "w1", ttlS: 0.3 }, async (held) => {
      isHeld = true;
      await new Promise((resolve) => held.signal.addEventListener("abort", resolve));
      await assert.rejects(held.appendMessages([user("late")]), LeaseLost);
      await held.run(call, () => (runs += 1));
    }),
    LeaseLost,
  );
  await proxy.stop();
  assert.equal(runs, 0);
  assert.deepEqual(await contents(history), ["pay Ann", undefined]);
});

test("a write that arrives after another worker has taken the lease is refused", async () => {
  const history = newHistory();
  let isTaken = false;
  let release = (): void => undefined;
  const released = new Promise<void>((resolve) => (release = resolve));
  /** A network that loses renewals, and delivers an append late, whatever its sender does meanwhile. */
  const slowFetch: typeof fetch = async (input, init = {}) => {
    if (init.method === "PUT" && isTaken) throw new TypeError("the renewal was lost");
    if (init.method === "POST" && String(input).endsWith("/events")) await released;
    return fetch(input, { ...init, signal: null });
  };
  const slow = new Foldlog({ url: service.url, token: TOKEN, fetch: slowFetch }).histories.open(history.id);
  let take = (): void => undefined;
  const taken = new Promise<void>((resolve) => (take = resolve));
  const late = slow.lease({ worker: "w1", ttlS: 0.3 }, (held) => {
    isTaken = true;
    take();
    return held.appendMessages([user("late")]);
  });
  const refused = assert.rejects(late, LeaseLost);
  await taken;
  await history.lease({ worker: "w2", waitS: 20 }, async (held) => {
    release();
    await refused;
    await held.appendMessages([user("in time")]);
  });
  assert.deepEqual(await contents(history), ["in time"]);
});

test("a follower gets each event once, over breaks of the connection", async () => {
  await behindProxy(["none", "drop", "none", "cut in the body"], async (history, proxy) => {
    await history.appendMessages([user("0")]);
    const followed: unknown[] = [];
    for await (const event of history.follow()) {
      followed.push(event.event["content"]);
      if (followed.length === 6) break;
      if (followed.length % 2 === 0) proxy.cut();
      await newConnection(history).appendMessages([user(String(followed.length))]);
    }
    assert.deepEqual(followed, ["0", "1", "2", "3", "4", "5"]);
  });
});

const newConnection = (history: History): History => service.foldlog.histories.open(history.id);

test("a follower continues behind the last event that it has, and ends with its signal", async () => {
  const history = newHistory();
  for (const text of ["a", "b"]) await history.appendMessages([user(text)]);
  const first = await history.follow().next();
  const ending = new AbortController();
  const rest: unknown[] = [];
  for await (const event of history.follow({ after: first.value?.after ?? "", signal: ending.signal })) {
    rest.push(event.event["content"]);
    ending.abort();
  }
  assert.deepEqual(rest, ["b"]);
});

test("a follower of the store gets the events of all conversations", async () => {
  const [one, two] = [newHistory(), newHistory()];
  for (const history of [one, two]) await history.appendMessages([user("hi")]);
  const ids = new Set<string>();
  for await (const event of service.foldlog.histories.follow()) {
    ids.add(event.conversation);
    if (ids.has(two.id)) break;
  }
  assert(ids.has(one.id));
});

test("a follower of an erased conversation learns that it was erased", async () => {
  const history = newHistory();
  await history.appendMessages([user("hi")]);
  await assert.rejects(async () => {
    for await (const _ of history.follow()) await history.erase({ reason: "asked" });
  }, ConversationErased);
});

test("a follower gets texts with every separator of lines", async () => {
  const history = newHistory();
  const text = "a\u2028id: 99\u2029event: problem\u0085\r\n\n\0b";
  await history.appendMessages([user(text), user("c")]);
  const followed: unknown[] = [];
  for await (const event of history.follow()) {
    if (followed.push(event.event["content"]) === 2) break;
  }
  assert.deepEqual(followed, [text, "c"]);
});

test("a follower gets an event that comes in many parts", async () => {
  const data = JSON.stringify({ conversation: "c", id: 0, recorded_at: "", event: { content: "\u00e4\u{1f600}" } });
  const bytes = new TextEncoder().encode(`retry: 1000\n\nid: 1\nevent: event\ndata: ${data}\n\n`);
  for (const size of [1, 2, 3, 7]) {
    const parts: Uint8Array[] = [];
    for (let start = 0; start < bytes.length; start += size) parts.push(bytes.slice(start, start + size));
    const body = new ReadableStream({ pull: (sink) => sink.enqueue(parts.shift()) });
    const client = new Foldlog({
      url: "http://service",
      token: TOKEN,
      fetch: () => Promise.resolve(new Response(body)),
    });
    const { value } = await client.histories.open("c").follow().next();
    assert.deepEqual([value?.event["content"], value?.after], ["\u00e4\u{1f600}", "1"]);
  }
});

test("a follower whose request is wrong ends with the error", async () => {
  await assert.rejects(service.foldlog.histories.open("..").follow().next(), TypeError);
  const wrong = new Foldlog({ url: "service", token: TOKEN });
  await assert.rejects(wrong.histories.follow().next(), TypeError);
});

test("an option that is undefined has its usual value", async () => {
  const options = { waitMs: undefined, timeoutMs: undefined, fetch: undefined };
  const client = new Foldlog({ url: service.url, token: TOKEN, ...options });
  const history = client.histories.open(newHistory().id);
  await history.appendMessages([user("hi")]);
  assert.deepEqual(await contents(history), ["hi"]);
});

test("a write whose key is undefined has a key", async () => {
  await behindProxy(["cut"], async (history) => {
    await history.appendMessages([user("once")], { idempotencyKey: undefined });
    assert.deepEqual(await contents(history), ["once"]);
  });
});

test("conversations are listed by attributes with every character", async () => {
  const users = ["a,b", "x,user=y", "y", "100%", "=&+ \u00e4"];
  for (const name of users) await service.foldlog.histories.create({ attributes: { user: name, "of, =": "these" } });
  for (const name of users) {
    const listed: unknown[] = [];
    for await (const { attributes } of service.foldlog.histories.list({ user: name, "of, =": "these" }))
      listed.push(attributes["user"]);
    assert.deepEqual(listed, [name]);
  }
});

test("an empty answer of a proxy is no answer of the service", async () => {
  const history = newHistory();
  let requests = 0;
  const client = new Foldlog({
    url: service.url,
    token: TOKEN,
    fetch: (...sent) => ((requests += 1) % 2 === 1 ? Promise.resolve(new Response("")) : fetch(...sent)),
  });
  const behind = client.histories.open(history.id);
  assert.equal((await behind.appendMessages([user("hi")])).version, 1);
  await behind.lease({ worker: "w" }, async (held) => {
    const writer = await held.streamReply();
    await writer.feed({ type: "text", text: "Hello." });
    await writer.end();
  });
  assert.deepEqual(await contents(history), ["hi", "Hello."]);
  assert.equal(requests % 2, 0);
  await assert.rejects(behind.settle("a key", { outcome: "paid" }), Unavailable);
});

test("an answer of a proxy is told in its words", async () => {
  const bodies = ["null", '"no"', '{"error": "no", "detail": [1]}', "<html>no</html>"];
  for (const body of bodies) {
    const answer = () =>
      Promise.resolve(new Response(body, { status: 403, headers: { "content-type": "application/json" } }));
    const client = new Foldlog({ url: "http://service", token: TOKEN, fetch: answer });
    await assert.rejects(client.histories.open("c").state(), (error) => {
      assert(error instanceof NotAllowed);
      assert(error.message.endsWith(`answered 403: ${body}`));
      return true;
    });
  }
});

test("a wait for a lease may take longer than other requests", async () => {
  const history = newHistory();
  const hasty = new Foldlog({
    url: service.url,
    token: TOKEN,
    timeoutMs: 50,
    waitMs: 0,
    fetch: async (url, init) => {
      const response = await fetch(url, { ...init, signal: null });
      // Of the other requests, none has to be quick on a machine that has other work.
      if (init?.method === "POST") init.signal?.throwIfAborted();
      return response;
    },
  });
  const { token } = (await (await post(history, "lease", { worker: "w1", ttl_s: 2 })).json()) as { token: string };
  assert(token !== "");
  assert.equal(
    await hasty.histories.open(history.id).lease({ worker: "w2", waitS: 30 }, () => Promise.resolve("free")),
    "free",
  );
});

function post(history: History, path: string, body: object): Promise<Response> {
  const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
  const url = `${service.url}/v1/conversations/${encodeURIComponent(history.id)}/${path}`;
  return fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
}
