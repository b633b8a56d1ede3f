/** The actions on a whole thread: copy, capture, search, retention, delete. */
import type { Thread } from "@contract/thread_pb.js";
import { useState } from "preact/hooks";
import { closeMenu, Menu } from "../../parts/menu.tsx";
import "../actions.css";
import { CaptureDialog } from "../capture_dialog.tsx";
import { DeleteDialog, PruneDialog } from "./removal_dialogs.tsx";
import { CopyDialog, RetentionDialog, SearchableDialog } from "./thread_dialogs.tsx";

interface ThreadActionsProps {
  thread: Thread;
}

type Action = "copy" | "capture" | "retention" | "searchable" | "prune" | "delete";

export function ThreadActions({ thread }: ThreadActionsProps) {
  const [open, setOpen] = useState<Action>();
  const shared = { thread, onClose: () => setOpen(undefined) };
  const buttons: [Action, string][] = [
    ["copy", "Copy"],
    ["capture", "Capture in a snapshot"],
    ["retention", "Retention"],
    ["searchable", thread.unsearchable ? "Make searchable" : "Hide from search"],
    ["prune", "Prune"],
    ["delete", "Delete"],
  ];
  return (
    <>
      <Menu label="More">
        {buttons.map(([action, text]) => (
          <button
            key={action}
            type="button"
            class={action === "delete" ? "danger" : ""}
            onClick={() => {
              closeMenu();
              setOpen(action);
            }}
          >
            {text}
          </button>
        ))}
      </Menu>
      {open === "copy" && <CopyDialog {...shared} />}
      {open === "capture" && (
        <CaptureDialog threadIds={[thread.threadId]} onClose={shared.onClose} />
      )}
      {open === "retention" && <RetentionDialog {...shared} />}
      {open === "searchable" && <SearchableDialog {...shared} />}
      {open === "prune" && <PruneDialog {...shared} />}
      {open === "delete" && <DeleteDialog {...shared} />}
    </>
  );
}
