/** Prune and delete a thread: the changes that cannot be undone. */
import { Durability } from "@contract/checkpoint_pb.js";
import type { Thread } from "@contract/thread_pb.js";
import { PruneStrategy } from "@contract/thread_service_pb.js";
import { useState } from "preact/hooks";
import { threadLink, threadsLink } from "../../links.ts";
import { Ask, InputError } from "../../parts/ask.tsx";
import { TextField } from "../../parts/fields.tsx";
import { say } from "../../parts/notices.tsx";
import { threads } from "../../server/calls.ts";
import { counted, visible } from "../../words.ts";
import { namedThread } from "../checkpoint_names.ts";
import { Advanced, reached } from "../durability.tsx";

interface RemovalDialogProps {
  thread: Thread;
  onClose: () => void;
}

export function PruneDialog({ thread, onClose }: RemovalDialogProps) {
  const { threadId } = thread;
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const prune = async () => {
    const strategy = PruneStrategy.KEEP_LATEST;
    const done = await threads.pruneThreads({ threadIds: [threadId], strategy, durability });
    say(
      `Deleted ${counted(done.deletedCheckpoints, "checkpoint")} of ${namedThread(threadId)}. ${reached(done.durability)}`,
      { href: threadLink(threadId), text: "Open the thread" },
    );
  };
  return (
    <Ask
      title="Prune the thread"
      confirm="Delete all but the latest"
      dangerous
      onConfirm={prune}
      onClose={onClose}
    >
      <p>
        Deletes the checkpoints of {namedThread(threadId)}, except the latest of each namespace and
        what it is rebuilt from. The agent can continue. This cannot be undone.
      </p>
      {thread.checkpointCount > 0n && (
        <p>The thread has {counted(thread.checkpointCount, "checkpoint")} now.</p>
      )}
      <Advanced durability={durability} onChange={setDurability} />
    </Ask>
  );
}

export function DeleteDialog({ thread, onClose }: RemovalDialogProps) {
  const { threadId } = thread;
  const [typed, setTyped] = useState("");
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const remove = async () => {
    // An ID may have characters that nobody can type, so the displayed form is accepted too.
    if (typed !== threadId && typed !== visible(threadId)) {
      throw new InputError("This is not the ID of the thread. Nothing was deleted.");
    }
    const done = await threads.deleteThread({ threadId, durability });
    say(
      `Deleted ${namedThread(threadId)} with ${counted(done.deletedCheckpoints, "checkpoint")}. ${reached(done.durability)}`,
      { href: threadsLink(), text: "All threads" },
    );
  };
  return (
    <Ask title="Delete the thread" confirm="Delete" dangerous onConfirm={remove} onClose={onClose}>
      <p>
        Deletes {namedThread(threadId)} with all its checkpoints and writes. Programs that still run
        it are refused. Forks, copies and snapshots stay. This cannot be undone.
      </p>
      <p>
        Type <code>{visible(threadId)}</code> to confirm.
      </p>
      <TextField label="ID of the thread" value={typed} onInput={setTyped} required />
      <Advanced durability={durability} onChange={setDurability} />
    </Ask>
  );
}
