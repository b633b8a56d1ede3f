/** A menu behind a button. It closes on Escape, on a click beside it, and when a dialog opens. */
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

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

interface MenuProps {
  label: string;
  /** The buttons of the menu. */
  children: ComponentChildren;
}

export function Menu({ label, children }: MenuProps) {
  const id = useId();
  const box = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const isOpen = openMenu.value?.id === id;
  useEffect(() => {
    if (!isOpen) {
      return undefined;
    }
    const press = (event: KeyboardEvent) => {
      if (event.key === "Escape") {
        event.preventDefault();
        closeMenu();
      }
    };
    const leave = (event: Event) => {
      if (event.target instanceof Node && !box.current?.contains(event.target)) {
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
  }, [isOpen]);
  useEffect(
    () => () => {
      if (openMenu.peek()?.id === id) {
        openMenu.value = undefined;
      }
    },
    [id],
  );
  const toggle = () => {
    openMenu.value = isOpen ? undefined : { id, focus: () => button.current?.focus() };
  };
  return (
    <div class="menu" ref={box}>
      <button
        type="button"
        class="menu-button"
        ref={button}
        aria-expanded={isOpen}
        aria-controls={isOpen ? id : undefined}
        onClick={toggle}
      >
        {label}
      </button>
      {isOpen && (
        <div id={id} class="menu-panel actions">
          {children}
        </div>
      )}
    </div>
  );
}
