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
};
// What the package sends and reads, beside what these are made of.
const USED = [
  "CreateSandbox", "CreateSnapshot", "CreateToken", "DirList", "Event", "ExecResult", "FileInfo", "Fork", "ForkTree",
  "Health", "Lifecycle", "LogLine", "Me", "Metrics", "NewToken", "Promote", "Promoted", "Sandbox", "SandboxList",
  "Snapshot", "SnapshotList", "Template", "TemplateList", "Timeline", "TokenList", "Tree", "Version",
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
  out += "/** By field: its name on the wire, its kind (#Name is another schema), and whether it is always there. */\n";
  out += "export type Fields = Readonly<Record<string, readonly [wire: string, kind: string, required: boolean]>>;\n\n";
  out += "export const SCHEMAS = {\n";
  for (const [name, schema] of Object.entries(schemas)) {
    out += `  ${name}: {\n`;
    for (const [key, p] of Object.entries(schema.properties)) {
      out += `    ${camel(key)}: ["${key}", "${kindOf(p)}", ${required(schema, key)}],\n`;
    }
    out += "  },\n";
  }
  return out + "} satisfies Record<string, Fields>;\n\nexport type SchemaName = keyof typeof SCHEMAS;\n";
}

const FAMILY_BY_PREFIX = [
  ["auth.", "AuthError"],
  ["quota.", "QuotaError"],
  ["rate_limit.", "QuotaError"],
  ["capacity.", "CapacityError"],
  ["client.", "NetworkError"],
  ["file.permission_denied", "BadRequestError"],
  ["request.timeout", "TimeoutError"],
  ["host.unreachable", "CapacityError"],
];
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

function family(code, status) {
  const named = FAMILY_BY_PREFIX.find(([prefix]) => code.startsWith(prefix));
  if (named) return named[1];
  return FAMILY_BY_STATUS[status] ?? (status >= 400 && status < 500 ? "BadRequestError" : "ServerError");
}

function errors(markdown) {
  const rows = [...markdown.matchAll(/^\| `([a-z_.]+)` \| (\d{3}) \| (yes|no) \| (.+) \|$/gm)];
  if (rows.length === 0) throw new Error("docs/errors.md has no table of errors");
  let out = header("docs/errors.md");
  out += "/** Every code: its class, HTTP status, whether trying again can help, and advice. */\n";
  out += "export const CATALOGUE = {\n";
  for (const [, code, status, retry, hint] of rows) {
    out += `  "${code}": ["${family(code, Number(status))}", ${status}, ${retry === "yes"}, ${JSON.stringify(hint)}],\n`;
  }
  out += "} as const satisfies Record<string, readonly [family: string, status: number, retryable: boolean, hint: string]>;\n\n";
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
