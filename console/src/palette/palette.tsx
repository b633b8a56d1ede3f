/** One field that finds threads, pages and actions, and starts or opens what was found. */
import { ThreadState } from "@contract/thread_pb.js";
import { Keyboard, Search } from "lucide";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { start } from "../actions/action.ts";
import { offers } from "../actions/offers.ts";
import { isKeyListShown } from "../keys.tsx";
import { PAGES } from "../pages.ts";
import { Dialog } from "../parts/ask.tsx";
import { Icon } from "../parts/icon.tsx";
import { State, When } from "../parts/labels.tsx";
import { type Loaded, useLoad } from "../server/loading.ts";
import { count } from "../words.ts";
import { type Entry, type Group, groupsFor, threadsFor } from "./entries.ts";
import { isPaletteShown, PALETTE_KEYS } from "./shown.ts";
import { ThreadNames } from "./thread_names.ts";
import "./palette.css";

const PLACEHOLDER = "Find a thread, a page or an action";

const COMMANDS: Entry[] = [
  {
    id: "keys",
    name: "Keys",
    icon: Keyboard,
    keys: ["?"],
    run: () => {
      isKeyListShown.value = true;
    },
  },
];

/** The button that opens the palette, for the header. */
export function PaletteButton() {
  return (
    <button
      type="button"
      class="palette-button"
      aria-keyshortcuts="Control+K Meta+K"
      onClick={() => {
        isPaletteShown.value = true;
      }}
    >
      <Icon of={Search} />
      <span class="palette-button-text">Search or jump</span>
      <span class="palette-button-keys" aria-hidden="true">
        <kbd>{PALETTE_KEYS.join(" ")}</kbd>
      </span>
    </button>
  );
}

export function Palette() {
  const { route } = useLocation();
  const chosen = useRef<Entry | undefined>(undefined);
  const isShown = isPaletteShown.value;
  // After the dialog is gone: the focus is back, and the action may open a dialog itself.
  useLayoutEffect(() => {
    if (!isShown && chosen.current) {
      start(chosen.current, route);
      chosen.current = undefined;
    }
  }, [isShown, route]);
  const close = (entry?: Entry) => {
    chosen.current = entry;
    isPaletteShown.value = false;
  };
  return isShown ? (
    <Dialog title="Search or jump" class="palette" onClose={() => close()}>
      <Finder onChoose={close} />
    </Dialog>
  ) : null;
}

function Finder({ onChoose }: { onChoose: (entry: Entry) => void }) {
  const listId = useId();
  const [query, setQuery] = useState("");
  const [names] = useState(() => new ThreadNames());
  useEffect(() => () => names.close(), [names]);
  const [offered] = useState(offers);
  const [marked, setMarked] = useState("");
  const loaded = useLoad((signal) => names.find(query, signal), [], [query]);
  const groups = groupsFor(query, {
    offers: offered,
    pages: PAGES,
    commands: COMMANDS,
    threads: names.known,
  });
  const entries = groups.flatMap((group) => group.entries);
  const active = activeIn(entries, marked, loaded.loading);
  const press = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step !== 0 && entries.length > 0) {
      event.preventDefault();
      const next = active < 0 && step < 0 ? -1 : (active + step) % entries.length;
      setMarked(entries.at(next)?.id ?? "");
    } else if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      const entry = entries[active];
      if (entry) {
        onChoose(entry);
      }
    }
  };
  return (
    <>
      <input
        type="text"
        role="combobox"
        class="palette-field"
        placeholder={PLACEHOLDER}
        aria-label={PLACEHOLDER}
        aria-expanded={true}
        aria-controls={listId}
        aria-autocomplete="list"
        aria-activedescendant={active < 0 ? undefined : optionId(listId, active)}
        autocomplete="off"
        spellcheck={false}
        value={query}
        onInput={(event) => {
          setQuery(event.currentTarget.value);
          setMarked("");
        }}
        onKeyDown={press}
      />
      <List id={listId} groups={groups} active={active} onMark={setMarked} onChoose={onChoose} />
      <p class="palette-note" role="status">
        {noteOn(loaded, names, query)}
      </p>
    </>
  );
}

/** Return the index of the entry that Enter chooses: the marked entry, or the first. */
function activeIn(entries: Entry[], marked: string, isLoading: boolean): number {
  const at = entries.findIndex(({ id }) => id === marked);
  if (at >= 0) {
    return at;
  }
  // While threads may still be found, nobody has asked for the search.
  return entries[0]?.id === "search" && isLoading ? -1 : Math.min(0, entries.length - 1);
}

/** Return what the user must know about the threads in the list. */
function noteOn(loaded: Loaded<void>, names: ThreadNames, query: string): string {
  if (loaded.problem) {
    return `${loaded.problem.title}, so threads are missing here. Pages and actions work.`;
  }
  if (loaded.loading) {
    return query ? "Looking through the threads…" : "";
  }
  const isFound = threadsFor(query, names.known).length > 0;
  if (names.isCut && !(isFound && !query)) {
    return `Only the latest ${count(names.known.length)} threads were looked through.`;
  }
  return query && !isFound ? "No thread has this in its name." : "";
}

function optionId(listId: string, index: number): string {
  return `${listId}-${index}`;
}

interface ListProps {
  id: string;
  groups: Group[];
  /** Index of the entry that Enter chooses; below 0: none. */
  active: number;
  onMark: (id: string) => void;
  onChoose: (entry: Entry) => void;
}

function List({ id, groups, active, onMark, onChoose }: ListProps) {
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [active]);
  let index = -1;
  return (
    <div id={id} ref={list} class="palette-list" role="listbox" aria-label="Found">
      {groups.map(({ title, entries }) => (
        // biome-ignore lint/a11y/useSemanticElements: groups of a listbox are not fieldsets
        <div key={title} role="group" aria-label={title}>
          <p class="palette-group" aria-hidden="true">
            {title}
          </p>
          {entries.map((entry) => {
            index += 1;
            const isActive = index === active;
            return (
              // biome-ignore lint/a11y/useFocusableInteractive: the field has the focus, and names the option
              // biome-ignore lint/a11y/useKeyWithClickEvents: the field takes the keys
              <div
                key={entry.id}
                id={optionId(id, index)}
                class={entry.isDangerous ? "palette-entry danger" : "palette-entry"}
                role="option"
                aria-selected={isActive}
                onPointerMove={() => isActive || onMark(entry.id)}
                onClick={() => onChoose(entry)}
              >
                <Icon of={entry.icon} />
                <span class="palette-name">{entry.name}</span>
                <Side entry={entry} />
              </div>
            );
          })}
        </div>
      ))}
    </div>
  );
}

/** What a person recognizes an entry by, besides its name. */
function Side({ entry: { keys, thread } }: { entry: Entry }) {
  return (
    <span class="palette-side">
      {thread && thread.state !== ThreadState.IDLE && <State state={thread.state} />}
      {thread && <When time={thread.updateTime} short />}
      {keys?.map((key) => (
        <kbd key={key}>{key}</kbd>
      ))}
    </span>
  );
}
