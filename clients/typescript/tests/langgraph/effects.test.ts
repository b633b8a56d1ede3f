/** Effects and leases of graphs: work that is done once, and runs that end when they lost a lease. */

import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";

import { HumanMessage } from "@langchain/core/messages";
import { Annotation, END, interrupt, START, StateGraph, Command } from "@langchain/langgraph";
import type { LangGraphRunnableConfig } from "@langchain/langgraph";
import { afterAll, beforeAll, expect, it } from "vitest";

import {
  Client,
  EffectInputChanged,
  InvalidRequest,
  LeaseLost,
  NotDone,
  PreconditionFailed,
} from "../../src/index.js";
import { TuskPointSaver } from "../../src/langgraph/index.js";
import { all, TestServer } from "../kit.js";

let server: TestServer;
let saver: TuskPointSaver;
let client: Client;

beforeAll(async () => {
  server = await TestServer.start();
  saver = new TuskPointSaver(server.target);
  client = new Client(server.target);
});

afterAll(async () => {
  saver?.close();
  client?.close();
  await server?.remove();
});

const State = Annotation.Root({
  log: Annotation<string[]>({ reducer: (old, added) => [...old, ...added], default: () => [] }),
});
type Node = (config: LangGraphRunnableConfig) => Promise<string>;

/** Return a graph of one node. */
function graphOf(node: Node, checkpointer: TuskPointSaver | false = saver) {
  return new StateGraph(State)
    .addNode("node", async (_, config) => ({ log: [await node(config)] }))
    .addEdge(START, "node")
    .compile(checkpointer === false ? {} : { checkpointer });
}

const thread = () => ({ configurable: { thread_id: randomUUID() } });

it.each(["async", "sync"] as const)("a repeated task gets the result (%s)", async (durability) => {
  const config = { ...thread(), durability };
  const keys: string[] = [];
  const graph = graphOf(async (node) => {
    const input = { amount: 5, message: new HumanMessage("pay") };
    const receipt = await saver.effect(node, "charge", { input }, ({ idempotencyKey }) => {
      keys.push(idempotencyKey);
      return { receipt: new HumanMessage("paid") };
    });
    expect(receipt.receipt).toBeInstanceOf(HumanMessage);
    return `${receipt.receipt.content} ${String(interrupt("sure?"))}`;
  });
  await graph.invoke({}, config);
  const result = await graph.invoke(new Command({ resume: "yes" }), config);
  expect(result.log).toEqual(["paid yes"]);
  const effects = await all(client.listEffects(config.configurable.thread_id));
  expect(effects.map(({ idempotencyKey }) => idempotencyKey)).toEqual(keys);
  expect(effects).toMatchObject([{ name: "charge", state: "done", checkpointNs: "" }]);
  // Another task is other work.
  await graph.invoke({}, config);
  expect(keys).toHaveLength(2);
});

it("a task of a subgraph, and a key of your own for the whole thread", async () => {
  const config = thread();
  let done = 0;
  const next = (word: string) => {
    done += 1;
    return `${word} ${done}`;
  };
  const inner = graphOf(
    (node) => saver.effect(node, "mail", { input: {} }, () => next("mail")),
    false,
  );
  const graph = new StateGraph(State)
    .addNode("inner", inner)
    .addNode("once", async (_, node) => ({
      log: [await saver.effect(node, "welcome", { key: "welcome" }, () => next("hi"))],
    }))
    .addEdge(START, "inner")
    .addEdge("inner", "once")
    .compile({ checkpointer: saver });
  await graph.invoke({}, config);
  const { log } = await graph.invoke({}, config);
  expect(new Set(log)).toEqual(new Set(["mail 1", "hi 2", "mail 3"]));
  const effects = await all(client.listEffects(config.configurable.thread_id));
  expect(effects.map(({ name }) => name).sort()).toEqual(["mail", "mail", "welcome"]);
  expect(effects.filter(({ checkpointNs }) => checkpointNs.startsWith("inner:"))).toHaveLength(2);
});

it("an effect that a later run could not find is refused", async () => {
  const work = () => "done";
  const effect = (node: LangGraphRunnableConfig) => saver.effect(node, "mail", { input: {} }, work);
  await expect(effect(thread())).rejects.toThrow(PreconditionFailed);
  await expect(graphOf(effect, false).invoke({}, thread())).rejects.toThrow(PreconditionFailed);
  await expect(saver.effect({}, "mail", { key: "k" }, work)).rejects.toThrow(InvalidRequest);
  const nameless = graphOf((node) => saver.effect(node, "mail", {}, work));
  await expect(nameless.invoke({}, thread())).rejects.toThrow("input");
  const changed = graphOf(async (node) => {
    await saver.effect(node, "mail", { input: "a" }, work);
    return await saver.effect(node, "mail", { input: "b" }, work);
  });
  await expect(changed.invoke({}, thread())).rejects.toThrow(EffectInputChanged);
});

it("work that was not done is done by the next attempt", async () => {
  const config = thread();
  let attempts = 0;
  const graph = graphOf((node) =>
    saver.effect(node, "mail", { input: {} }, ({ attempt }) => {
      attempts = attempt;
      return attempt === 1 ? new NotDone("busy") : "sent";
    }),
  );
  await expect(graph.invoke({}, config)).rejects.toThrow("busy");
  expect((await graph.invoke(null, config)).log).toEqual(["sent"]);
  expect(attempts).toBe(2);
});

it.each(["async", "sync"] as const)("a run ends if it lost its lease (%s)", async (durability) => {
  const config = { ...thread(), durability, recursionLimit: 5_000 };
  const threadId = config.configurable.thread_id;
  let start = () => {};
  const started = new Promise<void>((resolve) => {
    start = resolve;
  });
  const graph = new StateGraph(State)
    .addNode("step", async () => {
      start();
      await pause(1);
      return { log: [] };
    })
    .addEdge(START, "step")
    .addConditionalEdges("step", () => "step", ["step", END])
    .compile({ checkpointer: saver });
  const run = saver.withLease(threadId, { owner: "first", ttlMs: 3_600_000 }, () =>
    graph.invoke({}, config),
  );
  const ended = expect(run).rejects.toThrow(LeaseLost);
  await started;
  const lease = await client.acquireLease(threadId, { onBusy: "take_over" });
  await ended;
  const count = (await all(client.list(threadId))).length;
  await client.releaseLease(lease);
  expect((await all(client.list(threadId))).length).toBe(count);
});
