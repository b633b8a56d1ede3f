/** The segments that the entries of a manifest name, and the blobs that contain the segments. */
import type { BlobLocation } from "@contract/checkpoint_pb.js";
import type { ManifestEntry } from "@contract/manifest_pb.js";
import { hex } from "../words.ts";

export interface Segment {
  location: BlobLocation;
  /** Checkpoints of the manifest that the segment contains. */
  checkpoints: number;
  /** Checkpoints of the manifest with pending writes in the segment. */
  writes: number;
}

export interface StoredBlob {
  blobId: string;
  segments: number;
  /** Bytes of the segments in the blob. */
  bytes: bigint;
}

export interface Chain {
  segments: Segment[];
  blobs: StoredBlob[];
  bytes: bigint;
}

/**
 * Return the segments and blobs that entries of a manifest lead to, in the order of the entries.
 */
export function chainOf(entries: readonly ManifestEntry[]): Chain {
  const segments = new Map<string, Segment>();
  const at = (location: BlobLocation): Segment => {
    const key = `${location.blobId}/${location.identifier}/${hex(location.sha256)}`;
    const known = segments.get(key) ?? { location, checkpoints: 0, writes: 0 };
    segments.set(key, known);
    return known;
  };
  for (const { segment, writes } of entries) {
    if (segment) {
      at(segment).checkpoints += 1;
    }
    for (const one of writes) {
      at(one).writes += 1;
    }
  }
  const blobs = new Map<string, StoredBlob>();
  let bytes = 0n;
  for (const { location } of segments.values()) {
    const { blobId, sizeBytes } = location;
    const known = blobs.get(blobId) ?? { blobId, segments: 0, bytes: 0n };
    known.segments += 1;
    known.bytes += sizeBytes;
    bytes += sizeBytes;
    blobs.set(blobId, known);
  }
  return { segments: [...segments.values()], blobs: [...blobs.values()], bytes };
}
