/** Emits the warnings of answers, of unresponsive targets and of unreported effects, at most once a minute. */

import { WarningKind, type Warning } from "../gen/tuskpoint/v1/errors_pb.js";
import { nameOf } from "../messages/words.js";

const PAUSE_MS = 60_000;
const emitted = new Map<string, number>();

/**
 * Emit the warnings of an answer as `TuskPointWarning`s of the process, each kind of each server at
 * most once a minute.
 *
 * @param target - The server that warns.
 * @param warnings - The warnings.
 */
export function emitWarnings(target: string, warnings: readonly Warning[]): void {
  for (const warning of warnings) {
    const message = `${target} warns (${nameOf(WarningKind, warning.kind)}): ${warning.message}`;
    emit(`${target} ${warning.kind}`, message);
  }
}

/**
 * Emit a `TuskPointWarning` that a target has not answered yet, at most once a minute.
 *
 * @param target - The target.
 * @param message - The cause and the remedy.
 */
export function emitSilence(target: string, message: string): void {
  emit(target, `still waiting: ${message}`);
}

/**
 * Emit a `TuskPointWarning` that the outcome of an effect could not be reported.
 *
 * @param target - The server.
 * @param effect - Thread and key of the effect.
 * @param problem - The reason.
 */
export function emitUnreported(target: string, effect: string, problem: string): void {
  const message = `${target} did not record the outcome of effect ${effect}, which will be unknown`;
  emit(`${target} ${effect}`, `${message}: ${problem}`);
}

/** Emit a message, unless a message with the same key was emitted less than a minute ago. */
function emit(key: string, message: string): void {
  const now = performance.now();
  const last = emitted.get(key);
  if (last === undefined || now - last >= PAUSE_MS) {
    emitted.set(key, now);
    process.emitWarning(message, "TuskPointWarning");
  }
}
