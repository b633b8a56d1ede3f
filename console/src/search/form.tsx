/** The form of the search: words, filters, mode and limit. */
import type { SearchMode } from "@contract/search_service_pb.js";
import { useEffect, useRef, useState } from "preact/hooks";
import { Field, TextField } from "../parts/fields.tsx";
import { Note } from "../parts/problem.tsx";
import { LIMITS, MODES, objection, type Question } from "./asking.ts";

interface SearchFormProps {
  question: Question;
  /** Modes that the server has. */
  modes: SearchMode[];
  onAsk: (question: Question) => void;
}

export function SearchForm({ question, modes, onAsk }: SearchFormProps) {
  const [draft, setDraft] = useState(question);
  const [wrong, setWrong] = useState(objection(question));
  const words = useRef<HTMLInputElement>(null);
  const change = (changed: Partial<Question>) => setDraft({ ...draft, ...changed });
  useEffect(() => {
    if (!question.q) {
      words.current?.focus();
    }
  }, []);
  const submit = (event: Event) => {
    event.preventDefault();
    const problem = draft.q.trim() ? objection(draft) : "Enter at least one word.";
    setWrong(problem);
    if (!problem) {
      onAsk(draft);
    }
  };
  const known = MODES.filter(([name, mode]) => modes.includes(mode) || name === draft.mode);
  return (
    <search>
      <form class="card search-form" onSubmit={submit}>
        <div class="search-words">
          <Field label="What happened, in plain words">
            {(id) => (
              <input
                id={id}
                ref={words}
                type="search"
                value={draft.q}
                placeholder="asked for approval"
                onInput={(event) => change({ q: event.currentTarget.value })}
              />
            )}
          </Field>
          <button type="submit" class="primary">
            Search
          </button>
        </div>
        <details open={question.thread + question.agent + question.filter + question.mode !== ""}>
          <summary>Filters, mode and limit</summary>
          <div class="search-filters">
            <TextField
              label="Thread"
              value={draft.thread}
              onInput={(thread) => change({ thread })}
              hint="The whole ID."
            />
            <TextField
              label="Agent"
              value={draft.agent}
              onInput={(agent) => change({ agent })}
              hint="The whole name."
            />
            <TextField
              label="Metadata"
              value={draft.filter}
              placeholder='{"outcome": "success"}'
              onInput={(filter) => change({ filter })}
              hint="A JSON object of top-level keys and their values."
            />
            <Field label="Mode">
              {(id) => (
                <select
                  id={id}
                  value={draft.mode}
                  onChange={(event) => change({ mode: event.currentTarget.value })}
                >
                  <option value="">best available</option>
                  {known.map(([name, , text]) => (
                    <option key={name} value={name}>
                      {text}
                    </option>
                  ))}
                </select>
              )}
            </Field>
            <Field label="Results at most">
              {(id) => (
                <select
                  id={id}
                  value={draft.limit}
                  onChange={(event) => change({ limit: event.currentTarget.value })}
                >
                  {LIMITS.map((limit) => (
                    <option key={limit} value={String(limit)}>
                      {limit}
                    </option>
                  ))}
                </select>
              )}
            </Field>
          </div>
        </details>
        {wrong && (
          <Note kind="bad" role="alert">
            <p>{wrong}</p>
          </Note>
        )}
      </form>
    </search>
  );
}
