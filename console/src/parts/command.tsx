/** A command line to copy. */
import { visible } from "../words.ts";
import { Copy } from "./labels.tsx";

export function Command({ text, what }: { text: string; what: string }) {
  return (
    <div class="command">
      <pre>
        <code>{visible(text)}</code>
      </pre>
      <Copy text={text} what={what} />
    </div>
  );
}
