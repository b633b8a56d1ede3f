/** The heading of a page, which also names the tab of the browser. */
import { useLayoutEffect } from "preact/hooks";

interface TitleProps {
  text: string;
  /** Name of the tab where the heading alone says too little. */
  tab?: string;
}

export function Title({ text, tab = text }: TitleProps) {
  useLayoutEffect(() => {
    document.title = `${tab} · TuskPoint`;
  }, [tab]);
  return <h1>{text}</h1>;
}
