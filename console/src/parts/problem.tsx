/** Displays of a view that is loading, is empty, or has failed. */
import type { ComponentChildren } from "preact";
import type { Problem } from "../server/problems.ts";

export function Loading({ what }: { what: string }) {
  return (
    <p class="loading" role="status">
      Loading {what}…
    </p>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

interface ProblemNoteProps {
  problem: Problem;
  /** Called by a button; without it, there is no button. */
  retry?: () => void;
}

export function ProblemNote({ problem, retry }: ProblemNoteProps) {
  return (
    <div class="problem" role="alert">
      <p class="problem-title">{problem.title}</p>
      <p>{problem.message}</p>
      {problem.advice && <p>{problem.advice}</p>}
      {problem.reason && <p class="quiet">Reason: {problem.reason}</p>}
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}
