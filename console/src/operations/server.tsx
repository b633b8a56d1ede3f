/** The server: version, backends, keys, limits, methods. */
import type { GetServerInfoResponse } from "@contract/admin_service_pb.js";
import { Copy, Identifier, When } from "../parts/labels.tsx";
import { counted } from "../words.ts";
import { limitsOf } from "./figures.ts";

export function Server({ info }: { info: GetServerInfoResponse }) {
  return (
    <section class="card server" aria-label="Server">
      <h2>Server</h2>
      <dl class="facts">
        <dt>Version</dt>
        <dd>{info.version}</dd>
        <dt>Started</dt>
        <dd>
          <When time={info.startTime} />
        </dd>
        <dt>Journal</dt>
        <dd>
          {info.journalBackend}, <Identifier id={info.journalId} what="journal ID" />
        </dd>
        <dt>Blob store</dt>
        <dd>{info.blobBackend}</dd>
      </dl>
      <details>
        <summary>Keys for hand-offs</summary>
        <Keys
          title="Signs hand-offs"
          keys={info.signers}
          none="The server has no key to sign with."
          says="The first key signs now; the others signed earlier hand-offs."
        />
        <Keys
          title="Hand-offs can be sealed to"
          keys={info.recipients}
          none="The server has no identity, so nobody can seal a hand-off to it. Start it with --identity."
          says="Use the first key. The server also opens hand-offs that were sealed to the others."
        />
      </details>
      <details>
        <summary>Limits</summary>
        <table>
          <thead>
            <tr>
              <th scope="col">Limit</th>
              <th scope="col" class="number">
                Value
              </th>
            </tr>
          </thead>
          <tbody>
            {(info.limits ? limitsOf(info.limits) : []).map(([name, value]) => (
              <tr key={name}>
                <td>{name}</td>
                <td class="number">{value}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </details>
      <details>
        <summary>{counted(info.methods.length, "method")} of the contract</summary>
        <ul class="methods">
          {info.methods.map((method) => (
            <li key={method}>
              <code>{method.replace(/^tuskpoint\.v1\./, "")}</code>
            </li>
          ))}
        </ul>
      </details>
    </section>
  );
}

interface KeysProps {
  title: string;
  keys: string[];
  /** Text if there are no keys. */
  none: string;
  says: string;
}

function Keys({ title, keys, none, says }: KeysProps) {
  return (
    <>
      <h3>{title}</h3>
      {keys.length === 0 && <p>{none}</p>}
      {keys.length > 0 && (
        <>
          <p class="hint">{says}</p>
          <ul class="key-list">
            {keys.map((key) => (
              <li key={key}>
                <code>{key}</code>
                <Copy text={key} what="public key" />
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}
