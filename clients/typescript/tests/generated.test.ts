import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";

test("the types are those of docs/openapi.json; 'npm run generate' writes them", () => {
  const { generate } = (JSON.parse(readFileSync("package.json", "utf8")) as { scripts: { generate: string } }).scripts;
  const [program = "", ...options] = generate.replace(/ --output \S+/, "").split(" ");
  const printed = execFileSync(`node_modules/.bin/${program}`, options, { stdio: ["ignore", "pipe", "ignore"] });
  assert.equal(printed.toString(), readFileSync("src/openapi.ts", "utf8"));
});
