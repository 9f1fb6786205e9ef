// Writes REFERENCE.md from the types that the package has when it is built.
//
//   node tools/reference.mjs          # writes it
//   node tools/reference.mjs --check  # fails if what is there is not current

import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const root = fileURLToPath(new URL("..", import.meta.url));
const entry = root + "dist/esm/index.d.ts";
const target = root + "REFERENCE.md";

const CLASSES = [
  "PandaStack", "Sandboxes", "Sandbox", "Filesystem", "Process", "ExecStream", "Processes", "AttachedProcess", "Terminal", "Contexts",
  "CodeStream", "CodeOutput", "Git", "LanguageServer", "SandboxNetwork", "Ports", "Networks", "Stream", "ForkTree", "Snapshots",
  "Templates", "Tokens", "SSHKeys",
];

const introduction = `# TypeScript reference

Made from the package's types by \`tools/reference.mjs\`; do not edit. To begin, read README.md.

\`Client\` is another name of \`PandaStack\`. Every call takes \`signal\` and \`timeoutMs\` (CallOptions). Times are \`Date\`; sizes
are in bytes and durations in seconds unless their name says otherwise (\`Mb\` is MiB, \`Ms\` milliseconds). What a call can
fail with stands under Errors; arguments of a wrong type are a \`TypeError\` or \`RangeError\` before anything is sent.
`;

const program = ts.createProgram([entry], { target: ts.ScriptTarget.ES2022, skipLibCheck: true });
const checker = program.getTypeChecker();
const exported = new Map();
// What a class has from an interface of its own name.
const fields = new Map();
for (const symbol of checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(entry)))) {
  const real = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
  exported.set(symbol.name, real.declarations.find(ts.isClassDeclaration) ?? real.declarations[0]);
  const merged = real.declarations.find(ts.isInterfaceDeclaration);
  if (merged?.heritageClauses) fields.set(symbol.name, merged.heritageClauses[0].types[0].expression.getText());
}

const docs = (node) => (node.jsDoc ?? []).map((d) => ts.getTextOfJSDocComment(d.comment) ?? "").join("\n").trim();
const isInternal = (node) => ts.getJSDocTags(node).some((tag) => tag.tagName.text === "internal");
const isHidden = (node) => isInternal(node) || (node.name && ts.isPrivateIdentifier(node.name));

/** The source of a node without its comment. */
function textOf(node) {
  return node.getText().replace(/^(export )?(declare )?/, "").replace(/^override /, "");
}

function classSection(name, node) {
  let out = `\n## ${name}\n\n${docs(node)}\n`;
  if (fields.has(name)) out += `It has every field of ${fields.get(name)}.\n`;
  const inherited = node.heritageClauses?.flatMap((c) => c.types).map((t) => t.expression.getText()) ?? [];
  if (inherited.includes("SandboxFields")) out += "\nIt has every field of SandboxRecord.\n";
  if (inherited.includes("ExecStream")) out += "\nIt has the members of ExecStream too.\n";
  if (inherited.includes("Live")) out += "\nIt is an async iterator: `for await` reads it, and leaving the loop, or `return()`, closes it.\n";
  const members = node.members.filter((m) => !isHidden(m));
  for (let i = 0; i < members.length; i++) {
    // Overloads of one method stand together, under the comment of the first.
    const group = [members[i]];
    while (members[i + 1]?.name && members[i + 1].name.getText() === members[i].name?.getText()) group.push(members[++i]);
    const said = group.map(docs).filter(Boolean).join("\n\n");
    out += `\n\`\`\`ts\n${group.map(textOf).join("\n")}\n\`\`\`\n${said ? `\n${said}\n` : ""}`;
  }
  return out;
}

function errorsSection() {
  let out = "\n## Errors\n";
  const errors = [...exported].filter(([name, node]) => ts.isClassDeclaration(node) && name.endsWith("Error"));
  for (const [name, node] of errors.filter(([name]) => name !== "PandaStackError")) out += `\n- \`${name}\`: ${docs(node)}`;
  return out + "\n\nEach of them is a `PandaStackError`:\n" + classSection("PandaStackError", exported.get("PandaStackError")).replace("\n## ", "\n### ");
}

function typesSection() {
  let out = "\n## Types\n";
  for (const [name, node] of [...exported].sort(([a], [b]) => a.localeCompare(b))) {
    if (!ts.isInterfaceDeclaration(node) && !ts.isTypeAliasDeclaration(node)) continue;
    const doc = docs(node);
    out += `\n### ${name}\n\n${doc ? doc + "\n\n" : ""}\`\`\`ts\n${textOf(node)}\n\`\`\`\n`;
  }
  return out;
}

const text =
  introduction + CLASSES.map((name) => classSection(name, exported.get(name))).join("") + errorsSection() + typesSection();
if (process.argv.includes("--check")) {
  if (readFileSync(target, "utf8") === text) process.exit(0);
  console.error("REFERENCE.md is not current; run npm run build && node tools/reference.mjs");
  process.exit(1);
}
writeFileSync(target, text);
console.log("wrote REFERENCE.md");
