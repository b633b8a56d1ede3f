/** Decides an unknown effect: a person who looked in the outside world says whether it was done. */
import { Durability } from "@contract/checkpoint_pb.js";
import type { Effect } from "@contract/effect_service_pb.js";
import { useState } from "preact/hooks";
import { Advanced, reached } from "../../actions/durability.tsx";
import { JsonTextError, readExact, writeExact } from "../../actions/exact_json.ts";
import { Ask, InputError } from "../../parts/ask.tsx";
import { Field, TextField } from "../../parts/fields.tsx";
import { Copy, When } from "../../parts/labels.tsx";
import { say } from "../../parts/notices.tsx";
import { effects } from "../../server/calls.ts";
import { oneLine, visible } from "../../words.ts";

interface ResolveDialogProps {
  effect: Effect;
  onClose: () => void;
}

export function ResolveDialog({ effect, onClose }: ResolveDialogProps) {
  const { threadId, key, name, attempt, attemptTime, idempotencyKey } = effect;
  const [done, setDone] = useState<boolean>();
  const [text, setText] = useState("");
  const [resolvedBy, setResolvedBy] = useState("");
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const what = `“${oneLine(name || key, 80)}”`;
  const resolve = async () => {
    if (done === undefined) {
      throw new InputError("Say whether the work was done.");
    }
    const result = done ? { result: { type: "json", data: written(text) } } : {};
    const request = { threadId, key, attempt, done, ...result, resolvedBy, durability };
    const { durability: is } = await effects.resolveEffect(request);
    say(`Recorded that ${what} was ${done ? "done" : "not done"}. ${reached(is)}`);
  };
  return (
    <Ask
      title="Decide the effect"
      confirm="Record the decision"
      onConfirm={resolve}
      onClose={onClose}
    >
      <p>
        Attempt {attempt} of {what} began <When time={attemptTime} /> and did not report, so the
        work may be done. Look in the outside world for this idempotency key first:
      </p>
      <p>
        <code>{visible(idempotencyKey)}</code> <Copy text={idempotencyKey} what="the key" />
      </p>
      <fieldset>
        <legend>The work</legend>
        <label class="choice">
          <input type="radio" name="done" checked={done === true} onChange={() => setDone(true)} />
          <span>was done. The next run gets the result and does not repeat the work.</span>
        </label>
        <label class="choice">
          <input
            type="radio"
            name="done"
            checked={done === false}
            onChange={() => setDone(false)}
          />
          <span>was not done. The next run may do the work.</span>
        </label>
      </fieldset>
      {done && (
        <Field label="Result" hint={'JSON, such as {"id": 7}. Empty: null.'}>
          {(id, described) => (
            <textarea
              id={id}
              class="thread-ids"
              spellcheck={false}
              aria-describedby={described}
              value={text}
              onInput={(event) => setText(event.currentTarget.value)}
            />
          )}
        </Field>
      )}
      <TextField
        label="Decided by"
        value={resolvedBy}
        onInput={setResolvedBy}
        hint="Optional. A name for people, kept with the decision."
      />
      <Advanced durability={durability} onChange={setDurability} />
    </Ask>
  );
}

/** Return the bytes of a result that a person entered. */
function written(text: string): Uint8Array<ArrayBuffer> {
  try {
    return new TextEncoder().encode(text.trim() ? writeExact(readExact(text)) : "null");
  } catch (error) {
    if (error instanceof JsonTextError) {
      throw new InputError(`The result is not JSON. ${error.message}`);
    }
    throw error;
  }
}
