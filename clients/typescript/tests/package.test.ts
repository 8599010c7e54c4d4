import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";

const ADAPTERS = {
  "ai-sdk": "loadChat",
  "claude-agent": "FoldlogSessionStore",
  "openai-agents": "FoldlogSession",
  "tanstack-ai": "foldlogStream",
};
let folder: string;
let installed: string;

/** A new project with the package as npm packs it, and no other package. */
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "foldlog-package-"));
  installed = join(folder, "node_modules", "foldlog");
  await mkdir(installed, { recursive: true });
  // The build is that of the tests: a second one would change files that other tests read.
  const options = ["pack", "--silent", "--ignore-scripts", "--pack-destination", folder];
  const packed = execFileSync("npm", options).toString().trim();
  execFileSync("tar", ["-xzf", join(folder, packed), "--strip-components=1", "-C", installed]);
  await writeFile(join(folder, "package.json"), '{"type": "module"}');
});
after(() => rm(folder, { recursive: true, force: true }));

function compile(file: string, ...options: string[]): void {
  const program = resolve("node_modules/typescript/bin/tsc");
  const strict = ["--strict", "--exactOptionalPropertyTypes", "--target", "es2022"];
  execFileSync(process.execPath, [program, ...strict, ...options, file], {
    cwd: folder,
    stdio: ["ignore", "inherit", "inherit"],
  });
}

test("the package has its code, types, README and licence, and no dependency", async () => {
  const described = JSON.parse(await readFile(join(installed, "package.json"), "utf8")) as Record<
    string,
    Record<string, object>
  >;
  assert.equal(described["dependencies"], undefined);
  assert.equal(described["peerDependencies"], undefined);
  assert.deepEqual((await readdir(installed)).sort(), ["LICENSE", "README.md", "dist", "package.json"]);
  const files = Object.values(described["exports"] ?? {}).flatMap((entry) => Object.values(entry) as string[]);
  assert.equal(files.length, 2 * (1 + Object.keys(ADAPTERS).length));
  for (const file of files) assert.ok(existsSync(join(installed, file)), file);
});

test("a program compiles without other packages and without the types of the DOM, and runs", async () => {
  const program = `
    import { type ChatMessage, Foldlog, type HeldHistory, LeaseLost, type StoredEvent } from "foldlog";
    const foldlog = new Foldlog({ url: "http://localhost:1", token: "x", waitMs: 0 });
    export async function drive(held: HeldHistory): Promise<ChatMessage[]> {
      for (const call of await held.openCalls()) await held.run(call, ({ to }, { key }) => [to, key]);
      const writer = (await held.unfinishedReply())?.continue() ?? (await held.streamReply());
      await writer.feed({ type: "text", text: "a" });
      return (await held.prepare("openai")).messages;
    }
    export const textOf = (event: StoredEvent): string => (event.kind === "action" ? event.tool : "");
    export const work = (): Promise<ChatMessage[]> => foldlog.histories.open("c").lease({ worker: "w" }, drive);
    if (typeof LeaseLost !== "function") throw new Error("no class");
  `;
  await writeFile(join(folder, "program.ts"), program);
  compile("program.ts", "--lib", "es2022", "--module", "node16", "--moduleResolution", "node16");
  execFileSync(process.execPath, ["program.js"], { cwd: folder });
  compile("program.ts", "--lib", "es2022", "--module", "esnext", "--moduleResolution", "bundler");
});

test("the adapters compile beside their SDKs, in both ways to resolve modules", async () => {
  for (const name of await readdir("node_modules")) {
    if (!name.startsWith(".")) await symlink(resolve("node_modules", name), join(folder, "node_modules", name));
  }
  const lines = Object.entries(ADAPTERS).map(([name, value]) => `export { ${value} } from "foldlog/${name}";`);
  await writeFile(join(folder, "adapters.ts"), lines.join("\n"));
  for (const [module, resolution] of [
    ["node16", "node16"],
    ["esnext", "bundler"],
  ] as const) {
    // the types of the SDKs have errors of their own
    compile(
      "adapters.ts",
      "--skipLibCheck",
      "--lib",
      "es2022,dom,dom.iterable,dom.asynciterable",
      "--module",
      module,
      "--moduleResolution",
      resolution,
    );
  }
});
