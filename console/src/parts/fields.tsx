/** Labelled fields of forms. */
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface FieldProps {
  label: string;
  /** Text below the field. */
  hint?: string;
  children: (id: string, described: string | undefined) => ComponentChildren;
}

/** A labelled field of a form. */
export function Field({ label, hint, children }: FieldProps) {
  const id = useId();
  const described = hint ? `${id}-hint` : undefined;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id, described)}
      {hint && (
        <p id={described} class="hint">
          {hint}
        </p>
      )}
    </div>
  );
}

interface TextFieldProps {
  label: string;
  value: string;
  onInput: (text: string) => void;
  hint?: string;
  placeholder?: string;
  required?: boolean;
}

export function TextField({ label, value, onInput, hint, placeholder, required }: TextFieldProps) {
  return (
    <Field label={label} {...(hint ? { hint } : {})}>
      {(id, described) => (
        <input
          id={id}
          value={value}
          placeholder={placeholder}
          required={required}
          aria-describedby={described}
          onInput={(event) => onInput(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}
