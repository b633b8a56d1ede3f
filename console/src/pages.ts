/** The pages of the header, with the keys that open them. */
import { Activity, Camera, type IconNode, Import, Inbox, ListTree, Search } from "lucide";
import {
  adoptLink,
  inboxLink,
  operationsLink,
  searchLink,
  snapshotsLink,
  threadsLink,
} from "./links.ts";

export interface PageName {
  name: string;
  href: string;
  icon: IconNode;
  /** The keys that open the page, one after the other. */
  keys: string[];
  /** Paths of pages below the page. */
  below: string[];
}

export const PAGES: PageName[] = [
  {
    name: "Threads",
    href: threadsLink(),
    icon: ListTree,
    keys: ["g", "t"],
    below: ["/", "/thread", "/diff", "/proof"],
  },
  { name: "Search", href: searchLink(), icon: Search, keys: ["/"], below: [] },
  { name: "Snapshots", href: snapshotsLink(), icon: Camera, keys: ["g", "s"], below: [] },
  { name: "Inbox", href: inboxLink(), icon: Inbox, keys: ["g", "i"], below: [] },
  { name: "Adopt", href: adoptLink(), icon: Import, keys: ["g", "a"], below: [] },
  { name: "Operations", href: operationsLink, icon: Activity, keys: ["g", "o"], below: [] },
];
