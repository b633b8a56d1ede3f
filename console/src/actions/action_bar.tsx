/** The buttons of the most frequent actions, and a menu of all others. */
import { Ellipsis } from "lucide";
import { Icon } from "../parts/icon.tsx";
import { Menu } from "../parts/menu.tsx";
import type { Action } from "./action.ts";

interface ActionBarProps {
  actions: readonly Action[];
  /** What the actions are done to, such as "the thread". */
  on: string;
}

export function ActionBar({ actions, on }: ActionBarProps) {
  const inMenu = actions.filter(({ place }) => place === "menu" || place === "danger");
  return (
    <div class="actions">
      {actions
        .filter(({ place }) => place === "button")
        .map((action) => (
          <ActionButton key={action.name} action={action} />
        ))}
      {inMenu.length > 0 && (
        <Menu
          label={`More on ${on}`}
          items={inMenu.map((action) => ({ ...action, isApart: action.place === "danger" }))}
        >
          <Icon of={Ellipsis} />
          More
        </Menu>
      )}
    </div>
  );
}

function ActionButton({ action }: { action: Action }) {
  const { name, icon, key, href, run } = action;
  const content = (
    <>
      <Icon of={icon} />
      {name}
    </>
  );
  const shared = { title: key && `${name} (key ${key})`, "aria-keyshortcuts": key };
  return href === undefined ? (
    <button type="button" {...shared} onClick={run}>
      {content}
    </button>
  ) : (
    <a class="button" {...shared} href={href}>
      {content}
    </a>
  );
}
