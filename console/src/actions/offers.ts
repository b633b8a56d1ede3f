/** The actions that the page offers now, for the keys and the palette. */
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Action } from "./action.ts";

const TITLES = {
  question: "This question",
  checkpoint: "This checkpoint",
  thread: "This thread",
};

type Kind = keyof typeof TITLES;

export interface Offer {
  title: string;
  actions: readonly Action[];
}

const offered = new Map<Kind, { current: readonly Action[] }>();

/** Offer actions on the thing that the page shows, as long as the caller is on the page. */
export function useOffer(kind: Kind, actions: readonly Action[]): void {
  const latest = useRef(actions);
  latest.current = actions;
  useLayoutEffect(() => {
    offered.set(kind, latest);
    return () => {
      // Another view may have replaced this one already.
      if (offered.get(kind) === latest) {
        offered.delete(kind);
      }
    };
  }, [kind]);
}

/** Return the actions that the page offers, the most specific first. */
export function offers(): Offer[] {
  return (Object.keys(TITLES) as Kind[]).flatMap((kind) => {
    const actions = offered.get(kind)?.current ?? [];
    return actions.length > 0
      ? [{ title: TITLES[kind], actions: actions.map((action) => lateBound(kind, action)) }]
      : [];
  });
}

/** Return an action that acts on what the page shows when it runs: the thread may have gone on. */
function lateBound(kind: Kind, action: Action): Action {
  if (action.href !== undefined) {
    return action;
  }
  const run = () =>
    offered
      .get(kind)
      ?.current.find(({ name }) => name === action.name)
      ?.run?.();
  return { ...action, run };
}
