/** Wheel, mouse and fingers on the timeline. A plain wheel scrolls the page, as everywhere. */
import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Place } from "./pointed.tsx";

const CLICK = 4; // pixels that a click may move
const LINE = 16; // pixels of a wheel that turns by lines
const NOTCH = 50; // pixels from which a turn is a notch of a mouse, not a pinch of a touchpad

export interface Gestures {
  zoomBy: (factor: number, x: number) => void;
  panBy: (pixels: number) => void;
  /** Whether the timeline can be moved to the side. */
  isPart: boolean;
  /** A place is clicked, in pixels from the upper left corner. */
  click: (place: Place) => void;
  /** The pointer is at a place; undefined: it left. */
  hover: (place: Place | undefined) => void;
}

/** Tells gestures on an element; the functions may change with every render. */
export function useGestures(element: RefObject<HTMLElement | null>, gestures: Gestures): void {
  const latest = useRef(gestures);
  latest.current = gestures;
  useEffect(() => {
    const target = element.current;
    return target ? listen(target, latest) : undefined;
  }, [element]);
}

function listen(target: HTMLElement, latest: RefObject<Gestures>): () => void {
  const down = new Map<number, Place>();
  let moved = 0;
  const place = ({ clientX, clientY }: MouseEvent) => {
    const { left, top } = target.getBoundingClientRect();
    return { x: clientX - left, y: clientY - top };
  };
  const wheel = (event: WheelEvent) => {
    const pixels = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE : 1;
    const [x, y] = [event.deltaX * pixels, event.deltaY * pixels];
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const strength = Math.abs(y) < NOTCH ? 0.01 : 0.0025;
      latest.current?.zoomBy(Math.exp(-y * strength), place(event).x);
    } else if ((event.shiftKey || Math.abs(x) > Math.abs(y)) && latest.current?.isPart) {
      event.preventDefault();
      latest.current.panBy(x || y);
    }
  };
  const press = (event: PointerEvent) => {
    if (event.button === 0) {
      down.set(event.pointerId, place(event));
      moved = down.size > 1 ? CLICK + 1 : 0;
    }
  };
  const move = (event: PointerEvent) => {
    const before = down.get(event.pointerId);
    const now = place(event);
    if (!before) {
      latest.current?.hover(event.pointerType === "mouse" ? now : undefined);
      return;
    }
    const other = [...down].find(([id]) => id !== event.pointerId)?.[1];
    moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    if (moved > CLICK) {
      target.setPointerCapture(event.pointerId);
      latest.current?.hover(undefined);
      latest.current?.panBy((before.x - now.x) / down.size);
      if (other) {
        const width = Math.max(1, Math.abs(before.x - other.x));
        const factor = Math.max(1, Math.abs(now.x - other.x)) / width;
        latest.current?.zoomBy(factor, (now.x + other.x) / 2);
      }
      down.set(event.pointerId, now);
    }
  };
  const lift = (event: PointerEvent) => {
    const was = down.delete(event.pointerId);
    if (was && event.type === "pointerup" && moved <= CLICK) {
      latest.current?.click(place(event));
    }
  };
  const leave = () => latest.current?.hover(undefined);
  target.addEventListener("wheel", wheel, { passive: false });
  target.addEventListener("pointerdown", press);
  target.addEventListener("pointermove", move);
  target.addEventListener("pointerup", lift);
  target.addEventListener("pointercancel", lift);
  target.addEventListener("pointerleave", leave);
  return () => {
    target.removeEventListener("wheel", wheel);
    target.removeEventListener("pointerdown", press);
    target.removeEventListener("pointermove", move);
    target.removeEventListener("pointerup", lift);
    target.removeEventListener("pointercancel", lift);
    target.removeEventListener("pointerleave", leave);
  };
}
