// Shortens titles that begin alike, so that their differences are visible.

const ALIKE = 24; // If two titles share at least this number of characters, their names begin with the words that differ.
const LEAST = 16; // The least number of characters of a name.

// For each id, ``name`` begins with the words that differ, and ``start`` has the first words of the shared beginning.
export function distinguished(conversations) {
  const titleOf = ({ title, conversation }) => (title ?? conversation).trim() || conversation;
  const titles = [...new Set(conversations.map(titleOf))].sort();
  const names = new Map();
  titles.forEach((title, place) => {
    const alike = Math.max(shared(title, titles[place - 1]), shared(title, titles[place + 1]));
    const cut = cutOf(title, alike);
    if (cut === 0 || cut >= title.length) names.set(title, { name: title, start: "" });
    else names.set(title, { name: title.slice(cut), start: `${title.slice(0, wordAt(title, ALIKE)).trim()} …` });
  });
  return new Map(conversations.map((one) => [one.conversation, names.get(titleOf(one))]));
}

// Where the name of a title begins that shares so many characters with another one.
function cutOf(title, alike) {
  if (alike < ALIKE) return 0;
  if (alike === title.length) return wordAt(title, alike);
  return wordAt(title, Math.max(ALIKE, Math.min(alike, title.length - LEAST)));
}

// The number of characters with which both titles begin.
function shared(one, other = "") {
  let place = 0;
  while (place < one.length && one[place] === other[place]) place += 1;
  return place;
}

// The beginning of the word at a place. At or after the end of the text, the end.
function wordAt(text, place) {
  return place >= text.length ? text.length : text.lastIndexOf(" ", place) + 1;
}
