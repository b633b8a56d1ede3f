/** Real graphs on the real runtime, compared with LangGraph.js's in-memory saver. */

import { randomUUID } from "node:crypto";

import { MemorySaver } from "@langchain/langgraph";
import type { BaseCheckpointSaver } from "@langchain/langgraph";
import type { RunnableConfig } from "@langchain/core/runnables";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { Client } from "../../src/client/client.js";
import { Conflict } from "../../src/errors.js";
import { TuskPointSaver } from "../../src/langgraph/index.js";
import { all, TestServer } from "../kit.js";
import {
  answer,
  asked,
  deltaGraph,
  fragileGraph,
  interruptedGraph,
  parallelGraph,
  story,
} from "./graphs.js";

let server: TestServer;
let saver: TuskPointSaver;

beforeAll(async () => {
  server = await TestServer.start();
  saver = new TuskPointSaver(server.target);
});

afterAll(async () => {
  saver?.close();
  await server?.remove();
});

const DURABILITIES = ["sync", "async", "exit"] as const;

const thread = () => ({ configurable: { thread_id: randomUUID() } });

/** Return the results of a scenario with the reference saver, and with TuskPoint's saver. */
async function both<Result>(play: (one: BaseCheckpointSaver) => Promise<Result>) {
  return [await play(new MemorySaver()), await play(saver)] as const;
}

describe("as with LangGraph.js's own saver", () => {
  it.each(DURABILITIES)("parallel tasks and sends (%s)", async (durability) => {
    const [expected, actual] = await both(async (one) => {
      const config = thread();
      const graph = parallelGraph(one);
      const results = [];
      for (const topic of ["a", "b"]) {
        results.push(await graph.invoke({ topic, log: ["in"] }, { ...config, durability }));
      }
      return { results, history: (await all(graph.getStateHistory(config))).map(story) };
    });
    expect(actual).toEqual(expected);
    expect(actual.history).toHaveLength(durability === "exit" ? 2 : 10);
  });

  it.each(DURABILITIES)("interrupts in a subgraph (%s)", async (durability) => {
    const [expected, actual] = await both(async (one) => {
      const config = thread();
      const graph = interruptedGraph(one);
      const turns = [];
      for (const given of [{ log: ["in"] }, answer("yes"), answer("no")]) {
        const result = await graph.invoke(given, { ...config, durability });
        const state = await graph.getState(config, { subgraphs: true });
        const nested = state.tasks.flatMap((task) =>
          task.state !== undefined && "values" in task.state ? [story(task.state)] : [],
        );
        turns.push({ asked: asked(result), log: result.log, state: story(state), nested });
      }
      return { turns, history: (await all(graph.getStateHistory(config))).map(story) };
    });
    expect(actual).toEqual(expected);
    expect(actual.turns.map((turn) => turn.asked)).toEqual([[{ question: "one?" }], ["two?"], []]);
  });

  it("time travel, and a fork of the past", async () => {
    const [expected, actual] = await both(async (one) => {
      const config = thread();
      const graph = parallelGraph(one);
      await graph.invoke({ topic: "a", log: [] }, config);
      const history = await all(graph.getStateHistory(config));
      const planned = history.find((past) => past.next.includes("dig"));
      expect(planned).toBeDefined();
      const past = planned?.config ?? {};
      const replayed = await graph.invoke(null, past);
      const changed = await graph.updateState(past, { topic: "changed", log: ["fork"] }, "plan");
      const forked = await graph.invoke(null, changed);
      return {
        replayed,
        forked,
        past: story(await graph.getState(past)),
        history: (await all(graph.getStateHistory(config))).map(story),
      };
    });
    expect(actual).toEqual(expected);
    expect(actual.forked.log).toContain("dig changed 1");
  });

  it("a copy of the first checkpoint, which has no parent to inherit from", async () => {
    const [expected, actual] = await both(async (one) => {
      const config = thread();
      const graph = parallelGraph(one);
      await graph.invoke({ topic: "a", log: ["in"] }, config);
      const first = (await all(graph.getStateHistory(config))).at(-1);
      const copied = await graph.updateState(first?.config ?? {}, null, "__copy__");
      return {
        copied: story(await graph.getState(copied)),
        result: await graph.invoke(null, copied),
      };
    });
    expect(actual).toEqual(expected);
    expect(actual.result.log).toEqual(expect.arrayContaining(["in", "dig a 2", "9 notes"]));
  });

  it("interrupted threads that are updated, replayed and copied", async () => {
    const [expected, actual] = await both(async (one) => {
      const config = thread();
      const graph = interruptedGraph(one);
      await graph.invoke({ log: ["in"] }, config);
      await graph.updateState(config, { log: ["from outside"] }, "before");
      await graph.invoke(answer("yes"), config);
      const history = await all(graph.getStateHistory(config));
      const waiting = history.find((past) => past.next.includes("child"))?.config ?? {};
      const again = await graph.invoke(null, waiting);
      const copied = await graph.updateState(waiting, null, "__copy__");
      return {
        log: again.log,
        copied: story(await graph.getState(copied)),
        newest: (await all(graph.getStateHistory(config, { limit: 4 }))).map(story),
        updates: (await all(graph.getStateHistory(config, { filter: { source: "update" } }))).map(
          story,
        ),
      };
    });
    expect(actual).toEqual(expected);
    expect(actual.updates).toHaveLength(1);
  });

  it.each(DURABILITIES)("delta channels (%s)", async (durability) => {
    const [expected, actual] = await both(async (one) => {
      const config = thread();
      const graph = deltaGraph(one);
      const results = [];
      for (const run of [0, 1]) {
        results.push(await graph.invoke({ items: [`run ${run}`] }, { ...config, durability }));
      }
      await graph.updateState(config, { items: ["from outside"] }, "echo");
      const middle = (await all(graph.getStateHistory(config)))[3]?.config ?? {};
      const forked = await graph.updateState(middle, { items: ["fork"] }, "echo");
      results.push(await graph.invoke({ items: ["after the fork"] }, { ...forked, durability }));
      return { results, history: (await all(graph.getStateHistory(config))).map(story) };
    });
    expect(actual).toEqual(expected);
    expect(actual.results[1]?.rare).toEqual(["4", "8"]);
  });
});

