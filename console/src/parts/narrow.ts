/** Whether the page is narrow; follows the size of the window. */
import { type ReadonlySignal, signal } from "@preact/signals";

/** Whether the page is as narrow as on a phone. */
export const narrow = matching("(max-width: 40rem)");

/** Whether the page has no room for two columns. */
export const oneColumn = matching("(max-width: 56rem)");

function matching(media: string): ReadonlySignal<boolean> {
  const query = window.matchMedia(media);
  const matches = signal(query.matches);
  query.addEventListener("change", () => {
    matches.value = query.matches;
  });
  return matches;
}
