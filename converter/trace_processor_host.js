// Runs the WebAssembly trace_processor of a Perfetto UI build under Node.
//
//   node trace_processor_host.js DIST_DIR
//
// stdout: the line "ready", then the engine's replies; stdin: requests. Both are bytes of TraceProcessorRpcStream
// (perfetto/trace_processor/trace_processor.proto). stderr: the engine's log. Ends with stdin.
//
// The build's engine_bundle.js is a classic script for a web worker, so this file gives it a worker's globals. It may
// read two files of DIST_DIR (the wasm builds) and nothing else: requests have no way to the file system.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const proc = process;
const dist = proc.argv[2];

function fail(error) {
  fs.writeSync(2, `${(error && (error.stack || error.message)) || error}\n`);
  proc.exit(3);
}
proc.on('uncaughtException', fail);
proc.on('unhandledRejection', fail);

// fs.*Sync on a pipe that somebody made non-blocking throws EAGAIN: wait a little instead of spinning.
const idle = new Int32Array(new SharedArrayBuffer(4));
function blocking(call) {
  for (;;) {
    try {
      return call();
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
      Atomics.wait(idle, 0, 0, 1);
    }
  }
}

function write(bytes) {
  for (let at = 0; at < bytes.length;) at += blocking(() => fs.writeSync(1, bytes, at));
}

function wasm(url) {
  const name = path.basename(String(url));
  if (!/^trace_processor(_memory64)?\.wasm$/.test(name)) throw new Error(`trace_processor asked for ${name}`);
  const bytes = fs.readFileSync(path.join(dist, name));
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
}

// The end of the worker's message channel that the engine holds: it sets onmessage and calls postMessage.
const port = {onmessage: null, postMessage: write};

let serving = false;
function serve() {
  serving = true;
  write(Buffer.from('ready\n'));
  const buffer = Buffer.allocUnsafeSlow(1 << 20);
  for (;;) {
    let size = 0;
    try {
      size = blocking(() => fs.readSync(0, buffer, 0, buffer.length, null));
    } catch (error) {
      if (error.code !== 'EOF') throw error;
    }
    if (size === 0) proc.exit(0);
    // The engine copies the bytes into its own memory before it returns, so the buffer can be used again.
    port.onmessage({data: new Uint8Array(buffer.buffer, 0, size)});
  }
}

// When is the engine ready? The last thing its start-up does is to call the export trace_processor_rpc_init, with the
// address of its reply function. Only after that call may requests come.
function watched(instance) {
  const init = instance.exports.trace_processor_rpc_init;
  if (!init) return instance; // a small module that the glue makes for callbacks
  const announce = (...args) => {
    const result = init(...args);
    setImmediate(serve); // after the caller has stored the address of the request buffer
    return result;
  };
  return {exports: {...instance.exports, trace_processor_rpc_init: announce}};
}
const {Instance, instantiate} = WebAssembly; // builds differ in which of the two they use
WebAssembly.Instance = function (module, imports) { return watched(new Instance(module, imports)); };
WebAssembly.instantiate = async (source, imports) => {
  const made = await instantiate(source, imports);
  return made.instance ? {module: made.module, instance: watched(made.instance)} : watched(made);
};
WebAssembly.instantiateStreaming = undefined; // wants a real HTTP response

globalThis.location = {href: 'http://localhost/'};
globalThis.self = {location: globalThis.location};
globalThis.WorkerGlobalScope = class {};
globalThis.fetch = async (url) => ({ok: true, status: 200, arrayBuffer: async () => wasm(url)});
globalThis.XMLHttpRequest = class {
  open(_method, url) { this.url = url; }
  send() { this.response = wasm(this.url); this.status = 200; }
};
console.log = console.warn = console.error = (...words) => { fs.writeSync(2, words.join(' ') + '\n'); };
proc.on('exit', (status) => { if (!status && !serving) fail('the engine ended before it was ready'); });
globalThis.process = undefined; // the glue refuses to run where it sees Node

const bundle = path.join(dist, 'engine_bundle.js');
vm.runInThisContext(fs.readFileSync(bundle, 'utf8'), {filename: bundle});
globalThis.self.onmessage({data: port});
