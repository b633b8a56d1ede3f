/** Names a change, so that the server makes it once however often it is asked for. */

const BYTES = 16;

/**
 * Returns a new name.
 *
 * `crypto.randomUUID` would do, but browsers have it on pages from https and localhost alone.
 */
export function newRequestId(): string {
  const random = crypto.getRandomValues(new Uint8Array(BYTES));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
