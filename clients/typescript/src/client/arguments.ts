/** Arguments of the client's methods: checks, identities, batches and pages. */

import { NotFound } from "../errors.js";
import { checkText } from "../messages/json.js";
import type { Reference } from "../messages/records.js";
import type { CallOptions } from "../transport/connection.js";
import type { CheckpointOptions } from "./options.js";

/** Most entries in one page of a listing, and most names in one request. */
export const BATCH = 1_000;

/**
 * Return the identity of a checkpoint; an empty ID is the latest.
 *
 * @throws InvalidRequest - A text cannot be written in UTF-8.
 */
export function refOf(threadId: string, options: CheckpointOptions): Reference {
  const ref = {
    threadId,
    checkpointNs: options.checkpointNs ?? "",
    checkpointId: options.checkpointId ?? "",
  };
  checkTexts(ref);
  return ref;
}

/** Return the error of a checkpoint that does not exist. */
export function notFound({ threadId, checkpointNs, checkpointId }: Reference): NotFound {
  const which = checkpointId === "" ? "checkpoint" : `checkpoint '${checkpointId}'`;
  return new NotFound(
    `no ${which} in namespace '${checkpointNs}' of thread '${threadId}': list(thread) shows the ` +
      "existing ones",
    {
      status: "NOT_FOUND",
      reason: "CHECKPOINT_NOT_FOUND",
      metadata: {
        thread_id: threadId,
        checkpoint_ns: checkpointNs,
        checkpoint_id: checkpointId,
      },
    },
  );
}

/**
 * Check texts, by the names of their arguments.
 *
 * @throws InvalidRequest - One cannot be written in UTF-8.
 */
export function checkTexts(texts: Readonly<Record<string, string>>): void {
  for (const [field, text] of Object.entries(texts)) {
    checkText(field, text);
  }
}

/** Return the options of the call in the options of a method. */
export function callOf({ signal, timeoutMs }: CallOptions): CallOptions {
  return { signal, timeoutMs };
}

/** Return names in batches that the server takes. */
export function* batches(names: string | Iterable<string>): Generator<string[]> {
  const whole = typeof names === "string" ? [names] : [...names];
  for (let start = 0; start < whole.length; start += BATCH) {
    yield whole.slice(start, start + BATCH);
  }
}

/** Yield the pages of a listing. */
export async function* pages<Page extends { readonly nextPageToken: string }>(
  fetch: (pageToken: string) => Promise<Page>,
): AsyncGenerator<Page, void, undefined> {
  let pageToken = "";
  do {
    const page = await fetch(pageToken);
    yield page;
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
}
