/** Items: JSON objects that outlive threads. */

import type { Warning } from "../gen/tuskpoint/v1/errors_pb.js";
import { WarningKind } from "../gen/tuskpoint/v1/errors_pb.js";
import {
  changeOf,
  countOf,
  itemRecord,
  keyOf,
  labelsOf,
  type FoundItems,
  type GetItemsOptions,
  type ItemChange,
  type ItemKey,
  type ItemRecord,
  type ListItemNamespacesOptions,
  type SearchItemsOptions,
} from "../messages/items.js";
import { encodeObject } from "../messages/json.js";
import { durability, nameOf } from "../messages/words.js";
import { emitWarnings } from "../transport/warnings.js";
import { BATCH, callOf, checkOptions, checkTexts } from "./arguments.js";
import type { ChangeOptions } from "./options.js";
import { Snapshots } from "./snapshots.js";

/** The part of the client that stores and searches items. */
export abstract class Items extends Snapshots {
  /**
   * Put and delete items, all or none.
   *
   * @param changes - At most 1,000; the last of several changes to one item counts.
   * @throws InvalidRequest - A value cannot be written as JSON, or an argument breaks its limits.
   * @throws ResourceExhausted - A value is too large, or the backlog of uncertified data is full.
   */
  async putItems(changes: Iterable<ItemChange>, options: ChangeOptions = {}): Promise<void> {
    const call = callOf(options);
    const messages = [...changes].map(changeOf);
    if (messages.length > 0) {
      const request = { changes: messages, durability: durability(options.durability) };
      const { warnings } = await this.raw.store.putItems(request, call);
      emitWarnings(this.target, warnings);
    }
  }

  /** Return an item for each key, `undefined` for an item that does not exist or has expired. */
  async getItems(
    keys: Iterable<ItemKey>,
    options: GetItemsOptions = {},
  ): Promise<(ItemRecord | undefined)[]> {
    const call = callOf(options);
    const names = [...keys].map(keyOf);
    const records = new Map<string, ItemRecord>();
    for (let begin = 0; begin < names.length; ) {
      const batch = names.slice(begin, begin + BATCH);
      const request = { keys: batch, refreshTtl: options.refreshTtl ?? false };
      const answer = await this.raw.store.getItems(request, call);
      for (const item of answer.items) {
        records.set(identity(item), itemRecord(item));
      }
      begin += Math.max(1, answer.answeredKeys);
    }
    return names.map((name) => records.get(identity(name)));
  }

  /**
   * Search the items below a namespace: nearest first, or without a query the most recent puts
   * first.
   *
   * @param namespacePrefix - The labels that namespaces start with; none: all namespaces.
   * @throws InvalidRequest - An argument breaks its limits, or an operator is unknown.
   */
  async searchItems(
    namespacePrefix: readonly string[] = [],
    options: SearchItemsOptions = {},
  ): Promise<FoundItems> {
    const call = callOf(options);
    const { query = "", filter, refreshTtl = false } = options;
    checkTexts({ query });
    const limit = countOf("limit", options.limit ?? 10, 1);
    const offset = countOf("offset", options.offset ?? 0, 0);
    const request = {
      namespacePrefix: labelsOf("namespacePrefix", namespacePrefix),
      filterJson: encodeObject("filter", filter),
      query,
      refreshTtl,
    };
    const items: ItemRecord[] = [];
    const warnings = new Map<string, Warning>();
    for (;;) {
      const size = Math.min(limit - items.length, BATCH);
      const page = { ...request, offset: offset + items.length, limit: size };
      const answer = await this.raw.store.searchItems(page, call);
      for (const { item, score } of answer.items) {
        if (item !== undefined) {
          items.push(itemRecord(item, score));
        }
      }
      for (const warning of answer.warnings) {
        warnings.set(`${warning.kind} ${warning.message}`, warning);
      }
      const isFull = answer.cut || answer.items.length === size;
      if (answer.items.length === 0 || !isFull || items.length >= limit) {
        break;
      }
    }
    emitWarnings(this.target, [...warnings.values()]);
    return {
      items,
      warnings: [...warnings.values()].map(({ kind, message }) => ({
        kind: nameOf(WarningKind, kind),
        message,
      })),
    };
  }

  /**
   * Return the namespaces that have items, in sorted order.
   *
   * @throws InvalidRequest - An argument breaks its limits.
   */
  async listItemNamespaces(options: ListItemNamespacesOptions = {}): Promise<string[][]> {
    checkOptions(options);
    const call = callOf(options);
    const { prefix, suffix, maxDepth } = options;
    const limit = countOf("limit", options.limit ?? 100, 1);
    const offset = countOf("offset", options.offset ?? 0, 0);
    const patterns = [
      ...(prefix === undefined ? [] : [{ labels: labelsOf("prefix", prefix), atEnd: false }]),
      ...(suffix === undefined ? [] : [{ labels: labelsOf("suffix", suffix), atEnd: true }]),
    ];
    const request = {
      patterns,
      maxDepth: maxDepth === undefined ? 0 : countOf("maxDepth", maxDepth, 1),
    };
    const namespaces: string[][] = [];
    for (;;) {
      const size = Math.min(limit - namespaces.length, BATCH);
      const page = { ...request, offset: offset + namespaces.length, limit: size };
      const answer = await this.raw.store.listItemNamespaces(page, call);
      namespaces.push(...answer.namespaces.map(({ labels }) => labels));
      if (answer.namespaces.length < size || namespaces.length >= limit) {
        return namespaces;
      }
    }
  }
}

function identity({ namespace, key }: ItemKey): string {
  return JSON.stringify([namespace, key]);
}
