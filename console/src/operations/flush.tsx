/** Certifies the backlog, after a confirmation. */
import { useState } from "preact/hooks";
import { Ask } from "../parts/ask.tsx";
import { say } from "../parts/notices.tsx";
import { admin } from "../server/calls.ts";
import { counted } from "../words.ts";

interface FlushButtonProps {
  /** Called after everything that was journaled before is certified. */
  onDone: () => void;
}

export function FlushButton({ onDone }: FlushButtonProps) {
  const [asking, setAsking] = useState(false);
  const flush = async () => {
    const { certifiedCheckpoints } = await admin.flush({});
    say(
      certifiedCheckpoints > 0n
        ? `Flushed: ${counted(certifiedCheckpoints, "checkpoint")} became certified.`
        : "Flushed: everything was certified already.",
    );
    onDone();
  };
  return (
    <>
      <button type="button" onClick={() => setAsking(true)}>
        Flush
      </button>
      {asking && (
        <Ask title="Flush" confirm="Flush now" onConfirm={flush} onClose={() => setAsking(false)}>
          <p>
            Stores everything that this tenant saved so far in the blob store, and waits until it is
            certified. The server also does this by itself, a little later.
          </p>
          <p class="quiet">On Walrus each flush costs WAL. A flush needs the scope admin.</p>
        </Ask>
      )}
    </>
  );
}
