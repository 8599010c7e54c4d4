// The page's model of a history, held against what foldlog itself says of the same history: test_model.py writes both.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { History } from "../../foldlog/_page/app/history.js";

const cases = JSON.parse(readFileSync(process.env.FOLDLOG_HISTORIES, "utf8"));
const GONE = ["summarized", "forgotten", "taken back"];

function each(name, check) {
  test(name, () => {
    for (const [title, one] of Object.entries(cases)) check(new History(one.document), one, title);
  });
}

each("the View of each version has the events and summaries that foldlog shows, in its order", (history, { views }, title) => {
  views.forEach((ids, version) => assert.deepEqual(history.view(version), ids, `${title} at version ${version}`));
});

each("each event is in one state, and is shown in none in which it is gone", (history, { views }, title) => {
  views.forEach((ids, version) => {
    const shown = new Set(ids);
    const counted = new Map();
    for (let id = 0; id < history.version; id += 1) {
      const state = history.state(id, version);
      if (version <= id) assert.equal(state, "not yet", `${title}: ${id} at ${version}`);
      else assert.equal(shown.has(id), !GONE.includes(state) && state !== "never shown", `${title}: ${id} at ${version} is ${state}`);
      counted.set(state, (counted.get(state) ?? 0) + 1);
    }
    for (const state of GONE) assert.equal(history.tally(version).states.get(state) ?? 0, counted.get(state) ?? 0, `${title} at ${version}`);
  });
});

each("an event is what became of it at each version", (history, { states }) => {
  for (const [id, told] of Object.entries(states)) assert.deepEqual(told.map((_, version) => history.state(Number(id), version)), told, id);
});

each("what stands for a summarized event is a summary of the View", (history, { views }) => {
  views.forEach((ids, version) => {
    for (let id = 0; id < version; id += 1) {
      if (history.state(id, version) !== "summarized") continue;
      assert.ok(ids.includes(history.standsFor(id, version).summary), `${id} at ${version}`);
    }
  });
});

each("the list of a version has each event of its View once", (history, { views }) => {
  views.forEach((ids, version) => {
    const entries = history.entries(version, null, "all", new Set());
    assert.deepEqual(entries.map((entry) => entry.id).filter((id) => id !== undefined), ids);
  });
});

each("a history that grows is the same as one that is read at once", (whole, { begun, rest, views }, title) => {
  const grown = new History(begun);
  grown.add(rest);
  views.forEach((_, version) => {
    assert.deepEqual(grown.view(version), whole.view(version), `${title} at ${version}`);
    assert.deepEqual(grown.tally(version), whole.tally(version), `${title} at ${version}`);
  });
  assert.deepEqual(grown.total, whole.total);
});
