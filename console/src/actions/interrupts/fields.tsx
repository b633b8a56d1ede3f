/** The controls of a form for a question: fields, decisions about calls of tools, or JSON. */
import { useId } from "preact/hooks";
import { Field, TextField } from "../../parts/fields.tsx";
import { JsonTree } from "../../parts/json/json_tree.tsx";
import { oneLine, visible } from "../../words.ts";
import type { Decided } from "./answer.ts";
import type { FormField, Review } from "./form.ts";

interface ControlProps {
  field: FormField;
  text: string;
  onInput: (text: string) => void;
}

/** The control of one field. */
export function Control({ field, text, onInput }: ControlProps) {
  const label = oneLine(field.label, 120) + (field.required ? "" : " (may be empty)");
  const hint = field.hint ? { hint: visible(field.hint) } : {};
  switch (field.kind) {
    case "boolean":
      return (
        <Choices
          legend={label}
          labels={["Yes", "No"]}
          chosen={text === "true" ? 0 : text === "false" ? 1 : undefined}
          onChoose={(index) => onInput(index === 0 ? "true" : "false")}
        />
      );
    case "choice":
      return (
        <Choices
          legend={label}
          labels={field.options.map((one) => one.label)}
          chosen={text === "" ? undefined : Number(text)}
          onChoose={(index) => onInput(String(index))}
        />
      );
    case "long":
    case "json":
      return (
        <Field label={field.kind === "json" ? `${label}, as JSON` : label} {...hint}>
          {(id, described) => (
            <textarea
              id={id}
              class={field.kind === "json" ? "" : "prose"}
              aria-describedby={described}
              value={text}
              onInput={(event) => onInput(event.currentTarget.value)}
            />
          )}
        </Field>
      );
    case "number":
    case "integer":
      return (
        <Field label={label} {...hint}>
          {(id, described) => (
            <input
              id={id}
              inputMode={field.kind === "integer" ? "numeric" : "decimal"}
              aria-describedby={described}
              value={text}
              onInput={(event) => onInput(event.currentTarget.value)}
            />
          )}
        </Field>
      );
    default:
      return <TextField label={label} value={text} onInput={onInput} {...hint} />;
  }
}

interface ChoicesProps {
  legend: string;
  labels: string[];
  chosen: number | undefined;
  onChoose: (index: number) => void;
}

function Choices({ legend, labels, chosen, onChoose }: ChoicesProps) {
  const name = useId();
  return (
    <fieldset>
      <legend>{legend}</legend>
      {labels.map((label, index) => (
        <label key={index} class="choice">
          <input
            type="radio"
            name={name}
            checked={chosen === index}
            onChange={() => onChoose(index)}
          />
          <span>{oneLine(label, 500)}</span>
        </label>
      ))}
    </fieldset>
  );
}

interface ReviewControlProps {
  review: Review;
  decided: Decided;
  onChange: (decided: Decided) => void;
}

/** The controls for the decision about one call of a tool. */
export function ReviewControl({ review, decided, onChange }: ReviewControlProps) {
  const decision = decided.decision === undefined ? undefined : review.decisions[decided.decision];
  const edits = decision?.takes === "args";
  return (
    <div class="review">
      <p>
        <strong>{oneLine(review.action, 200)}</strong>
      </p>
      {review.description && <p class="prose-text">{visible(review.description.slice(0, 4000))}</p>}
      {!edits && <JsonTree value={review.args} open={2} name="arguments" />}
      <Choices
        legend={`Decision about ${oneLine(review.action, 80)}`}
        labels={review.decisions.map((one) => one.label)}
        chosen={decided.decision}
        onChoose={(index) => onChange({ ...decided, decision: index })}
      />
      {edits && (
        <Field label="Arguments, as JSON">
          {(id) => (
            <textarea
              id={id}
              spellcheck={false}
              value={decided.args}
              onInput={(event) => onChange({ ...decided, args: event.currentTarget.value })}
            />
          )}
        </Field>
      )}
      {decision?.takes === "text" && (
        <Field label={decision.type === "reject" ? "Why (may be empty)" : "Response"}>
          {(id) => (
            <textarea
              id={id}
              class="prose"
              value={decided.text}
              onInput={(event) => onChange({ ...decided, text: event.currentTarget.value })}
            />
          )}
        </Field>
      )}
    </div>
  );
}
