// The source of the page's data: elements of the page's own file, or the server that sent the page.

import { ask, firstPlace, keep, kept, wanted } from "./dom.js";
import { remembered } from "./history.js";

// The data in the page's own file.
export class Embedded {
  constructor() {
    const found = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("script.texts"));
    this.chunks = Array.from(found, (element) => ({ first: Number(element.dataset.first), element }));
    this.opened = new Map();
  }

  history() {
    return this.part("history");
  }

  // An event with all texts. The chunks that were opened last stay open.
  async event(id) {
    const chunk = chunkOf(this.chunks, id);
    const { first, element } = this.chunks[chunk];
    const read = async () => JSON.parse(await unpack(element.textContent));
    const events = await remembered(this.opened, chunk, MOST_CHUNKS, read);
    return events[id - first];
  }

  // Load the events from ``start`` to before ``stop``, with all texts. ``Server.events`` may load fewer.
  async events(start, stop) {
    const found = [];
    for (let id = start; id < stop; id += 1) found.push(await this.event(id));
    return found;
  }

  // The data of an element, or an empty list if the file has no such element.
  async part(name) {
    const element = document.querySelector(`script.${name}`);
    return element ? JSON.parse(await unpack(element.textContent)) : [];
  }

  dropped() {
    return this.part("dropped");
  }

  // The notes that were stored in the file. After a reader changes a note, the notes that this browser stores.
  async notes() {
    const own = kept("localStorage", this.noted);
    return own ? JSON.parse(own) : this.part("notes");
  }

  // Store the note of an event, or remove it if ``text`` is null, and return all notes. An error is raised if the
  // browser does not store them.
  async changeNote(event, text) {
    const others = (await this.notes()).filter((note) => note.event !== event);
    const own = text === null ? [] : [{ event, text, at: new Date().toISOString() }];
    const notes = [...others, ...own].sort((one, other) => (one.event ?? -1) - (other.event ?? -1));
    if (!keep("localStorage", this.noted, JSON.stringify(notes)))
      throw new Error("this browser stores nothing more for this page; allow it to store data, and try again");
    return notes;
  }

  // The name under which the browser stores the notes of this file.
  get noted() {
    return `foldlog-notes ${location.pathname}`;
  }

  // Call ``found`` for each event that contains all words, in order. Chunks that cannot match are not parsed.
  async search(given, found, signal) {
    const words = wanted(given);
    const stored = words.map((word) => JSON.stringify(word).slice(1, -1).toLowerCase());
    for (const { first, element } of this.chunks) {
      const text = await unpack(element.textContent);
      if (signal.aborted) return;
      const lower = text.toLowerCase();
      if (stored.every((word) => lower.includes(word))) {
        JSON.parse(text).forEach((event, place) => {
          const snippet = matching(event, words);
          if (snippet !== null) found(first + place, snippet);
        });
      }
      await pause();
      if (signal.aborted) return;
    }
  }
}

// The data of the server that sent the page.
export class Server {
  constructor(conversation) {
    this.id = conversation;
  }

  ask(path, parameters = {}) {
    return ask(`${path}?${new URLSearchParams({ id: this.id, ...parameters })}`);
  }

  history(since = 0) {
    return this.ask("history", { since });
  }

  // The address of another conversation's page at a version.
  address(id, version) {
    return `./?${new URLSearchParams({ id })}#v=${version}`;
  }

  async events(start, stop) {
    return (await this.ask("events", { start, stop })).events;
  }

  async dropped() {
    return (await this.ask("dropped")).condensations;
  }

  async models() {
    return (await this.ask("models")).models;
  }

  task() {
    return this.ask("task");
  }

  async notes() {
    return (await this.ask("notes")).notes;
  }

