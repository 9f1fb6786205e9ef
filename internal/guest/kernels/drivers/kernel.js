// The JavaScript kernel of a code context. Commands come as JSON lines on
// descriptor 3, events leave as JSON lines on 4; see package kernels. The code
// is evaluated as the console of a debugger does it: top-level await, names that
// may be declared again, the value of the last expression.
'use strict'
const fs = require('fs'), vm = require('vm'), path = require('path'), util = require('util'), inspector = require('inspector')
const { createRequire } = require('module'), { execFileSync } = require('child_process'), { pathToFileURL } = require('url')
const crypto = require('crypto')

const CHUNK = 32768, LIMIT = 12 << 20
const FIELDS = {
  'text/plain': 'text', 'text/html': 'html', 'text/markdown': 'markdown', 'image/svg+xml': 'svg', 'image/png': 'png',
  'image/jpeg': 'jpeg', 'application/pdf': 'pdf', 'text/latex': 'latex', 'application/json': 'json',
  'application/javascript': 'javascript', 'e2b/data': 'data', 'e2b/chart': 'chart',
}

function writeAll(fd, data) {
  for (let at = 0; at < data.length;) {
    try {
      at += fs.writeSync(fd, data, at)
    } catch (err) {
      if (err.code !== 'EAGAIN') throw err
      Atomics.wait(PAUSE, 0, 0, 2)
    }
  }
}
const PAUSE = new Int32Array(new SharedArrayBuffer(4))

function send(event) {
  let data = Buffer.from(JSON.stringify(event) + '\n')
  if (data.length > LIMIT) data = Buffer.from(JSON.stringify({ type: 'stderr', text: `[a result of ${data.length} bytes was left out]\n` }) + '\n')
  writeAll(4, data)
}

function output(type, text) {
  for (let i = 0; i < text.length; i += CHUNK) send({ type, text: text.slice(i, i + CHUNK), timestamp: Date.now() / 1000 })
}

for (const name of ['stdout', 'stderr']) {
  process[name].write = (data, encoding, done) => {
    output(name, typeof data === 'string' ? data : Buffer.from(data).toString())
    done = typeof encoding === 'function' ? encoding : done
    if (done) process.nextTick(done)
    return true
  }
}

// Randomness comes from the kernel, one buffer at a time, and the buffer is
// dropped when the machine is a copy: Node's own generators cannot be renewed.
const urandom = fs.openSync('/dev/urandom')
const pool = Buffer.alloc(4096)
let left = 0
function draw(n) {
  if (n > pool.length) {
    const out = Buffer.alloc(n)
    for (let at = 0; at < n;) at += fs.readSync(urandom, out, at)
    return out
  }
  if (left < n) left = fs.readSync(urandom, pool)
  left -= n
  return Buffer.from(pool.subarray(left, left + n))
}
Math.random = () => { const b = draw(8); return (b.readUInt32LE(0) * 0x200000 + (b.readUInt32LE(4) >>> 11)) / 2 ** 53 }
crypto.randomBytes = (n, done) => {
  const out = draw(n)
  if (!done) return out
  process.nextTick(done, null, out)
}
crypto.randomUUID = () => {
  const b = draw(16)
  b[6] = b[6] & 15 | 64
  b[8] = b[8] & 63 | 128
  return b.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
}
const fill = array => { Buffer.from(array.buffer, array.byteOffset, array.byteLength).set(draw(array.byteLength)); return array }
crypto.randomFillSync = crypto.getRandomValues = fill
const web = Object.getPrototypeOf(crypto.webcrypto)
web.getRandomValues = fill
web.randomUUID = crypto.randomUUID
process.on('SIGUSR2', () => { left = 0 })

// Results.
const SHOW = Symbol.for('Jupyter.display')
async function bundle(value) {
  if (value !== null && typeof value === 'object' && typeof value[SHOW] === 'function') return value[SHOW]()
  const out = { 'text/plain': typeof value === 'string' ? value : util.inspect(value, { depth: 4, maxArrayLength: 200, maxStringLength: 1 << 20 }) }
  if (value !== null && typeof value === 'object' && (Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype)) {
    try {
      const text = JSON.stringify(value)
      if (text !== undefined && text.length < 1 << 20) out['application/json'] = JSON.parse(text)
    } catch {} // a cycle: it is shown as text only
  }
  return out
}

