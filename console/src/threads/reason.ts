/** What a thread waits for, failed with, or did last, on one line of a list. Pure. */
import { type Thread, ThreadState } from "@contract/thread_pb.js";

export interface Reason {
  kind: "question" | "failure" | "summary";
  /** Node that asks or failed; empty if the server cannot tell. */
  node: string;
  /** Type of the error; empty for anything else. */
  type: string;
  /** The question, the last line of the error, or the summary; empty if there is none. */
  text: string;
  /** Everything that the server told, for a tooltip. */
  whole: string;
}

/** Return the reason why a thread is in its group. */
export function reasonOf(thread: Thread): Reason {
  if (thread.state === ThreadState.INTERRUPTED) {
    const { node = "", text = "" } = thread.question ?? {};
    return { kind: "question", node, type: "", text, whole: joined(node, text) };
  }
  if (thread.state === ThreadState.FAILED) {
    const { node = "", type = "", message = "" } = thread.failure ?? {};
    const whole = joined(node, type, message);
    return { kind: "failure", node, type, text: lastLine(message), whole };
  }
  const { summary } = thread;
  return { kind: "summary", node: "", type: "", text: summary, whole: summary };
}

function lastLine(message: string): string {
  return message.trimEnd().split("\n").at(-1)?.trim() ?? "";
}

function joined(...parts: string[]): string {
  return parts.filter(Boolean).join(": ");
}
