/** Pairs calls of tools with their results, by ID. Pure. */
import type { Message, ToolCall, ToolResult } from "./messages.ts";

/** A message as it is shown: its calls with their results. */
export interface Turn {
  message: Message;
  calls: PairedCall[];
  /** Results in this message that answer no call of the conversation. */
  results: ToolResult[];
}

export interface PairedCall extends ToolCall {
  result: ToolResult | undefined;
  /** Whether a result can still come: since the call, nobody but tools said anything. */
  waits: boolean;
}

/**
 * Return the messages with each result under its call. A message that has nothing but such results
 * is left out.
 *
 * A result belongs to the last call before it that has its ID and no result: some models use the
 * same IDs in each of their messages.
 */
export function turnsOf(messages: readonly Message[]): Turn[] {
  const lastWords = messages.findLastIndex(({ role }) => role !== "tool");
  const open = new Map<string, PairedCall>();
  const turns: Turn[] = [];
  for (const [index, message] of messages.entries()) {
    const calls = message.calls.map((call): PairedCall => {
      return { ...call, result: undefined, waits: index >= lastWords };
    });
    for (const call of calls) {
      if (call.id) {
        open.set(call.id, call);
      }
    }
    const results = message.results.filter((result) => {
      const call = open.get(result.callId);
      open.delete(result.callId);
      if (call) {
        call.result = result;
      }
      return !call;
    });
    const isPaired = message.results.length > 0 && results.length === 0;
    if (!isPaired || message.blocks.length > 0 || calls.length > 0) {
      turns.push({ message, calls, results });
    }
  }
  return turns;
}
