/** Displays of a view that is loading, is empty, has a remark, or has failed. */
import { CircleAlert, CircleCheck, type IconNode, TriangleAlert } from "lucide";
import type { ComponentChildren } from "preact";
import type { Problem } from "../server/problems.ts";
import { Icon } from "./icon.tsx";

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

const NOTE_ICONS = { good: CircleCheck, warn: TriangleAlert, bad: CircleAlert };

interface NoteProps {
  kind: keyof typeof NOTE_ICONS;
  title?: string;
  /** In the place of the icon of the kind. */
  icon?: IconNode;
  /** `alert` for a failure that just happened, `status` for the end of work. */
  role?: "alert" | "status";
  children?: ComponentChildren;
}

/** A coloured remark: all is right, something needs a look, or something failed. */
export function Note({ kind, title, icon = NOTE_ICONS[kind], role, children }: NoteProps) {
  return (
    <div class={`note ${kind}`} role={role}>
      <Icon of={icon} />
      <div class="note-text">
        {title && <p class="note-title">{title}</p>}
        {children}
      </div>
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
    <Note kind="bad" title={problem.title} role="alert">
      <p>{problem.message}</p>
      {problem.advice && <p>{problem.advice}</p>}
      {problem.reason && <p class="quiet">Reason: {problem.reason}</p>}
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </Note>
  );
}

interface TroubleProps {
  problem: Problem;
  /** Whether the page has content from before. */
  isShown: boolean;
  retry: () => void;
}

/** The problem of a page that loads its content again by itself. */
export function Trouble({ problem, isShown, retry }: TroubleProps) {
  return isShown && problem.passing ? (
    <Note kind="warn" role="status">
      <p>
        {problem.message} This page continues by itself once the server answers. Nothing that is
        shown was lost.
      </p>
    </Note>
  ) : (
    <ProblemNote problem={problem} retry={retry} />
  );
}
