// Shows texts of events: code, differences, and marks around the words of a search.

import { el, printable, said, withMarks } from "./dom.js";

// A value as JSON with indentation.
export const pretty = (value) => JSON.stringify(value, null, 2) ?? "";

// A text as it is, and any other value as JSON.
export const asText = (value) => (typeof value === "string" ? value : pretty(value));

// The texts of a content. Other parts than texts become JSON.
export function textOf(content) {
  if (!Array.isArray(content)) return asText(content);
  return content.map((part) => (typeof part?.text === "string" ? part.text : pretty(part))).join("\n");
}

// The place ``end`` of a text, or the place before it if ``end`` would cut a character of two code units.
export const wholeEnd = (text, end) => (text.codePointAt(end - 1) > 0xffff ? end - 1 : end);

// The beginning of an event's text, in one line.
export function lineOf(event) {
  const text = event.tool
    ? `${event.tool}: ${asText(event.arguments ?? "")}`
    : textOf(event.content ?? event.summary ?? event.problem ?? "");
  return printable(text.slice(0, wholeEnd(text, 160)).replace(/\s+/g, " "));
}

// The lines behind a sign.
const signed = (sign, lines) => lines.map((line) => `${sign}${line}`);

// The lines that differ, with up to three equal lines before and after them.
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

// Code. If it is a difference, the added and removed lines are coloured.
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

// A text in lower case, with the same length. So a letter whose lower case is longer, such as "İ", does not change.
function lowered(text) {
  const lower = text.toLowerCase();
  if (lower.length === text.length) return lower;
  return Array.from(text, (letter) =>
    letter.toLowerCase().length === letter.length ? letter.toLowerCase() : letter,
  ).join("");
}

// One line of a text, with marks around all words of a search.
export function highlighted(text, words) {
  const lower = lowered(text);
  const spots = [];
  for (const word of words) {
    for (let at = lower.indexOf(word); at >= 0; at = lower.indexOf(word, at + word.length))
      spots.push([at, at + word.length]);
  }
  return withMarks(
    text,
    spots.sort((one, other) => one[0] - other[0]),
  );
}

// In each text of a node, mark the first occurrence of each word of a search.
export function markWords(node, words) {
  if (!words.length) return;
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) texts.push(/** @type {Text} */ (walker.currentNode));
  for (const word of words) {
    const behind = []; // The parts of the texts behind the marks. Another word may occur in them.
    for (const text of texts) {
      const at = lowered(text.data).indexOf(word);
      if (at < 0 || text.parentElement.closest("button, mark")) continue;
      const hit = text.splitText(at);
      behind.push(hit.splitText(word.length));
      const mark = el("mark");
      hit.replaceWith(mark);
      mark.append(hit);
    }
    texts.push(...behind);
  }
}

// The length of the beginning of a text that fits into a few lines. If the whole text fits, its length.
export function endOfClip(text, lines = 14, characters = 1800) {
  let end = 0;
  for (let line = 0; line < lines; line += 1) {
    const next = text.indexOf("\n", end);
    if (next < 0) return text.length <= characters + 200 ? text.length : wholeEnd(text, characters);
    end = next + 1;
  }
  if (end > characters) return wholeEnd(text, characters);
  // If only a few short lines would be hidden, show them, too.
  return text.length - end < 200 && text.slice(end).split("\n").length <= 3 ? text.length : end - 1;
}
