/** Whether the page is as narrow as on a phone; follows the size of the window. */
import { signal } from "@preact/signals";

const query = window.matchMedia("(max-width: 40rem)");

export const narrow = signal(query.matches);

query.addEventListener("change", () => {
  narrow.value = query.matches;
});
