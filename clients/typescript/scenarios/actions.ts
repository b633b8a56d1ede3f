/** The calls of the client's own layer, by their names in scenarios. */

import { Client, type Descriptor, type DurabilityName } from "../src/index.js";
import type { Json } from "../src/messages/json.js";
import type { World } from "./calls.js";

type Given = Readonly<Record<string, Json>>;
type Action = (client: Client, given: Given, world: World) => Promise<Json>;

const CONNECT_MS = 2_000;

/** Action of each name. */
export const ACTIONS: Readonly<Record<string, Action>> = {
  save,
  load,
  list,
  replay,
  watch,
  answer,
  handoff,
  adopt,
  search,
  delete: deleteThread,
  connect,
};

async function save(client: Client, given: Given): Promise<Json> {
  const saved = await client.save(text(given["thread_id"]), given["state"] as Given, {
    parentId: optional(given["parent_id"]),
    metadata: given["metadata"] as Given | undefined,
    summary: optional(given["summary"]),
    agentId: optional(given["agent_id"]),
    durability: optional(given["durability"])?.toLowerCase() as DurabilityName | undefined,
  });
  return { checkpoint_id: saved.checkpointId, durability: saved.durability.toUpperCase() };
}

async function load(client: Client, given: Given): Promise<Json> {
  const checkpointId = optional(given["checkpoint_id"]);
  const record = await client.load(text(given["thread_id"]), { checkpointId });
  return {
    thread_id: record.threadId,
    checkpoint_id: record.checkpointId,
    parent_id: record.parentCheckpointId,
    state: record.state as Record<string, Json>,
    metadata: record.metadata,
    summary: record.summary,
  };
}

async function list(client: Client, given: Given): Promise<Json> {
  const checkpoints: Json[] = [];
  const limit = given["limit"] as number | undefined;
  for await (const checkpoint of client.list(text(given["thread_id"]), { limit })) {
    checkpoints.push({
      checkpoint_id: checkpoint.checkpointId,
      parent_id: checkpoint.parentCheckpointId,
      summary: checkpoint.summary,
    });
  }
  return checkpoints;
}

async function replay(client: Client, given: Given): Promise<Json> {
  const checkpoints: Json[] = [];
  for await (const checkpoint of client.replay(text(given["thread_id"]))) {
    checkpoints.push({
      checkpoint_id: checkpoint.checkpointId,
      state: checkpoint.state as Record<string, Json>,
    });
  }
  return checkpoints;
}

async function watch(client: Client, given: Given): Promise<Json> {
  const cursor = Buffer.from(optional(given["cursor"]) ?? "", "base64");
  const events: Json[] = [];
  for await (const event of client.watch(text(given["thread_id"]), { cursor })) {
    const checkpoint_id = event.checkpoint?.checkpointId ?? "";
    events.push({ kind: event.kind.toUpperCase(), checkpoint_id });
    if (events.length === given["take"]) {
      return { events, cursor: Buffer.from(event.cursor).toString("base64") };
    }
  }
  throw new Error("a watch does not end by itself");
}

async function answer(client: Client, given: Given): Promise<Json> {
  const checkpointId = optional(given["checkpoint_id"]);
  const thread = text(given["thread_id"]);
  return { checkpoint_id: await client.answer(thread, given["value"], { checkpointId }) };
}

async function handoff(client: Client, given: Given): Promise<Json> {
  const descriptor = await client.handoff(text(given["thread_id"]), {
    checkpointId: optional(given["checkpoint_id"]),
    toAgent: optional(given["to_agent"]),
  });
  return { ...descriptor };
}

async function adopt(client: Client, given: Given): Promise<Json> {
  const descriptor = given["descriptor"] as unknown as Descriptor;
  const stages: string[] = [];
  const adoption = await client.adopt(descriptor, text(given["new_thread_id"]), {
    onProgress: ({ stage }) => stages.push(stage.toUpperCase()),
  });
  return {
    new_thread_id: adoption.newThreadId,
    checkpoint_id: adoption.checkpointId,
    verified: adoption.verified,
    stages,
  };
}

async function search(client: Client, given: Given): Promise<Json> {
  const { results } = await client.search(text(given["query"]), {
    threadId: optional(given["thread_id"]),
    limit: given["limit"] as number | undefined,
    filter: given["filter"] as Given | undefined,
  });
  return results.map((one) => ({
    thread_id: one.threadId,
    checkpoint_id: one.checkpointId,
    summary: one.summary,
  }));
}

async function deleteThread(client: Client, given: Given): Promise<Json> {
  return { deleted: Number(await client.delete(text(given["thread_id"]))) };
}

async function connect(_: Client, given: Given, world: World): Promise<Json> {
  const isPlaintext = world.ca_file === "";
  const other = new Client({
    target: text(given["target"]),
    token: world.tokens["writer"],
    caFile: given["ca"] === false || isPlaintext ? undefined : world.ca_file,
    tls: !isPlaintext,
    timeoutMs: CONNECT_MS,
  });
  try {
    return { version: (await other.info()).version };
  } finally {
    other.close();
  }
}

function text(value: Json | undefined): string {
  if (typeof value !== "string") {
    throw new Error(`a text is missing: it is ${JSON.stringify(value)}`);
  }
  return value;
}

function optional(value: Json | undefined): string | undefined {
  return value === undefined ? undefined : text(value);
}
