/** The durability that a change must reach before the console reports success. */
import { Durability } from "@contract/checkpoint_pb.js";
import type { ComponentChildren } from "preact";
import { Field } from "../parts/fields.tsx";

interface AdvancedProps {
  durability: Durability;
  onChange: (durability: Durability) => void;
  /** Other fields that few people need. */
  children?: ComponentChildren;
}

/** The folded end of a form: fields whose defaults fit almost always, and the durability. */
export function Advanced({ durability, onChange, children }: AdvancedProps) {
  return (
    <details class="advanced">
      <summary>Advanced</summary>
      {children}
      <Field
        label="Wait until the change is"
        hint={
          durability === Durability.CERTIFIED
            ? "On the blob store too, read back and compared. This can take a while."
            : "In the server's own database. The server certifies the change later by itself."
        }
      >
        {(id, described) => (
          <select
            id={id}
            aria-describedby={described}
            value={String(durability)}
            onChange={(event) => onChange(Number(event.currentTarget.value))}
          >
            <option value={String(Durability.JOURNALED)}>journaled</option>
            <option value={String(Durability.CERTIFIED)}>certified</option>
          </select>
        )}
      </Field>
    </details>
  );
}

/** Return the reached durability, as the end of a sentence that reports a change. */
export function reached(durability: Durability): string {
  return durability === Durability.CERTIFIED ? "It is certified." : "It is journaled.";
}
