/**
 * The JavaScript half of a graph that waits: for two branches, for all else to end, after a failure.
 *
 *     node join_agent.mjs TARGET THREAD STEP
 *
 * The graph, which the Python half has in the same shape:
 *
 *     START -> quick ----------> meet -> END
 *     START -> slow -> slower -> meet
 *     START -> last (deferred) -> END
 *
 * Every node appends its name and the language to `log`. STEP is one of
 *
 * | STEP | does |
 * |---|---|
 * | `start` | invokes, and stops before `slower` |
 * | `fail` | continues without input; `slower` throws `TypeError: no tusks` |
 * | `go` | continues without input |
 * | `state` | only reads |
 *
 * It prints one JSON object: `next` (the nodes, sorted), `log`, `joins` (the values of the channels
 * that wait, sets as sorted lists) and `failures` (name and message of each error).
 */

import { Annotation, END, START, StateGraph } from "@langchain/langgraph";
import { ERROR } from "@langchain/langgraph-checkpoint";

import { TuskPointSaver } from "../../src/langgraph/index.js";

const State = Annotation.Root({
  log: Annotation<string[]>({ reducer: (left, right) => [...left, ...right], default: () => [] }),
});

function joinGraph(checkpointer: TuskPointSaver, isBroken: boolean) {
  const step = (name: string) => () => ({ log: [`${name} in js`] });
  return new StateGraph(State)
    .addNode("quick", step("quick"))
    .addNode("slow", step("slow"))
    .addNode("slower", () => {
      if (isBroken) {
        throw new TypeError("no tusks");
      }
      return step("slower")();
    })
    .addNode("meet", step("meet"))
    .addNode("last", step("last"), { defer: true })
    .addEdge(START, "quick")
    .addEdge(START, "slow")
    .addEdge(START, "last")
    .addEdge("slow", "slower")
    .addEdge(["quick", "slower"], "meet")
    .addEdge("meet", END)
    .addEdge("last", END)
    .compile({ checkpointer });
}

/** Return a value as JSON, with sets as sorted lists. */
function listed(value: unknown): unknown {
  if (value instanceof Set) {
    return [...value].sort();
  }
  return Array.isArray(value) ? value.map(listed) : value;
}

const [target, threadId, step] = process.argv.slice(2);
if (target === undefined || threadId === undefined || step === undefined) {
  console.error("usage: join_agent.mjs TARGET THREAD start|fail|go|state");
  process.exit(2);
}
const saver = new TuskPointSaver({ target });
const graph = joinGraph(saver, step === "fail");
const config = { configurable: { thread_id: threadId } };
if (step === "start") {
  await graph.invoke({}, { ...config, interruptBefore: ["slower"] });
} else if (step === "go") {
  await graph.invoke(null, config);
} else if (step === "fail") {
  await graph.invoke(null, config).catch(() => undefined);
}
const state = await graph.getState(config);
const head = await saver.getTuple(config);
const values = Object.entries(head?.checkpoint.channel_values ?? {});
const errors = (head?.pendingWrites ?? []).filter(([, channel]) => channel === ERROR);
console.log(
  JSON.stringify({
    next: [...state.next].sort(),
    log: state.values.log,
    joins: Object.fromEntries(
      values
        .filter(([name]) => name.startsWith("join:") || name === "branch:to:last")
        .map(([name, value]) => [name, listed(value)] as const)
        .sort(),
    ),
    failures: errors.map(([, , error]) => {
      const { name, message } = error as Error;
      return [name, message];
    }),
  }),
);
saver.close();
