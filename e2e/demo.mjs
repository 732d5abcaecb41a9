// Builds the real binary and runs its demo, the way an operator would.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

// A cold build compiles all dependencies on slow machines.
const buildTimeout = 10 * 60_000;
const startTimeout = 30_000;

/** Compiles the binary into a folder of its own; remove() deletes it. */
export async function build() {
  const dir = await mkdtemp(path.join(tmpdir(), "headgate-e2e-"));
  const remove = () => rm(dir, { recursive: true, force: true });
  const binary = path.join(dir, "headgate");
  try {
    await promisify(execFile)("go", ["build", "-o", binary, "./cmd/headgate"], { cwd: root, timeout: buildTimeout });
  } catch (err) {
    await remove();
    throw err;
  }
  return { binary, remove };
}

/** Starts the demo without traffic of its own and waits until it listens. */
export async function start(binary) {
  const port = await freePort();
  const child = spawn(binary, ["demo", "--mcp", `127.0.0.1:${port}`, "--metrics", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--traffic", "0"], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const demo = new Demo(child, new URL(`http://127.0.0.1:${port}/mcp`));
  try {
    await demo.listening(port);
  } catch (err) {
    child.kill("SIGKILL");
    throw err;
  }
  return demo;
}

class Demo {
  #child;
  #exited;
  output = "";

  constructor(child, url) {
    this.#child = child;
    this.url = url;
    this.#exited = once(child, "exit").then(([code, signal]) => ({ code, signal }));
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => (this.output += text));
    }
  }

  async listening(port) {
    for (const end = Date.now() + startTimeout; Date.now() < end; await sleep(50)) {
      if (this.#child.exitCode !== null || this.#child.signalCode !== null) {
        throw new Error(`the demo ended before it listened:\n${this.output}`);
      }
      if (await accepts(port)) {
        return;
      }
    }
    throw new Error(`the demo does not listen:\n${this.output}`);
  }

  /** Sends signal; resolves to how the demo ended, and after how long. */
  async stop(signal = "SIGTERM", patience = 15_000) {
    const began = Date.now();
    this.#child.kill(signal);
    const killer = setTimeout(() => this.#child.kill("SIGKILL"), patience);
    const end = await this.#exited;
    clearTimeout(killer);
    return { ...end, after: Date.now() - began };
  }
}

/** A port that nobody had a moment ago. */
async function freePort() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

async function accepts(port) {
  const socket = net.connect(port, "127.0.0.1");
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
