/** Marks of checkpoints: what a person looks for in a thread. Pure. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import {
  CircleX,
  GitBranch,
  GitFork,
  type IconNode,
  Import,
  MessageCircleCheck,
  MessageCircleQuestionMark,
  Send,
  Tag,
  Undo2,
} from "lucide";
import { counted, oneLine } from "../words.ts";

export interface Mark {
  icon: IconNode;
  /** What the mark means. */
  text: string;
  /** Text beside the icon; empty: the icon alone. */
  shown: string;
  kind: "" | "good" | "warn" | "bad";
}

/** What is known about a checkpoint from outside of the checkpoint. */
export interface Surroundings {
  /** Whether a later step of the same graph followed. */
  isContinued: boolean;
  isHandedOff: boolean;
  /** Number of forks that were made from the checkpoint. */
  forks: number;
}

/** Return the marks of a checkpoint, the most important first. */
export function marksOf(checkpoint: Checkpoint, around: Surroundings): Mark[] {
  const { label, lineage, step } = checkpoint;
  const { isContinued, isHandedOff, forks } = around;
  const marks: Mark[] = [];
  const add = (icon: IconNode, text: string, kind: Mark["kind"] = "", shown = "") =>
    marks.push({ icon, text, shown, kind });
  const questions = step?.questions ?? [];
  const open = questions.find(({ answered }) => !answered);
  if (open && !isContinued) {
    add(MessageCircleQuestionMark, "waits for a person", "warn", task(open, "asks"));
  } else if (questions.length > 0) {
    add(MessageCircleCheck, "asked a person");
  }
  const [failure] = step?.failures ?? [];
  if (failure) {
    const where = failure.node ? `failed in ${oneLine(failure.node, 60)}` : "failed";
    const what = failure.type ? `${where}: ${oneLine(failure.type, 60)}` : where;
    if (isContinued) {
      add(CircleX, `${what}, then continued`);
    } else {
      add(CircleX, what, "bad", task(failure, "failed"));
    }
  }
  if (label) {
    add(Tag, `label ${oneLine(label, 200)}`, "good", oneLine(label, 24));
  }
  if (lineage?.forkedFrom) {
    add(GitBranch, "forked here");
  }
  if (lineage?.rolledBackFrom) {
    add(Undo2, "rolled back", "warn");
  }
  if (lineage?.adoptedFrom) {
    add(Import, "adopted", "good");
  }
  if (forks > 0) {
    add(GitFork, counted(forks, "fork"));
  }
  if (isHandedOff) {
    add(Send, "handed off", "good");
  }
  return marks;
}

/** Say what a task does: its checkpoint is the step before the task, whose node did not do this. */
function task({ node }: { node: string }, does: string): string {
  return node ? `${oneLine(node, 16)} ${does}` : does;
}
