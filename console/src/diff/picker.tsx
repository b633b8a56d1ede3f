/** Chooses a checkpoint: one of the newest of a thread, or any checkpoint by its ID. */
import { type Checkpoint, View } from "@contract/checkpoint_pb.js";
import { useState } from "preact/hooks";
import { titleOf } from "../checkpoint/step_title.ts";
import type { Ref } from "../links.ts";
import { Field, TextField } from "../parts/fields.tsx";
import { ProblemNote } from "../parts/problem.tsx";
import { checkpoints } from "../server/calls.ts";
import { wholeCheckpoints } from "../server/checkpoints.ts";
import { useLoad } from "../server/loading.ts";
import { oneLine, short } from "../words.ts";

const NEWEST = 200; // checkpoints that are offered

interface PickerProps {
  /** The checkpoint that is chosen at first. */
  chosen: Ref;
  /** Text of the button. */
  confirm: string;
  onPick: (picked: Ref) => void;
}

export function CheckpointPicker({ chosen, confirm, onPick }: PickerProps) {
  const [typedThread, setTypedThread] = useState(chosen.threadId);
  const [threadId, setThreadId] = useState(chosen.threadId);
  const [picked, setPicked] = useState({ ...chosen });
  const { data, problem, reload } = useLoad(
    async (signal) => {
      const request = { threadId, limit: NEWEST, view: View.STEP };
      const newest: Checkpoint[] = [];
      if (threadId) {
        for await (const checkpoint of wholeCheckpoints(
          checkpoints.listCheckpoints(request, { signal }),
        )) {
          newest.push(checkpoint);
        }
      }
      return newest;
    },
    [threadId],
  );
  const submit = (event: Event) => {
    event.preventDefault();
    onPick({ ...picked, threadId });
  };
  const typed = (checkpointId: string) => {
    const known = data?.find(({ ref }) => ref?.checkpointId === checkpointId.trim())?.ref;
    const checkpointNs = known?.checkpointNs ?? picked.checkpointNs;
    setPicked({ threadId, checkpointNs, checkpointId: checkpointId.trim() });
  };
  return (
    <form class="picker" onSubmit={submit}>
      <Field label="Thread">
        {(id) => (
          <input
            id={id}
            value={typedThread}
            required
            onInput={(event) => setTypedThread(event.currentTarget.value)}
            onChange={(event) => {
              setThreadId(event.currentTarget.value);
              setPicked({ threadId: "", checkpointNs: "", checkpointId: "" });
            }}
          />
        )}
      </Field>
      <Field label="Checkpoint">
        {(id) => (
          <select
            id={id}
            value={keyOf(picked)}
            onChange={(event) => {
              const { value } = event.currentTarget;
              const known = data?.find(({ ref }) => ref && keyOf(ref) === value)?.ref;
              setPicked(known ? { ...known } : { threadId, checkpointNs: "", checkpointId: "" });
            }}
          >
            <option value={keyOf({ checkpointNs: "", checkpointId: "" })}>the latest</option>
            {data?.map((one) => one.ref && <Choice key={keyOf(one.ref)} checkpoint={one} />)}
            {picked.checkpointId &&
              !data?.some(({ ref }) => ref && keyOf(ref) === keyOf(picked)) && (
                <option value={keyOf(picked)}>{oneLine(short(picked.checkpointId))}</option>
              )}
          </select>
        )}
      </Field>
      <TextField
        label="Or its ID"
        value={picked.checkpointId}
        onInput={typed}
        placeholder="the latest"
      />
      {problem && <ProblemNote problem={problem} retry={reload} />}
      {data?.length === 0 && threadId && <p class="hint">This thread has no checkpoints.</p>}
      <button type="submit" class="primary">
        {confirm}
      </button>
    </form>
  );
}

function Choice({ checkpoint }: { checkpoint: Checkpoint }) {
  const { ref } = checkpoint;
  const about = [
    titleOf(checkpoint).slice(0, 80),
    ref?.checkpointNs && oneLine(ref.checkpointNs, 40),
    short(ref?.checkpointId ?? ""),
  ];
  return <option value={ref && keyOf(ref)}>{about.filter(Boolean).join(" · ")}</option>;
}

function keyOf({ checkpointNs, checkpointId }: Pick<Ref, "checkpointNs" | "checkpointId">): string {
  return JSON.stringify([checkpointNs, checkpointId]);
}
