/**
 * Reads a delta channel of messages with LangGraph.js, and prints what it finds.
 *
 *     node delta_reader.mjs TARGET THREAD
 *
 * `tests/interop/other_clients/test_delta_views.py` makes one file of it and writes the thread.
 *
 * One JSON object is printed: `seed` (the stored value; absent if there is none), `writes` (the ID of
 * each message of the writes), `messages` (the IDs of the merged channel) or `problem` (the error).
 */

import type { BaseMessage } from "@langchain/core/messages";
import { END, MessagesDeltaValue, START, StateGraph, StateSchema } from "@langchain/langgraph";

import { TuskPointSaver } from "../../src/langgraph/index.js";

const [target = "", thread_id = ""] = process.argv.slice(2);
const saver = new TuskPointSaver(target);
const config = { configurable: { thread_id } };
const graph = new StateGraph(new StateSchema({ messages: MessagesDeltaValue }))
  .addNode("answer", () => ({}))
  .addEdge(START, "answer")
  .addEdge("answer", END)
  .compile({ checkpointer: saver });

function ids(messages: BaseMessage[]): (string | undefined)[] {
  return messages.map(({ id }) => id);
}

const { messages: history } = await saver.getDeltaChannelHistory({
  config,
  channels: ["messages"],
});
const read = await graph.getState(config).then(
  ({ values }) => ({ messages: ids(values.messages) }),
  (error: unknown) => ({ problem: String(error) }),
);
const writes = (history?.writes ?? []).flatMap(([, , value]) => ids([value as BaseMessage].flat()));
console.log(JSON.stringify({ seed: history?.seed, writes, ...read }));
saver.close();
