/** Questions that one click answers: a few options, and each option is a whole answer. Pure. */
import type { Json } from "../../parts/json/json_tree.tsx";
import type { Form } from "./form.ts";

const MOST = 8; // options that are buttons; more options are a list with a button below it

export interface Option {
  label: string;
  value: Json;
}

/** Return the options of a form that is a single choice; undefined: the form takes more than that. */
export function oneClickOptions(form: Form): Option[] | undefined {
  const field = form.kind === "fields" && form.whole ? form.fields[0] : undefined;
  if (field?.kind === "boolean") {
    return [
      { label: "Yes", value: true },
      { label: "No", value: false },
    ];
  }
  return field?.kind === "choice" && field.options.length <= MOST ? field.options : undefined;
}

/** Return the option that an answer chose. */
export function chosenOption(options: Option[], answer: Json): Option | undefined {
  const text = JSON.stringify(answer);
  return options.find(({ value }) => JSON.stringify(value) === text);
}
