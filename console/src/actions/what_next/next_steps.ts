/** Changes after which somebody must continue a run; a step stays until the run continues. */
import { effect, signal } from "@preact/signals";
import type { Ref } from "../../links.ts";

export interface NextStep {
  /** The change, in a sentence. */
  what: string;
  /** The thread on whose page the change was made; empty: another page. */
  madeOn: string;
  /** The checkpoint that the change made the head, from which the run continues. */
  head: Ref;
  /** Text of the link to the head. */
  link: string;
}

const KEY = "tuskpoint.next-steps";
const MOST = 5;

/** The steps of this tab, latest first. */
export const nextSteps = signal<readonly NextStep[]>(stored());

effect(() => sessionStorage.setItem(KEY, JSON.stringify(nextSteps.value)));

function stored(): NextStep[] {
  try {
    const steps: unknown = JSON.parse(sessionStorage.getItem(KEY) ?? "[]");
    return Array.isArray(steps) ? steps.filter((step) => step?.head?.threadId) : [];
  } catch {
    return [];
  }
}

/** Show how to continue from the head that a change made, until the run continues. */
export function suggest(step: NextStep): void {
  const others = nextSteps.value.filter(({ head }) => head.threadId !== step.head.threadId);
  nextSteps.value = [step, ...others].slice(0, MOST);
}

/** Show a step no longer. */
export function dismiss(step: NextStep): void {
  nextSteps.value = nextSteps.value.filter((one) => one !== step);
}
