// Markdown as elements. A text never becomes markup: each piece of it goes through ``said``, and a link shows its address
// and leads nowhere, since the page requests nothing that a history names.

import { el, said } from "./dom.js";

const INLINE = /`([^`\n]+)`|\*\*((?:`[^`\n]+`|[^*\n])+)\*\*|(?<![\w*])\*([^*\s](?:[^*\n]*[^*\s])?)\*(?![\w*])|\[([^\]\n]{1,300})\]\(([^()\s]{1,2000})\)/g;

const BULLET = /^(\s*)([-*+]|\d{1,3}[.)])\s+(.*)$/;
const OF_A_LIST = /^(?:\s*(?:[-*+]|\d{1,3}[.)])\s+|\s{2,}\S)/; // an item, or a line that continues one

// The elements of a text.
export function markdown(text) {
  const lines = text.split("\n");
  const nodes = [];
  let paragraph = [];
  const close = () => {
    if (paragraph.length) nodes.push(el("p", {}, ...inline(paragraph.join("\n"))));
    paragraph = [];
  };
  for (let place = 0; place < lines.length; place += 1) {
    const line = lines[place];
    const heading = /^(#{1,6})\s+(.*)$/.exec(line);
    if (/^\s*```/.test(line)) {
      close();
      const end = endOfFence(lines, place);
      nodes.push(el("pre", { class: "code" }, said(lines.slice(place + 1, end).join("\n"))));
      place = end;
    } else if (heading) {
      close();
      nodes.push(el("p", { class: "heading" }, ...inline(heading[2])));
    } else if (BULLET.test(line)) {
      close();
      const end = endOf(lines, place, OF_A_LIST);
      nodes.push(list(itemsOf(lines.slice(place, end))));
      place = end - 1;
    } else if (/^\s*>/.test(line)) {
      close();
      const end = endOf(lines, place, /^\s*>/);
      nodes.push(el("blockquote", {}, ...inline(lines.slice(place, end).map((each) => each.replace(/^\s*> ?/, "")).join("\n"))));
      place = end - 1;
    } else if (/^\s*\|.*\|\s*$/.test(line)) {
      close();
      const end = endOf(lines, place, /^\s*\|.*\|\s*$/);
      nodes.push(el("pre", { class: "code" }, said(lines.slice(place, end).join("\n"))));
      place = end - 1;
    } else if (line.trim()) paragraph.push(line);
    else close();
  }
  close();
  return nodes;
}

// The place of the line that ends a fence; past the last line where none does.
function endOfFence(lines, start) {
  let end = start + 1;
  while (end < lines.length && !/^\s*```\s*$/.test(lines[end])) end += 1;
  return end;
}

function endOf(lines, start, pattern) {
  let end = start + 1;
  while (end < lines.length && pattern.test(lines[end])) end += 1;
  return end;
}

// The items of lists in each other, each with how far it is indented.
function itemsOf(lines) {
  const items = [];
  for (const line of lines) {
    const found = BULLET.exec(line);
    if (found) items.push({ indent: found[1].length, sign: found[2], text: found[3] });
    else items.at(-1).text += `\n${line.trim()}`;
  }
  return items;
}

// A list of items. An item that is indented further than the first one belongs to the item before it.
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

// The pieces of a line: code, bold, italics, links, and what is between them.
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
