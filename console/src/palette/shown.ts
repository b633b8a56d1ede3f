/** Whether the palette is open, and the keys that open it. */
import { signal } from "@preact/signals";

export const isPaletteShown = signal(false);

const isApple = /Mac|iPhone|iPad/.test(navigator.platform);

/** The keys that open the palette, pressed together. */
export const PALETTE_KEYS = [isApple ? "⌘" : "Ctrl", "K"];
