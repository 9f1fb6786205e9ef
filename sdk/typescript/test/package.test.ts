// The packed package, installed where nothing else is.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { build, type BuildOptions } from "esbuild";
import { api, key } from "./server.js";

const tool = (name: string) => resolve("node_modules", name);
let folder: string;
let installed: string;
let packed: string[];

const smoke = `
const sandbox = await Sandbox.create({ ttlSeconds: 60 });
try {
  let streamed = "";
  for await (const { text } of sandbox.execStream("printf streamed")) streamed += text;
  const background = await sandbox.runBackground("cat");
  await background.sendStdin("background");
  await background.closeStdin();
  const { stdout } = await background.wait();
  await sandbox.filesystem.write("a", "file");
  const error = await sandbox.filesystem.read("b").catch((e) => e);
  const ran = await sandbox.exec("echo ran");
  console.log(ran.stdout.trim(), streamed, stdout, await sandbox.filesystem.read("a"), error instanceof NotFoundError, VERSION);
} finally {
  await sandbox.kill();
}
`;
const wanted = () => `ran streamed background file true ${JSON.parse(readFileSync("package.json", "utf8")).version}\n`;

function run(command: string, args: string[], env: NodeJS.ProcessEnv = {}): string {
  return execFileSync(command, args, {
    cwd: folder,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, NODE_OPTIONS: "", PANDASTACK_API: api, PANDASTACK_API_KEY: key, ...env },
  });
}

before(() => {
  folder = mkdtempSync(join(tmpdir(), "pandastack-package-"));
  const offline = ["--offline", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"];
  const said = execFileSync("npm", ["pack", "--json", "--ignore-scripts", "--no-update-notifier", "--loglevel=error", "--pack-destination", folder], { encoding: "utf8" });
  const [{ filename, files }] = JSON.parse(said);
  packed = files.map((f: { path: string }) => f.path);
  writeFileSync(join(folder, "package.json"), '{ "private": true }');
  run("npm", ["install", ...offline, "./" + filename], { HOME: process.env["NPM_HOME"] ?? process.env["HOME"] });
  installed = join(folder, "node_modules/@pandastack/sdk");
});
after(() => rmSync(folder, { recursive: true }));

test("it brings what it should, and no other package", () => {
  assert.deepEqual(readdirSync(join(folder, "node_modules")).filter((n) => !n.startsWith(".")), ["@pandastack"]);
  const meta = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
  assert.deepEqual([meta.name, meta.license, meta.sideEffects, meta.type], ["@pandastack/sdk", "Apache-2.0", false, "module"]);
  assert.ok(meta.engines.node && meta.description && meta.repository && !meta.dependencies && !meta.scripts.postinstall);
  for (const file of ["LICENSE", "README.md", meta.main, meta.module, meta.types].map((f: string) => f.replace("./", ""))) {
    assert.ok(packed.includes(file), file);
  }
  const strange = packed.filter((f) => !/^(dist\/(esm|cjs)\/|src\/|LICENSE$|README\.md$|package\.json$)/.test(f));
  assert.deepEqual(strange, []);
});

test("every source map names a source that is there", () => {
  const maps = packed.filter((f) => f.endsWith(".map"));
  assert.ok(maps.length > 40);
  for (const name of maps) {
    const map = JSON.parse(readFileSync(join(installed, name), "utf8"));
    for (const source of map.sources) readFileSync(join(installed, dirname(name), source));
    assert.ok(packed.includes(name.slice(0, -4)));
  }
});

test("as ES modules", () => {
  writeFileSync(join(folder, "smoke.mjs"), `import { Sandbox, NotFoundError, VERSION } from "@pandastack/sdk";\n${smoke}`);
  assert.equal(run(process.execPath, ["smoke.mjs"]), wanted());
});

test("the README's first program", () => {
  const [, program] = /```ts\n([^]*?)```/.exec(readFileSync(join(installed, "README.md"), "utf8"))!;
  writeFileSync(join(folder, "readme.mjs"), program!);
  assert.equal(run(process.execPath, ["readme.mjs"]), "42\n\nhello\n");
});

test("the README's other programs have the right types", () => {
  const readme = readFileSync(join(installed, "README.md"), "utf8");
  const blocks = [...readme.matchAll(/```ts\n([^]*?)```/g)].map((m) => m[1]!.replace(/^import .*\n/gm, ""));
  assert.ok(blocks.length >= 7);
  const body = blocks.map((block) => `export const _ = async () => {\n${block}};\n`).map((text, i) => text.replace("_", `block${i}`));
  const head = 'import { Client, ForkTree, Sandbox } from "@pandastack/sdk";\ndeclare const sandbox: Sandbox;\nexport type _ = [Client, ForkTree];\n';
  writeFileSync(join(folder, "readme.ts"), head + body.join(""));
  const compilerOptions = { noEmit: true, strict: true, module: "nodenext", target: "es2022", lib: ["es2022", "esnext.disposable"], types: ["node"], typeRoots: [tool("@types")] };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["readme.ts"] }));
  run(process.execPath, [tool("typescript/bin/tsc"), "-p", "."]);
});

