// The official client, with a record of what came over the wire: its schemas
// fill in defaults and move keys, so what the server wrote is read from there.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResultSchema } from "@modelcontextprotocol/sdk/types.js";

export async function connect(url) {
  const answers = [];
  const transport = new StreamableHTTPClientTransport(url, { fetch: recording(answers) });
  const client = new Client({ name: "headgate-e2e", version: "0.0.0" });
  await client.connect(transport);
  return new Peer(client, answers);
}

class Peer {
  #answers;

  constructor(client, answers) {
    this.client = client;
    this.#answers = answers;
  }

  /** Calls any method; resolves to the result as the server wrote it. */
  async request(method, params = {}) {
    return (await this.observe(() => this.client.request({ method, params }, ResultSchema))).raw;
  }

  /** Runs one call of the client; resolves to its value and the raw result. */
  async observe(call) {
    this.#answers.length = 0;
    const value = await call();
    const [answer] = this.#answers;
    return { value, raw: JSON.parse(await answer).result };
  }

  close() {
    return this.client.close();
  }
}

/** A fetch that keeps the JSON text that answered each POST. */
function recording(answers) {
  return async (url, init) => {
    const response = await fetch(url, init);
    if (init?.method === "POST" && response.status === 200) {
      const type = response.headers.get("content-type") ?? "";
      const answer = response.clone().text().then((body) => message(type, body));
      answer.catch(() => {}); // closing the client aborts bodies that no test waits for
      answers.push(answer);
    }
    return response;
  };
}

/** The response among the messages of a body, be it JSON or an event stream. */
function message(type, body) {
  if (!type.startsWith("text/event-stream")) {
    return body;
  }
  const data = body
    .split(/\r?\n/)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice("data:".length).trim());
  return data.find((text) => /"(result|error)":/.test(text) && "id" in JSON.parse(text)) ?? "";
}
