// What tells conversations apart whose titles begin alike, or are the same.

const ALIKE = 24; // Characters that two titles share before the words that differ are told first.
const LEAST = 16; // Characters of the words that differ.
const TAG = 40;

// For each id ``name``, the words that differ; ``start``, the first of the words that others share; and ``tag``, what is
// special in its id, where others have the same title.
export function distinguished(conversations) {
  const byTitle = new Map();
  for (const one of conversations) {
    const title = (one.title ?? one.conversation).trim() || one.conversation;
    if (!byTitle.has(title)) byTitle.set(title, []);
    byTitle.get(title).push(one.conversation);
  }
  const titles = Array.from(byTitle.keys()).sort();
  const told = new Map();
  titles.forEach((title, place) => {
    const alike = Math.max(shared(title, titles[place - 1]), shared(title, titles[place + 1]));
    const cut = alike < ALIKE ? 0 : wordAt(title, alike === title.length ? alike : Math.max(ALIKE, Math.min(alike, title.length - LEAST)));
    const isWhole = cut < title.length;
    const start = cut && isWhole ? `${title.slice(0, wordAt(title, ALIKE)).trim()} …` : "";
    const ids = byTitle.get(title).sort();
    ids.forEach((id, at) => {
      const common = Math.max(shared(id, ids[at - 1]), shared(id, ids[at + 1]));
      const tag = ids.length > 1 ? special(id, common) : isWhole ? "" : special(id, id.lastIndexOf("/") + 1);
      told.set(id, { name: isWhole ? title.slice(cut) : title, start, tag });
    });
  });
  return told;
}

function partAt(id, place) {
  let start = Math.max(0, place);
  while (start > 0 && /[A-Za-z0-9]/.test(id[start - 1])) start -= 1;
  return start;
}

function shared(one, other) {
  if (other === undefined) return 0;
  const most = Math.min(one.length, other.length);
  let place = 0;
  while (place < most && one[place] === other[place]) place += 1;
  return place;
}

// The beginning of the word at a place; the end of the text stays the end.
function wordAt(text, place) {
  if (place >= text.length) return text.length;
  const before = text.lastIndexOf(" ", place);
  return before < 0 ? 0 : before + 1;
}

// An id from its first part on that others do not share, or from the part before where that is short.
function special(id, common) {
  let place = partAt(id, Math.min(common, id.length));
  if (id.length - place < 3) place = partAt(id, place - 1);
  const part = id.slice(place) || id;
  if (/^[0-9a-f]{8}[0-9a-f-]{20,}$/i.test(part)) return part.slice(0, 8);
  return part.length > TAG ? `${part.slice(0, TAG - 1)}…` : part;
}
