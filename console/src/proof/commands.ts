/** Commands, ready to be copied, that check or recover stored data without this server. */
import type { BlobLocation } from "@contract/checkpoint_pb.js";
import { hex } from "../words.ts";

/** Return the command that audits a thread from a catalog. */
export function auditCatalog(catalog: BlobLocation, threadId: string, backend: string): string {
  return audit("catalog", catalog, backend, [`--thread=${quoted(threadId)}`]);
}

/** Return the command that audits a stored manifest. */
export function auditManifest(manifest: BlobLocation, backend: string): string {
  return audit("manifest", manifest, backend, []);
}

/** Return the command that rebuilds a server from a catalog and the blobs alone. */
export function recover(catalog: BlobLocation, backend: string): string {
  const { blobId, identifier } = catalog;
  const name = identifier ? `${blobId}/${identifier}` : blobId;
  const source =
    backend === "walrus"
      ? "--walrus-publisher-url PUBLISHER_URL --walrus-aggregator-url AGGREGATOR_URL"
      : sourceOf(backend);
  return lines([
    "tuskpoint-server recover",
    "--data-dir NEW_DIR",
    source,
    `--catalog=${quoted(name)}`,
  ]);
}

function audit(kind: string, root: BlobLocation, backend: string, more: string[]): string {
  const identifier = root.identifier ? [`--identifier=${quoted(root.identifier)}`] : [];
  const name = root.blobId.startsWith("-") ? `-- ${quoted(root.blobId)}` : quoted(root.blobId);
  return lines([
    `tuskpoint audit ${kind}`,
    ...identifier,
    `--sha256 ${hex(root.sha256)}`,
    ...more,
    sourceOf(backend),
    "--report report.json",
    name,
  ]);
}

/** Return a command over several lines of a shell. */
function lines(parts: string[]): string {
  return parts.join(" \\\n  ");
}

/** Return the location of the blobs; the reader must replace the words in capitals. */
function sourceOf(backend: string): string {
  switch (backend) {
    case "walrus":
      return "--aggregator AGGREGATOR_URL";
    case "directory":
      return "--blob-dir BLOB_DIR";
    default:
      return "--blobs BUCKET_URL";
  }
}

/** Return an explanation of the words in capitals. */
export function placeholder(backend: string): string {
  switch (backend) {
    case "walrus":
      return "AGGREGATOR_URL is any Walrus aggregator of the network, best one that the server's operator does not run.";
    case "directory":
      return "BLOB_DIR is the server's blob directory or a copy of it; by default blobs in its data directory.";
    default:
      return "BUCKET_URL is the server's setting --blobs.";
  }
}

/**
 * Return text as one word of a shell.
 *
 * An agent may have chosen the text: characters that a terminal would interpret are written as
 * their codes.
 */
export function quoted(text: string): string {
  if (/^[A-Za-z0-9_.,:/@%+=-]+$/.test(text)) {
    return text;
  }
  if (!/[\p{Cc}\p{Cf}]/u.test(text)) {
    return `'${text.replaceAll("'", `'\\''`)}'`;
  }
  const bytes = new TextEncoder();
  const body = text.replace(/[\p{Cc}\p{Cf}'\\]/gu, (character) =>
    Array.from(bytes.encode(character), (byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join(
      "",
    ),
  );
  return `$'${body}'`;
}
