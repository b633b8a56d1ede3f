/** Actions that copy a name of the shown thing. */
import { say, sayBriefly } from "../parts/notices.tsx";
import type { Action, ActionName } from "./action.ts";

/**
 * Return an action that copies a text, in a list; empty where the browser has no clipboard: it has
 * one only for pages from https and localhost.
 */
export function copying(name: ActionName, text: string, what: string): Action[] {
  if (!window.isSecureContext) {
    return [];
  }
  const run = () => {
    navigator.clipboard.writeText(text).then(
      () => sayBriefly(`Copied ${what}.`),
      () => say(`The browser did not let this page copy ${what}. Allow the clipboard, and retry.`),
    );
  };
  return [{ ...name, run }];
}
