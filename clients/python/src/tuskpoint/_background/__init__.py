"""Queue of the steps that `BackgroundSaver` keeps until they are saved. Must not make calls."""
