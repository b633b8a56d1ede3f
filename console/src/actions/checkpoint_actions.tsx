/** The actions on a checkpoint: fork, roll back, label, hand off, edit, compare. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import type { Thread } from "@contract/thread_pb.js";
import { useState } from "preact/hooks";
import { HandoffDialog } from "../handoff/handoff_dialog.tsx";
import { diffLink } from "../links.ts";
import { oneLine, short } from "../words.ts";
import "./actions.css";
import { CaptureDialog } from "./capture_dialog.tsx";
import { ForkDialog, LabelDialog, RollbackDialog } from "./change_dialogs.tsx";
import { headOf, placeOf } from "./checkpoint_names.ts";
import { EditDialog } from "./edit/edit_dialog.tsx";
import { usePin } from "./pin.ts";

interface CheckpointActionsProps {
  /** The checkpoint, in its JSON view. */
  checkpoint: Checkpoint;
  thread: Thread | undefined;
}

type Action = "fork" | "rollback" | "label" | "edit" | "handoff" | "capture";

const BUTTONS: [Action, string][] = [
  ["fork", "Fork from here"],
  ["rollback", "Roll back to here"],
  ["edit", "Edit and save"],
  ["handoff", "Hand off"],
  ["label", "Label"],
  ["capture", "Capture in a snapshot"],
];

export function CheckpointActions({ checkpoint, thread }: CheckpointActionsProps) {
  const [open, setOpen] = useState<Action>();
  const ref = placeOf(checkpoint.ref);
  const pin = usePin(ref);
  const parent = { ...ref, checkpointId: checkpoint.parentCheckpointId };
  const shared = { checkpoint, thread, onClose: () => setOpen(undefined) };
  return (
    <>
      <div class="actions">
        {BUTTONS.map(([action, text]) => (
          <button
            key={action}
            type="button"
            onClick={() => {
              pin();
              setOpen(action);
            }}
          >
            {text}
          </button>
        ))}
        {parent.checkpointId && (
          <a class="button" href={diffLink(parent, ref)}>
            Compare
          </a>
        )}
      </div>
      {open === "fork" && <ForkDialog {...shared} />}
      {open === "rollback" && <RollbackDialog {...shared} />}
      {open === "label" && <LabelDialog {...shared} />}
      {open === "edit" && <EditDialog {...shared} />}
      {open === "handoff" && <HandoffDialog {...shared} />}
      {open === "capture" && <Capture {...shared} />}
    </>
  );
}

/** A snapshot captures heads only, so the dialog warns about any other checkpoint. */
function Capture({
  checkpoint,
  thread,
  onClose,
}: CheckpointActionsProps & { onClose: () => void }) {
  const { threadId, checkpointNs, checkpointId } = placeOf(checkpoint.ref);
  const head = headOf(thread, "");
  const other = checkpointNs !== "" || (head !== undefined && head !== checkpointId);
  return (
    <CaptureDialog threadIds={[threadId]} onClose={onClose}>
      {other && (
        <p class="banner">
          A snapshot captures the head of a thread{head && `, here ${oneLine(short(head))}`}, and
          not the checkpoint that is shown. To capture this one, fork from here first and capture
          the new thread.
        </p>
      )}
    </CaptureDialog>
  );
}
