/** Converts between the enums of the contract and the words that callers use. */

import { invalidField } from "../errors.js";
import { Durability, Source, View } from "../gen/tuskpoint/v1/checkpoint_pb.js";

/** Durability of a change: in the service's journal, or also in the blob store, read back. */
export type DurabilityName = "journaled" | "certified";

/** Source of a read: the nearest copy, or the blob store itself. */
export type SourceName = "any" | "blob";

/**
 * How much of a checkpoint a read returns: "entry" for neither state nor writes, "full" for
 * everything, "json" for everything with every value as JSON, whatever framework and language saved
 * the checkpoint (docs/json-view.md), "step" for an entry with `step`: the nodes that ran, the
 * channels that changed, what comes next, questions, failures and tokens. "step" needs the source
 * "any".
 */
export type ViewName = "entry" | "full" | "json" | "step";

const DURABILITIES: Readonly<Record<DurabilityName, Durability>> = {
  journaled: Durability.JOURNALED,
  certified: Durability.CERTIFIED,
};

const SOURCES: Readonly<Record<SourceName, Source>> = { any: Source.ANY, blob: Source.BLOB };

const VIEWS: Readonly<Record<ViewName, View>> = {
  entry: View.ENTRY,
  full: View.FULL,
  json: View.JSON,
  step: View.STEP,
};

/**
 * Return the enum value of a word.
 *
 * @throws InvalidRequest - The word is not one of the choices.
 */
export function choice<T>(what: string, word: string, choices: Readonly<Record<string, T>>): T {
  const chosen = Object.hasOwn(choices, word) ? choices[word] : undefined;
  if (chosen === undefined) {
    const words = Object.keys(choices).map((one) => `"${one}"`);
    throw invalidField(what, `it must be ${words.join(" or ")}, not ${JSON.stringify(word)}`);
  }
  return chosen;
}

/** Return the durability that a word names; the default is "journaled". */
export function durability(word: DurabilityName = "journaled"): Durability {
  return choice("durability", word, DURABILITIES);
}

/** Return the source that a word names; the default is "any". */
export function source(word: SourceName = "any"): Source {
  return choice("source", word, SOURCES);
}

/** Return the view that a word names; the default is "full". */
export function view(word: ViewName = "full"): View {
  return choice("view", word, VIEWS);
}

/** Return the word for a durability. */
export function durabilityName(reached: Durability): DurabilityName {
  return reached === Durability.CERTIFIED ? "certified" : "journaled";
}

/**
 * Return the lower-case name of an enum value; a value that only a newer server knows is its
 * number.
 */
export function nameOf(names: Readonly<Record<number, string>>, value: number): string {
  return (names[value] ?? String(value)).toLowerCase();
}
