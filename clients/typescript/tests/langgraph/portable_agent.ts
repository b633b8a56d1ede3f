/**
 * The JavaScript half of a graph that two languages drive: one step per run.
 *
 *     node portable_agent.mjs TARGET THREAD STEP
 *
 * `tests/interop/langgraph_js/test_portable_graphs.py` makes one file of it and is the other half.
 *
 * The graph, which the Python half has in the same shape:
 *
 *     START -> plan -> dig (one per Send) -> ask (interrupts) -> write -> END
 *
 * Its channels are `topic` (text), `log` (texts, appended), `messages` (LangChain's), `notes`
 * (texts, a delta channel with a snapshot after 3 updates), `data` (bytes), `tags` (a set of texts).
 *
 * - `plan` logs "plan in js", adds the AI message "a plan for TOPIC" and the note "note of js", sets
 *   `data` to the bytes 0 and 255 and `tags` to "a" and "b", and sends "TOPIC 0", "TOPIC 1" and
 *   "TOPIC 2" to `dig`, as `topic`.
 * - `dig` logs "dig TOPIC N in js" and adds the note "note on TOPIC N".
 * - `ask` interrupts with `{"question": "publish?"}` and logs "asked in js: ANSWER".
 * - `write` logs "write in js" and adds the AI message "N messages", counted before it.
 *
 * The steps:
 *
 * - `start`: invoke with topic "tusks", the human message "hello from js" and the log entry
 *   "in js"; stop before `dig`, its sends waiting.
 * - `go`: continue without input, up to the question.
 * - `answer`: resume with "yes from js".
 * - `more`: invoke a thread that has ended with topic "more", up to the question.
 * - `state`: only read.
 *
 * One JSON object is printed: `asked` (what the interrupts that wait ask), `next` (the nodes,
 * sorted), `topic`, `log`, `messages` as `[type, content]`, `notes`, `data` as numbers, `tags` sorted,
 * `versions` (the kinds of the channels' versions, `["text"]`), `history` (how many checkpoints).
 */

import { AIMessage, HumanMessage, type BaseMessage } from "@langchain/core/messages";
import {
  Command,
  DeltaValue,
  END,
  INTERRUPT,
  MessagesValue,
  ReducedValue,
  START,
  Send,
  StateGraph,
  StateSchema,
  interrupt,
} from "@langchain/langgraph";
import type { CheckpointTuple, Interrupt } from "@langchain/langgraph";
import { z } from "zod";

import { TuskPointSaver } from "../../src/langgraph/index.js";

const texts = () => z.array(z.string()).default([]);

const State = new StateSchema({
  topic: z.string(),
  log: new ReducedValue(texts(), { reducer: (left, right) => [...left, ...right] }),
  messages: MessagesValue,
  notes: new DeltaValue(texts(), {
    reducer: (current, writes) => [...current, ...writes.flat()],
    snapshotFrequency: 3,
  }),
  data: z.instanceof(Uint8Array).optional(),
  tags: z.set(z.string()).optional(),
});

function portableGraph(checkpointer: TuskPointSaver) {
  return new StateGraph(State)
    .addNode("plan", ({ topic }) => ({
      log: ["plan in js"],
      messages: [new AIMessage(`a plan for ${topic}`)],
      notes: ["note of js"],
      data: new Uint8Array([0, 255]),
      tags: new Set(["b", "a"]),
    }))
    .addNode("dig", ({ topic }) => ({ log: [`dig ${topic} in js`], notes: [`note on ${topic}`] }))
    .addNode("ask", () => ({ log: [`asked in js: ${interrupt({ question: "publish?" })}`] }))
    .addNode("write", ({ messages }) => ({
      log: ["write in js"],
      messages: [new AIMessage(`${messages.length} messages`)],
    }))
    .addEdge(START, "plan")
    .addConditionalEdges(
      "plan",
      ({ topic }) => [0, 1, 2].map((number) => new Send("dig", { topic: `${topic} ${number}` })),
      ["dig"],
    )
    .addEdge("dig", "ask")
    .addEdge("ask", "write")
    .addEdge("write", END)
    .compile({ checkpointer });
}

type PortableGraph = ReturnType<typeof portableGraph>;
type Config = { configurable: { thread_id: string } };

const STEPS = {
  start: (graph: PortableGraph, config: Config) => {
    const messages = [new HumanMessage("hello from js")];
    const input = { topic: "tusks", log: ["in js"], messages };
    return graph.invoke(input, { ...config, interruptBefore: ["dig"] });
  },
  go: (graph: PortableGraph, config: Config) => graph.invoke(null, config),
  answer: (graph: PortableGraph, config: Config) =>
    graph.invoke(new Command({ resume: "yes from js" }), config),
  more: (graph: PortableGraph, config: Config) => graph.invoke({ topic: "more" }, config),
  state: async () => undefined,
};

async function report(
  graph: PortableGraph,
  saver: TuskPointSaver,
  config: Config,
): Promise<unknown> {
  const state = await graph.getState(config);
  const { topic, log, messages, notes, data, tags } = state.values;
  const head = await saver.getTuple(config);
  const versions = Object.values(head?.checkpoint.channel_versions ?? {});
  const tuples = [];
  for await (const tuple of saver.list(config)) {
    tuples.push(tuple);
  }
  return {
    asked: interruptsOf(head).map((one) => one.value),
    next: [...state.next].sort(),
    topic,
    log,
    messages: messages.map((one: BaseMessage) => [one.type, one.content]),
    notes,
    data: [...(data ?? [])],
    tags: [...(tags ?? [])].sort(),
    versions: [...new Set(versions.map(kindOf))],
    history: tuples.length,
  };
}

/** Return the waiting interrupts: a state lists none for a task that another language prepared. */
function interruptsOf(head: CheckpointTuple | undefined): Interrupt[] {
  const writes = head?.pendingWrites ?? [];
  return writes.flatMap(([, channel, value]) =>
    channel === INTERRUPT ? (value as Interrupt[]) : [],
  );
}

function kindOf(version: string | number): string {
  return typeof version === "string" ? "text" : "number";
}

const [target, threadId, step = ""] = process.argv.slice(2);
const take = Object.hasOwn(STEPS, step) ? STEPS[step as keyof typeof STEPS] : undefined;
if (target === undefined || threadId === undefined || take === undefined) {
  console.error(`usage: portable_agent.mjs TARGET THREAD ${Object.keys(STEPS).join("|")}`);
  process.exitCode = 2;
} else {
  const saver = new TuskPointSaver(target);
  const graph = portableGraph(saver);
  const config = { configurable: { thread_id: threadId } };
  await take(graph, config);
  console.log(JSON.stringify(await report(graph, saver, config)));
  saver.close();
}
