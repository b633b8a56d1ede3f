/** Items: JSON objects that outlive threads, as records and as requests. */

import { durationFromMs } from "@bufbuild/protobuf/wkt";

import { invalidField } from "../errors.js";
import type { Item } from "../gen/tuskpoint/v1/store_service_pb.js";
import type { CallOptions } from "../transport/connection.js";
import { checkText, decodeObject, encodeJson, type JsonObject } from "./json.js";
import { moment } from "./records.js";

const MAX_COUNT = 2 ** 32 - 1;

/** The name of an item: a path of labels, and a key. */
export interface ItemKey {
  /** The path of labels. */
  readonly namespace: readonly string[];
  /** The key in the namespace. */
  readonly key: string;
}

/** An item to put or to delete. */
export interface ItemChange extends ItemKey {
  /** The value: an object that JSON can represent. Without a value, the item is deleted. */
  readonly value?: Readonly<Record<string, unknown>> | undefined;
  /**
   * Milliseconds after which the item expires, counted from the last put, or from the last read
   * with `refreshTtl`. Default: never.
   */
  readonly ttlMs?: number | undefined;
  /**
   * The parts of the value that a search by meaning sees: paths such as "text", "author.name" and
   * "notes[*].text"; "$" is the whole value. Default: the whole value. `false`: nothing.
   */
  readonly index?: readonly string[] | false | undefined;
}

/** An item. */
export interface ItemRecord extends ItemKey {
  /** The value. */
  readonly value: JsonObject;
  /** Time of the first put. */
  readonly created: Date | undefined;
  /** Time of the last put. */
  readonly updated: Date | undefined;
  /** Time at which the item expires; `undefined` means never. */
  readonly expires: Date | undefined;
  /**
   * In a search by meaning: cosine of the angle to the query, at most 1; `undefined` if the item
   * was not compared.
   */
  readonly score: number | undefined;
}

/** Options of a read of items. */
export interface GetItemsOptions extends CallOptions {
  /** Whether the time to live of the items restarts. Default: false. */
  readonly refreshTtl?: boolean | undefined;
}

/** Options of a search for items. */
export interface SearchItemsOptions extends GetItemsOptions {
  /** Text to compare items with, by meaning. Default: no comparison, the most recent puts first. */
  readonly query?: string | undefined;
  /**
   * Only items whose value has all of these entries. A value such as `{ $gte: 3 }` compares with an
   * operator: `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`.
   */
  readonly filter?: Readonly<Record<string, unknown>> | undefined;
  /** Most items to return. Default: 10. */
  readonly limit?: number | undefined;
  /** Number of items to skip. Default: 0. */
  readonly offset?: number | undefined;
}

/** The result of a search for items. */
export interface FoundItems {
  /** The items, nearest first. */
  readonly items: readonly ItemRecord[];
  /** Warnings about this search, for example that the query was not compared. */
  readonly warnings: readonly { readonly kind: string; readonly message: string }[];
}

/** Options of a listing of namespaces. */
export interface ListItemNamespacesOptions extends CallOptions {
  /** Only namespaces that start with these labels; "*" matches any label. */
  readonly prefix?: readonly string[] | undefined;
  /** Only namespaces that end with these labels; "*" matches any label. */
  readonly suffix?: readonly string[] | undefined;
  /**
   * Number of labels to which namespaces are cut; equal results are listed once. Default: not cut.
   */
  readonly maxDepth?: number | undefined;
  /** Most namespaces to list. Default: 100. */
  readonly limit?: number | undefined;
  /** Number of namespaces to skip. Default: 0. */
  readonly offset?: number | undefined;
}

/**
 * Return a change as the fields of its message.
 *
 * @throws InvalidRequest - The value cannot be written as JSON, or an argument cannot be sent.
 */
export function changeOf(change: ItemChange) {
  const { value, ttlMs, index } = change;
  const name = keyOf(change);
  if (value === undefined) {
    return name;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw invalidField("value", "it is an object");
  }
  if (ttlMs !== undefined && !(ttlMs > 0 && Number.isFinite(ttlMs))) {
    throw invalidField("ttlMs", `it must be a number of milliseconds above 0, not ${ttlMs}`);
  }
  return {
    ...name,
    valueJson: encodeJson("value", value),
    ...(ttlMs === undefined ? {} : { ttl: durationFromMs(Math.max(1, Math.round(ttlMs))) }),
    unindexed: index === false,
    indexPaths: index === undefined || index === false ? [] : labelsOf("index", index),
  };
}

/**
 * Return the name of an item as the fields of its message.
 *
 * @throws InvalidRequest - A part of the name cannot be sent.
 */
export function keyOf({ namespace, key }: ItemKey) {
  checkText("key", key);
  return { namespace: labelsOf("namespace", namespace), key };
}

/**
 * Return checked labels.
 *
 * @throws InvalidRequest - The labels are not an array of texts that can be sent.
 */
export function labelsOf(what: string, labels: readonly string[]): string[] {
  if (!Array.isArray(labels)) {
    throw invalidField(what, "it must be an array of strings");
  }
  for (const label of labels) {
    checkText(what, label);
  }
  return [...labels];
}

/**
 * Return a checked number of entries.
 *
 * @throws InvalidRequest - The number is not whole, or is below the least.
 */
export function countOf(what: string, count: number, least: number): number {
  if (!Number.isInteger(count) || count < least) {
    throw invalidField(what, `it must be a whole number, ${least} or more, not ${count}`);
  }
  return Math.min(count, MAX_COUNT);
}

/** Return an item as a record. */
export function itemRecord(item: Item, score?: number): ItemRecord {
  return {
    namespace: item.namespace,
    key: item.key,
    value: decodeObject(item.valueJson),
    created: moment(item.createTime),
    updated: moment(item.updateTime),
    expires: moment(item.expireTime),
    score,
  };
}
