/** The durability that a change must reach before the console reports success. */
import { Durability } from "@contract/checkpoint_pb.js";
import { Field } from "../parts/fields.tsx";

interface DurabilityFieldProps {
  value: Durability;
  onChange: (durability: Durability) => void;
}

export function DurabilityField({ value, onChange }: DurabilityFieldProps) {
  return (
    <Field
      label="Wait until the change is"
      hint={
        value === Durability.CERTIFIED
          ? "On the blob store too, read back and compared. This can take a while."
          : "In the server's own database. It is certified later by itself."
      }
    >
      {(id, described) => (
        <select
          id={id}
          aria-describedby={described}
          value={String(value)}
          onChange={(event) => onChange(Number(event.currentTarget.value))}
        >
          <option value={String(Durability.JOURNALED)}>journaled</option>
          <option value={String(Durability.CERTIFIED)}>certified</option>
        </select>
      )}
    </Field>
  );
}

/** Return the reached durability, as the end of a sentence that reports a change. */
export function reached(durability: Durability): string {
  return durability === Durability.CERTIFIED ? "It is certified." : "It is journaled.";
}
