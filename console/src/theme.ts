/** Light or dark: the system's setting, until the user chooses. */
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "tuskpoint.theme";

function stored(): Theme {
  const text = localStorage.getItem(KEY);
  return text === "light" || text === "dark" ? text : "system";
}

/** Return the theme after a theme, for a button: first the theme that differs from the system's. */
export function after(theme: Theme): Theme {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const other = isDark ? "light" : "dark";
  return theme === "system" ? other : theme === other ? (isDark ? "dark" : "light") : "system";
}

export const theme = signal<Theme>(stored());

effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
  localStorage.setItem(KEY, theme.value);
});
