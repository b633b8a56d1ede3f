/** Keys that work on every page, and the dialog that lists all keys. */

import { useEffect, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { operationsLink, searchLink, snapshotsLink, threadsLink } from "./links.ts";
import { Dialog } from "./parts/ask.tsx";

const LIST: [string, string][] = [
  ["t", "Threads"],
  ["s", "Snapshots"],
  ["o", "Operations"],
  ["/", "Search"],
  ["j · k or ↓ · ↑", "Next and previous entry of a list or tree"],
  ["Home · End", "First and last entry"],
  ["Enter", "Open the entry"],
  ["Escape", "Close a dialog"],
  ["?", "This list"],
];

/** Return whether a key belongs to the focused element, because somebody types there. */
export function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  return (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    target.matches("input, textarea, select") ||
    document.querySelector("dialog[open]") !== null
  );
}

export function Keys() {
  const { route } = useLocation();
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const pages: Record<string, string> = {
      t: threadsLink(),
      s: snapshotsLink(),
      o: operationsLink,
      "/": searchLink(),
    };
    const press = (event: KeyboardEvent) => {
      const page = pages[event.key];
      if (isTyping(event)) {
        return;
      }
      if (event.key === "?") {
        setShown(true);
      } else if (page) {
        event.preventDefault();
        route(page);
      }
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [route]);
  if (!shown) {
    return null;
  }
  return (
    <Dialog title="Keys" onClose={() => setShown(false)}>
      <dl class="keys">
        {LIST.map(([key, meaning]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <div class="buttons">
        <button type="button" class="primary" onClick={() => setShown(false)}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
