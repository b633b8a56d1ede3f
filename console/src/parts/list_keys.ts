/** Moves through a list with j, k, arrows, Home and End: the entry in focus follows. */
import { isTyping } from "../keys.tsx";

/**
 * Return the index to go to for a key pressed at `index` in a list of `length`; undefined: the key
 * has another meaning.
 */
export function moved(event: KeyboardEvent, index: number, length: number): number | undefined {
  if (isTyping(event) || length === 0) {
    return undefined;
  }
  switch (event.key) {
    case "j":
    case "ArrowDown":
      return Math.min(index + 1, length - 1);
    case "k":
    case "ArrowUp":
      return Math.max(index - 1, 0);
    case "Home":
      return 0;
    case "End":
      return length - 1;
    default:
      return undefined;
  }
}
