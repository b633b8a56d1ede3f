/** Icons of the Lucide set, in the colour of the text around them. */
import type { IconNode } from "lucide";
import { type ButtonHTMLAttributes, h } from "preact";

/** A decoration of 16 pixels: the text beside it, or the control around it, says what it means. */
export function Icon({ of }: { of: IconNode }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      {of.map(([tag, attributes]) => h(tag, attributes))}
    </svg>
  );
}

interface IconButtonProps extends ButtonHTMLAttributes {
  of: IconNode;
  /** What the button does: its accessible name and its tooltip. */
  label: string;
}

/** A button that shows only an icon. */
export function IconButton({ of, label, ...attributes }: IconButtonProps) {
  return (
    <button type="button" class="icon-button" {...attributes} aria-label={label} title={label}>
      <Icon of={of} />
    </button>
  );
}
