"""One file per step; a published step is never changed."""
