/** The token that calls carry. It is kept for this tab alone, until the tab closes. */
import { signal } from "@preact/signals";

const KEY = "tuskpoint.token";

/** The token; empty: calls carry none. */
export const token = signal(sessionStorage.getItem(KEY) ?? "");

/** Why the server last refused the credential; empty while it accepts calls. */
export const refused = signal("");

/** How often somebody signed in; views load again when it changes. */
export const signIns = signal(0);

/** Uses another token from now on. An empty one signs out. */
export function signIn(text: string): void {
  token.value = text.trim();
  if (token.value) {
    sessionStorage.setItem(KEY, token.value);
  } else {
    sessionStorage.removeItem(KEY);
  }
  refused.value = "";
  signIns.value += 1;
}