function result(data, main) {
  const event = { type: 'result', is_main_result: main }
  for (const [mime, value] of Object.entries(data)) {
    const plain = value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value
    if (FIELDS[mime]) event[FIELDS[mime]] = plain
    else (event.extra ??= {})[mime] = plain
  }
  send(event)
}

const display = async (value, options) => result(options?.raw ? value : await bundle(value), false)
for (const [name, mime] of [['html', 'text/html'], ['md', 'text/markdown'], ['svg', 'image/svg+xml'], ['png', 'image/png'],
  ['jpeg', 'image/jpeg'], ['json', 'application/json'], ['latex', 'text/latex']]) {
  display[name] = value => result({ [mime]: value }, false)
}

function failure(err) {
  if (err instanceof Error || err !== null && typeof err === 'object' && 'message' in err) {
    const stack = String(err.stack ?? '').split('\n').filter(line => !/\[eval\]|node:(internal|inspector|vm)|\[worker eval\]/.test(line))
    send({ type: 'error', name: String(err.name ?? 'Error'), value: String(err.message), traceback: stack.join('\n') })
  } else {
    const text = util.inspect(err)
    send({ type: 'error', name: 'Uncaught', value: text, traceback: 'Uncaught ' + text })
  }
}

// Running code.
const session = new inspector.Session()
session.connect()
const post = (method, params) => new Promise((done, fail) => session.post(method, params, (err, out) => err ? fail(err) : done(out)))

const here = path.join(process.cwd(), 'cell.js')
const require_ = createRequire(here)
Object.assign(globalThis, { require: require_, module: { exports: {} }, display, __import: async name => {
  const file = /^[./]/.test(name) ? path.resolve(process.cwd(), name) : name.startsWith('node:') ? name : require_.resolve(name)
  return import(path.isAbsolute(file) ? pathToFileURL(file).href : file)
} })
globalThis.exports = globalThis.module.exports

// Static imports become dynamic ones, for there is no module at a console.
function imports(code) {
  return code
    .replace(/^[ \t]*import\s*(['"][^'"\n]+['"])[ \t]*;?/gm, 'await __import($1);')
    .replace(/^[ \t]*import\s+([\w$]+\s*,\s*)?(\*\s*as\s+[\w$]+|\{[^}]*\}|[\w$]+)\s+from\s*(['"][^'"\n]+['"])[ \t]*;?/gm, (_, first, what, from) => {
      const out = []
      if (first) out.push(`var ${first.replace(/\s*,\s*$/, '')} = (await __import(${from})).default;`)
      if (what.startsWith('*')) out.push(`var ${what.replace(/^\*\s*as\s+/, '')} = await __import(${from});`)
      else if (what.startsWith('{')) out.push(`var ${what.replace(/\s+as\s+/g, ': ')} = await __import(${from});`)
      else out.push(`var ${what} = (await __import(${from})).default;`)
      return out.join(' ')
    })
    .replace(/(^|[^\w$.])import\s*\(/g, '$1__import(')
}

function types(code) {
  if (process.argv[1] !== 'typescript') return code
  const config = '--tsconfig-raw={"compilerOptions":{"verbatimModuleSyntax":true,"preserveValueImports":true}}'
  return execFileSync('esbuild', ['--loader=ts', '--log-level=error', config], { input: code, encoding: 'utf8', stdio: ['pipe', 'pipe', 'pipe'] })
}

let interrupt = null // gives up what is waited for
const answered = new BigInt64Array(new SharedArrayBuffer(8)) // when this thread last had time for a SIGINT
process.on('SIGINT', () => {
  Atomics.store(answered, 0, process.hrtime.bigint())
  interrupt?.()
})
process.on('uncaughtException', failure)
process.on('unhandledRejection', failure)

class Interrupted extends Error {
  name = 'Interrupted'
  stack = 'Interrupted: the execution was interrupted'
}

// A loop that begins after an await is not below guarded, and holds up the
// thread that would hear of a SIGINT. The watch is a thread that hears of it too,
// gives this one a moment to answer, and ends what runs here if it does not. It
// begins with the first code that awaits, for it costs some megabytes.
const WATCH = `
  process.noDeprecation = true
  const session = new (require('inspector').Session)()
  session.connectToMainThread()
  const answered = require('worker_threads').workerData
  const signals = new (process.binding('signal_wrap').Signal)()
  signals.onsignal = () => {
    const since = process.hrtime.bigint() - 500000000n
    setTimeout(() => {
      if (Atomics.load(answered, 0) < since) session.post('Runtime.terminateExecution')
    }, 200)
  }
  signals.start(2)`
