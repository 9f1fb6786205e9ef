// Writes src/generated from the server's own documents: the records of
// api/openapi.json in camelCase, and the errors of docs/errors.md.
//
//   node tools/generate.mjs          # writes it
//   node tools/generate.mjs --check  # fails if what is there is not current

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const target = root + "src/generated/";
const header = (source) => `// Made by tools/generate.mjs from ${source}. Do not edit.\n\n`;

// Names that would hide something else in a program, or are a handle's here.
const RENAMED = {
  Sandbox: "SandboxRecord",
  ForkTree: "ForkTreeRecord",
  Event: "SandboxEvent",
  Error: "Failure",
  ExecResult: "ExecResultRecord",
  Process: "ProcessInfo",
  CodeRun: "CodeRunRecord",
  CodeOutput: "CodeOutputRecord",
  CodeEvent: "CodeEventRecord",
};
// What the package sends and reads, beside what these are made of.
const USED = [
  "AddSSHKey", "ChangeMode", "ChangeOwner", "Changed", "CodeContext", "CodeEvent", "CodeLanguages", "CodeRun",
  "ConnectionLog", "ContextList", "CopyFile", "CreateContext", "CreateSandbox", "CreateSnapshot", "CreateToken",
  "DirList", "Event", "ExecResult", "ExposePort", "Extracted", "FileEvent", "FileInfo", "Fork", "ForkTree", "GitAdd",
  "GitBranchRequest", "GitBranches", "GitCheckout", "GitClone", "GitCommit", "GitCommitRequest", "GitDiff", "GitLog",
  "GitLogRequest", "GitPatch", "GitRepo", "GitStatus", "GitSync", "Glob", "GlobResult", "Health", "LSPLanguageList",
  "Lifecycle", "LinkTarget", "LogLine", "MakeLink", "Me", "Metrics", "MetricsSeries", "Network", "NetworkGroup",
  "NetworkGroupList", "NewToken", "Port", "PortList", "Preview", "PreviewURL", "ProcessList", "Promote", "Promoted",
  "Replace", "ReplaceResult", "RunCode", "SSHInfo", "SSHKey", "SSHKeyList", "Sandbox", "SandboxList", "Search",
  "SearchResult", "SignFile", "SignedFile", "Snapshot", "SnapshotList", "Template", "TemplateList", "Timeline",
  "TokenList", "Tree", "Version",
];

const camel = (name) => name.replace(/_([a-z0-9])/g, (_, c) => c.toUpperCase());
const typeName = (schema) => RENAMED[schema] ?? schema;
const refName = (ref) => ref.slice(ref.lastIndexOf("/") + 1);

/** The kind of a property, as the table of schemas names it. */
function kindOf(p) {
  if (p.$ref) return "#" + refName(p.$ref);
  if (p.type === "array") {
    if (p.items.$ref) return "#" + refName(p.items.$ref) + "[]";
    if (p.items.type === "string") return "strings";
  }
  if (p.type === "string") return p.format === "date-time" ? "date" : "string";
  if (p.type === "integer" || p.type === "number" || p.type === "boolean") return p.type;
  if (p.type === "object" && p.additionalProperties?.type === "string") return "map";
  if (p.type === "object" && p.additionalProperties) return "any";
  if (p.oneOf || p.type === undefined) return "any";
  throw new Error(`a property of a form that is not known: ${JSON.stringify(p)}`);
}

/** The TypeScript type of a property. */
function typeOf(p) {
  const kind = kindOf(p);
  if (p.enum) return p.enum.map((v) => JSON.stringify(v)).join(" | ");
  if (kind.startsWith("#")) return typeName(kind.slice(1).replace("[]", "")) + (kind.endsWith("[]") ? "[]" : "");
  const named = { strings: "string[]", date: "Date", integer: "number", map: "Record<string, string>", any: "Record<string, unknown>" };
  if (kind === "any" && p.type === undefined) return "unknown";
  return named[kind] ?? kind;
}

function doc(p, indent) {
  const text = (p.description ?? "").replace(/[a-z]+(_[a-z]+)+/g, (word) => (fieldNames.has(word) ? camel(word) : word));
  const limits = p.default === undefined ? "" : `${text ? "; " : ""}default ${p.default}`;
  return text || limits ? `${indent}/** ${text}${limits}. */\n`.replace("..", ".") : "";
}

const required = (schema, name) => (schema.required ?? []).includes(name);

/** The schemas that the package uses, and those that they refer to. */
function used(all) {
  const names = new Set(USED);
  for (const name of names) {
    if (!all[name]) throw new Error(`api/openapi.json has no schema ${name}`);
    for (const [, ref] of JSON.stringify(all[name]).matchAll(/"\$ref":"#\/components\/schemas\/(\w+)"/g)) names.add(ref);
  }
  return Object.fromEntries([...names].sort().map((name) => [name, all[name]]));
}

