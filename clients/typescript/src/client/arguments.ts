/** Arguments of the client's methods: checks, identities, batches and pages. */

import { invalidField, NotFound } from "../errors.js";
import { checkText } from "../messages/json.js";
import type { Reference } from "../messages/records.js";
import type { CallOptions, Connection } from "../transport/connection.js";
import type { CheckpointOptions } from "./options.js";

/** Most entries in one page of a listing, and most names in one request. */
export const BATCH = 1_000;

/**
 * Return the identity of a checkpoint; an empty ID means the latest checkpoint.
 *
 * @throws InvalidRequest - A text cannot be written in UTF-8, or the options are not an object.
 */
export function refOf(threadId: string, options: CheckpointOptions): Reference {
  checkOptions(options);
  const ref = {
    threadId,
    checkpointNs: options.checkpointNs ?? "",
    checkpointId: options.checkpointId ?? "",
  };
  checkTexts(ref);
  return ref;
}

/** Return the error for a checkpoint that does not exist. */
export function notFound({ threadId, checkpointNs, checkpointId }: Reference): NotFound {
  const where =
    checkpointNs === ""
      ? `thread '${threadId}'`
      : `thread '${threadId}' (namespace '${checkpointNs}')`;
  return new NotFound(
    checkpointId === ""
      ? `${where} has no checkpoint, or does not exist; listThreads() lists the threads`
      : `checkpoint '${checkpointId}' not found in ${where}; list(thread) lists the thread's checkpoints`,
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
 * Check texts; errors name the arguments.
 *
 * @throws InvalidRequest - A text cannot be written in UTF-8.
 */
export function checkTexts(texts: Readonly<Record<string, string>>): void {
  for (const [field, text] of Object.entries(texts)) {
    checkText(field, text);
  }
}

/**
 * Check that the options of a method are an object.
 *
 * A JavaScript program may pass a checkpoint's ID in place of the options; the ID would be ignored.
 *
 * @throws InvalidRequest - The options are not an object.
 */
export function checkOptions(options: unknown): void {
  if (typeof options !== "object" || options === null) {
    const given = typeof options === "string" ? `the text '${options.slice(0, 80)}'` : `${options}`;
    throw invalidField(
      "options",
      `${given} is not an object of options; name what it is, such as { checkpointId: "..." }`,
    );
  }
}

/**
 * Return the options of the call from the options of a method.
 *
 * @throws InvalidRequest - The options are not an object.
 */
export function callOf(options: CallOptions): CallOptions {
  checkOptions(options);
  const { signal, timeoutMs } = options;
  return { signal, timeoutMs };
}

/** Yield names in batches that the server accepts. */
export function* batches(names: string | Iterable<string>): Generator<string[]> {
  const whole = typeof names === "string" ? [names] : [...names];
  for (let start = 0; start < whole.length; start += BATCH) {
    yield whole.slice(start, start + BATCH);
  }
}

/** Yield the entries of a listing, page after page, until the connection is closed. */
export async function* entries<Page extends { readonly nextPageToken: string }, Entry>(
  connection: Connection,
  fetch: (pageToken: string) => Promise<Page>,
  entriesOf: (page: Page) => readonly Entry[],
): AsyncGenerator<Entry, void, undefined> {
  let pageToken = "";
  do {
    const page = await fetch(pageToken);
    for (const entry of entriesOf(page)) {
      connection.checkOpen();
      yield entry;
    }
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
}
