/**
 * Time to pixels and back: folded gaps have a width of their own, and all other time has one scale.
 *
 * At zoom 1 everything fits the width. A fold keeps its width at every zoom; only where folds would
 * need more than half of the width they are narrower, until the zoom makes room.
 */

export interface Fold {
  from: number;
  to: number;
  /** Pixels. */
  width: number;
}

const MOST_FOR_FOLDS = 0.5; // of the width at zoom 1
const FINEST = 100; // pixels of a millisecond at the highest zoom

export class Scale {
  private readonly ends: Float64Array;
  /** Unfolded time, and pixels of folds, up to the end of each fold. */
  private readonly time: Float64Array;
  private readonly folded: Float64Array;
  /** Pixels of a millisecond at zoom 1. */
  private readonly fit: number;
  private readonly narrow: number;
  private readonly whole: number;

  /** `folds` are sorted, and do not overlap. `width`: the pixels at zoom 1. */
  constructor(
    private readonly from: number,
    to: number,
    private readonly folds: readonly Fold[],
    width: number,
  ) {
    this.ends = Float64Array.from(folds, (fold) => fold.to);
    this.time = new Float64Array(folds.length);
    this.folded = new Float64Array(folds.length);
    let [time, pixels, last] = [0, 0, from];
    folds.forEach((fold, index) => {
      time += fold.from - last;
      pixels += fold.width;
      last = fold.to;
      this.time[index] = time;
      this.folded[index] = pixels;
    });
    this.whole = time + Math.max(0, to - last);
    this.narrow = pixels > 0 ? Math.min(1, (MOST_FOR_FOLDS * width) / pixels) : 1;
    this.fit = Math.max(0, width - this.narrow * pixels) / Math.max(this.whole, 1);
  }

  get mostZoom(): number {
    return Math.max(1, FINEST / Math.max(this.fit, Number.MIN_VALUE));
  }

  /** Milliseconds of a pixel outside of folds. */
  pace(zoom: number): number {
    return 1 / Math.max(this.fit * zoom, Number.MIN_VALUE);
  }

  /** Return the pixels from the first to the last time. */
  width(zoom: number): number {
    return this.whole * this.fit * zoom + (this.folded.at(-1) ?? 0) * this.shrink(zoom);
  }

  /** Return the distance of a time from the first time, in pixels. */
  x(time: number, zoom: number): number {
    const index = after(this.ends, time);
    const fold = this.folds[index];
    const end = index > 0 ? (this.folds[index - 1]?.to ?? this.from) : this.from;
    const outside = Math.min(time, fold?.from ?? time) - end;
    const inside = fold && time > fold.from ? (time - fold.from) / (fold.to - fold.from) : 0;
    const before = index > 0 ? (this.time[index - 1] ?? 0) : 0;
    const pixels = (index > 0 ? (this.folded[index - 1] ?? 0) : 0) + inside * (fold?.width ?? 0);
    return (before + outside) * this.fit * zoom + pixels * this.shrink(zoom);
  }

  /** Return the time at a distance from the first time. */
  timeAt(x: number, zoom: number): number {
    let [low, high] = [0, this.folds.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      const end = this.x(this.folds[middle]?.to ?? 0, zoom);
      [low, high] = end <= x ? [middle + 1, high] : [low, middle];
    }
    const end = low > 0 ? (this.folds[low - 1]?.to ?? this.from) : this.from;
    const beyond = x - this.x(end, zoom);
    const fold = this.folds[low];
    const time = end + beyond * this.pace(zoom);
    if (!fold || time <= fold.from) {
      return time;
    }
    const width = Math.max(fold.width * this.shrink(zoom), Number.MIN_VALUE);
    const share = Math.min(1, (x - this.x(fold.from, zoom)) / width);
    return fold.from + share * (fold.to - fold.from);
  }

  /** Return the end of the fold around a time; undefined: the time is not folded. */
  foldEnd(time: number): number | undefined {
    const fold = this.folds[after(this.ends, time)];
    return fold && time > fold.from && time < fold.to ? fold.to : undefined;
  }

  private shrink(zoom: number): number {
    return Math.min(1, this.narrow * zoom);
  }
}

/** Return the index of the first of the sorted times that is greater than or equal to a time. */
function after(sorted: Float64Array, time: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    [low, high] = (sorted[middle] ?? 0) < time ? [middle + 1, high] : [low, middle];
  }
  return low;
}
