import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";

test("the types are those of docs/openapi.json; 'npm run generate' writes them", () => {
  const { generate } = (JSON.parse(readFileSync("package.json", "utf8")) as { scripts: { generate: string } }).scripts;
  const [program = "", ...options] = generate.replace(/ --output \S+/, "").split(" ");
  const printed = execFileSync(`node_modules/.bin/${program}`, options, { stdio: ["ignore", "pipe", "ignore"] });
  assert.equal(printed.toString(), readFileSync("src/openapi.ts", "utf8"));
});

const PROGRAM = `
import { Foldlog } from "foldlog";
const history = new Foldlog({ url: "http://localhost", token: "secret" }).histories.open("c");
for await (const event of history.events()) {
  if (event.kind === "action") event.tool.trim();
}
`;
const WITH_SDKS = `
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { Foldlog } from "foldlog";
const history = new Foldlog({ url: "http://localhost", token: "secret" }).histories.open("c");
await history.lease({ worker: "w" }, async (held) => {
  const { messages, model_request: request } = await held.prepare();
  await held.appendReply(await new OpenAI().chat.completions.create({ model: "m", messages }), { request });
  const view = await held.prepare("anthropic");
  await new Anthropic().messages.create({ model: "m", max_tokens: 9, messages: view.messages });
});
`;

for (const [what, program, options] of [
  ["without the DOM and Node", PROGRAM, { lib: ["es2022"], types: [] }],
  ["with the messages that SDKs of models take", WITH_SDKS, { types: ["node"], skipLibCheck: true }],
] as const) {
  test(`a program compiles ${what}`, () => {
    const folder = `build/program ${what}`;
    mkdirSync(folder, { recursive: true });
    writeFileSync(`${folder}/program.ts`, program);
    const compilerOptions = { strict: true, noEmit: true, target: "es2022", module: "nodenext", ...options };
    writeFileSync(`${folder}/tsconfig.json`, JSON.stringify({ compilerOptions, files: ["program.ts"] }));
    execFileSync("node_modules/.bin/tsc", ["-p", folder], { stdio: "inherit" });
  });
}