test("as CommonJS", () => {
  writeFileSync(join(folder, "smoke.cjs"), `const { Sandbox, NotFoundError, VERSION } = require("@pandastack/sdk");\n(async () => {${smoke}})();\n`);
  assert.equal(run(process.execPath, ["smoke.cjs"]), wanted());
});

test("bundled and minified for browsers", async () => {
  const code = `import { PandaStack, NotFoundError, VERSION } from "@pandastack/sdk";
    const client = new PandaStack({ apiUrl: globalThis.api, apiKey: globalThis.key });
    const Sandbox = { create: (o) => client.sandboxes.create(o) };\n${smoke}`;
  writeFileSync(join(folder, "browser.mjs"), code);
  const size = await bundle("browser.mjs", "bundle.mjs", { platform: "browser", format: "esm", minify: true });
  assert.ok(size < 88 << 10, `${size} bytes`);
  const bundled = readFileSync(join(folder, "bundle.mjs"), "utf8");
  assert.doesNotMatch(bundled, /\bBuffer\b|\brequire\(|\bimport\(["`]|from ?"node:/, "what browsers do not have");
  // Without Node's process it takes the ways it takes in a browser.
  const page = `const { log } = console, url = ${JSON.stringify(pathToFileURL(join(folder, "bundle.mjs")).href)};
    Object.assign(globalThis, { api: ${JSON.stringify(api)}, key: ${JSON.stringify(key)} });
    delete globalThis.process;
    await import(url);`;
  writeFileSync(join(folder, "page.mjs"), page);
  const flags = process.versions.node.startsWith("20.") ? ["--experimental-websocket"] : [];
  assert.equal(run(process.execPath, [...flags, "page.mjs"]), wanted());
});

test("bundled for Node, as CommonJS too", async () => {
  await bundle("smoke.mjs", "node.mjs", { platform: "node", format: "esm" });
  await bundle("smoke.cjs", "node.cjs", { platform: "node", format: "cjs" });
  assert.equal(run(process.execPath, ["node.mjs"]), wanted());
  assert.equal(run(process.execPath, ["node.cjs"]), wanted());
});

/** Bundles a file, which may not even give a warning, and says how large it became. */
async function bundle(source: string, out: string, options: BuildOptions): Promise<number> {
  const files = { entryPoints: [join(folder, source)], outfile: join(folder, out) };
  const { warnings } = await build({ ...options, ...files, bundle: true, logLevel: "error" });
  assert.deepEqual(warnings, []);
  return readFileSync(join(folder, out)).length;
}

test("its types are right for every kind of program", () => {
  const program = `import { Client, Sandbox, type ExecResult, type ClientOptions, PandaStackError } from "@pandastack/sdk";
export async function main(options: ClientOptions): Promise<string | undefined> {
  const client: Client = new Client(options);
  const sandbox: Sandbox = await client.sandboxes.create({ template: "base", volumes: [{ name: "v", readOnly: true }] });
  const result: ExecResult = await sandbox.exec("x", { timeoutSeconds: 1 });
  const code: number = result.exitCode;
  const text: string = await sandbox.filesystem.read("a");
  const bytes: Uint8Array = await sandbox.filesystem.read("a", { format: "bytes" });
  for await (const line of sandbox.logs({ follow: true })) console.log(line.line.length);
  const all: string = await sandbox.logs();
  const children: Sandbox[] = await sandbox.fork(2);
  // @ts-expect-error a number is no command
  await sandbox.exec(5);
  // @ts-expect-error the wire's name is not ours
  await client.sandboxes.create({ ttl_seconds: 5 });
  // @ts-expect-error a typo
  await sandbox.hibernat();
  try {
    await sandbox[Symbol.asyncDispose]();
  } catch (e) {
    if (e instanceof PandaStackError && e.code === "sandbox.not_found") return e.requestId;
  }
  return code + text + bytes + all + children;
}
`;
  writeFileSync(join(folder, "program.ts"), program);
  writeFileSync(join(folder, "program.cts"), program);
  const node = { lib: ["es2022"], types: ["node"], typeRoots: [tool("@types")] };
  const browser = { lib: ["es2022", "dom"], types: [] };
  const kinds: [string, object][] = [
    ["program.ts", { module: "nodenext", ...node }],
    ["program.cts", { module: "nodenext", ...node }],
    ["program.ts", { module: "esnext", moduleResolution: "bundler", ...browser }],
    ["program.ts", { module: "commonjs", moduleResolution: "node10", ...browser }],
  ];
  for (const [file, how] of kinds) {
    const compilerOptions = { noEmit: true, strict: true, exactOptionalPropertyTypes: true, target: "es2022", ...how };
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: [file] }));
    run(process.execPath, [tool("typescript/bin/tsc"), "-p", "."]);
  }
});

for (const [name, args] of [["deno", ["run", "--allow-net", "--allow-env", "--allow-read", "--node-modules-dir=manual"]], ["bun", []]] as const) {
  const binary = process.env[`TEST_${name.toUpperCase()}`];
  test(`in ${name}`, { skip: binary ? false : `there is no ${name} here` }, () => {
    writeFileSync(join(folder, "smoke.mjs"), `import { Sandbox, NotFoundError, VERSION } from "@pandastack/sdk";\n${smoke}`);
    assert.equal(run(binary!, [...args, "smoke.mjs"]), wanted());
  });
}
