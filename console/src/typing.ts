/** Whether a key is text, or belongs to the page. */
import { signal } from "@preact/signals";

/** Whether letters act on the page; who dictates text needs them off. */
export const areLettersKeys = signal(true);

const FIELD = "input:not([type=radio], [type=checkbox]), textarea, select";

/** Return whether a dialog is over the page. */
export function isDialogOpen(): boolean {
  return document.querySelector("dialog[open]") !== null;
}

/** Return whether a key belongs to the focused element, because somebody types there. */
export function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  return (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    (event.key.length === 1 && !areLettersKeys.value) ||
    target.matches(FIELD) ||
    isDialogOpen()
  );
}

/** Takes the focus from a field, so that the keys of the page work again. */
export function leaveField({ target }: KeyboardEvent): void {
  if (!isDialogOpen() && target instanceof HTMLElement && target.matches(FIELD)) {
    target.blur();
  }
}
