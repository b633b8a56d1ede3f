/** Captures the heads of several threads in a snapshot. */
import { Durability } from "@contract/checkpoint_pb.js";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { snapshotsLink } from "../links.ts";
import { Ask, InputError } from "../parts/ask.tsx";
import { Field, TextField } from "../parts/fields.tsx";
import { say } from "../parts/notices.tsx";
import { snapshots } from "../server/calls.ts";
import { newRequestId } from "../server/request_id.ts";
import { counted, short } from "../words.ts";
import { threadsIn } from "./dialog_inputs.ts";
import { Advanced, reached } from "./durability.tsx";

interface CaptureDialogProps {
  /** The initial threads of the capture; more can be added. */
  threadIds: string[];
  /** Content above the fields. */
  children?: ComponentChildren;
  onClose: () => void;
}

export function CaptureDialog({ threadIds, children, onClose }: CaptureDialogProps) {
  const [requestId] = useState(newRequestId);
  const [lines, setLines] = useState(threadIds.join("\n"));
  const [sessionId, setSessionId] = useState("");
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const capture = async () => {
    const chosen = threadsIn(lines);
    if (chosen.length === 0) {
      throw new InputError("Name at least one thread.");
    }
    const made = await snapshots.createSnapshot({
      threadIds: chosen,
      sessionId,
      requestId,
      durability,
    });
    const id = made.snapshot?.snapshotId ?? "";
    say(
      `Captured ${counted(chosen.length, "thread")} in snapshot ${short(id)}. ${reached(made.durability)}`,
      { href: snapshotsLink(id), text: "Open the snapshot" },
    );
  };
  return (
    <Ask title="Capture in a snapshot" confirm="Capture" onConfirm={capture} onClose={onClose}>
      <p>
        Captures the latest checkpoint of each thread at one instant, with everything needed to
        continue from it. The snapshot stays, even if the threads are pruned or deleted. No thread
        changes.
      </p>
      {children}
      <Field label="Threads" hint="One ID a line, at most 1,000.">
        {(id, described) => (
          <textarea
            id={id}
            class="thread-ids"
            aria-describedby={described}
            value={lines}
            onInput={(event) => setLines(event.currentTarget.value)}
          />
        )}
      </Field>
      <TextField
        label="Session"
        value={sessionId}
        onInput={setSessionId}
        hint="A name to find the snapshot by. May be empty."
      />
      <Advanced durability={durability} onChange={setDurability} />
    </Ask>
  );
}