function models(schemas) {
  let out = header("api/openapi.json");
  for (const [name, schema] of Object.entries(schemas)) {
    out += `export interface ${typeName(name)} {\n`;
    for (const [key, p] of Object.entries(schema.properties)) {
      const optional = !required(schema, key);
      out += doc(p, "  ") + `  ${camel(key)}${optional ? "?" : ""}: ${typeOf(p)}${optional ? " | undefined" : ""};\n`;
    }
    out += "}\n\n";
  }
  out += "/** The fields of a sandbox's record, as the server last gave them. */\n";
  out += "export abstract class SandboxFields {\n  /** The whole record. */\n  abstract readonly record: SandboxRecord;\n";
  for (const [key, p] of Object.entries(schemas.Sandbox.properties)) {
    const type = typeOf(p) + (required(schemas.Sandbox, key) ? "" : " | undefined");
    out += `\n${doc(p, "  ")}  get ${camel(key)}(): ${type} {\n    return this.record.${camel(key)};\n  }\n`;
  }
  return out + "}\n";
}

function table(schemas) {
  let out = header("api/openapi.json");
  out += "/**\n * The fields of each schema: their names on the wire with their kinds (#Name is another\n * schema), and ! where they are always there. Programs for browsers carry it, so it is short.\n */\n";
  out += "export const SCHEMAS = {\n";
  for (const [name, schema] of Object.entries(schemas)) {
    const fields = Object.entries(schema.properties).map(([key, p]) => `${key}:${kindOf(p)}${required(schema, key) ? "!" : ""}`);
    out += `  ${name}: "${fields.join(" ")}",\n`;
  }
  return out + "} as const;\n\nexport type SchemaName = keyof typeof SCHEMAS;\n";
}

// The class of each family of the catalogue.
const CLASSES = {
  auth: "AuthError",
  not_found: "NotFoundError",
  bad_request: "BadRequestError",
  conflict: "ConflictError",
  quota: "QuotaError",
  capacity: "CapacityError",
  timeout: "TimeoutError",
  server: "ServerError",
  connection: "NetworkError",
};
// What a code that the catalogue lacks goes by.
const FAMILY_BY_STATUS = {
  401: "AuthError",
  403: "AuthError",
  404: "NotFoundError",
  409: "ConflictError",
  429: "QuotaError",
  501: "BadRequestError",
  504: "TimeoutError",
  507: "CapacityError",
};

function classOf(family) {
  if (!CLASSES[family]) throw new Error(`docs/errors.md has the family ${family}, for which there is no class`);
  return CLASSES[family];
}

// Codes that the package raises itself.
const OURS = /^(client\..*|internal)$/;

function errors(markdown) {
  const rows = [...markdown.matchAll(/^\| `([a-z_.]+)` \| (\d{3}) \| (yes|no) \| ([a-z_]+) \| (.+) \|$/gm)];
  if (rows.length === 0) throw new Error("docs/errors.md has no table of errors");
  let out = header("docs/errors.md");
  out += "/**\n * Every code: its class, HTTP status and whether trying again can help. Advice stands with\n * the codes that this package raises itself: that of the server comes with its answer.\n */\n";
  out += "export const CATALOGUE = {\n";
  for (const [, code, status, retry, family, hint] of rows) {
    const advice = OURS.test(code) ? `, ${JSON.stringify(hint)}` : "";
    out += `  "${code}": ["${classOf(family)}", ${status}, ${retry === "yes"}${advice}],\n`;
  }
  out += "} as const satisfies Record<string, readonly [family: string, status: number, retryable: boolean, hint?: string]>;\n\n";
  out += "/** The class of an error whose code is not in the catalogue. */\n";
  out += "export const FAMILY_BY_STATUS = {\n";
  for (const [status, name] of Object.entries(FAMILY_BY_STATUS)) out += `  ${status}: "${name}",\n`;
  return out + "} as const;\n\n/** The codes that this version knows. */\nexport type ErrorCode = keyof typeof CATALOGUE;\n";
}

const repository = process.env.PANDASTACK_REPOSITORY ?? root + "../..";
const schemas = used(JSON.parse(readFileSync(repository + "/api/openapi.json", "utf8")).components.schemas);
const fieldNames = new Set(Object.values(schemas).flatMap((schema) => Object.keys(schema.properties)));
const files = {
  "models.ts": models(schemas),
  "schemas.ts": table(schemas),
  "errors.ts": errors(readFileSync(repository + "/docs/errors.md", "utf8")),
};

const current = (name) => {
  try {
    return readFileSync(target + name, "utf8");
  } catch {
    return "";
  }
};
const stale = Object.keys(files).filter((name) => current(name) !== files[name]);
if (process.argv.includes("--check")) {
  for (const name of stale) console.error(`src/generated/${name} is not current; run npm run generate`);
  process.exit(stale.length ? 1 : 0);
}
mkdirSync(target, { recursive: true });
for (const name of stale) {
  writeFileSync(target + name, files[name]);
  console.log(`wrote src/generated/${name}`);
}
