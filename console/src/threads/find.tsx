/** Finding threads: one field for names and for what happened, and filters as chips. */
import { CornerDownLeft, ListFilter, Search, X } from "lucide";
import { useState } from "preact/hooks";
import type { ThreadFilter } from "../links.ts";
import { Field, TextField } from "../parts/fields.tsx";
import { Icon } from "../parts/icon.tsx";
import { closeMenu, usePanel } from "../parts/menu.tsx";
import { narrow } from "../parts/narrow.ts";
import { oneLine, visible } from "../words.ts";
import { AGES, type Choice, GROUPS } from "./groups.ts";

interface FindProps {
  filter: Required<ThreadFilter>;
  /** Changes parts of the filter. */
  onChange: (changed: ThreadFilter) => void;
  /** Searches checkpoints for the words. */
  onSearch: (words: string) => void;
}

const HINT = "Filter by name; Enter searches what happened";

export function Find({ filter, onChange, onSearch }: FindProps) {
  const submit = (event: Event) => {
    event.preventDefault();
    if (filter.q.trim()) {
      onSearch(filter.q.trim());
    }
  };
  return (
    <search class="thread-find">
      <form onSubmit={submit}>
        <Icon of={Search} />
        <input
          type="search"
          enterkeyhint="search"
          value={filter.q}
          aria-label={HINT}
          placeholder={narrow.value ? "Name, or what happened" : HINT}
          onInput={(event) => onChange({ q: event.currentTarget.value })}
        />
        {filter.q.trim() && (
          <button type="submit" class="plain" title="Search what happened">
            <span class={narrow.value ? "unseen" : ""}>Search what happened</span>
            <Icon of={CornerDownLeft} />
          </button>
        )}
      </form>
      <FilterPanel filter={filter} onChange={onChange} />
    </search>
  );
}

type FiltersProps = Pick<FindProps, "filter" | "onChange">;

function FilterPanel({ filter, onChange }: FiltersProps) {
  const { id, box, button, isOpen, open } = usePanel();
  return (
    <div class="filter-menu" ref={box}>
      <button
        type="button"
        ref={button}
        aria-expanded={isOpen}
        aria-controls={isOpen ? id : undefined}
        onClick={() => (isOpen ? closeMenu() : open())}
      >
        <Icon of={ListFilter} /> Filter
      </button>
      {isOpen && (
        <div class="filter-panel" id={id}>
          <Filters filter={filter} onChange={onChange} />
        </div>
      )}
    </div>
  );
}

function Filters({ filter, onChange }: FiltersProps) {
  const [agent, setAgent] = useState(filter.agent);
  const [label, setLabel] = useState(filter.label);
  const submit = (event: Event) => {
    event.preventDefault();
    onChange({ agent: agent.trim(), label: label.trim() });
  };
  return (
    <form class="thread-filters" onSubmit={submit} aria-label="Filter">
      <Select
        label="State"
        any="any"
        choices={GROUPS}
        value={filter.state}
        onChange={(state) => onChange({ state })}
      />
      <Select
        label="Changed"
        any="at any time"
        choices={AGES}
        value={filter.since}
        onChange={(since) => onChange({ since })}
      />
      <TextField label="Agent" value={agent} onInput={setAgent} />
      <TextField label="Label of a checkpoint" value={label} onInput={setLabel} />
      <button type="submit">Apply</button>
    </form>
  );
}

interface SelectProps {
  label: string;
  any: string;
  choices: Choice[];
  value: string;
  onChange: (name: string) => void;
}

function Select({ label, any, choices, value, onChange }: SelectProps) {
  return (
    <Field label={label}>
      {(id) => (
        <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
          <option value="">{any}</option>
          {choices.map(({ name, title }) => (
            <option key={name} value={name}>
              {title}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

/** The filters that are set, each with a button that removes the filter. */
export function Chips({ filter, onChange }: FiltersProps) {
  const titleOf = (choices: Choice[], value: string) =>
    choices.find(({ name }) => name === value)?.title ?? "";
  const chips: [keyof ThreadFilter, string, string][] = [
    ["state", "State", titleOf(GROUPS, filter.state)],
    ["since", "Changed", titleOf(AGES, filter.since)],
    ["agent", "Agent", filter.agent],
    ["label", "Label", filter.label],
  ];
  const set = chips.filter(([, , text]) => text);
  if (set.length === 0) {
    return null;
  }
  return (
    <ul class="filter-chips" aria-label="Filters">
      {set.map(([name, title, text]) => (
        <li key={name}>
          <button
            type="button"
            class="filter-chip"
            title={`Remove this filter: ${visible(text)}`}
            onClick={() => onChange({ [name]: "" })}
          >
            <span class="unseen">Remove the filter </span>
            <span class="quiet">{title}</span>{" "}
            <span class="filter-chip-text">{oneLine(text, 60)}</span>
            <Icon of={X} />
          </button>
        </li>
      ))}
      {set.length > 1 && (
        <li>
          <button
            type="button"
            class="plain"
            onClick={() => onChange({ state: "", since: "", agent: "", label: "" })}
          >
            Clear all
          </button>
        </li>
      )}
    </ul>
  );
}
