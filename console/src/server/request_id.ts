/** Names a change, so that the server makes the change once, however often it is requested. */

const BYTES = 16;

/**
 * Return a new name.
 *
 * `crypto.randomUUID` would do, but browsers offer it only to pages from https and localhost.
 */
export function newRequestId(): string {
  const random = crypto.getRandomValues(new Uint8Array(BYTES));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
