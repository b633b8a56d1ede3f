/** The token of calls. It is stored for this tab only, until the tab closes. */
import { signal } from "@preact/signals";

const KEY = "tuskpoint.token";

/** The token; empty: calls have no token. */
export const token = signal(sessionStorage.getItem(KEY) ?? "");

/** The server's reason for its last refusal of the credential; empty while it accepts calls. */
export const refused = signal("");

/** Number of sign-ins; views reload when it changes. */
export const signIns = signal(0);

/** Use another token for later calls. An empty token signs out. */
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
