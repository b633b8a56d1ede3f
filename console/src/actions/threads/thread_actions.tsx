/** The actions on a whole thread, and their dialogs. */
import type { Thread } from "@contract/thread_pb.js";
import {
  Camera,
  Copy,
  Eye,
  EyeOff,
  Files,
  Hourglass,
  type IconNode,
  Inbox,
  Link,
  Scissors,
  Search,
  ShieldCheck,
  Trash2,
} from "lucide";
import { useState } from "preact/hooks";
import { inboxLink, proofLink, searchLink, threadLink, whole } from "../../links.ts";
import "../actions.css";
import type { Action, ActionName } from "../action.ts";
import { ActionBar } from "../action_bar.tsx";
import { CaptureDialog } from "../capture_dialog.tsx";
import { copying } from "../copying.ts";
import { useOffer } from "../offers.ts";
import { DeleteDialog, PruneDialog } from "./removal_dialogs.tsx";
import { CopyDialog, RetentionDialog, SearchableDialog } from "./thread_dialogs.tsx";

interface ThreadActionsProps {
  threadId: string;
  /** Undefined while it is loading: the actions that need it are missing. */
  thread: Thread | undefined;
}

type DialogName = "copy" | "capture" | "retention" | "searchable" | "prune" | "delete";

export function ThreadActions({ threadId, thread }: ThreadActionsProps) {
  const [open, setOpen] = useState<DialogName>();
  const asking = (dialog: DialogName, name: string, icon: IconNode): Action => {
    const place = dialog === "prune" || dialog === "delete" ? "danger" : "menu";
    return { name, icon, place, run: () => setOpen(dialog) };
  };
  const [searchable, eye] = thread?.unsearchable
    ? ["Make searchable", Eye]
    : ["Hide from search", EyeOff];
  const inMenu = (name: string, icon: IconNode): ActionName => ({ name, icon, place: "menu" });
  const actions: Action[] = [
    { name: "Proof", icon: ShieldCheck, place: "button", href: proofLink(threadId) },
    { name: "Search in it", icon: Search, place: "button", href: searchLink("", threadId) },
    ...(thread
      ? [
          asking("copy", "Copy the thread", Files),
          asking("capture", "Capture in a snapshot", Camera),
          asking("retention", "Retention", Hourglass),
          asking("searchable", searchable, eye),
        ]
      : []),
    {
      ...inMenu("Offers", Inbox),
      href: inboxLink({ thread: threadId, state: "all" }),
    },
    ...copying(inMenu("Copy the ID", Copy), threadId, "the ID of the thread"),
    ...copying(
      inMenu("Copy the link", Link),
      whole(threadLink(threadId)),
      "the link to the thread",
    ),
    ...(thread ? [asking("prune", "Prune", Scissors), asking("delete", "Delete", Trash2)] : []),
  ];
  useOffer("thread", actions);
  return (
    <>
      <ActionBar actions={actions} on="the thread" />
      {thread && open && (
        <ThreadDialog name={open} thread={thread} onClose={() => setOpen(undefined)} />
      )}
    </>
  );
}

interface ThreadDialogProps {
  name: DialogName;
  thread: Thread;
  onClose: () => void;
}

function ThreadDialog({ name, ...shared }: ThreadDialogProps) {
  switch (name) {
    case "copy":
      return <CopyDialog {...shared} />;
    case "capture":
      return <CaptureDialog threadIds={[shared.thread.threadId]} onClose={shared.onClose} />;
    case "retention":
      return <RetentionDialog {...shared} />;
    case "searchable":
      return <SearchableDialog {...shared} />;
    case "prune":
      return <PruneDialog {...shared} />;
    case "delete":
      return <DeleteDialog {...shared} />;
  }
}
