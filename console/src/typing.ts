/** Whether a key is text, or belongs to the page. */

const FIELD = "input:not([type=radio], [type=checkbox]), textarea, select";

/** Return whether a dialog is over the page. */
export function isDialogOpen(): boolean {
  return document.querySelector("dialog[open]") !== null;
}

/** Return whether a key belongs to the focused element, because somebody types there. */
export function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  return event.ctrlKey || event.metaKey || event.altKey || target.matches(FIELD) || isDialogOpen();
}

/** Takes the focus from a field, so that the keys of the page work again. */
export function leaveField({ target }: KeyboardEvent): void {
  if (!isDialogOpen() && target instanceof HTMLElement && target.matches(FIELD)) {
    target.blur();
  }
}
