// Texts of events as elements: code, differences, and the words of a search in them.

import { el, printable, said, withMarks } from "./dom.js";

export const pretty = (value) => JSON.stringify(value, null, 2) ?? "";

export const asText = (value) => (typeof value === "string" ? value : pretty(value));

export function textOf(content) {
  if (!Array.isArray(content)) return asText(content);
  return content.map((part) => (typeof part?.text === "string" ? part.text : pretty(part))).join("\n");
}

// The beginning of what an event says, in one line.
export function lineOf(event) {
  const text = event.tool ? `${event.tool}: ${asText(event.arguments ?? "")}` : textOf(event.content ?? event.summary ?? event.problem ?? "");
  return printable(text.slice(0, 160).replace(/\s+/g, " "));
}

const signed = (sign, lines) => lines.map((line) => `${sign}${line}`);

// The lines that differ, with those before and after them that are the same.
export function difference(before, after) {
  const [old, young] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < old.length && start < young.length && old[start] === young[start]) start += 1;
  let end = 0;
  while (end < old.length - start && end < young.length - start && old.at(-1 - end) === young.at(-1 - end)) end += 1;
  return [
    ...signed(" ", old.slice(Math.max(0, start - 3), start)),
    ...signed("-", old.slice(start, old.length - end)),
    ...signed("+", young.slice(start, young.length - end)),
    ...signed(" ", old.slice(old.length - end, old.length - end + 3)),
  ].join("\n");
}

// Code, with the lines of a difference in their colours.
export function coded(text, isPatch = false) {
  const lines = text.split("\n");
  const isMarked = (line) => line.startsWith("@@ ") || line.startsWith("diff --git ");
  const isDifference = isPatch || lines.some(isMarked) || lines.every((line) => /^[-+]/.test(line));
  if (!isDifference || lines.length > 5000) return [said(text)];
  return lines.flatMap((line, place) => {
    const kind = line.startsWith("@@") ? "place" : (SIGNS[line[0]] ?? "");
    const node = said(line, "span", { class: kind });
    return place ? ["\n", node] : [node];
  });
}

const SIGNS = { "+": "added", "-": "removed" };

// A text in lower case, of the same length: a letter whose lower case is longer, such as "İ", stays.
function lowered(text) {
  const lower = text.toLowerCase();
  if (lower.length === text.length) return lower;
  return Array.from(text, (letter) => (letter.toLowerCase().length === letter.length ? letter.toLowerCase() : letter)).join("");
}

// One line of a text, with marks around all words of a search.
export function highlighted(text, words) {
  const lower = lowered(text);
  const spots = [];
  for (const word of words) {
    for (let at = lower.indexOf(word); at >= 0; at = lower.indexOf(word, at + word.length)) spots.push([at, at + word.length]);
  }
  return withMarks(text, spots.sort((one, other) => one[0] - other[0]));
}

// Mark the first of each word of a search in the texts of a node.
export function markWords(node, words) {
  if (!words.length) return;
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) texts.push(/** @type {Text} */ (walker.currentNode));
  for (const word of words) {
    for (const text of texts) {
      const at = lowered(text.data).indexOf(word);
      if (at < 0 || text.parentElement.closest("button, mark")) continue;
      const hit = text.splitText(at);
      hit.splitText(word.length);
      const mark = el("mark");
      hit.replaceWith(mark);
      mark.append(hit);
    }
  }
}

// The beginning of a text that fits a few lines; its length where all of it does.
export function endOfClip(text, lines = 14, characters = 1800) {
  let end = 0;
  for (let line = 0; line < lines; line += 1) {
    const next = text.indexOf("\n", end);
    if (next < 0) return text.length <= characters + 200 ? text.length : characters;
    end = next + 1;
  }
  if (end > characters) return characters;
  // A few lines more are shown at once.
  return text.length - end < 200 && text.slice(end).split("\n").length <= 3 ? text.length : end - 1;
}