  async changeNote(event, text) {
    const document = await ask(`notes?${new URLSearchParams({ id: this.id })}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ event, text }),
    });
    return document.notes;
  }

  progress() {
    return this.ask("progress");
  }

  // The address of this conversation's report.
  get file() {
    return `api/report?${new URLSearchParams({ id: this.id })}`;
  }

  async search(words, found, signal) {
    const { hits } = await this.ask("find", { words });
    if (!signal.aborted) for (const { event, snippet } of hits) found(event, snippet);
  }

  // Call ``changed`` for each new version, and ``gone`` if the conversation is erased.
  follow({ changed, connected, gone }) {
    const end = openStream(`follow?${new URLSearchParams({ id: this.id })}`, {
      version: (message) => changed(JSON.parse(message.data)),
      open: () => connected(true),
      problem: (message) => {
        const { error, status } = JSON.parse(message.data);
        connected(false, error);
        if (!GONE_FOR_GOOD.has(status)) return;
        end();
        gone(error);
      },
      error: ({ target: stream }) => {
        connected(false);
        if (stream.readyState !== EventSource.CLOSED) return;
        // The stream does not say why it was refused, but another request does.
        this.events(0, 1).catch((error) => {
          if (!GONE_FOR_GOOD.has(error.status)) return;
          end();
          gone(error.message);
        });
      },
    });
  }
}

// Open a stream of the server, and call the listeners of its events by their names. A browser reconnects after a lost
// connection, but not after an answer that is no stream, such as an error of a proxy while the server starts. Then the
// page opens the stream again. Return a function that ends the stream.
export function openStream(path, listeners) {
  const stream = new EventSource(`api/${path}`);
  let end = () => stream.close();
  for (const [name, listener] of Object.entries(listeners)) stream.addEventListener(name, listener);
  stream.addEventListener("error", () => {
    if (stream.readyState !== EventSource.CLOSED) return;
    const opening = setTimeout(() => (end = openStream(path, listeners)), OPEN_AGAIN);
    end = () => clearTimeout(opening);
  });
  return () => end();
}

const MOST_CHUNKS = 8; // The number of chunks of texts that are in memory.
const OPEN_AGAIN = 1_000; // The milliseconds after which a stream that the browser gave up is opened again.
const GONE_FOR_GOOD = new Set([404, 410]); // The statuses of a conversation that does not exist, or was erased.

// Return the text around each word if the event contains all words, or else null.
function matching(event, words) {
  const texts = [];
  collect(event, texts);
  const text = texts.join(" · ");
  const lower = text.toLowerCase();
  if (!words.every((word) => lower.includes(word))) return null;
  return excerpt(
    text,
    words.map((word) => placeOf(word, text, lower)),
  );
}

// Where the first match of a word begins and ends in a text. ``lower`` is the text in lower case. Each "İ" of the text
// has two characters there.
function placeOf(word, text, lower) {
  const at = lower.indexOf(word);
  const end = at + word.length;
  if (lower.length === text.length) return [at, end];
  const ends = [];
  for (const unit of text.split("")) ends.push((ends.at(-1) ?? 0) + unit.toLowerCase().length);
  const begin = firstPlace(ends.length, (place) => ends[place] > at);
  return [begin, firstPlace(ends.length, (place) => ends[place] >= end) + 1];
}

// The numbers of characters around a word in an excerpt, as on the server.
const BEFORE_WORD = 14;
const AFTER_WORD = 12;
const AFTER_LAST = 160;

// Return the text around each place, as the server does. No place is cut, and the text between distant places is left
// out.
function excerpt(text, places) {
  const parts = [];
  places.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
  for (const [place, [at, end]] of places.entries()) {
    const after = place === places.length - 1 ? AFTER_LAST : AFTER_WORD;
    const start = Math.max(0, at - BEFORE_WORD);
    const stop = Math.min(text.length, end + after);
    const last = parts.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], stop);
    else parts.push([start, stop]);
  }
  const told = parts.map(([start, stop]) => `${start ? "…" : ""}${text.slice(start, stop)}`).join(" ");
  return `${told}${parts.at(-1)[1] < text.length ? "…" : ""}`.replace(/\s+/g, " ");
}

// The fields of an event that a search does not look at.
const HIDDEN = new Set([
  "id",
  "kind",
  "timestamp",
  "source",
  "call_id",
  "response_id",
  "cause",
  "shown",
  "source_id",
  "format",
]);

// Collect the texts of a value, however deep they are, but for fields that are hidden.
function collect(value, texts, depth = 0) {
  if (typeof value === "string") texts.push(value);
  else if (value && typeof value === "object" && depth < DEEPEST) {
    for (const [name, member] of Object.entries(value)) {
      if (depth || !HIDDEN.has(name)) collect(member, texts, depth + 1);
    }
  }
}

const DEEPEST = 50; // A value that is nested deeper would exceed the stack.

// The place of the chunk with an event.
const chunkOf = (chunks, id) => firstPlace(chunks.length, (place) => chunks[place].first > id) - 1;

// The text of an element that ``foldlog report`` has compressed.
async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

// Let the browser draw, and react to keys.
const pause = () => new Promise((resolve) => setTimeout(resolve));
