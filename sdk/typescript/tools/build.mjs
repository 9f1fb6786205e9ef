// Builds dist: ES modules and CommonJS, each with types and source maps.
//
//   node tools/build.mjs

import { spawnSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));

rmSync(root + "dist", { recursive: true, force: true });
for (const project of ["tsconfig.json", "tsconfig.cjs.json"]) {
  const { status } = spawnSync(process.execPath, [root + "node_modules/typescript/bin/tsc", "-p", root + project], { stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}
// What is in a folder is read as its package.json says.
writeFileSync(root + "dist/cjs/package.json", '{ "type": "commonjs" }\n');
