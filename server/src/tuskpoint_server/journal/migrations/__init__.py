"""Steps from one layout of the journal's tables to the next, run when it is opened."""
