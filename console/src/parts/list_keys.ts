/** Moves through a list with j, k, arrows, Home and End: the entry in focus follows. */
import { useLayoutEffect } from "preact/hooks";
import { isTyping } from "../typing.ts";

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

/** Calls `walk` for j and k wherever the focus is, unless a list with the focus took the key. */
export function usePageKeys(walk: (event: KeyboardEvent) => void): void {
  // At once: a page that is shown must not miss a key.
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent) => {
      if ((event.key === "j" || event.key === "k") && !event.defaultPrevented) {
        walk(event);
      }
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [walk]);
}