let watched = false
function watch() {
  if (watched) return
  watched = true
  const { Worker } = require('worker_threads')
  const thread = new Worker(WATCH, { eval: true, workerData: answered, execArgv: [], env: {}, resourceLimits: { maxOldGenerationSizeMb: 8, maxYoungGenerationSizeMb: 1 } })
  thread.on('error', () => {}) // a Node without these parts: its loops end with the kernel
  thread.unref()
}

// guarded calls f so that a SIGINT ends a loop in it. It takes the signal away
// from every other listener meanwhile, so that with the watch, which does the
// same, it must not be used.
let job
const guard = new vm.Script('__kernelJob()', { filename: '[eval]' })
Object.defineProperty(globalThis, '__kernelJob', { value: () => job() })
function guarded(f) {
  if (watched) return f()
  job = f
  try {
    return guard.runInThisContext({ breakOnSigint: true, displayErrors: false })
  } catch (err) {
    if (err.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') throw new Interrupted('the execution was interrupted')
    throw err
  }
}

let handed // the value that the inspector was asked to hand over
Object.defineProperty(globalThis, '__kernelHand', { value: v => { handed = v } })
async function valueOf(remote) {
  const argument = remote.objectId ? { objectId: remote.objectId }
    : 'unserializableValue' in remote ? { unserializableValue: remote.unserializableValue } : { value: remote.value }
  const { result: self } = await post('Runtime.evaluate', { expression: 'globalThis' })
  await post('Runtime.callFunctionOn', { objectId: self.objectId, functionDeclaration: 'function(v) { __kernelHand(v) }', arguments: [argument] })
  const value = handed
  handed = undefined
  return value
}

let cell = 0
async function evaluate(code) {
  const expression = imports(types(code)) + `\n//# sourceURL=cell-${++cell}.js`
  const given = new Promise((_, fail) => { interrupt = () => fail(new Interrupted('the execution was interrupted')) })
  if (/\bawait\b/.test(expression)) watch()
  const ran = guarded(() => post('Runtime.evaluate', { expression, replMode: true, awaitPromise: true, objectGroup: 'cell', userGesture: true }))
  const answer = await Promise.race([ran, given]).catch(err => {
    throw /Execution was terminated/.test(err?.message) ? new Interrupted('the execution was interrupted') : err
  })
  if (answer.exceptionDetails) {
    const thrown = answer.exceptionDetails.exception
    throw thrown ? { uncaught: await valueOf(thrown) } : { uncaught: new Error(answer.exceptionDetails.text) }
  }
  const value = await valueOf(answer.result)
  if (value !== undefined) result(await bundle(value), true)
}

function apply(change) {
  const before = {}
  for (const [name, value] of Object.entries(change ?? {})) {
    before[name] = process.env[name] ?? null
    if (value === null) delete process.env[name]
    else process.env[name] = value
  }
  return before
}

async function run(command) {
  apply(command.globals)
  const before = apply(command.env)
  try {
    await evaluate(command.code)
  } catch (err) {
    if (err?.code === 'ENOENT' && err.path === 'esbuild') err = new Error('TypeScript needs the program esbuild')
    else if (err?.stderr && err.path === undefined && err.status) err = Object.assign(new SyntaxError(String(err.stderr).trim()), { stack: String(err.stderr).trim() })
    failure(err !== null && typeof err === 'object' && 'uncaught' in err ? err.uncaught : err)
  } finally {
    interrupt = null
    apply(before)
    post('Runtime.releaseObjectGroup', { objectGroup: 'cell' }).catch(() => {})
  }
  send({ type: 'done' })
}

// Commands come one at a time: the next is sent when the last is done.
async function serve() {
  const { Socket } = require('net')
  const input = new Socket({ fd: 3, readable: true, writable: false })
  let rest = []
  for await (const data of input) {
    rest.push(data)
    let at
    while ((at = rest.at(-1).indexOf(10)) >= 0) {
      const tail = rest.pop()
      rest.push(tail.subarray(0, at))
      const line = Buffer.concat(rest).toString()
      rest = [tail.subarray(at + 1)]
      await run(JSON.parse(line))
    }
  }
  process.exit(0)
}

evaluateFirst().then(serve)
async function evaluateFirst() {
  await post('Runtime.evaluate', { expression: '1', replMode: true, awaitPromise: true })
  send({ type: 'ready' })
}
