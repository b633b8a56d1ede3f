/** Keeps a view current while somebody can see it. */
import { useEffect, useRef } from "preact/hooks";
import type { Loaded } from "../server/loading.ts";

/**
 * Loads again every so many milliseconds while the tab is visible, and when it becomes so.
 *
 * What is under way is not begun again: a slow server would never come to its end.
 */
export function useLive({ loading, reload }: Loaded<unknown>, milliseconds: number): void {
  const busy = useRef(loading);
  busy.current = loading;
  useEffect(() => {
    const look = () => {
      if (!document.hidden && !busy.current) {
        reload();
      }
    };
    const timer = window.setInterval(look, milliseconds);
    document.addEventListener("visibilitychange", look);
    return () => {
      window.clearInterval(timer);
      document.removeEventListener("visibilitychange", look);
    };
  }, [reload, milliseconds]);
}
