/** Keeps a view current while somebody can see it. */
import { useEffect } from "preact/hooks";

/** Calls `reload` every so many milliseconds while the tab is visible, and when it becomes so. */
export function useLive(reload: () => void, milliseconds: number): void {
  useEffect(() => {
    let timer = 0;
    const look = () => {
      window.clearInterval(timer);
      if (!document.hidden) {
        timer = window.setInterval(reload, milliseconds);
      }
    };
    const turn = () => {
      look();
      if (!document.hidden) {
        reload();
      }
    };
    look();
    document.addEventListener("visibilitychange", turn);
    return () => {
      window.clearInterval(timer);
      document.removeEventListener("visibilitychange", turn);
    };
  }, [reload, milliseconds]);
}
