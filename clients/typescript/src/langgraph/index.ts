/**
 * LangGraph.js checkpointer: TuskPoint stores a thread's checkpoints and pending writes.
 *
 * It must never: make decisions of the service, keep state between calls, or keep references to
 * objects of an agent after a method has returned.
 */

export type { SaverEffectOptions } from "./effects.js";
export { TuskPointSaver, VECTOR_KEY, type SaverOptions, type Vectorize } from "./saver.js";
export { SUMMARY_KEY, type Summarize } from "./summary.js";
