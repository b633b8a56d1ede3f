/** The actions on a checkpoint, and their dialogs. */
import type { Checkpoint } from "@contract/checkpoint_pb.js";
import type { Thread } from "@contract/thread_pb.js";
import { useState } from "preact/hooks";
import { HandoffDialog } from "../handoff/handoff_dialog.tsx";
import { checkpointLink, diffLink, whole } from "../links.ts";
import { Note } from "../parts/problem.tsx";
import { oneLine, short } from "../words.ts";
import "./actions.css";
import { type Action, CHECKPOINT_ACTIONS } from "./action.ts";
import { ActionBar } from "./action_bar.tsx";
import { CaptureDialog } from "./capture_dialog.tsx";
import { ForkDialog, LabelDialog, RollbackDialog } from "./change_dialogs.tsx";
import { headOf, placeOf } from "./checkpoint_names.ts";
import { copying } from "./copying.ts";
import { EditDialog } from "./edit/edit_dialog.tsx";
import { useOffer } from "./offers.ts";
import { usePin } from "./pin.ts";

interface CheckpointActionsProps {
  /** The checkpoint, in its JSON view. */
  checkpoint: Checkpoint;
  thread: Thread | undefined;
}

type DialogName = "fork" | "rollback" | "label" | "edit" | "handoff" | "capture";

export function CheckpointActions({ checkpoint, thread }: CheckpointActionsProps) {
  const [open, setOpen] = useState<DialogName>();
  const ref = placeOf(checkpoint.ref);
  const pin = usePin(ref);
  const asking = (name: DialogName): Action => ({
    ...CHECKPOINT_ACTIONS[name],
    run: () => {
      pin();
      setOpen(name);
    },
  });
  const parent = { ...ref, checkpointId: checkpoint.parentCheckpointId };
  const compare = { ...CHECKPOINT_ACTIONS.compare, href: diffLink(parent, ref) };
  const { copyId, copyLink } = CHECKPOINT_ACTIONS;
  const actions: Action[] = [
    asking("fork"),
    asking("rollback"),
    asking("edit"),
    ...(parent.checkpointId ? [compare] : []),
    asking("label"),
    asking("handoff"),
    asking("capture"),
    ...copying(copyId, ref.checkpointId, "the ID of the checkpoint"),
    ...copying(copyLink, whole(checkpointLink(ref)), "the link to the checkpoint"),
  ];
  useOffer("checkpoint", actions);
  const shared = { checkpoint, thread, onClose: () => setOpen(undefined) };
  return (
    <>
      <ActionBar actions={actions} on="the checkpoint" />
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
        <Note kind="warn">
          <p>
            A snapshot captures the head of a thread{head && `, here ${oneLine(short(head))}`}, and
            not the checkpoint that is shown. To capture the shown checkpoint, fork from here first
            and capture the new thread.
          </p>
        </Note>
      )}
    </CaptureDialog>
  );
}
