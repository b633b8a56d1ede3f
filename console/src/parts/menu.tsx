/** A menu behind a button: arrow keys move, Escape closes it, and so do clicks and dialogs. */
import { signal } from "@preact/signals";
import type { IconNode } from "lucide";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef } from "preact/hooks";
import { Icon } from "./icon.tsx";
import { moved } from "./list_keys.ts";
import "./menu.css";

interface OpenMenu {
  id: string;
  /** Returns the focus to the button of the menu. */
  focus: () => void;
}

/** At most one menu is open. */
const openMenu = signal<OpenMenu | undefined>();

/** Closes the open menu, if there is one; the focus returns to its button. */
export function closeMenu(): void {
  const menu = openMenu.value;
  openMenu.value = undefined;
  menu?.focus();
}

/**
 * A panel behind a button: at most one panel is open, and it closes as a menu does.
 *
 * `box` is the element around the button and the panel.
 */
export function usePanel() {
  const id = useId();
  const box = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const isOpen = openMenu.value?.id === id;
  useLayoutEffect(() => (isOpen ? whileOpen(box.current) : undefined), [isOpen]);
  useEffect(
    () => () => {
      if (openMenu.peek()?.id === id) {
        openMenu.value = undefined;
      }
    },
    [id],
  );
  const open = () => {
    openMenu.value = { id, focus: () => button.current?.focus() };
  };
  return { id, box, button, isOpen, open };
}

export interface MenuItem {
  name: string;
  icon: IconNode;
  /** The key that does the same without the menu. */
  key?: string | undefined;
  /** Whether the item is below a line, in red: it deletes something. */
  isApart: boolean;
  /** The address that the item opens; without it, `run` is called. */
  href?: string | undefined;
  run?: (() => void) | undefined;
}

interface MenuProps {
  /** Name of the menu and of its button. */
  label: string;
  items: readonly MenuItem[];
  /** Content of the button. */
  children: ComponentChildren;
}

export function Menu({ label, items, children }: MenuProps) {
  const { id, box, button, isOpen, open: openPanel } = usePanel();
  const first = useRef(0); // the item that gets the focus when the menu opens
  useLayoutEffect(() => {
    if (isOpen) {
      keepInside(box.current);
      itemsOf(box.current).at(first.current)?.focus();
    }
  }, [isOpen]);
  const open = (at: number) => {
    first.current = at;
    openPanel();
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      open(event.key === "ArrowDown" ? 0 : -1);
    }
  };
  return (
    <div class="menu" ref={box}>
      <button
        type="button"
        class="menu-button"
        ref={button}
        aria-label={label}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        aria-controls={isOpen ? id : undefined}
        onClick={() => (isOpen ? closeMenu() : open(0))}
        onKeyDown={press}
      >
        {children}
      </button>
      {isOpen && <Panel id={id} label={label} items={items} />}
    </div>
  );
}

interface PanelProps {
  id: string;
  label: string;
  items: readonly MenuItem[];
}

function Panel({ id, label, items }: PanelProps) {
  const panel = useRef<HTMLDivElement>(null);
  const press = (event: KeyboardEvent) => {
    const choices = itemsOf(panel.current);
    const at = choices.indexOf(document.activeElement as HTMLElement);
    const next = moved(event, at, choices.length);
    if (event.key === "Tab") {
      closeMenu(); // the focus moves on from the button
    } else if (next !== undefined) {
      event.preventDefault();
      choices[next]?.focus();
    }
  };
  return (
    <div id={id} ref={panel} class="menu-panel" role="menu" aria-label={label} onKeyDown={press}>
      {items.map((item, index) => (
        <>
          {item.isApart && !items[index - 1]?.isApart && <hr />}
          <Choice key={item.name} item={item} />
        </>
      ))}
    </div>
  );
}

function Choice({ item }: { item: MenuItem }) {
  const { name, icon, key, isApart, href, run } = item;
  const shared = {
    role: "menuitem" as const,
    class: isApart ? "menu-item danger" : "menu-item",
    tabIndex: -1,
    "aria-keyshortcuts": key,
    onClick: () => {
      closeMenu();
      run?.();
    },
  };
  const content = (
    <>
      <Icon of={icon} />
      <span>{name}</span>
      {key && (
        <span class="menu-key" aria-hidden="true">
          <kbd>{key}</kbd>
        </span>
      )}
    </>
  );
  return href === undefined ? (
    <button type="button" {...shared}>
      {content}
    </button>
  ) : (
    <a href={href} {...shared}>
      {content}
    </a>
  );
}

function itemsOf(part: HTMLElement | null): HTMLElement[] {
  return Array.from(part?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? []);
}

const EDGE = 16; // pixels between a panel and the edge of the window

/** Moves the panel to the left if it reaches over the right edge of the window. */
function keepInside(box: HTMLElement | null): void {
  const panel = box?.querySelector<HTMLElement>("[role=menu]");
  if (panel) {
    const over = panel.getBoundingClientRect().right - (window.innerWidth - EDGE);
    panel.style.setProperty("--over", `${Math.max(0, over)}px`);
  }
}

/** Closes the open menu on Escape, and when the pointer or the focus leaves it. */
function whileOpen(box: HTMLElement | null): () => void {
  const press = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      event.preventDefault();
      closeMenu();
    }
  };
  const leave = (event: Event) => {
    if (event.target instanceof Node && !box?.contains(event.target)) {
      openMenu.value = undefined;
    }
  };
  window.addEventListener("keydown", press);
  window.addEventListener("pointerdown", leave);
  window.addEventListener("focusin", leave);
  return () => {
    window.removeEventListener("keydown", press);
    window.removeEventListener("pointerdown", leave);
    window.removeEventListener("focusin", leave);
  };
}