it("every checkpoint says what happened", async () => {
  const config = thread();
  await parallelGraph(saver).invoke({ topic: "a", log: [] }, config);
  const client = new Client(server.target);
  const entries = await all(client.list(config.configurable.thread_id));
  client.close();
  expect(entries.map((entry) => entry.summary).reverse()).toEqual([
    "step -1: input received",
    "step 0: step finished; changed log, topic; next plan",
    "step 1: plan ran; changed current_plan, log; next ask, zoom; plan: research a",
    "step 2: ask, zoom, sent tasks ran; changed log; plan: research a",
    "step 3: write ran; changed log; plan: research a",
  ]);
});

describe("when processes end", () => {
  it("another saver answers what the first one asked", async () => {
    const config = thread();
    const first = new TuskPointSaver(server.target);
    const result = await interruptedGraph(first).invoke({ log: ["in"] }, config);
    first.close();
    expect(asked(result)).toEqual([{ question: "one?" }]);

    const second = new TuskPointSaver(server.target);
    const graph = interruptedGraph(second);
    await graph.invoke(answer("yes"), config);
    const done = await graph.invoke(answer("no"), config);
    second.close();
    expect(done.log).toEqual(expect.arrayContaining(["sibling", "child yes and no"]));
    expect(done.log.at(-1)).toBe("after");
  });

  it("what had finished in the step that failed does not run again", async () => {
    const config = thread();
    const ran: string[] = [];
    let isBroken = true;
    const graph = (one: TuskPointSaver) =>
      fragileGraph(
        one,
        (node) => ran.push(node),
        () => isBroken,
      );
    await expect(graph(saver).invoke({ log: [] }, config)).rejects.toThrow("power failure");
    isBroken = false;
    const other = new TuskPointSaver(server.target);
    const done = await graph(other).invoke(null, config);
    other.close();
    expect(ran.filter((node) => node === "sturdy")).toHaveLength(1);
    expect([...done.log].sort()).toEqual(["fragile", "sturdy"]);
  });
});

it("a graph survives a server that is killed and comes back", async () => {
  const config = thread();
  let isBack: Promise<void> | undefined;
  const kill = (node: string) => {
    if (node === "fragile") {
      isBack = server.stop("SIGKILL").then(() => server.restart());
    }
  };
  const graph = fragileGraph(saver, kill, () => false);
  const done = await graph.invoke({ log: ["in"] }, config);
  await isBack;
  expect(done.log).toHaveLength(3);
  const history = await all(graph.getStateHistory(config));
  expect(history[0]?.values).toEqual(done);
  expect(history.map((past) => past.metadata?.step)).toEqual([1, 0, -1]);
});

describe("two agents on one thread", () => {
  it("both get through, as branches", async () => {
    const config = thread();
    const outcomes = await race(config, false);
    expect(outcomes.map((outcome) => outcome.status)).toEqual(["fulfilled", "fulfilled"]);
    for (const [agent, outcome] of outcomes.entries()) {
      const log = outcome.status === "fulfilled" ? outcome.value.log : [];
      expect(log).toContain(`dig ${agent} 2`);
      expect(log).not.toContain(`dig ${1 - agent} 2`);
    }
  });

  it("with a fence one of them learns of the other", async () => {
    const config = thread();
    await parallelGraph(saver).invoke({ topic: "before", log: [] }, config);
    const outcomes = await race(config, true);
    const refused = outcomes.filter((outcome) => outcome.status === "rejected");
    expect(refused).toHaveLength(1);
    expect(refused[0]?.reason).toBeInstanceOf(Conflict);
  });
});

/** Run two agents, each with its own saver, on a thread that both have just loaded. */
async function race(config: ReturnType<typeof thread>, fence: boolean) {
  const met = meeting(2);
  class Racing extends TuskPointSaver {
    override async getTuple(where: RunnableConfig) {
      const tuple = await super.getTuple(where);
      await met();
      return tuple;
    }
  }
  const savers = [0, 1].map(() => new Racing({ target: server.target, fence }));
  const runs = savers.map((one, agent) =>
    parallelGraph(one).invoke({ topic: `${agent}`, log: [] }, config),
  );
  const outcomes = await Promise.allSettled(runs);
  for (const one of savers) {
    one.close();
  }
  return outcomes;
}

/** Return a wait that ends for all callers once the given number of callers wait. */
function meeting(count: number): () => Promise<void> {
  let arrived = 0;
  let open: () => void = () => undefined;
  const met = new Promise<void>((resolve) => {
    open = resolve;
  });
  return () => {
    arrived += 1;
    if (arrived === count) {
      open();
    }
    return met;
  };
}
