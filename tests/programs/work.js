// Node at work: objects, maps, buffers, JSON, worker threads and a child process.
// Prints one line; the test `node` in tests/tests/programs.rs knows what it must be.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const { execFile } = require('node:child_process');
const { createHash } = require('node:crypto');
const zlib = require('node:zlib');

// Records that depend on the seed only, grouped, printed, packed and unpacked; a digest of them.
function work(seed) {
    const hash = createHash('sha256');
    for (let turn = 0; turn < 8; turn++) {
        let state = seed * 1000 + turn;
        const groups = new Map();
        for (let i = 0; i < 8000; i++) {
            state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
            const name = `n${state % 1009}`;
            if (!groups.has(name)) groups.set(name, []);
            groups.get(name).push({ id: i, word: 'x'.repeat(state % 40) });
        }
        const text = JSON.stringify([...groups].sort());
        const packed = zlib.deflateSync(Buffer.from(text));
        if (zlib.inflateSync(packed).toString() !== text) throw new Error('unpacked differs');
        hash.update(text);
    }
    return hash.digest('hex');
}

const inWorker = (seed) => new Promise((resolve, reject) => {
    new Worker(__filename, { workerData: seed }).on('message', resolve).on('error', reject);
});

const inChild = () => new Promise((resolve, reject) => {
    const program = 'let n = 0; for (const b of Buffer.alloc(1 << 20, "ab")) n += b; console.log(n)';
    execFile(process.execPath, ['-e', program], (error, stdout) => error ? reject(error) : resolve(stdout.trim()));
});

async function main() {
    const digests = await Promise.all([0, 1, 2].map(inWorker));
    const whole = createHash('sha256').update(digests.join('')).digest('hex');
    console.log(whole.slice(0, 16), await inChild());
}

if (isMainThread) main();
else parentPort.postMessage(work(workerData));
