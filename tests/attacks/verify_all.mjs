// Runs clients/verify/verify.mjs again and again in one process: each line of the input is the JSON array of its
// arguments, and each line of the output has what it printed and its exit status.

import { createInterface } from "node:readline";

const verifier = new URL("../../clients/verify/verify.mjs", import.meta.url);
const print = console.log;
let count = 0;

for await (const line of createInterface({ input: process.stdin })) {
  const said = [];
  console.log = (text) => said.push(text);
  console.error = () => {};
  process.argv = [process.argv[0], verifier.pathname, ...JSON.parse(line)];
  process.exitCode = 0;
  count += 1;
  await import(`${verifier}?${count}`); // another address, so Node runs the file again
  print(JSON.stringify([said.join("\n"), process.exitCode]));
}
process.exitCode = 0;
