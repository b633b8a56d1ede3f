/** Keys that work on every page, and the dialog that lists all keys. */
import { effect, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { useLocation } from "preact-iso";
import { type ActionName, CHECKPOINT_ACTIONS, start } from "./actions/action.ts";
import { offers } from "./actions/offers.ts";
import { PAGES } from "./pages.ts";
import { isPaletteShown, PALETTE_KEYS } from "./palette/shown.ts";
import { Dialog } from "./parts/ask.tsx";
import { closeMenu } from "./parts/menu.tsx";
import "./keys.css";
import { areLettersKeys, isDialogOpen, isTyping, leaveField } from "./typing.ts";

type Key = [keys: string[], meaning: string];

const SECTIONS: [title: string, keys: Key[]][] = [
  [
    "Everywhere",
    [
      [PALETTE_KEYS, "Find a thread, a page or an action"],
      ...PAGES.map(({ keys, name }): Key => [keys, name]),
      [["?"], "This list"],
      [["Escape"], "Close a dialog or a menu, leave a field"],
    ],
  ],
  [
    "Lists and trees",
    [
      [["j", "k"], "Next and previous entry of the page's lists or tree"],
      [["↓", "↑"], "The same in the list, tree or menu that has the focus"],
      [["Home", "End"], "First and last entry of that list, tree or menu"],
      [["Enter"], "Open the entry"],
    ],
  ],
  [
    "The timeline of a thread",
    [
      [["→", "←"], "Next and previous step of the lane"],
      [["↓", "↑"], "The lane below and above"],
      [["+", "-"], "Zoom in and out"],
      [["0"], "Show everything"],
    ],
  ],
  [
    "The shown checkpoint",
    Object.values<ActionName>(CHECKPOINT_ACTIONS).flatMap(({ key, name }): Key[] =>
      key ? [[[key], name]] : [],
    ),
  ],
];

/** Whether the dialog with the keys is open. */
export const isKeyListShown = signal(false);

const LETTERS_KEY = "tuskpoint.single-keys";

areLettersKeys.value = localStorage.getItem(LETTERS_KEY) !== "off";
effect(() => localStorage.setItem(LETTERS_KEY, areLettersKeys.value ? "on" : "off"));

const SECOND_KEY_MS = 1500; // after `g`; later keys stand alone

/** Return the page that a key opens. */
function pageOf(key: string, isSecond: boolean): string | undefined {
  return PAGES.find(({ keys }) => keys.at(-1) === key && (isSecond || keys.length === 1))?.href;
}

export function Keys() {
  const { route } = useLocation();
  // Time at which `g` was pressed. A ref: the effect runs again after each change of the page.
  const firstKeyAt = useRef(Number.NEGATIVE_INFINITY);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.key === "Escape") {
        leaveField(event);
        return;
      }
      if ((event.ctrlKey || event.metaKey) && event.key === "k" && !isDialogOpen()) {
        event.preventDefault();
        isPaletteShown.value = true;
        return;
      }
      if (isTyping(event) || event.repeat) {
        return;
      }
      const isSecond = event.timeStamp - firstKeyAt.current < SECOND_KEY_MS;
      firstKeyAt.current = event.key === "g" ? event.timeStamp : Number.NEGATIVE_INFINITY;
      const page = pageOf(event.key, isSecond);
      const action = offers()
        .flatMap(({ actions }) => actions)
        .find(({ key }) => key === event.key);
      if (event.key === "?") {
        isKeyListShown.value = true;
      } else if (page) {
        event.preventDefault();
        route(page);
      } else if (action && !isSecond) {
        event.preventDefault();
        closeMenu();
        start(action, route);
      }
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [route]);
  return isKeyListShown.value ? <KeyList /> : null;
}

function KeyList() {
  const close = () => {
    isKeyListShown.value = false;
  };
  return (
    <Dialog title="Keys" onClose={close}>
      <div class="keys">
        {SECTIONS.map(([title, keys]) => (
          <section key={title}>
            <h3>{title}</h3>
            <dl>
              {keys.map(([names, meaning]) => (
                <div key={meaning}>
                  <dt>
                    {names.map((name) => (
                      <kbd key={name}>{name}</kbd>
                    ))}
                  </dt>
                  <dd>{meaning}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
      <label class="choice">
        <input
          type="checkbox"
          checked={areLettersKeys.value}
          onChange={(event) => {
            areLettersKeys.value = event.currentTarget.checked;
          }}
        />
        <span>
          Single letters act. Turn them off to dictate text; {PALETTE_KEYS.join(" ")} still finds
          this list.
        </span>
      </label>
      <div class="buttons">
        <button type="button" class="primary" autofocus onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
