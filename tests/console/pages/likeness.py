"""How alike two pictures of a page are, whatever times, IDs and durations the page shows.

Pictures are compared in cells of 20 pixels, each blurred with its neighbours. A difference counts
if it fills an area of about 140 pixels square: one letter for another changes nothing there, and a
panel that is missing changes everything below its upper edge.

Measured on every picture: two runs of the demo differ by at most 2 of 255, a panel that is missing
by at least 11, and the other theme by more than 200.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from PIL import Image, ImageChops, ImageFilter

CELL = 20
AREA = 3  # cells around a cell
TOLERANCE = 6

Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Difference:
    """The greatest difference of two pictures.

    Attributes:
        amount: Of 255.
        x: Its centre, in pixels from the left.
        y: Its centre, in pixels from the top.
    """

    amount: int
    x: int
    y: int

    @property
    def is_seen(self) -> bool:
        """Whether the pictures show something else."""
        return self.amount > TOLERANCE


def difference(first: Image.Image, second: Image.Image, moving: Iterable[Box] = ()) -> Difference:
    """Compare two pictures of the same size.

    Args:
        first: A picture.
        second: Another picture.
        moving: Parts where the place from left to right is a time. Only their rows are compared.
    """
    assert first.size == second.size, f"{first.size} pixels, not {second.size}"
    boxes = [*moving]
    sketches = (_sketch(picture, boxes) for picture in (first, second))
    red, green, blue = ImageChops.difference(*sketches).split()
    most = ImageChops.lighter(red, ImageChops.lighter(green, blue))
    areas = most.filter(ImageFilter.BoxBlur(AREA))
    amounts = areas.tobytes()
    amount = max(amounts)
    row, column = divmod(amounts.index(amount), areas.width)
    return Difference(amount, column * CELL + CELL // 2, row * CELL + CELL // 2)


def _sketch(picture: Image.Image, moving: Iterable[Box]) -> Image.Image:
    """Return a picture of coarse cells."""
    sketch = picture.convert("RGB")
    for box in moving:
        part = sketch.crop(box)
        rows = part.resize((1, part.height), Image.Resampling.BOX)
        sketch.paste(rows.resize(part.size), box)
    return sketch.reduce(CELL).filter(ImageFilter.BoxBlur(1))
