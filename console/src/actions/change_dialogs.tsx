/** Fork, roll back, label: dialogs that ask before the change, and report it afterwards. */
import { type Checkpoint, Durability } from "@contract/checkpoint_pb.js";
import type { Thread } from "@contract/thread_pb.js";
import { useState } from "preact/hooks";
import { Ask } from "../parts/ask.tsx";
import { TextField } from "../parts/fields.tsx";
import { say } from "../parts/notices.tsx";
import { checkpoints, threads } from "../server/calls.ts";
import { newRequestId } from "../server/request_id.ts";
import { oneLine, short } from "../words.ts";
import { headOf, linkTo, named, namedThread, placeOf } from "./checkpoint_names.ts";
import { Advanced, reached } from "./durability.tsx";
import { suggest } from "./what_next/next_steps.ts";

interface CheckpointDialogProps {
  checkpoint: Checkpoint;
  thread: Thread | undefined;
  onClose: () => void;
}

export function ForkDialog({ checkpoint, onClose }: CheckpointDialogProps) {
  const ref = placeOf(checkpoint.ref);
  const [requestId] = useState(newRequestId);
  const [newThreadId, setNewThreadId] = useState("");
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const fork = async () => {
    const made = await threads.forkThread({ ref, newThreadId, requestId, durability });
    const { threadId } = placeOf(made.ref);
    suggest({
      what: `Forked ${named(checkpoint)} as ${namedThread(threadId)}. ${reached(made.durability)}`,
      madeOn: ref.threadId,
      head: placeOf(made.ref),
      link: "Open the new thread",
    });
  };
  return (
    <Ask title="Fork from here" confirm="Fork" onConfirm={fork} onClose={onClose}>
      <p>
        Makes a new thread that begins with {named(checkpoint)}, with its writes and its subgraphs.
        This thread does not change.
      </p>
      <TextField
        label="ID of the new thread"
        value={newThreadId}
        onInput={setNewThreadId}
        hint="Empty: the server makes one."
      />
      <Advanced durability={durability} onChange={setDurability} />
    </Ask>
  );
}

export function RollbackDialog({ checkpoint, thread, onClose }: CheckpointDialogProps) {
  const ref = placeOf(checkpoint.ref);
  const [requestId] = useState(newRequestId);
  // The head that the page showed at the time of the decision, whatever happens while the dialog is
  // open.
  const [head] = useState(() => headOf(thread, ref.checkpointNs));
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const rollBack = async () => {
    const expected = head === undefined ? {} : { expectedHead: head };
    const made = await threads.rollbackThread({ ref, requestId, durability, ...expected });
    suggest({
      what: `Rolled ${namedThread(ref.threadId)} back to ${named(checkpoint)}. ${reached(made.durability)}`,
      madeOn: ref.threadId,
      head: placeOf(made.ref),
      link: "Open the new checkpoint",
    });
  };
  return (
    <Ask title="Roll back to here" confirm="Roll back" onConfirm={rollBack} onClose={onClose}>
      <p>
        Adds a checkpoint to {namedThread(ref.threadId)} with the state of {named(checkpoint)}. The
        agent continues from the new checkpoint.
      </p>
      <p>
        Nothing is removed: later checkpoints stay in the history. The tasks of this checkpoint run
        again, and ask their questions again.
      </p>
      {head && (
        <p class="hint">
          The head is now {oneLine(short(head))}. If somebody saves another checkpoint before you
          confirm, nothing is rolled back.
        </p>
      )}
      <Advanced durability={durability} onChange={setDurability} />
    </Ask>
  );
}

export function LabelDialog({ checkpoint, onClose }: CheckpointDialogProps) {
  const ref = placeOf(checkpoint.ref);
  const [label, setLabel] = useState(checkpoint.label);
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const save = async () => {
    const made = await checkpoints.setLabel({ ref, label, durability });
    const what = label
      ? `Labelled checkpoint ${oneLine(short(ref.checkpointId))} “${oneLine(label, 60)}”.`
      : `Cleared the label of checkpoint ${oneLine(short(ref.checkpointId))}.`;
    say(`${what} ${reached(made.durability)}`, linkTo(made.ref, "Open the checkpoint"));
  };
  return (
    <Ask
      title="Label"
      confirm={label || !checkpoint.label ? "Set the label" : "Clear the label"}
      onConfirm={save}
      onClose={onClose}
    >
      <p>
        Gives {named(checkpoint)} a name to find the checkpoint by. Retention rules keep labelled
        checkpoints.
      </p>
      <TextField
        label="Label"
        value={label}
        onInput={setLabel}
        hint="At most 256 bytes. Empty: no label."
      />
      <Advanced durability={durability} onChange={setDurability} />
    </Ask>
  );
}
