/** Graphs that the tests run, and the results of their runs. */

import {
  Annotation,
  Command,
  DeltaValue,
  END,
  START,
  Send,
  StateGraph,
  StateSchema,
  interrupt,
} from "@langchain/langgraph";
import type { BaseCheckpointSaver, StateSnapshot } from "@langchain/langgraph";
import { z } from "zod";

const log = () =>
  Annotation<unknown[]>({ reducer: (left, right) => [...left, ...right], default: () => [] });

const State = Annotation.Root({
  log: log(),
  topic: Annotation<string>,
  current_plan: Annotation<string>,
});

const Child = Annotation.Root({ log: log(), answer: Annotation<string> });

const append = (current: string[], writes: string[][]): string[] => [...current, ...writes.flat()];

const Delta = new StateSchema({
  items: new DeltaValue(z.array(z.string()).default([]), { reducer: append, snapshotFrequency: 3 }),
  rare: new DeltaValue(z.array(z.string()).default([]), { reducer: append }),
  round: z.number().default(0),
});

/** Plan, research in parallel (fixed edges and sends), write. */
export function parallelGraph(checkpointer: BaseCheckpointSaver) {
  return new StateGraph(State)
    .addNode("plan", (state) => ({
      log: ["plan"],
      current_plan: `research ${state.topic}`,
    }))
    .addNode("dig", (state) => ({ log: [`dig ${state.topic}`] }))
    .addNode("zoom", () => ({ log: ["zoom"] }))
    .addNode("ask", () => ({ log: ["ask", null, new Uint8Array([0, 255])] }))
    .addNode("write", (state) => ({ log: [`${state.log.length} notes`] }), { defer: true })
    .addEdge(START, "plan")
    .addConditionalEdges(
      "plan",
      ({ topic }) => [0, 1, 2].map((number) => new Send("dig", { topic: `${topic} ${number}` })),
      ["dig"],
    )
    .addEdge("plan", "zoom")
    .addEdge("plan", "ask")
    .addEdge(["zoom", "ask"], "write")
    .addEdge("write", END)
    .compile({ checkpointer });
}

/** A subgraph that asks twice, between two nodes of the parent, and a sibling that does not ask. */
export function interruptedGraph(checkpointer: BaseCheckpointSaver) {
  const child = new StateGraph(Child)
    .addNode("first", () => ({ log: ["child first"], answer: interrupt({ question: "one?" }) }))
    .addNode("second", (state) => ({ log: [`child ${state.answer} and ${interrupt("two?")}`] }))
    .addEdge(START, "first")
    .addEdge("first", "second")
    .compile();
  return new StateGraph(State)
    .addNode("before", () => ({ log: ["before"] }))
    .addNode("child", child)
    .addNode("sibling", () => ({ log: ["sibling"] }))
    .addNode("after", () => ({ log: ["after"] }))
    .addEdge(START, "before")
    .addEdge("before", "child")
    .addEdge("before", "sibling")
    .addEdge(["child", "sibling"], "after")
    .compile({ checkpointer });
}

/** Two parallel writers of delta channels, in a loop. */
export function deltaGraph(checkpointer: BaseCheckpointSaver) {
  return new StateGraph(Delta)
    .addNode("turn", (state) => {
      const round = state.round + 1;
      return { round, items: [`turn ${round}`], ...(round % 4 ? {} : { rare: [`${round}`] }) };
    })
    .addNode("echo", (state) => ({ items: [`echo of ${state.items.length}`] }))
    .addEdge(START, "turn")
    .addConditionalEdges("turn", (state) => (state.round % 5 ? ["turn", "echo"] : END), [
      "turn",
      "echo",
      END,
    ])
    .compile({ checkpointer });
}

/** Two tasks of one step; one task fails as long as `isBroken` returns true. */
export function fragileGraph(
  checkpointer: BaseCheckpointSaver,
  ran: (node: string) => void,
  isBroken: () => boolean,
) {
  return new StateGraph(State)
    .addNode("sturdy", () => {
      ran("sturdy");
      return { log: ["sturdy"] };
    })
    .addNode("fragile", async () => {
      ran("fragile");
      if (isBroken()) {
        throw new Error("power failure");
      }
      return { log: ["fragile"] };
    })
    .addEdge(START, "sturdy")
    .addEdge(START, "fragile")
    .compile({ checkpointer });
}

/** A node that writes a plan, then nodes of one step, given by their names. */
export function planningGraph(
  checkpointer: BaseCheckpointSaver,
  plan: unknown,
  nodes: Readonly<Record<string, () => { log: unknown[] }>>,
) {
  const graph = new StateGraph(State)
    .addNode("plan", () => ({ log: [plan] }))
    .addNode(nodes)
    .addEdge(START, "plan");
  for (const name of Object.keys(nodes)) {
    graph.addEdge("plan", name);
  }
  return graph.compile({ checkpointer });
}

/** Return the content of a snapshot, without IDs and times. */
export function story(snapshot: StateSnapshot): unknown {
  return {
    values: snapshot.values,
    next: [...snapshot.next].sort(),
    source: snapshot.metadata?.source,
    step: snapshot.metadata?.step,
    isRoot: snapshot.parentConfig === undefined,
    tasks: snapshot.tasks
      .map((task) => ({
        name: task.name,
        error: task.error,
        interrupts: task.interrupts.map((one) => one.value),
        result: task.result,
      }))
      .sort((one, other) => JSON.stringify(one).localeCompare(JSON.stringify(other))),
  };
}

/** Return the questions of the interrupts in the result of a run. */
export function asked(result: Record<string, unknown>): unknown[] {
  const interrupts = result["__interrupt__"];
  return Array.isArray(interrupts) ? interrupts.map((one) => one.value) : [];
}

/** Return the input that resumes a thread with an answer. */
export function answer(resume: unknown) {
  return new Command<unknown, Record<string, never>, never>({ resume });
}
