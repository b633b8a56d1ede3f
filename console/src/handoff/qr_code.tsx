/** A text as a QR code, drawn with SVG. */
import { useMemo } from "preact/hooks";
import { encode } from "uqr";

/** Bytes that the largest QR code contains with the weakest error correction. */
const LONGEST = 2953;

interface QrCodeProps {
  text: string;
  /** The content of the code, for screen readers. */
  label: string;
}

export function QrCode({ text, label }: QrCodeProps) {
  const code = useMemo(() => qrCode(text), [text]);
  if (!code) {
    return (
      <p class="hint">
        It is too long for a QR code, which holds {LONGEST.toLocaleString("en")} bytes. Copy it or
        download it instead.
      </p>
    );
  }
  return (
    <svg
      class="qr"
      role="img"
      aria-label={label}
      viewBox={`0 0 ${code.size} ${code.size}`}
      shape-rendering="crispEdges"
    >
      <rect width={code.size} height={code.size} fill="#fff" />
      <path d={code.path} fill="#000" />
    </svg>
  );
}

/**
 * Return the size of a code with its margin, and the path of its dark squares; undefined: the text
 * is too long.
 */
export function qrCode(text: string): { size: number; path: string } | undefined {
  if (new TextEncoder().encode(text).length > LONGEST) {
    return undefined;
  }
  const { size, data } = encode(text, { ecc: "L", border: 4 });
  const squares = data.flatMap((row, y) =>
    row.flatMap((dark, x) => (dark ? [`M${x} ${y}h1v1h-1z`] : [])),
  );
  return { size, path: squares.join("") };
}
