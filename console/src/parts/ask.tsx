/** A dialog that asks before a change, and shows why the change failed. */
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { type Problem, problemOf } from "../server/problems.ts";
import { closeMenu } from "./menu.tsx";
import { ProblemNote } from "./problem.tsx";

interface DialogProps {
  title: string;
  class?: string;
  /** Called to close the dialog. Without it, the dialog cannot be closed. */
  onClose?: () => void;
  children: ComponentChildren;
}

/** Number of completed changes in dialogs: views then reload the data that may have changed. */
export const done = signal(0);

/** A modal dialog; Escape closes it, and the focus returns to the previous element. */
export function Dialog({ title, class: kind, onClose, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const leaving = useRef(false);
  const name = useId();
  // At once: a dialog that replaces another dialog must not miss a key in between.
  useLayoutEffect(() => {
    const dialog = element.current;
    closeMenu();
    const before = document.activeElement;
    dialog?.showModal();
    if (dialog) {
      focusAnswer(dialog);
      dialog.scrollTop = 0; // the focus may be at the end of a long dialog
    }
    return () => {
      leaving.current = true;
      dialog?.close();
      if (before instanceof HTMLElement) {
        before.focus();
      }
    };
  }, []);
  const cancel = (event: Event) => {
    event.preventDefault();
    onClose?.();
  };
  // A browser closes a dialog at the second Escape in a row, whatever `cancel` says. The event
  // comes later than the call: by then, another dialog may have replaced this one.
  const closed = () => {
    if (leaving.current) {
      return;
    }
    if (onClose) {
      onClose();
    } else {
      element.current?.showModal();
    }
  };
  return (
    <dialog ref={element} class={kind} aria-labelledby={name} onCancel={cancel} onClose={closed}>
      <h2 id={name}>{title}</h2>
      {children}
    </dialog>
  );
}

/** Moves the focus from a folded part, which hardly anybody opens, to the button that answers. */
function focusAnswer(dialog: HTMLDialogElement): void {
  if (document.activeElement?.matches("summary")) {
    const answer = dialog.querySelector<HTMLElement>(".buttons > .primary");
    (answer ?? dialog.querySelector<HTMLElement>(".buttons > button"))?.focus();
  }
}

/** Keeps a key that is still held down from pressing the button that got the focus. */
function ignoreRepeated(event: KeyboardEvent): void {
  if (event.repeat && event.key === "Enter" && event.target instanceof HTMLButtonElement) {
    event.preventDefault();
  }
}

interface AskProps {
  title: string;
  /** Text of the button that confirms. */
  confirm: string;
  /** Whether the change cannot be undone. */
  dangerous?: boolean;
  /** The question: the change to confirm, and the fields of the form. */
  children: ComponentChildren;
  /** Makes the change. The dialog closes when it returns, and shows the problem if it throws. */
  onConfirm: () => Promise<void>;
  onClose: () => void;
}

export function Ask({ title, confirm, dangerous, children, onConfirm, onClose }: AskProps) {
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(undefined);
    try {
      await onConfirm();
      done.value += 1;
      onClose();
    } catch (error) {
      setProblem(error instanceof InputError ? error.problem : problemOf(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={submit} onKeyDown={ignoreRepeated}>
        {children}
        {problem && <ProblemNote problem={problem} />}
        <div class="buttons">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class={dangerous ? "danger" : "primary"} disabled={busy}>
            {busy ? "Working…" : confirm}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** The typed input cannot be sent. */
export class InputError extends Error {
  readonly problem: Problem;

  constructor(message: string) {
    super(message);
    this.problem = { title: "Check the input", message, advice: "", reason: "", passing: false };
  }
}
