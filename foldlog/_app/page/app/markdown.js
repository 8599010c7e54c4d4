// Shows Markdown as elements. Text never becomes markup, because each piece goes through ``said``. A link only shows
// its address, because the page requests nothing that a history names.

import { el, said } from "./dom.js";

// Code, bold, italics, or a link. Inside of bold, a backtick has one meaning only: it begins code, or there is no
// backtick after it. With two meanings, a line with thirty codes behind an open "**" would take minutes.
const INLINE =
  /`([^`\n]+)`|\*\*((?:`[^`\n]+`|[^*`\n]|`(?![^`\n]+`))+)\*\*|(?<![\w*])\*([^*\s](?:[^*\n]*[^*\s])?)\*(?![\w*])|\[([^\]\n]{1,300})\]\(([^()\s]{1,2000})\)/g;

const BULLET = /^(\s*)([-*+]|\d{1,3}[.)])\s+(.*)$/;
const LISTED = /^(?:\s*(?:[-*+]|\d{1,3}[.)])\s+|\s{2,}\S)/; // An item, or another line of an item.
const FENCE = /^\s*```/;
const HEADING = /^#{1,6}\s+/;
const QUOTE = /^\s*> ?/;
const TABLE = /^\s*\|.*\|\s*$/;
const OTHER = /\S/;

const code = (lines) => el("pre", { class: "code" }, said(lines.join("\n")));
const unmarked = (lines, mark) => inline(lines.map((line) => line.replace(mark, "")).join("\n"));

// The kinds of blocks: the first line of a block, its further lines, and its element.
const BLOCKS = [
  { begins: FENCE, goesOn: /^(?!\s*```\s*$)/, make: ([, ...lines]) => code(lines) },
  { begins: HEADING, goesOn: /(?!)/, make: (lines) => el("p", { class: "heading" }, ...unmarked(lines, HEADING)) },
  { begins: BULLET, goesOn: LISTED, make: (lines) => list(itemsOf(lines)) },
  { begins: QUOTE, goesOn: QUOTE, make: (lines) => el("blockquote", {}, ...unmarked(lines, QUOTE)) },
  { begins: TABLE, goesOn: TABLE, make: code },
  { begins: OTHER, goesOn: OTHER, make: (lines) => el("p", {}, ...inline(lines.join("\n"))) },
];
// The kind of block that begins with a line.
const blockAt = (line) => BLOCKS.find(({ begins }) => begins.test(line));

// The elements for a text in Markdown.
export function markdown(text) {
  const lines = text.split("\n");
  const nodes = [];
  let place = 0;
  while (place < lines.length) {
    const block = blockAt(lines[place]);
    const start = place;
    place += 1;
    if (!block) continue;
    // A paragraph ends where another block begins.
    while (
      place < lines.length &&
      block.goesOn.test(lines[place]) &&
      (block.goesOn !== OTHER || blockAt(lines[place]) === block)
    )
      place += 1;
    nodes.push(block.make(lines.slice(start, place)));
    if (block.begins === FENCE) place += 1;
  }
  return nodes;
}

// The items of nested lists, each with its indentation.
function itemsOf(lines) {
  const items = [];
  for (const line of lines) {
    const found = BULLET.exec(line);
    if (found) items.push({ indent: found[1].length, sign: found[2], text: found[3] });
    else items.at(-1).text += `\n${line.trim()}`;
  }
  return items;
}

// A list of items. An item that is indented further than the first item becomes part of the item before it.
function list(items) {
  const [first] = items;
  const node = /\d/.test(first.sign) ? el("ol", { start: parseInt(first.sign, 10) }) : el("ul");
  let place = 0;
  while (place < items.length) {
    let end = place + 1;
    while (end < items.length && items[end].indent > first.indent + 1) end += 1;
    const inner = items.slice(place + 1, end);
    node.append(el("li", {}, ...inline(items[place].text), inner.length ? list(inner) : null));
    place = end;
  }
  return node;
}

// The elements of a line: code, bold, italics, links, and the text between them.
function inline(text) {
  const nodes = [];
  let start = 0;
  for (const found of text.matchAll(INLINE)) {
    const [whole, code, bold, italic, name, address] = found;
    if (found.index > start) nodes.push(said(text.slice(start, found.index)));
    if (code !== undefined) nodes.push(said(code, "code"));
    else if (bold !== undefined) nodes.push(el("b", {}, ...inline(bold)));
    else if (italic !== undefined) nodes.push(el("em", {}, ...inline(italic)));
    else nodes.push(said(name), el("span", { class: "soft" }, " (", said(address), ")"));
    start = found.index + whole.length;
  }
  if (start < text.length) nodes.push(said(text.slice(start)));
  return nodes;
}
