/**
 * Edits the value of a channel as JSON, and saves the result as a new checkpoint on top of the
 * current checkpoint.
 */
import { type Checkpoint, Durability, View } from "@contract/checkpoint_pb.js";
import type { Thread } from "@contract/thread_pb.js";
import type { Channel } from "@contract/value_pb.js";
import { useMemo, useState } from "preact/hooks";
import { Ask, Dialog, InputError } from "../../parts/ask.tsx";
import { Field } from "../../parts/fields.tsx";
import { Loading, Note, ProblemNote } from "../../parts/problem.tsx";
import { checkpoints } from "../../server/calls.ts";
import { useLoad } from "../../server/loading.ts";
import { bytes, oneLine } from "../../words.ts";
import { headOf, named, placeOf } from "../checkpoint_names.ts";
import { Advanced, reached } from "../durability.tsx";
import { type Exact, JsonTextError, readExact, writeExact } from "../exact_json.ts";
import { loadFirst } from "../first_frame.ts";
import { suggest } from "../what_next/next_steps.ts";
import { type Editable, editable, isOwn, LARGEST } from "./editable_value.ts";
import { refusalOf, saveRequest } from "./save_request.ts";

const WRAPPED = 64 * 1024; // characters above which lines are not wrapped

interface EditDialogProps {
  /** The checkpoint, with or without its state. */
  checkpoint: Checkpoint;
  thread: Thread | undefined;
  onClose: () => void;
}

export function EditDialog(props: EditDialogProps) {
  const { checkpoint, onClose } = props;
  const ref = placeOf(checkpoint.ref);
  const loaded = useLoad(
    async (signal) => {
      // The stored form, with the types, versions and extras that the JSON view does not show.
      const full = await loadFirst(ref, View.FULL, signal);
      return { full, shown: await loadFirst(ref, View.JSON, signal) };
    },
    [ref],
  );
  const refusal = loaded.data && refusalOf(loaded.data.full);
  if (loaded.data && !refusal) {
    return <Form {...props} {...loaded.data} />;
  }
  return (
    <Dialog title="Edit and save" onClose={onClose}>
      {loaded.problem && <ProblemNote problem={loaded.problem} retry={loaded.reload} />}
      {!loaded.data && !loaded.problem && <Loading what="the stored state" />}
      {refusal && (
        <Note kind="warn">
          <p>This checkpoint cannot be edited here. {refusal}</p>
        </Note>
      )}
      <div class="buttons">
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

interface FormProps extends EditDialogProps {
  /** The checkpoint in its stored form. */
  full: Checkpoint;
  /** The checkpoint in its JSON view. */
  shown: Checkpoint;
}

function Form({ checkpoint, thread, full, shown, onClose }: FormProps) {
  const ref = placeOf(checkpoint.ref);
  const channels = (shown.state?.channels ?? []).filter((one) => !isOwn(one));
  const [name, setName] = useState(channels[0]?.name ?? "");
  const [texts, setTexts] = useState<Record<string, string>>({});
  const [head] = useState(() => headOf(thread, ref.checkpointNs));
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const before = useMemo(() => shownValue(name, channels, full), [name, full]);
  const original = "text" in before ? before.text : "";
  const text = texts[name] ?? original;
  const { value, problem } = useMemo(() => read(text), [text]);
  const save = async () => {
    if ("refusal" in before) {
      throw new InputError(`“${oneLine(name, 60)}” cannot be edited. Choose another channel.`);
    }
    if (!value) {
      throw new InputError(problem ?? "It is not JSON.");
    }
    const written = writeExact(value);
    if (written === writeExact(readExact(original))) {
      throw new InputError("The value is as it was. Nothing was saved.");
    }
    const edit = { channel: name, value: written, durability, expectedHead: head };
    const made = await checkpoints.saveCheckpoint(saveRequest(full, edit));
    suggest({
      what: `Saved a new checkpoint with another value of “${oneLine(name, 60)}”. ${reached(made.durability)}`,
      madeOn: ref.threadId,
      head: placeOf(made.ref),
      link: "Open the new checkpoint",
    });
  };
  return (
    <Ask
      title="Edit and save"
      confirm="Save as a new checkpoint"
      onConfirm={save}
      onClose={onClose}
    >
      <p>
        Saves a new checkpoint on top of {named(checkpoint)}, with another value of one channel. The
        agent continues from the new checkpoint. This checkpoint does not change. Tasks that had
        begun here run again.
      </p>
      <Field label="Channel">
        {(id) => (
          <select id={id} value={name} onChange={(event) => setName(event.currentTarget.value)}>
            {channels.map((one) => (
              <option key={one.name} value={one.name}>
                {oneLine(one.name, 80)}
              </option>
            ))}
          </select>
        )}
      </Field>
      {"refusal" in before ? (
        <Note kind="warn">
          <p>This value cannot be edited here. {before.refusal}</p>
        </Note>
      ) : (
        <>
          <Field label="Value" hint={hintOf(before)}>
            {(id, described) => (
              <textarea
                id={id}
                class={text.length > WRAPPED ? "json-edit long" : "json-edit"}
                spellcheck={false}
                aria-describedby={described}
                aria-invalid={problem !== undefined}
                value={text}
                onInput={(event) => setTexts({ ...texts, [name]: event.currentTarget.value })}
              />
            )}
          </Field>
          <p role="status" class={problem ? "edit-problem" : "hint"}>
            {problem ?? "It is JSON."}
          </p>
        </>
      )}
      <Advanced durability={durability} onChange={setDurability} />
    </Ask>
  );
}

function hintOf({ messages }: { messages: boolean }): string {
  return messages
    ? "The new value replaces the old one as it is: no reducer runs. Messages have the form that LangGraph loads as messages; change what is in kwargs."
    : "JSON. The new value replaces the old one as it is: no reducer runs.";
}

function shownValue(name: string, channels: Channel[], full: Checkpoint): Editable {
  const shown = channels.find((one) => one.name === name)?.content;
  const stored = full.state?.channels.find((one) => one.name === name)?.content;
  if (!shown) {
    return { refusal: "The checkpoint has no channel of the graph's state." };
  }
  if (stored?.case === "empty") {
    return { refusal: "The channel has no value." };
  }
  if (shown.case !== "value" || (stored?.case !== "value" && stored?.case !== "large")) {
    return {
      refusal: "It is too large for a browser. Change it with a client, or with its graph.",
    };
  }
  return editable(new TextDecoder().decode(shown.value.data), stored.value.type);
}

function read(text: string): { value?: Exact; problem?: string } {
  const size = new Blob([text]).size;
  if (size > LARGEST) {
    return {
      problem: `${bytes(size)} is more than the 1 MiB that can be saved here. A client saves larger values.`,
    };
  }
  try {
    return { value: readExact(text) };
  } catch (error) {
    if (error instanceof JsonTextError) {
      return { problem: error.message };
    }
    throw error;
  }
}
