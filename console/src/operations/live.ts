/** Keeps a view current while its tab is visible. */
import { useEffect, useRef } from "preact/hooks";
import type { Loaded } from "../server/loading.ts";

/**
 * Reload at an interval in milliseconds while the tab is visible, and when it becomes visible.
 *
 * A load in progress is not restarted: a slow server would never complete one.
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
