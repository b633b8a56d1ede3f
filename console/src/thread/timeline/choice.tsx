/** The choice between the timeline and the tree, kept in this browser. */
import { signal } from "@preact/signals";
import { ChartGantt, type IconNode, ListTree } from "lucide";
import { Icon } from "../../parts/icon.tsx";
import { narrow } from "../../parts/narrow.ts";

export type ThreadView = "timeline" | "tree";

const KEY = "tuskpoint.thread-view";

const chosen = signal<ThreadView | undefined>(stored());

function stored(): ThreadView | undefined {
  const text = localStorage.getItem(KEY);
  return text === "timeline" || text === "tree" ? text : undefined;
}

/** Return the chosen view; before a choice, the timeline on a wide screen and the tree on a phone. */
export function threadView(): ThreadView {
  return chosen.value ?? (narrow.value ? "tree" : "timeline");
}

const VIEWS: [ThreadView, string, IconNode][] = [
  ["timeline", "Timeline", ChartGantt],
  ["tree", "Tree", ListTree],
];

export function ViewChoice() {
  const view = threadView();
  return (
    <fieldset class="segments">
      <legend class="unseen">View</legend>
      {VIEWS.map(([name, title, icon]) => (
        <button
          key={name}
          type="button"
          aria-pressed={view === name}
          onClick={() => {
            chosen.value = name;
            localStorage.setItem(KEY, name);
          }}
        >
          <Icon of={icon} />
          {title}
        </button>
      ))}
    </fieldset>
  );
}
