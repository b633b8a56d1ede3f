/** Copy a thread, set its retention, and set whether search finds it. */
import { Durability } from "@contract/checkpoint_pb.js";
import type { Thread } from "@contract/thread_pb.js";
import { useState } from "preact/hooks";
import { threadLink } from "../../links.ts";
import { Ask, InputError } from "../../parts/ask.tsx";
import { Field, TextField } from "../../parts/fields.tsx";
import { say } from "../../parts/notices.tsx";
import { threads } from "../../server/calls.ts";
import { newRequestId } from "../../server/request_id.ts";
import { counted } from "../../words.ts";
import { namedThread } from "../checkpoint_names.ts";
import { inUnits, UNITS } from "../dialog_inputs.ts";
import { Advanced, reached } from "../durability.tsx";

interface ThreadDialogProps {
  thread: Thread;
  onClose: () => void;
}

export function CopyDialog({ thread, onClose }: ThreadDialogProps) {
  const [requestId] = useState(newRequestId);
  const [targetThreadId, setTarget] = useState("");
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const copy = async () => {
    const sourceThreadId = thread.threadId;
    const made = await threads.copyThread({
      sourceThreadId,
      targetThreadId,
      requestId,
      durability,
    });
    say(
      `Copied ${counted(made.copiedCheckpoints, "checkpoint")} to ${namedThread(targetThreadId)}. ${reached(made.durability)}`,
      { href: threadLink(targetThreadId), text: "Open the copy" },
    );
  };
  return (
    <Ask title="Copy the thread" confirm="Copy" onConfirm={copy} onClose={onClose}>
      <p>
        Copies all checkpoints of {namedThread(thread.threadId)}, with their IDs and writes, into a
        thread that has none. This thread does not change.
      </p>
      <TextField label="ID of the copy" value={targetThreadId} onInput={setTarget} required />
      <Advanced durability={durability} onChange={setDurability} />
    </Ask>
  );
}

export function RetentionDialog({ thread, onClose }: ThreadDialogProps) {
  const before = Number(thread.retention?.seconds ?? 0n);
  const start = before ? inUnits(before) : { amount: 30, unit: 86_400 };
  const [kept, setKept] = useState(before === 0);
  const [amount, setAmount] = useState(String(start.amount));
  const [unit, setUnit] = useState(start.unit);
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const save = async () => {
    const seconds = Number(amount) * unit;
    if (!kept && !(Number.isInteger(seconds) && seconds > 0)) {
      throw new InputError("Enter how long: a number above 0.");
    }
    const retention = kept ? {} : { retention: { seconds: BigInt(seconds), nanos: 0 } };
    const set = await threads.setRetention({ threadId: thread.threadId, durability, ...retention });
    const name = UNITS.find(([, size]) => size === unit)?.[0] ?? "seconds";
    const what = kept
      ? `is kept until somebody deletes it`
      : `is deleted after ${amount} ${name} without a change`;
    say(`From now on, ${namedThread(thread.threadId)} ${what}. ${reached(set.durability)}`);
  };
  return (
    <Ask title="Retention" confirm="Set the retention" onConfirm={save} onClose={onClose}>
      <p>Sets how long {namedThread(thread.threadId)} is kept after its last change.</p>
      <fieldset>
        <legend>This thread</legend>
        <label class="choice">
          <input type="radio" name="kept" checked={kept} onChange={() => setKept(true)} />
          <span>is kept until somebody deletes it</span>
        </label>
        <label class="choice">
          <input type="radio" name="kept" checked={!kept} onChange={() => setKept(false)} />
          <span>is deleted after a time without a change</span>
        </label>
      </fieldset>
      {!kept && (
        <div class="filters">
          <Field label="Amount">
            {(id) => (
              <input
                id={id}
                inputMode="numeric"
                value={amount}
                onInput={(event) => setAmount(event.currentTarget.value)}
              />
            )}
          </Field>
          <Field label="Unit">
            {(id) => (
              <select
                id={id}
                value={String(unit)}
                onChange={(event) => setUnit(Number(event.currentTarget.value))}
              >
                {unit === 1 && <option value="1">seconds</option>}
                {UNITS.map(([name, size]) => (
                  <option key={name} value={String(size)}>
                    {name}
                  </option>
                ))}
              </select>
            )}
          </Field>
        </div>
      )}
      <Advanced durability={durability} onChange={setDurability} />
    </Ask>
  );
}

export function SearchableDialog({ thread, onClose }: ThreadDialogProps) {
  const searchable = thread.unsearchable;
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const save = async () => {
    const { threadId } = thread;
    const set = await threads.setSearchable({ threadId, searchable, durability });
    const what = searchable ? "Search finds" : "No search finds";
    say(`${what} ${namedThread(threadId)} from now on. ${reached(set.durability)}`);
  };
  return (
    <Ask
      title={searchable ? "Make searchable" : "Hide from search"}
      confirm={searchable ? "Make searchable" : "Hide"}
      onConfirm={save}
      onClose={onClose}
    >
      <p>
        {searchable
          ? `Search finds the checkpoints of ${namedThread(thread.threadId)} from now on.`
          : `No search finds the checkpoints of ${namedThread(thread.threadId)} from now on. The server removes their text from its index. Forks and copies inherit this.`}
      </p>
      <Advanced durability={durability} onChange={setDurability} />
    </Ask>
  );
}
