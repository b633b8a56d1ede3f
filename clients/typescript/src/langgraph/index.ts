/**
 * LangGraph.js checkpointer: a thread's checkpoints and pending writes, kept by TuskPoint.
 *
 * It must never: decide what the service decides, keep state between calls, or hold on to objects
 * of an agent after a method has returned.
 */

export { TuskPointSaver, VECTOR_KEY, type SaverOptions, type Vectorize } from "./saver.js";
export { SUMMARY_KEY, type Summarize } from "./summary.js";
