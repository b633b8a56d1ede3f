/** How to check the thread without this server, and how to store its manifest for that check. */
import type { BlobLocation } from "@contract/checkpoint_pb.js";
import { useState } from "preact/hooks";
import { Ask } from "../parts/ask.tsx";
import { Command } from "../parts/command.tsx";
import { say } from "../parts/notices.tsx";
import { Note } from "../parts/problem.tsx";
import { threads } from "../server/calls.ts";
import { oneLine } from "../words.ts";
import { auditCatalog, auditManifest, placeholder } from "./commands.ts";

interface ElsewhereProps {
  threadId: string;
  catalog: BlobLocation | undefined;
  backend: string;
}

export function Elsewhere({ threadId, catalog, backend }: ElsewhereProps) {
  const [asking, setAsking] = useState(false);
  const [stored, setStored] = useState<BlobLocation>();
  const store = async () => {
    const { manifest } = await threads.getManifest({ threadId, store: true, pageSize: 1 });
    setStored(manifest);
    say(`The manifest of ${oneLine(threadId, 60)} is stored.`);
  };
  return (
    <section class="card" aria-label="Check it without this server">
      <h2>Check it without this server</h2>
      {!catalog && <p>Nothing of this thread is certified yet, so there is nothing to check.</p>}
      {catalog && (
        <>
          <p>
            To check the thread without trusting this server, run this command on another machine.
            The command reads the blobs itself, and follows the hashes from the catalog to every
            value.
          </p>
          <Command text={auditCatalog(catalog, threadId, backend)} what="audit command" />
          <p class="hint">
            {placeholder(backend)} Get the SHA-256 in a way that the server does not control. If the
            server seals its blobs, add --sealing-keys FILE with its keys, and --tenant NAME if the
            tenant is not default. The command is part of the Python client, with the extra cli.
          </p>
          <h3>Store the manifest</h3>
          <p>
            A stored manifest is the root of this thread alone: an audit or a recovery can start
            from the manifest, without a catalog.
          </p>
          <button type="button" onClick={() => setAsking(true)}>
            Store the manifest
          </button>
        </>
      )}
      {stored && (
        <Note kind="good" title="The manifest is stored" role="status">
          <p>
            <code>
              {oneLine(stored.blobId)}
              {stored.identifier && `/${oneLine(stored.identifier)}`}
            </code>
          </p>
          <Command text={auditManifest(stored, backend)} what="audit command of the manifest" />
        </Note>
      )}
      {asking && (
        <Ask
          title="Store the manifest"
          confirm="Store it"
          onConfirm={store}
          onClose={() => setAsking(false)}
        >
          <p>
            The server puts the manifest of {oneLine(threadId, 80)} into the blob store as a blob of
            its own, as it is now. Later changes are not in it.
          </p>
          <p class="quiet">Nothing renews that blob: on Walrus it costs WAL, and expires.</p>
        </Ask>
      )}
    </section>
  );
}
