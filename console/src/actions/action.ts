/** An action of a checkpoint or a thread: one definition for its button, menu, key and palette. */
import {
  Camera,
  Copy,
  GitCompareArrows,
  GitFork,
  type IconNode,
  Link,
  MessageCircleQuestionMark,
  Pencil,
  Send,
  Tag,
  Undo2,
} from "lucide";

export interface ActionName {
  name: string;
  icon: IconNode;
  /** The key that starts the action while its checkpoint is shown. */
  key?: string;
  /** Where the action is offered; the palette offers all of them. "danger": last in the menu, below a line. */
  place: "button" | "menu" | "danger" | "palette";
}

/** What an action does: it opens an address of the console, or runs. */
export type Effect = { href: string; run?: never } | { run: () => void; href?: never };

export type Action = ActionName & Effect;

/** The actions of the shown checkpoint, in the order of the menu. */
export const CHECKPOINT_ACTIONS = {
  answer: {
    name: "Answer the question",
    icon: MessageCircleQuestionMark,
    key: "a",
    place: "palette",
  },
  fork: { name: "Fork", icon: GitFork, key: "f", place: "button" },
  rollback: { name: "Roll back", icon: Undo2, key: "r", place: "button" },
  edit: { name: "Edit and save", icon: Pencil, key: "e", place: "menu" },
  compare: { name: "Compare with the parent", icon: GitCompareArrows, key: "c", place: "menu" },
  label: { name: "Label", icon: Tag, key: "l", place: "menu" },
  handoff: { name: "Hand off", icon: Send, key: "h", place: "menu" },
  capture: { name: "Capture in a snapshot", icon: Camera, key: "s", place: "menu" },
  copyId: { name: "Copy the ID", icon: Copy, key: "i", place: "menu" },
  copyLink: { name: "Copy the link", icon: Link, key: "u", place: "menu" },
} as const satisfies Record<string, ActionName>;

/** Start an action; `route` opens an address of the console. */
export function start({ href, run }: Effect, route: (href: string) => void): void {
  if (href === undefined) {
    run();
  } else {
    route(href);
  }
}
