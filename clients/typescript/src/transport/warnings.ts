/** Emits the warnings that come with answers as warnings of Node, and not too often. */

import { WarningKind, type Warning } from "../gen/tuskpoint/v1/errors_pb.js";
import { nameOf } from "../messages/words.js";

const PAUSE_MS = 60_000;
const emitted = new Map<string, number>();

/**
 * Emit the warnings of an answer as `TuskPointWarning`s of the process, each kind of each server at
 * most once a minute.
 *
 * @param target - The server that warns.
 * @param warnings - What it warns of.
 */
export function emitWarnings(target: string, warnings: readonly Warning[]): void {
  for (const warning of warnings) {
    const key = `${target} ${warning.kind}`;
    const now = performance.now();
    const last = emitted.get(key);
    if (last === undefined || now - last >= PAUSE_MS) {
      emitted.set(key, now);
      const message = `${target} warns (${nameOf(WarningKind, warning.kind)}): ${warning.message}`;
      process.emitWarning(message, "TuskPointWarning");
    }
  }
}
