/** Keys that work on every page, and the dialog that lists all keys. */

import { useEffect, useRef, useState } from "preact/hooks";
import { useLocation } from "preact-iso";
import { adoptLink, operationsLink, searchLink, snapshotsLink, threadsLink } from "./links.ts";
import { Dialog } from "./parts/ask.tsx";

const LIST: [string[], string][] = [
  [["g", "t"], "Threads"],
  [["g", "s"], "Snapshots"],
  [["g", "a"], "Adopt"],
  [["g", "o"], "Operations"],
  [["/"], "Search"],
  [["j", "k"], "Next and previous entry of the page's lists or tree"],
  [["↓", "↑"], "The same in the list or tree that has the focus"],
  [["Home", "End"], "First and last entry of that list or tree"],
  [["Enter"], "Open the entry"],
  [["Escape"], "Close a dialog or a menu, leave a field"],
  [["?"], "This list"],
];

/** Pages by the key that follows `g`. */
const PAGES: Record<string, string> = {
  t: threadsLink(),
  s: snapshotsLink(),
  a: adoptLink,
  o: operationsLink,
};

const SECOND_KEY_MS = 1500; // after `g`; later keys stand alone

const FIELD = "input:not([type=radio], [type=checkbox]), textarea, select";

/** Return whether a key belongs to the focused element, because somebody types there. */
export function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  return (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    target.matches(FIELD) ||
    document.querySelector("dialog[open]") !== null
  );
}

/** Takes the focus from a field, so that the keys of the page work again. */
function leaveField({ target }: KeyboardEvent): void {
  const inDialog = document.querySelector("dialog[open]") !== null;
  if (!inDialog && target instanceof HTMLElement && target.matches(FIELD)) {
    target.blur();
  }
}

export function Keys() {
  const { route } = useLocation();
  const [shown, setShown] = useState(false);
  // Time at which `g` was pressed. A ref: the effect runs again after each change of the page.
  const firstKeyAt = useRef(Number.NEGATIVE_INFINITY);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.key === "Escape") {
        leaveField(event);
        return;
      }
      if (isTyping(event)) {
        return;
      }
      const isSecond = event.timeStamp - firstKeyAt.current < SECOND_KEY_MS;
      firstKeyAt.current = event.key === "g" ? event.timeStamp : Number.NEGATIVE_INFINITY;
      const page = event.key === "/" ? searchLink() : isSecond && PAGES[event.key];
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
        {LIST.map(([keys, meaning]) => (
          <div key={meaning}>
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
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
